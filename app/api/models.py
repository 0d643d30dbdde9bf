"""Endpoints of models and their versions: learn, watch, test, relearn, retire, predict, and download weights."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Path
from fastapi.responses import JSONResponse, Response
from sqlalchemy.orm import Session

from app.access import idempotency
from app.access.idempotency import Once, StoredResponse
from app.access.tenants import weakest
from app.accounting import budgets
from app.accounting import service as accounting
from app.api.calls import Call, accepted, respond
from app.api.gateway import serves
from app.api.runs import progress
from app.catalogue import datasets, evaluation, repository
from app.catalogue import service as catalogue
from app.catalogue.prediction import label_probabilities, probabilities, scores
from app.db.tables import Dataset, Model, Version
from app.errors import WeightsUnreadable
from app.operations import periodic_jobs as retired
from app.operations import service
from app.unlearning import kinds, retirement, waiting
from app.vault import sealing
from lethe.contract import models as contract
from lethe.contract import problems
from lethe.contract.certificates import GuaranteeOut, TargetOut
from lethe.contract.fields import ModelDanger, ModelOrder, PageOut, Paging
from lethe.contract.models import LabelsOut, PredictionOut, PredictionsIn, PredictionsOut, ValueOut
from lethe.contract.runs import AuditOut
from lethe.contract.sets import ModelStatus, RunKind, Scope
from lethe.encoding import schema as schemas
from lethe.encoding.rows import NOT_FINITE, checked_vectors, unit_rows
from lethe.encoding.targets import y_of_scores
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism

router = APIRouter()


Number = Annotated[int, Path(ge=1, le=2**31 - 1, description="Number of the version, from 1.")]


@serves(router, contract.CREATE)
def create_model(call: Call, body: contract.ModelIn, once: Once) -> JSONResponse:
    compared = _compared(call, body, once)

    def create(session: Session) -> StoredResponse:
        measured_on = body.evaluation_dataset_id
        if _to_compare(session, call, body) != compared:
            raise came_or_went()
        dataset = datasets.get(session, body.dataset_id)
        model = catalogue.create_model(
            session,
            body,
            dataset=dataset,
            evaluation_dataset=datasets.get(session, measured_on) if measured_on else None,
            weakest=weakest(call.caller.policy, num_slots=dataset.num_slots),
            max_steps=call.installation.settings.max_steps,
            tangent=datasets.network_keeper().linearised(session, dataset, body.tangent) if body.tangent else None,
        )
        mechanism = catalogue.mechanism_of(model)
        budgets.require_room(session, dataset, mechanism, steps=mechanism.learn_steps)
        return _accepted(session, call, model)

    answer = call.perform(once, create)
    call.installation.notifier.wake()
    return respond(answer)


def _compared(call: Call, body: contract.ModelIn, once: Once) -> list[evaluation.Comparison]:
    """Compare rows of learning and of evaluation, and return the comparisons made. Raises `EvaluationOverlaps`."""
    with call.reading() as session:
        comparisons = [] if idempotency.replay(session, once) else _to_compare(session, call, body)
    compare(call, comparisons)
    return comparisons


def _to_compare(session: Session, call: Call, body: contract.ModelIn) -> list[evaluation.Comparison]:
    if body.evaluation_dataset_id is None:
        return []
    dataset, evaluated_on = (
        datasets.get(session, dataset_id) for dataset_id in (body.dataset_id, body.evaluation_dataset_id)
    )
    may_know = not call.caller.discreet
    return evaluation.of_model(session, dataset=dataset, evaluated_on=evaluated_on, may_know=may_know)


@serves(router, contract.LIST)
def list_models(call: Call, query: contract.ModelsQuery) -> PageOut[contract.ModelOut]:
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


def _in_danger(call: Call, query: contract.ModelsQuery) -> PageOut[contract.ModelOut]:
    """Return one page of the models in service by their present risk; the cursor is the id of the last model shown."""
    with call.reading() as session:
        ranked = [standing for standing in call.find_once(session, service.standings) if _is_in(query.danger, standing)]
        if query.name is not None:
            ranked = [standing for standing in ranked if query.name.lower() in standing.model.name.lower()]
        if query.dataset_id is not None:
            ranked = [standing for standing in ranked if standing.model.dataset_id == query.dataset_id]
        if query.order is not ModelOrder.RISK:
            is_newest = query.order is ModelOrder.NEWEST
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
        return PageOut(items=items, next_cursor=page[-1].model.id if is_more else None)


def _is_in(danger: ModelDanger | None, standing: service.ModelStanding) -> bool:
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
def get_model(call: Call, model_id: str) -> contract.ModelOut:
    with call.reading() as session:
        [out] = _to_response(session, call, [catalogue.get_model(session, model_id)])
        return out


@serves(router, contract.RELEARN)
def relearn(call: Call, model_id: str, once: Once) -> JSONResponse:
    return request_run(call, model_id, once, catalogue.relearn)


def request_run(call: Call, model_id: str, once: Once, ask: Callable[[Session, Model], object]) -> JSONResponse:
    """Request a run of a model, wake the workers, and return the model as the answer."""

    def asked(session: Session) -> StoredResponse:
        model = catalogue.get_model(session, model_id)
        ask(session, model)
        return _accepted(session, call, model)

    answer = call.perform(once, asked)
    call.installation.notifier.wake()
    return respond(answer)


@serves(router, contract.RETIRE)
def retire_model(call: Call, model_id: str) -> contract.ModelOut:
    with call.writing() as session:
        retirement.retire_model(session, call.installation.keys, catalogue.get_model(session, model_id))
    retired.destroy_now(call.installation)
    with call.reading() as session:
        [out] = _to_response(session, call, [catalogue.get_model(session, model_id)])
        return out


@serves(router, contract.VERSIONS)
def list_versions(call: Call, model_id: str, query: Paging) -> PageOut[contract.VersionOut]:
    with call.reading() as session:
        catalogue.get_model(session, model_id)
        page = repository.versions(session, model_id=model_id, limit=query.limit, cursor=query.cursor)
    return PageOut(items=[contract.VersionOut.of(version) for version in page.items], next_cursor=page.next_cursor)


@serves(router, contract.VERSION)
def get_version(call: Call, model_id: str, number: Number) -> contract.VersionOut:
    with call.reading() as session:
        return contract.VersionOut.of(catalogue.get_version(session, model_id=model_id, number=number))


@serves(router, contract.WEIGHTS)
def get_weights(call: Call, model_id: str, number: Number) -> Response:
    with call.reading() as session:
        version = catalogue.get_version(session, model_id=model_id, number=number)
    content = catalogue.read_weights(call.installation.weights, version)
    with call.writing() as session:
        catalogue.hand_out(session, model_id=model_id, number=number)
    name = f"{model_id}-v{number}.safetensors"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(content, media_type="application/octet-stream", headers=headers)


def _to_response(session: Session, call: Call, models: Sequence[Model]) -> list[contract.ModelOut]:
    """Return models as the caller may see them: discreet callers do not see waiting requests."""
    waits = {} if call.caller.discreet else waiting.for_models(session, models)
    return [_model(session, model, waits.get(model.id)) for model in models]


def _model(session: Session, model: Model, waits: waiting.Waiting | None) -> contract.ModelOut:
    run = repository.running_run(session, model_id=model.id)
    version = repository.live_version(session, model)
    tested = repository.last_tested_run(session, model_id=model.id)
    guarantees = accounting.guarantees_of(session, model) if version else None
    return contract.ModelOut.of(
        model,
        objective=model.mechanism["objective"],
        status=_status(model, version, run.kind if run else None),
        progress=progress(session, run) if run else None,
        mechanism=_mechanism(catalogue.mechanism_of(model)),
        target=TargetOut.of(model),
        batching=contract.BatchingOut.of(model),
        audit=contract.AuditingOut(
            lanes=model.audit_lanes,
            chains=model.audit_chains,
            asked_at=model.audit_asked_at,
            last=AuditOut(**tested.audit) if tested and tested.audit else None,
            last_run_id=tested.id if tested else None,
        ),
        guarantee=[GuaranteeOut(**guarantee.stated()) for guarantee in guarantees] if guarantees else None,
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


def _status(model: Model, version: Version | None, running: str | None) -> ModelStatus:
    """Return the status of a model, given the kind of its run under way.

    A test does not change the version, so a degraded or held version outranks it.
    """
    if version is None:
        return ModelStatus(model.status)
    if running == RunKind.UNLEARN:
        return ModelStatus.UNLEARNING
    if running is not None and running not in kinds.asked_kinds():
        return ModelStatus.RELEARNING
    if version.held:
        return ModelStatus.HELD
    if version.degraded:
        return ModelStatus.DEGRADED
    return ModelStatus.TESTING if running else ModelStatus(model.status)


def _accepted(session: Session, call: Call, model: Model) -> StoredResponse:
    # The queries behind the answer must see this change.
    session.flush()
    [out] = _to_response(session, call, [model])
    return accepted(out, f"/v1/models/{model.id}")


def compare(call: Call, comparisons: Sequence[evaluation.Comparison]) -> None:
    """Compare rows of learning and of evaluation outside a transaction. Raises `EvaluationOverlaps`, `Unavailable`.

    The transaction that relies on the result must check that the comparisons to make are still the same.
    """
    for comparison in comparisons:
        try:
            evaluation.compare(call.installation.rows, comparison, may_know=not call.caller.discreet)
        except (problems.DatasetUnknown, problems.DatasetDamaged, FileNotFoundError) as error:
            raise came_or_went() from error


def came_or_went() -> problems.Unavailable:
    """Return the problem for a comparison during which rows changed."""
    return problems.Unavailable("Rows came or went while they were compared, or cannot be read; repeat the call.")


_MAX_FAULTS = 10


@serves(router, contract.PREDICT)
def predict(call: Call, model_id: str, body: PredictionsIn) -> PredictionsOut:
    model, dataset, version, content = _live(call, model_id)
    if catalogue.mechanism_of(model).is_tangent:
        raise problems.TangentServedElsewhere(model_id=model_id)
    features = _encode(call, dataset, body.records)
    parameters = sealing.from_safetensors(content)
    if target := datasets.target_of(dataset):
        mechanism = catalogue.mechanism_of(model)
        predicted = scores(parameters, features)[:, 0]
        y = y_of_scores(predicted, objective=mechanism.objective, loss_width=mechanism.loss_width)
        values = target.values(y).tolist()
        return PredictionsOut(version=version.number, predictions=[ValueOut(value=value) for value in values])
    if datasets.has_labels(dataset):
        chances = label_probabilities(parameters, features).tolist()
        by_label = [dict(zip(dataset.classes, row, strict=True)) for row in chances]
        return PredictionsOut(
            version=version.number,
            predictions=[
                LabelsOut(labels=[name for name, chance in row.items() if chance > 0.5], probabilities=row)
                for row in by_label
            ],
        )
    has_probabilities = catalogue.mechanism_of(model).objective is Objective.LOGISTIC_REGRESSION
    predictions = [
        PredictionOut(
            label=dataset.classes[int(row.argmax())],
            probabilities=dict(zip(dataset.classes, row.tolist(), strict=True)) if has_probabilities else None,
        )
        for row in probabilities(parameters, features, len(dataset.classes))
    ]
    return PredictionsOut(version=version.number, predictions=predictions)


def _live(call: Call, model_id: str) -> tuple[Model, Dataset, Version, bytes]:
    """Return a model, its dataset, its live version and its weights. Retry if the version is superseded meanwhile."""
    while True:
        with call.reading() as session:
            model = catalogue.get_model(session, model_id)
            version = catalogue.get_live_version(session, model)
            dataset = datasets.get(session, model.dataset_id)
        with contextlib.suppress(problems.WeightsDestroyed):
            return model, dataset, version, catalogue.read_weights(call.installation.weights, version)
        with call.reading() as session:
            if catalogue.get_live_version(session, catalogue.get_model(session, model_id)).id == version.id:
                raise WeightsUnreadable(f"The weights of the live version {version.id} are missing; restore them.")


def _encode(
    call: Call, dataset: Dataset, records: list[dict[str, Any] | list[float]]
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Encode records into rows as the dataset's rows were encoded. Raises `InputInvalid`, `NetworkFailed`."""
    if dataset.network_id is None:
        return unit_rows(_raw(dataset, records, dataset.num_features))
    with call.reading() as session:
        network = datasets.network_keeper().opened(session, call.installation.settings, dataset.network_id)
    features = network.encode(_raw(dataset, records, network.input_size))
    wrong = np.flatnonzero(~np.isfinite(features).all(axis=1)).tolist()
    if wrong:
        faults = [problems.FieldError(f"records.{place}", NOT_FINITE) for place in wrong[:_MAX_FAULTS]]
        raise problems.InputInvalid("The network computes numbers that are not finite.", faults)
    return unit_rows(features.astype(np.float64))


def _raw(
    dataset: Dataset, records: list[dict[str, Any] | list[float]], num_numbers: int
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the numbers of each record before scaling; without a schema, `num_numbers` each. Raises `InputInvalid`."""
    if dataset.schema is not None:
        schema = schemas.stored(dataset.schema)
        if not schema.takes_vectors and not all(isinstance(record, dict) for record in records):
            raise problems.InputInvalid(
                "Send each record as an object of columns.", [problems.FieldError("records", "expected objects")]
            )
        return schema.raw_records(records)
    if not all(isinstance(record, list) and len(record) == num_numbers for record in records):
        expected = f"expected vectors of {num_numbers} numbers"
        raise problems.InputInvalid.no_schema([problems.FieldError("records", expected)], expected=expected)
    return checked_vectors([record for record in records if isinstance(record, list)])
