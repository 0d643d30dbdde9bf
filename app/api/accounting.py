"""Endpoints of accounting: certificates, ledgers of models and tenants, and the remaining influence of records."""

import json
from typing import Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from joserfc.jwk import KeySet
from sqlalchemy.orm import Session

from app.accounting import budgets, certificates, ledger, repository, service
from app.api.calls import Call, number_in
from app.api.gateway import serves
from app.api.sentences import of_plan
from app.catalogue import datasets
from app.catalogue import service as catalogue
from app.db.tables import Certificate, Dataset, Model
from app.unlearning import planner, queue, waiting
from app.unlearning.planner import Plan
from lethe import verification
from lethe.contract import accounting as contract
from lethe.contract import certificates as certificate_operations
from lethe.contract.certificates import (
    CertificateIn,
    CertificateOut,
    CertificateVerdictOut,
    GuaranteeOut,
    JointOut,
    TargetOut,
)
from lethe.contract.fields import Paging
from lethe.contract.models import WaitingOut
from lethe.contract.problems import LedgerCorrupt, RequestUnknown
from lethe.proof import accountant, conversion, guarantees
from lethe.proof.accountant import Chain, Exposure
from lethe.proof.guarantees import Guarantee, Notion
from lethe.proof.joint import Joint
from lethe.verification import ledgers
from lethe.verification.chains import GENESIS

router = APIRouter()


@serves(router, certificate_operations.GET)
def get_certificate(call: Call, certificate_id: str) -> CertificateOut:
    with call.reading() as session:
        return certificate_to_response(certificates.get(session, call.installation.keys, certificate_id))


@serves(router, certificate_operations.VERIFY)
def verify_certificate(call: Call, body: CertificateIn) -> CertificateVerdictOut:
    keys = certificates.public_keys(call.installation.keys)
    return verification.verify(body.jws, keys, max_epsilon=body.max_epsilon, max_delta=body.max_delta)


def certificate_to_response(certificate: Certificate) -> CertificateOut:
    return CertificateOut.of(certificate, statement=certificates.statement_in(certificate.jws))


def joint_to_response(joint: Joint | None) -> JointOut | None:
    return JointOut.model_validate(joint.to_json()) if joint else None


def guarantee_of(stated: dict[str, Any]) -> GuaranteeOut:
    """Return the guarantee that a ledger entry or a certificate states, with the accuracy of the best attacker."""
    accuracy = conversion.gdp_balanced_accuracy(mu=stated["mu"])
    return GuaranteeOut(**stated | {"best_attacker_accuracy": accuracy})


@serves(router, contract.MODEL)
def get_account(call: Call, model_id: str, query: contract.AccountQuery) -> contract.AccountOut:
    with call.reading() as session:
        model = catalogue.get_model(session, model_id)
        catalogue.require_kept(model)
        standing = service.standing(session, model)
        chain = standing.chain
        plan = planner.forget(chain, records=1, epsilon=model.epsilon, delta=model.delta)
        epsilon, delta = _asked(datasets.get(session, model.dataset_id), query.adaptive_epsilon, query.adaptive_delta)
        releases_left = _left(session, model, chain, epsilon=epsilon, delta=delta)
        releases = repository.count_versions(session, model_id=model.id)
        waits = waiting.for_models(session, [model])[model.id]
    reset = service.reset(model, at_most=call.installation.settings.max_steps)
    without = service.epsilon_without_steps(chain, records=1, delta=model.delta)
    return contract.AccountOut(
        model_id=model.id,
        version=model.live_version or 0,
        influence=chain.influence,
        noise_variance=chain.variance,
        mu=accountant.unlearning_mu(chain),
        guarantees=guarantees_to_response(standing.guarantees),
        waiting=WaitingOut.of(waits),
        releases=releases,
        reset=contract.ResetOut(steps=reset[0], guarantee=guarantees_to_response([reset[1]])[0]) if reset else None,
        next_request=contract.NextRequestOut(kind=plan.kind, steps=plan.steps, epsilon_without_steps=without),
        releases_left=releases_left,
    )


@serves(router, contract.LEDGER)
def get_ledger(call: Call, model_id: str, query: Paging) -> contract.LedgerOut:
    after = number_in(query.cursor) or 0
    with call.reading() as session:
        catalogue.get_model(session, model_id)
        entries = repository.entries(session, model_id=model_id, after=after, limit=query.limit + 1)
    items = [contract.LedgerEntryOut.of(entry, body=json.loads(entry.body)) for entry in entries[: query.limit]]
    return contract.LedgerOut(items=items, next_cursor=str(items[-1].sequence) if len(entries) > query.limit else None)


@serves(router, contract.VERDICT)
def verify_ledger(call: Call, model_id: str) -> contract.LedgerVerdictOut:
    with call.reading() as session:
        catalogue.get_model(session, model_id)
        entries = repository.all_entries(session, model_id=model_id)
        try:
            report = ledgers.verify(entries, repository.all_versions(session, model_id=model_id))
        except LedgerCorrupt as error:
            return contract.LedgerVerdictOut(
                model_id=model_id, valid=False, fault=error.detail, entries=None, head=None
            )
    return contract.LedgerVerdictOut.of(
        report, model_id=model_id, valid=True, fault=None, head=report.heads.get(model_id)
    )


