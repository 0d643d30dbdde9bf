"""Wording of numbers, times and states on a page: with units, with sensible digits, in plain words."""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from markupsafe import Markup

from app.api.rounding import at_least as at_least
from app.api.rounding import at_most as at_most
from app.api.rounding import number as number
from lethe.contract.deletion_requests import ClockOut, RequestEventOut
from lethe.contract.guarantees import GuaranteeOut
from lethe.contract.models import WaitingOut, WaitOut
from lethe.contract.sets import ClockState, EventKind, RejectionGround, WaitReason


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusWording:
    """A status as people read it. `tone`: of its chip: quiet, active, good, warn, bad."""

    label: str
    tone: str


STATES: Mapping[str, StatusWording] = {
    # requests
    "received": StatusWording(label="Received", tone="quiet"),
    "in_review": StatusWording(label="In review", tone="warn"),
    "accepted": StatusWording(label="Accepted", tone="active"),
    "running": StatusWording(label="Running", tone="active"),
    "completed": StatusWording(label="Completed", tone="good"),
    "rejected": StatusWording(label="Rejected", tone="quiet"),
    "cancelled": StatusWording(label="Cancelled", tone="quiet"),
    "pending": StatusWording(label="Pending", tone="quiet"),
    "nothing_published": StatusWording(label="Nothing published", tone="quiet"),
    # clocks
    "on_time": StatusWording(label="On time", tone="good"),
    "at_risk": StatusWording(label="Due soon", tone="warn"),
    "overdue": StatusWording(label="Overdue", tone="bad"),
    "paused": StatusWording(label="Paused", tone="quiet"),
    "ended": StatusWording(label="Ended", tone="quiet"),
    # models, versions and runs
    "learning": StatusWording(label="Learning", tone="active"),
    "live": StatusWording(label="Live", tone="good"),
    "unlearning": StatusWording(label="Unlearning", tone="active"),
    "relearning": StatusWording(label="Learning again", tone="active"),
    "testing": StatusWording(label="Canary test", tone="active"),
    "degraded": StatusWording(label="Degraded", tone="warn"),
    "held": StatusWording(label="Held back", tone="bad"),
    "failed": StatusWording(label="Failed", tone="bad"),
    "retired": StatusWording(label="Retired", tone="quiet"),
    "destroyed": StatusWording(label="Destroyed", tone="quiet"),
    "published": StatusWording(label="Published", tone="good"),
    "abandoned": StatusWording(label="Abandoned", tone="warn"),
    "erased": StatusWording(label="Erased", tone="good"),
    # canary tests
    "passed": StatusWording(label="Passed", tone="good"),
    "refused": StatusWording(label="Refused", tone="bad"),
    # rehearsals
    "waiting": StatusWording(label="Waiting", tone="quiet"),
    "outdated": StatusWording(label="Report gone", tone="quiet"),
    # workers
    "alive": StatusWording(label="Alive", tone="good"),
    "silent": StatusWording(label="Silent", tone="bad"),
    "failing": StatusWording(label="Failing", tone="bad"),
    # deliveries and additions
    "delivered": StatusWording(label="Delivered", tone="good"),
    "gone": StatusWording(label="Receiver gone", tone="quiet"),
    "dead": StatusWording(label="Given up", tone="bad"),
    "applied": StatusWording(label="Applied", tone="good"),
    "dropped": StatusWording(label="Dropped", tone="quiet"),
    # keys and people
    "invited": StatusWording(label="Invited", tone="warn"),
    "disabled": StatusWording(label="Disabled", tone="quiet"),
    "in_force": StatusWording(label="In force", tone="good"),
    "revoked": StatusWording(label="Revoked", tone="quiet"),
    "expired": StatusWording(label="Expired", tone="quiet"),
}

REJECTION_GROUNDS: Mapping[RejectionGround, str] = {
    RejectionGround.FREE_EXPRESSION: "Freedom of expression and information (Art. 17(3)(a))",
    RejectionGround.LEGAL_OBLIGATION: "A legal obligation to keep the data (Art. 17(3)(b))",
    RejectionGround.PUBLIC_HEALTH: "Public health (Art. 17(3)(c))",
    RejectionGround.ARCHIVING_RESEARCH: "Archiving, research or statistics (Art. 17(3)(d))",
    RejectionGround.LEGAL_CLAIMS: "Legal claims (Art. 17(3)(e))",
    RejectionGround.MANIFESTLY_UNFOUNDED: "Manifestly unfounded or excessive (Art. 12(5))",
    RejectionGround.IDENTITY_NOT_ESTABLISHED: "Identity not established (Art. 12(2), (6))",
}

OUTCOMES: Mapping[str, str] = {
    "forgotten": "Forgotten: the rows are null and every model has forgotten them",
    "nothing_held": "Nothing was held about this person",
    "target_widened": "The rows are null, but a model was only asked to meet a target beyond the default bounds, which "
    "nobody should call forgotten",
}

RUN_KINDS: Mapping[str, str] = {
    "learn": "Learning",
    "unlearn": "Unlearning",
    "relearn": "Relearning",
    "erase": "Erasing",
    "add": "Adding rows",
    "audit": "Canary test",
    "rehearsal": "Rehearsal",
}


