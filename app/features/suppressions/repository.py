"""SQL queries for the list of suppressions."""

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import bulk, tables
from app.deletion.search_repository import is_linked


def suppressions(
    session: Session, *, subject_ref: str | None, discreet: bool, limit: int, cursor: str | None
) -> bulk.Page[tables.Suppression]:
    """Return a page of suppressions, newest first, optionally only those of `subject_ref`. Discreet readers do not see
    suppressions of identifiers that an identity map has linked."""
    query = sa.select(tables.Suppression)
    if discreet:
        mine = tables.DeletionRequest.id == tables.Suppression.request_id
        query = query.where(
            ~sa.exists().where(mine, is_linked(sa.type_coerce(tables.Suppression.subject_ref, sa.String)))
        )
    if subject_ref is not None:
        query = query.where(tables.Suppression.subject_ref == subject_ref)
    return bulk.page(session, query, tables.Suppression.created_at, tables.Suppression.id, limit=limit, cursor=cursor)
