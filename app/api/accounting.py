"""`/accounting`: how much of anybody is left, by model, dataset and request, and the ledger it follows from."""

import json

from fastapi import APIRouter
from sqlalchemy.orm import Session

from app import signing
from app.accounting import budgets, earlier, repository, service
from app.api.calls import Call, number_in
from app.api.certificates import joint_to_response
from app.api.gateway import serves
from app.catalogue import datasets
from app.catalogue import service as catalogue
from app.db.tables import Dataset, Model
from app.unlearning import planner, queue, waiting
from lethe.contract import accounting as contract
from lethe.contract.accounting import (
    AccountOut,
    AccountQuery,
    DatasetAccountOut,
    DatasetAccountQuery,
    LargeRequestOut,
    LedgerEntryOut,
    LedgerOut,
    LedgerVerdictOut,
    ModelBudgetOut,
    NextRequestOut,
    NextRunOut,
    ReleasesLeftOut,
    RequestAccountOut,
    ResetOut,
    StatementOut,
)
from lethe.contract.fields import Paging
from lethe.contract.guarantees import GuaranteeOut, TargetOut
from lethe.contract.models import WaitingOut
from lethe.contract.problems import LedgerCorrupt, RequestUnknown
from lethe.proof import accountant, guarantees
from lethe.proof.accountant import Chain, Exposure
from lethe.proof.guarantees import Guarantee, Notion
from lethe.verification import ledgers

router = APIRouter()


@serves(router, contract.MODEL)
def get_account(call: Call, model_id: str, query: AccountQuery) -> AccountOut:
    with call.reading() as session:
        model = catalogue.get_model(session, model_id)
        catalogue.require_kept(model)
        standing = service.standing(session, model)
        chain = standing.chain
        plan = planner.forget(chain, records=1, epsilon=model.epsilon, delta=model.delta)
        epsilon, delta = _asked(datasets.get(session, model.dataset_id), query.adaptive_epsilon, query.adaptive_delta)
        left = _left(session, model, chain, epsilon=epsilon, delta=delta)
        releases = repository.count_versions(session, model_id=model.id)
        waits = waiting.for_models(session, [model])[model.id]
    reset = service.reset(model, at_most=call.installation.settings.max_steps)
    without = service.epsilon_without_steps(chain, records=1, delta=model.delta)
    return AccountOut(
        model_id=model.id,
        version=model.live_version or 0,
        influence=chain.influence,
        noise_variance=chain.variance,
        mu=accountant.unlearning_mu(chain),
        guarantees=guarantees_to_response(standing.guarantees),
        waiting=WaitingOut.model_validate(waits, from_attributes=True),
        releases=releases,
        reset=ResetOut(steps=reset[0], guarantee=guarantees_to_response([reset[1]])[0]) if reset else None,
        next_request=NextRequestOut(kind=plan.kind, steps=plan.steps, epsilon_without_steps=without),
        releases_left=left,
    )


@serves(router, contract.LEDGER)
def get_ledger(call: Call, model_id: str, query: Paging) -> LedgerOut:
    after = number_in(query.cursor) or 0
    with call.reading() as session:
        catalogue.get_model(session, model_id)
        found = repository.entries(session, model_id=model_id, after=after, limit=query.limit + 1)
    items = [
        LedgerEntryOut(sequence=e.sequence, body=json.loads(e.body), previous_hash=e.previous_hash, hash=e.hash)
        for e in found[: query.limit]
    ]
    return LedgerOut(items=items, next_cursor=str(items[-1].sequence) if len(found) > query.limit else None)


@serves(router, contract.VERDICT)
def verify_ledger(call: Call, model_id: str) -> LedgerVerdictOut:
    with call.reading() as session:
        catalogue.get_model(session, model_id)
        entries = repository.all_entries(session, model_id=model_id)
        keys, tenant_id = signing.published(call.installation.keys), call.caller.tenant_id
        try:
            report = ledgers.verify(
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


@serves(router, contract.DELETION_REQUEST)
def get_request_account(call: Call, request_id: str) -> RequestAccountOut:
    with call.reading() as session:
        if repository.request(session, request_id) is None:
            raise RequestUnknown(f"There is no deletion request {request_id!r}.")
        statements = service.statements_of(session, request_id=request_id)
        joint = joint_to_response(service.joint_of(session, request_id=request_id))
    models = [
        StatementOut(
            model_id=statement.certificate.model_id,
            certificate_id=statement.certificate.id,
            version=statement.certificate.version,
            signed=guarantees_to_response(statement.signed),
            today=guarantees_to_response(statement.today),
        )
        for statement in statements
    ]
    return RequestAccountOut(request_id=request_id, models=models, joint=joint)


@serves(router, contract.DATASET)
def get_dataset_account(call: Call, dataset_id: str, query: DatasetAccountQuery) -> DatasetAccountOut:
    with call.reading() as session:
        dataset = datasets.get(session, dataset_id)
        exposed = budgets.exposures(session, dataset_id=dataset.id, records=1)
        models = repository.models_of(session, dataset_id=dataset.id)  # without those that a restore has lost
        epsilon, delta = _asked(dataset, query.adaptive_epsilon, query.adaptive_delta)
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
        used = guarantees_to_response([guarantees.guarantee(Notion.ADAPTIVE, mu=mu, delta=delta)])[0]
    return DatasetAccountOut(dataset_id=dataset.id, used=used, models=accounts)


def _budget(
    session: Session, model: Model, exposed: Exposure, *, epsilon: float | None, delta: float | None, max_requests: int
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


def guarantees_to_response(found: list[Guarantee]) -> list[GuaranteeOut]:
    return [GuaranteeOut(**guarantee.stated()) for guarantee in found]
