"""All SQL about deletion requests, their erasures and their models."""

import datetime
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import now
from app.db.likely import usually
from app.db.tables import (
    OWED,
    DeletionRequest,
    Erasure,
    Model,
    Record,
    RequestAlias,
    RequestEvent,
    RequestModel,
    Run,
)
from app.deletion.lookup import in_parts
from app.deletion.status import OPEN
from app.rows import repository as rows_repository
from app.rows.repository import StoredRecord
from lethe.contract.sets import ClockState, EventKind, RequestModelStatus, RequestStatus, RunStatus


def these(statuses: Iterable[str]) -> sa.BindParameter[list[str]]:
    """In the statement itself: SQLite uses an index of open requests only if it can see that they are."""
    return sa.bindparam(None, sorted(statuses), expanding=True, literal_execute=True)


_OPEN, _ACCEPTED = these(OPEN), these([RequestStatus.ACCEPTED])
_IN_HAND = these([RequestStatus.ACCEPTED, RequestStatus.RUNNING])
_RUNNING = these([RequestStatus.RUNNING])
_MOST_TAKEN = 10_000


def request(session: Session, request_id: str) -> DeletionRequest | None:
    return session.get(DeletionRequest, request_id)


_WITH_MODELS = (
    sa.select(DeletionRequest, RequestModel)
    .outerjoin(RequestModel, RequestModel.request_id == DeletionRequest.id)
    .where(DeletionRequest.id == sa.bindparam("request_id"))
    .order_by(RequestModel.model_id)
)


def request_with_models(session: Session, request_id: str) -> tuple[DeletionRequest, list[RequestModel]] | None:
    """`request` and `request_models` in one statement."""
    found = session.execute(_WITH_MODELS, {"request_id": request_id}).all()
    return (found[0][0], [owed for _, owed in found if owed is not None]) if found else None


def requests_by_id(session: Session, request_ids: Collection[str]) -> dict[str, DeletionRequest]:
    query = sa.select(DeletionRequest).where(DeletionRequest.id.in_(request_ids))
    return {found.id: found for found in session.scalars(query)}


_GRACE_OVER = sa.and_(
    DeletionRequest.status.in_(_ACCEPTED),
    DeletionRequest.held_until <= sa.bindparam("at", type_=DeletionRequest.held_until.type),
    DeletionRequest.doubted_at.is_(None),
)
_DOUBTED = sa.and_(
    DeletionRequest.status.in_(_IN_HAND),
    DeletionRequest.doubted_at.is_not(None),
    sa.or_(
        DeletionRequest.held_until.is_(None),
        DeletionRequest.held_until <= sa.bindparam("at", type_=DeletionRequest.held_until.type),
    ),
)


def settled(session: Session, *, at: datetime.datetime, limit: int) -> list[tuple[DeletionRequest, bool]]:
    """Requests that waited for the end of their grace time, or for damaged records that are sound by now, and for
    nothing else; and whether they asked for rows."""
    mine = Erasure.request_id == DeletionRequest.id
    owed = sa.and_(RequestModel.request_id == DeletionRequest.id, RequestModel.status.in_(OWED))
    query = (
        sa.select(DeletionRequest, sa.exists().where(mine))
        .where(
            ~sa.exists().where(mine, Erasure.nulled_at.is_(None)),
            ~sa.exists().where(owed),
            *[~_may_be_in(dataset_id, of) for dataset_id, of in rows_repository.doubtful(session).items()],
        )
        .order_by(DeletionRequest.created_at, DeletionRequest.id)
    )
    found: list[tuple[DeletionRequest, bool]] = []
    for waited in (_GRACE_OVER, _DOUBTED):
        some = session.execute(query.where(waited).limit(limit - len(found)), {"at": at})
        found += [(request, holds) for request, holds in some]
    return found


def _may_be_in(dataset_id: str, tenant_id: str) -> sa.ColumnElement[bool]:
    """A condition: a request is about a dataset, among others or all of its tenant (`completion.is_in_doubt`)."""
    named = sa.cast(DeletionRequest.dataset_ids, sa.String).contains(f'"{dataset_id}"', autoescape=True)
    return sa.and_(DeletionRequest.tenant_id == tenant_id, sa.or_(DeletionRequest.dataset_ids.is_(None), named))


