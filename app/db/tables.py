"""Schema of the core.

Times are timezone-aware UTC, ids are opaque strings with a prefix, and no subject id is stored.
"""

import datetime
import functools
import secrets
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from app.db.sealed import Particulars, Reference, Sealed
from app.errors import MechanismUnreadable, MethodUnsupported
from lethe import sockets
from lethe.contract import problems, sets
from lethe.proof import errors, methods
from lethe.proof.mechanism import Mechanism


class Moment(sa.TypeDecorator[datetime.datetime]):
    """Aware UTC time. SQLite, which has no time zones, stores UTC without a zone."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True
    # The columns of a call store few different times.
    _formatted = staticmethod(functools.lru_cache(maxsize=16)(lambda at: at and at.isoformat(" ", "microseconds")[:26]))

    def process_bind_param(self, value: datetime.datetime | None, dialect: sa.Dialect) -> datetime.datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("Expected an aware time")
        return value if value is None or value.tzinfo is datetime.UTC else value.astimezone(datetime.UTC)

    def bind_processor(self, dialect: sa.Dialect) -> Any:
        """Format times for SQLite without SQLAlchemy, which takes several times as long."""
        if dialect.name != "sqlite":
            return super().bind_processor(dialect)
        return lambda value: self._formatted(self.process_bind_param(value, dialect))

    def process_result_value(self, value: datetime.datetime | None, dialect: sa.Dialect) -> datetime.datetime | None:
        return value and (
            value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value.astimezone(datetime.UTC)
        )


class StorableText(sa.TypeDecorator[str]):
    """Text that PostgreSQL can store and compare. Other text raises `InputInvalid` on both databases."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        if value is not None and ("\0" in value or not (value.isascii() or _encodes(value))):
            raise problems.InputInvalid(
                "A text of the call holds the character NUL or half a surrogate pair; send it without."
            )
        return value

    def bind_processor(self, dialect: sa.Dialect) -> Any:
        """Check texts without SQLAlchemy's wrapper, which takes longer than the check."""
        return functools.partial(self.process_bind_param, dialect=dialect)


def _encodes(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class Table(DeclarativeBase):
    type_annotation_map = {str: StorableText, datetime.datetime: Moment, dict[str, Any]: sa.JSON, list[str]: sa.JSON}  # noqa: RUF012
    metadata = sa.MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        }
    )


def new_id(prefix: str) -> str:
    """Return a fresh opaque id such as `dr_3f9c...` (80 random bits)."""
    return f"{prefix}_{secrets.token_hex(10)}"


class Owned:
    """Object owned by one tenant. Sessions of other tenants cannot see it (`app.db.session`)."""

    tenant_id: Mapped[str] = mapped_column(sa.ForeignKey("tenants.id"))


def partial_index(*columns: str, where: str | sa.TextClause, name: str | None = None, unique: bool = False) -> sa.Index:
    """Return an index over the rows that meet the condition `where`, on both databases."""
    condition = sa.text(where) if isinstance(where, str) else where
    return sa.Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


class InstallationIdentity(Table):
    """Identity of the installation that owns the database: one row, written at the first start. `check_values`: values
    that identify the installation's keys without disclosing anything about them, keyed by key name (`app.key_checks`).
    The key-encryption key has two values during its rotation."""

    __tablename__ = "installation_identity"
    id: Mapped[str] = mapped_column(primary_key=True)
    check_values: Mapped[dict[str, Any]]
    created_at: Mapped[datetime.datetime]


def stored_mechanism(document: dict[str, Any]) -> Mechanism:
    """Parse a mechanism stored in the database. Raises `MechanismUnreadable`, and `MethodUnsupported` if the feature
    that provides its method is not installed."""
    try:
        return methods.read(document)
    except (errors.PrivacyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, errors.PreconditionError) and error.name == "method_installed":
            raise MethodUnsupported(f"{error.detail}.") from error
        cause = error if isinstance(error, errors.PrivacyError) else type(error).__name__
        raise MechanismUnreadable(
            f"A mechanism in the database is not one of this release ({cause}). Run `lethe migrate`; if that does not "
            "help, somebody changed it: restore a backup."
        ) from error


