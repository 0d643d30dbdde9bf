"""`/datasets`: upload rows, see what is held."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, File, Form, UploadFile
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.access import idempotency
from app.access.idempotency import Answer, Once
from app.access.service import Scope
from app.api.calls import At, Cursor, Limit, caller_with, once_with, respond
from app.api.problems import responses
from app.api.schemas import DatasetOut, PageOut, SubjectOut
from app.db.tables import Dataset
from app.errors import (
    DatasetUnknown,
    DatasetUnusable,
    FieldError,
    IdempotencyConflict,
    RowInvalid,
    SchemaInvalid,
    SubjectUnknown,
    UploadTooLarge,
)
from app.installation import Installation
from app.registry import datasets, ingest, repository
from app.registry.encoding import Schema, parse_schema

router = APIRouter(prefix="/datasets", tags=["Datasets"])


@router.post(
    "",
    status_code=201,
    response_model=DatasetOut,
    responses=responses(UploadTooLarge, IdempotencyConflict, SchemaInvalid, RowInvalid, DatasetUnusable),
)
def create_dataset(
    at: At,
    once: Annotated[Once, once_with(Scope.MODELS_WRITE)],
    file: Annotated[UploadFile, File(description="Rows: .csv, .parquet or .npz")],
    name: Annotated[str, Form(min_length=1, max_length=200)],
    columns: Annotated[
        UploadFile | str | None, Form(alias="schema", description="For csv and parquet: the public schema, as JSON")
    ] = None,
) -> JSONResponse:
    """Encode the rows by the public schema alone, scale each to norm <= 1, and keep nothing else of the file."""
    kind = ingest.kind_of(file.filename or "")
    text = columns if isinstance(columns, str | None) else columns.file.read().decode(errors="replace")
    parsed = _schema(text)
    with _private_copy(at, file) as path:
        once = _with_upload(at, once, path=path, parts=(name, text or ""))
        with at.database.reading() as session:
            answer = idempotency.replay(session, once)
        if answer:
            return respond(answer)
        encoded = datasets.encode(at.rows, at.keys, path=path, kind=kind, schema=parsed)
    try:
        with at.database.writing() as session:
            answer = idempotency.replay(session, once)
            if answer is None:
                dataset = datasets.register(session, name=name, encoded=encoded)
                body = shown(session, dataset).model_dump(mode="json", by_alias=True)
                location = f"/v1/datasets/{dataset.id}"
                answer = idempotency.remember(session, once, Answer(status=201, location=location, body=body))
    except BaseException:
        at.rows.delete(encoded.dataset_id)
        raise
    if answer.body["id"] != encoded.dataset_id:
        at.rows.delete(encoded.dataset_id)
    return respond(answer)


@router.get("", dependencies=[caller_with(Scope.MODELS_READ)], responses=responses())
def list_datasets(at: At, limit: Limit = 50, cursor: Cursor = None) -> PageOut[DatasetOut]:
    with at.database.reading() as session:
        page = repository.datasets(session, limit=limit, cursor=cursor)
        return PageOut(items=[shown(session, dataset) for dataset in page.items], next_cursor=page.next_cursor)


@router.get("/{dataset_id}", dependencies=[caller_with(Scope.MODELS_READ)], responses=responses(DatasetUnknown))
def get_dataset(at: At, dataset_id: str) -> DatasetOut:
    with at.database.reading() as session:
        return shown(session, datasets.get(session, dataset_id))


@router.get(
    "/{dataset_id}/subjects/{subject_id}",
    dependencies=[caller_with(Scope.ADMIN)],
    responses=responses(DatasetUnknown, SubjectUnknown),
)
def get_subject(at: At, dataset_id: str, subject_id: str) -> SubjectOut:
    """How many rows are held about a person; for admins, because it tells who is in the data."""
    with at.database.reading() as session:
        reference = at.keys.subject_ref(subject_id)
        count = datasets.count_records_of(session, dataset_id=dataset_id, subject_ref=reference)
    return SubjectOut(num_records=count)


def shown(session: Session, dataset: Dataset) -> DatasetOut:
    return DatasetOut(
        id=dataset.id,
        name=dataset.name,
        num_records=repository.count_records(session, dataset_id=dataset.id),
        num_slots=dataset.num_slots,
        num_features=dataset.num_features,
        num_classes=len(dataset.classes),
        classes=dataset.classes,
        num_subjects=repository.count_subjects(session, dataset_id=dataset.id),
        revision=dataset.revision,
        digest=dataset.digest,
        schema_=dataset.schema,
        created_at=dataset.created_at,
    )


def _schema(text: str | None) -> Schema | None:
    if text is None:
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaInvalid("The schema is not JSON.", [FieldError("schema", "expected JSON")]) from error
    return parse_schema(document)


@contextmanager
def _private_copy(at: Installation, file: UploadFile) -> Iterator[Path]:
    """The upload as a file that only this process can read, gone when the block ends."""
    folder = at.settings.data_dir / "tmp"
    with tempfile.NamedTemporaryFile(dir=folder, prefix="upload-", suffix=Path(file.filename or "").suffix) as copy:
        shutil.copyfileobj(file.file, copy)
        copy.flush()
        yield Path(copy.name)


def _with_upload(at: Installation, once: Once, *, path: Path, parts: tuple[str, ...]) -> Once:
    """The call, told apart from others by its file too."""
    if once.idempotency_key is None:
        return once
    digest = at.keys.fingerprint_file(path)
    fingerprint = at.keys.fingerprint(once.fingerprint.encode(), digest.encode(), *(part.encode() for part in parts))
    return Once(api_key_id=once.api_key_id, idempotency_key=once.idempotency_key, fingerprint=fingerprint)
