"""Wording of numbers, times and states on a page: with units, with sensible digits, in plain words."""

import datetime
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from markupsafe import Markup

from app.api import rounding
from app.dashboard.languages import ENGLISH, Said, gettext, inside, localised, marked, ngettext, pgettext, spoken
from app.dashboard.languages import day as day_of
from lethe.contract.deletion_requests import ClockOut, RequestEventOut
from lethe.contract.guarantees import GuaranteeOut
from lethe.contract.models import WaitingOut, WaitOut
from lethe.contract.sets import (
    ClockState,
    DamageKind,
    EventKind,
    ModelStatus,
    RehearsalStatus,
    RejectionGround,
    RunStatus,
    WaitReason,
)

_NUMBERS = re.compile(r"\b\d+\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusWording:
    """A status as people read it. `tone`: of its chip: quiet, active, good, warn, bad."""

    label: str
    tone: str


STATES: Mapping[str, StatusWording] = {
    # requests
    "received": StatusWording(label=marked("Received"), tone="quiet"),
    "in_review": StatusWording(label=marked("In review"), tone="warn"),
    "accepted": StatusWording(label=marked("Accepted"), tone="active"),
    "running": StatusWording(label=marked("Running"), tone="active"),
    "completed": StatusWording(label=marked("Completed"), tone="good"),
    "rejected": StatusWording(label=marked("Rejected"), tone="quiet"),
    "cancelled": StatusWording(label=marked("Cancelled"), tone="quiet"),
    "pending": StatusWording(label=marked("Pending"), tone="quiet"),
    "nothing_published": StatusWording(label=marked("Nothing published"), tone="quiet"),
    # clocks
    "on_time": StatusWording(label=marked("On time"), tone="good"),
    "at_risk": StatusWording(label=marked("Due soon"), tone="warn"),
    "overdue": StatusWording(label=marked("Overdue"), tone="bad"),
    "paused": StatusWording(label=marked("Paused"), tone="quiet"),
    "ended": StatusWording(label=marked("Ended"), tone="quiet"),
    # models, versions and runs
    "learning": StatusWording(label=marked("Learning"), tone="active"),
    "live": StatusWording(label=marked("Live"), tone="good"),
    "unlearning": StatusWording(label=marked("Unlearning"), tone="active"),
    "relearning": StatusWording(label=marked("Learning again"), tone="active"),
    "testing": StatusWording(label=marked("Canary test"), tone="active"),
    "degraded": StatusWording(label=marked("Degraded"), tone="warn"),
    "held": StatusWording(label=marked("Held back"), tone="bad"),
    "failed": StatusWording(label=marked("Failed"), tone="bad"),
    "retired": StatusWording(label=marked("Retired"), tone="quiet"),
    "destroyed": StatusWording(label=marked("Destroyed"), tone="quiet"),
    "published": StatusWording(label=marked("Published"), tone="good"),
    "abandoned": StatusWording(label=marked("Abandoned"), tone="warn"),
    "erased": StatusWording(label=marked("Erased"), tone="good"),
    # canary tests
    "passed": StatusWording(label=marked("Passed"), tone="good"),
    "refused": StatusWording(label=marked("Refused"), tone="bad"),
    # rehearsals
    "waiting": StatusWording(label=marked("Waiting"), tone="quiet"),
    "outdated": StatusWording(label=marked("Report gone"), tone="quiet"),
    # workers
    "alive": StatusWording(label=marked("Alive"), tone="good"),
    "silent": StatusWording(label=marked("Silent"), tone="bad"),
    "failing": StatusWording(label=marked("Failing"), tone="bad"),
    # deliveries and additions
    "delivered": StatusWording(label=marked("Delivered"), tone="good"),
    "gone": StatusWording(label=marked("Receiver gone"), tone="quiet"),
    "dead": StatusWording(label=marked("Given up"), tone="bad"),
    "applied": StatusWording(label=marked("Applied"), tone="good"),
    "dropped": StatusWording(label=marked("Dropped"), tone="quiet"),
    # keys and people
    "invited": StatusWording(label=marked("Invited"), tone="warn"),
    "disabled": StatusWording(label=marked("Disabled"), tone="quiet"),
    "in_force": StatusWording(label=marked("In force"), tone="good"),
    "revoked": StatusWording(label=marked("Revoked"), tone="quiet"),
    "expired": StatusWording(label=marked("Expired"), tone="quiet"),
}

REJECTION_GROUNDS: Mapping[RejectionGround, str] = {
    RejectionGround.FREE_EXPRESSION: marked("Freedom of expression and information (Art. 17(3)(a))"),
    RejectionGround.LEGAL_OBLIGATION: marked("A legal obligation to keep the data (Art. 17(3)(b))"),
    RejectionGround.PUBLIC_HEALTH: marked("Public health (Art. 17(3)(c))"),
    RejectionGround.ARCHIVING_RESEARCH: marked("Archiving, research or statistics (Art. 17(3)(d))"),
    RejectionGround.LEGAL_CLAIMS: marked("Legal claims (Art. 17(3)(e))"),
    RejectionGround.MANIFESTLY_UNFOUNDED: marked("Manifestly unfounded or excessive (Art. 12(5))"),
    RejectionGround.IDENTITY_NOT_ESTABLISHED: marked("Identity not established (Art. 12(2), (6))"),
}


def rejection_grounds() -> dict[RejectionGround, str]:
    return {ground: gettext(said) for ground, said in REJECTION_GROUNDS.items()}


OUTCOMES: Mapping[str, str] = {
    "forgotten": marked("Forgotten: the rows are null and every model has forgotten them"),
    "nothing_held": marked("Nothing was held about this person"),
    "target_widened": marked(
        "The rows are null, but a model was only asked to meet a target beyond the default bounds, which nobody should "
        "call forgotten"
    ),
}

RUN_KINDS: Mapping[str, str] = {
    "learn": marked("Learning"),
    "unlearn": marked("Unlearning"),
    "relearn": marked("Relearning"),
    "erase": marked("Erasing"),
    "add": marked("Adding rows"),
    "audit": marked("Canary test"),
    "rehearsal": marked("Rehearsal"),
}


WAITS: Mapping[WaitReason, str] = {
    WaitReason.IN_REVIEW: marked("in review"),
    WaitReason.GRACE: marked("may still be cancelled"),
    WaitReason.BATCH: marked("wait for a batch"),
    WaitReason.QUEUED: marked("next for a worker"),
    WaitReason.RUN_UNDER_WAY: marked("wait for the run under way"),
    WaitReason.DELAYED: marked("wait for another attempt"),
    WaitReason.BUDGET_SPENT: marked("wait for room in the dataset's budget"),
    WaitReason.DAMAGED: marked("wait until damaged rows are repaired"),
}


DAMAGES: Mapping[DamageKind, str] = {
    DamageKind.MANIFEST: marked("manifest"),
    DamageKind.MANIFEST_MISSING: marked("manifest missing"),
    DamageKind.BLOCK: marked("block"),
    DamageKind.BLOCK_MISSING: marked("block missing"),
    DamageKind.KEY: marked("key of a block"),
    DamageKind.KEY_MISSING: marked("key of a block missing"),
    DamageKind.FIRST_LAYOUT: marked("rows of the first layout"),
    DamageKind.RECORD: marked("record of whose rows they are"),
}


EVENTS: Mapping[EventKind, str] = {
    EventKind.RECEIVED: marked("The request was received"),
    EventKind.IN_REVIEW: marked("It waits for a decision"),
    EventKind.ACCEPTED: marked("It was accepted: the rows are to be erased"),
    EventKind.RUNNING: marked("A worker took it up, to erase the rows and make the models forget"),
    EventKind.COMPLETED: marked("Completed: rows are erased, and every model has forgotten"),
    EventKind.REJECTED: marked("It was rejected"),
    EventKind.CANCELLED: marked("It was cancelled"),
    EventKind.HANDED_BACK: marked("A run did not come to its end; another does the work again"),
    EventKind.ROWS_ERASED: marked("Rows were erased"),
}
"""Sentences of events by their kind; English has what the API tells of one, where it tells more."""


def happened(event: RequestEventOut) -> str:
    """An event as a sentence."""
    if event.detail and (spoken() == ENGLISH or event.kind not in EVENTS):
        return message(event.detail, capital=True)
    return gettext(EVENTS[event.kind]) if event.kind in EVENTS else state(event.status).label


def state(name: str) -> StatusWording:
    found = STATES.get(name)
    if found is None:
        return StatusWording(label=words(name), tone="quiet")
    if name == RunStatus.CANCELLED and isinstance(name, RunStatus | RehearsalStatus | ModelStatus):
        return StatusWording(label=pgettext("work", "Cancelled"), tone=found.tone)
    return StatusWording(label=gettext(found.label), tone=found.tone)


def outcome(name: str) -> str:
    return gettext(OUTCOMES[name]) if name in OUTCOMES else words(name)


def run_kind(name: str) -> str:
    return gettext(RUN_KINDS[name]) if name in RUN_KINDS else words(name)


def damage(kind: DamageKind) -> str:
    return gettext(DAMAGES[kind])


def regulation(name: str) -> str:
    """As lawyers write it."""
    return {"gdpr": gettext("GDPR"), "ccpa": "CCPA"}.get(name, words(name))


def sentence(text: str) -> str:
    """With a capital at its beginning."""
    return text[:1].upper() + text[1:]


def message(text: str, *, capital: bool = False) -> str:
    """Words of the API, in the reader's language where the catalogue has them, whatever their numbers; else in English,
    and marked as that. Words of the pages themselves stay as they are."""
    if spoken() == ENGLISH or isinstance(text, Said):
        return sentence(text) if capital else text
    said = gettext(text)
    if said == text:
        said = gettext(_NUMBERS.sub("{}", text)).format(*_NUMBERS.findall(text)) if not set(text) & set("{}") else text
    is_english = said == text
    said = sentence(said) if capital else said
    return Markup('<span lang="en">{}</span>').format(said) if is_english else said


def words(name: str) -> str:
    """`not_necessary` as "Not necessary"."""
    return gettext(name.replace("_", " ").capitalize())


def count(number: int, one: str, many: str | None = None) -> str:
    """`count(1, "request")` is "1 request", and of 1234 "1,234 requests"."""
    return f"{localised(f'{number:,}')} {ngettext(one, many or one + 's', number)}"


def number(value: float, digits: int = 4) -> str:
    """As `rounding` has it, in the reader's language."""
    return localised(rounding.number(value, digits)) if not math.isnan(value) else gettext("not a number")


def at_most(value: float, digits: int = 4) -> str:
    """As `number`, rounded up: for what is claimed to be no more than that."""
    return localised(rounding.at_most(value, digits))


def at_least(value: float, digits: int = 4) -> str:
    """As `number`, rounded down: for what is claimed to be no less than that."""
    return localised(rounding.at_least(value, digits))


def given(value: float) -> str:
    """A number that somebody chose, as they wrote it."""
    return localised(f"{value:,.10g}") if value == 0 or 1e-4 <= abs(value) < 1e9 else number(value)


def duration(seconds: float) -> str:
    """In the unit that people would say it in."""
    if seconds < 1:
        return "0 s" if seconds <= 0 else f"{seconds * 1000:.0f} ms"
    for most, unit, size in ((120, "s", 1), (7200, "min", 60), (172800, "h", 3600)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}"
    return gettext("{number} days").format(number=localised(f"{seconds / 86400:,.0f}"))


def size(number_of_bytes: int) -> str:
    value, unit = float(number_of_bytes), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{localised(f'{value:.1f}')} {unit}"


def moment(at: datetime.datetime | None, *, day: bool = False) -> Markup:
    """A time in UTC, which the page's script shows on the reader's own clock, with UTC on hover; `day`: without the
    time of day."""
    if at is None:
        return Markup('<span class="absent" aria-label="{}">–</span>').format(gettext("none"))
    at = at.astimezone(datetime.UTC)
    text = day_of(at) if day else f"{day_of(at)}, {at:%H:%M} UTC"
    return Markup('<time datetime="{}" data-local="{}" title="{}">{}</time>').format(
        at.isoformat(timespec="seconds"), "day" if day else "minute", f"{at:%Y-%m-%d %H:%M:%S} UTC", text
    )


def legal(at: datetime.datetime, zone: str) -> Markup:
    """The date that a law counts, in the time zone of the tenant's policy, wherever the reader is; their own clock on
    hover."""
    there = at.astimezone(ZoneInfo(zone))
    return Markup('<time datetime="{}" data-hover title="{}">{} <span class="zone">{}</span></time>').format(
        at.isoformat(timespec="seconds"), f"{there:%Y-%m-%d %H:%M:%S}, {zone}", day_of(there), zone
    )


def written(at: str) -> Markup:
    """A time that came as text."""
    return moment(datetime.datetime.fromisoformat(at))


def percent(part: float, whole: float) -> str:
    """A share as people say it; what is not nothing never reads as nothing."""
    share = 100 * part / whole if whole else 0.0
    if share and share < 0.1:
        return gettext("less than 0.1 %")
    return localised(f"{share:.1f} %") if 0 < share < 10 else f"{share:.0f} %"


def why(waiting: WaitingOut, most: int | None) -> Markup:
    """Words for what the requests wait for, with their numbers; `most`: that a batch waits for."""

    def one(waits: WaitOut) -> Markup:
        reason = gettext(WAITS[waits.reason]) if waits.reason in WAITS else inside(words(waits.reason))
        text = f"{number(waits.requests)} {reason}"
        if waits.reason == WaitReason.BATCH and most is not None:
            text = gettext("{waiting} of {most}").format(waiting=text, most=number(most))
        if waits.until is None:
            return Markup("{}").format(text)
        return Markup.escape(gettext("{waiting}, until {until} at the latest")).format(
            waiting=text, until=moment(waits.until)
        )

    return Markup("; ").join(one(waits) for waits in waiting.reasons)


def of_notion(guarantees: Iterable[GuaranteeOut] | None, notion: str) -> GuaranteeOut | None:
    """The one of that notion, if there is one."""
    return next((one for one in guarantees or () if one.notion == notion), None)


def left(clock: ClockOut) -> str:
    """The time that a request may still take, as an officer says it."""
    match clock.state:
        case ClockState.PAUSED:
            return gettext("clock paused")
        case ClockState.ENDED:
            return gettext("ended")
        case _:
            days = clock.days_left or 0
            if days < 0:
                return gettext("{days} overdue").format(days=count(-days, "day", "days"))
            if days == 0:
                return gettext("less than a day left")
            return gettext("{days} left").format(days=count(days, "day", "days"))
