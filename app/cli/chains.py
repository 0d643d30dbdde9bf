"""Command that verifies the ledger from a database or a file, without a running service."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.config import Settings
from lethe.cli.commands import key_set_in, print_reports, verify_export
from lethe.cli.gateway import new_group
from lethe.contract.problems import CertificateInvalid, LedgerCorrupt, TenantUnknown

if TYPE_CHECKING:
    from joserfc.jwk import KeySet
    from sqlalchemy.orm import Session

    from lethe.verification.chains import KeptHead

ledger = new_group()
commands = new_group()
commands.add_typer(ledger, name="ledger")

Tenant = Annotated[str | None, typer.Option(help="Only this tenant; default: all tenants")]


@ledger.command("verify")
def ledger_verify(
    export: Annotated[
        Path | None,
        typer.Argument(exists=True, dir_okay=False, help="Exported ledger; default: the ledger in the database"),
    ] = None,
    head: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Signed head that was kept elsewhere")
    ] = None,
    tenant: Tenant = None,
    jwks: Annotated[
        Path | None, typer.Option(help="Issuer's public keys; default: EXPORT.jwks.json or the data folder's keys")
    ] = None,
) -> None:
    """Recompute every hash and number of the ledger from its entries alone, and compare them with its signed heads.
    With EXPORT, verify the file offline, with the issuer's public keys and optionally a head kept elsewhere. Otherwise
    verify the database, also against its certificates and the heads in the tombstones."""
    from app.accounting import ledger as anchors
    from app.audit.checkpoints import LEDGER

    if export is not None:
        verify_export(export, head=head, jwks=jwks)
        return
    settings, external_head = Settings(), LEDGER.kept(head.read_text()) if head else None
    with reading(settings) as session:
        tenant_ids = tenants(session, tenant)
        keys, remembered = public_keys(jwks), remembered_heads(settings, LEDGER.name)
        if external_head is not None and external_head.tenant_id not in tenant_ids:
            raise LedgerCorrupt(f"The head is about tenant {external_head.tenant_id!r}, whose ledger is not there.")
        heads = [*remembered, *([external_head] if external_head else [])]
        print_reports(
            [anchors.verify_tenant(session, keys, tenant_id=tenant_id, heads=heads) for tenant_id in tenant_ids]
        )


def public_keys(jwks: Path | None) -> "KeySet":
    """Read the public keys from a file or the data folder, creating no key there. Raises `CertificateInvalid`."""
    from joserfc.jwk import KeySet

    from app.keys import Keys
    from lethe.verification.certificates import key_set

    signing_key = Settings().data_dir / "keys" / "signing.jwk"
    if jwks is not None:
        return key_set(key_set_in(jwks))
    if not signing_key.exists():
        raise CertificateInvalid(f"There is no {signing_key}: name the issuer's public keys with --jwks.")
    return KeySet([Keys(signing_key.parent).signing_key])


def remembered_heads(settings: Settings, log: str) -> "list[KeptHead]":
    """Return the heads in the tombstones, which an attacker who can write only to the database cannot change."""
    from app.audit.checkpoints import CHAINS
    from app.journal import tombstones

    chain = next(chain for chain in CHAINS if chain.name == log)
    return [chain.kept(head.jws) for head in tombstones.kept_heads(settings) if head.log == log]


@contextmanager
def reading(settings: Settings) -> "Iterator[Session]":
    from app.db import Database, migrate

    database = Database(settings.resolved_database_url(), read_only=True)
    try:
        with database.looking() as connection:
            migrate.check_connection(connection)
        with database.reading() as session:
            yield session
    finally:
        database.close()


def tenants(session: "Session", tenant: str | None) -> list[str]:
    """Return the ids of all tenants, or only of `tenant` if given. Raises `TenantUnknown`."""
    from app.audit import repository

    tenant_ids = repository.tenant_ids(session)
    if tenant is not None and tenant not in tenant_ids:
        raise TenantUnknown(tenant_id=tenant)
    return [tenant] if tenant else tenant_ids