def to_alert(
    session: Session, *, at: datetime.datetime, horizon: datetime.timedelta, limit: int
) -> list[DeletionRequest]:
    """Open requests whose clock runs, that are due within `horizon` or overdue, and of which nobody was told that."""
    late = sa.and_(DeletionRequest.deadline <= at, DeletionRequest.alerted == ClockState.AT_RISK)
    query = sa.select(DeletionRequest).where(
        DeletionRequest.status.in_(_OPEN),
        DeletionRequest.paused_at.is_(None),
        DeletionRequest.deadline <= at + horizon,
        sa.or_(DeletionRequest.alerted.is_(None), late),
    )
    return list(session.scalars(query.order_by(DeletionRequest.deadline, DeletionRequest.id).limit(limit)))


def events(session: Session, *, request_id: str) -> list[RequestEvent]:
    query = sa.select(RequestEvent).where(RequestEvent.request_id == request_id).order_by(RequestEvent.id)
    return list(session.scalars(query))


def count_hand_backs(session: Session, *, request_ids: Collection[str]) -> Counter[str]:
    """Number of events of each of these requests which say that a run that served it did not end well."""
    query = sa.select(RequestEvent.request_id).where(
        RequestEvent.request_id.in_(request_ids), RequestEvent.kind == EventKind.HANDED_BACK
    )
    return Counter(session.scalars(query))


def erasures(session: Session, *, request_id: str) -> list[Erasure]:
    return list(session.scalars(sa.select(Erasure).where(Erasure.request_id == request_id).order_by(Erasure.id)))


def request_models(session: Session, *, request_id: str) -> list[RequestModel]:
    query = sa.select(RequestModel).where(RequestModel.request_id == request_id).order_by(RequestModel.model_id)
    return list(session.scalars(query))


_THESE: sa.BindParameter[Sequence[str]] = sa.bindparam("these", expanding=True)
_MODELS_OF_THESE = sa.select(RequestModel).where(RequestModel.request_id.in_(_THESE)).order_by(RequestModel.model_id)


def models_of_requests(session: Session, *, request_ids: Sequence[str]) -> dict[str, list[RequestModel]]:
    """The models of each of these requests, for those that ask anything of models."""
    found: dict[str, list[RequestModel]] = {}
    for owed in session.scalars(_MODELS_OF_THESE, {"these": request_ids}):
        found.setdefault(owed.request_id, []).append(owed)
    return found


def first_deadlines(session: Session) -> dict[str, datetime.datetime]:
    """By the id of each model that still has to forget for a request whose rows a worker has taken: the earliest
    deadline of those."""
    is_taken = DeletionRequest.status.in_(_OPEN), DeletionRequest.status.in_(_RUNNING)  # the first names an index
    taken = sa.select(DeletionRequest.id, DeletionRequest.deadline).where(*is_taken)
    first = taken.limit(_MOST_TAKEN).subquery()  # with a limit SQLite begins here, not with what models owe
    query = sa.select(RequestModel.model_id, sa.func.min(first.c.deadline)).join(
        first, first.c.id == RequestModel.request_id
    )
    query = query.where(RequestModel.status.in_(OWED)).group_by(RequestModel.model_id)
    return {model_id: deadline for model_id, deadline in session.execute(query)}  # noqa: C416  rows are no pairs


def line_up(request: DeletionRequest, erasures: Iterable[Erasure]) -> None:
    """Give a new request's erasures their place in the queue; when the request changes, triggers do."""
    may = request.status in (RequestStatus.ACCEPTED, RequestStatus.RUNNING, RequestStatus.COMPLETED)
    for erasure in erasures:
        erasure.deadline = request.deadline
        erasure.ready_at = (request.held_until or request.created_at) if may else None


