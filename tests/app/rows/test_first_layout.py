"""Rows of the first layout are sealed when an installation is set up: those on record, once, whatever is killed."""

import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from app import installations
from app.config import Settings
from app.db.tables import Addition, Dataset
from app.installations import Installation
from app.rows import first_layout
from app.rows import repository as rows_repository
from app.rows.manifest import BLOCK_ROWS
from app.rows.row_store import RowStore
from app.unlearning import queue
from app.vault.s3 import S3Store
from lethe.contract.problems import DatasetDamaged
from lethe.contract.sets import DamageKind
from tests.stored import flipped, rows_of

FIXTURE = Path(__file__).parents[2] / "upgrade" / "data_folder_0001.tar.xz"


class Killed(BaseException):
    """Of whoever sets up, in this process."""


@pytest.fixture
def old(tmp_path: Path) -> Settings:
    """The settings of an installation of revision 0001."""
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    return Settings(data_dir=tmp_path / "data")


def _old_rows(settings: Settings) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    found = {}
    for folder in (settings.data_dir / "datasets").iterdir():
        shape = json.loads((folder / "shape.json").read_bytes())
        features = np.fromfile(folder / "features.f32", dtype="<f4").reshape(shape["num_slots"], shape["num_columns"])
        found[folder.name] = features, np.fromfile(folder / "labels.i32", dtype="<i4")
    return found


@contextmanager
def _set_up(settings: Settings) -> Iterator[Installation]:
    installations.set_up(settings)
    with installations.opened(settings) as installation:
        yield installation


def _assert_sealed(installation: Installation, rows: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """They are what they were, under new roots; nothing else of them is in any file."""
    assert installation.rows.stored().keys() == rows.keys()
    for rows_id, (features, labels) in rows.items():
        found = rows_of(installation, rows_id)
        np.testing.assert_array_equal(found.features, features)
        np.testing.assert_array_equal(found.labels, labels)
    with installation.database.reading() as session:
        assert not rows_repository.count_damaged(session)
        for rows_id, root in rows_repository.row_roots(session).items():
            assert installation.rows.is_settled(rows_id, root)
    assert not (installation.settings.data_dir / "datasets").exists()
    row = rows[min(rows)][0][0].tobytes()
    assert not any(row in path.read_bytes() for path in installation.settings.data_dir.rglob("*") if path.is_file())


def test_rows_are_sealed_once(old: Settings) -> None:
    """Datasets and what waits to be added to one are what they were, sealed; a second start leaves them as they are,
    and copies that a host kept of a bucket are wiped."""
    rows = _old_rows(old)
    shutil.copytree(old.data_dir / "datasets", old.data_dir / "cache")
    with _set_up(old) as at:
        _assert_sealed(at, rows)
        assert not any(path.is_file() for path in (old.data_dir / "cache").rglob("*"))
        with at.database.reading() as session:
            roots = rows_repository.row_roots(session)
    with _set_up(old) as at, at.database.reading() as session:
        assert rows_repository.row_roots(session) == roots


def test_an_upload_that_was_cut_off_is_wiped(old: Settings) -> None:
    """What no dataset claims is not taken over, half written or whole."""
    rows = _old_rows(old)
    of_somebody = next((old.data_dir / "datasets").iterdir())
    for name in (".writing-ds_9-0", ".deleting-ds_9", "ds_9"):
        shutil.copytree(of_somebody, old.data_dir / "datasets" / name)
    with _set_up(old) as at:
        _assert_sealed(at, rows)


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        (RowStore, "_put", 1),
        (RowStore, "_put", 3),
        (first_layout, "_sealed", 2),
        (rows_repository, "set_root", 1),
        (RowStore, "settle", 1),
        (RowStore, "settle", 4),
        (first_layout, "wipe", 2),
    ],
)
def test_killed_anywhere_it_goes_on(
    old: Settings, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int
) -> None:
    """Whoever is killed while rows are sealed has changed nothing that is on record, or the next start completes it."""
    rows, original, calls = _old_rows(old), getattr(owner, name), 0

    def dying(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        answer = original(*given, **named)
        if calls == call:
            raise Killed
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dying)
        with pytest.raises(Killed):
            installations.set_up(old)
    with _set_up(old) as at:
        _assert_sealed(at, rows)


