"""Check that the row store contains nothing that a root does not name."""

from app.rows import row_store
from app.rows.row_store import RowStore


def is_settled(store: RowStore, rows_id: str, root: str) -> bool:
    """Return True if every stored key belongs to a block named by the root."""
    return store._sealed.keys(rows_id) <= row_store._named(rows_id, store._manifest(rows_id, root))
