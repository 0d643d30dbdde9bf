"""`/accounting`: how much of anybody is left, and what the next request will take."""

import json

from fastapi import APIRouter

from app.access.service import Scope
from app.accounting import repository, service
from app.api.calls import At, Cursor, Limit, caller_with
from app.api.problems import responses
from app.api.schemas import (
    AccountOut,
    GuaranteeOut,
    LedgerEntryOut,
    LedgerOut,
    NextRequestOut,
    PreviewIn,
    PreviewOut,
)
from app.errors import FieldError, InputInvalid, ModelNotLive, ModelUnknown
from app.privacy import accountant, guarantees
from app.privacy.accountant import Run
from app.registry import service as registry
from app.unlearning import planner

router = APIRouter(prefix="/accounting", tags=["Accounting"], dependencies=[caller_with(Scope.ACCOUNTING_READ)])


@router.get("/models/{model_id}", responses=responses(ModelUnknown, ModelNotLive))
def get_account(at: At, model_id: str) -> AccountOut:
    """Where the live version stands, and what forgetting one more record would take."""
    with at.database.reading() as session:
        model = registry.get_model(session, model_id)
        standing = service.standing(session, model)
    chain = standing.chain
    plan = planner.forget(chain, records=1, epsilon=model.epsilon, delta=model.delta)
    without = service.epsilon_without_steps(chain, records=1, delta=model.delta)
    return AccountOut(
        model_id=model.id,
        version=standing.releases,
        influence=chain.influence,
        noise_variance=chain.variance,
        mu=accountant.unlearning_mu(chain),
        guarantees=[GuaranteeOut(**guarantee.to_json()) for guarantee in standing.guarantees],
        releases=standing.releases,
        next_request=NextRequestOut(kind=plan.kind, steps=plan.steps, epsilon_without_steps=without),
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


@router.post("/preview", responses=responses(ModelUnknown, ModelNotLive))
def preview(at: At, body: PreviewIn) -> PreviewOut:
    """What forgetting `num_records` more would take, to the model's target or another; nothing is changed."""
    with at.database.reading() as session:
        model = registry.get_model(session, body.model_id)
        chain = service.standing(session, model).chain
    epsilon, delta = body.epsilon or model.epsilon, body.delta or model.delta
    plan = planner.forget(chain, records=body.num_records, epsilon=epsilon, delta=delta)
    run = Run(steps=plan.steps, records=body.num_records)
    after = accountant.advance(chain if plan.kind == "unlearn" else accountant.started(chain.mechanism), run)
    return PreviewOut(
        kind=plan.kind,
        steps=plan.steps,
        reason=plan.reason,
        epsilon_without_steps=service.epsilon_without_steps(chain, records=body.num_records, delta=delta),
        guarantees=[GuaranteeOut(**g.to_json()) for g in guarantees.of_chain(after, last_run=run, delta=delta)],
    )
