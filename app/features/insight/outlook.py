"""Outlook for a request that no run has started on: rows to erase, the cost for each model, and what it waits for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.accounting import runtime_estimates, service as accounting
from app.db import now, tables
from app.deletion import completion, deadlines, repository
from app.features.insight import repository as insight_repository
from app.unlearning import planner, waiting
from lethe.contract.sets import RequestStatus, WaitReason

_UNDECIDED = (RequestStatus.RECEIVED, RequestStatus.IN_REVIEW)
_NOT_READY = (WaitReason.IN_REVIEW, WaitReason.GRACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOutlook:
    """Outlook for one model. `plan`, `passes` and `seconds` describe a run for this request alone; they are None if the
    model has no live version."""

    model: tables.Model
    rows: int
    plan: planner.Plan | None
    passes: float | None
    seconds: float | None
    wait: waiting.Wait | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutlook:
    """Outlook for a request. `rows`: number of rows to erase, keyed by dataset id."""

    rows: Mapping[str, int]
    models: Sequence[ModelOutlook]


def of_request(session: Session, request: tables.DeletionRequest) -> RequestOutlook | None:
    """Return a request's outlook; None if a run has started on the request or the request has ended."""
    if request.status not in (*_UNDECIDED, RequestStatus.ACCEPTED):
        return None
    counts = insight_repository.count_unclaimed(session, subject_refs=request.subject_refs)
    rows = {dataset_id: count for dataset_id, count in counts.items() if completion.asks_for(request, dataset_id)}
    if request.status in _UNDECIDED:
        models_of = repository.look_up(session, subject_refs=request.subject_refs).models
        model_ids = [model_id for dataset_id in rows for model_id in models_of.get(dataset_id, ())]
    else:
        request_models = repository.request_models(session, request_id=request.id)
        model_ids = [row.model_id for row in request_models if row.status in tables.OWED]
    models = [session.get_one(tables.Model, model_id) for model_id in model_ids]
    waits = waiting.for_models(session, models)
    return RequestOutlook(
        rows=rows,
        models=[
            _of_model(session, model, rows.get(model.dataset_id, 0), _wait(session, request, waits.get(model.id)))
            for model in models
        ],
    )


def _of_model(session: Session, model: tables.Model, rows: int, wait: waiting.Wait | None) -> ModelOutlook:
    if model.live_version is None or not rows:
        return ModelOutlook(model=model, rows=rows, plan=None, passes=None, seconds=None, wait=wait)
    chain = accounting.standing(session, model).chain
    plan = planner.forget(chain, records=rows, epsilon=model.epsilon, delta=model.delta)
    measured = runtime_estimates.of_model(session, model)
    return ModelOutlook(
        model=model,
        rows=rows,
        plan=plan,
        passes=plan.steps / chain.mechanism.num_batches,
        seconds=measured.seconds(plan.steps) if measured else None,
        wait=wait,
    )


def _wait(
    session: Session, request: tables.DeletionRequest, model_waits: waiting.Waiting | None
) -> waiting.Wait | None:
    """Return why a request is waiting for a model, out of `model_waits`; None if the request is not waiting."""
    if model_waits is None:
        return None
    if request.status in _UNDECIDED:
        return next((wait for wait in model_waits.reasons if wait.reason is WaitReason.IN_REVIEW), None)
    if deadlines.is_held(request, at=now(session)):
        return waiting.Wait(reason=WaitReason.GRACE, requests=1, until=request.held_until)
    return next((wait for wait in model_waits.reasons if wait.reason not in _NOT_READY), None)
