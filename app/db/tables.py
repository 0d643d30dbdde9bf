"""The whole schema on one page. Times are aware UTC; ids are prefixed opaque strings; no subject id is here."""

import datetime
import secrets
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from app.db.sealed import Particulars, Payload, Reference, Sealed
from lethe.contract.problems import InputInvalid
from lethe.contract.sets import EventKind, RequestModelStatus


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


class InstallationIdentity(Table):
    """The identity of the database's installation: one line, from the first start on. `check_values`: of each key of
    the installation, by its name, which tell it from any other and say nothing about it (`app.key_checks`); of the
    key-encryption key both, while it is changed."""

    __tablename__ = "installation_identity"
    id: Mapped[str] = mapped_column(primary_key=True)
    check_values: Mapped[dict[str, Any]]
    created_at: Mapped[datetime.datetime]


class Owned:
    """A thing that belongs to one tenant: a session that acts for a tenant sees nothing of the others
    (`app.db.session`)."""

    tenant_id: Mapped[str] = mapped_column(sa.ForeignKey("tenants.id"))


class Tenant(Table):
    """An organisation. `policy`: how it handles requests (`app.access.policy`); `webhook_generation`: which of its
    webhook secrets is the present one, since `webhook_rotated_at` (None: from the beginning)."""

    __tablename__ = "tenants"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    policy: Mapped[dict[str, Any]]
    webhook_generation: Mapped[int] = mapped_column(default=1)
    webhook_rotated_at: Mapped[datetime.datetime | None]
    created_at: Mapped[datetime.datetime]
    __table_args__ = (sa.Index(None, "created_at", "id"),)


class ApiKey(Owned, Table):
    """`calls_per_minute`: None for the installation's limit; `expires_at`: None for never. `line_id`: the first key of
    those that each replaced the one before; None for that one itself. `own_requests_only`: of requests it sees those
    of its line alone."""

    __tablename__ = "api_keys"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    key_hash: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[str]]
    calls_per_minute: Mapped[int | None]
    line_id: Mapped[str | None]
    own_requests_only: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    created_at: Mapped[datetime.datetime]
    expires_at: Mapped[datetime.datetime | None]
    last_used_at: Mapped[datetime.datetime | None]
    revoked_at: Mapped[datetime.datetime | None]
    __table_args__ = (sa.Index(None, "tenant_id", "created_at", "id"),)


class IdempotentAnswer(Table):
    """The first answer to a creating POST, given again to the same call. `name`: a keyed hash of the API key and the
    Idempotency-Key."""

    __tablename__ = "idempotent_answers"
    name: Mapped[str] = mapped_column(primary_key=True)
    fingerprint: Mapped[str]
    status: Mapped[int]
    location: Mapped[str | None]
    answer: Mapped[dict[str, Any]]
    created_at: Mapped[datetime.datetime] = mapped_column(index=True)


class DashboardSession(Table):
    """Somebody who logged in to the dashboard with an API key. `token_hash`: of what their browser keeps."""

    __tablename__ = "dashboard_sessions"
    token_hash: Mapped[str] = mapped_column(primary_key=True)
    api_key_id: Mapped[str] = mapped_column(sa.ForeignKey("api_keys.id"))
    opened_at: Mapped[datetime.datetime]
    seen_at: Mapped[datetime.datetime] = mapped_column(index=True)
    expires_at: Mapped[datetime.datetime] = mapped_column(index=True)


class Network(Owned, Table):
    """A public network: an ONNX file that learned from none of the people here, named by its `sha256`. `provenance`:
    what it was trained on; `dp_ledger`: where its own account of differential privacy is. `parameters`: `name` and
    `shape` of each; `batch_size`: of the rows that it is run on."""

    __tablename__ = "networks"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    sha256: Mapped[str]
    size: Mapped[int] = mapped_column(sa.BigInteger)
    licence: Mapped[str]
    provenance: Mapped[str]
    dp_ledger: Mapped[str | None]
    opset: Mapped[int]
    input_shape: Mapped[list[int]] = mapped_column(sa.JSON)
    output_size: Mapped[int]
    num_parameters: Mapped[int] = mapped_column(sa.BigInteger)
    parameters: Mapped[list[dict[str, Any]]] = mapped_column(sa.JSON)
    operators: Mapped[list[str]] = mapped_column(sa.JSON)
    batch_size: Mapped[int]
    created_at: Mapped[datetime.datetime]
    __table_args__ = (
        sa.Index(None, "tenant_id", "created_at", "id"),
        sa.UniqueConstraint("tenant_id", "sha256"),
    )


