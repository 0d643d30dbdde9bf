"""Wording of numbers, times, states and messages on a page: with units, with sensible digits, in plain words.

`NAMES` and `SENTENCES`, at the end, are texts of the catalogues that occur in answers of the API and on no page itself.
"""

import datetime
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

from markupsafe import Markup

from app.features.desk import rounding
from app.features.desk.languages import (
    ENGLISH,
    TranslatedText,
    gettext,
    inside,
    localised,
    marked,
    ngettext,
    pgettext,
    spoken,
)
from app.features.desk.languages import day as day_of
from lethe.contract.certificates import GuaranteeOut
from lethe.contract.deletion_requests import ClockOut, RequestEventOut
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
    """The label of a status, and the tone of its chip: quiet, active, good, warn or bad."""

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
"""Sentences of events by kind. In English, a page shows the API's own detail of an event if there is one."""


def rejection_grounds() -> dict[RejectionGround, str]:
    """Return the grounds of a rejection with their labels."""
    return {ground: gettext(label) for ground, label in REJECTION_GROUNDS.items()}


def happened(event: RequestEventOut) -> str:
    """Return an event of a request as a sentence."""
    if event.detail and (spoken() == ENGLISH or event.kind not in EVENTS):
        return message(event.detail, capital=True)
    return gettext(EVENTS[event.kind]) if event.kind in EVENTS else state(event.status).label


def state(name: str) -> StatusWording:
    """Return the label and the tone of a status."""
    wording = STATES.get(name)
    if wording is None:
        return StatusWording(label=words(name), tone="quiet")
    # German has another word for work that is cancelled than for a cancelled request.
    if name == RunStatus.CANCELLED and isinstance(name, RunStatus | RehearsalStatus | ModelStatus):
        return replace(wording, label=pgettext("work", "Cancelled"))
    return replace(wording, label=gettext(wording.label))


def outcome(name: str) -> str:
    return gettext(OUTCOMES[name]) if name in OUTCOMES else words(name)


def run_kind(name: str) -> str:
    return gettext(RUN_KINDS[name]) if name in RUN_KINDS else words(name)


def damage(kind: DamageKind) -> str:
    return gettext(DAMAGES[kind])


def regulation(name: str) -> str:
    """Return the name of a regulation as lawyers write it."""
    return {"gdpr": gettext("GDPR"), "ccpa": "CCPA"}.get(name, words(name))


def sentence(text: str) -> str:
    """Capitalise the first character of a text."""
    return text[:1].upper() + text[1:]


def message(text: str, *, capital: bool = False) -> str:
    """Translate a text of the API into the reader's language, whatever numbers the text has.

    A text that the catalogue lacks stays in English and is marked as English. A translated text is returned as it is.
    """
    if spoken() == ENGLISH or isinstance(text, TranslatedText):
        return sentence(text) if capital else text
    translation = gettext(text)
    if translation == text and not set(text) & set("{}"):
        translation = gettext(_NUMBERS.sub("{}", text)).format(*_NUMBERS.findall(text))
    is_english = translation == text
    translation = sentence(translation) if capital else translation
    return Markup('<span lang="en">{}</span>').format(translation) if is_english else translation


def words(name: str) -> str:
    """Return a name of the API in words: "Not necessary" for `not_necessary`."""
    return gettext(name.replace("_", " ").capitalize())


