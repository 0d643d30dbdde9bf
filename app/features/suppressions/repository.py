"""SQL queries for the list of suppressions."""

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.bulk import Page, page
from app.db.tables import DeletionRequest, Suppression
from app.deletion.search_repository import is_linked


def suppressions(
    session: Session, *, subject_ref: str | None, discreet: bool, limit: int, cursor: str | None
) -> Page[Suppression]:
    """Return a page of suppressions, newest first, optionally only those of `subject_ref`. Discreet readers do not see
    suppressions of identifiers that an identity map has linked."""
    query = sa.select(Suppression)
    if discreet:
        mine = DeletionRequest.id == Suppression.request_id
        query = query.where(~sa.exists().where(mine, is_linked(sa.type_coerce(Suppression.subject_ref, sa.String))))
    if subject_ref is not None:
        query = query.where(Suppression.subject_ref == subject_ref)
    return page(session, query, Suppression.created_at, Suppression.id, limit=limit, cursor=cursor)
