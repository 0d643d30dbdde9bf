"""`/accounting`: how much of anybody is left, by model, dataset and request, and the ledger it follows from."""

import json
from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from app import signing
from app.accounting import budgets, earlier, repository, service, verify
from app.api.calls import Call, Cursor, Limit, call_with, number_in
from app.api.certificates import joint_shown
from app.api.problems import responses
from app.api.schemas import (
    AccountOut,
    DatasetAccountOut,
    GuaranteeOut,
    LargeRequestOut,
    LedgerEntryOut,
    LedgerOut,
    LedgerVerdictOut,
    ModelBudgetOut,
    NextRequestOut,
    NextRunOut,
    Positive,
    ReleasesLeftOut,
    RequestAccountOut,
    ResetOut,
    StatementOut,
    TargetOut,
)
from app.catalogue import datasets
from app.catalogue import service as catalogue
from app.db.tables import Dataset, Model
from app.errors import LedgerCorrupt
from app.unlearning import planner, queue
from lethe.contract.problems import (
    DatasetUnknown,
    InputInvalid,
    ModelNotLive,
    ModelRetired,
    ModelUnknown,
    RequestUnknown,
)
from lethe.contract.sets import Scope
from lethe.proof import accountant, guarantees
from lethe.proof.accountant import Chain, Exposure
from lethe.proof.guarantees import Guarantee, Notion

router = APIRouter(prefix="/accounting", tags=["Accounting"], dependencies=[call_with(Scope.ACCOUNTING_READ)])


@router.get("/models/{model_id}", responses=responses(ModelUnknown, ModelNotLive, ModelRetired))
def get_account(
    call: Annotated[Call, call_with(Scope.ACCOUNTING_READ)],
    model_id: str,
    adaptive_epsilon: Annotated[Positive | None, Query()] = None,
    adaptive_delta: Annotated[float | None, Query(gt=0, lt=1)] = None,
) -> AccountOut:
    """Where the live version stands, what forgetting one more record would take, and how many more versions a person
    who stays can feed before the `adaptive` guarantee exceeds a budget."""
    with call.reading() as session:
        model = catalogue.get_model(session, model_id)
        catalogue.require_kept(model)
        standing = service.standing(session, model)
        chain = standing.chain
        plan = planner.forget(chain, records=1, epsilon=model.epsilon, delta=model.delta)
        epsilon, delta = _asked(datasets.get(session, model.dataset_id), adaptive_epsilon, adaptive_delta)
        left = _left(session, model, chain, epsilon=epsilon, delta=delta)
        releases = repository.count_versions(session, model_id=model.id)
    reset = service.reset(model, at_most=call.installation.settings.max_steps)
    without = service.epsilon_without_steps(chain, records=1, delta=model.delta)
    return AccountOut(
        model_id=model.id,
        version=model.live_version or 0,
        influence=chain.influence,
        noise_variance=chain.variance,
        mu=accountant.unlearning_mu(chain),
        guarantees=shown_guarantees(standing.guarantees),
        releases=releases,
        reset=ResetOut(steps=reset[0], guarantee=shown_guarantees([reset[1]])[0]) if reset else None,
        next_request=NextRequestOut(kind=plan.kind, steps=plan.steps, epsilon_without_steps=without),
        releases_left=left,
    )


@router.get("/models/{model_id}/ledger", responses=responses(ModelUnknown, InputInvalid))
def get_ledger(
    call: Annotated[Call, call_with(Scope.ACCOUNTING_READ)], model_id: str, limit: Limit = 50, cursor: Cursor = None
) -> LedgerOut:
    """The hash-chained entries of a model, oldest first, so that they can be replayed as they come."""
    after = number_in(cursor) or 0
    with call.reading() as session:
        catalogue.get_model(session, model_id)
        found = repository.entries(session, model_id=model_id, after=after, limit=limit + 1)
    items = [
        LedgerEntryOut(sequence=e.sequence, body=json.loads(e.body), previous_hash=e.previous_hash, hash=e.hash)
        for e in found[:limit]
    ]
    return LedgerOut(items=items, next_cursor=str(items[-1].sequence) if len(found) > limit else None)


@router.get("/models/{model_id}/ledger/verdict", responses=responses(ModelUnknown))
def verify_ledger(call: Annotated[Call, call_with(Scope.ACCOUNTING_READ)], model_id: str) -> LedgerVerdictOut:
    """Recompute every hash and every number of a model's ledger from its entries alone, and that its versions are
    exactly those that the entries account for."""
    with call.reading() as session:
        catalogue.get_model(session, model_id)
        entries = repository.all_entries(session, model_id=model_id)
        keys, tenant_id = signing.published(call.installation.keys), call.caller.tenant_id
        try:
            report = verify.verify(
                entries,
                repository.all_versions(session, model_id=model_id),
                vouched=earlier.vouched_in(session, keys, tenant_id=tenant_id),
            )
        except LedgerCorrupt as error:
            return LedgerVerdictOut(
                model_id=model_id, valid=False, fault=error.detail, entries=None, not_recomputed=None, head=None
            )
    return LedgerVerdictOut(
        model_id=model_id,
        valid=True,
        fault=None,
        entries=report.entries,
        not_recomputed=report.not_recomputed,
        head=report.heads.get(model_id),
    )