class Tenant(Table):
    """Organisation. `policy`: rules for requests (`lethe.contract.tenants.Policy`). `webhook_generation`: number of the
    current webhook secret. `webhook_rotated_at`: time of the secret's last rotation; null if it was never rotated."""

    __tablename__ = "tenants"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    policy: Mapped[dict[str, Any]]
    webhook_generation: Mapped[int] = mapped_column(default=1)
    webhook_rotated_at: Mapped[datetime.datetime | None]
    created_at: Mapped[datetime.datetime]
    __table_args__ = (sa.Index(None, "created_at", "id"),)


class ApiKey(Owned, Table):
    """API key. `calls_per_minute`: rate limit; null for the installation's limit. `expires_at`: time of expiry; null if
    the key never expires. `line_id`: id of the first key in this line of rotations; null for the first key.
    `own_requests_only`: whether the key sees only requests made by its line."""

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
    """First response to a POST that creates something, returned when the call is repeated. `name`: keyed hash of the
    API key and the Idempotency-Key."""

    __tablename__ = "idempotent_answers"
    name: Mapped[str] = mapped_column(primary_key=True)
    fingerprint: Mapped[str]
    status: Mapped[int]
    location: Mapped[str | None]
    answer: Mapped[dict[str, Any]]
    created_at: Mapped[datetime.datetime] = mapped_column(index=True)


class AuditEntry(Owned, Table):
    """Entry of a tenant's audit log. Append-only (by trigger); each entry hashes its predecessor."""

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
    """The installation's signature over a tenant's chain. Append-only (by trigger). `log`: name of the chain, `audit`
    or `ledger`. `sequence`, `hash`: last row that the signature covers, and its hash. `number`: position in signing
    order across all chains."""

    __tablename__ = "checkpoints"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    log: Mapped[str]
    sequence: Mapped[int]
    hash: Mapped[str]
    jws: Mapped[str] = mapped_column(sa.Text)
    signed_at: Mapped[datetime.datetime]
    __table_args__ = (sa.UniqueConstraint("tenant_id", "log", "sequence"),)


class LedgerEntry(Table):
    """Entry of a model's ledger. Append-only (by trigger); each entry hashes its predecessor. `LedgerLink` chains all
    ledgers."""

    __tablename__ = "ledger_entries"
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str] = mapped_column(sa.Text)
    previous_hash: Mapped[str]
    hash: Mapped[str]


