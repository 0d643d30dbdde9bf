"""All SQL about what is kept of requests that have ended."""

import datetime
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from app.db.people import is_about
from app.db.sealed import Payload
from app.db.tables import DeletionRequest, RequestAlias, Suppression, WebhookDelivery
from app.deletion import attachments_repository, notes_repository
from app.protocols import opendsr
from lethe.contract.sets import DeliveryStatus, RequestStatus

NOBODY = "sub_unknown"
"""The subject of a request, once it is kept no longer."""


def ended(
    session: Session, *, tenant_id: str, kept: str, before: datetime.datetime, limit: int
) -> list[DeletionRequest]:
    """Requests of which so much is kept, that ended before, and about which nothing is still to be sent: `limit`, and
    what came with them. What came in one subject request, an identity each, goes together: while a part of it is kept,
    it would be taken for another one."""
    part, parts = aliased(DeletionRequest), _part_of(DeletionRequest)
    waits = sa.or_(part.ended_at.is_(None), part.ended_at > before, _is_to_be_sent(part))
    query = sa.select(DeletionRequest).where(
        DeletionRequest.kept == kept,
        DeletionRequest.tenant_id == tenant_id,
        DeletionRequest.ended_at <= before,
        ~_is_to_be_sent(DeletionRequest),
        ~sa.exists().where(parts, _part_of(part), part.tenant_id == tenant_id, _reference(part) == _THEIRS, waits),
    )
    found = list(session.scalars(query.order_by(DeletionRequest.ended_at).limit(limit)))
    references = {one.external_ref for one in found if one.source == opendsr.SOURCE and one.external_ref is not None}
    others = sa.select(DeletionRequest).where(
        parts,
        DeletionRequest.tenant_id == tenant_id,
        DeletionRequest.kept == kept,
        _THEIRS.in_(references),
        DeletionRequest.id.not_in([one.id for one in found]),
    )
    return [*found, *(session.scalars(others) if references else ())]


def _is_to_be_sent(request: type[DeletionRequest]) -> sa.ColumnElement[bool]:
    return sa.exists().where(WebhookDelivery.request_id == request.id, WebhookDelivery.status == DeliveryStatus.PENDING)


def _part_of(request: type[DeletionRequest]) -> sa.ColumnElement[bool]:
    """A condition: the request is part of a subject request."""
    return request.source == opendsr.SOURCE


def _reference(request: type[DeletionRequest]) -> sa.ColumnElement[str]:
    """As it is stored: what is bound to the column would be hashed."""
    return sa.type_coerce(request.external_ref, sa.String)


_THEIRS = _reference(DeletionRequest)


def payloads(session: Session, *, request_ids: Collection[str]) -> list[Payload]:
    """The payloads that were sent to receivers about these requests."""
    return list(session.scalars(sa.select(WebhookDelivery.letter).where(WebhookDelivery.request_id.in_(request_ids))))


def keys_beside(session: Session, *, request_ids: Collection[str]) -> dict[str, list[str]]:
    """The keys under which notes about these requests are sealed, and files attached to them, by request."""
    notes = notes_repository.keys(session, request_ids=request_ids)
    files = attachments_repository.keys(session, request_ids=request_ids)
    return {one: [*notes.get(one, ()), *files.get(one, ())] for one in notes.keys() | files.keys()}


def still(session: Session, *, request_ids: Collection[str], kept: str) -> list[str]:
    """Those of the requests of which so much is kept."""
    query = sa.select(DeletionRequest.id).where(DeletionRequest.id.in_(request_ids), DeletionRequest.kept == kept)
    return list(session.scalars(query))


def let_go(session: Session, *, request_ids: Collection[str], trace_only: bool) -> None:
    """Keep nothing that anybody wrote about these requests; with `trace_only` not whom they are about either."""
    nothing: dict[str, Any] = {"particulars": None, "external_ref": None, "kept": "request"}
    if trace_only:
        nothing |= {"kept": "trace", "subject_ref": NOBODY, "alias_refs": None}
        _let_in(session, request_ids)
        session.execute(sa.delete(RequestAlias).where(RequestAlias.request_id.in_(request_ids)))
        following = sa.or_(DeletionRequest.refers_to.in_(request_ids), DeletionRequest.id.in_(request_ids))
        session.execute(
            sa.update(DeletionRequest).where(following).values(refers_to=None),
            execution_options={"synchronize_session": False},
        )
    notes_repository.drop(session, request_ids=request_ids)
    attachments_repository.drop(session, request_ids=request_ids)
    sent = sa.and_(WebhookDelivery.request_id.in_(request_ids), WebhookDelivery.ended_at.is_not(None))
    session.execute(sa.delete(WebhookDelivery).where(sent))
    session.execute(
        sa.update(DeletionRequest).where(DeletionRequest.id.in_(request_ids)).values(**nothing),
        execution_options={"synchronize_session": False},
    )


def _let_in(session: Session, request_ids: Collection[str]) -> None:
    """Suppress nobody any more for these requests, but for people of whom another one is kept that stands."""
    for row in session.scalars(sa.select(Suppression).where(Suppression.request_id.in_(request_ids))).all():
        others = sa.select(DeletionRequest.id).where(
            is_about([row.subject_ref]),
            DeletionRequest.id.not_in(request_ids),
            DeletionRequest.status.in_((RequestStatus.ACCEPTED, RequestStatus.RUNNING, RequestStatus.COMPLETED)),
        )
        successor = session.scalars(others.order_by(DeletionRequest.created_at).limit(1)).first()
        if successor is None:
            session.delete(row)
        else:
            row.request_id = successor
    session.flush()
