import datetime
import email.utils
import time

import pytest
from hypothesis import example, given, strategies as st

from lethe.client.waiting import Patience, pause_before, retry_after_in


@given(attempt=st.integers(0, 10_000), retry_after=st.none() | st.floats(0, 3600))
def test_a_pause_honours_retry_after(attempt: int, retry_after: float | None) -> None:
    """A pause is at least as long as the server requests, and at most 5 seconds longer than that."""
    pause = pause_before(attempt, retry_after)
    assert (retry_after or 0.0) < pause <= (retry_after or 0.0) + 5.0


def test_pauses_double_and_are_random() -> None:
    """The maximum pause doubles with every attempt, and each pause is drawn at random between half the maximum
    and the maximum."""
    for attempt in range(5):
        pauses = [pause_before(attempt, None) for _ in range(50)]
        assert 0.05 * 2**attempt <= min(pauses) <= max(pauses) <= 0.1 * 2**attempt
        assert len(set(pauses)) > 1


@given(st.integers(0, 100_000))
def test_retry_after_in_seconds_is_parsed(seconds: int) -> None:
    """A number in Retry-After is parsed as a pause in seconds."""
    assert retry_after_in(str(seconds)) == float(seconds)


@pytest.mark.parametrize(("ahead", "least", "most"), [(3600, 3500, 3600), (-3600, 0, 0)])
def test_retry_after_as_a_date_is_parsed(ahead: int, least: float, most: float) -> None:
    """A date in Retry-After is parsed as the number of seconds until that date, or 0 if it has passed."""
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=ahead)
    for text in (email.utils.format_datetime(moment, usegmt=True), email.utils.format_datetime(moment)):
        found = retry_after_in(text)
        assert found is not None
        assert least <= found <= most


@example("Mon, 1 Jan 99999999999999999999 1:1:1 +0000")
@example("Mon, 1 Jan 2020 1:1:1 +99999999999999999999")
@example("Fri, 31 Dec 9999 23:59:59 -2359")
@given(st.none() | st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ \d+:\d+:\d+ [+-]?\w+"))
def test_any_retry_after_is_parsed_or_ignored(text: str | None) -> None:
    """Any value of Retry-After is parsed as seconds or ignored."""
    found = retry_after_in(text)
    assert found is None or found >= 0.0


@pytest.mark.slow
def test_attempts_end_with_the_time_limit() -> None:
    """The client makes several attempts but starts none after the time limit. It then raises the last failure without
    pausing again."""
    patience, began, attempts = Patience(seconds=2.0), time.monotonic(), 0
    while (pause := patience.next(None)) is not None:
        time.sleep(pause)
        attempts += 1
        assert time.monotonic() - began < 4.0
    assert 2 <= attempts <= 5
    refused_at = time.monotonic()
    assert patience.next(60.0) is None
    assert time.monotonic() - refused_at < 20.0
    assert Patience(seconds=0.0).next(None) is None
