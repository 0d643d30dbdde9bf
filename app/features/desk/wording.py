"""Wording of numbers, times, states and messages on pages: plain words, units and a sensible number of digits."""

import datetime
import math
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from app.deletion.deadlines import zone_named
from app.features.desk import glossary, rounding
from app.features.desk.languages import (
    ENGLISH,
    TranslatedText,
    day as day_of,
    gettext,
    inside,
    localised,
    ngettext,
    spoken,
)
from lethe.contract import certificates, deletion_requests, models, problems, sets
from lethe.features.rehearsals.contract import RehearsalStatus

_NUMBERS = re.compile(r"\b\d+\b")
_NAMES_OF_SETS = {"metric", "objective", "role"}
"""Facts in sentences whose values are names from closed sets."""


_TONES = {
    "active": "accepted running learning unlearning relearning testing",
    "good": "completed on_time live published erased passed alive delivered applied in_force",
    "warn": "in_review at_risk degraded abandoned invited",
    "bad": "overdue held failed refused silent failing dead",
}
"""Names of states, grouped by the tone of their chips; all other states have a quiet chip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusWording:
    """A status's label, and the tone of its chip: quiet, active, good, warn or bad."""

    label: str
    tone: str


def happened(event: deletion_requests.RequestEventOut) -> str:
    """Describe an event in a request's history in one sentence."""
    known = glossary.labels("events")
    if event.detail and (spoken() == ENGLISH or event.kind not in known):
        return message(event.detail, capital=True)
    return known[event.kind] if event.kind in known else state(event.status).label


def state(name: str) -> StatusWording:
    """Return a status's label and tone."""
    # German has another word for work that is cancelled than for a cancelled request.
    is_work = name == sets.RunStatus.CANCELLED and isinstance(name, sets.RunStatus | RehearsalStatus | sets.ModelStatus)
    label = glossary.labels("states").get("work_cancelled" if is_work else name)
    tone = next((tone for tone, names in _TONES.items() if name in names.split()), "quiet")
    return StatusWording(label=label or words(name), tone=tone)


def outcome(name: str) -> str:
    return glossary.labels("outcomes").get(name) or words(name)


def run_kind(name: str) -> str:
    return glossary.labels("run_kinds").get(name) or words(name)


def damage(kind: sets.DamageKind) -> str:
    return glossary.labels("damages")[kind]


def regulation(name: str) -> str:
    """Return a regulation's name as lawyers write it."""
    return {"gdpr": gettext("GDPR"), "ccpa": "CCPA"}.get(name, words(name))


def sentence(text: str) -> str:
    """Capitalise the first character of a text."""
    return text[:1].upper() + text[1:]


def message(text: str, *, capital: bool = False) -> str:
    """Translate an API text into the reader's language, whatever numbers it contains.

    A text missing from the catalogue is returned in English and marked as such; a `TranslatedText`, unchanged.
    """
    if spoken() == ENGLISH or isinstance(text, TranslatedText):
        return sentence(text) if capital else text
    translation = _translated(text)
    is_english = translation == text
    translation = sentence(translation) if capital else translation
    return Markup('<span lang="en">{}</span>').format(translation) if is_english else translation


def _translated(text: str) -> str:
    """Return the translation of an API text, or the text itself if it is not in the catalogue."""
    if isinstance(text, problems.Sentence):
        template = gettext(text.template)
        return _Filler().format(template, **text.facts) if text.facts and template != text.template else template
    translation = gettext(text)
    if translation == text and not set(text) & set("{}"):
        translation = gettext(_NUMBERS.sub("{}", text)).format(*_NUMBERS.findall(text))
    return translation


class _Filler(string.Formatter):
    """Formatter that translates a template's values into the reader's language."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        value = super().get_value(key, args, kwargs)
        if isinstance(value, problems.Sentence):
            return _translated(value)
        if isinstance(value, sets.DamageKind):
            return damage(value)
        if str(key).endswith("status"):
            return state(value).label
        return words(value) if key in _NAMES_OF_SETS else value

    def format_field(self, value: Any, format_spec: str) -> str:
        text = super().format_field(value, format_spec)
        return localised(text) if isinstance(value, int | float) else text


def words(name: str) -> str:
    """Return an API name in words: "Not necessary" for `not_necessary`."""
    return gettext(name.replace("_", " ").capitalize())


def count(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun: "1 request", "1,234 requests"."""
    return f"{localised(f'{number:,}')} {ngettext(singular, plural or singular + 's', number)}"


