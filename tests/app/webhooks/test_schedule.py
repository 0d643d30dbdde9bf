import datetime
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.webhooks import schedule

SCHEDULED = [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400]


@pytest.mark.parametrize(("attempts", "seconds"), list(enumerate(SCHEDULED, start=1)))
def test_the_schedule_holds_on_average(attempts: int, seconds: int) -> None:
    """After each failed attempt the pause is spread over twice what is scheduled, and that is its mean."""
    random = Random(attempts)
    drawn = [schedule.next_attempt(attempts, random) for _ in range(10_000)]
    pauses = [pause.total_seconds() for pause in drawn if pause is not None]
    assert len(pauses) == len(drawn)
    assert 0 <= min(pauses) < 0.01 * seconds
    assert 1.99 * seconds < max(pauses) <= 2 * seconds
    assert sum(pauses) / len(pauses) == pytest.approx(seconds, rel=0.03)  # five standard deviations


def test_the_tenth_attempt_is_the_last() -> None:
    """A delivery that failed ten times, over about three days, is given up."""
    assert [schedule.next_attempt(attempts, Random(0)) is None for attempts in (9, 10, 11, 1000)] == [False] + [
        True
    ] * 3


@given(attempts=st.integers(1, 9), seed=st.integers(), asked=st.integers(0, 10**6))
def test_the_receiver_may_ask_for_more(attempts: int, seed: int, asked: int) -> None:
    """A receiver that says when to come back is not called before, unless it says more than two days."""
    retry_after = datetime.timedelta(seconds=asked)
    pause = schedule.next_attempt(attempts, Random(seed), retry_after=retry_after)
    alone = schedule.next_attempt(attempts, Random(seed))
    assert pause is not None
    assert alone is not None
    assert pause == min(max(alone, retry_after), datetime.timedelta(days=2))


@pytest.mark.parametrize("attempts", [0, -1])
def test_something_must_have_been_tried(attempts: int) -> None:
    """There is no next attempt before the first."""
    with pytest.raises(ValueError, match="attempts"):
        schedule.next_attempt(attempts, Random(0))
