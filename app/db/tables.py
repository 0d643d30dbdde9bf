"""The whole schema on one page. Times are aware UTC; ids are prefixed opaque strings; nobody's subject id is here."""

import datetime
import secrets
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from app.errors import InputInvalid


class Moment(sa.TypeDecorator[datetime.datetime]):
    """An aware UTC time; SQLite, which has no zones, stores the UTC wall time."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime.datetime | None, dialect: sa.Dialect) -> datetime.datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("Expected an aware time")
        return value and value.astimezone(datetime.UTC)

    def process_result_value(self, value: datetime.datetime | None, dialect: sa.Dialect) -> datetime.datetime | None:
        return value and (
            value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value.astimezone(datetime.UTC)
        )


class Text(sa.TypeDecorator[str]):
    """Text that PostgreSQL can store and look for; any other raises `InputInvalid`, on both databases."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        if value is not None and ("\0" in value or not _encodes(value)):
            raise InputInvalid("A text of the call holds the character NUL or half a surrogate pair; send it without.")
        return value


def _encodes(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class Table(DeclarativeBase):
    type_annotation_map = {str: Text, datetime.datetime: Moment, dict[str, Any]: sa.JSON, list[str]: sa.JSON}  # noqa: RUF012
    metadata = sa.MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        }
    )


def new_id(prefix: str) -> str:
    """A fresh opaque id such as `dr_3f9c...` (80 random bits)."""
    return f"{prefix}_{secrets.token_hex(10)}"


class ApiKey(Table):
    __tablename__ = "api_keys"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    key_hash: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[str]]
    created_at: Mapped[datetime.datetime]
    revoked_at: Mapped[datetime.datetime | None]


class IdempotentAnswer(Table):
    """The first answer to a creating POST, given again to the same key and body."""

    __tablename__ = "idempotent_answers"
    api_key_id: Mapped[str] = mapped_column(sa.ForeignKey("api_keys.id"), primary_key=True)
    idempotency_key: Mapped[str] = mapped_column(primary_key=True)
    fingerprint: Mapped[str]
    status: Mapped[int]
    location: Mapped[str | None]
    answer: Mapped[dict[str, Any]]
    created_at: Mapped[datetime.datetime]


class Dataset(Table):
    """`revision` counts batches of erasures: rows at revision r lack everybody erased at or before r."""

    __tablename__ = "datasets"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    schema: Mapped[dict[str, Any] | None]
    classes: Mapped[list[str]]
    num_features: Mapped[int]
    num_slots: Mapped[int]
    digest: Mapped[str]
    revision: Mapped[int]
    attempts: Mapped[int] = mapped_column(default=0)
    not_before: Mapped[datetime.datetime | None]
    created_at: Mapped[datetime.datetime]
    __table_args__ = (sa.Index(None, "created_at", "id"),)


class Record(Table):
    """Whose row is in which slot. The line goes when the row has become null: nothing says whose it was."""

    __tablename__ = "records"
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"), primary_key=True)
    slot: Mapped[int] = mapped_column(primary_key=True)
    subject_ref: Mapped[str | None]
    erasure_id: Mapped[str | None] = mapped_column(index=True)
    __table_args__ = (sa.Index(None, "subject_ref", "dataset_id"),)


class Model(Table):
    """`wanted`: the run from scratch that is due, if any (`learn` or `relearn`). `attempts`, `deaths`: runs since the
    last version that failed by themselves, and whose worker died. `max_requests`, `max_wait_seconds`: how many requests
    wait for each other before a run, at most, and for how long."""

    __tablename__ = "models"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"), index=True)
    evaluation_dataset_id: Mapped[str | None] = mapped_column(sa.ForeignKey("datasets.id"))
    mechanism: Mapped[dict[str, Any]]
    epsilon: Mapped[float]
    delta: Mapped[float]
    ranks: Mapped[int] = mapped_column(default=1, server_default="1")
    max_requests: Mapped[int | None]
    max_wait_seconds: Mapped[int] = mapped_column(default=0, server_default="0")
    status: Mapped[str]
    wanted: Mapped[str | None]
    live_version: Mapped[int | None]
    attempts: Mapped[int] = mapped_column(default=0)
    deaths: Mapped[int] = mapped_column(default=0)
    not_before: Mapped[datetime.datetime | None]
    error_code: Mapped[str | None]
    created_at: Mapped[datetime.datetime]
    __table_args__ = (sa.Index(None, "created_at", "id"),)


class Version(Table):
    __tablename__ = "versions"
    id: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"))
    number: Mapped[int]
    status: Mapped[str] = mapped_column(index=True)
    run_id: Mapped[str] = mapped_column(sa.ForeignKey("runs.id"), unique=True)
    revision: Mapped[int]
    weights_sha256: Mapped[str]
    metrics: Mapped[dict[str, Any]]
    published_at: Mapped[datetime.datetime]
    destroyed_at: Mapped[datetime.datetime | None]
    __table_args__ = (sa.UniqueConstraint("model_id", "number"),)