def number(value: float, digits: int = 4) -> str:
    """Return a number rounded to `digits` significant digits."""
    return localised(rounding.number(value, digits)) if not math.isnan(value) else gettext("not a number")


def at_most(value: float, digits: int = 4) -> str:
    """Format a number, rounded up, for upper bounds."""
    return localised(rounding.at_most(value, digits))


def at_least(value: float, digits: int = 4) -> str:
    """Format a number, rounded down, for lower bounds."""
    return localised(rounding.at_least(value, digits))


def given(value: float) -> str:
    """Format a number chosen by a user, keeping the digits they entered."""
    return localised(f"{value:,.10g}") if value == 0 or 1e-4 <= abs(value) < 1e9 else number(value)


def duration(seconds: float) -> str:
    """Format a duration in a unit that suits its length."""
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
    """Format a time in UTC. The page's script converts it to the reader's time zone, with UTC in the tooltip.

    `day` omits the time of day.
    """
    if at is None:
        return Markup('<span class="absent" aria-label="{}">–</span>').format(gettext("none"))
    at = at.astimezone(datetime.UTC)
    text = day_of(at) if day else f"{day_of(at)}, {at:%H:%M} UTC"
    return Markup('<time datetime="{}" data-local="{}" title="{}">{}</time>').format(
        at.isoformat(timespec="seconds"), "day" if day else "minute", f"{at:%Y-%m-%d %H:%M:%S} UTC", text
    )


def legal(at: datetime.datetime, zone: str, *, minute: bool = False, stated: str | None = None) -> Markup:
    """Format a date in `zone`, the time zone in which the law counts days, with the exact time in the tooltip.

    `minute` adds the time of day. The zone's name is omitted if the page already states it in its header (`stated`).
    """
    local = at.astimezone(zone_named(zone))
    text = f"{day_of(local)}, {local:%H:%M}" if minute else day_of(local)
    named = Markup(' <span class="zone">{}</span>').format(zone) if zone != stated else ""
    return Markup('<time datetime="{}" data-hover title="{}">{}{}</time>').format(
        at.isoformat(timespec="seconds"), f"{local:%Y-%m-%d %H:%M:%S}, {zone}", text, named
    )


def written(at: str) -> Markup:
    """Format a time that an API response gives as ISO 8601 text."""
    return moment(datetime.datetime.fromisoformat(at))


def percent(part: float, total: float) -> str:
    """Format a share as a percentage. A positive share is never shown as 0 %."""
    share = 100 * part / total if total else 0.0
    if share and share < 0.1:
        return gettext("less than 0.1 %")
    return localised(f"{share:.1f} %") if 0 < share < 10 else f"{share:.0f} %"


def why(waiting: models.WaitingOut, most: int | None) -> Markup:
    """Describe why a model's requests are waiting, and how many for each reason. A full batch has `most` requests."""

    def reason(wait: models.WaitOut) -> Markup:
        label = glossary.labels("waits").get(wait.reason) or inside(words(wait.reason))
        text = f"{number(wait.requests)} {label}"
        if wait.reason == sets.WaitReason.BATCH and most is not None:
            text = gettext("{waiting} of {most}").format(waiting=text, most=number(most))
        if wait.until is None:
            return Markup("{}").format(text)
        return Markup.escape(gettext("{waiting}, until {until} at the latest")).format(
            waiting=text, until=moment(wait.until)
        )

    return Markup("; ").join(map(reason, waiting.reasons))


def of_notion(guarantees: Iterable[certificates.GuaranteeOut] | None, notion: str) -> certificates.GuaranteeOut | None:
    """Return the guarantee with the given notion, such as `unlearning`; None if there is no such guarantee."""
    return next((guarantee for guarantee in guarantees or () if guarantee.notion == notion), None)


def left(clock: deletion_requests.ClockOut) -> str:
    """Describe the time left until a request's deadline."""
    match clock.state:
        case sets.ClockState.PAUSED:
            return gettext("clock paused")
        case sets.ClockState.ENDED:
            return gettext("ended")
        case sets.ClockState.OVERDUE:
            # `days_left` is rounded down: an hour past the deadline it is -1.
            days = -1 - (clock.days_left or 0)
            return gettext("{days} overdue").format(days=count(days, "day", "days")) if days > 0 else gettext("overdue")
        case _:
            days = clock.days_left or 0
            if days == 0:
                return gettext("less than a day left")
            return gettext("{days} left").format(days=count(days, "day", "days"))
