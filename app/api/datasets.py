"""`/datasets`: upload rows, see what is held."""

import json
from typing import Annotated

from fastapi import APIRouter, File, Form, UploadFile
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.access import idempotency
from app.access import service as access
from app.access.idempotency import Answer, Once
from app.api import forms, uploads
from app.api.calls import Call, created, respond
from app.api.gateway import serves
from app.audit import access_events
from app.catalogue import datasets
from app.catalogue import repository as catalogue_repository
from app.db import now
from app.db.tables import Dataset
from app.deletion import suppression
from app.operations import retirement as retired
from app.rows import batches, damage, ingest, records
from app.rows import repository as rows_repository
from app.unlearning import retirement
from lethe.contract import datasets as contract
from lethe.contract.datasets import (
    AdaptiveBudgetOut,
    DamageOut,
    DatasetOut,
    DatasetsQuery,
    NewDatasetOut,
    SubjectOut,
    TargetRangeOut,
)
from lethe.contract.fields import PageOut, Positive
from lethe.contract.problems import FieldError, InputInvalid, Problem, SchemaInvalid, SubjectSuppressed
from lethe.encoding.rows import Schema
from lethe.encoding.schema import parse_classes, parse_schema, parse_target
from lethe.encoding.targets import Target
from lethe.proof.budget import Budget

router = APIRouter(route_class=forms.SpooledRoute)

_MAX_SCHEMA_BYTES = 4 * 2**20


@serves(router, contract.UPLOAD)
def create_dataset(
    call: Call,
    once: Once,
    file: Annotated[UploadFile, File(description="Rows: .csv, .parquet or .npz")],
    name: Annotated[str, Form(min_length=1, max_length=200)],
    columns: Annotated[
        UploadFile | str | None,
        Form(alias="schema", description="The public schema, as JSON: needed for csv and parquet"),
    ] = None,
    classes: Annotated[
        str | None,
        Form(
            description="The names of the classes as a JSON list, in the order of the labels 0, 1, ...: for npz, and "
            "where the schema does not list the values of the label."
        ),
    ] = None,
    target: Annotated[
        str | None,
        Form(
            description='For npz whose y are numbers: their public range, as JSON, {"min": 0, "max": 100}, and '
            '"outside": "clip" to move what is beyond it to its nearest end. A schema has a column with this role.'
        ),
    ] = None,
    adaptive_epsilon: Annotated[
        Positive | None,
        Form(
            description="With adaptive_delta: a budget for what all versions of all models together may ever tell "
            "about one row, to people who read every one. Fixed for good; no version is published that exceeds it."
        ),
    ] = None,
    adaptive_delta: Annotated[float | None, Form(gt=0, lt=1)] = None,
    network_id: Annotated[
        str | None,
        Form(
            description="A public network: its features of the numbers that the schema makes of a record, or of the "
            "vectors of an npz file, are the rows."
        ),
    ] = None,
    suppressed: uploads.WhatOfSuppressed = "refuse",
) -> JSONResponse:
    budget = _budget(adaptive_epsilon, adaptive_delta)
    kind = ingest.kind_of(file.filename or "")
    text = _schema_text(columns)
    names = None if classes is None else parse_classes(_json("classes", classes))
    of_vectors = None if target is None else parse_target(_json("target", target))
    parsed = _schema(kind, text, names, of_vectors)
    declared = parsed.classes if parsed else names or ()
    parts = (name, text or "", classes or "", suppressed, repr(budget), *(() if target is None else (target,)))
    parts += () if network_id is None else ("network", network_id)
    once = uploads.with_file(call.installation, once, file=file, parts=parts)
    with call.reading() as session:
        answer = idempotency.replay(session, once)
        began = now(session)
    if answer:
        return respond(answer)
    with uploads.network_of(call, network_id, schema=parsed, file=file, name=name) as features_of:
        encoded = datasets.encode(
            call.installation.rows,
            uploads.upload(
                call,
                file=file,
                kind=kind,
                schema=parsed,
                classes=declared,
                target=parsed.target if parsed else of_vectors,
                features_of=features_of,
            ),
            suppressed=uploads.suppressed(call, suppression.ANYWHERE, skip=suppressed == "skip"),
            network_id=network_id,
        )

    def register(session: Session) -> Answer:
        if access.subject_rule_of(session, call.caller.tenant_id) != call.caller.policy.subject_rule:
            raise access.rule_changed()
        if not suppression.suppressed_since(session, began).isdisjoint(encoded.subject_refs):
            raise SubjectSuppressed("Somebody in the upload asked to be forgotten meanwhile; send it again.")
        dataset = datasets.register(session, name=name, encoded=encoded, adaptive_budget=budget)
        out = NewDatasetOut(
            **dict(to_response(session, dataset)), num_suppressed=encoded.num_suppressed, warnings=encoded.warnings
        )
        return created(out, f"/v1/datasets/{dataset.id}")

    try:
        answer = call.perform(once, register)
    except Problem:  # of anything else nobody knows whether it was committed: what nothing claims is swept
        call.installation.rows.delete(encoded.dataset_id)
        raise
    if answer.body["id"] != encoded.dataset_id:
        call.installation.rows.delete(encoded.dataset_id)
    return respond(answer)


