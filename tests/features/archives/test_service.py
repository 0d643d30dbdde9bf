"""Backups are complete or absent, show a single point in time, and can be made during other work."""

import fcntl
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest
from fastapi.testclient import TestClient

from app import installations
from app.config import Settings
from app.db.tables import Dataset
from app.errors import BackupRefused
from app.features.archives import restoring, service
from app.features.archives.archive import Reader
from app.features.archives.service import Backup
from app.installations import Installation
from app.journal import tombstones
from app.keys import KeyEncryptionFile
from app.unlearning import queue, service as unlearning
from lethe.contract.problems import DatasetDamaged
from tests.conftest import people
from tests.faults.checks import assert_all_done_once
from tests.faults.test_damaged_records import Bit
from tests.features.archives.conftest import quietly
from tests.stored import flipped, rows_of, slots_of
from worker import runner

Make = Callable[..., dict[str, Any]]


def things(archive: Path, key_file: Path) -> dict[str, bytes]:
    with archive.open("rb") as file:
        found: dict[str, bytes] = {}
        for piece in Reader(file, KeyEncryptionFile(key_file)):
            found[piece.thing] = found.get(piece.thing, b"") + piece.content
        return found


def test_an_archive_contains_everything_except_weights(
    installation: Installation,
    archive: Path,
    key_file: Path,
    back_up: Callable[[], Backup],
    new_dataset: Make,
    new_model: Make,
    work: Callable[[], int],
) -> None:
    """An archive contains tables, rows and keys, but neither weights nor the key that wraps the weights' keys. Only the
    file's owner can read it."""
    dataset = new_dataset()
    new_model(dataset["id"])
    work()
    made = back_up()
    assert made.num_bytes == archive.stat().st_size
    found = things(archive, key_file)
    assert {"about", "manifest", f"rows/{dataset['id']}", "tables/records", "keys/subject.key"} <= found.keys()
    assert not {name for name in found if "kek" in name or "weights" in name}
    [version_id] = installation.weights.version_ids()
    parameters = installation.weights.get(version_id)[-16:]
    assert not any(parameters in content for content in found.values())
    for path in (archive, key_file):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_existing_files_are_not_replaced(archive: Path, back_up: Callable[[], Backup]) -> None:
    """A backup is refused if its file already exists."""
    archive.write_bytes(b"another one")
    with pytest.raises(BackupRefused, match="replaces nothing"):
        back_up()
    assert archive.read_bytes() == b"another one"


def test_a_failed_backup_creates_no_file(
    installation: Installation, archive: Path, back_up: Callable[[], Backup], new_dataset: Make
) -> None:
    """If the rows differ from their recorded digest, a backup fails without creating its file. A partial file left by a
    crash does not prevent the next backup."""
    dataset = new_dataset()
    [block] = (installation.settings.data_dir / "blocks").glob(f"{dataset['id']}.*.sealed")
    whole = block.read_bytes()
    block.write_bytes(flipped(whole, 100))
    with pytest.raises(DatasetDamaged):
        back_up()
    with installation.database.reading() as session:
        assert session.get_one(Dataset, dataset["id"]).damaged_at
    assert not list(archive.parent.glob("*archive*"))
    block.write_bytes(whole)
    archive.with_name(".archive.partial").write_bytes(b"half" * 10**6)
    made = back_up()
    assert made.num_bytes < 10**6
    assert [path.name for path in archive.parent.glob("*archive*")] == ["archive"]


def test_a_second_writer_of_an_archive_is_refused(archive: Path, back_up: Callable[[], Backup]) -> None:
    """A second process that tries to write the same archive at the same time is refused."""
    partial = archive.with_name(".archive.partial")
    with service._exclusively(partial), pytest.raises(BackupRefused, match="Another process"):
        back_up()


def test_a_finished_backup_is_not_overwritten(
    archive: Path, back_up: Callable[[], Backup], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that opened the unfinished file before it was renamed cannot lock the file and therefore cannot
    overwrite it."""
    lock = fcntl.flock

    def late(file: IO[bytes], operation: int) -> None:
        archive.with_name(".archive.partial").rename(archive)
        archive.write_bytes(b"whole")
        lock(file, operation)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", late)
        with (
            pytest.raises(BackupRefused, match="Another process"),
            service._exclusively(archive.with_name(".archive.partial")) as file,
        ):
            file.truncate(0)
    assert archive.read_bytes() == b"whole"


def test_a_backup_is_a_consistent_snapshot(
    installation: Installation,
    gateway: TestClient,
    settings: Settings,
    tmp_path: Path,
    key_file: Path,
    other: Settings,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
) -> None:
    """A backup made while people are being forgotten and rows are being added restores to a state that verifies."""
    dataset = new_dataset(rows=200)
    new_model(dataset["id"])
    work()
    stopped, added = threading.Event(), list[int]()

    def busy() -> None:
        number = 0
        while not stopped.is_set():
            forget(f"p{number}")
            work()
            more = {"file": ("more.npz", people(f"new{number}"))}
            added.append(gateway.post(f"/v1/datasets/{dataset['id']}/records", files=more).status_code)
            number += 1

    thread = threading.Thread(target=busy)
    thread.start()
    archives = [tmp_path / f"archive{number}" for number in range(4)]
    try:
        with installations.opened(settings) as own:
            for path in archives:
                service.back_up(own, path, key_file=key_file, progress=quietly)
    finally:
        stopped.set()
        thread.join()
    assert set(added) == {202}
    work()
    tombstones.record(installation)
    remembered_in = installation.settings.resolved_tombstones()
    restoring.restore(other, archives[-1], key_file=key_file, remembered_in=remembered_in, progress=quietly)
    with installations.opened(other) as again:
        while runner.run_next(again, worker="test"):
            pass
        assert_all_done_once(again)


def test_an_erasure_in_progress_is_completed_after_a_restore(
    installation: Installation,
    back_up: Callable[[], Backup],
    restore: Callable[[], restoring.Restored],
    other: Settings,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
) -> None:
    """A backup made in the middle of an erasure restores to a state from which the next worker completes the
    erasure."""
    dataset = new_dataset()
    slots = slots_of(installation, dataset["id"], "p1", "p2")
    new_model(dataset["id"])
    work()
    forget("p1")
    forget("p2")
    with installation.database.writing() as session:
        claimed = queue.claim(session, worker="w", lease_seconds=60, max_requests=10)
    assert claimed
    root = installation.rows.edit(dataset["id"], claimed.root, null=claimed.slots_to_null)
    with installation.database.writing() as session:
        unlearning.commit_rows(session, run_id=claimed.run_id, root=root)
    back_up()
    restore()
    with installations.opened(other) as again:
        while runner.run_next(again, worker="test"):
            pass
        assert not rows_of(again, dataset["id"]).features[slots].any()
        assert_all_done_once(again)


def test_a_backup_of_damaged_records_is_refused(
    installation: Installation, tmp_path: Path, new_dataset: Make, get: Callable[[str], Any]
) -> None:
    """A backup of a dataset with a damaged record is refused, and the API reports the dataset as damaged."""
    dataset_id = new_dataset(rows=30)["id"]
    Bit(installation, dataset_id, 3, "subject_ref")
    with pytest.raises(DatasetDamaged):
        service.back_up(installation, tmp_path / "b.lethe", key_file=tmp_path / "key", progress=lambda *_: None)
    assert list(tmp_path.glob("*b.lethe*")) == []
    assert get(f"/datasets/{dataset_id}")["damage"]["kind"] == "record"
