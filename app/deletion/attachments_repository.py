"""All SQL about files that are attached to requests. Bytes are read where they are asked for alone."""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.paging import Page, page
from app.db.tables import RequestAttachment


def of_request(session: Session, *, request_id: str, limit: int, cursor: str | None) -> Page[RequestAttachment]:
    """The attachments of a request, oldest first, without their bytes."""
    query = sa.select(RequestAttachment).where(RequestAttachment.request_id == request_id)
    order = RequestAttachment.at, RequestAttachment.id
    return page(session, query, *order, limit=limit, cursor=cursor, ascending=True)


def count(session: Session, *, request_id: str) -> int:
    query = sa.select(sa.func.count()).select_from(RequestAttachment)
    return session.scalars(query.where(RequestAttachment.request_id == request_id)).one()


def get(session: Session, *, request_id: str, attachment_id: str) -> RequestAttachment | None:
    query = sa.select(RequestAttachment).where(RequestAttachment.id == attachment_id)
    return session.scalars(query.where(RequestAttachment.request_id == request_id)).one_or_none()


def delete(session: Session, *, request_id: str, attachment_id: str) -> bool:
    """False if it is not there."""
    found = get(session, request_id=request_id, attachment_id=attachment_id)
    if found is None:
        return False
    session.delete(found)
    session.flush()
    return True


def keys(session: Session, *, request_ids: Collection[str]) -> dict[str, list[str]]:
    """The keys under which attachments of these requests are sealed, by request."""
    found: dict[str, list[str]] = {}
    query = sa.select(RequestAttachment.request_id, RequestAttachment.name)
    for request_id, name in session.execute(query.where(RequestAttachment.request_id.in_(request_ids))):
        if name.key is not None:
            found.setdefault(request_id, []).append(name.key)
    return found


def drop(session: Session, *, request_ids: Collection[str]) -> None:
    session.execute(
        sa.delete(RequestAttachment).where(RequestAttachment.request_id.in_(request_ids)),
        execution_options={"synchronize_session": False},
    )