WAITS: Mapping[WaitReason, str] = {
    WaitReason.IN_REVIEW: "in review",
    WaitReason.GRACE: "may still be cancelled",
    WaitReason.BATCH: "wait for a batch",
    WaitReason.QUEUED: "next for a worker",
    WaitReason.RUN_UNDER_WAY: "wait for the run under way",
    WaitReason.DELAYED: "wait for another attempt",
    WaitReason.BUDGET_SPENT: "wait for room in the dataset's budget",
    WaitReason.DAMAGED: "wait until damaged rows are repaired",
}


EVENTS: Mapping[EventKind, str] = {
    EventKind.RECEIVED: "The request was received",
    EventKind.IN_REVIEW: "It waits for a decision",
    EventKind.ACCEPTED: "It was accepted: the rows are to be erased",
    EventKind.RUNNING: "A worker took it up, to erase the rows and make the models forget",
    EventKind.COMPLETED: "Completed: rows are erased, and every model has forgotten",
    EventKind.REJECTED: "It was rejected",
    EventKind.CANCELLED: "It was cancelled",
}
"""Sentences of events that say no more than their kind."""


def happened(event: RequestEventOut) -> str:
    """An event as a sentence."""
    return sentence(event.detail) if event.detail else EVENTS.get(event.kind, state(event.status).label)


def state(name: str) -> StatusWording:
    return STATES.get(name) or StatusWording(label=words(name), tone="quiet")


def outcome(name: str) -> str:
    return OUTCOMES.get(name, words(name))


def run_kind(name: str) -> str:
    return RUN_KINDS.get(name, words(name))


def regulation(name: str) -> str:
    """As lawyers write it."""
    return {"gdpr": "GDPR", "ccpa": "CCPA"}.get(name, words(name))


def sentence(text: str) -> str:
    """With a capital at its beginning."""
    return text[:1].upper() + text[1:]


def words(name: str) -> str:
    """`not_necessary` as "Not necessary"."""
    return name.replace("_", " ").capitalize()


def count(number: int, one: str, many: str | None = None) -> str:
    """`count(1, "request")` is "1 request", and of 1234 "1,234 requests"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def given(value: float) -> str:
    """A number that somebody chose, as they wrote it."""
    return f"{value:,.10g}" if value == 0 or 1e-4 <= abs(value) < 1e9 else number(value)


def duration(seconds: float) -> str:
    """In the unit that people would say it in."""
    if seconds < 1:
        return "0 s" if seconds <= 0 else f"{seconds * 1000:.0f} ms"
    for most, unit, size in ((120, "s", 1), (7200, "min", 60), (172800, "h", 3600)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:,.0f} days"


def size(number_of_bytes: int) -> str:
    value, unit = float(number_of_bytes), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def moment(at: datetime.datetime | None, *, day: bool = False) -> Markup:
    """A time in UTC, which the page's script shows on the reader's own clock, with UTC on hover; `day`: without the
    time of day."""
    if at is None:
        return Markup('<span class="absent" aria-label="none">–</span>')
    at = at.astimezone(datetime.UTC)
    text = f"{at.day} {at:%b %Y}" if day else f"{at.day} {at:%b %Y, %H:%M} UTC"
    return Markup('<time datetime="{}" data-local="{}" title="{}">{}</time>').format(
        at.isoformat(timespec="seconds"), "day" if day else "minute", f"{at:%Y-%m-%d %H:%M:%S} UTC", text
    )


def legal(at: datetime.datetime, zone: str) -> Markup:
    """The date that a law counts, in the time zone of the tenant's policy, wherever the reader is; their own clock on
    hover."""
    there = at.astimezone(ZoneInfo(zone))
    return Markup('<time datetime="{}" data-hover title="{}">{} <span class="zone">{}</span></time>').format(
        at.isoformat(timespec="seconds"), f"{there:%Y-%m-%d %H:%M:%S}, {zone}", f"{there.day} {there:%b %Y}", zone
    )


def written(at: str) -> Markup:
    """A time that came as text."""
    return moment(datetime.datetime.fromisoformat(at))


def percent(part: float, whole: float) -> str:
    """A share as people say it; what is not nothing never reads as nothing."""
    share = 100 * part / whole if whole else 0.0
    if share and share < 0.1:
        return "less than 0.1 %"
    return f"{share:.1f} %" if 0 < share < 10 else f"{share:.0f} %"


def why(waiting: WaitingOut, most: int | None) -> Markup:
    """Words for what the requests wait for, with their numbers; `most`: that a batch waits for."""

    def one(waits: WaitOut) -> Markup:
        text = f"{waits.requests:,} {WAITS.get(waits.reason, words(waits.reason).lower())}"
        if waits.reason == WaitReason.BATCH and most is not None:
            text += f" of {most:,}"
        until = Markup(", until {} at the latest").format(moment(waits.until)) if waits.until else ""
        return Markup("{}{}").format(text, until)

    return Markup("; ").join(one(waits) for waits in waiting.reasons)


def of_notion(guarantees: Iterable[GuaranteeOut] | None, notion: str) -> GuaranteeOut | None:
    """The one of that notion, if there is one."""
    return next((one for one in guarantees or () if one.notion == notion), None)


def left(clock: ClockOut) -> str:
    """The time that a request may still take, as an officer says it."""
    match clock.state:
        case ClockState.PAUSED:
            return "clock paused"
        case ClockState.ENDED:
            return "ended"
        case _:
            days = clock.days_left or 0
            if days < 0:
                return f"{count(-days, 'day')} overdue"
            return "less than a day left" if days == 0 else f"{count(days, 'day')} left"
