"""Endpoints for models and their versions: training, progress, tests, retraining, retirement, and weight downloads."""

from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import JSONResponse, Response
from sqlalchemy.orm import Session

from app.access import idempotency, tenants
from app.accounting import budgets, service as accounting
from app.api import calls, gateway
from app.api.runs import progress
from app.catalogue import datasets, evaluation, repository, service as catalogue
from app.db.tables import Model, Version
from app.operations import periodic_jobs as retired, service
from app.unlearning import kinds, retirement, waiting
from lethe.contract import certificates, fields, models as contract, problems, runs, sets
from lethe.proof.mechanism import Mechanism

router = APIRouter()


Number = Annotated[int, Path(ge=1, le=2**31 - 1, description="Number of the version, from 1.")]


@gateway.serves(router, contract.CREATE)
def create_model(call: calls.Call, body: contract.ModelIn, once: idempotency.Once) -> JSONResponse:
    compared = _compared(call, body, once)

    def create(session: Session) -> idempotency.StoredResponse:
        measured_on = body.evaluation_dataset_id
        if _to_compare(session, call, body) != compared:
            raise came_or_went()
        dataset = datasets.get(session, body.dataset_id)
        model = catalogue.create_model(
            session,
            body,
            dataset=dataset,
            evaluation_dataset=datasets.get(session, measured_on) if measured_on else None,
            weakest=tenants.weakest(call.caller.policy, num_slots=dataset.num_slots),
            max_steps=call.installation.settings.max_steps,
            tangent=datasets.network_keeper().linearised(session, dataset, body.tangent) if body.tangent else None,
        )
        mechanism = catalogue.mechanism_of(model)
        budgets.require_room(session, dataset, mechanism, steps=mechanism.learn_steps)
        return _accepted(session, call, model)

    answer = call.perform(once, create)
    call.installation.notifier.wake()
    return calls.respond(answer)


def _compared(call: calls.Call, body: contract.ModelIn, once: idempotency.Once) -> list[evaluation.Comparison]:
    """Compare training rows with evaluation rows, and return the comparisons. Raises `EvaluationOverlaps`."""
    with call.reading() as session:
        comparisons = [] if idempotency.replay(session, once) else _to_compare(session, call, body)
    compare(call, comparisons)
    return comparisons


def _to_compare(session: Session, call: calls.Call, body: contract.ModelIn) -> list[evaluation.Comparison]:
    if body.evaluation_dataset_id is None:
        return []
    dataset, evaluated_on = (
        datasets.get(session, dataset_id) for dataset_id in (body.dataset_id, body.evaluation_dataset_id)
    )
    may_know = not call.caller.discreet
    return evaluation.of_model(session, dataset=dataset, evaluated_on=evaluated_on, may_know=may_know)


@gateway.serves(router, contract.LIST)
def list_models(call: calls.Call, query: contract.ModelsQuery) -> fields.PageOut[contract.ModelOut]:
    if query.order is sets.ModelOrder.RISK or query.danger is not None:
        call.caller.require(sets.Scope.ACCOUNTING_READ)
        return _in_danger(call, query)
    with call.reading() as session:
        is_oldest_first = query.order is sets.ModelOrder.OLDEST
        filters = query.model_dump(exclude={"order", "danger"})
        page = repository.models(session, is_oldest_first=is_oldest_first, **filters)
        return fields.PageOut(items=_to_response(session, call, page.items), next_cursor=page.next_cursor)


