import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from app.deletion import deadlines
from app.deletion.deadlines import clock, due_at, extended
from lethe.contract.sets import ClockState, Regulation
from lethe.contract.tenants import Policy, TimeLimit

LIMITS = deadlines.limits(Policy())
UTC = datetime.UTC
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia", "Australia/Lord_Howe")


def moment(text: str, zone: str = "UTC", *, fold: int = 0) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC)


@pytest.mark.parametrize(
    ("regulation", "submitted", "due"),
    [
        (Regulation.GDPR, "2026-01-15", "2026-02-15"),
        (Regulation.GDPR, "2026-01-31", "2026-02-28"),  # there is no such day, so the last day of the month
        (Regulation.GDPR, "2028-01-31", "2028-02-29"),
        (Regulation.GDPR, "2026-12-31", "2027-01-31"),
        (Regulation.GDPR, "2026-02-28", "2026-03-28"),
        (Regulation.CCPA, "2026-01-01", "2026-02-15"),
        (Regulation.CCPA, "2028-02-01", "2028-03-17"),
        (Regulation.OTHER, "2026-01-31", "2026-03-02"),
    ],
)
def test_each_regulation_has_its_time_limit(regulation: Regulation, submitted: str, due: str) -> None:
    """The time limit is one calendar month under the GDPR, 45 days under the CCPA and 30 days otherwise. The deadline
    falls at the same time of day as the request."""
    assert due_at(LIMITS[regulation], moment(f"{submitted}T13:45:00")) == moment(f"{due}T13:45:00")


@pytest.mark.parametrize(
    ("regulation", "due", "later"),
    [
        (Regulation.GDPR, "2026-02-15", "2026-04-15"),
        (Regulation.GDPR, "2026-12-31", "2027-02-28"),
        (Regulation.CCPA, "2026-02-15", "2026-04-01"),
        (Regulation.OTHER, "2026-03-02", "2026-04-01"),
    ],
)
def test_each_regulation_has_its_extension(regulation: Regulation, due: str, later: str) -> None:
    """The extension is two months under the GDPR, 45 days under the CCPA and 30 days otherwise, counted from the
    original deadline."""
    assert extended(LIMITS[regulation], moment(f"{due}T08:00:00")) == moment(f"{later}T08:00:00")


@pytest.mark.parametrize(
    ("zone", "submitted", "due"),
    [
        # clocks go forward on 29 March 2026 and back on 25 October
        ("Europe/Berlin", moment("2026-03-10T09:00", "Europe/Berlin"), moment("2026-04-10T09:00", "Europe/Berlin")),
        # half past two does not exist on that day: it is read with the earlier offset, as 01:30 UTC
        ("Europe/Berlin", moment("2026-02-28T02:30", "Europe/Berlin"), moment("2026-03-28T02:30", "Europe/Berlin")),
        ("Europe/Berlin", moment("2026-02-28T23:30"), moment("2026-04-01T00:30", "Europe/Berlin")),  # 1 March there
        ("Europe/Berlin", moment("2028-02-26T01:30"), moment("2028-03-26T01:30")),  # 02:30 is skipped that day
        ("Europe/Berlin", moment("2026-09-25T00:30"), moment("2026-10-25T00:30")),  # 02:30 occurs twice: the first one
        ("Pacific/Apia", moment("2011-11-30T12:00", "Pacific/Apia"), moment("2011-12-31T12:00", "Pacific/Apia")),
        ("Asia/Kolkata", moment("2026-01-30T20:00"), moment("2026-02-27T20:00")),  # there 31 January, so 28 February
    ],
)
def test_deadlines_follow_the_calendar_of_the_zone(
    zone: str, submitted: datetime.datetime, due: datetime.datetime
) -> None:
    """Limits in months and days follow the calendar of the tenant's time zone, across every clock change."""
    assert due_at(LIMITS[Regulation.GDPR], submitted, zone=zone) == due