@pytest.mark.parametrize("name", ["features.f32", "labels.i32", "block_digests.bin", "shape.json"])
@pytest.mark.parametrize("kind", ["dataset", "addition"])
def test_damage_is_not_sealed(old: Settings, kind: str, name: str) -> None:
    """A changed bit of any file makes its dataset damaged, at every start, and seals nothing of it; the others are
    sealed. Once the right file is back, the next start seals it and nothing is damaged any more."""
    ids = {path.name for path in (old.data_dir / "datasets").iterdir()}
    victim = next(one for one in sorted(ids) if one.startswith("ds_") == (kind == "dataset"))
    file, rows = old.data_dir / "datasets" / victim / name, _old_rows(old)
    right = file.read_bytes()
    file.write_bytes(flipped(right, 13))
    for _ in range(2):
        with _set_up(old) as at, at.database.reading() as session:
            [damaged] = session.scalars(sa.select(Dataset).where(Dataset.damaged_at.is_not(None)))
            addition = session.get(Addition, victim)
            assert damaged.id == (addition.dataset_id if addition else victim)
            assert damaged.damage == {"kind": DamageKind.FIRST_LAYOUT, "rows": victim, "block": None}
            for rows_id, root in rows_repository.row_roots(session).items():
                assert at.rows.is_there(rows_id, root) == (rows_id != victim)
            with pytest.raises(DatasetDamaged):
                at.rows.check(victim, rows_repository.row_roots(session)[victim])
    file.write_bytes(right)
    with _set_up(old) as at:
        _assert_sealed(at, rows)


def test_what_a_run_is_writing_is_left_alone(old: Settings) -> None:
    """Another process that still finds old rows, while a run edits what became of them, destroys nothing of the run."""
    before = old.data_dir / "before"
    shutil.copytree(old.data_dir / "datasets", before)
    with _set_up(old) as at:
        with at.database.writing() as session:
            claimed = queue.claim(session, worker="w", lease_seconds=60, max_requests=500)
        assert claimed
        root = at.rows.edit(claimed.dataset_id, claimed.root, null=[0])
        before.rename(old.data_dir / "datasets")
        with _set_up(old):
            pass
        assert not (old.data_dir / "datasets").exists()
        at.rows.check(claimed.dataset_id, root)


_PUT_BACK = "UPDATE datasets SET digest = :digest WHERE id = (SELECT min(id) FROM datasets)"


def test_rows_of_an_older_backup_are_not_sealed(old: Settings) -> None:
    """Rows that fit their digests, but not the one in the database, are damaged too."""
    database = sa.create_engine(f"sqlite:///{old.data_dir / 'lethe.db'}")
    with database.begin() as connection:
        connection.execute(sa.text(_PUT_BACK), {"digest": "0" * 64})
    database.dispose()
    with _set_up(old) as at, at.database.reading() as session:
        assert rows_repository.count_damaged(session) == 1


@pytest.fixture
def as_bucket(bucket: str, old: Settings) -> Callable[[], Settings]:
    """Moves the rows into a bucket, as the first release kept them there."""

    def moved() -> Settings:
        settings = old.model_copy(update={"store_url": f"s3://{bucket}"})
        objects, sealed = S3Store(f"s3://{bucket}", "blocks"), installations._sealed(settings, "blocks")
        for folder in (old.data_dir / "datasets").iterdir():
            shape = json.loads((folder / "shape.json").read_bytes())
            digests, features = (folder / "block_digests.bin").read_bytes(), (folder / "features.f32").read_bytes()
            labels, row_bytes = (folder / "labels.i32").read_bytes(), 4 * shape["num_columns"]
            split = [digests[start : start + 32].hex() for start in range(0, len(digests), 32)]
            for number, digest in enumerate(split):
                part, of_labels = number * BLOCK_ROWS * row_bytes, number * BLOCK_ROWS * 4
                content = features[part : part + BLOCK_ROWS * row_bytes]
                content += labels[of_labels : of_labels + 4 * BLOCK_ROWS]
                sealed.put(f"{folder.name}.{number:08}-{digest}", content)
            manifest = shape | {"block_rows": BLOCK_ROWS, "digests": split}
            objects.put(f"{folder.name}.manifest", json.dumps(manifest).encode())
        shutil.rmtree(old.data_dir / "datasets")
        return settings

    return moved


def test_rows_in_a_bucket(old: Settings, as_bucket: Callable[[], Settings]) -> None:
    """Blocks of the first layout are sealed anew under the new manifest, and destroyed."""
    rows = _old_rows(old)
    settings = as_bucket()
    before = S3Store(str(settings.store_url), "blocks").names().keys()
    with _set_up(settings) as at:
        _assert_sealed(at, rows)
        assert not before & S3Store(str(settings.store_url), "blocks").names().keys()


def test_damage_in_a_bucket_is_not_sealed(old: Settings, as_bucket: Callable[[], Settings]) -> None:
    """A manifest that names other rows than those on record makes its dataset damaged."""
    settings = as_bucket()
    objects = S3Store(str(settings.store_url), "blocks")
    name = next(one for one in sorted(objects.names()) if one.endswith(".manifest") and one.startswith("ds_"))
    manifest = json.loads(objects.get(name))
    digest = hashlib.sha256(b"other").hexdigest()
    objects.put(name, json.dumps(manifest | {"digests": [digest, *manifest["digests"][1:]]}).encode())
    for _ in range(2):
        with _set_up(settings) as at, at.database.reading() as session:
            assert rows_repository.count_damaged(session) == 1
            assert name in objects.names()
