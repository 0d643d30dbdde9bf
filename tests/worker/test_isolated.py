"""A run's separate process: its messages, and what remains after it is killed."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import sqlalchemy as sa
from pydantic import ValidationError

from app.config import Settings
from app.db.tables import Run
from app.installations import Installation
from app.rows.row_store import OpenedRows
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism
from tests.faults import processes
from tests.faults.checks import assert_all_done_once
from tests.faults.processes import wait_until
from tests.stored import held_in_memory
from worker import chain_process, isolated, runner
from worker.isolated import DIED, ChainFailed
from worker.langevin.window import BLOCK_ROWS

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]

NUM_ROWS, NUM_COLUMNS = 2 * BLOCK_ROWS + 700, 6


def _mechanism(**changed: Any) -> Mechanism:
    settings = {
        "objective": Objective.LOGISTIC_REGRESSION,
        "num_slots": NUM_ROWS,
        "num_classes": 3,
        "l2": 0.01,
        "step_size": 2.0,
        "noise_scale": 0.01,
        "radius": 10.0,
        "learn_steps": 10,
        "grid": 2.0**-40,
        "num_parameters": 3 * NUM_COLUMNS,
    }
    return Mechanism(**settings | changed)


@pytest.fixture
def rows() -> Iterator[OpenedRows]:
    """Yield rows of three classes that fill more than two blocks."""
    generator = np.random.default_rng(0)
    features = generator.standard_normal((NUM_ROWS, NUM_COLUMNS)).astype(np.float32)
    features /= 1.001 * np.linalg.norm(features, axis=1, keepdims=True)
    labels = features[:, :3].argmax(axis=1).astype(np.int32)
    with held_in_memory(features, labels) as rows:
        yield rows


def test_a_run_returns_iterate_counts_and_mechanism(rows: OpenedRows) -> None:
    """A run returns a new iterate, the counted numbers of steps and records, and the mechanism that it used."""
    mechanism, initial = _mechanism(), np.zeros((3, NUM_COLUMNS))
    found = [
        isolated.run(mechanism, rows=rows, initial=initial, steps=5, on_progress=lambda steps_done: None)
        for _ in range(2)
    ]
    assert {(ran.steps, ran.records, ran.mechanism) for ran in found} == {(5, NUM_ROWS, mechanism)}
    assert found[0].parameters.shape == initial.shape
    assert not np.array_equal(found[0].parameters, found[1].parameters)  # the runs draw different noise
    assert not initial.any()
    assert _processes_of_runs() == []


@pytest.mark.slow
def test_concurrent_runs_are_independent(rows: OpenedRows) -> None:
    """Concurrent runs use separate processes and do not disturb each other."""
    mechanism, initial = _mechanism(), np.zeros((3, NUM_COLUMNS))

    def run(steps: int) -> int:
        ran = isolated.run(mechanism, rows=rows, initial=initial, steps=steps, on_progress=lambda steps_done: None)
        return ran.steps

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(run, range(1, 9))) == list(range(1, 9))
    assert _processes_of_runs() == []


def test_a_run_reports_progress_and_can_be_stopped(rows: OpenedRows) -> None:
    """While it is in progress, a run reports an increasing number of steps. An exception in the callback ends the run
    and its process."""
    counts: list[int] = []

    class Enough(Exception):
        pass

    def progressed(steps_done: int) -> None:
        counts.append(steps_done)
        if steps_done > 100 and len(set(counts)) > 2:
            raise Enough

    with pytest.raises(Enough):
        isolated.run(_mechanism(), rows=rows, initial=np.zeros((3, NUM_COLUMNS)), steps=10**9, on_progress=progressed)
    assert counts == sorted(counts)
    assert _processes_of_runs() == []


def test_an_error_reports_only_its_name(rows: OpenedRows) -> None:
    """A run that fails reports the name of the exception and nothing about the data."""
    with pytest.raises(ChainFailed) as failed:
        isolated.run(
            _mechanism(),
            rows=rows,
            initial=np.full((3, NUM_COLUMNS), 1e9),
            steps=5,
            on_progress=lambda steps_done: None,
        )
    assert (failed.value.code, str(failed.value)) == ("ValueError", "ValueError")


def _processes_of_runs() -> list[psutil.Process]:
    """Return the processes of runs started by this process that still exist."""
    found = []
    for server in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # the process has ended in the meantime
            if "worker.chain_process" in " ".join(server.cmdline()):
                children = [child for child in server.children() if child.status() != psutil.STATUS_ZOMBIE]
                # Until its first fork it has the threads that libraries start on import.
                assert not children or server.num_threads() == 1
                found += children
    return found


def test_a_killed_process_fails_the_run_within_seconds(rows: OpenedRows) -> None:
    """If a run's process is killed with SIGKILL at any point, the run fails cleanly within seconds."""
    for steps_before in (0, 50):
        killed: list[bool] = []

        def progressed(steps_done: int) -> None:
            there = _processes_of_runs()
            if not killed and there and steps_done >= steps_before:  # noqa: B023
                there[0].kill()
                killed.append(True)  # noqa: B023

        with pytest.raises(ChainFailed) as failed:
            isolated.run(
                _mechanism(), rows=rows, initial=np.zeros((3, NUM_COLUMNS)), steps=10**9, on_progress=progressed
            )
        assert failed.value.code == DIED
        assert _processes_of_runs() == []