class LedgerLink(Owned, Table):
    """Link in a tenant's chain over the ledgers of all its models. Append-only (by trigger); each link hashes its
    predecessor. `body`: model whose ledger grew by an entry, or notice that the installation was restored from a
    backup."""

    __tablename__ = "ledger_links"
    tenant_id: Mapped[str] = mapped_column(sa.ForeignKey("tenants.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str] = mapped_column(sa.Text)
    previous_hash: Mapped[str]
    hash: Mapped[str]


class Certificate(Owned, Table):
    """Certificate (`jws`) that a model version has forgotten a request's rows."""

    __tablename__ = "certificates"
    id: Mapped[str] = mapped_column(primary_key=True)
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"), index=True)
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"))
    version: Mapped[int]
    jws: Mapped[str] = mapped_column(sa.Text)
    issued_at: Mapped[datetime.datetime]
    __table_args__ = (sa.UniqueConstraint("request_id", "model_id"),)


class Model(Owned, Table):
    """Model of a dataset. `method`: name of its method, as in its mechanism. `wanted`: kind of from-scratch run that is
    due, `learn` or `relearn`; null if none is due. `lost_releases`: steps of published versions that a restored backup
    lacks. `attempts`: number of runs that failed since the last version although their worker survived. `deaths`:
    number of runs whose worker died since then. `max_requests`, `max_wait_seconds`: how many requests may wait to share
    a run, and for how long. `audit_lanes`: number of lanes in each canary test; 0 for no test. `audit_chains`: factor
    by which a requested test multiplies the lanes. `audit_asked_at`: time at which the pending test was requested.
    `quality`: gate with `metric`, `threshold` and `on_breach`; null without a gate. `retired_at`: time after which the
    model neither trains nor forgets. `destroyed_at`: time at which its last weights were destroyed."""

    __tablename__ = "models"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"), index=True)
    evaluation_dataset_id: Mapped[str | None] = mapped_column(sa.ForeignKey("datasets.id"))
    mechanism: Mapped[dict[str, Any]]
    method: Mapped[str] = mapped_column(default="langevin", server_default="langevin")
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
    """Published version of a model. `degraded`: whether it missed the quality gate when last judged. `held`: whether it
    is withheld for that reason."""

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


class Dataset(Owned, Table):
    """Encoded rows of people. `network_id`: public network that computed the features; null without a network.
    `subject_kind`: kind of identifier that names the people; null for subject ids. `classes`: meanings of the labels;
    empty if labels are numbers in the range of `target` (`lethe.encoding.targets`). `revision`: number of batches of
    edits; the rows at revision r exclude everyone erased, and include everyone added, at or before r.
    `references_check`: hash of the dataset's id under the key that pseudonymises people, so that a wrong key is
    detected. `num_rows`: number of rows that are not null. `records_verified_at`: time of the last complete check of
    the records. `records_verified_to`: slot that the current check has reached; null if it has not begun.
    `lost_models`: `mechanism` and `steps` of published versions that a restored backup lacks, keyed by model id.
    `digest`: root of the hash tree over the rows (`app.rows.blocks`). `damaged_at`: time at which the rows were found
    to differ from the digest. `damage`: first finding, with its `kind`, `rows` and `block`. `adaptive_budget`:
    `epsilon` and `delta`, if given (`app.accounting.budgets`). `retired_at`: time after which no model trains on it.
    `destroyed_at`: time at which its rows were destroyed."""

    __tablename__ = "datasets"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    schema: Mapped[dict[str, Any] | None]
    network_id: Mapped[str | None]
    subject_kind: Mapped[str | None]
    classes: Mapped[list[str]]
    target: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    lost_models: Mapped[dict[str, Any]] = mapped_column(default=dict)
    num_features: Mapped[int]
    num_slots: Mapped[int]
    num_rows: Mapped[int] = mapped_column(default=0, server_default="0")
    digest: Mapped[str]
    references_check: Mapped[str | None] = mapped_column(Reference)
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
        partial_index("damaged_at", where="damaged_at IS NOT NULL", name="ix_datasets_damaged"),
    )


class Addition(Owned, Table):
    """Rows added to null slots of an existing dataset. `status`: pending, applied (rows are in their slots), or dropped
    because the dataset was retired or the batch was damaged. `revision`: set when a worker claims the rows. `staged`:
    whether the batch is still stored next to the dataset. `digest`: root of the hash tree over the batch's rows."""

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
        partial_index("dataset_id", where="staged", name="ix_additions_staged"),
    )


class Record(Table):
    """Record of whose row is in a slot, deleted once the row is null so that nothing discloses whose row it was.
    `addition_id`: addition that supplied the row; null if it was uploaded with the dataset. `check_value`: keyed hash
    of person, slot and dataset, which distinguishes damage from absence (`app.rows.records`)."""

    __tablename__ = "records"
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"), primary_key=True)
    slot: Mapped[int] = mapped_column(primary_key=True)
    subject_ref: Mapped[str | None]
    erasure_id: Mapped[str | None] = mapped_column(index=True)
    addition_id: Mapped[str | None]
    check_value: Mapped[bytes | None]
    __table_args__ = (
        sa.Index(None, "subject_ref", "dataset_id"),
        partial_index("addition_id", "slot", where="addition_id IS NOT NULL", name="ix_records_added"),
    )


_OPEN = "status IN ('accepted', 'in_review', 'received', 'running')"
"""Condition for open requests. SQLite compares the condition's text, so the order of the statuses matters."""


