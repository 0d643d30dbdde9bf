"""Run the default suite ten times, and stop at the first red run: `./dev test --prove`.

One run is in Auckland; one begins at 23:30 UTC on the last day of a month, one two minutes before clocks in Berlin are
set back; in three, other work loads the machine; in one, all processes are paused for six seconds at a time, as a host
pauses a virtual machine; three are as usual. Arguments are passed to pytest, in every run. The two runs at another time
leave out servers, browsers, installations, and tests of the times of files: libfaketime does not set the clock of the
file system."""

import calendar
import contextlib
import datetime
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from zoneinfo import ZoneInfo

import psutil

ROOT = Path(__file__).parents[1]
_SERVED = (
    *("-m", "not gpu and not soak and not service and not browser and not postgres and not rabbitmq and not redis"),
    *("--deselect", "tests/app/test_telemetry.py::test_only_recent_signs_of_life_count"),
    *("--deselect", "tests/app/vault/test_store.py::test_a_group_lists_only_its_names"),
    *("--deselect", "tests/deploy/test_compose.py::test_a_worker_is_checked_by_its_own_heartbeat"),
)
"""Arguments of pytest that select the tests that work under libfaketime."""
_HOUR = datetime.timedelta(hours=1)
_LOAD = ("stress-ng", "--quiet", "--cpu", "4")
_BETWEEN_PAUSES, _PAUSE = 20, 6
"""Seconds. A pause is longer than the tests' leases of five seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Circumstances that must not affect any result of the suite."""

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    is_loaded: bool = False
    is_paused: bool = False


def month_end(now: datetime.datetime) -> datetime.datetime:
    """Return 23:30 on the last day of the month of `now`."""
    return now.replace(day=calendar.monthrange(now.year, now.month)[1], hour=23, minute=30, second=0)


def change_of_clocks(now: datetime.datetime, zone: ZoneInfo) -> datetime.datetime:
    """Return the time two minutes before the clocks in `zone` are next set back. The change is assumed to happen on the
    hour, as in all of Europe."""
    hour = now.replace(minute=0, second=0, microsecond=0)
    while _offset(hour + _HOUR, zone) >= _offset(hour, zone):
        hour += _HOUR
    return hour + datetime.timedelta(minutes=58)


def _offset(time: datetime.datetime, zone: ZoneInfo) -> datetime.timedelta:
    return time.astimezone(zone).utcoffset() or datetime.timedelta(0)


def at(time: datetime.datetime, zone: str = "UTC") -> dict[str, str]:
    """Return the environment in which processes take `time` as the current time, in time zone `zone`. Intervals are
    unchanged."""
    package = importlib.util.find_spec("libfaketime")
    if package is None or package.origin is None:
        sys.exit("error: libfaketime is missing, whose wheel is for Linux on x86-64")
    library = Path(package.origin).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
    seconds = int((time - datetime.datetime.now(datetime.UTC)).total_seconds())
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{seconds:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "TZ": zone,
    }


def runs() -> Iterator[Circumstances]:
    """Yield the circumstances of each run. Clocks are set at the moment a run begins."""
    yield Circumstances(name="in Auckland", environment={"TZ": "Pacific/Auckland"})
    now = datetime.datetime.now(datetime.UTC)
    yield Circumstances(name="at the end of a month", environment=at(month_end(now)), arguments=_SERVED)
    change = change_of_clocks(datetime.datetime.now(datetime.UTC), ZoneInfo("Europe/Berlin"))
    yield Circumstances(name="while clocks are set back", environment=at(change, "Europe/Berlin"), arguments=_SERVED)
    for number in range(1, 4):
        yield Circumstances(name=f"beside other work, {number} of 3", is_loaded=True)
    yield Circumstances(name="with pauses", is_paused=True)
    for number in range(1, 4):
        yield Circumstances(name=f"as usual, {number} of 3")


@contextlib.contextmanager
def _loading(is_loaded: bool) -> Iterator[None]:
    if not is_loaded:
        yield
        return
    with subprocess.Popen(_LOAD) as load:
        try:
            yield
        finally:
            load.terminate()


def pause_repeatedly(process: subprocess.Popen[bytes]) -> None:
    """Pause `process` and its descendants every _BETWEEN_PAUSES seconds for _PAUSE seconds, until it ends."""
    first = psutil.Process(process.pid)
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_BETWEEN_PAUSES)
            return
        # Tests watch what they start, so they pause first, and go on last.
        found: dict[psutil.Process, bool] = {}
        try:
            while started := [one for one in (first, *_descendants(first)) if one not in found]:
                found |= {one: _suspend(one) for one in started}
            time.sleep(_PAUSE)
        finally:
            for one in reversed([one for one, is_paused in found.items() if is_paused]):
                with contextlib.suppress(psutil.Error):
                    one.resume()


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def _suspend(process: psutil.Process) -> bool:
    """Pause a process. Return False if it has ended, or if a test has paused it, which must not be undone."""
    with contextlib.suppress(psutil.Error):
        if process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
            process.suspend()
            return True
    return False


def main(arguments: list[str]) -> None:
    """Run the suite in all circumstances, or exit at the first failure with the name of its circumstances."""
    for number, circumstances in enumerate(runs(), 1):
        print(f"Run {number} of 10: {circumstances.name}", flush=True)
        with _loading(circumstances.is_loaded):
            command = ["./dev", "test", *circumstances.arguments, *arguments]
            with subprocess.Popen(command, cwd=ROOT, env=os.environ | circumstances.environment) as run:
                if circumstances.is_paused:
                    pause_repeatedly(run)
        if run.returncode != 0:
            sys.exit(f"error: run {number} of 10 is red: {circumstances.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
