"""An independent reader of a tenant's chains: recomputes one, and holds it against what was signed about it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from joserfc.jwk import KeySet

from app.audit import checkpoints
from app.audit.chains import AUDIT, GENESIS, Chain
from app.db.tables import Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of verifying a chain: its rows, its checkpoints, and up to which row they vouch for it."""

    entries: int
    checkpoints: int
    signed: int
    head: str


def verify(
    tenant_id: str, rows: Iterable[Any], signed: Iterable[Checkpoint], public_keys: KeySet, chain: Chain = AUDIT
) -> Verified:
    """Verify the `rows` of a tenant's chain against what was `signed` about them, both in their order, in flat memory.

    Raises `AuditCorrupt`, or of a ledger `LedgerCorrupt`, naming the first row or checkpoint at fault and what is wrong
    with it.
    """
    sequence, head, num_signed, last_signed = 0, GENESIS, 0, 0
    remaining = iter(signed)
    check = next(remaining, None)
    for row in rows:
        sequence, head = sequence + 1, _linked(chain, tenant_id, row, sequence=sequence + 1, previous=head)
        while check is not None and check.sequence == sequence:
            _confirm(chain, tenant_id, check, head=head, public_keys=public_keys)
            num_signed, last_signed = num_signed + 1, sequence
            check = next(remaining, None)
    if check is not None:
        what = f"it is missing, and entry {check.sequence} was signed"
        raise chain.fault(tenant_id, f"{chain.item} {sequence + 1}", what)
    return Verified(entries=sequence, checkpoints=num_signed, signed=last_signed, head=head)


def _linked(chain: Chain, tenant_id: str, row: Any, *, sequence: int, previous: str) -> str:
    place = f"{chain.item} {sequence}"
    if row.sequence != sequence:
        raise chain.fault(tenant_id, place, "it is missing")
    if row.tenant_id != tenant_id:
        raise chain.fault(tenant_id, place, "it is of another tenant")
    if row.previous_hash != previous:
        raise chain.fault(tenant_id, place, "it does not follow its predecessor")
    if row.hash != chain.hash_of(row):
        raise chain.fault(tenant_id, place, "it is not what was hashed")
    return str(row.hash)


def _confirm(chain: Chain, tenant_id: str, check: Checkpoint, *, head: str, public_keys: KeySet) -> None:
    if check.tenant_id != tenant_id or not checkpoints.is_signed(check, public_keys):
        place = f"{chain.name} checkpoint {check.sequence}"
        raise chain.fault(tenant_id, place, "it was not signed with any of the given keys")
    if check.hash != head:
        raise chain.fault(tenant_id, f"{chain.item} {check.sequence}", "it is not what was signed")
