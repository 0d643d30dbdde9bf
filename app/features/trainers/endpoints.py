"""Endpoints under `/training-tables` and `/trainers`."""

from typing import Annotated

from fastapi import APIRouter, File, UploadFile
from fastapi.responses import JSONResponse, Response
from sqlalchemy.orm import Session

from app.access import idempotency, service as access
from app.api import calls, forms, gateway, uploads
from app.audit import service as audit
from app.catalogue import datasets
from app.db import now
from app.deletion import search_repository
from app.features.trainers import service, tables, training
from app.operations import periodic_jobs as retired
from app.rows.uploads import RowUpload
from app.vault import store
from lethe.contract import fields, problems
from lethe.encoding.targets import TargetColumn
from lethe.features.trainers import contract

router = APIRouter(route_class=forms.SpooledRoute)


@gateway.serves(router, contract.UPLOAD_TABLE)
@uploads.takes(contract.TrainingTableIn)
def create_training_table(
    call: calls.Call,
    once: idempotency.Once,
    file: Annotated[UploadFile, File(description="Rows in a file: .csv, .parquet or .arrow.")],
    form: contract.TrainingTableIn,
) -> JSONResponse:
    with call.reading() as session:
        answer = idempotency.replay(session, once)
        began = now(session)
    if answer:
        return calls.respond(answer)
    # Imported here: a gateway without training tables needs no Arrow.
    from app.features.trainers import columns

    content = file.file.read(contract.MAX_TABLE_BYTES + 1)
    if len(content) > contract.MAX_TABLE_BYTES:
        fault = problems.FieldError("file", f"expected at most {contract.MAX_TABLE_BYTES} bytes")
        raise problems.InputInvalid("The table was not stored.", [fault])
    call.require_room(len(content))
    subject_refs, advice = uploads.observed(call, form.subject_kind)
    table, subjects = columns.read(content, file.filename or "", form.subject_column)
    tokens = columns.tokens(table.num_rows)
    rows, vault = call.installation.rows, call.installation.vault
    folder = forms.folder(call.installation.settings)
    with store.create(folder) as spool:
        spool.write(columns.as_vectors(tokens, subjects))
        spool.seek(0)
        upload = RowUpload(
            file=spool,
            folder=folder,
            tenant_id=call.caller.tenant_id,
            kind="npz",
            schema=None,
            classes=(),
            target=TargetColumn(low=0.0, high=1.0),
            subject_refs=subject_refs,
        )
        suppressed = uploads.suppressed(call, search_repository.ANYWHERE, skip=form.suppressed == "skip")
        encoded = datasets.encode(rows, upload, suppressed=suppressed)
    try:
        kept = columns.present(rows.read(encoded.dataset_id, encoded.root))
        present = columns.only(columns.with_tokens(table, tokens, subjects), kept)
        blocks = [service.sealed_block(vault, number, block) for number, block in enumerate(columns.in_blocks(present))]

        def register(session: Session) -> idempotency.StoredResponse:
            if access.policy_of(session, call.caller.tenant_id).subject_rule != call.caller.policy.subject_rule:
                raise access.rule_changed()
            if not search_repository.suppressed_since(session, began).isdisjoint(encoded.subject_refs):
                raise problems.SubjectSuppressed.meanwhile()
            dataset = datasets.register(session, name=form.name, encoded=encoded)
            dataset.subject_kind = form.subject_kind
            row = service.register_table(
                session,
                name=form.name,
                dataset=dataset,
                subject_column=form.subject_column,
                schema=table.schema,
                blocks=blocks,
            )
            call.require_room(session=session)
            out = contract.NewTableOut(**dict(_table(session, call, row)), warnings=advice())
            return calls.created(out, f"/v1/training-tables/{row.id}")

        answer = call.perform(once, register)
    # After another error the call may have been committed; rows without a dataset are swept later.
    except problems.Problem as error:
        rows.delete(encoded.dataset_id)
        if isinstance(error, problems.SubjectSuppressed):
            uploads.record_match(call, search_repository.ANYWHERE)
        raise
    if answer.body["dataset_id"] != encoded.dataset_id:
        rows.delete(encoded.dataset_id)
    return calls.respond(answer)


@gateway.serves(router, contract.LIST_TABLES)
def list_training_tables(call: calls.Call, query: fields.Paging) -> fields.PageOut[contract.TableOut]:
    with call.reading() as session:
        page = service.tables(session, limit=query.limit, cursor=query.cursor)
        return fields.PageOut(items=[_table(session, call, row) for row in page.items], next_cursor=page.next_cursor)


