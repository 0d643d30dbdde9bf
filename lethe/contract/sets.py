"""Closed sets of the contract. A gateway refuses other values; the SDK also accepts members added by newer gateways."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Self

_newer: ContextVar[bool] = ContextVar("lethe_newer_members", default=False)


@contextmanager
def newer_members() -> Iterator[None]:
    """Accept unknown values of closed sets inside the `with` block, because a newer gateway may have added them."""
    token = _newer.set(True)
    try:
        yield
    finally:
        _newer.reset(token)


class ClosedSet(StrEnum):
    """Enumeration of strings that refuses all other values."""

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
    """Decide on requests: approve, reject, extend or pause them."""
    MODELS_READ = "models:read"
    MODELS_WRITE = "models:write"
    ACCOUNTING_READ = "accounting:read"
    ADMIN = "admin"
    """Do everything within a tenant, including managing its keys."""
    AGENT = "agent"
    """Act as an authorised agent of the Data Rights Protocol, with access to the agent's own requests."""
    METRICS_READ = "metrics:read"
    """Read the installation's state: counts over all tenants, which reveal whether there is any work."""
    OPERATOR = "operator"
    """Manage the installation's tenants and read its metrics, without access to what the tenants store."""


class RunKind(ClosedSet):
    LEARN = "learn"
    UNLEARN = "unlearn"
    RELEARN = "relearn"
    ERASE = "erase"
    """Erase a dataset's rows while none of its models is due."""
    ADD = "add"
    """Write a dataset's added rows while none of its models is due."""
    AUDIT = "audit"
    """Canary test on request: the run trains on canaries only, and forgets them."""
    REHEARSAL = "rehearsal"
    """Rehearsal on request: people drawn at random are forgotten in a scratch copy, which is then destroyed."""


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
    """Kind of event in a request's history. The first seven are named after the status that they lead to."""

    RECEIVED = "received"
    IN_REVIEW = "in_review"
    ACCEPTED = "accepted"
    RUNNING = "running"
    COMPLETED = "completed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    NOTHING_HELD = "nothing_held"
    """Completed because no data is held about the person."""
    HANDED_BACK = "handed_back"
    """Accepted again because its run did not succeed. Recorded at most twice."""
    EXTENDED = "extended"
    PAUSED = "paused"
    RESUMED = "resumed"
    AT_RISK = "at_risk"
    OVERDUE = "overdue"
    ROWS_ERASED = "rows_erased"


class RequestModelStatus(ClosedSet):
    """A request's progress on one model."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    DESTROYED = "destroyed"
    """The model's weights were destroyed."""
    NOTHING_PUBLISHED = "nothing_published"
    """The model never had a version."""


class ModelStatus(ClosedSet):
    LEARNING = "learning"
    LIVE = "live"
    UNLEARNING = "unlearning"
    """Live while a run processes deletion requests. Only in responses, never stored."""
    RELEARNING = "relearning"
    """Live while it is retrained from scratch, possibly on more rows. Only in responses, never stored."""
    TESTING = "testing"
    """Live while a canary test or a rehearsal of the model is running. Only in responses, never stored."""
    DEGRADED = "degraded"
    """Live, with a version that misses its quality gate. Only in responses, never stored."""
    HELD = "held"
    """Live, with a version that is held back from serving. Only in responses, never stored."""
    FAILED = "failed"
    CANCELLED = "cancelled"
    RETIRED = "retired"


class WaitReason(ClosedSet):
    """Reason why no run of the model has claimed the request yet."""

    IN_REVIEW = "in_review"
    """The request has not been decided yet."""
    GRACE = "grace"
    """The request is in its grace period."""
    BATCH = "batch"
    """The model is collecting requests for a batch."""
    QUEUED = "queued"
    """The request is next in line for a worker."""
    RUN_UNDER_WAY = "run_under_way"
    """Another run on the dataset has to end first."""
    DELAYED = "delayed"
    """Runs have failed and will be retried later."""
    BUDGET_SPENT = "budget_spent"
    """The dataset's adaptive budget has no room for another version."""
    DAMAGED = "damaged"
    """The dataset has damaged rows, which stops all its runs."""


