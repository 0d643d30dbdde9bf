"""Report the time of a test run by file: `./dev test --durations-report`.

Next to the elapsed time it counts the processor time of the process that ran the tests and of ended processes that it
started, including those that `tests.faults.processes` forked. The children of a killed process are not counted."""

import resource
import time
from collections import Counter
from collections.abc import Generator, Iterable
from multiprocessing import forkserver

import psutil
import pytest

_FILES = 30
"""Number of files that are listed."""
_NAME = "seconds"


class Durations:
    """Measures each test in the process that runs it, and adds up the results."""

    def __init__(self) -> None:
        self._files: dict[str, Counter[str]] = {}
        self._began = (0.0, 0.0, 0.0)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._began = _now()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            spent = [after - before for before, after in zip(self._began, _now(), strict=True)]
            report.user_properties.append((_NAME, spent))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, spent in report.user_properties:
            if name == _NAME and report.when == "teardown":
                found = self._files.setdefault(report.nodeid.partition("::")[0], Counter())
                found.update(dict(zip(("wall", "own", "started"), spent, strict=True)) | {"tests": 1})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in table(self._files):
            terminalreporter.write_line(line)


def table(files: dict[str, Counter[str]]) -> Iterable[str]:
    """Return a Markdown table of the files that took the most processor time, and the total."""
    yield "| File | Tests | Wall s | Own CPU s | CPU s of what it started |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    most = sorted(files.items(), key=lambda found: -found[1]["own"] - found[1]["started"])
    for name, spent in [*most[:_FILES], ("all", sum(files.values(), Counter()))]:
        yield f"| {name} | {spent['tests']} | {spent['wall']:.0f} | {spent['own']:.1f} | {spent['started']:.1f} |"


def _now() -> tuple[float, float, float]:
    """Return the time in seconds: the clock, the processor time of this process, and that of its ended children."""
    own, started = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return time.monotonic(), own.ru_utime + own.ru_stime, started.ru_utime + started.ru_stime + _forked()


def _forked() -> float:
    """Return the processor time in seconds of the process that test services are forked from and of its ended
    children."""
    pid = forkserver._forkserver._forkserver_pid
    if pid is None:
        return 0.0
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)
