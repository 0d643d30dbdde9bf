"""Closed sets of the contract. A gateway refuses other values; the SDK also reads members that a newer gateway adds."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Self

_newer: ContextVar[bool] = ContextVar("lethe_newer_members", default=False)


@contextmanager
def newer_members() -> Iterator[None]:
    """Accept unknown members while the block lasts: a newer gateway may have added some."""
    token = _newer.set(True)
    try:
        yield
    finally:
        _newer.reset(token)


class ClosedSet(StrEnum):
    """Enumeration of strings that refuses all others."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not (_newer.get() and isinstance(value, str)):
            return None
        newer = str.__new__(cls, value)
        newer._name_, newer._value_ = value.upper(), value
        return newer


class Scope(ClosedSet):
    """Permission of an API key."""

    REQUESTS_READ = "requests:read"
    REQUESTS_WRITE = "requests:write"
    REQUESTS_REVIEW = "requests:review"
    """Decide about requests: approve, reject, extend and pause them."""
    MODELS_READ = "models:read"
    MODELS_WRITE = "models:write"
    ACCOUNTING_READ = "accounting:read"
    ADMIN = "admin"
    """Do everything in a tenant, and manage its keys."""
    AGENT = "agent"
    """Act as an authorised agent of the Data Rights Protocol, on the agent's own requests."""
    METRICS_READ = "metrics:read"
    """Read the state of the installation: counts over all tenants, which reveal whether there is work to do."""
    OPERATOR = "operator"
    """Manage the tenants of the installation and read its metrics, without access to their contents."""


class RunKind(ClosedSet):
    LEARN = "learn"
    UNLEARN = "unlearn"
    RELEARN = "relearn"
    ERASE = "erase"
    """Erase rows of a dataset that no model carries."""
    ADD = "add"
    """Write rows that no model is to learn."""
    AUDIT = "audit"
    """Canary test on request: canaries alone are learned and forgotten."""
    REHEARSAL = "rehearsal"
    """Rehearsal on request: people drawn at random are forgotten on a scratch copy, which is destroyed."""


class RunStatus(ClosedSet):
    RUNNING = "running"
    PUBLISHED = "published"
    FAILED = "failed"
    ABANDONED = "abandoned"
    CANCELLED = "cancelled"


class RequestStatus(ClosedSet):
    RECEIVED = "received"
    IN_REVIEW = "in_review"
    ACCEPTED = "accepted"
    RUNNING = "running"
    COMPLETED = "completed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"


class EventKind(ClosedSet):
    """Kind of an event of a request. The first seven are named after the status that they lead to."""

    RECEIVED = "received"
    IN_REVIEW = "in_review"
    ACCEPTED = "accepted"
    RUNNING = "running"
    COMPLETED = "completed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    NOTHING_HELD = "nothing_held"
    """Completed because nothing is held about the person."""
    HANDED_BACK = "handed_back"
    """Accepted again because its run did not succeed. Recorded twice at most."""
    EXTENDED = "extended"
    PAUSED = "paused"
    RESUMED = "resumed"
    AT_RISK = "at_risk"
    OVERDUE = "overdue"
    ROWS_ERASED = "rows_erased"


class RequestModelStatus(ClosedSet):
    """Progress of a request with one model."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    DESTROYED = "destroyed"
    """The weights of the model were destroyed."""
    NOTHING_PUBLISHED = "nothing_published"
    """The model never had a version."""


class ModelStatus(ClosedSet):
    LEARNING = "learning"
    LIVE = "live"
    UNLEARNING = "unlearning"
    """Live, while a run forgets requests. Only in answers, never stored."""
    RELEARNING = "relearning"
    """Live, while it is relearned from scratch, possibly on more rows. Only in answers, never stored."""
    TESTING = "testing"
    """Live, while a canary test or a rehearsal of it is running. Only in answers, never stored."""
    DEGRADED = "degraded"
    """Live, with a version that misses its quality gate. Only in answers, never stored."""
    HELD = "held"
    """Live, with a version that is held back from serving. Only in answers, never stored."""
    FAILED = "failed"
    CANCELLED = "cancelled"
    RETIRED = "retired"


class WaitReason(ClosedSet):
    """Reason why no run of a model has claimed a request."""

    IN_REVIEW = "in_review"
    """The request is not decided yet."""
    GRACE = "grace"
    """The request is in its grace period."""
    BATCH = "batch"
    """The model collects requests for a batch."""
    QUEUED = "queued"
    """A worker takes the request next."""
    RUN_UNDER_WAY = "run_under_way"
    """Another run on the dataset must end first."""
    DELAYED = "delayed"
    """Runs failed and are retried later."""
    BUDGET_SPENT = "budget_spent"
    """The adaptive budget of the dataset has no room for another version."""
    DAMAGED = "damaged"
    """Rows of the dataset are damaged, which stops all its runs."""


class QueueRule(ClosedSet):
    """Rule by which a dataset is due for a run."""

    REQUESTED = "requested"
    """Accepted requests wait for a run."""
    UNCONFIRMED = "unconfirmed"
    """Rows claimed by a run are not confirmed to be null."""
    BEHIND = "behind"
    """The live version of a model carries people whose rows are null."""
    LEARN = "learn"
    """A model is to be learned or relearned."""
    ADD = "add"
    """Added rows are not in their slots yet."""
    LEARN_ADDED = "learn_added"
    """The live version of a model lacks added rows."""
    AUDIT = "audit"
    """A canary test was requested."""
    REHEARSAL = "rehearsal"
    """A rehearsal was requested."""


class VersionStatus(ClosedSet):
    LIVE = "live"
    RETIRED = "retired"
    DESTROYED = "destroyed"


class Metric(ClosedSet):
    """Metric measured on evaluation data, by which a quality gate can judge."""

    ACCURACY = "accuracy"
    AUC = "auc"
    LOG_LOSS = "log_loss"
    CALIBRATION_ERROR = "calibration_error"
    LABEL_ACCURACY = "label_accuracy"
    EXACT_MATCH = "exact_match"
    R_SQUARED = "r_squared"
    MEAN_ABSOLUTE_ERROR = "mean_absolute_error"
    MEAN_POISSON_DEVIANCE = "mean_poisson_deviance"

    @property
    def less_is_better(self) -> bool:
        return self in (
            Metric.LOG_LOSS,
            Metric.CALIBRATION_ERROR,
            Metric.MEAN_ABSOLUTE_ERROR,
            Metric.MEAN_POISSON_DEVIANCE,
        )


class OnBreach(ClosedSet):
    """Treatment of a version that misses its gate. In both cases it forgets, and replaces the previous version."""

    PUBLISH_DEGRADED = "publish_degraded"
    HOLD = "hold"
    """The version is kept from serving until it is released, or a later version passes."""


class AdditionStatus(ClosedSet):
    PENDING = "pending"
    APPLIED = "applied"
    """The rows are in their slots."""
    DROPPED = "dropped"
    """The dataset was retired or the rows were damaged before."""


class Outcome(ClosedSet):
    """Outcome of a completed request. Unless nothing was held, rows are erased and every model met its target."""

    FORGOTTEN = "forgotten"
    NOTHING_HELD = "nothing_held"
    ERASED_ALREADY = "erased_already"
    """Another request of the person erased the rows after this one was submitted."""
    TARGET_WIDENED = "target_widened"
    """The target of at least one model exceeds the default bounds, so meeting it does not count as forgetting."""


class Regulation(ClosedSet):
    """Regulations that every tenant has; a tenant's policy may name more."""

    GDPR = "gdpr"
    CCPA = "ccpa"
    OTHER = "other"


