"""Workers on several hosts with one database: dead workers, silent workers, and hosts with a wrong clock."""

import datetime
import importlib.util
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from app.config import Settings
from app.db import now
from app.db.tables import DeletionRequest, Run
from app.installations import Installation
from app.unlearning import queue
from app.unlearning.queue import ClaimedRun
from tests.faults import hops, processes
from tests.faults.checks import assert_all_done_once
from tests.faults.processes import environment_of, wait_until
from tests.tables import at_length

pytestmark = pytest.mark.postgres

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


@pytest.fixture
def request_made(new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]) -> dict[str, Any]:
    """Return a request that is waiting for a live model."""
    new_model(new_dataset()["id"], noise_scale=0.02)
    assert work() == 1
    return forget("p3")


def runs(installation: Installation) -> list[tuple[str, str]]:
    """Return the worker and the status of every run except the first, oldest first."""
    with installation.database.reading() as session:
        found = session.execute(sa.select(Run.worker, Run.status).order_by(Run.started_at)).all()
    return [(worker, status) for worker, status in found][1:]


def test_another_host_takes_over(
    settings: Settings, installation: Installation, request_made: dict[str, Any], get: Get
) -> None:
    """If a worker is killed, a worker on another host repeats the killed worker's run once its lease has expired."""
    with processes.worker(settings, name="w@one", hop="mid-chain", act=hops.stop) as one:
        one.pause()
        one.kill()
    with processes.worker(settings, name="w@two") as two:
        wait_until(lambda: get(f"/deletion-requests/{request_made['id']}")["status"] == "completed")
        assert two.stop() == 0
    assert runs(installation) == [("w@one", "abandoned"), ("w@two", "published")]
    assert_all_done_once(installation)


def test_a_silent_host_blocks_others_only_briefly(
    settings: Settings, installation: Installation, request_made: dict[str, Any], get: Get
) -> None:
    """A worker that freezes in the middle of a transaction blocks others for no longer than the server permits."""
    url = settings.resolved_database_url() + "?options=-c%20idle_in_transaction_session_timeout%3D1s"
    silent = settings.model_copy(update={"database_url": SecretStr(url)})
    with processes.worker(silent, name="w@one", hop="claim not committed", act=hops.stop) as one:
        one.pause()
        with processes.worker(settings, name="w@two") as two:
            wait_until(lambda: get(f"/deletion-requests/{request_made['id']}")["status"] == "completed", seconds=60)
            assert two.stop() == 0
        one.kill()
    assert runs(installation) == [("w@two", "published")]
    assert_all_done_once(installation)


CLOCKS = pytest.mark.parametrize("clock", at_length(["+5h", "-5h"], besides=["-5h"]))
WITH_LIBFAKETIME = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheel of libfaketime is for Linux on x86-64"
)


def on_skewed_host(settings: Settings, clock: str, *command: str) -> subprocess.Popen[str]:
    """Start Python on a simulated host whose clock is off by `clock`."""
    package = importlib.util.find_spec("libfaketime")
    assert package
    assert package.origin
    library = Path(package.origin).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
    given = {"database_url": settings.resolved_database_url(), "poll_seconds": "0.1"}
    environment = environment_of(settings.data_dir, **given, lease_seconds=str(settings.lease_seconds))
    environment |= {"LD_PRELOAD": str(library), "FAKETIME": clock, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    return subprocess.Popen([sys.executable, *command], env=environment, stdout=subprocess.PIPE, text=True)


CLAIM = """
import datetime
from app import installations
from app.config import Settings
from app.unlearning import queue

print(datetime.datetime.now(datetime.UTC).isoformat())
with installations.opened(Settings()) as at, at.database.writing() as session:
    claimed = queue.claim(session, worker="skewed", lease_seconds=600, max_requests=10)
print(claimed.run_id if claimed else "nothing")
"""


def claim_on_skewed_host(settings: Settings, clock: str) -> str:
    """Return the id of the run that a worker on a host with a skewed clock claims, or `nothing`."""
    with on_skewed_host(settings, clock, "-c", CLAIM) as process:
        said, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    believed, claimed = said.split()
    off = datetime.datetime.fromisoformat(believed) - datetime.datetime.now(datetime.UTC)
    assert abs(off) > datetime.timedelta(hours=4)
    return claimed


def claim(installation: Installation, *, lease_seconds: float) -> ClaimedRun | None:
    with installation.database.writing() as session:
        return queue.claim(session, worker="honest", lease_seconds=lease_seconds, max_requests=10)


@WITH_LIBFAKETIME
@CLOCKS
def test_a_host_with_a_skewed_clock_respects_leases(
    settings: Settings, installation: Installation, request_made: dict[str, Any], clock: str
) -> None:
    """A worker on a host whose clock is hours off does not take a run with a valid lease. It takes over a run with an
    expired lease and gets a new lease of normal length."""
    held = claim(installation, lease_seconds=60)
    assert held
    assert claim_on_skewed_host(settings, clock) == "nothing"
    assert runs(installation) == [("honest", "running")]
    with installation.database.writing() as session:
        session.get_one(Run, held.run_id).lease_expires_at = now(session)
    taken = claim_on_skewed_host(settings, clock)
    assert runs(installation) == [("honest", "abandoned"), ("skewed", "running")]
    with installation.database.reading() as session:
        run = session.get_one(Run, taken)
        at_database = now(session)
    assert run.started_at < at_database
    assert datetime.timedelta(minutes=5) < run.lease_expires_at - at_database < datetime.timedelta(minutes=10)
    assert claim(installation, lease_seconds=60) is None


@pytest.mark.soak
@WITH_LIBFAKETIME
@CLOCKS
def test_a_host_with_a_skewed_clock_completes_requests(
    settings: Settings, installation: Installation, request_made: dict[str, Any], get: Get, clock: str
) -> None:
    """A worker on a host whose clock is hours off completes a request, and all recorded times come from the
    database."""
    with on_skewed_host(settings, clock, "-m", "worker", "skewed") as process:
        wait_until(lambda: get(f"/deletion-requests/{request_made['id']}")["status"] == "completed")
        process.terminate()
        process.communicate(timeout=120)
    assert runs(installation)[-1] == ("skewed", "published")
    with installation.database.reading() as session:
        done = session.get_one(DeletionRequest, request_made["id"])
        assert done.completed_at
        assert done.created_at <= done.completed_at <= now(session)
    assert_all_done_once(installation)