def count(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun: "1 request", "1,234 requests"."""
    return f"{localised(f'{number:,}')} {ngettext(singular, plural or singular + 's', number)}"


def number(value: float, digits: int = 4) -> str:
    """Return a number rounded to `digits` significant digits."""
    return localised(rounding.number(value, digits)) if not math.isnan(value) else gettext("not a number")


def at_most(value: float, digits: int = 4) -> str:
    """Return a number rounded up, for upper bounds."""
    return localised(rounding.at_most(value, digits))


def at_least(value: float, digits: int = 4) -> str:
    """Return a number rounded down, for lower bounds."""
    return localised(rounding.at_least(value, digits))


def given(value: float) -> str:
    """Return a number that a person chose with the digits that they entered."""
    return localised(f"{value:,.10g}") if value == 0 or 1e-4 <= abs(value) < 1e9 else number(value)


def duration(seconds: float) -> str:
    """Return a duration in a unit that suits its length."""
    if seconds < 1:
        return "0 s" if seconds <= 0 else f"{seconds * 1000:.0f} ms"
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (172800, "h", 3600)):
        if seconds < limit:
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
    """Return a time in UTC, which the page's script shows in the reader's time zone, with UTC as the tooltip.

    `day` leaves out the time of day.
    """
    if at is None:
        return Markup('<span class="absent" aria-label="{}">–</span>').format(gettext("none"))
    at = at.astimezone(datetime.UTC)
    text = day_of(at) if day else f"{day_of(at)}, {at:%H:%M} UTC"
    return Markup('<time datetime="{}" data-local="{}" title="{}">{}</time>').format(
        at.isoformat(timespec="seconds"), "day" if day else "minute", f"{at:%Y-%m-%d %H:%M:%S} UTC", text
    )


def legal(at: datetime.datetime, zone: str) -> Markup:
    """Return a date in `zone`, the time zone in which the law counts days, with the exact time as the tooltip."""
    local = at.astimezone(ZoneInfo(zone))
    return Markup('<time datetime="{}" data-hover title="{}">{} <span class="zone">{}</span></time>').format(
        at.isoformat(timespec="seconds"), f"{local:%Y-%m-%d %H:%M:%S}, {zone}", day_of(local), zone
    )


def written(at: str) -> Markup:
    """Return a time that an answer has as ISO 8601 text."""
    return moment(datetime.datetime.fromisoformat(at))


def percent(part: float, total: float) -> str:
    """Return a share in percent; a positive share is never shown as 0 %."""
    share = 100 * part / total if total else 0.0
    if share and share < 0.1:
        return gettext("less than 0.1 %")
    return localised(f"{share:.1f} %") if 0 < share < 10 else f"{share:.0f} %"


def why(waiting: WaitingOut, most: int | None) -> Markup:
    """Describe what the requests of a model wait for, with their numbers; a batch is full at `most` requests."""

    def reason(wait: WaitOut) -> Markup:
        label = gettext(WAITS[wait.reason]) if wait.reason in WAITS else inside(words(wait.reason))
        text = f"{number(wait.requests)} {label}"
        if wait.reason == WaitReason.BATCH and most is not None:
            text = gettext("{waiting} of {most}").format(waiting=text, most=number(most))
        if wait.until is None:
            return Markup("{}").format(text)
        return Markup.escape(gettext("{waiting}, until {until} at the latest")).format(
            waiting=text, until=moment(wait.until)
        )

    return Markup("; ").join(map(reason, waiting.reasons))


def of_notion(guarantees: Iterable[GuaranteeOut] | None, notion: str) -> GuaranteeOut | None:
    """Return the guarantee of a notion; None if there is none."""
    return next((guarantee for guarantee in guarantees or () if guarantee.notion == notion), None)


def left(clock: ClockOut) -> str:
    """Return the time until the deadline of a request."""
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


NAMES = (
    marked("Other"),
    marked("Subject id"),
    marked("Aliases"),
    marked("External id"),
    marked("Came by"),
    marked("Regulation"),
    marked("Ground"),
    marked("Explanation"),
    marked("Reason"),
    marked("Text"),
    marked("Assignee"),
    marked("Name"),
    marked("Email"),
    marked("Role"),
    marked("Password"),
    marked("Present"),
    marked("Code"),
    marked("Scopes"),
    marked("Expires on"),
    marked("Expires at"),
    marked("Calls per minute"),
    marked("File"),
    marked("Schema"),
    marked("Classes"),
    marked("Target"),
    marked("Network id"),
    marked("Adaptive epsilon"),
    marked("Adaptive delta"),
    marked("Metric"),
    marked("Threshold"),
    marked("On breach"),
    marked("People"),
    marked("Anything"),
    marked("At risk"),
    marked("Received"),
    marked("Received from"),
    marked("Received to"),
    marked("Due from"),
    marked("Due to"),
    marked("Completed from"),
    marked("Completed to"),
)
"""Names of form fields as `words` writes them. Names of closed sets are extracted automatically."""

SENTENCES = (
    marked("noise is not felt here: less regularisation fits the rows more closely"),
    marked("for rows that were added since; not to draw the noise again, which certificates do not cover"),
    marked("twice as many rows: each is a smaller part, and needs less noise to hide"),
    marked("nothing is held about this subject"),
    marked("the deadline was extended"),
    marked("the clock was paused"),
    marked("the clock runs again"),
    marked("the deadline is near"),
    marked("the deadline has passed"),
    marked("write {} to {},{} characters: several words are easier to remember than a few signs"),
    marked("this has characters that cannot stand here"),
    marked("this is not the code that the app shows for this secret now"),
    marked("Add accounting:read: what becomes of a decision tells whether anything is held about the person"),
    marked("Expected a time that is still to come"),
    marked("Expected the name of a time zone, such as Europe/Berlin"),
    marked("expected an id that no other tenant has"),
    marked("expected the claim that is the subject id in your datasets"),
    marked("Agents must know by which claim people are known."),
    marked("expected a past time"),
    marked("expected more than white space"),
    marked(
        "expected an id as text: a spreadsheet or data frame wrote this one as a number, such as 4.86E+17 or 4711.0, "
        "which may have lost digits; format the column as text at its source, and export it again"
    ),
    marked("No row can have this subject id."),
    marked("expected JSON"),
    marked("expected a JSON Web Key Set with {} to {} keys"),
    marked("expected a public key; never send a private one"),
    marked("expected none where each request must carry a statement"),
    marked("expected a JWT of a registered issuer"),
    marked("The password was not set."),
    marked("The authenticator app was not enrolled."),
    marked("Address, password or code is not right, or this person is not let in."),
    marked("The identity provider has not verified an e-mail address of this person."),
    marked("Nobody has invited this person here, or they are not let in any more."),
    marked("An invitation is good for a week, and once. Ask an administrator for another one."),
    marked("Somebody with this e-mail address is there already; invite them again instead."),
    marked("No policy has these fields together."),
    marked("This is another tenant's id."),
    marked("Tenants have names of their own; choose another one."),
    marked("The keys cannot be used."),
    marked("This issuer is registered already; delete it to register other keys."),
    marked("The request cannot be made as it is."),
    marked("It is too late: a request of an app's key can be ended while it is in review or its grace time lasts."),
    marked("A statement is about one identifier: make a request for each, with a statement of its own."),
    marked("A deadline can be extended once."),
    marked("A deadline can be extended only before it has passed."),
    marked("The regulation of this request provides for no extension."),
    marked("Under the regulation of this request the time runs however long verifying takes."),
    marked("The request in refers_to has not ended; wait for it, or cancel it."),
    marked("The request has {} notes; write more in your own files, about its id."),
    marked("The request has {} attachments (LETHE_MAX_ATTACHMENTS); delete one of them first."),
    marked("The file cannot be attached. Nothing was stored."),
    marked(
        "The policy keeps details of this request no longer, so what is added now would be erased at once. Keep it in "
        "your own files, about the id of the request."
    ),
    marked("This key sees its own requests alone; suppressions are the tenant's."),
)
"""Sentences of remedies, events and problems of the API, with braces for numbers. Those of plans are derived."""
