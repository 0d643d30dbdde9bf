"""Endpoints `/datasets/{dataset_id}/records` and `/additions`, which add rows to an existing dataset."""

from typing import Annotated

from fastapi import APIRouter, File, UploadFile
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.access import idempotency
from app.api import calls, forms, gateway, models, uploads
from app.catalogue import datasets, evaluation
from app.db import now, tables
from app.deletion import search_repository
from app.features.additions import repository, service as additions
from app.rows import formats, ingest
from lethe.contract import fields, problems
from lethe.contract.datasets import RowsIn
from lethe.encoding import schema as schemas
from lethe.features.additions import contract

_FEW_ROWS = 20
"""Number of rows below which a proportion of unknown values does not indicate a malformed file."""

router = APIRouter(route_class=forms.SpooledRoute)


@gateway.serves(router, contract.ADD)
@uploads.takes(RowsIn)
def add_records(
    call: calls.Call,
    once: idempotency.Once,
    dataset_id: str,
    file: Annotated[UploadFile, File(description="File of rows with the dataset's columns: .csv, .parquet or .npz.")],
    form: RowsIn,
) -> JSONResponse:
    with call.reading() as session:
        dataset = datasets.get(session, dataset_id)
        additions.require_open(session, dataset)
    kind = _kind(file, dataset)
    with call.reading() as session:
        answer = idempotency.replay(session, once)
        num_free = additions.count_free_slots(session, dataset)
        began = now(session)
    if answer:
        return calls.respond(answer)
    schema = schemas.stored(dataset.schema) if dataset.schema else None
    with uploads.network_of(call, dataset.network_id, schema=schema, file=file, name=dataset_id) as features_of:
        staged = additions.stage(
            call.installation.rows,
            dataset,
            uploads.upload(
                call,
                file=file,
                subject_refs=call.references(dataset.subject_kind),
                kind=kind,
                schema=schema,
                classes=tuple(dataset.classes),
                target=datasets.target_of(dataset),
                few_rows=_FEW_ROWS,
                features_of=features_of,
            ),
            num_free=num_free,
            suppressed=uploads.suppressed(call, dataset_id, skip=form.suppressed == "skip"),
        )

    def register(session: Session) -> idempotency.StoredResponse:
        if _to_compare(session, call, dataset, staged) != compared:
            raise models.came_or_went()
        if not search_repository.suppressed_since(session, began, dataset_id).isdisjoint(staged.subject_refs):
            raise problems.SubjectSuppressed.meanwhile()
        addition = additions.register(session, dataset=dataset, staged=staged)
        call.require_room(session=session)
        out = contract.NewAdditionOut.of(addition, num_suppressed=staged.num_suppressed)
        return calls.accepted(out, f"/v1/datasets/{dataset_id}/additions/{addition.id}")

    try:
        with call.reading() as session:
            compared = _to_compare(session, call, dataset, staged)
        models.compare(call, compared)
        answer = call.perform(once, register)
    # After another error the call may have been committed; rows without an addition are swept later.
    except problems.Problem as error:
        call.installation.rows.delete(staged.addition_id)
        if isinstance(error, problems.SubjectSuppressed):
            uploads.record_match(call, dataset_id)
        raise
    if answer.body["id"] != staged.addition_id:
        call.installation.rows.delete(staged.addition_id)
    call.installation.notifier.wake()
    return calls.respond(answer)


@gateway.serves(router, contract.ADDITIONS)
def list_additions(call: calls.Call, dataset_id: str, query: fields.Paging) -> fields.PageOut[contract.AdditionOut]:
    with call.reading() as session:
        datasets.get(session, dataset_id)
        page = additions.additions(session, dataset_id=dataset_id, limit=query.limit, cursor=query.cursor)
        items = [contract.AdditionOut.of(addition) for addition in page.items]
        return fields.PageOut(items=items, next_cursor=page.next_cursor)


@gateway.serves(router, contract.ADDITION)
def get_addition(call: calls.Call, dataset_id: str, addition_id: str) -> contract.AdditionOut:
    with call.reading() as session:
        datasets.get(session, dataset_id)
        return contract.AdditionOut.of(additions.get(session, dataset_id=dataset_id, addition_id=addition_id))


def _to_compare(
    session: Session, call: calls.Call, dataset: tables.Dataset, staged: additions.Staged
) -> list[evaluation.Comparison]:
    """Return the comparisons of the added rows with the datasets that must not share people or rows with them: those on
    which `dataset`'s models are evaluated, and those whose models are evaluated on it. Raises `EvaluationOverlaps`."""
    rows = evaluation.Part(rows_id=staged.addition_id, root=staged.root)
    newcomers = {ref for ref in staged.subject_refs if ref is not None}
    comparisons = []
    for other, is_measured in repository.datasets_apart_from(session, dataset_id=dataset.id):
        shared = repository.count_subjects_among(session, newcomers, dataset_id=other.id)
        if shared:
            raise problems.EvaluationOverlaps.people(
                count=evaluation.stated_count(shared, may_know=not call.caller.discreet)
            )
        learned_on = evaluation.parts_of(session, dataset if is_measured else other)
        others = evaluation.parts_of(session, other)
        comparisons.append(evaluation.Comparison(newcomers=(rows,), others=others, learned_on=learned_on))
    return comparisons


def _kind(file: UploadFile, dataset: tables.Dataset) -> formats.Kind:
    """Return a file's format. Raises `InputInvalid` if the dataset has no schema and the file is not an npz file."""
    kind = ingest.kind_of(file.filename or "")
    if dataset.schema is None and kind != "npz":
        expected = "expected a .npz file, as the dataset was"
        raise problems.InputInvalid("The rows are not of the dataset's kind.", [problems.FieldError("file", expected)])
    return kind


MOUNTS = (gateway.Mount(router=router),)