class QueueRule(ClosedSet):
    """Rule that makes a dataset due for a run."""

    REQUESTED = "requested"
    """Accepted requests are waiting for a run."""
    UNCONFIRMED = "unconfirmed"
    """Rows claimed by a run have not been confirmed to be null."""
    BEHIND = "behind"
    """A model's live version was trained on people whose rows are null by now."""
    LEARN = "learn"
    """A model has to be trained or retrained."""
    ADD = "add"
    """Added rows have not been written to their slots yet."""
    LEARN_ADDED = "learn_added"
    """A model's live version was trained without the added rows."""
    AUDIT = "audit"
    """A canary test was requested."""
    REHEARSAL = "rehearsal"
    """A rehearsal was requested."""


class VersionStatus(ClosedSet):
    LIVE = "live"
    RETIRED = "retired"
    DESTROYED = "destroyed"


class Metric(ClosedSet):
    """Metric that is measured on evaluation data and can be used by a quality gate."""

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
    """Action taken if a version fails its gate. Either way, it replaces the previous one and forgets the records."""

    PUBLISH_DEGRADED = "publish_degraded"
    HOLD = "hold"
    """The version is not served until it is released or a later version passes the gate."""


class AdditionStatus(ClosedSet):
    PENDING = "pending"
    APPLIED = "applied"
    """The rows are in their slots."""
    DROPPED = "dropped"
    """The dataset was retired, or the rows were damaged, before they could be added."""


class Outcome(ClosedSet):
    """Outcome of a completed request. Unless no data was held, the rows were erased and every model met its target."""

    FORGOTTEN = "forgotten"
    NOTHING_HELD = "nothing_held"
    ERASED_ALREADY = "erased_already"
    """After this request was submitted, a different request about the same person erased the rows."""
    TARGET_WIDENED = "target_widened"
    """The target of at least one model exceeds the default bounds, so meeting it does not count as forgetting."""


class Regulation(ClosedSet):
    """Regulation available to every tenant; a tenant's policy can add more."""

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
    """Ground for rejecting a request under GDPR Art. 17(3) or Art. 12."""

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
    """Part of a dataset's stored rows that cannot be opened or does not match the database."""

    MANIFEST = "manifest"
    MANIFEST_MISSING = "manifest_missing"
    BLOCK = "block"
    BLOCK_MISSING = "block_missing"
    KEY = "key"
    KEY_MISSING = "key_missing"
    RECORD = "record"
    """A person's record for a slot: the database row does not match its check value."""


class WorkerState(ClosedSet):
    ALIVE = "alive"
    SILENT = "silent"
    """No worker has sent a heartbeat for a minute."""
    FAILING = "failing"
    """No worker is completing any runs."""


class ErasureGround(ClosedSet):
    """Ground for an erasure under GDPR Art. 17(1)."""

    NOT_NECESSARY = "not_necessary"
    CONSENT_WITHDRAWN = "consent_withdrawn"
    OBJECTION = "objection"
    UNLAWFUL_PROCESSING = "unlawful_processing"
    LEGAL_OBLIGATION = "legal_obligation"
    CHILD_SERVICES = "child_services"


class SubjectRule(ClosedSet):
    """Rule that decides whether two subject IDs denote the same person (`app.access.subjects`)."""

    EXACT = "exact"
    """The IDs are identical byte for byte."""
    TEXT = "text"
    """The IDs are equal after NFC normalisation and removal of surrounding white space."""
    CASELESS = "caseless"
    """Like `text`, but ignoring case."""
    EMAIL_DOMAIN = "email_domain"
    """Like `text`, but ignoring case after the last `@`."""
    EMAIL = "email"
    """Like `text`, but ignoring case if the ID contains an `@`."""


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
    """Decision on one or more deletion requests."""

    APPROVE = "approve"
    REJECT = "reject"


class RunOrder(ClosedSet):
    NEWEST = "newest"
    OLDEST = "oldest"


class ModelOrder(ClosedSet):
    NEWEST = "newest"
    OLDEST = "oldest"
    RISK = "risk"
    """Only models in service, most urgent first."""


class ModelDanger(ClosedSet):
    """Reason why a model in service needs attention, as counted in the overview."""

    WAITING = "waiting"
    FAILED = "failed"
    AUDIT_REFUSED = "audit_refused"
    DEGRADED = "degraded"
    HELD = "held"
