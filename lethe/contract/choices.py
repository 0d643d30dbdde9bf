"""The closed sets of which callers choose: grounds, rules, decisions, orders of lists."""

from lethe.contract.sets import ClosedSet


class ErasureGround(ClosedSet):
    """The ground on which somebody is forgotten: GDPR Art. 17(1)."""

    NOT_NECESSARY = "not_necessary"
    CONSENT_WITHDRAWN = "consent_withdrawn"
    OBJECTION = "objection"
    UNLAWFUL_PROCESSING = "unlawful_processing"
    LEGAL_OBLIGATION = "legal_obligation"
    CHILD_SERVICES = "child_services"


class SubjectRule(ClosedSet):
    """Equality of subject ids: when two of them are one person (`app.access.subjects`)."""

    EXACT = "exact"
    """Byte for byte."""
    TEXT = "text"
    """Unicode's NFC, without white space around it."""
    CASELESS = "caseless"
    """As `text`, whatever the case."""
    EMAIL_DOMAIN = "email_domain"
    """As `text`, whatever the case after the last @."""
    EMAIL = "email"
    """As `text`, whatever the case of an id with an @."""


class RequestOrder(ClosedSet):
    NEWEST = "newest"
    OLDEST = "oldest"
    DEADLINE = "deadline"
    """Open requests alone, the most urgent first."""
    LATEST_DEADLINE = "latest_deadline"
    """Open requests alone, the most urgent last."""
    LAST_COMPLETED = "last_completed"
    """Completed requests alone, the last one first."""
    FIRST_COMPLETED = "first_completed"
    """Completed requests alone, the first one first."""


class RequestColumn(ClosedSet):
    """Columns of the dashboard's list of requests, beside the case itself."""

    STATUS = "status"
    DUE = "due"
    REGULATION = "regulation"
    ASSIGNEE = "assignee"
    MODELS = "models"
    RECEIVED = "received"
    COMPLETED = "completed"
    SOURCE = "source"


class Decision(ClosedSet):
    """An officer's decision about a request, or about many at once."""

    APPROVE = "approve"
    REJECT = "reject"


class RunOrder(ClosedSet):
    NEWEST = "newest"
    OLDEST = "oldest"


class ModelOrder(ClosedSet):
    NEWEST = "newest"
    OLDEST = "oldest"
    RISK = "risk"
    """Those in service alone, the most urgent first."""


class ModelDanger(ClosedSet):
    """Reasons to look at a model in service, as the overview counts them."""

    WAITING = "waiting"
    FAILED = "failed"
    AUDIT_REFUSED = "audit_refused"
    DEGRADED = "degraded"
    HELD = "held"