def _in_danger(call: calls.Call, query: contract.ModelsQuery) -> fields.PageOut[contract.ModelOut]:
    """Return a page of the models in service, ordered by current risk; the cursor is the id of the last model shown."""
    with call.reading() as session:
        ranked = [standing for standing in call.find_once(session, service.standings) if _is_in(query.danger, standing)]
        if query.name is not None:
            ranked = [standing for standing in ranked if query.name.lower() in standing.model.name.lower()]
        if query.dataset_id is not None:
            ranked = [standing for standing in ranked if standing.model.dataset_id == query.dataset_id]
        if query.order is not sets.ModelOrder.RISK:
            is_newest = query.order is sets.ModelOrder.NEWEST
            ranked.sort(key=lambda standing: (standing.model.created_at, standing.model.id), reverse=is_newest)
        begins = 0
        if query.cursor is not None:
            ids = [standing.model.id for standing in ranked]
            if query.cursor not in ids:
                message = "Expected the next_cursor of an earlier page"
                raise problems.InputInvalid(message, [problems.FieldError("cursor", message)])
            begins = ids.index(query.cursor) + 1
        page = ranked[begins : begins + query.limit]
        is_more = begins + query.limit < len(ranked)
        items = _to_response(session, call, [standing.model for standing in page])
        return fields.PageOut(items=items, next_cursor=page[-1].model.id if is_more else None)


def _is_in(danger: sets.ModelDanger | None, standing: service.ModelStanding) -> bool:
    match danger:
        case sets.ModelDanger.WAITING:
            return standing.first_due_at is not None
        case sets.ModelDanger.FAILED:
            return standing.has_failed
        case sets.ModelDanger.AUDIT_REFUSED:
            return standing.refused is True
        case sets.ModelDanger.DEGRADED:
            return standing.degraded
        case sets.ModelDanger.HELD:
            return standing.held
        case None:
            return True


@gateway.serves(router, contract.GET)
def get_model(call: calls.Call, model_id: str) -> contract.ModelOut:
    with call.reading() as session:
        [out] = _to_response(session, call, [catalogue.get_model(session, model_id)])
        return out


@gateway.serves(router, contract.RELEARN)
def relearn(call: calls.Call, model_id: str, once: idempotency.Once) -> JSONResponse:
    return request_run(call, model_id, once, catalogue.relearn)


def request_run(
    call: calls.Call, model_id: str, once: idempotency.Once, ask: Callable[[Session, Model], object]
) -> JSONResponse:
    """Request a run of a model, wake the workers, and return the model as the response."""

    def asked(session: Session) -> idempotency.StoredResponse:
        model = catalogue.get_model(session, model_id)
        ask(session, model)
        return _accepted(session, call, model)

    answer = call.perform(once, asked)
    call.installation.notifier.wake()
    return calls.respond(answer)


@gateway.serves(router, contract.RETIRE)
def retire_model(call: calls.Call, model_id: str) -> contract.ModelOut:
    with call.writing() as session:
        retirement.retire_model(session, call.installation.keys, catalogue.get_model(session, model_id))
    retired.destroy_now(call.installation)
    with call.reading() as session:
        [out] = _to_response(session, call, [catalogue.get_model(session, model_id)])
        return out


@gateway.serves(router, contract.VERSIONS)
def list_versions(call: calls.Call, model_id: str, query: fields.Paging) -> fields.PageOut[contract.VersionOut]:
    with call.reading() as session:
        catalogue.get_model(session, model_id)
        page = repository.versions(session, model_id=model_id, limit=query.limit, cursor=query.cursor)
    return fields.PageOut(
        items=[contract.VersionOut.of(version) for version in page.items], next_cursor=page.next_cursor
    )


@gateway.serves(router, contract.VERSION)
def get_version(call: calls.Call, model_id: str, number: Number) -> contract.VersionOut:
    with call.reading() as session:
        return contract.VersionOut.of(catalogue.get_version(session, model_id=model_id, number=number))


@gateway.serves(router, contract.WEIGHTS)
def get_weights(call: calls.Call, model_id: str, number: Number) -> Response:
    with call.reading() as session:
        version = catalogue.get_version(session, model_id=model_id, number=number)
    content = catalogue.read_weights(call.installation.weights, version)
    with call.writing() as session:
        catalogue.hand_out(session, model_id=model_id, number=number)
    name = f"{model_id}-v{number}.safetensors"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(content, media_type="application/octet-stream", headers=headers)