class NetworkPiece(Table):
    """A piece of the file of a network, in its place."""

    __tablename__ = "network_pieces"
    network_id: Mapped[str] = mapped_column(sa.ForeignKey("networks.id"), primary_key=True)
    place: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    content: Mapped[bytes]


_IS_DAMAGED = sa.text("damaged_at IS NOT NULL")


class Dataset(Owned, Table):
    """`network_id`: of the public network whose features its rows are, if there is one. `classes`: what labels stand
    for, or none where they are numbers in the range of a `target` (`lethe.encoding.targets`). `revision` counts batches
    of edits: rows at revision r lack everybody erased at or before r, and hold everybody added at or before r.
    `references_check`: a keyed hash of the id under the key that the references of its people were made with, so that
    another key is told from people who are not held;
    `records_have_checks`: each of its records carries a check value of its own, so that one without is damaged too;
    `num_rows`: how many of its rows are not null; `records_verified_at`, `records_verified_to`: when all of them were
    verified last, and up to which slot they are since (None: none). `lost_models`: what models published that a
    restored backup does not know, by their ids: `mechanism` and `steps`, of each version. `digest`: the root of what
    its rows are (`app.rows.manifest`); `damaged_at`: since when they are known not to be that; `damage`: what was found
    first, a `kind`, of which `rows`, in which `block`. `adaptive_budget`: `epsilon` and `delta`, if it was made with
    one (`app.accounting.budgets`). `retired_at`: nothing is learned from it any more; `destroyed_at`: nothing is left
    of its rows."""

    __tablename__ = "datasets"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    schema: Mapped[dict[str, Any] | None]
    network_id: Mapped[str | None]
    classes: Mapped[list[str]]
    target: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    lost_models: Mapped[dict[str, Any]] = mapped_column(default=dict)
    num_features: Mapped[int]
    num_slots: Mapped[int]
    num_rows: Mapped[int] = mapped_column(default=0, server_default="0")
    digest: Mapped[str]
    references_check: Mapped[str | None] = mapped_column(Reference)
    records_have_checks: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    records_verified_at: Mapped[datetime.datetime | None]
    records_verified_to: Mapped[int | None]
    damaged_at: Mapped[datetime.datetime | None]
    damage: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    revision: Mapped[int]
    attempts: Mapped[int] = mapped_column(default=0)
    not_before: Mapped[datetime.datetime | None]
    created_at: Mapped[datetime.datetime]
    adaptive_budget: Mapped[dict[str, float] | None] = mapped_column(sa.JSON(none_as_null=True))
    retired_at: Mapped[datetime.datetime | None]
    destroyed_at: Mapped[datetime.datetime | None]
    __table_args__ = (
        sa.Index(None, "tenant_id", "created_at", "id"),
        sa.Index("ix_datasets_damaged", "damaged_at", sqlite_where=_IS_DAMAGED, postgresql_where=_IS_DAMAGED),
    )


_STAGED = sa.text("staged")
_WAS_ADDED = sa.text("addition_id IS NOT NULL")


class Addition(Owned, Table):
    """Rows that came to a dataset after it was made, for slots that were null. `status`: pending, applied (they are in
    their slots) or dropped (the dataset was retired before); `revision`: set when a worker takes them; `staged`: the
    batch that came still lies beside the dataset, `digest` being the root of its rows."""

    __tablename__ = "additions"
    id: Mapped[str] = mapped_column(primary_key=True)
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"))
    num_records: Mapped[int]
    digest: Mapped[str]
    status: Mapped[str]
    staged: Mapped[bool]
    revision: Mapped[int | None]
    created_at: Mapped[datetime.datetime]
    applied_at: Mapped[datetime.datetime | None]
    __table_args__ = (
        sa.Index(None, "dataset_id", "created_at", "id"),
        sa.Index("ix_additions_revision", "dataset_id", "revision"),
        sa.Index("ix_additions_staged", "dataset_id", sqlite_where=_STAGED, postgresql_where=_STAGED),
    )