_UNCLAIMED = sa.and_(
    Erasure.dataset_id == sa.bindparam("dataset_id"), Erasure.revision.is_(None), Erasure.ready_at.is_not(None)
)
_MINE = sa.join(Erasure, DeletionRequest, DeletionRequest.id == Erasure.request_id)
_READY = sa.and_(_UNCLAIMED, usually(Erasure.ready_at <= sa.bindparam("at", type_=Erasure.ready_at.type)))
_FIRST = (
    sa.select(Erasure, DeletionRequest)
    .select_from(_MINE)
    .where(_READY)
    .order_by(Erasure.deadline, Erasure.ready_at)
    .limit(sa.bindparam("limit"))
)
_ALSO_THEIRS = (
    sa.select(Erasure, DeletionRequest)
    .select_from(_MINE)
    .where(
        _READY,
        sa.or_(
            DeletionRequest.subject_ref.in_(_THESE),
            DeletionRequest.id.in_(sa.select(RequestAlias.request_id).where(RequestAlias.subject_ref.in_(_THESE))),
        ),
    )
)


def pending_erasures(session: Session, *, dataset_id: str, limit: int) -> list[tuple[Erasure, DeletionRequest]]:
    """Erasures of a dataset that nobody has claimed and somebody may: the `limit` that are due first.

    All requests of one person are taken together: they share the rows.
    """
    given = {"dataset_id": dataset_id, "at": now(session)}
    found = {erasure.id: (erasure, first) for erasure, first in session.execute(_FIRST, given | {"limit": limit})}
    if len(found) == limit:  # there may be more
        people = sorted({ref for _, first in found.values() for ref in first.subject_refs})
        for some in in_parts(people):
            for erasure, theirs in session.execute(_ALSO_THEIRS, given | {"these": some}):
                found[erasure.id] = erasure, theirs
    return sorted(found.values(), key=lambda pair: (pair[1].created_at, pair[1].id))


def count_waiting(session: Session, *, dataset_id: str, at_most: int) -> int:
    """Rows of a dataset that accepted requests wait to have erased: of the `at_most` requests that are due first."""
    waiting = (
        sa.select(DeletionRequest.id, DeletionRequest.subject_ref)
        .select_from(_MINE)
        .where(_UNCLAIMED)
        .order_by(Erasure.deadline, Erasure.ready_at)
        .limit(at_most)
    ).cte()
    aliases = sa.select(RequestAlias.subject_ref).join(waiting, waiting.c.id == RequestAlias.request_id)
    people = sa.union_all(sa.select(waiting.c.subject_ref), aliases)
    query = sa.select(sa.func.count()).where(Record.dataset_id == dataset_id, Record.subject_ref.in_(people))
    return session.scalars(query.where(Record.erasure_id.is_(None)), {"dataset_id": dataset_id}).one()


def claim_records(session: Session, *, erasure: Erasure, subject_refs: Collection[str]) -> None:
    """Claim the person's rows for this erasure, and count them."""
    mine = sa.and_(Record.dataset_id == erasure.dataset_id, Record.subject_ref.in_(subject_refs))
    claimed = sa.update(Record).where(mine, Record.erasure_id.is_(None)).values(erasure_id=erasure.id)
    erasure.num_claimed = cast("sa.CursorResult[tuple[()]]", session.execute(claimed)).rowcount
    erasure.num_records = session.scalars(sa.select(sa.func.count()).where(mine)).one()


def drop_owed(session: Session, *, erasure: Erasure, besides: Collection[str]) -> None:
    """Ask nothing of the models of this erasure's dataset any more, but of those `besides`."""
    models = sa.select(Model.id).where(Model.dataset_id == erasure.dataset_id, Model.id.not_in(besides))
    mine = sa.and_(RequestModel.request_id == erasure.request_id, RequestModel.model_id.in_(models))
    session.execute(sa.delete(RequestModel).where(mine))


def drop_pending(session: Session, *, model_id: str) -> None:
    """Ask nothing more of a model."""
    pending = sa.and_(RequestModel.model_id == model_id, RequestModel.status == RequestModelStatus.PENDING)
    session.execute(sa.delete(RequestModel).where(pending))


def count_owed(session: Session, *, model_id: str) -> int:
    """Number of requests that wait for a model."""
    owed = sa.and_(RequestModel.model_id == model_id, RequestModel.status.in_(OWED))
    return session.scalars(sa.select(sa.func.count()).where(owed)).one()


