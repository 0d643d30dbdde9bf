"""Deadlines of requests: on the calendar of the tenant's time zone, under the regulation that a request names.

A month ends on the same day of the next one, or on its last (Regulation 1182/71, Art. 3(2)(c)). The time of day is
that of the request, though the law would allow the rest of the day. A time that the clocks skip is read with the
offset before, one that they show twice is the first (RFC 5545, 3.3.5).
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from dateutil.relativedelta import relativedelta

from lethe.contract.policy import Policy, TimeLimit
from lethe.contract.sets import ClockState, Regulation

BEFORE_THE_DEADLINE = datetime.timedelta(days=7)
"""From so long before its deadline on nothing makes a request wait: no grace time, no batch, no less pressing work."""
_DAY = datetime.timedelta(days=1)


_LIMITS: dict[str, TimeLimit] = {
    # Art. 12(3): one month, and two more; it may pause while identity is unclear (EDPB Guidelines 01/2022, section 5.3)
    Regulation.GDPR: TimeLimit(months=1, extension_months=2, may_pause=True),
    # Cal. Code Regs. tit. 11, 7021(b): 45 days, and 45 more, regardless of the time required to verify the request
    Regulation.CCPA: TimeLimit(days=45, extension_days=45),
    Regulation.OTHER: TimeLimit(days=30, extension_days=30, may_pause=True),
}


def limits(policy: Policy) -> Mapping[str, TimeLimit]:
    """By regulation: the tenant's own come before those that every tenant has."""
    return _LIMITS | policy.regulations if policy.regulations else _LIMITS


def due_at(limit: TimeLimit, submitted_at: datetime.datetime, *, zone: str = "UTC") -> datetime.datetime:
    """The end of the time limit that began at `submitted_at` (aware)."""
    return _later(submitted_at, relativedelta(months=limit.months, days=limit.days), zone)


def extended(limit: TimeLimit, due: datetime.datetime, *, zone: str = "UTC") -> datetime.datetime:
    """The end of a time limit that would have ended at `due`, after its one extension; `due` if it has none.

    Counted from `due`: never later than if the whole limit were counted from the day of the request.
    """
    return _later(due, relativedelta(months=limit.extension_months, days=limit.extension_days), zone)


def midnight(day: datetime.date, *, zone: str) -> datetime.datetime:
    """The beginning of a day of the calendar."""
    return datetime.datetime.combine(day, datetime.time(), ZoneInfo(zone))


def _later(moment: datetime.datetime, by: relativedelta, zone: str) -> datetime.datetime:
    local = moment.astimezone(ZoneInfo(zone)) + by
    return local.replace(fold=0).astimezone(datetime.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The clock of a request. `days_left`: whole days until the deadline, below 0 once it has passed; None if ended."""

    state: ClockState
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
    """At the time `at`; at risk is what is due within `horizon`."""
    if ended:
        return Clock(state=ClockState.ENDED, deadline=deadline, paused_since=None, days_left=None)
    left = deadline - (paused_at or at)
    if paused_at is not None:
        state = ClockState.PAUSED
    elif left <= datetime.timedelta(0):
        state = ClockState.OVERDUE
    else:
        state = ClockState.AT_RISK if left <= horizon else ClockState.ON_TIME
    return Clock(state=state, deadline=deadline, paused_since=paused_at, days_left=left // _DAY)
