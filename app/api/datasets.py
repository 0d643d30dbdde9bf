"""Endpoints for datasets: upload, look-up, verification of the stored rows, and retirement."""

from typing import Annotated

from fastapi import APIRouter, File, UploadFile
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.access import idempotency, service as access
from app.api import calls, forms, gateway, uploads
from app.audit import service as audit
from app.catalogue import datasets, repository as catalogue_repository
from app.db import now, tables
from app.deletion import search_repository
from app.operations import periodic_jobs as retired
from app.rows import formats, ingest, records, repository as rows_repository
from app.unlearning import retirement
from lethe.contract import datasets as contract, fields, problems
from lethe.encoding import rows, targets
from lethe.encoding.schema import parse_classes, parse_schema, parse_target
from lethe.proof.budget import Budget

router = APIRouter(route_class=forms.SpooledRoute)


@gateway.serves(router, contract.UPLOAD)
@uploads.takes(contract.DatasetIn)
def create_dataset(
    call: calls.Call,
    once: idempotency.Once,
    file: Annotated[UploadFile, File(description="Rows in a file: .csv, .parquet or .npz.")],
    form: contract.DatasetIn,
) -> JSONResponse:
    budget = _budget(form.adaptive_epsilon, form.adaptive_delta)
    kind = ingest.kind_of(file.filename or "")
    classes = None if form.classes is None else parse_classes(form.classes)
    target = None if form.target is None else parse_target(form.target)
    schema = _schema(kind, form.schema_, classes, target)
    with call.reading() as session:
        answer = idempotency.replay(session, once)
        began = now(session)
    if answer:
        return calls.respond(answer)
    subject_refs, advice = uploads.observed(call, form.subject_kind)
    with uploads.network_of(call, form.network_id, schema=schema, file=file, name=form.name) as features_of:
        encoded = datasets.encode(
            call.installation.rows,
            uploads.upload(
                call,
                file=file,
                subject_refs=subject_refs,
                kind=kind,
                schema=schema,
                classes=schema.classes if schema else classes or (),
                target=schema.target if schema else target,
                features_of=features_of,
            ),
            suppressed=uploads.suppressed(call, search_repository.ANYWHERE, skip=form.suppressed == "skip"),
            network_id=form.network_id,
        )

    def register(session: Session) -> idempotency.StoredResponse:
        if access.policy_of(session, call.caller.tenant_id).subject_rule != call.caller.policy.subject_rule:
            raise access.rule_changed()
        if not search_repository.suppressed_since(session, began).isdisjoint(encoded.subject_refs):
            raise problems.SubjectSuppressed.meanwhile()
        dataset = datasets.register(session, name=form.name, encoded=encoded, adaptive_budget=budget)
        dataset.subject_kind = form.subject_kind
        call.require_room(session=session)
        out = contract.NewDatasetOut(
            **dict(to_response(session, dataset)),
            num_suppressed=encoded.num_suppressed,
            warnings=[*advice(), *encoded.warnings],
        )
        return calls.created(out, f"/v1/datasets/{dataset.id}")

    try:
        answer = call.perform(once, register)
    # After any other error the call may have been committed; rows without a dataset are swept later.
    except problems.Problem as error:
        call.installation.rows.delete(encoded.dataset_id)
        if isinstance(error, problems.SubjectSuppressed):
            uploads.record_match(call, search_repository.ANYWHERE)
        raise
    if answer.body["id"] != encoded.dataset_id:
        call.installation.rows.delete(encoded.dataset_id)
    return calls.respond(answer)


@gateway.serves(router, contract.LIST)
def list_datasets(call: calls.Call, query: contract.DatasetsQuery) -> fields.PageOut[contract.DatasetOut]:
    with call.reading() as session:
        page = catalogue_repository.datasets(session, name=query.name, limit=query.limit, cursor=query.cursor)
        return fields.PageOut(
            items=[to_response(session, dataset) for dataset in page.items], next_cursor=page.next_cursor
        )


