"""Deadlines of requests, computed in the tenant's time zone under the request's regulation.

A period of months ends on the same day of the final month, or on its last day (Regulation 1182/71, Art. 3(2)(c)). The
deadline has the request's time of day, although the law allows the rest of the day. A local time skipped by a clock
change uses the offset before the change; for an ambiguous time, the first occurrence is used (RFC 5545, 3.3.5).
"""

import datetime
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dateutil.relativedelta import relativedelta

from app import telemetry
from app.db.tables import DeletionRequest
from lethe.contract import problems, sets, tenants

BEFORE_THE_DEADLINE = datetime.timedelta(days=7)
"""Period before a request's deadline in which no grace period, batching or less urgent work may delay the request."""
_DAY = datetime.timedelta(days=1)
_period = functools.lru_cache(maxsize=100)(relativedelta)


_LIMITS: dict[str, tenants.TimeLimit] = {
    # Art. 12(3): one month plus two. It may pause while the identity is unclear (EDPB Guidelines 01/2022, section 5.3).
    sets.Regulation.GDPR: tenants.TimeLimit(months=1, extension_months=2, may_pause=True),
    # Cal. Code Regs. tit. 11, 7021(b): 45 days plus 45, regardless of the time required to verify the request.
    sets.Regulation.CCPA: tenants.TimeLimit(days=45, extension_days=45),
    sets.Regulation.OTHER: tenants.TimeLimit(days=30, extension_days=30, may_pause=True),
}


def limits(policy: tenants.Policy) -> Mapping[str, tenants.TimeLimit]:
    """Return each regulation's time limit, or the tenant's own limit where it replaces the regulation's."""
    return _LIMITS | policy.regulations if policy.regulations else _LIMITS


def due_at(limit: tenants.TimeLimit, submitted_at: datetime.datetime, *, zone: str = "UTC") -> datetime.datetime:
    """Return the end (UTC) of the time limit that began at `submitted_at` (aware)."""
    return _later(submitted_at, _period(months=limit.months, days=limit.days), zone)


def extended(limit: tenants.TimeLimit, end: datetime.datetime, *, zone: str = "UTC") -> datetime.datetime:
    """Return the end (UTC) of a time limit after its extension beyond `end`; `end` if the limit has no extension.

    The extension counts from `end`, so it never ends later than if the whole limit were counted from the request.
    """
    return _later(end, _period(months=limit.extension_months, days=limit.extension_days), zone)


def zone_named(name: str) -> ZoneInfo:
    """Return a stored policy's time zone. If this host does not know it, log its name and raise `Unavailable`."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        telemetry.logger().error("deadlines.zone_unknown", zone=name)
        raise problems.Unavailable(
            "This host does not know the time zone of the tenant's policy, or of the request: install this release's "
            "version of tzdata, or set another time_zone."
        ) from error


def midnight(day: datetime.date, *, zone: str) -> datetime.datetime:
    """Return the start of a calendar day in a time zone."""
    return datetime.datetime.combine(day, datetime.time(), zone_named(zone))


def _later(moment: datetime.datetime, by: relativedelta, zone: str) -> datetime.datetime:
    local = moment.astimezone(zone_named(zone)) + by
    return local.replace(fold=0).astimezone(datetime.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Clock of a request. `days_left`: whole days until the deadline (negative after it); None for an ended request."""

    state: sets.ClockState
    deadline: datetime.datetime
    paused_since: datetime.datetime | None
    days_left: int | None


def clock(
    *,
    ended: bool,
    deadline: datetime.datetime,
    paused_at: datetime.datetime | None,
    at: datetime.datetime,
    horizon: datetime.timedelta,
) -> Clock:
    """Return the clock of a request at `at`. A deadline within `horizon` counts as at risk. A deadline that had passed
    when the clock was paused stays missed."""
    if ended:
        return Clock(state=sets.ClockState.ENDED, deadline=deadline, paused_since=None, days_left=None)
    remaining = deadline - (paused_at or at)
    if remaining <= datetime.timedelta(0):
        state = sets.ClockState.OVERDUE
    elif paused_at is not None:
        state = sets.ClockState.PAUSED
    else:
        state = sets.ClockState.AT_RISK if remaining <= horizon else sets.ClockState.ON_TIME
    return Clock(state=state, deadline=deadline, paused_since=paused_at, days_left=remaining // _DAY)


def is_held(request: DeletionRequest, *, at: datetime.datetime) -> bool:
    """Return True during the request's grace period."""
    return request.held_until is not None and request.held_until > at
