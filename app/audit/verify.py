"""An independent reader of the audit log: recomputes a chain, and holds it against what was signed about it."""

from collections.abc import Iterable
from dataclasses import dataclass

from joserfc.jwk import KeySet

from app.audit import checkpoints
from app.audit.service import GENESIS, entry_hash
from app.db.tables import AuditCheckpoint, AuditEntry
from app.errors import AuditCorrupt


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """What was verified of one tenant's log: its entries, its checkpoints, and up to which entry they vouch for it."""

    entries: int
    checkpoints: int
    signed: int
    head: str


def verify(
    tenant_id: str, entries: Iterable[AuditEntry], signed: Iterable[AuditCheckpoint], public_keys: KeySet
) -> Chain:
    """Verify a tenant's `entries` against what was `signed` about them, both in their order, in flat memory.

    Raises `AuditCorrupt`, naming the first entry or checkpoint at fault and what is wrong with it.
    """
    sequence, head, num_signed, last_signed = 0, GENESIS, 0, 0
    remaining = iter(signed)
    check = next(remaining, None)
    for entry in entries:
        sequence, head = sequence + 1, _linked(tenant_id, entry, sequence=sequence + 1, previous=head)
        while check is not None and check.sequence == sequence:
            _confirm(tenant_id, check, head=head, public_keys=public_keys)
            num_signed, last_signed = num_signed + 1, sequence
            check = next(remaining, None)
    if check is not None:
        raise _corrupt(tenant_id, f"entry {sequence + 1}", f"it is missing, and entry {check.sequence} was signed")
    return Chain(entries=sequence, checkpoints=num_signed, signed=last_signed, head=head)


def _linked(tenant_id: str, entry: AuditEntry, *, sequence: int, previous: str) -> str:
    if entry.sequence != sequence:
        raise _corrupt(tenant_id, f"entry {sequence}", "it is missing")
    if entry.tenant_id != tenant_id:
        raise _corrupt(tenant_id, f"entry {sequence}", "it is of another tenant")
    if entry.previous_hash != previous:
        raise _corrupt(tenant_id, f"entry {sequence}", "it does not follow its predecessor")
    if entry.hash != entry_hash(entry):
        raise _corrupt(tenant_id, f"entry {sequence}", "it is not what was hashed")
    return entry.hash


def _confirm(tenant_id: str, check: AuditCheckpoint, *, head: str, public_keys: KeySet) -> None:
    if check.tenant_id != tenant_id or not checkpoints.is_signed(check, public_keys):
        raise _corrupt(tenant_id, f"checkpoint {check.sequence}", "it was not signed with any of the given keys")
    if check.hash != head:
        raise _corrupt(tenant_id, f"entry {check.sequence}", "it is not what was signed")


def _corrupt(tenant_id: str, place: str, what: str) -> AuditCorrupt:
    return AuditCorrupt(f"Tenant {tenant_id}, audit {place}: {what}.")
