"""Models with ledgers, and the requests that their budgets bound.

A model still reflects the people of all requests accepted since its training started. The bound on all of them together
is the exact group bound for their rows; while it is within the budget, requests are bounded immediately. A request
beyond it waits for the ledger of a training run that started after the request was accepted. Every request counts as
the maximum number of rows per person, so nothing here reveals whether a model was trained on the person.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit import service as audit
from app.db import actor, bulk, now, rare, tables
from app.deletion.history import Change
from app.features.ledgers.tables import DpLedger, DpModel, DpRequest
from app.features.systems.service import complete, may_concern, unknown_datasets
from lethe.contract.problems import FieldError, InputInvalid
from lethe.contract.sets import EventKind
from lethe.features.ledgers import accountant, contract
from lethe.proof.errors import PreconditionError

_WAITING: sa.ColumnElement[str] = sa.literal_column("'waiting'")
"""Literal status, because SQLite uses the partial index only if the statement contains it."""
_WITHDRAWN = (EventKind.CANCELLED, EventKind.REJECTED)
_ANY_IN_USE = rare.Rare(DpModel.retired_at.is_(None))
_COUNTED = (contract.DpRequestStatus.BOUNDED, contract.DpRequestStatus.WAITING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Figures recomputed from a ledger; the fields are those of `DpLedger`."""

    epsilon: float
    curve: list[tuple[int, float | None]]
    budget_rows: int


def recompute(body: contract.LedgerIn) -> Numbers:
    """Recompute a ledger's epsilon, curve and row budget, which can take a few seconds. Raises `InputInvalid` if an
    event is unknown (naming the event), or if the budget does not cover one person."""
    try:
        steps = accountant.read(body.ledger)
        points = accountant.curve(steps, delta=body.delta, budget=body.budget_epsilon)
        epsilon = accountant.epsilon(steps, rows=body.max_rows_per_person, delta=body.delta)
    except PreconditionError as error:
        raise InputInvalid("The ledger cannot be accounted for.", [FieldError("ledger", str(error))]) from None
    points[body.max_rows_per_person] = epsilon
    if epsilon is None or epsilon > body.budget_epsilon:
        least = f"at least {epsilon:g}" if epsilon is not None else f"a ledger of epsilon {accountant.MAX_EPSILON:g}"
        expected = f"expected {least}, for the rows of one person"
        raise InputInvalid("The budget does not cover one person.", [FieldError("budget_epsilon", expected)])
    rows = accountant.rows_within(points, body.budget_epsilon)
    return Numbers(epsilon=epsilon, curve=sorted(points.items()), budget_rows=rows)


def register(
    session: Session, body: contract.LedgerIn, numbers: Numbers, *, name: str, dataset_ids: list[str] | None
) -> DpModel:
    """Register a model of the session's tenant with its first ledger. Raises `InputInvalid`."""
    if faults := unknown_datasets(session, dataset_ids):
        raise InputInvalid("The model cannot be registered as it is.", faults)
    row = DpModel(
        id=tables.new_id("dpm"),
        tenant_id=actor(session).tenant_id,
        name=name,
        dataset_ids=dataset_ids,
        version=0,
        created_at=now(session),
    )
    session.add(row)
    session.flush()
    _add(session, row, body, numbers)
    audit.record(session, "dp_model.created", row.id)
    return row


def renew(session: Session, model: DpModel, body: contract.LedgerIn, numbers: Numbers) -> None:
    """Replace a model's ledger after a retraining, and reassess the requests waiting for it. Repeating the call is a
    no-op. Raises `InputInvalid` if the training run started before the previous one, or if the budget does not cover
    the bounded requests accepted after it started."""
    current = ledger_of(session, model)
    if all(getattr(current, name) == value for name, value in dict(body).items()):
        return
    if body.trained_from < current.trained_from:
        expected = "expected no time before that of the current ledger"
        raise InputInvalid("The training is older than the current one.", [FieldError("trained_from", expected)])
    counted = sa.select(sa.func.count()).where(
        DpRequest.dp_model_id == model.id,
        DpRequest.status == contract.DpRequestStatus.BOUNDED,
        DpRequest.opened_at >= body.trained_from,
    )
    if session.scalars(counted).one() * body.max_rows_per_person > numbers.budget_rows:
        expected = "expected a training that started after more of the requests"
        raise InputInvalid("The budget does not cover the forgotten rows.", [FieldError("trained_from", expected)])
    ledger = _add(session, model, body, numbers)
    left_out = sa.update(DpRequest).where(
        DpRequest.dp_model_id == model.id,
        DpRequest.status == contract.DpRequestStatus.BOUNDED,
        DpRequest.opened_at < ledger.trained_from,
    )
    session.execute(
        left_out.values(ledger_id=ledger.id, forgotten_rows=0), execution_options={"synchronize_session": False}
    )
    _reassess(session, model, ledger)
    audit.record(session, "dp_model.renewed", model.id)


