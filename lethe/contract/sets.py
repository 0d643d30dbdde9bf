"""The closed sets of the contract. A gateway refuses what is in none of them; the SDK reads what a newer one adds."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Self

_newer: ContextVar[bool] = ContextVar("lethe_newer_members", default=False)


@contextmanager
def newer_members() -> Iterator[None]:
    """Read, while the block lasts, members that are not known here: a newer gateway may say more."""
    token = _newer.set(True)
    try:
        yield
    finally:
        _newer.reset(token)


class ClosedSet(StrEnum):
    """Texts of which no others are taken."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not (_newer.get() and isinstance(value, str)):
            return None
        newer = str.__new__(cls, value)
        newer._name_, newer._value_ = value.upper(), value
        return newer


class Scope(ClosedSet):
    """What an API key may do."""

    REQUESTS_READ = "requests:read"
    REQUESTS_WRITE = "requests:write"
    REQUESTS_REVIEW = "requests:review"
    """Decide about requests: approve, reject, extend, pause."""
    MODELS_READ = "models:read"
    MODELS_WRITE = "models:write"
    ACCOUNTING_READ = "accounting:read"
    ADMIN = "admin"
    """Everything in a tenant, and its keys."""
    AGENT = "agent"
    """The permission of an authorised agent by the Data Rights Protocol, about its own requests."""
    METRICS_READ = "metrics:read"
    """The state of the installation: counts over all tenants, by which one sees whether there is work to do."""
    OPERATOR = "operator"
    """The tenants of the installation and its metrics, and nothing in them."""


class Role(ClosedSet):
    """A person's role: the scopes that they have, by `lethe.contract.users.SCOPES_OF`."""

    VIEWER = "viewer"
    OFFICER = "officer"
    """Answers for requests: makes them and decides about them."""
    ENGINEER = "engineer"
    ADMINISTRATOR = "administrator"
    OPERATOR = "operator"
    """Above the tenants: makes them, and sees nothing in them."""


class RunKind(ClosedSet):
    LEARN = "learn"
    UNLEARN = "unlearn"
    RELEARN = "relearn"
    ERASE = "erase"
    """Rows of a dataset that no model carries."""
    ADD = "add"
    """Rows came, and no model is to learn them."""
    AUDIT = "audit"
    """Asked for: canaries alone are learned and forgotten."""
    REHEARSAL = "rehearsal"
    """Asked for: people drawn at random are forgotten on a scratch copy, which is destroyed."""


class RunStatus(ClosedSet):
    RUNNING = "running"
    PUBLISHED = "published"
    FAILED = "failed"
    ABANDONED = "abandoned"
    CANCELLED = "cancelled"


class RehearsalStatus(ClosedSet):
    WAITING = "waiting"
    RUNNING = "running"
    COMPLETED = "completed"
    OUTDATED = "outdated"
    """Completed, and its report is gone: somebody was erased since whose row may have been measured."""
    FAILED = "failed"
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
    """Something that happened to a request. The first seven are named after the status that they lead to."""

    RECEIVED = "received"
    IN_REVIEW = "in_review"
    ACCEPTED = "accepted"
    RUNNING = "running"
    COMPLETED = "completed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    NOTHING_HELD = "nothing_held"
    """Completed, because nothing is held about the person."""
    HANDED_BACK = "handed_back"
    """Accepted again: the run that served it did not end well. Told twice at most."""
    EXTENDED = "extended"
    PAUSED = "paused"
    RESUMED = "resumed"
    AT_RISK = "at_risk"
    OVERDUE = "overdue"
    ROWS_ERASED = "rows_erased"
    NOTED = "noted"
    """Recorded in words alone, by a release that knew no kinds."""


class AttachmentKind(ClosedSet):
    """Kind of a file that is attached to a request, by the end of its name."""

    PDF = "pdf"
    PNG = "png"
    JPEG = "jpeg"
    TXT = "txt"
    EML = "eml"


class ReplyLanguage(ClosedSet):
    """Language of a reply to a person (ISO 639-1)."""

    EN = "en"
    DE = "de"
    FR = "fr"
    ES = "es"


class ReplyFormat(ClosedSet):
    TEXT = "text"
    PDF = "pdf"


