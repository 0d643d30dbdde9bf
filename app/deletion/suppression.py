"""Suppression of people who asked to be forgotten: their rows are refused until they consent anew.

A request suppresses from its acceptance on, whether anything was held or not. It stops when it is withdrawn before a
worker took it, and no other request has asked the same since; or when somebody records the person's consent.
"""

import datetime
from collections.abc import Collection, Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit import service as audit
from app.db import bulk
from app.db.paging import Page, page
from app.db.people import is_about
from app.db.tables import DeletionRequest, RequestEvent, Suppression, new_id
from lethe.contract.sets import RequestStatus

ANYWHERE = "*"
_MOST_AT_ONCE = 10_000
_FEW = 1000
"""Suppressions that are read in less time than thousands of references are looked up in."""
_LONGEST_TRANSACTION = datetime.timedelta(minutes=5)
"""Time by which what is committed now may have been dated earlier."""


def add(session: Session, requests: Sequence[DeletionRequest], *, at: datetime.datetime) -> None:
    """Suppress the people of requests that are accepted at `at`; who is suppressed stays so by the first of them."""
    rows = [
        {
            "subject_ref": subject_ref,
            "dataset_id": dataset_id,
            "id": new_id("sup"),
            "request_id": request.id,
            "created_at": at,
            "tenant_id": request.tenant_id,
        }
        for request in requests
        for subject_ref in request.subject_refs
        for dataset_id in _where(request)
    ]
    bulk.store(session, Suppression, rows, unless_there=True)


def withdraw(session: Session, request: DeletionRequest) -> None:
    """Suppress nobody any more for a request that was withdrawn, but for those that were accepted after it."""
    mine = sa.select(Suppression).where(
        Suppression.subject_ref.in_(request.subject_refs), Suppression.request_id == request.id
    )
    others = _accepted_after(session, request)
    for row in session.scalars(mine):
        theirs = (other for other in others if row.subject_ref in other.subject_refs)
        successor = next((other for other in theirs if row.dataset_id in _where(other)), None)
        if successor is None:
            session.delete(row)
        else:
            row.request_id = successor.id


def is_suppressed(session: Session, dataset_id: str, subject_refs: Collection[str]) -> set[str]:
    """Those of the people whose rows this dataset must not take (`*`: one that is only being made)."""
    refs, found = list(subject_refs), set[str]()
    here = Suppression.dataset_id.in_({dataset_id, ANYWHERE})
    if len(refs) > _FEW:  # a statement that names thousands takes longer than to read thousands
        everybody = set(session.scalars(sa.select(Suppression.subject_ref).where(here).limit(_FEW)))
        if len(everybody) < _FEW:
            return everybody.intersection(refs)
    for first in range(0, len(refs), _MOST_AT_ONCE):
        among = Suppression.subject_ref.in_(refs[first : first + _MOST_AT_ONCE])
        found |= set(session.scalars(sa.select(Suppression.subject_ref).where(among, here)))
    return found


def suppressed_since(session: Session, since: datetime.datetime, dataset_id: str = ANYWHERE) -> set[str]:
    """Everybody whose rows this dataset must not take (`*`: one that is only being made), and who may not have been
    suppressed yet at the time `since`."""
    query = sa.select(Suppression.subject_ref).where(
        Suppression.created_at >= since - _LONGEST_TRANSACTION, Suppression.dataset_id.in_({dataset_id, ANYWHERE})
    )
    return set(session.scalars(query))


def suppressions(session: Session, *, subject_ref: str | None, limit: int, cursor: str | None) -> Page[Suppression]:
    query = sa.select(Suppression)
    if subject_ref is not None:
        query = query.where(Suppression.subject_ref == subject_ref)
    return page(session, query, Suppression.created_at, Suppression.id, limit=limit, cursor=cursor)


def lift(session: Session, subject_ref: str, *, reason: str) -> int:
    """Take rows of this person again, for a recorded reason; returns how many suppressions that ends."""
    rows = session.scalars(sa.select(Suppression).where(Suppression.subject_ref == subject_ref)).all()
    for row in rows:
        audit.record(session, "suppression.lifted", row.id, request_id=row.request_id, reason=reason)
        session.delete(row)
    return len(rows)


def _where(request: DeletionRequest) -> set[str]:
    return {ANYWHERE} if request.dataset_ids is None else set(request.dataset_ids)


def _accepted_after(session: Session, request: DeletionRequest) -> list[DeletionRequest]:
    """Requests of the same person that still stand and were accepted later: they found the person suppressed.

    The others were accepted before, and somebody consented since, or this one would not have been the first.
    """
    accepted = (
        sa.select(sa.func.min(RequestEvent.id))
        .where(RequestEvent.request_id == DeletionRequest.id, RequestEvent.status == RequestStatus.ACCEPTED)
        .correlate(DeletionRequest)
        .scalar_subquery()
    )
    mine = sa.select(sa.func.min(RequestEvent.id)).where(
        RequestEvent.request_id == request.id, RequestEvent.status == RequestStatus.ACCEPTED
    )
    query = sa.select(DeletionRequest).where(
        is_about(request.subject_refs),
        DeletionRequest.id != request.id,
        DeletionRequest.status.in_((RequestStatus.ACCEPTED, RequestStatus.RUNNING, RequestStatus.COMPLETED)),
        accepted > mine.scalar_subquery(),
    )
    return list(session.scalars(query.order_by(DeletionRequest.created_at, DeletionRequest.id)))
