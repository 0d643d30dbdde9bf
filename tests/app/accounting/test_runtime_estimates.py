"""Runtime estimates: a line fitted to the measured runs."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from app.accounting import runtime_estimates
from app.accounting.runtime_estimates import RuntimeEstimate
from app.db.tables import Model, Run
from app.installations import Installation


@given(per_run=st.floats(0, 100), per_step=st.floats(1e-6, 1), steps=st.lists(st.integers(1, 10**5), min_size=2))
def test_constant_and_step_time_are_recovered(per_run: float, per_step: float, steps: list[int]) -> None:
    """The constant time per run and the time per step are recovered from the durations of past runs. If all past runs
    took the same number of steps, only the duration of such a run is recovered."""
    found = RuntimeEstimate.through([(taken, per_run + per_step * taken) for taken in steps])
    assert found is not None
    assert found.runs == len(steps)
    for taken in steps:
        assert found.seconds(taken) == pytest.approx(per_run + per_step * taken, rel=1e-3, abs=1e-3)


@given(measured=st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 10**6)), min_size=1))
def test_estimates_are_never_negative(measured: list[tuple[int, float]]) -> None:
    """The estimated seconds per run and per step are never negative."""
    found = RuntimeEstimate.through(measured)
    assert found is not None
    assert min(found.seconds_per_run, found.seconds_per_step) >= 0


def test_the_constant_time_is_counted_for_each_run_of_a_batch() -> None:
    """The estimate for a batch includes the constant time once per run."""
    assert RuntimeEstimate(seconds_per_run=2.0, seconds_per_step=0.5, runs=3).seconds(10, runs=4) == 13.0


def test_a_model_without_runs_has_no_estimate(
    installation: Installation,
    new_dataset: Callable[..., dict[str, Any]],
    new_model: Callable[..., dict[str, Any]],
    work: Callable[[], int],
) -> None:
    """A model that has never run has no estimate; after its first run, the estimate is based on that run."""
    model = new_model(new_dataset()["id"])
    with installation.database.reading() as session:
        assert runtime_estimates.of_model(session, session.get_one(Model, model["id"])) is None
    work()
    with installation.database.reading() as session:
        found = runtime_estimates.of_model(session, session.get_one(Model, model["id"]))
    assert found is not None
    assert (found.runs, found.seconds_per_run) == (1, 0.0)
    assert found.seconds_per_step > 0


def test_a_current_run_has_an_estimate_of_its_remaining_time(
    installation: Installation,
    new_dataset: Callable[..., dict[str, Any]],
    new_model: Callable[..., dict[str, Any]],
    work: Callable[[], int],
) -> None:
    """Without past runs, a run's remaining time is estimated from the run's own speed once it has taken its first step.
    With past runs, there is an estimate from the start, which decreases as the run proceeds. Canary tests and ended
    runs have no estimate."""
    model = new_model(new_dataset()["id"])
    began = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    after_ten = began + datetime.timedelta(seconds=10)

    def left(**about: Any) -> float | None:
        run = Run(**({"kind": "learn", "status": "running", "model_id": model["id"], "steps_total": 100} | about))
        run.started_at = began
        with installation.database.reading() as session:
            return runtime_estimates.seconds_left(session, run, at=after_ten)

    assert left(steps_done=0) is None
    assert left(steps_done=25) == 30
    work()
    with installation.database.reading() as session:
        found = runtime_estimates.of_model(session, session.get_one(Model, model["id"]))
    assert found is not None
    assert left(steps_done=0) == found.seconds(100)
    assert left(steps_done=75) == pytest.approx(0.25 * (10 + 0.25 * found.seconds(100)))
    assert left(steps_done=100) == 0
    assert left(steps_done=0, kind="audit") is None
    assert left(steps_done=50, status="failed") is None
    assert left(steps_done=0, steps_total=0) is None