@router.get("/deletion-requests/{request_id}", responses=responses(RequestUnknown))
def get_request_account(call: Annotated[Call, call_with(Scope.ACCOUNTING_READ)], request_id: str) -> RequestAccountOut:
    """What was signed about a person, what holds of the live versions today, and what all models tell together."""
    with call.reading() as session:
        if repository.request(session, request_id) is None:
            raise RequestUnknown(f"There is no deletion request {request_id!r}.")
        statements = service.statements_of(session, request_id=request_id)
        joint = joint_shown(service.joint_of(session, request_id=request_id))
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
    return RequestAccountOut(request_id=request_id, models=models, joint=joint)


@router.get("/datasets/{dataset_id}", responses=responses(DatasetUnknown))
def get_dataset_account(
    call: Annotated[Call, call_with(Scope.ACCOUNTING_READ)],
    dataset_id: str,
    adaptive_epsilon: Annotated[Positive | None, Query()] = None,
    adaptive_delta: Annotated[float | None, Query(gt=0, lt=1)] = None,
) -> DatasetAccountOut:
    """What one record that fed every version of every model has spent against people who read them all, how many more
    versions fit a budget, and which open requests leave no choice but to learn again."""
    with call.reading() as session:
        dataset = datasets.get(session, dataset_id)
        exposed = budgets.exposures(session, dataset_id=dataset.id, records=1)
        models = repository.models_of(session, dataset_id=dataset.id)  # without those that a restore has lost
        epsilon, delta = _asked(dataset, adaptive_epsilon, adaptive_delta)
        accounts = [
            _budget(
                session,
                model,
                exposed[model.id],
                epsilon=epsilon,
                delta=delta,
                max_requests=call.installation.settings.max_requests_per_run,
            )
            for model in models
        ]
    used = None
    if models and any(exposure.releases for exposure in exposed.values()):
        delta = delta or min(model.delta for model in models)
        mu = accountant.adaptive_mu(list(exposed.values()))
        used = shown_guarantees([guarantees.guarantee(Notion.ADAPTIVE, mu=mu, delta=delta)])[0]
    return DatasetAccountOut(dataset_id=dataset.id, used=used, models=accounts)


def _budget(
    session: Session,
    model: Model,
    exposed: Exposure,
    *,
    epsilon: float | None,
    delta: float | None,
    max_requests: int,
) -> ModelBudgetOut:
    plan, records = queue.next_run(session, model, max_requests=max_requests)
    waits = records > 0 or model.wanted is not None
    room = left = None
    large: list[tuple[str, int]] = []
    if model.live_version is not None:
        chain = service.standing(session, model).chain
        room = service.room(chain, epsilon=model.epsilon, delta=model.delta)
        large = repository.larger_requests(session, model, records=room, limit=100)
        left = _left(session, model, chain, epsilon=epsilon, delta=delta)
    return ModelBudgetOut(
        model_id=model.id,
        version=model.live_version,
        target=TargetOut(epsilon=model.epsilon, delta=model.delta),
        releases=sum(count for _, count in exposed.releases),
        mu=accountant.adaptive_mu([exposed]),
        releases_left=left,
        room=room,
        next_run=NextRunOut(kind=plan.kind, steps=plan.steps, reason=plan.reason, records=records) if waits else None,
        relearning=[LargeRequestOut(request_id=request_id, records=rows) for request_id, rows in large],
    )


def _asked(dataset: Dataset, epsilon: float | None, delta: float | None) -> tuple[float | None, float | None]:
    """The budget that was asked about; else the dataset's own, if it has one."""
    own = budgets.of(dataset)
    return (own.epsilon, own.delta) if own and epsilon is None and delta is None else (epsilon, delta)


def _left(
    session: Session, model: Model, chain: Chain, *, epsilon: float | None, delta: float | None
) -> ReleasesLeftOut:
    """The versions that a budget, or else the target, has room for, if each forgets one record."""
    plan = planner.forget(chain, records=1, epsilon=model.epsilon, delta=model.delta)
    epsilon, delta = epsilon or model.epsilon, delta or model.delta
    count = service.releases_left(session, model, records=1, steps=plan.steps, epsilon=epsilon, delta=delta)
    return ReleasesLeftOut(epsilon=epsilon, delta=delta, steps_per_release=plan.steps, records=1, count=count)


def shown_guarantees(found: list[Guarantee]) -> list[GuaranteeOut]:
    return [GuaranteeOut(**guarantee.to_json()) for guarantee in found]
