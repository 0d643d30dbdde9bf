"""A run's processes: what they are told and say, how they share the rows, and what is left when one is killed."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import sqlalchemy as sa
import torch
from fastapi.testclient import TestClient
from pydantic import ValidationError

from app.config import Settings
from app.db.tables import Run
from app.installation import Installation
from app.privacy.mechanism import Mechanism, Objective
from app.registry.rows import Rows, held_in_memory
from tests.faults import processes
from tests.faults.checks import assert_all_done_once
from tests.faults.processes import wait_until
from tests.worker.langevin.conftest import ReplayableNoise
from worker import ranks, runner
from worker.langevin import chain
from worker.langevin.gradient import BLOCK_ROWS
from worker.langevin.ranks import LinkedRanks, RankLost, links
from worker.ranks import DIED, ChainFailed

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
def rows(tmp_path: Path) -> Iterator[Rows]:
    """Rows of three classes, more than two blocks; in files too, for processes of these tests."""
    generator = np.random.default_rng(0)
    features = generator.standard_normal((NUM_ROWS, NUM_COLUMNS)).astype(np.float32)
    features /= 1.001 * np.linalg.norm(features, axis=1, keepdims=True)
    labels = features[:, :3].argmax(axis=1).astype(np.int32)
    features.tofile(tmp_path / "features")
    labels.tofile(tmp_path / "labels")
    with held_in_memory(features, labels) as rows:
        yield rows


def _chain(rows: Rows, *, shard: slice, steps: int, noise: ReplayableNoise | None, **shared: Any) -> Any:
    mechanism = _mechanism()
    names = ("num_slots", "num_classes", "l2", "step_size", "noise_scale", "radius", "grid")
    return chain.run(
        features=rows.features[shard],
        labels=rows.labels[shard],
        initial=np.full((3, NUM_COLUMNS), 0.25),
        steps=steps,
        noise=noise,
        threads=1,
        on_progress=lambda steps_done: None,
        **{name: getattr(mechanism, name) for name in names},
        **shared,
    ).parameters


def _rank(says: Connection, folder: Path, rank: int, size: int, ends: Any, steps: int) -> None:
    """One of several processes of a chain whose noise is known."""
    rows = Rows(
        features=np.memmap(folder / "features", dtype="<f4", mode="r", shape=(NUM_ROWS, NUM_COLUMNS)),
        labels=np.memmap(folder / "labels", dtype="<i4", mode="r", shape=(NUM_ROWS,)),
        num_slots=NUM_ROWS,
        num_columns=NUM_COLUMNS,
        descriptor=-1,
    )
    joined = LinkedRanks(rank=rank, size=size, links=ends)
    noise = ReplayableNoise(5) if rank == 0 else None
    says.send(_chain(rows, shard=joined.shard(NUM_ROWS), steps=steps, noise=noise, ranks=joined))


def _together(target: Callable[..., None], *arguments: Any, size: int) -> list[Any]:
    """What `size` processes say that run `target(says, *arguments[:1], rank, size, links, *arguments[1:])`."""
    context = processes._context()
    hub, others = links(size)
    started = []
    for rank in range(size):
        hears, says = context.Pipe(duplex=False)
        ends = hub if rank == 0 else [others[rank - 1]]
        process = context.Process(target=target, args=(says, arguments[0], rank, size, ends, *arguments[1:]))
        process.start()
        for end in (says, *ends):
            end.close()
        started.append((process, hears))
    found = []
    for process, hears in started:
        assert hears.poll(60)
        found.append(hears.recv())
        process.join()
        process.close()
        hears.close()
    return found


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_take_the_steps_of_one_process(rows: Rows, tmp_path: Path, size: int) -> None:
    """For the same noise, ranks end where one process ends but for rounding, and all at the very same bits.

    That rounding is the gradient's: a pass sums in single precision over small groups of rows, and shards group them
    otherwise. Measured 3e-9, allowed 1e-7 of the largest parameter; what the ranks add up is right to 1e-15 (below).
    """
    steps = 30
    alone = _chain(rows, shard=slice(0, NUM_ROWS), steps=steps, noise=ReplayableNoise(5))
    first, *others = _together(_rank, tmp_path, steps, size=size)
    assert all(np.array_equal(first, other) for other in others)
    assert np.abs(first - alone).max() <= 1e-7 * np.abs(alone).max()


def _sum(says: Connection, seed: int, rank: int, size: int, ends: Any) -> None:
    joined = LinkedRanks(rank=rank, size=size, links=ends)
    sums = []
    for count in (1, 7, 210, 50_000):
        tensor = torch.from_numpy(np.random.default_rng(seed + rank).standard_normal(count))
        joined.total(tensor)
        sums.append(tensor.numpy().copy())
    says.send(sums)


def test_a_total_has_the_same_bits_on_every_rank() -> None:
    """Numbers that do not add up exactly have one sum: all ranks have its bits, and it is right to 1e-15."""
    size = 3
    first, *others = _together(_sum, 11, size=size)
    for position, total in enumerate(first):
        assert all(np.array_equal(total, other[position]) for other in others)
        terms = [np.random.default_rng(11 + rank).standard_normal(len(total)) for rank in range(size)]
        assert np.allclose(total, sum(terms), rtol=0, atol=1e-15 * 8)


def _left(says: Connection, _: None, rank: int, size: int, ends: Any) -> None:
    joined = LinkedRanks(rank=rank, size=size, links=ends)
    if rank == 1:
        says.send("left")
        return
    try:
        while True:
            joined.total(torch.ones(3, dtype=torch.float64))
    except RankLost:
        says.send("lost")


def test_a_rank_that_ends_is_missed() -> None:
    """When one rank has ended, the others' next total raises `RankLost`."""
    assert sorted(_together(_left, None, size=3)) == ["left", "lost", "lost"]