@gateway.serves(router, contract.GET_TABLE)
def get_training_table(call: calls.Call, table_id: str) -> contract.TableOut:
    with call.reading() as session:
        return _table(session, call, service.get_table(session, table_id))


@gateway.serves(router, contract.RETIRE_TABLE)
def retire_training_table(call: calls.Call, table_id: str) -> None:
    with call.writing() as session:
        service.retire_table(session, call.installation.keys, service.get_table(session, table_id))
    retired.destroy_now(call.installation)
    training.destroy_retired_keys(call.installation)


@gateway.serves(router, contract.CREATE)
def create_trainer(call: calls.Call, once: idempotency.Once, body: contract.TrainerIn) -> JSONResponse:
    def register(session: Session) -> idempotency.StoredResponse:
        row = service.register(session, body)
        session.flush()
        call.require_room(session=session)
        return calls.created(_trainer(session, call, row), f"/v1/trainers/{row.id}")

    return calls.respond(call.perform(once, register))


@gateway.serves(router, contract.LIST)
def list_trainers(call: calls.Call, query: fields.Paging) -> fields.PageOut[contract.TrainerOut]:
    with call.reading() as session:
        page = service.trainers(session, limit=query.limit, cursor=query.cursor)
        return fields.PageOut(items=[_trainer(session, call, row) for row in page.items], next_cursor=page.next_cursor)


@gateway.serves(router, contract.GET)
def get_trainer(call: calls.Call, trainer_id: str) -> contract.TrainerOut:
    with call.reading() as session:
        return _trainer(session, call, service.get(session, trainer_id))


@gateway.serves(router, contract.RETIRE)
def retire_trainer(call: calls.Call, trainer_id: str) -> None:
    with call.writing() as session:
        service.retire(session, service.get(session, trainer_id))
    training.destroy_retired_keys(call.installation)


@gateway.serves(router, contract.TRAININGS)
def list_trainings(call: calls.Call, trainer_id: str, query: fields.Paging) -> fields.PageOut[contract.TrainingOut]:
    with call.reading() as session:
        row = service.get(session, trainer_id)
        page = service.trainings(session, trainer_id=row.id, limit=query.limit, cursor=query.cursor)
        return fields.PageOut(items=[_training(session, row) for row in page.items], next_cursor=page.next_cursor)


@gateway.serves(router, contract.PLAN)
def get_trainer_plan(call: calls.Call, trainer_id: str) -> contract.TrainerPlanOut:
    with call.reading() as session:
        row = service.get(session, trainer_id)
        planned = [] if call.caller.discreet else training.plan_of(session, row, at=now(session))
        seconds = service.last_seconds(session, row)
    retrainings = [contract.PlannedOut.of(retraining, late=retraining.is_late) for retraining in planned]
    return contract.TrainerPlanOut(expected_seconds=seconds, retrainings=retrainings)


@gateway.serves(router, contract.RELEASE)
def release_trainer(call: calls.Call, trainer_id: str) -> contract.TrainerOut:
    with call.writing() as session:
        row = service.get(session, trainer_id)
        service.release(session, row)
        return _trainer(session, call, row)


@gateway.serves(router, contract.ARTEFACT)
def get_artefact(call: calls.Call, trainer_id: str, name: str) -> Response:
    with call.reading() as session:
        row = service.get(session, trainer_id)
        content = service.artefact(session, call.installation.vault, row, name)
    with call.writing() as session:
        audit.record(session, "artefact.handed_out", trainer_id, name=name)
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(content, media_type="application/octet-stream", headers=headers)


def _table(session: Session, call: calls.Call, row: tables.TrainingTable) -> contract.TableOut:
    return contract.TableOut.of(
        row,
        columns=[contract.ColumnOut(**column) for column in row.columns],
        num_rows=None if call.caller.discreet else service.count_rows(session, row.id),
    )


def _trainer(session: Session, call: calls.Call, row: tables.Trainer) -> contract.TrainerOut:
    """Return a trainer as visible to the caller: discreet callers do not see the number of waiting requests."""
    return contract.TrainerOut.of(
        row,
        metric=row.specification["metric"],
        min_metric=row.specification["min_metric"],
        live_training_id=row.live_id,
        waiting_requests=None if call.caller.discreet else len(service.waiting(session, row)),
    )


def _training(session: Session, row: tables.Training) -> contract.TrainingOut:
    artefacts = [contract.ArtefactOut.of(artefact) for artefact in service.artefacts(session, row.id)]
    return contract.TrainingOut.of(row, artefacts=artefacts)


MOUNTS = (gateway.Mount(router=router),)
