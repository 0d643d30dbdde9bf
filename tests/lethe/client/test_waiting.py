"""Waiting, tested with a server whose models take as long as the test needs."""

import statistics
import time
from typing import Any

import pytest

from lethe import Client
from lethe.client.waiting import Watch
from lethe.errors import Problem, WaitTimedOut
from tests.lethe.client.test_http import REQUEST, problem
from tests.lethe.scripted import Reply, Script

RUN = {
    "id": "run_1",
    "kind": "unlearn",
    "status": "running",
    "dataset_id": "ds_1",
    "model_id": "mdl_1",
    "steps_done": 30,
    "seconds_left": None,
    "expected_at": None,
    "steps_total": 100,
    "records": 1,
    "reason": "",
    "worker": "w",
    "started_at": "2026-01-01T00:00:00Z",
    "finished_at": None,
    "error_code": None,
    "repeated": 0,
    "audit": None,
}
OWED = {"model_id": "mdl_1", "status": "running", "run_id": "run_1", "version": None, "certificate_id": None}
PENDING = OWED | {"status": "pending", "run_id": None}
ESTIMATE = {"steps": 50, "models": [{"model_id": "mdl_1", "kind": "unlearn", "steps": 50}]}
ACCEPTED = Reply(body=REQUEST | {"status": "accepted", "estimate": ESTIMATE, "models": [PENDING]})
RUNNING = Reply(body=REQUEST | {"status": "running", "estimate": ESTIMATE, "models": [OWED]})
COMPLETED = Reply(body=REQUEST | {"status": "completed", "models": [OWED | {"status": "completed"}]})


def test_progress_of_a_request_is_reported(script: Script, scripted_client: Client) -> None:
    """The reported progress starts with the estimated number of steps and continues with the numbers that the runs
    report. A run that has ended is not fetched again."""
    over = Reply(body=RUN | {"steps_done": 100, "finished_at": "2026-01-01T00:01:00Z"})
    script.says(ACCEPTED, RUNNING, Reply(body=RUN), RUNNING, over, COMPLETED)
    seen: list[Any] = []
    found = scripted_client.deletion_requests.wait("dr_1", progress=lambda *state: seen.append(state))
    assert found.status == "completed"
    assert seen == [("accepted", 0, 50), ("running", 30, 100), ("running", 100, 100), ("completed", 100, 100)]
    assert len(script.calls) == 6


def test_progress_needs_the_scope_for_runs(script: Script, scripted_client: Client) -> None:
    """Without the scope models:read, progress shows only the status, and the run is fetched only once."""
    script.says(RUNNING, problem(403, code="scope_missing"), RUNNING, COMPLETED)
    seen: list[Any] = []
    scripted_client.deletion_requests.wait("dr_1", progress=lambda *state: seen.append(state))
    assert seen == [("running", 0, None), ("running", 0, None), ("completed", 0, None)]


@pytest.mark.parametrize("status", ["completed", "cancelled", "rejected"])
def test_waiting_ends_with_any_final_status(script: Script, scripted_client: Client, status: str) -> None:
    """Waiting for a request ends when the request reaches any final status."""
    script.says(RUNNING, Reply(body=REQUEST | {"status": status}))
    assert scripted_client.deletion_requests.wait("dr_1").status == status
    assert len(script.calls) == 2


def test_a_failed_poll_is_repeated(script: Script, scripted_client: Client) -> None:
    """A poll that is dropped or temporarily refused is repeated."""
    script.says(RUNNING, Reply(drop=True), problem(503), RUNNING, COMPLETED)
    assert scripted_client.deletion_requests.wait("dr_1").status == "completed"


def test_waiting_times_out(script: Script, scripted_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `timeout_seconds`, waiting raises an error that is also a TimeoutError and contains the current state."""
    # A busy machine may take longer for one response than the timeout for a gateway.
    monkeypatch.setattr("lethe.client.waiting._MIN_POLL_SECONDS", 60.0)
    script.says(RUNNING)
    began = time.monotonic()
    with pytest.raises(TimeoutError) as late:
        scripted_client.deletion_requests.wait("dr_1", timeout_seconds=0.4)
    assert 0.4 <= time.monotonic() - began < 30.0
    assert isinstance(late.value, WaitTimedOut)
    assert isinstance(late.value, Problem)
    assert late.value.line == "wait_timed_out: deletion request dr_1 is running after 0.4 seconds."
    with pytest.raises(WaitTimedOut):
        scripted_client.deletion_requests.wait("dr_1", timeout_seconds=0.0)


@pytest.mark.slow
def test_an_unreachable_gateway_does_not_prolong_waiting(script: Script) -> None:
    """If the gateway is unreachable, waiting exceeds its timeout by at most one last poll."""
    script.says(Reply(drop=True))
    began = time.monotonic()
    with Client(script.url, "k", retry_seconds=60.0) as client, pytest.raises(Problem):
        client.deletion_requests.wait("dr_1", timeout_seconds=0.1)
    assert time.monotonic() - began < 40.0


@pytest.mark.slow
def test_pauses_grow(script: Script, scripted_client: Client) -> None:
    """The pause between polls grows to as much as a quarter of the time waited so far, so that long runs are polled
    rarely."""
    script.says(RUNNING)
    with pytest.raises(WaitTimedOut):
        scripted_client.deletion_requests.wait("dr_1", timeout_seconds=3.0)
    assert 4 <= len(script.calls) <= 20


def test_the_first_pause_is_short() -> None:
    """The first pause is so short that waiting for a task that takes a twentieth of a second ends quickly."""
    pauses = []
    for _ in range(9):
        watch = Watch(subject="it", timeout_seconds=None)
        pauses.append(watch.pause(status="learning"))
        assert watch.left is None
    assert 0.05 <= min(pauses) <= statistics.median(pauses) < 0.5  # the machine itself may sometimes be late
