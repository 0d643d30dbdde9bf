"""Number of bytes that a tenant stores, summed in the database each time, and its limit.

Sums are never stored, so they reflect every deletion. An upload that would exceed the limit is refused while it is
being read, and again in the transaction that registers it, during which no other upload can intervene.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.config import Settings
from app.db.tables import Addition, Dataset
from app.rows.formats import encoded_bytes
from lethe import sockets
from lethe.contract.problems import StorageQuotaExceeded


def _total(num_rows: Any, width: Any = Dataset.num_features) -> sa.Select[Any]:
    num_bytes: Any = encoded_bytes(num_rows, width)
    return sa.select(sa.func.sum(num_bytes))


_DATASETS = _total(sa.cast(Dataset.num_slots, sa.BigInteger)).where(Dataset.destroyed_at.is_(None))
_ADDED = _total(sa.cast(Addition.num_records, sa.BigInteger)).where(Addition.staged)
_OF_CORE = (("datasets", _DATASETS), ("additions", _ADDED.join(Dataset, Dataset.id == Addition.dataset_id)))


def stored(session: Session) -> dict[str, int]:
    """Return the bytes stored by the session's tenant, by kind, in core and features (extension socket `STORED`)."""
    queries = (*_OF_CORE, *sockets.plugs("app.features", "tables", "STORED"))
    return {kind: int(session.scalar(query) or 0) for kind, query in queries}


def require_room(session: Session, settings: Settings, num_bytes: int) -> None:
    """Raise `StorageQuotaExceeded` if another `num_bytes` would exceed the tenant's storage quota."""
    by_kind = stored(session)
    total = sum(by_kind.values()) + num_bytes
    if total > settings.max_tenant_bytes:
        kinds = ", ".join(f"{kind} {num}" for kind, num in sorted(by_kind.items(), key=lambda item: -item[1]) if num)
        raise StorageQuotaExceeded(num_bytes=total, max_bytes=settings.max_tenant_bytes, kinds=kinds or "nothing")


QUOTAS = (require_room,)
STORED_BYTES = (stored,)
