"""The planner: the fewest retrainings that meet every due date."""

import datetime
import itertools

from hypothesis import given, settings, strategies as st

from app.features.trainers import planner
from app.features.trainers.planner import RetrainingWait

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def after(seconds: int) -> datetime.datetime:
    return NOW + datetime.timedelta(seconds=seconds)


def waits(*intervals: tuple[int, int]) -> list[RetrainingWait]:
    return [
        RetrainingWait(request_id=f"dr_{index}", ready_at=after(ready), due_at=after(due))
        for index, (ready, due) in enumerate(intervals)
    ]


def test_one_retraining_serves_overlapping_requests() -> None:
    """Requests whose time windows overlap share one retraining, which starts as late as the earliest due date
    permits."""
    [planned] = planner.plan(waits((0, 100), (50, 200), (60, 90)), at=NOW, expected_seconds=10, max_wait_seconds=1000)
    assert (planned.start_by, planned.due_at, planned.is_late) == (after(70), after(90), False)
    assert sorted(planned.request_ids) == ["dr_0", "dr_1", "dr_2"]


def test_a_retraining_that_misses_its_due_date_is_late() -> None:
    """A retraining that can no longer finish by its due date starts immediately and is marked as late."""
    [planned] = planner.plan(waits((0, 5)), at=NOW, expected_seconds=10, max_wait_seconds=1000)
    assert (planned.start_by, planned.is_late) == (NOW, True)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=6))
def test_no_plan_has_fewer_retrainings(drawn: list[tuple[int, int]]) -> None:
    """The plan serves each request exactly once and within its time window, and no valid plan has fewer retrainings."""
    requests = waits(*((ready, ready + length) for ready, length in drawn))
    planned = planner.plan(requests, at=NOW, expected_seconds=0, max_wait_seconds=1000)
    times = {id_: one.start_by for one in planned for id_ in one.request_ids}
    assert sorted(times) == [wait.request_id for wait in requests]
    assert all(wait.ready_at <= times[wait.request_id] <= wait.due_at for wait in requests)
    ends = [wait.due_at for wait in requests]
    for fewer in itertools.combinations(ends, len(planned) - 1):
        assert not all(any(wait.ready_at <= at <= wait.due_at for at in fewer) for wait in requests)
