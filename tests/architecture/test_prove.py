"""The runs of `./dev test --prove`."""

import datetime
import subprocess
from zoneinfo import ZoneInfo

import psutil
import pytest

from tests import prove
from tests.faults.processes import wait_until


def test_prove_runs_the_suite_ten_times() -> None:
    """The suite runs ten times. Three of the runs are under load, in one all processes are paused repeatedly, and two
    have their clock set to another time."""
    runs = list(prove.runs())
    assert len({run.name for run in runs}) == 10
    assert sum(run.is_loaded for run in runs) == 3
    assert sum(run.is_paused for run in runs) == 1
    assert sum("FAKETIME" in run.environment for run in runs) == 2


def test_a_paused_run_ends_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is paused with the processes that it started, goes on with them, and ends with its own exit code."""
    monkeypatch.setattr(prove, "_BETWEEN_PAUSES", 0.05)
    monkeypatch.setattr(prove, "_PAUSE", 0.05)
    paused = []
    suspend = prove._suspend

    def suspend_then_end(process: psutil.Process) -> bool:
        done = suspend(process)
        paused.append(process.pid)
        if process.pid != run.pid:
            process.kill()
        return done

    monkeypatch.setattr(prove, "_suspend", suspend_then_end)
    with subprocess.Popen(["sh", "-c", "sleep 600; exit 7"]) as run:
        prove.pause_repeatedly(run)
    assert run.returncode == 7
    assert run.pid in paused
    assert len(set(paused)) == 2


def test_a_process_paused_by_a_test_is_left_alone() -> None:
    """Only running processes are paused, so that a process that a test has paused is not resumed with them."""
    with subprocess.Popen(["sleep", "600"]) as child:
        process = psutil.Process(child.pid)
        try:
            assert prove._suspend(process)
            wait_until(lambda: process.status() == psutil.STATUS_STOPPED)
            assert not prove._suspend(process)
        finally:
            child.kill()
    assert not prove._suspend(process)


@pytest.mark.parametrize(("day", "last"), [("2026-11-28", "2026-11-30"), ("2028-02-01", "2028-02-29")])
def test_month_end_is_shortly_before_midnight(day: str, last: str) -> None:
    """The end of a month is half an hour before midnight on its last day."""
    now = datetime.datetime.fromisoformat(f"{day}T09:00Z")
    assert prove.month_end(now) == datetime.datetime.fromisoformat(f"{last}T23:30Z")


@pytest.mark.parametrize(("day", "changed"), [("2026-11-28", "2027-10-31"), ("2026-03-01", "2026-10-25")])
def test_clocks_go_back_on_the_last_sunday_of_october(day: str, changed: str) -> None:
    """In Berlin the clocks go back at 01:00 UTC on the last Sunday of October."""
    now = datetime.datetime.fromisoformat(f"{day}T09:00Z")
    before = prove.change_of_clocks(now, ZoneInfo("Europe/Berlin"))
    assert before == datetime.datetime.fromisoformat(f"{changed}T00:58Z")
