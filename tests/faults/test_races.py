"""Several workers on one database, a worker that sleeps past the end of its lease, and lost or repeated
notifications."""

import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
import sqlalchemy as sa

from app import installations
from app.config import Settings
from app.db import now
from app.db.tables import Run, Version
from app.dispatch import PipeNotifier
from app.installations import Installation
from app.unlearning import queue
from app.unlearning.queue import ClaimedRun
from tests.faults import hops, processes
from tests.faults.checks import assert_all_done_once
from tests.faults.processes import wait_until
from tests.tables import at_length
from worker import runner

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


@pytest.fixture
def two_by_two(new_dataset: Make, new_model: Make, work: Callable[[], int]) -> list[dict[str, Any]]:
    """Return two datasets that contain the same people and have two live models each."""
    datasets = [new_dataset(name, rows=60, seed=seed) for seed, name in enumerate(("one", "two"))]
    for dataset in datasets:
        for _ in range(2):
            new_model(dataset["id"], noise_scale=0.02)
    assert work() == 4
    return datasets


def _assert_one_run_per_dataset_at_a_time(installation: Installation) -> None:
    with installation.database.reading() as session:
        runs = list(session.scalars(sa.select(Run).order_by(Run.started_at)))
    of_dataset = defaultdict(list)
    for run in runs:
        of_dataset[run.dataset_id].append(run)
    for line in of_dataset.values():
        assert all(one.finished_at and one.finished_at <= other.started_at for one, other in pairwise(line))


def test_concurrent_claims_have_one_winner(settings: Settings, two_by_two: list[dict[str, Any]], forget: Make) -> None:
    """If eight workers claim at the same moment, each due dataset goes to one worker, and the other workers get
    no run."""
    forget("p3")
    together = threading.Barrier(8)

    def claim(number: int) -> ClaimedRun | None:
        with installations.opened(settings) as mine:
            together.wait()
            with mine.database.writing() as session:
                return queue.claim(session, worker=f"w{number}", lease_seconds=30, max_requests=100)

    with ThreadPoolExecutor(8) as threads:
        claimed = [found for found in threads.map(claim, range(8)) if found]
    assert sorted(one.dataset_id for one in claimed) == sorted(dataset["id"] for dataset in two_by_two)
    assert len({one.run_id for one in claimed}) == 2


@pytest.mark.soak
def test_threads_share_the_work(
    settings: Settings, installation: Installation, two_by_two: list[dict[str, Any]], forget: Make
) -> None:
    """Four worker threads complete each of a stream of requests once, and no two threads work on the same dataset at
    the same time."""
    submitted = threading.Event()

    def run(number: int) -> int:
        done = 0
        with installations.opened(settings.model_copy(update={"lease_seconds": 30.0})) as mine:
            while True:
                last_look = submitted.is_set()
                if runner.run_next(mine, worker=f"w{number}"):
                    done += 1
                elif last_look:
                    return done

    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(run, number) for number in range(4)]
        for person in range(12):
            forget(f"p{person}")
        submitted.set()
        done = [future.result() for future in running]
    while runner.run_next(installation, worker="last"):  # work that a thread's last run left when all others had ended
        pass
    with installation.database.reading() as session:
        assert session.scalar(sa.select(sa.func.count()).where(Run.status == "published")) >= sum(done) + 4
        assert set(session.scalars(sa.select(Run.status))) == {"published"}
    _assert_one_run_per_dataset_at_a_time(installation)
    assert_all_done_once(installation)


def test_processes_share_the_work(
    settings: Settings, installation: Installation, two_by_two: list[dict[str, Any]], forget: Make, get: Get
) -> None:
    """Three worker processes complete each of a stream of requests once, and no two processes work on the same dataset
    at the same time."""
    settings = settings.model_copy(update={"lease_seconds": 30.0})
    with (
        processes.worker(settings, name="a") as a,
        processes.worker(settings, name="b") as b,
        processes.worker(settings, name="c") as c,
    ):
        made = [forget(f"p{person}") for person in range(12)]
        for request in made:
            wait_until(lambda path=f"/deletion-requests/{request['id']}": get(path)["status"] == "completed")
        assert [child.stop() for child in (a, b, c)] == [0, 0, 0]
    with installation.database.reading() as session:
        assert set(session.scalars(sa.select(Run.status))) == {"published"}
    _assert_one_run_per_dataset_at_a_time(installation)
    assert_all_done_once(installation)


