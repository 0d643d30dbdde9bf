"""All SQL about requests that no run has taken up."""

import datetime
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.likely import usually
from app.db.tables import Dataset, DeletionRequest, Erasure, Record, RequestAlias, Run
from lethe.contract.sets import RequestStatus, RunStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclaimed:
    """Requests about rows of one dataset that nobody has claimed: how many a worker may take (`ready`, of which the
    first could be at `oldest_at`), are in their grace time, or in review."""

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
"""A condition on requests and records: it names the dataset, or none."""
_ACCEPTED = sa.and_(Erasure.dataset_id.in_(_THESE), Erasure.revision.is_(None), Erasure.ready_at.is_not(None))


def _in_review() -> sa.CompoundSelect[Any]:
    """A request in review has asked for nothing yet: its rows are looked for by whose they are."""
    theirs = sa.and_(_MINE, Record.dataset_id.in_(_THESE), usually(Record.erasure_id.is_(None)), _IN_REVIEW, _ASKS_FOR)
    found = sa.select(Record.dataset_id, DeletionRequest.id, DeletionRequest.subject_ref, DeletionRequest.deadline)
    by_name = found.join(Record, Record.subject_ref == DeletionRequest.subject_ref).where(theirs)
    by_alias = (
        found.join(RequestAlias, RequestAlias.request_id == DeletionRequest.id)
        .join(Record, Record.subject_ref == RequestAlias.subject_ref)
        .where(theirs)
    )
    return sa.union(by_name, by_alias)


def _unclaimed() -> sa.Select[Any]:
    """Statement of all but the people: an index answers it about what is accepted, without the requests."""
    accepted = sa.select(Erasure.dataset_id, Erasure.deadline, Erasure.ready_at).where(_ACCEPTED)
    once, never = _in_review().subquery(), sa.cast(sa.null(), Erasure.ready_at.type).label("ready_at")
    found = sa.union_all(accepted, sa.select(once.c.dataset_id, once.c.deadline, never)).subquery()
    ready, in_grace = found.c.ready_at <= _AT, found.c.ready_at > _AT
    return sa.select(
        found.c.dataset_id,
        sa.func.min(found.c.deadline).label("first_due_at"),
        sa.func.count().filter(ready).label("ready"),
        sa.func.min(found.c.ready_at).label("oldest_at"),
        sa.func.min(found.c.deadline).filter(ready).label("first_ready_due_at"),
        sa.func.count().filter(in_grace).label("in_grace"),
        sa.func.max(found.c.ready_at).filter(in_grace).label("grace_until"),
        sa.func.count().filter(found.c.ready_at.is_(None)).label("in_review"),
    ).group_by(found.c.dataset_id)


def _people() -> sa.Select[Any]:
    """Each request is looked up by its id: joined, PostgreSQL would read all of them."""
    theirs = sa.select(DeletionRequest.subject_ref).where(DeletionRequest.id == Erasure.request_id, usually(_MINE))
    accepted = sa.select(Erasure.dataset_id, theirs.scalar_subquery().label("subject_ref")).where(_ACCEPTED)
    once = _in_review().subquery()
    found = sa.union_all(accepted, sa.select(once.c.dataset_id, once.c.subject_ref)).subquery()
    return sa.select(found.c.dataset_id, sa.func.count(found.c.subject_ref.distinct())).group_by(found.c.dataset_id)


_UNCLAIMED, _PEOPLE = _unclaimed(), _people()
"""Made once: making a statement anew takes longer than running it."""


def unclaimed(
    session: Session, *, tenant_id: str, dataset_ids: Collection[str], at: datetime.datetime
) -> dict[str, Unclaimed]:
    """By the id of each of these datasets of a tenant about which anybody waits."""
    found = session.execute(_UNCLAIMED, {"tenant_id": tenant_id, "these": list(dataset_ids), "at": at}).mappings()
    return {row["dataset_id"]: Unclaimed(**row) for row in found}


def people(session: Session, *, tenant_id: str, dataset_ids: Collection[str]) -> dict[str, int]:
    """By the id of each of these datasets of a tenant about which anybody waits: how many do. It reads each request."""
    found = session.execute(_PEOPLE, {"tenant_id": tenant_id, "these": list(dataset_ids)})
    return {dataset_id: count for dataset_id, count in found}  # noqa: C416  rows are no pairs


def datasets(session: Session, *, dataset_ids: Collection[str]) -> dict[str, Dataset]:
    """These datasets, by their ids."""
    query = sa.select(Dataset).where(Dataset.id.in_(list(dataset_ids)))
    return {dataset.id: dataset for dataset in session.scalars(query)}


def datasets_with_a_run(session: Session, *, dataset_ids: Collection[str]) -> set[str]:
    """Those of these datasets on which a run is under way."""
    query = sa.select(Run.dataset_id).where(Run.status == RunStatus.RUNNING, Run.dataset_id.in_(list(dataset_ids)))
    return set(session.scalars(query))
