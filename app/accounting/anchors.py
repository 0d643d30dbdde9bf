"""The ledger of a tenant held against everything that was signed about it, in the database and elsewhere."""

from collections.abc import Sequence

from joserfc.jwk import KeySet
from sqlalchemy.orm import Session

from app.accounting import earlier, repository
from app.audit import repository as chains
from app.audit.chains import LEDGER
from app.db.tables import Checkpoint
from lethe.contract.problems import LedgerCorrupt
from lethe.verification import ledgers
from lethe.verification.chains import SignedHead
from lethe.verification.ledgers import OfTenant


def verify_tenant(
    session: Session, public_keys: KeySet, *, tenant_id: str, kept: Sequence[SignedHead] = ()
) -> OfTenant:
    """Verify the ledger of a tenant as it is in the database, also against heads that were `kept` elsewhere.

    Raises `LedgerCorrupt`.
    """
    found = ledgers.verify_tenant(
        tenant_id,
        entries=repository.entries_of_tenant(session, tenant_id=tenant_id),
        versions=repository.versions_of_tenant(session, tenant_id=tenant_id),
        links=chains.rows_of(session, LEDGER, tenant_id=tenant_id),
        signed=chains.all_checkpoints(session, LEDGER, tenant_id=tenant_id),
        certificates=repository.certificates_of_tenant(session, tenant_id=tenant_id),
        public_keys=public_keys,
        vouched=earlier.vouched_in(session, public_keys, tenant_id=tenant_id),
    )
    for one in kept:
        if one.tenant_id == tenant_id:
            ledgers.require_kept(found, one, public_keys)
    return found


def head(session: Session, public_keys: KeySet, *, tenant_id: str) -> Checkpoint | None:
    """The signed head of a tenant's ledger, which is that of its last link; None where nothing was published.

    Raises `LedgerCorrupt` where the last link is not signed: a worker signs it, unless somebody changed it.
    """
    last = chains.last_row(session, LEDGER, tenant_id=tenant_id)
    found = chains.checkpoints(session, LEDGER, tenant_id=tenant_id, limit=1)
    if last is None and not found:
        return None
    if not found or last is None or (found[0].sequence, found[0].hash) != (last.sequence, last.hash):
        raise LedgerCorrupt(
            f"Tenant {tenant_id}: the last link of the ledger is not what was signed, or not signed yet. A worker "
            "signs it within a minute; if it does not, run `lethe ledger verify`."
        )
    if not LEDGER.is_signed(found[0], public_keys):
        raise LedgerCorrupt(f"Tenant {tenant_id}: what was signed about the ledger was changed.")
    return found[0]