class DeletionRequest(Owned, Table):
    """Deletion request.

    `alias_refs`: references of the person's other identifiers. `dataset_ids`: datasets to forget the person in; null
    for all. `deadline`: current deadline, given `due_at`, `extended_due_at` and pauses. `paused_at`: time at which the
    clock was paused. `held_until`: time before which no worker starts; null for no delay. `doubted_at`: time since
    which damaged records may hide the person's rows; they are looked up again before it completes. `source`: list or
    protocol through which it arrived. `maker`: line of the API key that made it; null if unknown. `discreet`: whether
    its maker must not learn if anything is held. `refers_to`: ended request that it cites. `alerted`: last alert sent
    to receivers, `at_risk` or `overdue`. `reported_at`: time at which discreet callers see it completed, fixed at
    acceptance. `ended_at`: its end, after which the tenant's policy lowers `kept` (`app.deletion.retention`).
    `external_ref`: reference of its external id. `assignee`: id of the person in charge. `erased_by`: request about the
    same person that erased the rows while this one was open. `time_zone`: zone in which its days are counted and shown,
    taken from the policy at creation. `resolution`: `kind` of the identifier, and kinds of the references `linked` to
    it by an identity map. `unknown_at`: time since which it is unknown whom the identifier denotes.
    """

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
    assignee: Mapped[str | None]
    erased_by: Mapped[str | None]
    time_zone: Mapped[str]
    resolution: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    unknown_at: Mapped[datetime.datetime | None]
    __table_args__ = (
        sa.Index(None, "tenant_id", "created_at", "id"),
        sa.Index(None, "tenant_id", "status", "created_at", "id"),
        sa.Index(None, "tenant_id", "regulation", "created_at", "id"),
        partial_index("tenant_id", "maker", "created_at", "id", where="maker IS NOT NULL"),
        partial_index("tenant_id", "assignee", "created_at", "id", where="assignee IS NOT NULL"),
        sa.Index(None, "subject_ref", "created_at", "id"),
        partial_index("tenant_id", "external_ref", "created_at", "id", where="external_ref IS NOT NULL"),
        partial_index("tenant_id", "source", "created_at", "id", where="source IS NOT NULL"),
        partial_index(
            "tenant_id",
            "reported_at",
            "status",
            "submitted_at",
            "deadline",
            where="reported_at IS NOT NULL",
            name="ix_deletion_requests_reported",
        ),
        sa.Index(None, "tenant_id", "submitted_at", "id"),
        partial_index(
            "tenant_id",
            "completed_at",
            "submitted_at",
            "deadline",
            where="completed_at IS NOT NULL",
            name="ix_deletion_requests_completed",
        ),
        partial_index("kept", "tenant_id", "ended_at", where="ended_at IS NOT NULL"),
        partial_index("status", "held_until", where="held_until IS NOT NULL", name="ix_deletion_requests_held"),
        partial_index("status", "created_at", where="doubted_at IS NOT NULL", name="ix_deletion_requests_doubted"),
        partial_index("status", "created_at", where="unknown_at IS NOT NULL", name="ix_deletion_requests_unknown"),
        partial_index(
            "status",
            "tenant_id",
            "regulation",
            "deadline",
            "created_at",
            "paused_at",
            "held_until",
            where=_OPEN,
            name="ix_deletion_requests_open",
        ),
    )

    @property
    def subject_refs(self) -> tuple[str, ...]:
        """References of all identifiers of the person, including those linked by an identity map."""
        return (self.subject_ref, *(self.alias_refs or ()), *(self.resolution or {}).get("linked", ()))


class RequestAlias(Table):
    """Additional identifier of a request: an element of its `subject_refs`, kept in a separate row for indexing."""

    __tablename__ = "request_aliases"
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"), primary_key=True)
    subject_ref: Mapped[str] = mapped_column(primary_key=True, index=True)