def retire(session: Session, model: DpModel) -> None:
    """Retire a model, and close the requests waiting for it as not reached. Repeating the call is a no-op."""
    if model.retired_at is not None:
        return
    model.retired_at = now(session)
    waiting = list(session.scalars(_of(model).where(DpRequest.status == _WAITING)))
    for row in waiting:
        row.status, row.ended_at = contract.DpRequestStatus.CLOSED, model.retired_at
    audit.record(session, "dp_model.retired", model.id)
    complete(session, [row.request_id for row in waiting])


def get(session: Session, dp_model_id: str) -> DpModel:
    """Return a model. Raises `DpModelUnknown`."""
    return contract.DpModelUnknown.if_none(session.get(DpModel, dp_model_id), dp_model_id=dp_model_id)


def ledger_of(session: Session, model: DpModel) -> DpLedger:
    """Return a model's current ledger."""
    query = sa.select(DpLedger).where(DpLedger.dp_model_id == model.id, DpLedger.version == model.version)
    return session.scalars(query).one()


def models(session: Session, *, limit: int, cursor: str | None) -> bulk.Page[DpModel]:
    """Return a page of models, newest first."""
    return bulk.page(session, sa.select(DpModel), DpModel.created_at, DpModel.id, limit=limit, cursor=cursor)


def counts(session: Session, model: DpModel, ledger: DpLedger) -> tuple[int, int]:
    """Return how many requests count against a ledger or are waiting, and how many of these are waiting."""
    query = sa.select(
        sa.func.count(), sa.func.coalesce(sa.func.sum(sa.case((DpRequest.status == _WAITING, 1), else_=0)), 0)
    ).where(DpRequest.dp_model_id == model.id, _counts(ledger))
    counted, waiting = session.execute(query).one()
    return int(counted), int(waiting)


def entries_of(session: Session, *, request_id: str) -> list[tuple[DpRequest, DpModel, DpLedger | None]]:
    """Return a request's entries, each with its model and, if the entry is bounded, the ledger that bounds it."""
    query = (
        sa.select(DpRequest, DpModel, DpLedger)
        .join(DpModel, DpModel.id == DpRequest.dp_model_id)
        .outerjoin(DpLedger, DpLedger.id == DpRequest.ledger_id)
        .where(DpRequest.request_id == request_id)
        .order_by(DpRequest.dp_model_id)
    )
    return [(entry, model, ledger) for entry, model, ledger in session.execute(query)]


