"""Command that verifies the audit log from a database, without a running service."""

import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app import config, errors
from app.cli import chains
from lethe.cli.gateway import console, new_group

if TYPE_CHECKING:
    from lethe.verification.chains import SignedHead

Jwks = Annotated[Path | None, typer.Option(help="Issuer's public keys; default: the data folder's keys")]

audit = new_group()
commands = new_group()
commands.add_typer(audit, name="audit")


@audit.command("verify")
def audit_verify(
    tenant: chains.Tenant = None,
    jwks: Jwks = None,
    checkpoint: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="JWS of a checkpoint that was kept elsewhere")
    ] = None,
) -> None:
    """Recompute every hash of each tenant's audit log from its entries alone, and compare the hashes with the signed
    checkpoints in the database and in the tombstones."""
    from app.audit import repository
    from app.audit.checkpoints import AUDIT

    settings, keys = config.Settings(), chains.public_keys(jwks)
    kept = AUDIT.kept(checkpoint.read_text()) if checkpoint else None
    remembered = chains.remembered_heads(settings, AUDIT.name)
    with chains.reading(settings) as session:
        tenant_ids = chains.tenants(session, tenant)
        if kept is not None and kept.tenant_id not in tenant_ids:
            raise errors.AuditCorrupt(f"The checkpoint is about tenant {kept.tenant_id!r}, whose log is not there.")
        for tenant_id in tenant_ids:
            external = [head for head in [*remembered, kept] if head is not None and head.tenant_id == tenant_id]
            entries = repository.all_entries(session, tenant_id=tenant_id)
            signed: Iterator[SignedHead] = heapq.merge(
                repository.all_checkpoints(session, AUDIT, tenant_id=tenant_id),
                sorted(external, key=_sequence),
                key=_sequence,
            )
            chain = AUDIT.verify(tenant_id, entries, signed, keys)
            console.print(
                f"[green]valid[/]  {tenant_id}  {chain.entries} entries, signed up to {chain.signed}"
                f" ({chain.checkpoints - len(external)} checkpoints)  {chain.head}"
            )


def _sequence(head: Any) -> int:
    return int(head.sequence)