@serves(router, contract.LIST)
def list_datasets(call: Call, query: DatasetsQuery) -> PageOut[DatasetOut]:
    with call.reading() as session:
        page = catalogue_repository.datasets(session, name=query.name, limit=query.limit, cursor=query.cursor)
        return PageOut(items=[to_response(session, dataset) for dataset in page.items], next_cursor=page.next_cursor)


@serves(router, contract.GET)
def get_dataset(call: Call, dataset_id: str) -> DatasetOut:
    with call.reading() as session:
        return to_response(session, datasets.get(session, dataset_id))


@serves(router, contract.RECHECK)
def recheck_dataset(call: Call, dataset_id: str) -> DatasetOut:
    with call.reading() as session:
        datasets.get(session, dataset_id)
    with call.installation.rows.alone(dataset_id):
        with call.reading() as session:
            roots = datasets.roots(session, dataset_id)
            found = records.first_damaged(session, datasets.get(session, dataset_id))
        found = found or damage.first_found(call.installation.rows, roots)
        with call.writing() as session:
            dataset = datasets.get(session, dataset_id)
            damage.recheck(session, dataset, found)
            return to_response(session, dataset)


@serves(router, contract.RETIRE)
def retire_dataset(call: Call, dataset_id: str) -> DatasetOut:
    with call.writing() as session:
        retirement.retire_dataset(session, call.installation.keys, datasets.get(session, dataset_id))
    retired.destroy_now(call.installation)
    with call.reading() as session:
        return to_response(session, datasets.get(session, dataset_id))


@serves(router, contract.SUBJECT)
def get_subject(call: Call, dataset_id: str, subject_id: str) -> SubjectOut:
    with call.writing() as session:
        access_events.subject_looked_up(session, dataset_id=datasets.get(session, dataset_id).id)
    with call.reading() as session:
        reference = call.subject_ref(subject_id)
        count = datasets.count_records_of(session, dataset_id=dataset_id, subject_ref=reference)
    return SubjectOut(num_records=count)


def to_response(session: Session, dataset: Dataset) -> DatasetOut:
    return DatasetOut(
        id=dataset.id,
        name=dataset.name,
        num_records=rows_repository.count_records(session, dataset_id=dataset.id),
        num_slots=dataset.num_slots,
        num_features=dataset.num_features,
        num_classes=len(dataset.classes),
        classes=dataset.classes,
        target=TargetRangeOut(**dataset.target) if dataset.target else None,
        network_id=dataset.network_id,
        num_subjects=rows_repository.count_subjects(session, dataset_id=dataset.id),
        revision=dataset.revision,
        digest=dataset.digest,
        damage=_damage(dataset),
        adaptive_budget=AdaptiveBudgetOut(**dataset.adaptive_budget) if dataset.adaptive_budget else None,
        schema_=dataset.schema,
        created_at=dataset.created_at,
        retired_at=dataset.retired_at,
        destroyed_at=dataset.destroyed_at,
    )


def _budget(epsilon: float | None, delta: float | None) -> Budget | None:
    if epsilon is None and delta is None:
        return None
    if epsilon is None or delta is None:
        missing = "adaptive_epsilon" if epsilon is None else "adaptive_delta"
        raise InputInvalid("A budget is an epsilon and a delta.", [FieldError(missing, "expected, with the other")])
    return Budget(epsilon=epsilon, delta=delta)


def _damage(dataset: Dataset) -> DamageOut | None:
    return DamageOut(at=dataset.damaged_at, **dataset.damage) if dataset.damaged_at and dataset.damage else None


def _schema_text(columns: UploadFile | str | None) -> str | None:
    if columns is None or isinstance(columns, str):
        return columns
    text = columns.file.read(_MAX_SCHEMA_BYTES + 1)
    if len(text) > _MAX_SCHEMA_BYTES:
        expected = f"expected at most {_MAX_SCHEMA_BYTES} bytes"
        raise SchemaInvalid("The schema is too long.", [FieldError("schema", expected)])
    return text.decode(errors="replace")


def _json(field: str, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaInvalid(f"The field {field} is not JSON.", [FieldError(field, "expected JSON")]) from error


def _schema(
    kind: batches.Kind, text: str | None, classes: tuple[str, ...] | None, target: Target | None
) -> Schema | None:
    """The meaning of the columns and the labels, as the caller declares it: the rows are never asked. Raises
    `SchemaInvalid`."""
    if text is not None:
        if target:
            what = 'expected none: {"role": "target", "min": 0, "max": 100} in the schema says it'
            raise SchemaInvalid("A schema states its target.", [FieldError("target", what)])
        return parse_schema(_json("schema", text), classes=classes)
    if kind != "npz":
        return None
    if classes is None and target is None:
        what = 'expected the names of the classes as a JSON list, in the order of y, such as ["no", "yes"], or a target'
        raise SchemaInvalid("An npz file needs classes, a target or a schema.", [FieldError("classes", what)])
    if classes is not None and target is not None:
        raise SchemaInvalid(
            "An npz file has classes or a target.", [FieldError("target", "expected none with classes")]
        )
    return None
