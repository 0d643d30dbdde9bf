"""SQL queries about requests that no run has claimed."""

import datetime
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.functions import usually
from app.db.tables import Dataset, DeletionRequest, Erasure, Record, RequestAlias, Run
from lethe.contract.sets import RequestStatus, RunStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclaimed:
    """Requests about unclaimed rows of one dataset: how many a worker can claim (`ready`; the oldest became ready at
    `oldest_at`), how many are in their grace period, and how many are in review."""

    dataset_id: str
    first_due_at: datetime.datetime
    ready: int
    oldest_at: datetime.datetime | None
    first_ready_due_at: datetime.datetime | None
    in_grace: int
    grace_until: datetime.datetime | None
    in_review: int


_THESE: sa.BindParameter[Collection[str]] = sa.bindparam("these", expanding=True)
_TENANT: sa.BindParameter[str] = sa.bindparam("tenant_id")
_AT = sa.bindparam("at", type_=Erasure.ready_at.type)
_MINE = DeletionRequest.tenant_id == _TENANT
_IN_REVIEW = DeletionRequest.status.in_((RequestStatus.RECEIVED, RequestStatus.IN_REVIEW))
_ASKS_FOR = sa.or_(
    DeletionRequest.dataset_ids.is_(None),
    sa.cast(DeletionRequest.dataset_ids, sa.String).contains('"' + Record.dataset_id + '"'),
)
"""Condition on requests joined with records: the request covers the record's dataset, by name or as one of all."""
_ACCEPTED = sa.and_(Erasure.dataset_id.in_(_THESE), Erasure.revision.is_(None), Erasure.ready_at.is_not(None))


def _in_review() -> sa.CompoundSelect[Any]:
    """Return the requests in review for each dataset. They have no erasures yet, so their rows are found by subject."""
    # Without statistics SQLite would read all rows of the datasets for each request, unless no index has this column.
    dataset_id = sa.func.coalesce(Record.dataset_id, sa.null())
    theirs = sa.and_(_MINE, dataset_id.in_(_THESE), usually(Record.erasure_id.is_(None)), _IN_REVIEW, _ASKS_FOR)
    rows = sa.select(Record.dataset_id, DeletionRequest.id, DeletionRequest.subject_ref, DeletionRequest.deadline)
    by_subject = rows.join(Record, Record.subject_ref == DeletionRequest.subject_ref).where(theirs)
    by_alias = (
        rows.join(RequestAlias, RequestAlias.request_id == DeletionRequest.id)
        .join(Record, Record.subject_ref == RequestAlias.subject_ref)
        .where(theirs)
    )
    return sa.union(by_subject, by_alias)


def _unclaimed() -> sa.Select[Any]:
    """Return the statement for `unclaimed`. For accepted requests, it reads only an index, not the requests."""
    accepted = sa.select(Erasure.dataset_id, Erasure.deadline, Erasure.ready_at).where(_ACCEPTED)
    in_review, never = _in_review().subquery(), sa.cast(sa.null(), Erasure.ready_at.type).label("ready_at")
    rows = sa.union_all(accepted, sa.select(in_review.c.dataset_id, in_review.c.deadline, never)).subquery()
    ready, in_grace = rows.c.ready_at <= _AT, rows.c.ready_at > _AT
    return sa.select(
        rows.c.dataset_id,
        sa.func.min(rows.c.deadline).label("first_due_at"),
        sa.func.count().filter(ready).label("ready"),
        sa.func.min(rows.c.ready_at).label("oldest_at"),
        sa.func.min(rows.c.deadline).filter(ready).label("first_ready_due_at"),
        sa.func.count().filter(in_grace).label("in_grace"),
        sa.func.max(rows.c.ready_at).filter(in_grace).label("grace_until"),
        sa.func.count().filter(rows.c.ready_at.is_(None)).label("in_review"),
    ).group_by(rows.c.dataset_id)


def _people() -> sa.Select[Any]:
    """Return the statement for `people`. It reads each request by id; in a join, PostgreSQL would read all requests."""
    theirs = sa.select(DeletionRequest.subject_ref).where(DeletionRequest.id == Erasure.request_id, usually(_MINE))
    accepted = sa.select(Erasure.dataset_id, theirs.scalar_subquery().label("subject_ref")).where(_ACCEPTED)
    in_review = _in_review().subquery()
    rows = sa.union_all(accepted, sa.select(in_review.c.dataset_id, in_review.c.subject_ref)).subquery()
    return sa.select(rows.c.dataset_id, sa.func.count(rows.c.subject_ref.distinct())).group_by(rows.c.dataset_id)


_UNCLAIMED, _PEOPLE = _unclaimed(), _people()
"""Statements built once at import, because building one takes longer than running it."""


def unclaimed(
    session: Session, *, tenant_id: str, dataset_ids: Collection[str], at: datetime.datetime
) -> dict[str, Unclaimed]:
    """Map each dataset with waiting requests to the counts of its requests about unclaimed rows."""
    rows = session.execute(_UNCLAIMED, {"tenant_id": tenant_id, "these": list(dataset_ids), "at": at}).mappings()
    return {row["dataset_id"]: Unclaimed(**row) for row in rows}


def people(session: Session, *, tenant_id: str, dataset_ids: Collection[str]) -> dict[str, int]:
    """Map each dataset with waiting requests to the number of people they concern. This reads every waiting request."""
    rows = session.execute(_PEOPLE, {"tenant_id": tenant_id, "these": list(dataset_ids)})
    return {dataset_id: count for dataset_id, count in rows}  # noqa: C416  rows are no pairs


def datasets(session: Session, *, dataset_ids: Collection[str]) -> dict[str, Dataset]:
    """Return the datasets with the given ids, keyed by id."""
    query = sa.select(Dataset).where(Dataset.id.in_(list(dataset_ids)))
    return {dataset.id: dataset for dataset in session.scalars(query)}


def datasets_with_a_run(session: Session, *, dataset_ids: Collection[str]) -> set[str]:
    """Return those of the `dataset_ids` that have a run in progress."""
    query = sa.select(Run.dataset_id).where(Run.status == RunStatus.RUNNING, Run.dataset_id.in_(list(dataset_ids)))
    return set(session.scalars(query))
