"""Formats of numbers, times and deadlines."""

import datetime
import math

from app.features.desk import wording
from lethe.contract.deletion_requests import ClockOut
from lethe.contract.sets import ClockState
from tests.tables import each

AT = datetime.datetime(2026, 11, 21, 22, 42, 5, tzinfo=datetime.UTC)


@each(
    ("value", "text"),
    [
        (12116, "12,116"),
        (0.99984, "0.9998"),
        (2.1562, "2.156"),
        (0.0, "0.0000"),
        (1.0865e-05, "1.087 × 10⁻⁵"),
        (3e12, "3.000 × 10¹²"),
        (float("inf"), "∞"),
        (float("nan"), "not a number"),
    ],
)
def test_numbers_have_four_significant_digits(value: float, text: str) -> None:
    """Whole numbers are shown in full, and other numbers with four significant digits."""
    assert wording.number(value) == text


@each(("value", "text"), [(0.0, "0"), (1.0, "1"), (0.5, "0.5"), (1e-7, "1.000 × 10⁻⁷")])
def test_chosen_numbers_are_unchanged(value: float, text: str) -> None:
    """A value that a user chose is shown as the user entered it."""
    assert wording.given(value) == text


@each(
    ("value", "text"),
    [(0.98551, "0.9856"), (1.0, "1.000"), (0.1, "0.1000"), (1695.2, "1,696"), (123456.4, "123,457"), (0.0, "0.0000"),
     (1.00001e-9, "1.001 × 10⁻⁹"), (math.inf, "∞")],
)  # fmt: skip
def test_upper_bounds_are_rounded_up(value: float, text: str) -> None:
    """An upper bound is rounded up, so the shown number is never smaller than the bound."""
    assert wording.at_most(value) == text


@each(
    ("seconds", "text"),
    [(0, "0 s"), (0.25, "250 ms"), (90, "90 s"), (600, "10 min"), (7200, "2 h"), (864000, "10 days")],
)
def test_durations_have_their_natural_unit(seconds: float, text: str) -> None:
    """A duration is shown in the unit that suits its length, such as seconds, minutes or days."""
    assert wording.duration(seconds) == text


@each(
    ("state", "days", "text"),
    [
        (ClockState.ON_TIME, 12, "12 days left"),
        (ClockState.AT_RISK, 1, "1 day left"),
        (ClockState.AT_RISK, 0, "less than a day left"),
        (ClockState.OVERDUE, -3, "2 days overdue"),
        (ClockState.OVERDUE, -2, "1 day overdue"),
        (ClockState.OVERDUE, -1, "overdue"),
        (ClockState.PAUSED, 3, "clock paused"),
        (ClockState.ENDED, None, "ended"),
    ],
)
def test_deadlines_are_in_whole_days(state: ClockState, days: int | None, text: str) -> None:
    """A deadline is shown in whole days, as an officer counts them: a request is one day late once a day has passed."""
    assert wording.left(ClockOut(state=state, deadline=AT, paused_since=None, days_left=days)) == text


@each(
    ("zone", "day", "there"),
    [
        ("UTC", "21 Nov 2026", "2026-11-21 22:42:05"),
        ("Pacific/Auckland", "22 Nov 2026", "2026-11-22 11:42:05"),
        ("Pacific/Honolulu", "21 Nov 2026", "2026-11-21 12:42:05"),
    ],
)
def test_legal_dates_are_in_the_zone_of_the_policy(zone: str, day: str, there: str) -> None:
    """A legal date is shown in the policy's time zone, which is named next to the date, and scripts do not convert the
    date."""
    shown = wording.legal(AT, zone)
    assert f'>{day} <span class="zone">{zone}</span><' in shown
    assert f'title="{there}, {zone}"' in shown
    assert "data-local" not in shown


def test_times_are_in_utc() -> None:
    """Without scripts a time is shown in UTC. The tooltip always shows UTC."""
    shown = wording.moment(AT.astimezone(datetime.timezone(datetime.timedelta(hours=5))))
    assert 'datetime="2026-11-21T22:42:05+00:00"' in shown
    assert 'title="2026-11-21 22:42:05 UTC"' in shown
    assert ">21 Nov 2026, 22:42 UTC<" in shown
    assert 'aria-label="none"' in wording.moment(None)


def test_an_unknown_status_is_shown_by_its_code() -> None:
    """A status without a label is shown by its code."""
    assert wording.state("running").label == "Running"
    assert wording.state("never_heard_of").label == "Never heard of"


@each(
    ("part", "whole", "text"),
    [
        (0, 10, "0 %"),
        (1, 10_000, "less than 0.1 %"),
        (3, 200, "1.5 %"),
        (50, 200, "25 %"),
        (2, 2, "100 %"),
        (0, 0, "0 %"),
    ],
)
def test_a_small_share_is_not_zero(part: float, whole: float, text: str) -> None:
    """A non-zero share is never displayed as zero."""
    assert wording.percent(part, whole) == text


def test_times_given_as_text_are_formatted() -> None:
    """A time that is given as text is formatted like any other time."""
    assert wording.written("2026-11-21T22:42:05.123456+00:00") == wording.moment(AT)
