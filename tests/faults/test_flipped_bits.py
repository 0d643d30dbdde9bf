"""A flipped bit in any stored file is detected before anything is published or erased, and is reported by name every
time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import installations
from app.config import Settings
from app.db.tables import Dataset, Erasure, Model
from app.installations import Installation
from app.operations import periodic_jobs
from app.rows.row_store import RowStore
from app.unlearning import service as unlearning
from lethe.contract.problems import InstallationMismatch
from tests.conftest import people
from tests.faults.checks import assert_all_done_once
from tests.stored import flipped
from tests.tables import at_length
from worker import runner

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


class World:
    """A live model, rows that wait to be added to its dataset, and a request."""

    def __init__(
        self, installation: Installation, dataset: str, model: str, addition: str | None, request: str
    ) -> None:
        self.installation, self.dataset, self.model = installation, dataset, model
        self.addition, self.request = addition, request

    def files(self, pattern: str, rows_id: str | None = None) -> list[Path]:
        return sorted((self.installation.settings.data_dir / "blocks").glob(pattern.format(rows_id or self.dataset)))

    def weights(self, pattern: str) -> Path:
        with self.installation.database.reading():
            [version] = self.installation.weights.version_ids()
        return self.installation.settings.data_dir / "weights" / pattern.format(version)

    def forget_pauses(self) -> None:
        with self.installation.database.writing() as session:
            session.execute(sa.update(Model).values(not_before=None))
            session.execute(sa.update(Dataset).values(not_before=None))


@pytest.fixture
def world(
    installation: Installation,
    gateway: TestClient,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
) -> Callable[..., World]:
    def made(*, adding: bool = False) -> World:
        dataset = new_dataset(rows=60)
        model = new_model(dataset["id"], noise_scale=0.02)
        assert work() == 1
        addition = None
        if adding:
            forget("p30")
            assert work() == 1
            file = {"file": ("p.npz", people("new1"))}
            addition = gateway.post(f"/v1/datasets/{dataset['id']}/records", files=file).json()["id"]
        return World(installation, dataset["id"], model["id"], addition, forget("p3")["id"])

    return made


def _assert_nothing_happened(world: World, get: Get, version: int) -> None:
    """Check that no version was published and that the request is still open."""
    assert get(f"/models/{world.model}")["live_version"] == version
    assert get(f"/deletion-requests/{world.request}")["status"] == "accepted"
    assert get(f"/deletion-requests/{world.request}/events")["items"][-1]["status"] != "completed"


FILES: dict[str, tuple[str, Callable[[World], Path]]] = {
    "block": ("block", lambda world: world.files("{}.*.sealed")[0]),
    "key of a block": ("key", lambda world: world.files("keys/{}.*.key")[0]),
    "manifest": ("manifest", lambda world: world.files("{}.*.node")[0]),
}
FILES_OF_ADDITIONS: dict[str, tuple[str, Callable[[World], Path]]] = {
    "block of an addition": ("block", lambda world: world.files("{}.*.sealed", world.addition)[0]),
    "key of an addition": ("key", lambda world: world.files("keys/{}.*.key", world.addition)[0]),
    "manifest of an addition": ("manifest", lambda world: world.files("{}.*.node", world.addition)[0]),
}


@pytest.mark.parametrize("place", at_length([0, 20, 60], besides=[20]))
@pytest.mark.parametrize("what", FILES)
def test_damaged_rows_stop_the_dataset(
    what: str, place: int, world: Callable[..., World], settings: Settings, gateway: TestClient, get: Get, work: Any
) -> None:
    """The first run on damaged rows stops and names the damage. No later run starts, even after restarts, and a recheck
    detects the damage again. Once the original file is restored, a recheck allows all work to resume."""
    kind, choose = FILES[what]
    made = world(adding=True)
    file = choose(made)
    right = file.read_bytes()
    file.write_bytes(flipped(right, place))
    assert runner.run_next(made.installation, worker="w") is True
    _assert_nothing_happened(made, get, 2)
    named = {"kind": kind, "rows": made.dataset}
    assert get("/runs?limit=1")["items"][0]["error_code"] == "dataset_damaged"
    for _ in range(2):
        with installations.opened(settings) as restarted:
            made.forget_pauses()
            periodic_jobs.sweep_rows(restarted)
            assert runner.run_next(restarted, worker="w") is False
        found = get(f"/datasets/{made.dataset}")["damage"]
        assert named.items() <= found.items()
        _assert_nothing_happened(made, get, 2)
        rechecked = gateway.post(f"/v1/datasets/{made.dataset}/recheck").json()["damage"]
        assert rechecked == found
    assert b"lethe_datasets_damaged 1.0" in gateway.get("/metrics").content
    file.write_bytes(right)
    assert gateway.post(f"/v1/datasets/{made.dataset}/recheck").json()["damage"] is None
    assert work() >= 1
    assert get(f"/deletion-requests/{made.request}")["status"] == "completed"
    audited = [entry["action"] for entry in get("/audit-log?limit=100")["items"]]
    assert (audited.count("dataset.damaged"), audited.count("dataset.rechecked")) == (1, 3)
    assert_all_done_once(made.installation)


@pytest.mark.parametrize("place", at_length([0, 20, 60], besides=[20]))
@pytest.mark.parametrize("what", FILES_OF_ADDITIONS)
def test_a_damaged_addition_is_dropped(
    what: str, place: int, world: Callable[..., World], gateway: TestClient, get: Get, work: Any
) -> None:
    """If a bit flips in a waiting addition, only that addition is dropped and no erasure is delayed. A sweep or recheck
    that detects the damage first does not halt the dataset, and the next run serves the requests."""
    kind, choose = FILES_OF_ADDITIONS[what]
    made = world(adding=True)
    file = choose(made)
    file.write_bytes(flipped(file.read_bytes(), place))
    periodic_jobs.sweep_rows(made.installation)
    assert gateway.post(f"/v1/datasets/{made.dataset}/recheck").json()["damage"] is None
    assert runner.run_next(made.installation, worker="w") is True
    _assert_nothing_happened(made, get, 2)
    assert get("/runs?limit=1")["items"][0]["error_code"] == "dataset_damaged"
    made.forget_pauses()
    assert work() == 1
    assert get(f"/deletion-requests/{made.request}")["status"] == "completed"
    assert get(f"/datasets/{made.dataset}")["damage"] is None
    [addition] = get(f"/datasets/{made.dataset}/additions")["items"]
    assert addition["status"] == "dropped"
    [dropped] = [one for one in get("/audit-log?limit=100")["items"] if one["action"] == "dataset.addition_dropped"]
    assert dropped["detail"] == {"addition_id": made.addition, "num_records": 1, "kind": kind}
    assert_all_done_once(made.installation)


def test_a_different_root_in_the_database_halts_the_dataset(
    world: Callable[..., World], get: Get, work: Any, gateway: TestClient
) -> None:
    """If the database names a different root for the rows, the dataset is halted."""
    made = world()
    with made.installation.database.writing() as session:
        dataset = session.get_one(Dataset, made.dataset)
        right = dataset.digest
        dataset.digest = ("1" if right[0] == "0" else "0") + right[1:]
    assert runner.run_next(made.installation, worker="w") is True
    assert get(f"/datasets/{made.dataset}")["damage"]["kind"] == "manifest_missing"
    _assert_nothing_happened(made, get, 1)
    with made.installation.database.writing() as session:
        session.get_one(Dataset, made.dataset).digest = right
    assert gateway.post(f"/v1/datasets/{made.dataset}/recheck").json()["damage"] is None
    made.forget_pauses()
    assert work() == 1
    assert_all_done_once(made.installation)


@pytest.mark.parametrize("place", [0, 40])
def test_a_changed_key_encryption_key_stops_all_work(
    place: int, world: Callable[..., World], get: Get, work: Any
) -> None:
    """A changed key-encryption key stops all work. Once the right key is restored, nothing is reported as damaged."""
    made = world()
    kek = made.installation.settings.resolved_key_encryption_key_file()
    right = kek.read_bytes()
    kek.write_bytes(flipped(right, place))
    for _ in range(2):
        assert runner.run_next(made.installation, worker="w") is False
        with pytest.raises(InstallationMismatch), made.installation.database.reading():
            pass
    kek.write_bytes(right)
    _assert_nothing_happened(made, get, 1)
    assert get(f"/datasets/{made.dataset}")["damage"] is None
    assert work() == 1
    assert_all_done_once(made.installation)


@pytest.mark.parametrize("place", [0, 20, 60])
@pytest.mark.parametrize("pattern", ["{}.sealed", "keys/{}.key"])
def test_damaged_weights_are_retrained(
    pattern: str, place: int, world: Callable[..., World], get: Get, work: Any
) -> None:
    """If the live weights cannot be opened, the run reports this instead of continuing from them, and the model is
    retrained."""
    made = world()
    file = made.weights(pattern)
    file.write_bytes(flipped(file.read_bytes(), place))
    assert runner.run_next(made.installation, worker="w") is True
    [failed] = get("/runs?limit=1")["items"]
    assert (failed["status"], failed["error_code"]) == ("failed", "weights_unreadable")
    _assert_nothing_happened(made, get, 1)
    made.forget_pauses()
    assert work() == 1
    assert get("/runs?limit=1")["items"][0]["kind"] == "relearn"
    assert get(f"/deletion-requests/{made.request}")["status"] == "completed"


HOPS: dict[str, tuple[Any, str]] = {
    "about to be committed": (RowStore, "edit"),
    "committed": (unlearning, "commit_rows"),
    "what was is destroyed": (RowStore, "destroy_replaced"),
    "confirmed": (unlearning, "confirm_edited"),
}


@pytest.mark.parametrize("hop", HOPS)
@pytest.mark.parametrize("pattern", ["{}.*.sealed", "keys/{}.*.key", "{}.*.node"])
def test_rows_changed_during_a_run_are_noticed(
    hop: str, pattern: str, world: Callable[..., World], settings: Settings, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If rows change during a run, that run or the next one detects the change, and no version is published."""
    made = world()
    owner, name = HOPS[hop]
    original = getattr(owner, name)

    def flipping(*given: Any, **named: Any) -> Any:
        before = set(made.files(pattern))
        answer = original(*given, **named)
        for file in set(made.files(pattern)) - before or made.files(pattern):
            file.write_bytes(flipped(file.read_bytes(), 40))
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, flipping)
        assert runner.run_next(made.installation, worker="w") is True
    assert get(f"/models/{made.model}")["live_version"] == 1
    assert get(f"/deletion-requests/{made.request}")["status"] == "accepted"
    for _ in range(2):
        made.forget_pauses()
        with installations.opened(settings) as restarted:
            runner.run_next(restarted, worker="w")
        assert get(f"/datasets/{made.dataset}")["damage"]["kind"] in ("block", "key", "manifest")
        assert get(f"/models/{made.model}")["live_version"] == 1
        assert get(f"/deletion-requests/{made.request}")["status"] == "accepted"