def _files(installation: Installation) -> set[Path]:
    return {path for path in installation.settings.data_dir.rglob("*") if not path.name.startswith("lethe.db")}


def test_a_killed_run_leaves_nothing_and_is_repeated(
    installation: Installation, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """If a run's process is killed, the run fails without leaving a process or file behind. It is then repeated and
    published."""
    dataset = new_dataset(rows=BLOCK_ROWS + 400)
    model = new_model(dataset["id"], l2=3e-4, noise_scale=0.005)
    before = _files(installation)

    def kill() -> None:
        wait_until(_processes_of_runs)[0].kill()

    killing = threading.Thread(target=kill)
    killing.start()
    assert runner.run_next(installation, worker="w") is True
    killing.join()
    assert _processes_of_runs() == []
    assert _files(installation) == before
    [run] = get("/runs")["items"]
    assert (run["status"], get(f"/models/{model['id']}")["error_code"]) == ("failed", DIED)
    wait_until(work)
    request = forget("p3")
    assert work() == 1
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    assert_all_done_once(installation)
    with installation.database.reading() as session:
        statuses = list(session.scalars(sa.select(Run.status).order_by(Run.started_at)))
    assert statuses == ["failed", "published", "published"]


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cuda: 1", ""])
def test_an_unknown_device_is_refused(device: str) -> None:
    """A setting is refused if it names a device that does not exist."""
    with pytest.raises(ValidationError, match="device"):
        Settings(device=device)


@pytest.mark.soak
@pytest.mark.service
@pytest.mark.parametrize(
    ("command", "device"), [(("-m", "worker", "w"), "cuda:99"), (("-c", "import worker.celery_app"), "gpu")]
)
def test_an_unusable_device_is_reported_in_one_line(tmp_path: Path, command: tuple[str, ...], device: str) -> None:
    """A worker that cannot use its device exits immediately with a one-line error that names the setting."""
    done = subprocess.run(
        [sys.executable, *command],
        env=processes.environment_of(tmp_path, device=device, broker_url="redis://127.0.0.1:1/0"),
        cwd=os.path.sep,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("settings_invalid: LETHE_DEVICE ")
    assert done.stderr.count("\n") == 1


def test_no_step_is_taken_until_progress_is_handled() -> None:
    """A run takes no further step while the parent process is handling a progress report."""
    mine, theirs = Pipe()
    progressed = chain_process._news(theirs, seconds_between=0.0)
    telling = threading.Thread(target=progressed, args=(1,))
    with mine, theirs:
        telling.start()
        assert mine.recv_bytes() == b"1"
        telling.join(0.2)
        assert telling.is_alive()
        mine.send_bytes(b"")
        telling.join(60)
        assert not telling.is_alive()
