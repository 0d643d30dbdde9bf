"""All SQL about internal notes."""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.paging import Page, page
from app.db.tables import RequestNote


def of_request(session: Session, *, request_id: str, limit: int, cursor: str | None) -> Page[RequestNote]:
    """The notes about a request, oldest first."""
    query = sa.select(RequestNote).where(RequestNote.request_id == request_id)
    return page(session, query, RequestNote.at, RequestNote.id, limit=limit, cursor=cursor, ascending=True)


def count(session: Session, *, request_id: str) -> int:
    query = sa.select(sa.func.count()).select_from(RequestNote).where(RequestNote.request_id == request_id)
    return session.scalars(query).one()


def keys(session: Session, *, request_ids: Collection[str]) -> dict[str, list[str]]:
    """The keys under which notes about these requests are sealed, by request."""
    found: dict[str, list[str]] = {}
    query = sa.select(RequestNote.request_id, RequestNote.text).where(RequestNote.request_id.in_(request_ids))
    for request_id, text in session.execute(query):
        if text.key is not None:
            found.setdefault(request_id, []).append(text.key)
    return found


def drop(session: Session, *, request_ids: Collection[str]) -> None:
    session.execute(
        sa.delete(RequestNote).where(RequestNote.request_id.in_(request_ids)),
        execution_options={"synchronize_session": False},
    )