class Record(Table):
    """A record: the person of the row in a slot. The line goes when the row has become null: nothing says whose it was.

    `addition_id`: with which addition it came; None: with the dataset. `check_value`: a keyed hash of whose row is in
    which slot of which dataset, so that damage is told from absence (`app.rows.records`)."""

    __tablename__ = "records"
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"), primary_key=True)
    slot: Mapped[int] = mapped_column(primary_key=True)
    subject_ref: Mapped[str | None]
    erasure_id: Mapped[str | None] = mapped_column(index=True)
    addition_id: Mapped[str | None]
    check_value: Mapped[bytes | None]
    __table_args__ = (
        sa.Index(None, "subject_ref", "dataset_id"),
        sa.Index("ix_records_added", "addition_id", "slot", sqlite_where=_WAS_ADDED, postgresql_where=_WAS_ADDED),
    )


class Model(Owned, Table):
    """`wanted`: the run from scratch that is due, if any (`learn` or `relearn`). `lost_releases`: the steps behind
    versions that were published and that a restored backup does not know. `attempts`, `deaths`: runs since the last
    version that failed by themselves, and whose worker died. `max_requests`, `max_wait_seconds`: how many requests
    wait for each other before a run, at most, and for how long. `audit_lanes`: of each run's audit, 0 for none;
    `audit_chains`: how many times as many of one that is asked for; `audit_asked_at`: of one that waits. `quality`: its
    gate, a `metric`, `threshold` and `on_breach` (None: there is none). `retired_at`: it learns and forgets no more;
    `destroyed_at`: nothing is left of its weights."""

    __tablename__ = "models"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"), index=True)
    evaluation_dataset_id: Mapped[str | None] = mapped_column(sa.ForeignKey("datasets.id"))
    mechanism: Mapped[dict[str, Any]]
    epsilon: Mapped[float]
    delta: Mapped[float]
    max_requests: Mapped[int | None]
    max_wait_seconds: Mapped[int] = mapped_column(default=0, server_default="0")
    audit_lanes: Mapped[int] = mapped_column(default=256, server_default="256")
    audit_chains: Mapped[int] = mapped_column(default=16, server_default="16")
    audit_asked_at: Mapped[datetime.datetime | None]
    quality: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    lost_releases: Mapped[list[int]] = mapped_column(sa.JSON, default=list)
    status: Mapped[str]
    wanted: Mapped[str | None]
    live_version: Mapped[int | None]
    attempts: Mapped[int] = mapped_column(default=0)
    deaths: Mapped[int] = mapped_column(default=0)
    not_before: Mapped[datetime.datetime | None]
    error_code: Mapped[str | None]
    created_at: Mapped[datetime.datetime]
    retired_at: Mapped[datetime.datetime | None]
    destroyed_at: Mapped[datetime.datetime | None]
    __table_args__ = (sa.Index(None, "tenant_id", "created_at", "id"),)


class Version(Table):
    """`degraded`: it missed the quality gate that it was judged by last; `held`: it is kept from serving for that."""

    __tablename__ = "versions"
    id: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"))
    number: Mapped[int]
    status: Mapped[str] = mapped_column(index=True)
    run_id: Mapped[str] = mapped_column(sa.ForeignKey("runs.id"), unique=True)
    revision: Mapped[int]
    weights_sha256: Mapped[str]
    metrics: Mapped[dict[str, Any]]
    degraded: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    held: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    published_at: Mapped[datetime.datetime]
    destroyed_at: Mapped[datetime.datetime | None]
    __table_args__ = (sa.UniqueConstraint("model_id", "number"),)


_OPEN = sa.text("status IN ('accepted', 'in_review', 'received', 'running')")
"""In the order in which SQLite compares the text."""
_WAS_HELD = sa.text("held_until IS NOT NULL")
_HAS_EXTERNAL_ID, _HAS_SOURCE = sa.text("external_ref IS NOT NULL"), sa.text("source IS NOT NULL")
_IS_MADE, _IS_DOUBTED = sa.text("maker IS NOT NULL"), sa.text("doubted_at IS NOT NULL")
_IS_REPORTED, _HAS_ENDED = sa.text("reported_at IS NOT NULL"), sa.text("ended_at IS NOT NULL")


