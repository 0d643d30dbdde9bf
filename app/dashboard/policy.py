"""The policy in a form: regulations as rows, durations with their units, and what a change would change."""

import contextlib
import functools
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from starlette.datastructures import FormData

from app.dashboard import faults
from app.dashboard.languages import gettext, marked
from app.dashboard.requests import text
from app.dashboard.wording import count, words
from lethe.contract.policy import MAY_NAME_SOMEBODY, Policy
from lethe.contract.problems import FieldError, InputInvalid

UNITS: Mapping[str, int] = {
    marked("seconds"): 1,
    marked("minutes"): 60,
    marked("hours"): 3600,
    marked("days"): 86400,
}
LIMITS = ("days", "months", "extension_days", "extension_months")
_DURATIONS = ("grace_seconds", "report_seconds")
_DAYS = ("retain_details_days", "retain_requests_days")
_NUMBERS = ("max_epsilon", "max_delta")
_CHOSEN = ("identity", "subject_rule", "drp_claim", "time_zone")
_TEXTS = ("drp_business_id", "drp_verification_url", "controller", "contact")
_MAY_BE_ABSENT = ("retain_requests_days", "max_delta", *_TEXTS)
_EMPTY_ROWS = 2
_MOST_ROWS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A field of the policy, as it is and as it would be."""

    label: str
    before: str
    after: str


@functools.cache
def zones() -> list[str]:
    """The names of time zones, for a picker."""
    return sorted(name for name in zoneinfo.available_timezones() if "/" in name or name == "UTC")


def in_units(seconds: int) -> tuple[int, str]:
    """A duration in the largest unit that leaves no fraction."""
    for unit, size in reversed(list(UNITS.items())):
        if seconds % size == 0 and (seconds or unit == "seconds"):
            return seconds // size, unit
    return seconds, "seconds"


def rows(policy: Mapping[str, Any], filled: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows of the form: as they were filled in, or those of the policy and some empty ones."""
    if filled:
        return [
            {"name": filled[f"regulation_{row}"], "may_pause": filled.get(f"may_pause_{row}") == "yes"}
            | {limit: filled.get(f"{limit}_{row}", "") for limit in LIMITS}
            for row in range(_MOST_ROWS)
            if f"regulation_{row}" in filled
        ]
    known = [{"name": name} | limits for name, limits in policy["regulations"].items()]
    empty = {"name": "", "may_pause": False} | dict.fromkeys(LIMITS, "")
    return [*known, *([empty] * _EMPTY_ROWS)]


def asked(form: FormData, *, known: int) -> dict[str, Any]:
    """The policy in the form, in its types; what has none of them is left as it is, to be refused. `known`: the number
    of regulations so far, whose rows come first. Raises `InputInvalid`."""
    found: dict[str, Any] = {name: text(form, name) for name in _CHOSEN}
    found["auto_accept"] = text(form, "auto_accept") == "yes"
    found["opendsr_identities"] = [one for one in form.getlist("opendsr_identities") if isinstance(one, str)]
    for name in (*_DURATIONS, *_DAYS, *_NUMBERS, *_TEXTS):
        written = text(form, name)
        found[name] = _whole(written) if name in (*_DURATIONS, *_DAYS) else written
        if name in _DURATIONS and isinstance(found[name], int):
            found[name] *= UNITS.get(text(form, f"{name}_unit"), 1)
        if name in _NUMBERS:
            with contextlib.suppress(ValueError):
                found[name] = float(written)
        if not written and name in _MAY_BE_ABSENT:
            found[name] = None
    found["regulations"] = _regulations(form, known=known)
    return found


def _regulations(form: FormData, *, known: int) -> dict[str, Any]:
    """A known regulation without a name is taken away; a new one was forgotten to be named."""
    found: dict[str, Any] = {}
    for row in range(_MOST_ROWS):
        name = text(form, f"regulation_{row}")
        limits = {limit: text(form, f"{limit}_{row}") for limit in LIMITS}
        if not name and row >= known and any(limits.values()):
            raise InputInvalid(
                gettext("The policy stays as it was."), [FieldError("regulations", gettext("Name each regulation."))]
            )
        if name in found:
            raise InputInvalid(
                gettext("The policy stays as it was."), [FieldError("regulations", gettext("Two rows have one name."))]
            )
        if name:
            found[name] = {limit: _whole(written or "0") for limit, written in limits.items()}
            found[name]["may_pause"] = text(form, f"may_pause_{row}") == "yes"
    return found


def _whole(written: str) -> int | str:
    return int(written) if written.isascii() and written.isdecimal() else written


def checked(changed: dict[str, Any]) -> Policy:
    """Raises `InputInvalid`."""
    try:
        return Policy.model_validate(changed)
    except ValidationError as error:
        raise InputInvalid(gettext("The policy stays as it was."), faults.in_words(error)) from None


def changes(present: Mapping[str, Any], changed: Mapping[str, Any]) -> list[Change]:
    """Each field that differs, old and new; of regulations each by itself."""
    found = []
    for name, after in changed.items():
        if name != "regulations":
            found.append(Change(label=words(name), before=in_words(name, present[name]), after=in_words(name, after)))
            continue
        before = present[name]
        found += [
            Change(
                label=gettext("Regulation {name}").format(name=one),
                before=_limits(before.get(one)),
                after=_limits(after.get(one)),
            )
            for one in dict.fromkeys([*before, *after])
            if before.get(one) != after.get(one)
        ]
    return found


def in_words(name: str, value: Any) -> str:
    """A value of the policy for people."""
    if value is None:
        return gettext("none")
    if isinstance(value, bool):
        return gettext("yes") if value else gettext("no")
    if name in _DURATIONS:
        number, unit = in_units(value)
        return _in_unit(number, unit)
    if name in _DAYS:
        return count(value, "day", "days")
    if name == "regulations":
        return "; ".join(f"{one}: {_limits(limits)}" for one, limits in value.items()) or gettext("none")
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or gettext("none")
    return str(value)


def recorded(name: str, value: Any) -> str:
    """The same of an entry of the audit log, which has no names of anybody."""
    return gettext("set") if name in MAY_NAME_SOMEBODY and value else in_words(name, value)


def _in_unit(number: int, unit: str) -> str:
    match unit:
        case "seconds":
            return count(number, "second", "seconds")
        case "minutes":
            return count(number, "minute", "minutes")
        case "hours":
            return count(number, "hour", "hours")
        case _:
            return count(number, "day", "days")


def _limits(limits: Mapping[str, Any] | None) -> str:
    if limits is None:
        return gettext("not there")

    def time(months: int, days: int) -> str:
        parts = [count(months, "month", "months")] * bool(months) + [count(days, "day", "days")] * bool(days)
        return gettext(" and ").join(parts) or gettext("no time")

    extension = limits.get("extension_months", 0), limits.get("extension_days", 0)
    more = gettext(", once {time} more").format(time=time(*extension)) if any(extension) else ""
    pause = gettext(", the clock may pause") if limits.get("may_pause") else ""
    return time(limits.get("months", 0), limits.get("days", 0)) + more + pause