class ClockState(ClosedSet):
    ON_TIME = "on_time"
    AT_RISK = "at_risk"
    OVERDUE = "overdue"
    PAUSED = "paused"
    ENDED = "ended"


class RejectionGround(ClosedSet):
    """Ground of a rejection under GDPR Art. 17(3) or Art. 12."""

    FREE_EXPRESSION = "free_expression"
    LEGAL_OBLIGATION = "legal_obligation"
    PUBLIC_HEALTH = "public_health"
    ARCHIVING_RESEARCH = "archiving_research"
    LEGAL_CLAIMS = "legal_claims"
    MANIFESTLY_UNFOUNDED = "manifestly_unfounded"
    """GDPR Art. 12(5)."""
    IDENTITY_NOT_ESTABLISHED = "identity_not_established"
    """GDPR Art. 12(2) and (6)."""


class DamageKind(ClosedSet):
    """Stored part of the rows that cannot be opened, or differs from the database."""

    MANIFEST = "manifest"
    MANIFEST_MISSING = "manifest_missing"
    BLOCK = "block"
    BLOCK_MISSING = "block_missing"
    KEY = "key"
    KEY_MISSING = "key_missing"
    RECORD = "record"
    """Record of the person of a slot: the row in the database does not match its check value."""


class WorkerState(ClosedSet):
    ALIVE = "alive"
    SILENT = "silent"
    """No worker has sent a heartbeat for a minute."""
    FAILING = "failing"
    """No worker completes a run."""


class ErasureGround(ClosedSet):
    """Ground of an erasure under GDPR Art. 17(1)."""

    NOT_NECESSARY = "not_necessary"
    CONSENT_WITHDRAWN = "consent_withdrawn"
    OBJECTION = "objection"
    UNLAWFUL_PROCESSING = "unlawful_processing"
    LEGAL_OBLIGATION = "legal_obligation"
    CHILD_SERVICES = "child_services"


class SubjectRule(ClosedSet):
    """Rule by which two subject IDs denote the same person (`app.access.subjects`)."""

    EXACT = "exact"
    """Equal byte for byte."""
    TEXT = "text"
    """Equal in Unicode's NFC, without surrounding white space."""
    CASELESS = "caseless"
    """As `text`, in any case."""
    EMAIL_DOMAIN = "email_domain"
    """As `text`, in any case after the last @."""
    EMAIL = "email"
    """As `text`, in any case for an ID with an @."""


class RequestOrder(ClosedSet):
    NEWEST = "newest"
    OLDEST = "oldest"
    DEADLINE = "deadline"
    """Open requests only, earliest deadline first."""
    LATEST_DEADLINE = "latest_deadline"
    """Open requests only, latest deadline first."""
    LAST_COMPLETED = "last_completed"
    """Completed requests only, latest first."""
    FIRST_COMPLETED = "first_completed"
    """Completed requests only, earliest first."""


class Decision(ClosedSet):
    """Decision about one or many deletion requests."""

    APPROVE = "approve"
    REJECT = "reject"


class RunOrder(ClosedSet):
    NEWEST = "newest"
    OLDEST = "oldest"


class ModelOrder(ClosedSet):
    NEWEST = "newest"
    OLDEST = "oldest"
    RISK = "risk"
    """Models in service only, most urgent first."""


class ModelDanger(ClosedSet):
    """Reason why a model in service needs attention, as counted by the overview."""

    WAITING = "waiting"
    FAILED = "failed"
    AUDIT_REFUSED = "audit_refused"
    DEGRADED = "degraded"
    HELD = "held"
