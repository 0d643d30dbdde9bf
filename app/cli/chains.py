"""Commands that verify the ledger and the audit log by themselves, without the service, from a database or a file."""

import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.config import Settings
from app.errors import AuditCorrupt, DatabaseUnreadable
from lethe.cli.output import console, new_group
from lethe.cli.proofs import key_set_in, tell, verify_export
from lethe.contract.problems import CertificateInvalid, LedgerCorrupt, TenantUnknown

if TYPE_CHECKING:
    from joserfc.jwk import KeySet
    from sqlalchemy.orm import Session

    from lethe.verification.chains import KeptHead, SignedHead

ledger, audit = new_group(), new_group()
commands = new_group()
for name, group in (("ledger", ledger), ("audit", audit)):
    commands.add_typer(group, name=name)

Tenant = Annotated[str | None, typer.Option(help="Only this tenant's; default: every tenant's")]
Jwks = Annotated[Path | None, typer.Option(help="The issuer's public keys; default: the data folder's")]


@ledger.command("verify")
def ledger_verify(
    export: Annotated[
        Path | None,
        typer.Argument(exists=True, dir_okay=False, help="An exported ledger; default: the one in the database"),
    ] = None,
    head: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A signed head that was kept elsewhere")
    ] = None,
    tenant: Tenant = None,
    jwks: Annotated[
        Path | None, typer.Option(help="The issuer's public keys; default: EXPORT.jwks.json, or the data folder's")
    ] = None,
) -> None:
    """Recompute every hash and every number of the ledger from its entries alone, and hold it against its signed heads.

    With EXPORT offline, as anybody can who has the issuer's public keys and perhaps a head that they kept. Without, in
    the database, also against all certificates in it and the heads that the tombstones keep.
    """
    from app.accounting import anchors
    from app.audit.chains import LEDGER

    if export is not None:
        verify_export(export, head=head, jwks=jwks)
        return
    settings, kept = Settings(), LEDGER.kept(head.read_text()) if head else None
    with _reading(settings) as session:
        tenant_ids = _tenants(session, tenant)
        keys, remembered = _public_keys(jwks), _remembered(settings, LEDGER.name)
        if kept is not None and kept.tenant_id not in tenant_ids:
            raise LedgerCorrupt(f"The head is about tenant {kept.tenant_id!r}, whose ledger is not there.")
        both = [*remembered, *([kept] if kept else [])]
        tell([anchors.verify_tenant(session, keys, tenant_id=one, kept=both) for one in tenant_ids])


@audit.command("verify")
def audit_verify(
    tenant: Tenant = None,
    jwks: Jwks = None,
    checkpoint: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="The JWS of a checkpoint that was kept elsewhere")
    ] = None,
) -> None:
    """Recompute the audit log of every tenant from its entries alone, and hold it against its signed checkpoints, those
    in the database and those that the tombstones keep."""
    from app.audit import repository
    from app.audit.chains import AUDIT

    settings, keys = Settings(), _public_keys(jwks)
    kept = AUDIT.kept(checkpoint.read_text()) if checkpoint else None
    remembered = _remembered(settings, AUDIT.name)
    with _reading(settings) as session:
        tenant_ids = _tenants(session, tenant)
        if kept is not None and kept.tenant_id not in tenant_ids:
            raise AuditCorrupt(f"The checkpoint is about tenant {kept.tenant_id!r}, whose log is not there.")
        for tenant_id in tenant_ids:
            also = [one for one in [*remembered, kept] if one is not None and one.tenant_id == tenant_id]
            entries = repository.all_entries(session, tenant_id=tenant_id)
            signed: Iterator[SignedHead] = heapq.merge(
                repository.all_checkpoints(session, AUDIT, tenant_id=tenant_id),
                sorted(also, key=_sequence),
                key=_sequence,
            )
            chain = AUDIT.verify(tenant_id, entries, signed, keys)
            console.print(
                f"[green]valid[/]  {tenant_id}  {chain.entries} entries, signed up to {chain.signed}"
                f" ({chain.checkpoints - len(also)} checkpoints)  {chain.head}"
            )


def _public_keys(jwks: Path | None) -> "KeySet":
    """Those of a file, or of the data folder, where no key is made. Raises `CertificateInvalid`."""
    from joserfc.jwk import KeySet

    from app.keys import Keys
    from lethe.verification.signatures import key_set

    signing_key = Settings().data_dir / "keys" / "signing.jwk"
    if jwks is not None:
        return key_set(key_set_in(jwks))
    if not signing_key.exists():
        raise CertificateInvalid(f"There is no {signing_key}: name the issuer's public keys with --jwks.")
    return KeySet([Keys(signing_key.parent).signing_key])


def _remembered(settings: Settings, log: str) -> "list[KeptHead]":
    """The heads that the tombstones keep, which somebody who writes to the database alone does not reach."""
    from app.audit.chains import CHAINS
    from app.backup import tombstones

    chain = next(chain for chain in CHAINS if chain.name == log)
    return [chain.kept(head.jws) for head in tombstones.kept_heads(settings) if head.log == log]


@contextmanager
def _reading(settings: Settings) -> "Iterator[Session]":
    from sqlalchemy.exc import OperationalError

    from app.db import Database, migrate

    database = Database(settings.resolved_database_url(), read_only=True)
    try:
        with database.looking() as connection:
            migrate.schema_there(connection)
        with database.reading() as session:
            yield session
    except OperationalError as error:
        raise DatabaseUnreadable(f"{error.orig}; is LETHE_DATA_DIR right?") from error
    finally:
        database.close()


def _tenants(session: "Session", tenant: str | None) -> list[str]:
    """Raises `TenantUnknown`."""
    from app.audit import repository

    tenant_ids = repository.tenant_ids(session)
    if tenant is not None and tenant not in tenant_ids:
        raise TenantUnknown(f"There is no tenant {tenant!r}.")
    return [tenant] if tenant else tenant_ids


def _sequence(one: Any) -> int:
    return int(one.sequence)