@pytest.mark.parametrize(("num_rows", "size"), [(2 * BLOCK_ROWS + 1, 3), (10 * BLOCK_ROWS, 4), (1, 1), (100_000, 7)])
def test_shards_are_whole_blocks(num_rows: int, size: int) -> None:
    """Shards cover the rows in order, are cut between blocks, and none is empty."""

    class Rank(LinkedRanks):
        def __init__(self, rank: int) -> None:
            self.rank, self.size = rank, size

    shards = [Rank(rank).shard(num_rows) for rank in range(size)]
    assert (shards[0].start, shards[-1].stop) == (0, num_rows)
    assert all(one.stop == other.start for one, other in pairwise(shards))
    assert all(shard.start % BLOCK_ROWS == 0 and shard.stop > shard.start for shard in shards)


@pytest.mark.parametrize("asked", [1, 2, 64])
def test_a_run_says_what_ran(rows: Rows, asked: int) -> None:
    """A run returns an iterate of its own, the steps it counted and the mechanism it used; too many ranks are fewer."""
    mechanism, initial = _mechanism(), np.zeros((3, NUM_COLUMNS))
    found = [
        ranks.run(mechanism, rows=rows, initial=initial, steps=5, ranks=asked, on_progress=lambda steps_done: None)
        for _ in range(2)
    ]
    assert {(ran.steps, ran.mechanism) for ran in found} == {(5, mechanism)}
    assert found[0].parameters.shape == initial.shape
    assert not np.array_equal(found[0].parameters, found[1].parameters)  # noise of their own
    assert not initial.any()
    assert _processes_of_runs() == []


def test_runs_go_on_side_by_side(rows: Rows) -> None:
    """Runs of several threads have processes of their own and do not disturb each other."""
    mechanism, initial = _mechanism(), np.zeros((3, NUM_COLUMNS))

    def run(steps: int) -> int:
        ran = ranks.run(
            mechanism, rows=rows, initial=initial, steps=steps, ranks=steps % 2 + 1, on_progress=lambda steps_done: None
        )
        return ran.steps

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(run, range(1, 9))) == list(range(1, 9))
    assert _processes_of_runs() == []


def test_a_run_tells_its_progress_and_stops_when_told(rows: Rows) -> None:
    """The count of steps grows while a run goes on; an exception of who is told ends it and its processes."""
    counts: list[int] = []

    class Enough(Exception):
        pass

    def progressed(steps_done: int) -> None:
        counts.append(steps_done)
        if steps_done > 100 and len(set(counts)) > 2:
            raise Enough

    for asked in (1, 2):
        counts.clear()
        with pytest.raises(Enough):
            ranks.run(
                _mechanism(),
                rows=rows,
                initial=np.zeros((3, NUM_COLUMNS)),
                steps=10**9,
                ranks=asked,
                on_progress=progressed,
            )
        assert counts == sorted(counts)
        assert _processes_of_runs() == []


@pytest.mark.parametrize("asked", [1, 2])
def test_of_what_goes_wrong_only_the_name_comes_back(rows: Rows, asked: int) -> None:
    """A run that is refused fails with the name of the exception and says nothing of the data."""
    with pytest.raises(ChainFailed) as failed:
        ranks.run(
            _mechanism(),
            rows=rows,
            initial=np.full((3, NUM_COLUMNS), 1e9),
            steps=5,
            ranks=asked,
            on_progress=lambda steps_done: None,
        )
    assert (failed.value.code, str(failed.value)) == ("ValueError", "ValueError")


def _processes_of_runs() -> list[psutil.Process]:
    """The processes of runs of this process that are still there."""
    found = []
    for server in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has ended since
            if "worker.ranks" in " ".join(server.cmdline()):
                assert server.num_threads() == 1
                found += [child for child in server.children() if child.status() != psutil.STATUS_ZOMBIE]
    return found