def test_an_older_copy_next_to_the_rows_is_swept(world: Callable[..., World], get: Get, work: Any) -> None:
    """Blocks, keys and manifests of an older copy next to the recorded ones are never read, and are swept."""
    made = world()
    older = {file: file.read_bytes() for pattern in ("{}.*", "keys/{}.*") for file in made.files(pattern)}
    assert work() == 1
    kept = {file for pattern in ("{}.*", "keys/{}.*") for file in made.files(pattern)}
    assert not older.keys() & kept
    for file, content in older.items():
        file.write_bytes(content)
    periodic_jobs.sweep_rows(made.installation)
    assert {file for pattern in ("{}.*", "keys/{}.*") for file in made.files(pattern)} == kept
    for file, content in older.items():
        file.write_bytes(content)
    with made.installation.database.writing() as session:
        session.get_one(Model, made.model).wanted = "relearn"
    assert work() == 1
    assert set(made.files("keys/{}.*")) == {file for file in kept if file.suffix == ".key"}
    assert_all_done_once(made.installation)


def test_an_older_copy_in_place_of_the_rows_is_refused(
    world: Callable[..., World], get: Get, work: Any, forget: Make
) -> None:
    """If the rows are replaced with an older copy, the copy is refused as damage, so that erased people do not
    return."""
    made = world()
    older = {file: file.read_bytes() for pattern in ("{}.*", "keys/{}.*") for file in made.files(pattern)}
    assert work() == 1
    for file in [*made.files("{}.*"), *made.files("keys/{}.*")]:
        file.unlink()
    for file, content in older.items():
        file.write_bytes(content)
    forget("p4")
    assert work() == 1
    assert get(f"/datasets/{made.dataset}")["damage"]["kind"] == "manifest_missing"
    assert get(f"/models/{made.model}")["live_version"] == 2
    with made.installation.database.reading() as session:
        assert session.scalars(sa.select(Erasure).where(Erasure.nulled_at.is_(None))).one()