class DeletionRequest(Owned, Table):
    """`alias_refs`: further identifiers of the same person; `dataset_ids`: where to forget the person (None: wherever
    they are held). `deadline`: when it must be done, as `due_at`, `extended_due_at` and pauses have it; `paused_at`:
    since when the clock stands still; `held_until`: no worker takes it before (None: at once). `doubted_at`: since when
    it could be about somebody who is not found, because records are damaged; before it completes it is looked up again.
    `source`: the list or the protocol that it came by. `maker`: the line of the key that made it (None: not known).
    `discreet`: it was made by a caller who may not learn whether anything is held. `refers_to`: the ended request that
    this one follows. `alerted`: of what its receivers have been told, `at_risk` or `overdue`. `reported_at`: when
    callers who may not learn whether anything is held see it completed, known since it was accepted. `ended_at`: since
    when it is over, from which on `kept` shrinks as the tenant's policy says (`app.deletion.retention`).
    `external_ref`: of its external id."""

    __tablename__ = "deletion_requests"
    id: Mapped[str] = mapped_column(primary_key=True)
    subject_ref: Mapped[str]
    alias_refs: Mapped[list[str] | None] = mapped_column(sa.JSON(none_as_null=True))
    dataset_ids: Mapped[list[str] | None] = mapped_column(sa.JSON(none_as_null=True))
    regulation: Mapped[str]
    ground: Mapped[str | None]
    status: Mapped[str]
    outcome: Mapped[str | None]
    external_ref: Mapped[str | None] = mapped_column(Reference)
    source: Mapped[str | None]
    refers_to: Mapped[str | None]
    particulars: Mapped[Particulars] = mapped_column(Sealed(Particulars), nullable=True)
    kept: Mapped[str]
    maker: Mapped[str | None]
    discreet: Mapped[bool]
    submitted_at: Mapped[datetime.datetime]
    due_at: Mapped[datetime.datetime]
    extended_due_at: Mapped[datetime.datetime | None]
    deadline: Mapped[datetime.datetime]
    paused_at: Mapped[datetime.datetime | None]
    held_until: Mapped[datetime.datetime | None]
    doubted_at: Mapped[datetime.datetime | None]
    alerted: Mapped[str | None]
    rejection_ground: Mapped[str | None]
    created_at: Mapped[datetime.datetime]
    completed_at: Mapped[datetime.datetime | None]
    reported_at: Mapped[datetime.datetime | None]
    ended_at: Mapped[datetime.datetime | None]
    __table_args__ = (
        sa.Index(None, "tenant_id", "created_at", "id"),
        sa.Index(None, "tenant_id", "status", "created_at", "id"),
        sa.Index(None, "tenant_id", "regulation", "created_at", "id"),
        sa.Index(None, "tenant_id", "maker", "created_at", "id", sqlite_where=_IS_MADE, postgresql_where=_IS_MADE),
        sa.Index(None, "subject_ref", "created_at", "id"),
        sa.Index(
            None,
            "tenant_id",
            "external_ref",
            "created_at",
            "id",
            sqlite_where=_HAS_EXTERNAL_ID,
            postgresql_where=_HAS_EXTERNAL_ID,
        ),
        sa.Index(
            None, "tenant_id", "source", "created_at", "id", sqlite_where=_HAS_SOURCE, postgresql_where=_HAS_SOURCE
        ),
        sa.Index(None, "tenant_id", "reported_at", sqlite_where=_IS_REPORTED, postgresql_where=_IS_REPORTED),
        sa.Index(None, "kept", "tenant_id", "ended_at", sqlite_where=_HAS_ENDED, postgresql_where=_HAS_ENDED),
        sa.Index(
            "ix_deletion_requests_held", "status", "held_until", sqlite_where=_WAS_HELD, postgresql_where=_WAS_HELD
        ),
        sa.Index(
            "ix_deletion_requests_doubted",
            "status",
            "created_at",
            sqlite_where=_IS_DOUBTED,
            postgresql_where=_IS_DOUBTED,
        ),
        sa.Index(
            "ix_deletion_requests_open",
            "status",
            "tenant_id",
            "regulation",
            "deadline",
            "created_at",
            "paused_at",
            "held_until",
            sqlite_where=_OPEN,
            postgresql_where=_OPEN,
        ),
    )

    @property
    def subject_refs(self) -> tuple[str, ...]:
        """Every identifier of the person."""
        return (self.subject_ref, *(self.alias_refs or ()))


