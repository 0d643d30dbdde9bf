"""Periodic calls in one thread."""

import json
import threading
import time
from typing import Any

import pytest

from app import telemetry
from app.periodic import Periodic
from tests.faults.processes import wait_until

HOURS = 10_000.0


class Calls:
    """A function that counts its calls and can be made to take long or to fail."""

    def __init__(self) -> None:
        self.count = 0
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.may_end.set()
        self.fails = False

    def __call__(self) -> None:
        self.count += 1
        self.begun.set()
        assert self.may_end.wait(60)
        if self.fails:
            raise ValueError("jane.doe@example.org")


@pytest.fixture
def calls() -> Calls:
    return Calls()


def named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_the_function_is_called_until_the_block_ends(calls: Calls) -> None:
    """A periodic function is called repeatedly in a thread with the given name, and the thread ends with the `with`
    block."""
    with Periodic("often", calls, seconds=0.01):
        wait_until(lambda: calls.count > 3)
        assert [thread.daemon for thread in named("often")] == [True]
    assert named("often") == []
    count = calls.count
    time.sleep(0.05)
    assert calls.count == count


def test_the_first_call_waits(calls: Calls) -> None:
    """The periodic function is first called after one interval. Stopping the thread before then does not wait for that
    call."""
    began = time.monotonic()
    with Periodic("rare", calls, seconds=HOURS):
        time.sleep(0.05)
    assert (calls.count, named("rare")) == (0, [])
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("seconds", [HOURS, None])
def test_a_wake_up_triggers_a_call_at_once(calls: Calls, seconds: float | None) -> None:
    """A wake-up makes the thread call the function at once. Without an interval, only wake-ups trigger calls."""
    with Periodic("woken", calls, seconds=seconds) as periodic:
        for count in (1, 2):
            periodic.wake()
            wait_until(lambda count=count: calls.count == count)


def test_a_wake_up_before_the_start_is_not_lost(calls: Calls) -> None:
    """A thread that was woken before its start calls the function as soon as it starts."""
    periodic = Periodic("early", calls, seconds=HOURS)
    periodic.wake()
    with periodic:
        wait_until(lambda: calls.count == 1)


def test_a_wake_up_during_a_call_is_not_lost(calls: Calls) -> None:
    """A wake-up during a call leads to one more call."""
    calls.may_end.clear()
    with Periodic("busy", calls, seconds=None) as periodic:
        periodic.wake()
        assert calls.begun.wait(60)
        periodic.wake()
        calls.may_end.set()
        wait_until(lambda: calls.count == 2)


def test_a_stop_waits_for_the_call_in_progress(calls: Calls) -> None:
    """Stopping the thread waits for the call in progress, and no other call begins."""
    calls.may_end.clear()
    periodic = Periodic("busy", calls, seconds=None).start()
    periodic.wake()
    assert calls.begun.wait(60)
    stopping = threading.Thread(target=periodic.stop)
    stopping.start()
    stopping.join(0.05)
    assert stopping.is_alive()
    calls.may_end.set()
    stopping.join(60)
    assert (stopping.is_alive(), calls.count, named("busy")) == (False, 1, [])


def test_a_function_can_stop_its_own_thread() -> None:
    """A function that stops its own thread is not called again."""
    counted: list[int] = []

    def call() -> None:
        counted.append(1)
        periodic.stop()

    periodic = Periodic("once", call, seconds=0.01)
    periodic.start()
    wait_until(lambda: named("once") == [])
    assert counted == [1]


def test_a_failure_is_logged_by_its_class(calls: Calls, capsys: Any) -> None:
    """If a call fails, the error's class is logged without its message, and only once until a call succeeds. Failures
    do not prevent later calls."""
    telemetry.configure("info")
    with Periodic("fails", calls, seconds=0.01):
        for fails in (True, False, True):
            calls.fails, before = fails, calls.count
            wait_until(lambda before=before: calls.count > before + 2)
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(one["event"], one["name"], one["error"]) for one in said] == [
        ("periodic.call_failed", "fails", "ValueError")
    ] * 2
    assert "jane" not in str(said)
