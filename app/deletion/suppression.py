"""Suppression of people who have asked to be forgotten: their rows are refused until they consent again.

A request suppresses its subject once it is accepted, whether or not rows are held. The suppression ends if the request
is withdrawn before a worker claims it and no later request takes it over, or when the person's consent is recorded.
"""

import datetime
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit import service as audit
from app.db import bulk, tables
from app.deletion import search_repository


def add(session: Session, requests: Sequence[tables.DeletionRequest], *, at: datetime.datetime) -> None:
    """Suppress the subjects of requests accepted at `at`; an existing suppression keeps its first request."""
    rows = [
        {
            "subject_ref": subject_ref,
            "dataset_id": dataset_id,
            "id": tables.new_id("sup"),
            "request_id": request.id,
            "created_at": at,
            "tenant_id": request.tenant_id,
        }
        for request in requests
        for subject_ref in request.subject_refs
        for dataset_id in _where(request)
    ]
    bulk.store(session, tables.Suppression, rows, unless_there=True)


def withdraw(session: Session, request: tables.DeletionRequest) -> None:
    """Delete the suppressions of a withdrawn request, or transfer each to a request accepted later."""
    mine = sa.select(tables.Suppression).where(
        tables.Suppression.subject_ref.in_(request.subject_refs), tables.Suppression.request_id == request.id
    )
    others = search_repository.accepted_after(session, request)
    for row in session.scalars(mine):
        theirs = (other for other in others if row.subject_ref in other.subject_refs)
        successor = next((other for other in theirs if row.dataset_id in _where(other)), None)
        if successor is None:
            session.delete(row)
        else:
            row.request_id = successor.id


def lift(session: Session, subject_ref: str, *, reason: str) -> int:
    """End all suppressions of a person, for a recorded reason, and return their number."""
    rows = session.scalars(sa.select(tables.Suppression).where(tables.Suppression.subject_ref == subject_ref)).all()
    for row in rows:
        audit.record(session, "suppression.lifted", row.id, request_id=row.request_id, reason=reason)
        session.delete(row)
    return len(rows)


def _where(request: tables.DeletionRequest) -> set[str]:
    return {search_repository.ANYWHERE} if request.dataset_ids is None else set(request.dataset_ids)