class RequestAlias(Table):
    """The `alias_refs` of a request, one by one, so that they are found."""

    __tablename__ = "request_aliases"
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"), primary_key=True)
    subject_ref: Mapped[str] = mapped_column(primary_key=True, index=True)


class RequestEvent(Table):
    """Something that happened to a request. `facts`: what there is to say of it beyond its kind; `detail`: the words
    of a release that knew no kinds, and whose workers may still add events, which are `noted`."""

    __tablename__ = "request_events"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"), index=True)
    status: Mapped[str]
    detail: Mapped[str | None]
    actor: Mapped[str]
    at: Mapped[datetime.datetime]
    kind: Mapped[str] = mapped_column(server_default=EventKind.NOTED.value)
    facts: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))


_UNCLAIMED = sa.text("revision IS NULL AND ready_at IS NOT NULL")
_CLAIMED = sa.text("revision IS NOT NULL")
_UNCONFIRMED = sa.text("num_records IS NOT NULL AND nulled_at IS NULL")


class Erasure(Table):
    """One request's rows in one dataset. `revision`, `num_records`: set when they are claimed (no way back from
    there); `num_claimed`: those of them that no other request of the same person had claimed; `nulled_at`: set when
    the rows are null, and nobody can open what they were.

    `deadline` is the request's, and `ready_at` says from when a worker may claim the rows (None: not as the request
    stands): what the queue goes by is here, because no index reaches over two tables. Triggers keep it so, no matter
    who changes the request."""

    __tablename__ = "erasures"
    id: Mapped[str] = mapped_column(primary_key=True)
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"))
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"))
    revision: Mapped[int | None]
    num_records: Mapped[int | None]
    num_claimed: Mapped[int] = mapped_column(default=0)
    nulled_at: Mapped[datetime.datetime | None]
    deadline: Mapped[datetime.datetime]
    ready_at: Mapped[datetime.datetime | None]
    __table_args__ = (
        sa.UniqueConstraint("request_id", "dataset_id"),
        sa.Index(
            "ix_erasures_claimed",
            "dataset_id",
            "revision",
            "deadline",
            "ready_at",
            sqlite_where=_CLAIMED,
            postgresql_where=_CLAIMED,
        ),
        sa.Index(
            "ix_erasures_by_deadline",
            "dataset_id",
            "deadline",
            "ready_at",
            sqlite_where=_UNCLAIMED,
            postgresql_where=_UNCLAIMED,
        ),
        sa.Index(
            "ix_erasures_by_readiness", "dataset_id", "ready_at", sqlite_where=_UNCLAIMED, postgresql_where=_UNCLAIMED
        ),
        sa.Index(
            "ix_erasures_unconfirmed",
            "dataset_id",
            "deadline",
            sqlite_where=_UNCONFIRMED,
            postgresql_where=_UNCONFIRMED,
        ),
    )


OWED = (RequestModelStatus.PENDING, RequestModelStatus.RUNNING)
"""Statuses of a model in a request that still has to forget."""


class RequestModel(Table):
    """A request's demand on one model: pending, running, completed, cancelled, destroyed (nothing is left of it), or
    nothing_published (it never had a version). `requested_at`: `created_at` of the request."""

    __tablename__ = "request_models"
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"), primary_key=True)
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"), primary_key=True)
    status: Mapped[str]
    run_id: Mapped[str | None] = mapped_column(sa.ForeignKey("runs.id"))
    version: Mapped[int | None]
    certificate_id: Mapped[str | None]
    requested_at: Mapped[datetime.datetime]
    __table_args__ = (
        sa.Index(None, "model_id", "requested_at", "request_id"),
        sa.Index(
            "ix_request_models_owed",
            "model_id",
            "status",
            sqlite_where=sa.text("status IN ('pending', 'running')"),
            postgresql_where=sa.text("status IN ('pending', 'running')"),
        ),
    )


CUT_OFF = sa.text("status IN ('abandoned', 'cancelled', 'failed')")
"""A condition on runs: they did not come to their end."""