@serves(router, contract.DELETION_REQUEST)
def get_request_account(call: Call, request_id: str) -> contract.RequestAccountOut:
    with call.reading() as session:
        if repository.request(session, request_id) is None:
            raise RequestUnknown(f"There is no deletion request {request_id!r}.")
        stored = repository.certificates_of(session, request_id=request_id)
        certificates.require_whole(certificates.damaged(call.installation.keys, stored))
        statements = service.statements_of(session, request_id=request_id)
        joint = joint_to_response(service.joint_of(session, request_id=request_id))
    models = [
        contract.StatementOut(
            model_id=statement.certificate.model_id,
            certificate_id=statement.certificate.id,
            version=statement.certificate.version,
            signed=guarantees_to_response(statement.signed),
            today=guarantees_to_response(statement.today),
        )
        for statement in statements
    ]
    return contract.RequestAccountOut(request_id=request_id, models=models, joint=joint)


@serves(router, contract.DATASET)
def get_dataset_account(call: Call, dataset_id: str, query: contract.AccountQuery) -> contract.DatasetAccountOut:
    with call.reading() as session:
        dataset = datasets.get(session, dataset_id)
        exposed = budgets.exposures(session, dataset_id=dataset.id, records=1)
        # Models lost in a restore have exposures but no account.
        models = repository.models_of(session, dataset_id=dataset.id)
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
    return contract.DatasetAccountOut(dataset_id=dataset.id, used=used, models=accounts)


def _budget(
    session: Session, model: Model, exposed: Exposure, *, epsilon: float | None, delta: float | None, max_requests: int
) -> contract.ModelBudgetOut:
    plan, records = queue.next_run(session, model, max_requests=max_requests)
    waits = records > 0 or model.wanted is not None
    room = releases_left = None
    large: list[tuple[str, int]] = []
    if model.live_version is not None:
        chain = service.standing(session, model).chain
        room = service.room(chain, epsilon=model.epsilon, delta=model.delta)
        large = repository.larger_requests(session, model, records=room, limit=100)
        releases_left = _left(session, model, chain, epsilon=epsilon, delta=delta)
    return contract.ModelBudgetOut(
        model_id=model.id,
        version=model.live_version,
        target=TargetOut(epsilon=model.epsilon, delta=model.delta),
        releases=sum(count for _, count in exposed.releases),
        mu=accountant.adaptive_mu([exposed]),
        releases_left=releases_left,
        room=room,
        next_run=_next_run(plan, records) if waits else None,
        relearning=[contract.LargeRequestOut(request_id=request_id, records=rows) for request_id, rows in large],
    )


def _next_run(plan: Plan, records: int) -> contract.NextRunOut:
    reason = of_plan(plan.reason, plan.facts)
    return contract.NextRunOut(kind=plan.kind, steps=plan.steps, reason=reason, records=records)


def _asked(dataset: Dataset, epsilon: float | None, delta: float | None) -> tuple[float | None, float | None]:
    """Return epsilon and delta of the budget in the query, or of the dataset's own budget if the query names none."""
    own = budgets.of(dataset)
    return (own.epsilon, own.delta) if own and epsilon is None and delta is None else (epsilon, delta)


def _left(
    session: Session, model: Model, chain: Chain, *, epsilon: float | None, delta: float | None
) -> contract.ReleasesLeftOut:
    """Return the number of further versions, each forgetting one record, that fit a budget (default: the target)."""
    plan = planner.forget(chain, records=1, epsilon=model.epsilon, delta=model.delta)
    epsilon, delta = epsilon or model.epsilon, delta or model.delta
    count = service.releases_left(session, model, records=1, steps=plan.steps, epsilon=epsilon, delta=delta)
    return contract.ReleasesLeftOut(epsilon=epsilon, delta=delta, steps_per_release=plan.steps, records=1, count=count)


def guarantees_to_response(guarantees: list[Guarantee]) -> list[GuaranteeOut]:
    return [GuaranteeOut(**guarantee.stated()) for guarantee in guarantees]


@serves(router, contract.HEAD)
def get_ledger_head(call: Call) -> contract.LedgerHeadOut:
    tenant_id = call.caller.tenant_id
    with call.reading() as session:
        head = ledger.head(session, _keys(call), tenant_id=tenant_id)
    if head is None:
        return contract.LedgerHeadOut(tenant_id=tenant_id, sequence=0, hash=GENESIS, jws=None, signed_at=None)
    return contract.LedgerHeadOut.of(head)


@serves(router, contract.EXPORT)
def export_ledger(call: Call) -> StreamingResponse:
    lines = ledger.written(call.reading, _keys(call), tenant_id=call.caller.tenant_id)
    headers = {"Content-Disposition": 'attachment; filename="ledger.jsonl"'}
    return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)


@serves(router, contract.LEDGER_VERDICT)
def verify_whole_ledger(call: Call) -> contract.TenantLedgerVerdictOut:
    tenant_id = call.caller.tenant_id
    nothing = dict.fromkeys(("models", "entries", "certificates", "links", "signed", "head"))
    with call.reading() as session:
        try:
            verified = ledger.verify_tenant(session, _keys(call), tenant_id=tenant_id)
        except LedgerCorrupt as error:
            return contract.TenantLedgerVerdictOut.model_validate(
                {"tenant_id": tenant_id, "valid": False, "fault": error.detail} | nothing
            )
    report = verified.report
    return contract.TenantLedgerVerdictOut.of(
        verified, tenant_id=tenant_id, valid=True, fault=None, models=report.models, entries=report.entries
    )


def _keys(call: Call) -> KeySet:
    return KeySet([call.installation.keys.signing_key])