def count_to_erase(session: Session, *, dataset_id: str) -> int:
    """Number of requests that wait for rows of a dataset to be null, or may yet ask for them."""
    waits = sa.and_(Erasure.dataset_id == dataset_id, Erasure.nulled_at.is_(None))
    asks = sa.or_(Erasure.ready_at.is_not(None), DeletionRequest.status.in_(OPEN))
    query = sa.select(sa.func.count(Erasure.id)).join(DeletionRequest, DeletionRequest.id == Erasure.request_id)
    return session.scalars(query.where(waits, asks)).one()


def drop_unclaimed(session: Session, *, dataset_id: str) -> None:
    """Ask for no rows of a dataset any more, but for those that were claimed."""
    unclaimed = sa.and_(Erasure.dataset_id == dataset_id, Erasure.revision.is_(None))
    session.execute(sa.delete(Erasure).where(unclaimed))


def records_to_null(session: Session, *, dataset_id: str) -> list[StoredRecord]:
    """Records that are claimed for erasure and whose rows are not yet known to be null on disk."""
    erasures = [erasure.id for erasure in unconfirmed_erasures(session, dataset_id=dataset_id)]
    found = session.execute(rows_repository.stored(Record.erasure_id.in_(erasures)))
    return list(map(StoredRecord._make, found))


def unconfirmed_erasures(session: Session, *, dataset_id: str) -> list[Erasure]:
    query = sa.select(Erasure).where(
        Erasure.dataset_id == dataset_id, Erasure.num_records.is_not(None), Erasure.nulled_at.is_(None)
    )
    return list(session.scalars(query))


def is_anybody_erased_since(session: Session, *, dataset_id: str, at: datetime.datetime) -> bool:
    """Return True if rows of a dataset became null at that time or later."""
    query = sa.select(Erasure.id).where(Erasure.dataset_id == dataset_id, Erasure.nulled_at >= at)
    return session.scalars(query.limit(1)).first() is not None


def drop_records(session: Session, *, erasure_ids: list[str]) -> int:
    """Forget whose the rows were that are null on disk; how many they were."""
    erased = sa.select(sa.func.count()).where(Record.erasure_id.in_(erasure_ids))
    count = session.scalars(erased).one()
    session.execute(sa.delete(Record).where(Record.erasure_id.in_(erasure_ids)))
    return count


def awaiting_model(
    session: Session, *, model_id: str, revision: int
) -> list[tuple[RequestModel, Erasure, DeletionRequest]]:
    """The requests to which a model still owes its next version, with rows that were erased at or before `revision`."""
    query = (
        sa.select(RequestModel, Erasure, DeletionRequest)
        .join(DeletionRequest, DeletionRequest.id == RequestModel.request_id)
        .join(Model, Model.id == RequestModel.model_id)
        .join(Erasure, sa.and_(Erasure.request_id == RequestModel.request_id, Erasure.dataset_id == Model.dataset_id))
        .where(
            RequestModel.model_id == model_id,
            RequestModel.status.in_(OWED),
            Erasure.revision <= revision,
        )
        .order_by(DeletionRequest.created_at, DeletionRequest.id)
    )
    return [(owed, erasure, found) for owed, erasure, found in session.execute(query)]


def request_models_of_run(session: Session, *, run_id: str) -> list[RequestModel]:
    query = sa.select(RequestModel).where(
        RequestModel.run_id == run_id, RequestModel.status == RequestModelStatus.RUNNING
    )
    return list(session.scalars(query))


def is_running(session: Session, *, request_id: str) -> bool:
    """Return True if a run that serves the request is under way."""
    query = sa.select(RequestModel).where(
        RequestModel.request_id == request_id, RequestModel.status == RequestModelStatus.RUNNING
    )
    if session.scalars(query.limit(1)).first():
        return True
    erasing = (
        sa.select(Erasure)
        .join(Run, Run.dataset_id == Erasure.dataset_id)
        .where(Erasure.request_id == request_id, Erasure.nulled_at.is_(None), Erasure.revision.is_not(None))
        .where(Run.status == RunStatus.RUNNING)
    )
    return session.scalars(erasing.limit(1)).first() is not None