def is_open(request: type[tables.DeletionRequest]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that `request` is waiting for a retraining."""
    return sa.exists().where(DpRequest.request_id == request.id, DpRequest.status == _WAITING)


def opening(session: Session) -> Callable[[tables.DeletionRequest], bool]:
    """Return a predicate that tests if a request concerns a model. `settle` completes requests bounded immediately."""
    if not _ANY_IN_USE.may_hold(session):
        return lambda _request: False
    in_use = list(session.scalars(sa.select(DpModel).where(DpModel.retired_at.is_(None))))
    return lambda request: any(_concerns(model, request) for model in in_use)


def follow(session: Session, changes: Sequence[Change]) -> None:
    """Count accepted requests against ledgers and stop counting withdrawn ones, in the changes' transaction."""
    accepted = {change.request.id: change for change in changes if change.kind is EventKind.ACCEPTED}
    if accepted and _ANY_IN_USE.may_hold(session):
        _count(session, accepted)
    withdrawn = {change.request.id for change in changes if change.kind in _WITHDRAWN}
    if withdrawn:
        _withdraw(session, withdrawn)


def _count(session: Session, accepted: Mapping[str, Change]) -> None:
    tenant_ids = {change.request.tenant_id for change in accepted.values()}
    in_use = sa.select(DpModel).where(DpModel.retired_at.is_(None), DpModel.tenant_id.in_(tenant_ids))
    for model in session.scalars(in_use.order_by(DpModel.id)).all():
        concerned = [change for change in accepted.values() if _concerns(model, change.request)]
        if not concerned:
            continue
        ledger = ledger_of(session, model)
        # A restored request has an entry already.
        ids = [change.request.id for change in concerned]
        present = {row.request_id: row for row in session.scalars(_of(model).where(DpRequest.request_id.in_(ids)))}
        counted, _ = counts(session, model, ledger)
        rows = []
        for change in concerned:
            entry = present.get(change.request.id)
            if entry is not None and entry.status != contract.DpRequestStatus.CANCELLED:
                continue
            counted += 1
            forgotten = counted * ledger.max_rows_per_person
            is_bounded = forgotten <= ledger.budget_rows
            facts: dict[str, Any] = {
                "status": contract.DpRequestStatus.BOUNDED if is_bounded else contract.DpRequestStatus.WAITING,
                "forgotten_rows": forgotten,
                "ledger_id": ledger.id if is_bounded else None,
                "opened_at": change.at,
                "ended_at": change.at if is_bounded else None,
            }
            if entry is None:
                of = {"request_id": change.request.id, "dp_model_id": model.id, "tenant_id": model.tenant_id}
                rows.append(DpRequest(id=tables.new_id("dpr"), **of, **facts))
            for name, value in facts.items() if entry is not None else ():
                setattr(entry, name, value)
        bulk.store(session, DpRequest, rows)


def _withdraw(session: Session, request_ids: Collection[str]) -> None:
    query = sa.select(DpRequest).where(DpRequest.request_id.in_(request_ids), DpRequest.status.in_(_COUNTED))
    model_ids = set()
    for entry in session.scalars(query).all():
        entry.status, entry.ended_at, entry.ledger_id = contract.DpRequestStatus.CANCELLED, now(session), None
        model_ids.add(entry.dp_model_id)
    session.flush()
    for model in session.scalars(sa.select(DpModel).where(DpModel.id.in_(model_ids)).order_by(DpModel.id)).all():
        ledger = ledger_of(session, model)
        if counts(session, model, ledger)[1]:
            _reassess(session, model, ledger)


def _reassess(session: Session, model: DpModel, ledger: DpLedger) -> None:
    """Bound waiting requests, oldest first, if they were accepted before training started or fit within the budget."""
    session.flush()
    rows = 0
    bounded = []
    for entry in session.scalars(_of(model).where(_counts(ledger)).order_by(DpRequest.opened_at, DpRequest.id)).all():
        is_left_out = entry.opened_at < ledger.trained_from
        rows += 0 if is_left_out else ledger.max_rows_per_person
        entry.forgotten_rows = 0 if is_left_out else rows
        if is_left_out or rows <= ledger.budget_rows:
            if entry.status == contract.DpRequestStatus.WAITING:
                entry.ended_at = now(session)
                bounded.append(entry)
            entry.status, entry.ledger_id = contract.DpRequestStatus.BOUNDED, ledger.id
    complete(session, [entry.request_id for entry in bounded])


def _counts(ledger: DpLedger) -> sa.ColumnElement[bool]:
    """Return the SQL condition that an entry counts against a ledger or is waiting."""
    is_bounded = sa.and_(
        DpRequest.status == contract.DpRequestStatus.BOUNDED, DpRequest.opened_at >= ledger.trained_from
    )
    return sa.or_(DpRequest.status == _WAITING, is_bounded)


def _of(model: DpModel) -> sa.Select[DpRequest]:
    return sa.select(DpRequest).where(DpRequest.dp_model_id == model.id)


def _concerns(model: DpModel, request: tables.DeletionRequest) -> bool:
    return model.tenant_id == request.tenant_id and may_concern(model.dataset_ids, request)


def _add(session: Session, model: DpModel, body: contract.LedgerIn, numbers: Numbers) -> DpLedger:
    """Add a ledger as the model's current one. Raises `InputInvalid` if its training starts in the future."""
    at = now(session)
    if body.trained_from > at:
        expected = "expected no time in the future"
        raise InputInvalid("The training has not started yet.", [FieldError("trained_from", expected)])
    model.version += 1
    ledger = DpLedger(
        id=tables.new_id("dpl"),
        tenant_id=model.tenant_id,
        dp_model_id=model.id,
        version=model.version,
        **{name: getattr(body, name) for name in contract.LedgerIn.model_fields},
        epsilon=numbers.epsilon,
        curve=numbers.curve,
        budget_rows=numbers.budget_rows,
        created_at=at,
    )
    session.add(ledger)
    session.flush()
    return ledger
