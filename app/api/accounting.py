"""`/accounting`: how much of anybody is left, and what the next request will take."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query

from app.access.service import Scope
from app.accounting import repository, service
from app.api.calls import At, Cursor, Limit, caller_with
from app.api.problems import responses
from app.api.schemas import (
    AccountOut,
    BoundIn,
    BoundOut,
    GuaranteeOut,
    LedgerEntryOut,
    LedgerOut,
    NextRequestOut,
    OptionOut,
    PointOut,
    Positive,
    PreviewIn,
    PreviewOut,
    ReleasesLeftOut,
    RequestAccountOut,
    ResetOut,
    StatementOut,
    TargetOut,
    TrajectoryOut,
)
from app.errors import (
    BoundUnknown,
    FieldError,
    InputInvalid,
    ModelNotLive,
    ModelUnknown,
    PreconditionFailed,
    RequestUnknown,
)
from app.privacy import accountant, guarantees
from app.privacy.accountant import Run
from app.privacy.bounds import CALCULATOR, evaluate
from app.privacy.errors import InfeasibleError, NotionError, PreconditionError, PrivacyError
from app.privacy.guarantees import Guarantee
from app.privacy.trajectory import trajectory
from app.registry import service as registry
from app.unlearning import planner

router = APIRouter(prefix="/accounting", tags=["Accounting"], dependencies=[caller_with(Scope.ACCOUNTING_READ)])


@router.get("/models/{model_id}", responses=responses(ModelUnknown, ModelNotLive))
def get_account(
    at: At,
    model_id: str,
    adaptive_epsilon: Annotated[Positive | None, Query()] = None,
    adaptive_delta: Annotated[float | None, Query(gt=0, lt=1)] = None,
) -> AccountOut:
    """Where the live version stands, what forgetting one more record would take, and how many more versions a person
    who stays can feed before the `adaptive` guarantee exceeds a budget."""
    with at.database.reading() as session:
        model = registry.get_model(session, model_id)
        standing = service.standing(session, model)
        chain = standing.chain
        plan = planner.forget(chain, records=1, epsilon=model.epsilon, delta=model.delta)
        epsilon, delta = adaptive_epsilon or model.epsilon, adaptive_delta or model.delta
        left = service.releases_left(session, model, records=1, steps=plan.steps, epsilon=epsilon, delta=delta)
    reset = service.reset(model, at_most=at.settings.max_steps)
    without = service.epsilon_without_steps(chain, records=1, delta=model.delta)
    return AccountOut(
        model_id=model.id,
        version=model.live_version or 0,
        influence=chain.influence,
        noise_variance=chain.variance,
        mu=accountant.unlearning_mu(chain),
        guarantees=shown_guarantees(standing.guarantees),
        releases=standing.releases,
        reset=ResetOut(steps=reset[0], guarantee=shown_guarantees([reset[1]])[0]) if reset else None,
        next_request=NextRequestOut(kind=plan.kind, steps=plan.steps, epsilon_without_steps=without),
        releases_left=ReleasesLeftOut(
            epsilon=epsilon, delta=delta, steps_per_release=plan.steps, records=1, count=left
        ),
    )


@router.get("/models/{model_id}/ledger", responses=responses(ModelUnknown, InputInvalid))
def get_ledger(at: At, model_id: str, limit: Limit = 50, cursor: Cursor = None) -> LedgerOut:
    """The hash-chained entries of a model, oldest first, so that they can be replayed as they come."""
    if cursor is not None and not (cursor.isdecimal() and len(cursor) < 10):
        message = "Expected the next_cursor of an earlier page"
        raise InputInvalid(message, [FieldError("cursor", message)])
    with at.database.reading() as session:
        registry.get_model(session, model_id)
        found = repository.entries(session, model_id=model_id, after=int(cursor or 0), limit=limit + 1)
    items = [
        LedgerEntryOut(sequence=e.sequence, body=json.loads(e.body), previous_hash=e.previous_hash, hash=e.hash)
        for e in found[:limit]
    ]
    return LedgerOut(items=items, next_cursor=str(items[-1].sequence) if len(found) > limit else None)


@router.get("/models/{model_id}/trajectory", responses=responses(ModelUnknown, ModelNotLive))
def get_trajectory(at: At, model_id: str, points: Annotated[int, Query(ge=2, le=2000)] = 200) -> TrajectoryOut:
    """Influence and epsilon along the steps of the present chain, for plots: at most `points` of each run, and at most
    100,000 in all."""
    with at.database.reading() as session:
        model = registry.get_model(session, model_id)
        standing = service.standing(session, model)
    points = max(2, min(points, 100_000 // len(standing.history)))
    curve = trajectory(standing.chain.mechanism, standing.history, delta=model.delta, points=points)
    return TrajectoryOut(
        model_id=model.id,
        target=TargetOut(epsilon=model.epsilon, delta=model.delta),
        points=[PointOut.model_validate(point, from_attributes=True) for point in curve],
    )


@router.get("/deletion-requests/{request_id}", responses=responses(RequestUnknown))
def get_request_account(at: At, request_id: str) -> RequestAccountOut:
    """What was signed about a person, and what holds of the live versions today."""
    with at.database.reading() as session:
        if repository.request(session, request_id) is None:
            raise RequestUnknown(f"There is no deletion request {request_id!r}.")
        statements = service.statements_of(session, request_id=request_id)
    models = [
        StatementOut(
            model_id=statement.certificate.model_id,
            certificate_id=statement.certificate.id,
            version=statement.certificate.version,
            signed=shown_guarantees(statement.signed),
            today=shown_guarantees(statement.today),
        )
        for statement in statements
    ]
    return RequestAccountOut(request_id=request_id, models=models)


@router.get("/bounds", responses=responses())
def list_bounds() -> list[BoundOut]:
    """The calculator: every theorem, what it assumes, its parameters."""
    return [BoundOut.model_validate(bound, from_attributes=True) for bound in CALCULATOR.values()]


@router.post("/bounds/{name}", responses=responses(BoundUnknown, PreconditionFailed))
def evaluate_bound(name: str, body: BoundIn) -> dict[str, Any]:
    """Evaluate a theorem: infinity is "inf", and "1/n" stands for the reciprocal of the parameter n."""
    if name not in CALCULATOR:
        raise BoundUnknown(f"There is no bound {name!r}; GET /v1/accounting/bounds lists them.")
    try:
        return evaluate(name, body.params)
    except (PreconditionError, NotionError, InfeasibleError) as error:
        raise PreconditionFailed(str(error)) from error
    except PrivacyError as error:
        raise InputInvalid(str(error), [FieldError("params", str(error))]) from error


@router.post("/preview", responses=responses(ModelUnknown, ModelNotLive))
def preview(at: At, body: PreviewIn) -> PreviewOut:
    """What forgetting `num_records` more would take, to the model's target or another, and what else could be done;
    nothing is changed."""
    with at.database.reading() as session:
        model = registry.get_model(session, body.model_id)
        chain = service.standing(session, model).chain
    epsilon, delta = body.epsilon or model.epsilon, body.delta or model.delta
    records = body.num_records
    plan = planner.forget(chain, records=records, epsilon=epsilon, delta=delta)
    compared = planner.options(
        chain, records=records, epsilon=epsilon, delta=delta, expected_requests=body.expected_requests
    )
    last_run = Run(steps=plan.steps, records=records)
    reached = guarantees.of_chain(planner.after(chain, plan, records=records), last_run=last_run, delta=delta)
    return PreviewOut(
        kind=plan.kind,
        steps=plan.steps,
        reason=plan.reason,
        epsilon_without_steps=service.epsilon_without_steps(chain, records=records, delta=delta),
        guarantees=shown_guarantees(reached),
        options=[OptionOut.model_validate(option, from_attributes=True) for option in compared],
    )


def shown_guarantees(found: list[Guarantee]) -> list[GuaranteeOut]:
    return [GuaranteeOut(**guarantee.to_json()) for guarantee in found]