class Run(Owned, Table):
    """One attempt, fenced by its own id: only a run that is still `running` can publish, and only one per dataset is.

    `first_step`: how many steps of the model's chain come before its own. `records`: how many records became null since
    the run of the parent version. `audit`: what its lanes showed.
    `repeated`: how many runs before it ended for the same reason, one after the other, and are not kept."""

    __tablename__ = "runs"
    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    status: Mapped[str]
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"))
    model_id: Mapped[str | None] = mapped_column(sa.ForeignKey("models.id"))
    revision: Mapped[int]
    parent_version_id: Mapped[str | None]
    version_id: Mapped[str]
    first_step: Mapped[int] = mapped_column(default=0, server_default="0")
    steps_total: Mapped[int]
    steps_done: Mapped[int]
    records: Mapped[int]
    reason: Mapped[str]
    worker: Mapped[str]
    lease_expires_at: Mapped[datetime.datetime]
    started_at: Mapped[datetime.datetime]
    finished_at: Mapped[datetime.datetime | None]
    error_code: Mapped[str | None]
    audit: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    repeated: Mapped[int] = mapped_column(default=0, server_default="0")
    __table_args__ = (
        sa.Index(
            "uq_runs_running_dataset",
            "dataset_id",
            unique=True,
            sqlite_where=sa.text("status = 'running'"),
            postgresql_where=sa.text("status = 'running'"),
        ),
        sa.Index("ix_runs_cut_off", "dataset_id", "finished_at", sqlite_where=CUT_OFF, postgresql_where=CUT_OFF),
        sa.Index(None, "status"),
        sa.Index(None, "model_id", "started_at", "id"),
        sa.Index(None, "started_at", "id"),
        sa.Index(None, "tenant_id", "started_at", "id"),
    )


class LedgerEntry(Table):
    """Append-only (by trigger); each entry hashes its model's one before. `LedgerLink` chains those of all models."""

    __tablename__ = "ledger_entries"
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str] = mapped_column(sa.Text)
    previous_hash: Mapped[str]
    hash: Mapped[str]