MOMENTS = st.datetimes(
    min_value=datetime.datetime(1971, 1, 1),  # noqa: DTZ001  made aware below
    max_value=datetime.datetime(9000, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
AN_HOUR = datetime.timedelta(hours=1)


@given(regulation=st.sampled_from(Regulation), at=MOMENTS, zone=st.sampled_from(ZONES))
def test_a_deadline_is_28_to_45_days_away(regulation: Regulation, at: datetime.datetime, zone: str) -> None:
    """In every time zone, a deadline is between 28 and 45 days away, apart from shifts due to clock changes."""
    away = due_at(LIMITS[regulation], at, zone=zone) - at
    day = datetime.timedelta(days=1 if zone == "Pacific/Apia" else 0)  # Samoa left out a day in 2011
    assert datetime.timedelta(days=28) - AN_HOUR - day <= away <= datetime.timedelta(days=45) + AN_HOUR + day


@given(regulation=st.sampled_from(Regulation), one=MOMENTS, other=MOMENTS, zone=st.sampled_from(ZONES))
def test_earlier_requests_are_due_first(
    regulation: Regulation, one: datetime.datetime, other: datetime.datetime, zone: str
) -> None:
    """Of two requests under one regulation, the later one is never due on an earlier calendar day in the tenant's time
    zone."""
    there = ZoneInfo(zone)
    first, second = (due_at(LIMITS[regulation], at, zone=zone).astimezone(there) for at in sorted((one, other)))
    assert first.date() <= second.date()


@given(at=MOMENTS, zone=st.sampled_from(ZONES))
def test_an_extension_does_not_exceed_the_legal_maximum(at: datetime.datetime, zone: str) -> None:
    """If a deadline of one month is extended by two months, the new deadline is later than the original one and at most
    three months after receipt."""
    limit = LIMITS[Regulation.GDPR]
    last = extended(limit, due_at(limit, at, zone=zone), zone=zone)
    whole = due_at(TimeLimit(months=3), at, zone=zone)
    assert due_at(limit, at, zone=zone) < last <= whole + datetime.timedelta(hours=25 if zone == "Pacific/Apia" else 1)


def test_a_policy_adds_and_replaces_regulations() -> None:
    """A policy can add its own regulations and override the limits of built-in ones."""
    own = {"lgpd": TimeLimit(days=15), "gdpr": TimeLimit(days=20)}
    found = deadlines.limits(Policy(regulations=own))
    assert found.keys() == {"gdpr", "ccpa", "other", "lgpd"}
    assert (found["lgpd"], found["gdpr"], found["ccpa"]) == (own["lgpd"], own["gdpr"], LIMITS["ccpa"])


NOW = moment("2026-05-01T00:00")
A_DAY = datetime.timedelta(days=1)


@pytest.mark.parametrize(
    ("left", "state", "days"),
    [
        (8 * A_DAY, ClockState.ON_TIME, 8),
        (7 * A_DAY, ClockState.AT_RISK, 7),
        (A_DAY / 2, ClockState.AT_RISK, 0),
        (0 * A_DAY, ClockState.OVERDUE, 0),
        (-A_DAY / 2, ClockState.OVERDUE, -1),
    ],
)
def test_the_clock_reports_requests_at_risk_and_overdue(left: datetime.timedelta, state: ClockState, days: int) -> None:
    """A request is at risk if its deadline is within the given horizon, and overdue from the deadline on. The remaining
    time is stated in whole days."""
    found = clock(ended=False, deadline=NOW + left, paused_at=None, at=NOW, horizon=7 * A_DAY)
    assert (found.state, found.days_left, found.paused_since) == (state, days, None)


def test_a_paused_or_ended_clock_stands_still() -> None:
    """While a clock is paused, the number of remaining days does not change, and a deadline missed before the pause
    still counts as missed. The clock of an ended request has no remaining days."""
    paused = clock(ended=False, deadline=NOW, paused_at=NOW - 3 * A_DAY, at=NOW + A_DAY, horizon=7 * A_DAY)
    assert (paused.state, paused.days_left, paused.paused_since) == (ClockState.PAUSED, 3, NOW - 3 * A_DAY)
    missed = clock(ended=False, deadline=NOW, paused_at=NOW + A_DAY, at=NOW + 9 * A_DAY, horizon=7 * A_DAY)
    assert (missed.state, missed.days_left, missed.paused_since) == (ClockState.OVERDUE, -1, NOW + A_DAY)
    ended = clock(ended=True, deadline=NOW, paused_at=None, at=NOW + A_DAY, horizon=7 * A_DAY)
    assert (ended.state, ended.days_left) == (ClockState.ENDED, None)