@pytest.mark.parametrize(
    "hop",
    at_length(
        ["claimed", "rows written beside", "confirmed", "mid-chain", "weights put"], besides=("claimed", "mid-chain")
    ),
)
def test_a_worker_that_slept_through_its_lease_changes_nothing(
    hop: str,
    settings: Settings,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """If a worker sleeps past the end of its lease and another worker executes its run, the first worker changes
    nothing when it wakes."""
    dataset = new_dataset(rows=60)
    model = new_model(dataset["id"], noise_scale=0.02)
    assert work() == 1
    request = forget("p3")
    with processes.worker(settings, name="sleeper", hop=hop, act=hops.stop) as sleeper:
        sleeper.pause()
        wait_until(work)
        assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
        before = _versions(installation)
        sleeper.wake()
        wait_until(lambda: sleeper.logged("unlearning.run_lost"))
        assert sleeper.stop() == 0
    assert _versions(installation) == before
    assert_all_done_once(installation)
    assert [run["status"] for run in get("/runs")["items"]] == ["published", "abandoned", "published"]
    assert get(f"/models/{model['id']}")["live_version"] == 2


def _versions(installation: Installation) -> list[tuple[str, str]]:
    with installation.database.reading() as session:
        return [(version.id, version.weights_sha256) for version in session.scalars(sa.select(Version))]


def test_a_late_worker_without_a_successor_publishes(
    settings: Settings,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """A worker that wakes after its lease has expired, but before its run is taken over, publishes the run once."""
    dataset = new_dataset(rows=60)
    new_model(dataset["id"], noise_scale=0.02)
    assert work() == 1
    forget("p3")
    with processes.worker(settings, name="sleeper", hop="mid-chain", act=hops.stop) as sleeper:
        sleeper.pause()

        def lease_is_over() -> bool:
            with installation.database.reading() as session:
                expired = Run.lease_expires_at < now(session)
                return bool(session.scalar(sa.select(sa.func.count()).where(Run.status == "running", expired)))

        wait_until(lease_is_over)
        sleeper.wake()
        wait_until(lambda: sleeper.logged("unlearning.run_ended"))
        assert sleeper.stop() == 0
    assert_all_done_once(installation)
    assert [run["status"] for run in get("/runs")["items"]] == ["published", "published"]


@pytest.mark.soak
def test_heartbeat_keeps_a_long_run(
    settings: Settings,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """A run that takes longer than several leases is not taken over, although another worker constantly polls for
    work."""
    settings = settings.model_copy(update={"lease_seconds": 4.0})  # no machine stops for that long
    dataset = new_dataset(rows=60)
    new_model(dataset["id"], noise_scale=0.02)
    assert work() == 1
    request = forget("p3")
    with processes.worker(settings, name="long", hop="mid-chain", act=hops.halt) as long:
        halted = long.halted_run()

        def seconds() -> float:
            with installation.database.reading() as session:
                [began] = session.scalars(sa.select(Run.started_at).where(Run.status == "running"))
                return (now(session) - began).total_seconds()

        with processes.worker(settings, name="idle") as idle:
            wait_until(lambda: seconds() > 2 * settings.lease_seconds)
            halted.resume()
            wait_until(lambda: get(f"/deletion-requests/{request['id']}")["status"] == "completed")
            assert idle.stop() == 0
            assert not idle.logged("unlearning.run_claimed")
        assert long.stop() == 0
    assert_all_done_once(installation)
    newest = get("/runs")["items"][0]
    assert (newest["worker"], newest["status"]) == ("long", "published")


def test_work_is_found_by_polling(
    settings: Settings, installation: Installation, new_dataset: Make, new_model: Make, get: Get
) -> None:
    """If no notification reaches a worker, it finds work by polling."""
    with processes.worker(settings) as worker:
        wait_until(lambda: worker.logged("worker.started"))
        notifier = settings.data_dir / "bell"
        notifier.unlink()  # the reader still has it open, but notifications no longer find it
        model = new_model(new_dataset()["id"])
        wait_until(lambda: get(f"/models/{model['id']}")["status"] == "live", seconds=60)
        assert not notifier.exists()
        assert worker.stop() == 0
    assert_all_done_once(installation)


@pytest.mark.soak
def test_spurious_notifications_change_nothing(
    settings: Settings, installation: Installation, new_dataset: Make, new_model: Make, forget: Make, get: Get
) -> None:
    """A worker that works only when notified executes each run once, however many notifications arrive and whether they
    are early or late."""
    notifier = PipeNotifier(settings.data_dir)
    patient = settings.model_copy(update={"poll_seconds": 600.0})
    with processes.worker(patient) as worker:
        wait_until(lambda: worker.logged("worker.started"))
        for _ in range(70_000):  # more than fit in a pipe
            notifier.wake()
        model = new_model(new_dataset()["id"], noise_scale=0.02)
        wait_until(lambda: get(f"/models/{model['id']}")["status"] == "live", seconds=60)
        request = forget("p3")
        for _ in range(100):
            notifier.wake()
        wait_until(lambda: get(f"/deletion-requests/{request['id']}")["status"] == "completed", seconds=60)
        assert worker.stop() == 0
    assert_all_done_once(installation)
    assert [run["kind"] for run in get("/runs")["items"]] == ["unlearn", "learn"]