class RequestModelStatus(ClosedSet):
    """Progress of a request with one model."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    DESTROYED = "destroyed"
    """Nothing is left of the model."""
    NOTHING_PUBLISHED = "nothing_published"
    """The model never had a version."""


class ModelStatus(ClosedSet):
    LEARNING = "learning"
    LIVE = "live"
    UNLEARNING = "unlearning"
    """Answered of a live one while a run forgets requests, and never stored."""
    RELEARNING = "relearning"
    """Answered of a live one while it is learned again from scratch, on more rows perhaps, and never stored."""
    TESTING = "testing"
    """Answered of a live one while a canary test or a rehearsal of it is under way, and never stored."""
    DEGRADED = "degraded"
    """Answered of a live one whose version misses its quality gate, and never stored."""
    HELD = "held"
    """Answered of a live one whose version is held back from serving, and never stored."""
    FAILED = "failed"
    CANCELLED = "cancelled"
    RETIRED = "retired"


class WaitReason(ClosedSet):
    """Reason for which no run of a model has taken up a request."""

    IN_REVIEW = "in_review"
    """An officer has not decided."""
    GRACE = "grace"
    """It may still be cancelled."""
    BATCH = "batch"
    """The model lets requests wait for each other."""
    QUEUED = "queued"
    """A worker takes it next."""
    RUN_UNDER_WAY = "run_under_way"
    """Another run on the dataset has to end first."""
    DELAYED = "delayed"
    """Runs came to nothing, and are tried again later."""
    BUDGET_SPENT = "budget_spent"
    """The adaptive budget of the dataset has no room for another version."""
    DAMAGED = "damaged"
    """Rows of the dataset are damaged, and nothing runs on it."""


class QueueRule(ClosedSet):
    """Rule by which a dataset is due for a run."""

    REQUESTED = "requested"
    """Requests were accepted that no run has taken up."""
    UNCONFIRMED = "unconfirmed"
    """Rows were taken up by a run and are not known to be null."""
    BEHIND = "behind"
    """The live version of a model carries people whose rows are null."""
    LEARN = "learn"
    """A model is to be learned, or learned again."""
    ADD = "add"
    """Rows were added and are not in their slots."""
    LEARN_ADDED = "learn_added"
    """The live version of a model lacks rows that were added."""
    AUDIT = "audit"
    """A canary test was asked for."""
    REHEARSAL = "rehearsal"
    """A rehearsal was asked for."""


class VersionStatus(ClosedSet):
    LIVE = "live"
    RETIRED = "retired"
    DESTROYED = "destroyed"


class Metric(ClosedSet):
    """A number that is measured on evaluation data, and that a quality gate may go by."""

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
    """The fate of a version that misses its gate. Either way it forgets, and replaces the one before."""

    PUBLISH_DEGRADED = "publish_degraded"
    HOLD = "hold"
    """It is kept from serving until somebody releases it, or a later version meets the gate."""


class AdditionStatus(ClosedSet):
    PENDING = "pending"
    APPLIED = "applied"
    """Its rows are in their slots."""
    DROPPED = "dropped"
    """Its dataset was retired before."""


class Outcome(ClosedSet):
    """The outcome of a completed request. In all but the second the rows are erased and every model met its target."""

    FORGOTTEN = "forgotten"
    NOTHING_HELD = "nothing_held"
    TARGET_WIDENED = "target_widened"
    """The target of a model at least is weaker than the default bounds, so that meeting it is not called forgotten."""


class Regulation(ClosedSet):
    """Those that every tenant has; a tenant's policy may name more."""

    GDPR = "gdpr"
    CCPA = "ccpa"
    OTHER = "other"


class ClockState(ClosedSet):
    ON_TIME = "on_time"
    AT_RISK = "at_risk"
    OVERDUE = "overdue"
    PAUSED = "paused"
    ENDED = "ended"


class RemedyKind(ClosedSet):
    """Changes that can raise the quality of a model."""

    RELEARN = "relearn"
    """The same model from scratch."""
    MORE_SLOTS = "more_slots"
    L2 = "l2"


class RejectionGround(ClosedSet):
    """Why somebody is not forgotten: GDPR Art. 17(3), or Art. 12."""

    FREE_EXPRESSION = "free_expression"
    LEGAL_OBLIGATION = "legal_obligation"
    PUBLIC_HEALTH = "public_health"
    ARCHIVING_RESEARCH = "archiving_research"
    LEGAL_CLAIMS = "legal_claims"
    MANIFESTLY_UNFOUNDED = "manifestly_unfounded"  # Art. 12(5)
    IDENTITY_NOT_ESTABLISHED = "identity_not_established"  # Art. 12(2), (6)


class DamageKind(ClosedSet):
    """What of the rows does not open, or is not what the database names."""

    MANIFEST = "manifest"
    MANIFEST_MISSING = "manifest_missing"
    BLOCK = "block"
    BLOCK_MISSING = "block_missing"
    KEY = "key"
    KEY_MISSING = "key_missing"
    FIRST_LAYOUT = "first_layout"
    """Rows of a release before, which were not those on record when they were to be sealed."""
    RECORD = "record"
    """The record of whose row is in which slot: a line of the database does not match its own check value."""


class ServingRefusal(ClosedSet):
    NOT_LIVE = "not_live"
    HELD = "held"
    """It misses its quality gate, and nobody has released it."""
    FORGETTING_OVERDUE = "forgetting_overdue"
    SUPERSEDED = "superseded"
    WEIGHTS_DESTROYED = "weights_destroyed"


class LeavingReason(ClosedSet):
    """A closed list, the same for every tenant: who randomised among other answers would be estimated wrongly."""

    PRIVACY = "privacy"
    NOT_USING = "not_using"
    COST = "cost"
    SWITCHED = "switched"
    OTHER = "other"


class WorkerState(ClosedSet):
    ALIVE = "alive"
    SILENT = "silent"
    """None gave a sign of life for a minute."""
    FAILING = "failing"
    """None gets through a run."""


class DeliveryStatus(ClosedSet):
    PENDING = "pending"
    DELIVERED = "delivered"
    GONE = "gone"
    DEAD = "dead"


class WebhookEvent(ClosedSet):
    ACCEPTED = "deletion_request.accepted"
    IN_REVIEW = "deletion_request.in_review"
    REJECTED = "deletion_request.rejected"
    CANCELLED = "deletion_request.cancelled"
    COMPLETED = "deletion_request.completed"
    EXTENDED = "deletion_request.extended"
    AT_RISK = "deletion_request.at_risk"
    OVERDUE = "deletion_request.overdue"
