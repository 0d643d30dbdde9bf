"""`/models`: learn, watch, download, relearn."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import JSONResponse, Response
from sqlalchemy.orm import Session

from app.access import idempotency
from app.access.idempotency import Answer, Once
from app.access.policy import weakest
from app.accounting import budgets
from app.accounting import service as accounting
from app.api import evaluations
from app.api.calls import Call, accepted, respond
from app.api.gateway import serves
from app.api.runs import progress
from app.catalogue import datasets, evaluation, exports, quality, repository
from app.catalogue import service as catalogue
from app.catalogue.evaluation import Comparison
from app.catalogue.tangents import linearised
from app.db.tables import Model, Version
from app.encoders import service as encoders
from app.operations import retirement as retired
from app.operations import standings
from app.operations.standings import ModelStanding
from app.unlearning import retirement, waiting
from app.unlearning.waiting import Waiting
from lethe.contract import exports as exports_contract
from lethe.contract import models as contract
from lethe.contract.choices import ModelDanger, ModelOrder
from lethe.contract.exports import ExportOut, ExportsQuery
from lethe.contract.fields import PageOut, Paging
from lethe.contract.guarantees import GuaranteeOut, TargetOut
from lethe.contract.mechanisms import MechanismOut
from lethe.contract.models import (
    AuditingOut,
    BatchingOut,
    ModelIn,
    ModelOut,
    ModelsQuery,
    VersionOut,
    WaitingOut,
)
from lethe.contract.problems import FieldError, InputInvalid
from lethe.contract.quality import QualityOut
from lethe.contract.runs import AuditOut
from lethe.contract.sets import ModelStatus, RunKind, Scope, VersionStatus

router = APIRouter()


Number = Annotated[int, Path(ge=1, le=2**31 - 1)]


@serves(router, contract.CREATE)
def create_model(call: Call, body: ModelIn, once: Once) -> JSONResponse:
    compared = _compared(call, body, once)

    def create(session: Session) -> Answer:
        measured_on = body.evaluation_dataset_id
        if _to_compare(session, call, body) != compared:
            raise evaluations.came_or_went()
        dataset = datasets.get(session, body.dataset_id)
        network = encoders.get(session, body.tangent.network_id) if body.tangent else None
        model = catalogue.create_model(
            session,
            name=body.name,
            dataset=dataset,
            evaluation_dataset=datasets.get(session, measured_on) if measured_on else None,
            epsilon=body.target.epsilon,
            delta=body.target.delta,
            objective=body.objective,
            loss_width=body.loss_width,
            second_moment=body.second_moment,
            class_weights=body.class_weights,
            weakest=weakest(call.caller.policy, num_slots=dataset.num_slots),
            l2=body.l2,
            noise_scale=body.noise_scale,
            step_size=body.step_size,
            radius=body.radius,
            learn_steps=body.learn_steps,
            batch_size=body.batch_size,
            cool_down=body.cool_down,
            max_requests=body.batching.max_requests,
            max_wait_seconds=body.batching.max_wait_seconds,
            audit_lanes=body.audit.lanes,
            audit_chains=body.audit.chains,
            gate=body.quality,
            max_steps=call.installation.settings.max_steps,
            tangent=linearised(dataset, network, body.tangent) if network and body.tangent else None,
        )
        mechanism = catalogue.mechanism_of(model)
        budgets.require_room(session, dataset, mechanism, steps=mechanism.learn_steps)
        return _accepted(session, call, model)

    answer = call.perform(once, create)
    call.installation.notifier.wake()
    return respond(answer)


def _compared(call: Call, body: ModelIn, once: Once) -> list[Comparison]:
    """Return the comparisons to be made, once rows to learn from and rows to measure on proved apart. Raises
    `EvaluationOverlaps`."""
    with call.reading() as session:
        found = [] if idempotency.replay(session, once) else _to_compare(session, call, body)
    evaluations.compare(call, found)
    return found


def _to_compare(session: Session, call: Call, body: ModelIn) -> list[Comparison]:
    if body.evaluation_dataset_id is None:
        return []
    dataset, evaluated_on = (datasets.get(session, one) for one in (body.dataset_id, body.evaluation_dataset_id))
    may_know = not call.caller.discreet
    return evaluation.of_model(session, dataset=dataset, evaluated_on=evaluated_on, may_know=may_know)


@serves(router, contract.LIST)
def list_models(call: Call, query: ModelsQuery) -> PageOut[ModelOut]:
    if query.order is ModelOrder.RISK or query.danger is not None:
        call.caller.require(Scope.ACCOUNTING_READ)
        return _in_danger(call, query)
    with call.reading() as session:
        page = repository.models(
            session,
            name=query.name,
            dataset_id=query.dataset_id,
            is_oldest_first=query.order is ModelOrder.OLDEST,
            limit=query.limit,
            cursor=query.cursor,
        )
        return PageOut(items=_to_response(session, call, page.items), next_cursor=page.next_cursor)


def _in_danger(call: Call, query: ModelsQuery) -> PageOut[ModelOut]:
    """A page of the models in service, ranked as they are now: `cursor` is the last model of the page before."""
    with call.reading() as session:
        found = [one for one in call.find_once(session, standings.of_models) if _is_in(query.danger, one)]
        if query.name is not None:
            found = [one for one in found if query.name.lower() in one.model.name.lower()]
        if query.dataset_id is not None:
            found = [one for one in found if one.model.dataset_id == query.dataset_id]
        if query.order is not ModelOrder.RISK:
            is_newest = query.order is ModelOrder.NEWEST
            found.sort(key=lambda one: (one.model.created_at, one.model.id), reverse=is_newest)
        begins = 0
        if query.cursor is not None:
            ids = [one.model.id for one in found]
            if query.cursor not in ids:
                message = "Expected the next_cursor of an earlier page"
                raise InputInvalid(message, [FieldError("cursor", message)])
            begins = ids.index(query.cursor) + 1
        shown = found[begins : begins + query.limit]
        is_more = begins + query.limit < len(found)
        items = _to_response(session, call, [one.model for one in shown])
        return PageOut(items=items, next_cursor=shown[-1].model.id if is_more else None)


def _is_in(danger: ModelDanger | None, standing: ModelStanding) -> bool:
    match danger:
        case ModelDanger.WAITING:
            return standing.first_due_at is not None
        case ModelDanger.FAILED:
            return standing.has_failed
        case ModelDanger.AUDIT_REFUSED:
            return standing.refused is True
        case ModelDanger.DEGRADED:
            return standing.degraded
        case ModelDanger.HELD:
            return standing.held
        case None:
            return True


@serves(router, contract.GET)
def get_model(call: Call, model_id: str) -> ModelOut:
    with call.reading() as session:
        [shown] = _to_response(session, call, [catalogue.get_model(session, model_id)])
        return shown


@serves(router, contract.AUDIT)
def audit(call: Call, model_id: str, once: Once) -> JSONResponse:
    def ask(session: Session) -> Answer:
        model = catalogue.get_model(session, model_id)
        catalogue.ask_audit(session, model)
        return _accepted(session, call, model)

    answer = call.perform(once, ask)
    call.installation.notifier.wake()
    return respond(answer)


@serves(router, contract.RELEARN)
def relearn(call: Call, model_id: str, once: Once) -> JSONResponse:
    def learn_again(session: Session) -> Answer:
        model = catalogue.get_model(session, model_id)
        catalogue.relearn(session, model)
        return _accepted(session, call, model)

    answer = call.perform(once, learn_again)
    call.installation.notifier.wake()
    return respond(answer)


@serves(router, contract.RETIRE)
def retire_model(call: Call, model_id: str) -> ModelOut:
    with call.writing() as session:
        retirement.retire_model(session, call.installation.keys, catalogue.get_model(session, model_id))
    retired.destroy_now(call.installation)
    with call.reading() as session:
        [shown] = _to_response(session, call, [catalogue.get_model(session, model_id)])
        return shown


@serves(router, contract.VERSIONS)
def list_versions(call: Call, model_id: str, query: Paging) -> PageOut[VersionOut]:
    with call.reading() as session:
        catalogue.get_model(session, model_id)
        page = repository.versions(session, model_id=model_id, limit=query.limit, cursor=query.cursor)
    return PageOut(items=[_version(version) for version in page.items], next_cursor=page.next_cursor)


@serves(router, contract.VERSION)
def get_version(call: Call, model_id: str, number: Number) -> VersionOut:
    with call.reading() as session:
        return _version(catalogue.get_version(session, model_id=model_id, number=number))


@serves(router, contract.WEIGHTS)
def get_weights(call: Call, model_id: str, number: Number) -> Response:
    with call.reading() as session:
        version = catalogue.get_version(session, model_id=model_id, number=number)
    content = catalogue.read_weights(call.installation.weights, version)
    with call.writing() as session:
        exports.note(session, model_id=model_id, number=number)
    name = f"{model_id}-v{number}.safetensors"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(content, media_type="application/octet-stream", headers=headers)


@serves(router, exports_contract.EXPORTS)
def list_exports(call: Call, model_id: str, query: ExportsQuery) -> PageOut[ExportOut]:
    with call.reading() as session:
        catalogue.get_model(session, model_id)
        page = repository.exports(
            session, model_id=model_id, version=query.version, limit=query.limit, cursor=query.cursor
        )
    items = [ExportOut.model_validate(one, from_attributes=True) for one in page.items]
    return PageOut(items=items, next_cursor=page.next_cursor)


def _to_response(session: Session, call: Call, models: Sequence[Model]) -> list[ModelOut]:
    """Leave out who waits for them where the caller may not learn whether anything is held about somebody."""
    waits = {} if call.caller.discreet else waiting.for_models(session, models)
    return [_model(session, model, waits.get(model.id)) for model in models]


def _model(session: Session, model: Model, waits: Waiting | None) -> ModelOut:
    run = repository.running_run(session, model_id=model.id)
    version = repository.live_version(session, model)
    audited = repository.last_audited_run(session, model_id=model.id)
    guarantees = accounting.guarantees_of(session, model) if version else None
    return ModelOut(
        id=model.id,
        name=model.name,
        dataset_id=model.dataset_id,
        evaluation_dataset_id=model.evaluation_dataset_id,
        objective=model.mechanism["objective"],
        status=_status(model, version, run.kind if run else None),
        live_version=model.live_version,
        progress=progress(session, run) if run else None,
        mechanism=MechanismOut(**catalogue.mechanism_of(model).to_json()),
        target=TargetOut(epsilon=model.epsilon, delta=model.delta),
        batching=BatchingOut(max_requests=model.max_requests, max_wait_seconds=model.max_wait_seconds),
        audit=AuditingOut(
            lanes=model.audit_lanes,
            chains=model.audit_chains,
            asked_at=model.audit_asked_at,
            last=AuditOut(**audited.audit) if audited and audited.audit else None,
            last_run_id=audited.id if audited else None,
        ),
        guarantee=[GuaranteeOut(**guarantee.stated()) for guarantee in guarantees] if guarantees else None,
        waiting=WaitingOut.model_validate(waits, from_attributes=True) if waits else None,
        metrics=version.metrics if version else {},
        quality=_quality(model, version),
        error_code=model.error_code,
        created_at=model.created_at,
        retired_at=model.retired_at,
        destroyed_at=model.destroyed_at,
    )


def _status(model: Model, version: Version | None, running: str | None) -> ModelStatus:
    """`running`: the kind of the run under way, if there is one. A test leaves the version as it is: what is wrong with
    that comes first."""
    if version is None:
        return ModelStatus(model.status)
    if running == RunKind.UNLEARN:
        return ModelStatus.UNLEARNING
    if running is not None and running not in (RunKind.AUDIT, RunKind.REHEARSAL):
        return ModelStatus.RELEARNING
    if version.held:
        return ModelStatus.HELD
    if version.degraded:
        return ModelStatus.DEGRADED
    return ModelStatus.TESTING if running else ModelStatus(model.status)


def _quality(model: Model, version: Version | None) -> QualityOut | None:
    gate = quality.gate_of(model)
    if gate is None:
        return None
    return QualityOut(
        metric=gate.metric,
        threshold=gate.threshold,
        on_breach=gate.on_breach,
        value=quality.value_of(gate.metric, version.metrics) if version else None,
        is_met=not version.degraded if version else None,
        held=version is not None and version.held,
    )


def _accepted(session: Session, call: Call, model: Model) -> Answer:
    session.flush()  # what is shown is read back
    [shown] = _to_response(session, call, [model])
    return accepted(shown, f"/v1/models/{model.id}")


def _version(version: Version) -> VersionOut:
    return VersionOut(
        model_id=version.model_id,
        number=version.number,
        status=VersionStatus(version.status),
        run_id=version.run_id,
        weights_sha256=version.weights_sha256,
        metrics=version.metrics,
        degraded=version.degraded,
        held=version.held,
        published_at=version.published_at,
        destroyed_at=version.destroyed_at,
    )
