"""A disk that fills up before a run writes its results."""

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import installations
from app.api import problems
from app.config import Settings
from app.db.tables import Erasure, Run
from app.installations import Installation
from app.main import create_app
from tests.conftest import FORM, npz
from tests.faults import processes
from tests.faults.checks import assert_all_done_once
from tests.faults.processes import wait_until
from tests.stored import rows_of, slots_of

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]

pytestmark = pytest.mark.service


@contextlib.contextmanager
def _mounted(folder: Path, *, megabytes: int) -> Iterator[Path]:
    """Mount a separate file system in a new folder."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "small", folder]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only who may mount can have a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of one megabyte, and yield its folder."""
    with _mounted(tmp_path / "disk", megabytes=1) as folder:
        yield folder


@pytest.fixture
def settings(settings: Settings, small_disk: Path) -> Settings:
    changed = settings.model_copy(update={"store_url": str(small_disk)})
    installations.set_up(changed)
    return changed


@pytest.fixture
def live(new_dataset: Make, new_model: Make, work: Callable[[], int]) -> dict[str, Any]:
    model = new_model(new_dataset()["id"], noise_scale=0.02)
    assert work() == 1
    return model


def test_a_run_is_repeated_when_there_is_room(
    settings: Settings, small_disk: Path, installation: Installation, live: dict[str, Any], forget: Make, get: Get
) -> None:
    """A run that cannot write its weights fails, publishes nothing and leaves no files behind. The next run with enough
    room succeeds."""
    before = _files(small_disk)
    ballast = small_disk / "ballast"
    _fill(ballast)
    request = forget("p3")
    with processes.worker(settings) as worker:
        wait_until(lambda: len(_failed(installation)) >= 2)
        assert get(f"/deletion-requests/{request['id']}")["status"] != "completed"
        model = get(f"/models/{live['id']}")
        assert (model["status"], model["live_version"]) == ("live", 1)
        ballast.unlink()
        wait_until(lambda: get(f"/deletion-requests/{request['id']}")["status"] == "completed")
        assert worker.stop() == 0
    assert set(_failed(installation)) == {"OSError"}
    assert len(_files(small_disk)) == len(before)
    assert_all_done_once(installation)


def test_an_erasure_is_repeated_when_there_is_room(
    small_disk: Path, installation: Installation, live: dict[str, Any], forget: Make, work: Any
) -> None:
    """If a person's rows cannot be sealed again because the disk is full, the rows remain and the person does not count
    as erased. Once there is room, the rows are erased."""
    _fill(small_disk / "ballast")
    [slot] = slots_of(installation, live["dataset_id"], "p3")
    forget("p3")
    work()
    assert rows_of(installation, live["dataset_id"]).features[slot].any()
    with installation.database.reading() as session:
        assert session.scalars(sa.select(Erasure.nulled_at)).one() is None
    (small_disk / "ballast").unlink()

    def erased() -> bool:
        work()
        return not rows_of(installation, live["dataset_id"]).features[slot].any()

    wait_until(erased)


def test_a_first_run_is_repeated_when_there_is_room(
    small_disk: Path, installation: Installation, new_dataset: Make, new_model: Make, get: Get, work: Any
) -> None:
    """If a model's first run fails once or twice because the disk is full, the run succeeds once there is room."""
    dataset = new_dataset()
    _fill(small_disk / "ballast")
    model = new_model(dataset["id"])
    assert work() == 1
    assert get(f"/models/{model['id']}")["error_code"] == "OSError"
    (small_disk / "ballast").unlink()
    wait_until(work)
    assert get(f"/models/{model['id']}")["status"] == "live"
    assert_all_done_once(installation)


def _fill(ballast: Path) -> None:
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def _failed(installation: Installation) -> list[str | None]:
    with installation.database.reading() as session:
        return list(session.scalars(sa.select(Run.error_code).where(Run.status == "failed")))


# --- a full disk under the gateway -----------------------------------------------------------------------------------


@pytest.fixture
def full(at_large: Settings, tmp_path: Path) -> Iterator[tuple[Settings, Path]]:
    """Return the settings of an installation whose data folder is on a separate file system, and the file that can fill
    it."""
    with _mounted(tmp_path / "full", megabytes=64) as folder:
        settings = at_large.model_copy(update={"data_dir": folder / "data"})
        installations.set_up(settings)
        yield settings, folder / "ballast"


@pytest.fixture
def at_large() -> Settings:
    return Settings()


@pytest.mark.soak
def test_calls_on_a_full_disk_return_503(full: tuple[Settings, Path]) -> None:
    """On a full disk, requests and uploads return 503 with Retry-After, and the readiness check fails. A call that is
    repeated later takes effect once, and nothing else has been stored."""
    settings, ballast = full
    key = settings.resolved_admin_key_file().read_text().strip()
    with TestClient(create_app(settings), raise_server_exceptions=False) as gateway:
        gateway.headers["Authorization"] = f"Bearer {key}"
        upload = {"data": FORM, "files": {"file": ("people.npz", npz())}}
        assert gateway.post("/v1/datasets", **upload).status_code == 201
        _fill(ballast)
        asked = [
            {
                "json": {"subject_id": f"q{number}", "metadata": {"note": "x" * 2000}},
                "headers": {"Idempotency-Key": f"k{number}"},
            }
            for number in range(300)  # more than one page of prepared keys
        ]
        answers = [gateway.post("/v1/deletion-requests", **one) for one in asked]
        refused = [one for one in answers if one.status_code != 202]
        refused += [gateway.post("/v1/datasets", **upload), gateway.get("/readyz")]
        assert len(refused) > 2
        assert {(one.status_code, one.json()["code"]) for one in refused} == {(503, "storage_full")}
        assert all(one.headers["content-type"] == problems.MEDIA_TYPE for one in refused)
        assert all(int(one.headers["retry-after"]) > 0 for one in refused)
        ballast.unlink()
        assert gateway.get("/readyz").status_code == 200
        again = [gateway.post("/v1/deletion-requests", **one) for one in asked]
        assert {one.status_code for one in again} == {202}
        assert len({one.json()["id"] for one in again}) == len(asked)
        for first, second in zip(answers, again, strict=True):
            assert first.status_code != 202 or first.json()["id"] == second.json()["id"]
        assert gateway.post("/v1/datasets", **upload).status_code == 201
        assert len(gateway.get("/v1/datasets").json()["items"]) == 2


@pytest.mark.parametrize(
    "words", [["migrate"], ["rotate-key"], ["backup", "archive", "--key-file", "key"], ["ledger", "verify"]]
)
def test_a_command_on_a_full_disk_ends_in_one_line(set_up_once: Path, tmp_path: Path, words: list[str]) -> None:
    """A command on a full disk exits with a one-line error and without a traceback."""
    with _mounted(tmp_path / "small", megabytes=3) as folder:
        data = shutil.copytree(set_up_once, folder / "data")
        with contextlib.suppress(OSError), (folder / "ballast").open("wb") as ballast:
            while True:
                ballast.write(bytes(4096))
        command = [processes.LETHE, *words]
        environment = processes.environment_of(data)
        ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    advice = "are LETHE_DATABASE_URL and LETHE_DATA_DIR right?"
    assert ended.stderr == f"error: database_unreadable: disk I/O error; {advice}\n"