@gateway.serves(router, contract.GET)
def get_dataset(call: calls.Call, dataset_id: str) -> contract.DatasetOut:
    with call.reading() as session:
        return to_response(session, datasets.get(session, dataset_id))


@gateway.serves(router, contract.RECHECK)
def recheck_dataset(call: calls.Call, dataset_id: str) -> contract.DatasetOut:
    with call.reading() as session:
        datasets.get(session, dataset_id)
    with call.installation.rows.alone(dataset_id):
        with call.reading() as session:
            roots = datasets.roots(session, dataset_id)
            damage = records.first_damaged(session, datasets.get(session, dataset_id))
        damage = damage or records.first_found(call.installation.rows, roots)
        with call.writing() as session:
            dataset = datasets.get(session, dataset_id)
            records.recheck(session, dataset, damage)
            return to_response(session, dataset)


@gateway.serves(router, contract.RETIRE)
def retire_dataset(call: calls.Call, dataset_id: str) -> contract.DatasetOut:
    with call.writing() as session:
        retirement.retire_dataset(session, call.installation.keys, datasets.get(session, dataset_id))
    retired.destroy_now(call.installation)
    with call.reading() as session:
        return to_response(session, datasets.get(session, dataset_id))


@gateway.serves(router, contract.SUBJECT)
def get_subject(call: calls.Call, dataset_id: str, subject_id: str) -> contract.SubjectOut:
    with call.writing() as session:
        dataset = datasets.get(session, dataset_id)
        audit.record(session, "subject.looked_up", dataset.id)
    kind = dataset.subject_kind
    reference = call.references(kind)([subject_id])[0] if kind else call.subject_ref(subject_id)
    with call.reading() as session:
        others = [] if kind else call.in_other_cases(subject_id)
        count = datasets.count_records_of(session, dataset_id=dataset_id, subject_ref=reference, others=others)
    return contract.SubjectOut(num_records=count)


def to_response(session: Session, dataset: tables.Dataset) -> contract.DatasetOut:
    at, damage = dataset.damaged_at, dataset.damage
    return contract.DatasetOut.of(
        dataset,
        num_records=rows_repository.count_records(session, dataset_id=dataset.id),
        num_classes=len(dataset.classes),
        num_subjects=rows_repository.count_subjects(session, dataset_id=dataset.id),
        damage=contract.DamageOut(at=at, **damage) if at and damage else None,
        schema_=dataset.schema,
    )


def _budget(epsilon: float | None, delta: float | None) -> Budget | None:
    if epsilon is None and delta is None:
        return None
    if epsilon is None or delta is None:
        missing = "adaptive_epsilon" if epsilon is None else "adaptive_delta"
        raise problems.InputInvalid(
            "A budget is an epsilon and a delta.", [problems.FieldError(missing, "expected, with the other")]
        )
    return Budget(epsilon=epsilon, delta=delta)


def _schema(
    kind: formats.Kind, document: object, classes: tuple[str, ...] | None, target: targets.TargetColumn | None
) -> rows.Schema | None:
    """Return the declared schema, if any; an npz file without one needs classes or a target. Raises `SchemaInvalid`."""
    if document is not None:
        if target:
            expectation = 'expected none: a schema has a column {"role": "target", "min": 0, "max": 100}'
            raise problems.SchemaInvalid("A schema states its target.", [problems.FieldError("target", expectation)])
        return parse_schema(document, classes=classes)
    if kind != "npz":
        return None
    if classes is None and target is None:
        expectation = (
            'expected names of the classes as a JSON list, in the order of y, such as ["no", "yes"], or a target'
        )
        raise problems.SchemaInvalid(
            "An npz file needs classes, a target or a schema.", [problems.FieldError("classes", expectation)]
        )
    if classes is not None and target is not None:
        raise problems.SchemaInvalid.two_targets([problems.FieldError("target", "expected none with classes")])
    return None