@pytest.mark.parametrize(("asked", "victim"), [(1, 0), (2, 0), (2, 1)])
def test_a_killed_rank_fails_the_run_at_once(rows: Rows, asked: int, victim: int) -> None:
    """Kill -9 of any process of a run, at any time, is a clean failure within seconds; the others are gone too."""
    for steps_before in (0, 50):
        killed: list[bool] = []

        def progressed(steps_done: int) -> None:
            there = _processes_of_runs()
            if not killed and len(there) == asked and steps_done >= steps_before:  # noqa: B023
                sorted(there, key=lambda process: process.pid)[victim].kill()
                killed.append(True)  # noqa: B023

        with pytest.raises(ChainFailed) as failed:
            ranks.run(
                _mechanism(),
                rows=rows,
                initial=np.zeros((3, NUM_COLUMNS)),
                steps=10**9,
                ranks=asked,
                on_progress=progressed,
            )
        assert failed.value.code == DIED
        assert _processes_of_runs() == []


def _files(at: Installation) -> set[Path]:
    return {path for path in at.settings.data_dir.rglob("*") if not path.name.startswith("lethe.db")}


@pytest.mark.parametrize("asked", [1, 2])
def test_a_failed_run_is_gone_before_it_is_tried_again(
    at: Installation, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int], asked: int
) -> None:
    """A run whose process is killed is handed back with nothing left of it, no process, no file; then it publishes."""
    dataset = new_dataset(rows=BLOCK_ROWS + 400)
    model = new_model(dataset["id"], ranks=asked, l2=3e-4 if asked == 1 else 3e-3, noise_scale=0.005)
    before = _files(at)

    def kill() -> None:
        there = wait_until(lambda: [found for found in [_processes_of_runs()] if len(found) == asked])
        there[0][-1].kill()

    killing = threading.Thread(target=kill)
    killing.start()
    assert runner.run_next(at, worker="w") is True
    killing.join()
    assert _processes_of_runs() == []
    assert _files(at) == before
    [run] = get("/runs")["items"]
    assert (run["status"], get(f"/models/{model['id']}")["error_code"]) == ("failed", DIED)
    wait_until(work)
    request = forget("p3")
    assert work() == 1
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    assert_all_done_once(at)
    with at.database.reading() as session:
        statuses = list(session.scalars(sa.select(Run.status).order_by(Run.started_at)))
    assert statuses == ["failed", "published", "published"]


@pytest.mark.parametrize("asked", [2, 64])
def test_a_model_of_several_ranks_learns_and_forgets(
    gateway: TestClient,
    at: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
    asked: int,
) -> None:
    """Runs of a model with several ranks are certified like any other, also with more ranks than blocks of rows."""
    dataset = new_dataset(rows=BLOCK_ROWS + 400)
    model = new_model(dataset["id"], ranks=asked, noise_scale=0.02)
    assert model["ranks"] == asked
    assert work() == 1
    request = forget("p3")
    assert work() == 1
    certificates = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
    answer = gateway.post("/v1/certificates:verify", json={"jws": certificates[0]["jws"]})
    assert answer.json()["valid"] is True
    assert get(f"/models/{model['id']}")["ranks"] == asked
    assert_all_done_once(at)


@pytest.mark.parametrize("asked", [0, 65, 1.5])
def test_ranks_that_are_refused(gateway: TestClient, new_dataset: Make, asked: float) -> None:
    """A model has 1 to 64 ranks; without a word about them, one."""
    body = {"name": "m", "dataset_id": new_dataset()["id"], "l2": 0.05}
    assert gateway.post("/v1/models", json=body | {"ranks": asked}).status_code == 422
    assert gateway.post("/v1/models", json=body).json()["ranks"] == 1


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cuda: 1", ""])
def test_a_device_that_is_none(device: str) -> None:
    """A setting that names no device is refused."""
    with pytest.raises(ValidationError, match="device"):
        Settings(device=device)


@pytest.mark.parametrize(
    ("command", "device"), [(("-m", "worker", "w"), "cuda:99"), (("-c", "import worker.celery_app"), "gpu")]
)
def test_a_worker_refuses_its_device_in_one_line(tmp_path: Path, command: tuple[str, ...], device: str) -> None:
    """A worker that is to compute where it cannot ends at once and names the setting."""
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


def test_no_step_is_taken_until_news_are_heard() -> None:
    """While its owner does something else between two counts, a run stands still: the next step is not taken."""
    mine, theirs = Pipe()
    progressed = ranks._news(theirs, seconds_between=0.0)
    telling = threading.Thread(target=progressed, args=(1,))
    with mine, theirs:
        telling.start()
        assert mine.recv_bytes() == b"1"
        telling.join(0.2)
        assert telling.is_alive()
        mine.send_bytes(b"")
        telling.join(60)
        assert not telling.is_alive()