class LedgerLink(Owned, Table):
    """The chain over the ledgers of all models of a tenant: append-only (by trigger). `body`: the entry of which model
    comes next, or that the installation was restored from a backup; each link hashes its predecessor."""

    __tablename__ = "ledger_links"
    tenant_id: Mapped[str] = mapped_column(sa.ForeignKey("tenants.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str] = mapped_column(sa.Text)
    previous_hash: Mapped[str]
    hash: Mapped[str]


class Certificate(Owned, Table):
    __tablename__ = "certificates"
    id: Mapped[str] = mapped_column(primary_key=True)
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"), index=True)
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"))
    version: Mapped[int]
    jws: Mapped[str] = mapped_column(sa.Text)
    issued_at: Mapped[datetime.datetime]
    __table_args__ = (sa.UniqueConstraint("request_id", "model_id"),)


class Export(Owned, Table):
    """Weights that were handed out: where a copy went, nobody here can erase it."""

    __tablename__ = "exports"
    id: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"))
    version: Mapped[int]
    api_key_id: Mapped[str]
    at: Mapped[datetime.datetime]
    __table_args__ = (sa.Index(None, "model_id", "at", "id"),)


class Suppression(Owned, Table):
    """Somebody who asked to be forgotten, and whose rows are refused until they consent again. `dataset_id`: where;
    `*` for wherever."""

    __tablename__ = "suppressions"
    subject_ref: Mapped[str] = mapped_column(primary_key=True)
    dataset_id: Mapped[str] = mapped_column(primary_key=True)
    id: Mapped[str]
    request_id: Mapped[str]
    created_at: Mapped[datetime.datetime]
    __table_args__ = (sa.Index(None, "tenant_id", "created_at", "id"),)


class LeavingCount(Owned, Table):
    """The count of an answer to why people leave, in a week (since its Monday, UTC): all that is kept of it. `odds`:
    how many times likelier a client sends the true answer than each other one."""

    __tablename__ = "leaving_counts"
    tenant_id: Mapped[str] = mapped_column(sa.ForeignKey("tenants.id"), primary_key=True)
    week: Mapped[datetime.datetime] = mapped_column(primary_key=True)
    odds: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    answer: Mapped[str] = mapped_column(primary_key=True)
    num_sent: Mapped[int]


class WebhookDelivery(Owned, Table):
    """One event on its way to one address (`receiver_ref` for short). `status`: pending, delivered, gone (the receiver
    wants no more), dead, or withdrawn (nobody is told; it is about to be purged). `created_at`: since when its receiver
    may know of it. `next_attempt_at` of one that is being sent: when its sender is taken for dead."""

    __tablename__ = "webhook_deliveries"
    id: Mapped[str] = mapped_column(primary_key=True)
    request_id: Mapped[str] = mapped_column(index=True)
    event: Mapped[str]
    receiver_ref: Mapped[str] = mapped_column(Reference)
    host: Mapped[str]
    letter: Mapped[Payload] = mapped_column(Sealed(Payload), nullable=True)
    status: Mapped[str]
    attempts: Mapped[int]
    next_attempt_at: Mapped[datetime.datetime]
    error: Mapped[str | None]
    created_at: Mapped[datetime.datetime]
    ended_at: Mapped[datetime.datetime | None] = mapped_column(index=True)
    __table_args__ = (
        sa.Index(None, "tenant_id", "created_at", "id"),
        sa.Index(None, "tenant_id", "status", "created_at", "id"),
        sa.Index(
            "ix_webhook_deliveries_pending",
            "next_attempt_at",
            sqlite_where=sa.text("status = 'pending'"),
            postgresql_where=sa.text("status = 'pending'"),
        ),
    )


class IdentityIssuer(Owned, Table):
    """An issuer that may state, by a signed JWT, that somebody is who they say."""

    __tablename__ = "identity_issuers"
    id: Mapped[str] = mapped_column(primary_key=True)
    issuer: Mapped[str]
    audience: Mapped[str]
    jwks: Mapped[dict[str, Any]]
    created_at: Mapped[datetime.datetime]
    __table_args__ = (sa.UniqueConstraint("tenant_id", "issuer"),)


class UsedStatement(Table):
    """A signed statement that has been used: it is not believed again."""

    __tablename__ = "used_statements"
    issuer_id: Mapped[str] = mapped_column(sa.ForeignKey("identity_issuers.id"), primary_key=True)
    statement_hash: Mapped[str] = mapped_column(primary_key=True)
    expires_at: Mapped[datetime.datetime] = mapped_column(index=True)


class Agent(Owned, Table):
    """An authorised agent of the Data Rights Protocol, who signs requests with this Ed25519 key. `set_up_at`: when it
    signed the last call for a token that was answered; it cannot be answered again."""

    __tablename__ = "agents"
    id: Mapped[str] = mapped_column(primary_key=True)
    agent_id: Mapped[str]
    name: Mapped[str]
    verify_key: Mapped[str]
    api_key_id: Mapped[str | None] = mapped_column(sa.ForeignKey("api_keys.id"))
    set_up_at: Mapped[datetime.datetime | None]
    created_at: Mapped[datetime.datetime]
    __table_args__ = (sa.UniqueConstraint("agent_id", "tenant_id"), sa.Index(None, "tenant_id", "created_at", "id"))


class AuditEntry(Owned, Table):
    """A deed in the audit log: append-only (by trigger), one chain per tenant; each entry hashes its predecessor."""

    __tablename__ = "audit_entries"
    tenant_id: Mapped[str] = mapped_column(sa.ForeignKey("tenants.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime.datetime]
    actor: Mapped[str]
    action: Mapped[str]
    object_id: Mapped[str]
    detail: Mapped[dict[str, Any]]
    previous_hash: Mapped[str]
    hash: Mapped[str]
    __table_args__ = (sa.Index(None, "tenant_id", "object_id", "sequence"),)


class Checkpoint(Owned, Table):
    """The installation's signature about a chain of a tenant, its `audit` log or its `ledger`: up to `sequence` it
    hashes to `hash`. `number`: in the order in which all of them were signed. Append-only (by trigger)."""

    __tablename__ = "checkpoints"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    log: Mapped[str]
    sequence: Mapped[int]
    hash: Mapped[str]
    jws: Mapped[str] = mapped_column(sa.Text)
    signed_at: Mapped[datetime.datetime]
    __table_args__ = (sa.UniqueConstraint("tenant_id", "log", "sequence"),)
