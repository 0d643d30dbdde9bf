import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.deletion.deadlines import Regulation, due_at


@pytest.mark.parametrize(
    ("regulation", "submitted", "due"),
    [
        (Regulation.GDPR, "2026-01-15", "2026-02-15"),
        (Regulation.GDPR, "2026-01-31", "2026-02-28"),  # no such day: the last of the month
        (Regulation.GDPR, "2028-01-31", "2028-02-29"),
        (Regulation.GDPR, "2026-12-31", "2027-01-31"),
        (Regulation.GDPR, "2026-02-28", "2026-03-28"),
        (Regulation.CCPA, "2026-01-01", "2026-02-15"),
        (Regulation.CCPA, "2028-02-01", "2028-03-17"),
        (Regulation.OTHER, "2026-01-31", "2026-03-02"),
    ],
)
def test_time_limits(regulation: Regulation, submitted: str, due: str) -> None:
    """A calendar month under the GDPR, 45 days under the CCPA, 30 days otherwise, at the same time of day."""
    at = datetime.datetime.fromisoformat(f"{submitted}T13:45:00+00:00")
    assert due_at(regulation, at) == datetime.datetime.fromisoformat(f"{due}T13:45:00+00:00")


MOMENTS = st.datetimes(
    min_value=datetime.datetime(1970, 1, 1),  # noqa: DTZ001  made aware below
    max_value=datetime.datetime(9000, 1, 1),  # noqa: DTZ001
    timezones=st.just(datetime.UTC),
)


@given(regulation=st.sampled_from(Regulation), at=MOMENTS)
def test_a_deadline_is_four_weeks_to_seven_away(regulation: Regulation, at: datetime.datetime) -> None:
    """Whatever the day, the deadline is between 28 and 45 days away."""
    assert datetime.timedelta(days=28) <= due_at(regulation, at) - at <= datetime.timedelta(days=45)


@given(regulation=st.sampled_from(Regulation), one=MOMENTS, other=MOMENTS)
def test_who_asks_first_is_due_first(regulation: Regulation, one: datetime.datetime, other: datetime.datetime) -> None:
    """A later request is never due on an earlier day."""
    first, second = sorted((one, other))
    assert due_at(regulation, first).date() <= due_at(regulation, second).date()