_OPEN = sa.text("status IN ('accepted', 'received', 'running')")  # in the order in which SQLite compares the text


class DeletionRequest(Table):
    __tablename__ = "deletion_requests"
    id: Mapped[str] = mapped_column(primary_key=True)
    subject_ref: Mapped[str]
    regulation: Mapped[str]
    ground: Mapped[str | None]
    status: Mapped[str]
    outcome: Mapped[str | None]
    external_id: Mapped[str | None]
    request_metadata: Mapped[dict[str, Any]] = mapped_column("metadata")
    submitted_at: Mapped[datetime.datetime]
    due_at: Mapped[datetime.datetime]
    extended_due_at: Mapped[datetime.datetime | None]
    created_at: Mapped[datetime.datetime]
    completed_at: Mapped[datetime.datetime | None]
    __table_args__ = (
        sa.Index(None, "created_at", "id"),
        sa.Index(None, "status", "created_at", "id"),
        sa.Index(None, "subject_ref", "created_at", "id"),
        sa.Index(None, "external_id", "created_at", "id"),
        sa.Index(
            "ix_deletion_requests_open",
            "status",
            "regulation",
            "due_at",
            "extended_due_at",
            "created_at",
            sqlite_where=_OPEN,
            postgresql_where=_OPEN,
        ),
    )


class RequestEvent(Table):
    __tablename__ = "request_events"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"), index=True)
    status: Mapped[str]
    detail: Mapped[str | None]
    at: Mapped[datetime.datetime]


class Erasure(Table):
    """One request's rows in one dataset. `revision`, `num_records`: set when they are claimed (no way back from
    there); `num_claimed`: those of them that no other request of the same person had claimed; `nulled_at`: set when
    the rows have been overwritten and read back."""

    __tablename__ = "erasures"
    id: Mapped[str] = mapped_column(primary_key=True)
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"))
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"))
    revision: Mapped[int | None]
    num_records: Mapped[int | None]
    num_claimed: Mapped[int] = mapped_column(default=0)
    nulled_at: Mapped[datetime.datetime | None]
    __table_args__ = (
        sa.UniqueConstraint("request_id", "dataset_id"),
        sa.Index(None, "dataset_id", "revision"),
        sa.Index(
            "ix_erasures_open",
            "dataset_id",
            sqlite_where=sa.text("nulled_at IS NULL"),
            postgresql_where=sa.text("nulled_at IS NULL"),
        ),
    )


class RequestModel(Table):
    """What a request asks of one model: pending, running, completed, or nothing_published (it never had a version)."""

    __tablename__ = "request_models"
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"), primary_key=True)
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"), primary_key=True)
    status: Mapped[str]
    run_id: Mapped[str | None] = mapped_column(sa.ForeignKey("runs.id"))
    version: Mapped[int | None]
    certificate_id: Mapped[str | None]
    __table_args__ = (sa.Index(None, "model_id", "status"),)


class Run(Table):
    """One attempt, fenced by its own id: only a run that is still `running` can publish, and only one per dataset is.

    `records`: how many records became null since the run of the parent version."""

    __tablename__ = "runs"
    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    status: Mapped[str]
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"))
    model_id: Mapped[str | None] = mapped_column(sa.ForeignKey("models.id"), index=True)
    revision: Mapped[int]
    parent_version_id: Mapped[str | None]
    version_id: Mapped[str]
    steps_total: Mapped[int]
    steps_done: Mapped[int]
    records: Mapped[int]
    reason: Mapped[str]
    worker: Mapped[str]
    lease_expires_at: Mapped[datetime.datetime]
    started_at: Mapped[datetime.datetime]
    finished_at: Mapped[datetime.datetime | None]
    error_code: Mapped[str | None]
    __table_args__ = (
        sa.Index(
            "uq_runs_running_dataset",
            "dataset_id",
            unique=True,
            sqlite_where=sa.text("status = 'running'"),
            postgresql_where=sa.text("status = 'running'"),
        ),
        sa.Index(None, "status"),
        sa.Index(None, "started_at", "id"),
    )


class LedgerEntry(Table):
    """Append-only (by trigger); each entry hashes its predecessor."""

    __tablename__ = "ledger_entries"
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str] = mapped_column(sa.Text)
    previous_hash: Mapped[str]
    hash: Mapped[str]


class Certificate(Table):
    __tablename__ = "certificates"
    id: Mapped[str] = mapped_column(primary_key=True)
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"), index=True)
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"))
    version: Mapped[int]
    jws: Mapped[str] = mapped_column(sa.Text)
    issued_at: Mapped[datetime.datetime]
    __table_args__ = (sa.UniqueConstraint("request_id", "model_id"),)
