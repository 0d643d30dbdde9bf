"""SQL queries for accounts and for the summary of requests: counts by deadline, and requests received and completed."""

import datetime
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.functions import days_between
from app.db.tables import DeletionRequest, LedgerEntry, Model, Record, RequestAlias, RequestModel, Run, Version
from app.deletion import repository, search_repository, views
from lethe.contract.sets import ClockState, RequestModelStatus

_ALL = 2**62
"""Limit that exceeds any number of rows."""


def count_due(
    session: Session, edges: Sequence[datetime.datetime], *, view: views.View
) -> list[tuple[int, int, int, int]]:
    """Count open requests by the interval that contains their deadline, and return (interval, running, overdue,
    paused): interval 0 lies before the first edge, and len(edges) after the last. Each request counts once."""
    place = _place(DeletionRequest.deadline, edges).label("place")
    running, overdue, paused = (
        sa.func.count().filter(repository.has_clock(state, at=view.at))
        for state in ("running", ClockState.OVERDUE, ClockState.PAUSED)
    )
    query = sa.select(place, running, overdue, paused).where(search_repository.is_open(view)).group_by(place)
    return [(where, count, late, waiting) for where, count, late, waiting in session.execute(query)]


def count_received(session: Session, edges: Sequence[datetime.datetime]) -> list[int]:
    """Return the number of requests submitted between each pair of consecutive edges."""
    at = DeletionRequest.submitted_at
    return _counted(session, edges, lambda since, before: sa.and_(at >= since, at < before))


def count_completed(session: Session, edges: Sequence[datetime.datetime], *, view: views.View) -> list[int]:
    """Return the number of requests completed between each pair of consecutive edges, at the time that `view` shows."""
    return _counted(
        session, edges, lambda since, before: search_repository.was_completed(view, since=since, before=before)
    )


def count_durations(
    session: Session, *, since: datetime.datetime, before: datetime.datetime, view: views.View
) -> dict[int, tuple[int, int]]:
    """Count the requests completed in [since, before) by duration in whole days, up to the completion time that the
    reader sees: map each duration to the number of all requests and of those completed before their deadline."""
    at = search_repository.completed_at(view)
    is_early = sa.cast(at < DeletionRequest.deadline, sa.Integer)
    both = (2 * days_between(DeletionRequest.submitted_at, at) + is_early).label("both")
    within = search_repository.was_completed(view, since=since, before=before)
    # With a limit, SQLite sorts only these numbers.
    each = sa.select(both).where(within).limit(_ALL).subquery()
    by_days: dict[int, list[int]] = {}
    for number, count in session.execute(sa.select(each.c.both, sa.func.count()).group_by(each.c.both)):
        by_days.setdefault(number // 2, [0, 0])[number % 2] = count
    return {days: (late + in_time, in_time) for days, (late, in_time) in by_days.items()}


def _counted(
    session: Session,
    edges: Sequence[datetime.datetime],
    within: Callable[[datetime.datetime, datetime.datetime], sa.ColumnElement[bool]],
) -> list[int]:
    """Count requests between consecutive edges using an index; with GROUP BY, SQLite would sort the rows."""
    count = sa.select(sa.func.count()).select_from(DeletionRequest)
    counts = [count.where(within(since, before)).scalar_subquery() for since, before in pairwise(edges)]
    return list(session.execute(sa.select(*counts)).one())


def _place(
    column: sa.SQLColumnExpression[Any], edges: Sequence[datetime.datetime], first: int = 0
) -> sa.ColumnElement[int]:
    """Return an SQL expression (a binary search) for the number of edges at or before the column's value."""
    if not edges:
        return sa.literal(first, sa.Integer, literal_execute=True)
    middle = len(edges) // 2
    earlier = _place(column, edges[:middle], first)
    return sa.case((column < edges[middle], earlier), else_=_place(column, edges[middle + 1 :], first + middle + 1))


def larger_requests(session: Session, model: Model, *, records: int, limit: int) -> list[tuple[str, int]]:
    """Return the ids and row counts of up to `limit` pending requests with more than `records` rows in a model's
    dataset, largest first."""
    mine = sa.select(RequestModel.request_id).where(
        RequestModel.model_id == model.id, RequestModel.status == RequestModelStatus.PENDING
    )
    in_dataset = Record.dataset_id == model.dataset_id
    by_subject = mine.join(DeletionRequest, DeletionRequest.id == RequestModel.request_id)
    by_alias = mine.join(RequestAlias, RequestAlias.request_id == RequestModel.request_id)
    matches = sa.union_all(
        by_subject.join(Record, sa.and_(in_dataset, Record.subject_ref == DeletionRequest.subject_ref)),
        by_alias.join(Record, sa.and_(in_dataset, Record.subject_ref == RequestAlias.subject_ref)),
    ).subquery()
    rows = sa.func.count()
    query = sa.select(matches.c.request_id, rows).group_by(matches.c.request_id).having(rows > records)
    query = query.order_by(rows.desc(), matches.c.request_id).limit(limit)
    return [(request_id, count) for request_id, count in session.execute(query)]


def count_versions(session: Session, *, model_id: str) -> int:
    return session.scalars(sa.select(sa.func.count()).where(Version.model_id == model_id)).one()


def releases(session: Session, *, model_id: str) -> list[tuple[int, int, int]]:
    """Return (number, dataset revision, steps in its run) for each of a model's versions, in order. Lost versions come
    first, with number 0 and revision -1."""
    query = sa.select(Version.number, Version.revision, Run.steps_total).join(Run, Run.id == Version.run_id)
    query = query.where(Version.model_id == model_id).order_by(Version.number)
    lost = [(0, -1, steps) for steps in session.get_one(Model, model_id).lost_releases]
    return [*lost, *((number, revision, steps) for number, revision, steps in session.execute(query))]


def steps_until(session: Session, *, model_id: str, number: int) -> int:
    """Return the total number of steps in the runs that published a model's versions before version `number`."""
    query = sa.select(sa.func.coalesce(sa.func.sum(Run.steps_total), 0)).join(Version, Version.run_id == Run.id)
    return session.scalars(query.where(Version.model_id == model_id, Version.number < number)).one()


def entries_backwards(session: Session, *, model_id: str, before: int | None, limit: int) -> list[LedgerEntry]:
    """Return a model's last `limit` ledger entries before sequence number `before`, newest first."""
    query = sa.select(LedgerEntry).where(LedgerEntry.model_id == model_id)
    if before is not None:
        query = query.where(LedgerEntry.sequence < before)
    return list(session.scalars(query.order_by(LedgerEntry.sequence.desc()).limit(limit)))


def versions_from(session: Session, *, dataset_id: str, limit: int) -> list[tuple[Model, Version, Run]]:
    """Return the last `limit` versions of a dataset's models, newest first, each with its model and run."""
    query = sa.select(Model, Version, Run).join(Version, Version.model_id == Model.id)
    query = query.join(Run, Run.id == Version.run_id).where(Model.dataset_id == dataset_id)
    query = query.order_by(Version.published_at.desc(), Version.id.desc()).limit(limit)
    return [(model, version, run) for model, version, run in session.execute(query)]


def count_unclaimed(session: Session, *, subject_refs: Collection[str]) -> dict[str, int]:
    """Return the number of a person's unclaimed rows in each dataset, keyed by dataset id."""
    query = (
        sa.select(Record.dataset_id, sa.func.count())
        .where(Record.subject_ref.in_(subject_refs), Record.erasure_id.is_(None))
        .group_by(Record.dataset_id)
    )
    return {row[0]: row[1] for row in session.execute(query)}