class RequestEvent(Table):
    """Event in a request's history: its `kind`, and `facts` that the kind does not imply."""

    __tablename__ = "request_events"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"), index=True)
    status: Mapped[str]
    actor: Mapped[str]
    at: Mapped[datetime.datetime]
    kind: Mapped[str]
    facts: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))


class Suppression(Owned, Table):
    """Suppression of a forgotten person, whose rows are refused until they consent again. `dataset_id`: dataset that
    refuses the rows; `*` for all datasets."""

    __tablename__ = "suppressions"
    subject_ref: Mapped[str] = mapped_column(primary_key=True)
    dataset_id: Mapped[str] = mapped_column(primary_key=True)
    id: Mapped[str]
    request_id: Mapped[str]
    created_at: Mapped[datetime.datetime]
    __table_args__ = (sa.Index(None, "tenant_id", "created_at", "id"),)


class Erasure(Table):
    """Erasure of one request's rows in one dataset. `revision`, `num_records`: set when a worker claims the rows, which
    is irreversible. `num_claimed`: number of these rows that no other request about the person had claimed.
    `nulled_at`: time at which the rows were confirmed to be null and unrecoverable.

    Triggers copy `deadline` from the request, and derive `ready_at`, the time from which a worker may claim the rows
    (null while the request's status forbids it). The queue needs both here, because an index cannot span two tables.
    """

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
        partial_index(
            "dataset_id", "revision", "deadline", "ready_at", where="revision IS NOT NULL", name="ix_erasures_claimed"
        ),
        partial_index(
            "dataset_id",
            "deadline",
            "ready_at",
            where="revision IS NULL AND ready_at IS NOT NULL",
            name="ix_erasures_by_deadline",
        ),
        partial_index(
            "dataset_id", "ready_at", where="revision IS NULL AND ready_at IS NOT NULL", name="ix_erasures_by_readiness"
        ),
        partial_index(
            "dataset_id",
            "deadline",
            where="num_records IS NOT NULL AND nulled_at IS NULL",
            name="ix_erasures_unconfirmed",
        ),
    )


OWED = (sets.RequestModelStatus.PENDING, sets.RequestModelStatus.RUNNING)
"""Statuses of models that still have to forget a request's rows."""


class RequestModel(Table):
    """A request's demand on one model. `status`: pending, running, completed, cancelled, destroyed (the model has no
    weights left), or nothing_published (it never had a version). `requested_at`: `created_at` of the request."""

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
        partial_index("model_id", "status", where="status IN ('pending', 'running')", name="ix_request_models_owed"),
    )


CUT_OFF = sa.text("status IN ('abandoned', 'cancelled', 'failed')")
"""Condition for runs that did not complete."""


class Run(Owned, Table):
    """Run: one attempt, fenced by its id. Only a `running` run can publish, and each dataset has at most one.
    `first_step`: number of steps in the model's chain before the run. `records`: number of records that became null
    since the parent version's run. `reason`, `reason_facts`: reason for its plan (`PlanReason`). `audit`: result of its
    canary test. `repeated`: number of runs just before it that ended for the same reason and were not stored."""

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
    reason_facts: Mapped[dict[str, int]] = mapped_column(sa.JSON, default=dict)
    worker: Mapped[str]
    lease_expires_at: Mapped[datetime.datetime]
    started_at: Mapped[datetime.datetime]
    finished_at: Mapped[datetime.datetime | None]
    error_code: Mapped[str | None]
    audit: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    repeated: Mapped[int] = mapped_column(default=0, server_default="0")
    __table_args__ = (
        partial_index("dataset_id", where="status = 'running'", name="uq_runs_running_dataset", unique=True),
        partial_index("dataset_id", "finished_at", where=CUT_OFF, name="ix_runs_cut_off"),
        sa.Index(None, "status"),
        sa.Index(None, "model_id", "started_at", "id"),
        sa.Index(None, "started_at", "id"),
        sa.Index(None, "tenant_id", "started_at", "id"),
    )


# The tables of features register themselves.
sockets.modules("app.features", "tables")