def _to_response(session: Session, call: calls.Call, models: Sequence[Model]) -> list[contract.ModelOut]:
    """Return models as the caller may see them: discreet callers do not see waiting requests."""
    waits = {} if call.caller.discreet else waiting.for_models(session, models)
    return [_model(session, model, waits.get(model.id)) for model in models]


def _model(session: Session, model: Model, waits: waiting.Waiting | None) -> contract.ModelOut:
    run = repository.running_run(session, model_id=model.id)
    version = repository.live_version(session, model)
    tested = repository.last_tested_run(session, model_id=model.id)
    guarantees = accounting.standing(session, model).guarantees if version else None
    return contract.ModelOut.of(
        model,
        objective=model.mechanism["objective"],
        status=_status(model, version, run.kind if run else None),
        progress=progress(session, run) if run else None,
        mechanism=_mechanism(catalogue.mechanism_of(model)),
        target=certificates.TargetOut.of(model),
        batching=contract.BatchingOut.of(model),
        audit=contract.AuditingOut(
            lanes=model.audit_lanes,
            chains=model.audit_chains,
            asked_at=model.audit_asked_at,
            last=runs.AuditOut(**tested.audit) if tested and tested.audit else None,
            last_run_id=tested.id if tested else None,
        ),
        guarantee=[certificates.GuaranteeOut(**guarantee.stated()) for guarantee in guarantees] if guarantees else None,
        waiting=contract.WaitingOut.of(waits) if waits else None,
        metrics=version.metrics if version else {},
        quality=catalogue.described_gate(model, version),
    )


def _mechanism(mechanism: Mechanism) -> contract.MechanismOut:
    document, known = mechanism.to_json(), contract.MechanismOut.model_fields
    shared = {name: getattr(mechanism, name) for name in ("num_parameters", "learn_steps", "batch_size", "num_batches")}
    settings = {name: value for name, value in document.items() if name not in known and name != "method"}
    stated = {name: value for name, value in document.items() if name in known}
    return contract.MechanismOut(**{"grid": mechanism.grid} | shared | stated, settings=settings or None)


def _status(model: Model, version: Version | None, running: str | None) -> sets.ModelStatus:
    """Return a model's status, given the kind of its current run, if any.

    A test does not change the version, so `HELD` and `DEGRADED` take precedence over `TESTING`.
    """
    if version is None:
        return sets.ModelStatus(model.status)
    if running == sets.RunKind.UNLEARN:
        return sets.ModelStatus.UNLEARNING
    if running is not None and running not in kinds.asked_kinds():
        return sets.ModelStatus.RELEARNING
    if version.held:
        return sets.ModelStatus.HELD
    if version.degraded:
        return sets.ModelStatus.DEGRADED
    return sets.ModelStatus.TESTING if running else sets.ModelStatus(model.status)


def _accepted(session: Session, call: calls.Call, model: Model) -> idempotency.StoredResponse:
    # The queries behind the answer must see this change.
    session.flush()
    [out] = _to_response(session, call, [model])
    return calls.accepted(out, f"/v1/models/{model.id}")


def compare(call: calls.Call, comparisons: Sequence[evaluation.Comparison]) -> None:
    """Compare training rows with evaluation rows outside a transaction. Raises `EvaluationOverlaps`, `Unavailable`.

    The transaction that relies on the result must check that the required comparisons are still the same.
    """
    for comparison in comparisons:
        try:
            evaluation.compare(call.installation.rows, comparison, may_know=not call.caller.discreet)
        except (problems.DatasetUnknown, problems.DatasetDamaged, FileNotFoundError) as error:
            raise came_or_went() from error


def came_or_went() -> problems.Unavailable:
    """Return the problem to raise if rows were added or removed during a comparison, or cannot be read."""
    return problems.Unavailable("Rows came or went while they were compared, or cannot be read; repeat the call.")
