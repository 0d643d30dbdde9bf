import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.errors import DatasetUnknown, DatasetUnusable
from app.registry.ingest import Batch
from app.registry.rows import BLOCK_ROWS, RowStore

KEY = bytes(range(32))
NUM_COLUMNS = 3
NUM_SLOTS = 2 * BLOCK_ROWS + 7


def batch_of(num_rows: int, seed: int = 0) -> Batch:
    random = np.random.default_rng(seed)
    features = random.uniform(0.1, 0.5, (num_rows, NUM_COLUMNS)).astype(np.float32)
    labels = random.integers(1, 3, num_rows).astype(np.int32)
    return Batch(features=features, labels=labels, subjects=[None] * num_rows)


def stored(root: Path, num_rows: int = NUM_SLOTS, seed: int = 0, key: bytes = KEY) -> RowStore:
    store = RowStore(root, key)
    with store.writing("ds_1", NUM_COLUMNS) as writer:
        writer.append(batch_of(num_rows, seed))
    return store


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def store(tmp_path: Path) -> RowStore:
    return stored(tmp_path)


# --- writing ---------------------------------------------------------------------------------------------------------


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Rows come back in the order of the batches, little-endian and row-major on disk, and cannot be changed."""
    store = RowStore(tmp_path / "new", KEY)
    parts = [batch_of(size, seed) for seed, size in enumerate((5, BLOCK_ROWS, 1))]
    assert store.dataset_ids() == set()
    with store.writing("ds_1") as writer:
        for part in parts:
            writer.append(part)
    rows = store.open("ds_1")
    assert store.dataset_ids() == {"ds_1"}
    assert (rows.num_slots, rows.num_columns) == (BLOCK_ROWS + 6, NUM_COLUMNS)
    np.testing.assert_array_equal(rows.features, np.vstack([part.features for part in parts]))
    np.testing.assert_array_equal(rows.labels, np.hstack([part.labels for part in parts]))
    assert (tmp_path / "new/ds_1/features.f32").read_bytes() == rows.features.astype("<f4").tobytes()
    assert not rows.features.flags.writeable
    assert not rows.labels.flags.writeable


def test_only_the_owner_can_read(store: RowStore, tmp_path: Path) -> None:
    """The folder and its files are closed to everybody but their owner."""
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "ds_1").iterdir()}
    assert modes == {0o600}
    assert (tmp_path / "ds_1").stat().st_mode & 0o777 == 0o700


def test_nothing_remains_of_a_failed_upload(tmp_path: Path) -> None:
    """When the block raises, or wrote no row, no file is left and the dataset is unknown."""
    store = RowStore(tmp_path, KEY)

    def torn_upload() -> None:
        with store.writing("ds_1", NUM_COLUMNS) as writer:
            writer.append(batch_of(5))
            raise ConnectionError

    with pytest.raises(ConnectionError):
        torn_upload()
    with pytest.raises(DatasetUnusable), store.writing("ds_1", NUM_COLUMNS):
        pass
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DatasetUnknown):
        store.open("ds_1")


def test_nothing_is_seen_before_the_end(tmp_path: Path) -> None:
    """While an upload is being written the dataset is unknown, and a sweep leaves the upload alone."""
    store = RowStore(tmp_path, KEY)
    with store.writing("ds_1", NUM_COLUMNS) as writer:
        writer.append(batch_of(5))
        store.sweep_temporary()
        with pytest.raises(DatasetUnknown):
            store.open("ds_1")
        assert store.dataset_ids() == set()
    assert store.open("ds_1").num_slots == 5


def test_rows_are_written_once(store: RowStore, tmp_path: Path) -> None:
    """A second upload under the same id is refused and the first stays."""
    before = contents(tmp_path)
    with pytest.raises(FileExistsError), store.writing("ds_1", NUM_COLUMNS):
        pass
    assert contents(tmp_path) == before


def test_batches_of_another_shape_or_type_are_refused(tmp_path: Path) -> None:
    """A batch with another width, another number of labels or another type is an error, and nothing remains."""
    good = batch_of(2)
    wrong = [
        Batch(features=good.features[:, 1:], labels=good.labels, subjects=[]),
        Batch(features=good.features, labels=good.labels[1:], subjects=[]),
        Batch(features=good.features.astype(np.float64), labels=good.labels, subjects=[]),
    ]
    for batch in wrong:
        with pytest.raises((ValueError, TypeError)), RowStore(tmp_path, KEY).writing("ds_1", NUM_COLUMNS) as writer:
            writer.append(batch)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dataset_id", ["", ".", "..", "../ds_1", "a/b", ".writing-x", "ds_1\n", "x" * 200])
def test_an_id_never_leaves_the_root(store: RowStore, dataset_id: str) -> None:
    """An id that could name another folder names no dataset."""
    for use in (store.open, store.digest, store.delete):
        with pytest.raises(DatasetUnknown):
            use(dataset_id)


# --- null rows -------------------------------------------------------------------------------------------------------


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(slots=st.lists(st.integers(0, NUM_SLOTS - 1), max_size=10))
def test_exactly_the_slots_become_null(tmp_path_factory: pytest.TempPathFactory, slots: list[int]) -> None:
    """The chosen slots are zero, bias and label included, the others keep their bits, and again changes nothing."""
    root = tmp_path_factory.mktemp("rows")
    store = stored(root)
    whole = batch_of(NUM_SLOTS)
    features, labels = whole.features.copy(), whole.labels.copy()
    features[slots], labels[slots] = 0, 0
    store.make_null("ds_1", slots)
    np.testing.assert_array_equal(store.open("ds_1").features, features)
    np.testing.assert_array_equal(store.open("ds_1").labels, labels)
    once = contents(root)
    store.make_null("ds_1", slots)
    assert contents(root) == once


def test_an_open_view_sees_the_null_row(store: RowStore) -> None:
    """A worker that has the rows mapped sees the slots go."""
    rows = store.open("ds_1")
    assert rows.features[5].any()
    store.make_null("ds_1", [5])
    assert not rows.features[5].any()
    assert rows.labels[5] == 0


def test_the_digest_is_that_of_rows_written_null(store: RowStore, tmp_path: Path) -> None:
    """After a deletion the digest is the one the dataset would have had with null rows from the start."""
    slots = [0, BLOCK_ROWS - 1, BLOCK_ROWS, NUM_SLOTS - 1]
    batch = batch_of(NUM_SLOTS)
    batch.features[slots], batch.labels[slots] = 0, 0
    never = RowStore(tmp_path / "never", KEY)
    with never.writing("ds_1", NUM_COLUMNS) as writer:
        writer.append(batch)
    store.make_null("ds_1", slots)
    assert store.digest("ds_1") == never.digest("ds_1")


@pytest.mark.parametrize("slot", [-1, NUM_SLOTS])
def test_a_slot_outside_changes_nothing(store: RowStore, tmp_path: Path, slot: int) -> None:
    """A slot that does not exist is an error before anything is written."""
    before = contents(tmp_path)
    with pytest.raises(IndexError):
        store.make_null("ds_1", [0, slot])
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["features.f32", "labels.i32", "block_digests.bin"])
@pytest.mark.parametrize("written", [1, 4])
def test_a_deletion_cut_short_is_completed_by_the_next(tmp_path: Path, name: str, written: int) -> None:
    """Whatever bytes a killed deletion had written, running it again ends where an undisturbed one does."""
    calm, cut = stored(tmp_path / "calm"), stored(tmp_path / "cut")
    calm.make_null("ds_1", [1, BLOCK_ROWS])
    path = tmp_path / "cut" / "ds_1" / name
    start = {"features.f32": 4 * NUM_COLUMNS, "labels.i32": 4, "block_digests.bin": 0}[name]
    data = bytearray(path.read_bytes())
    data[start : start + written] = bytes(written)
    path.write_bytes(data)
    cut.make_null("ds_1", [1, BLOCK_ROWS])
    assert contents(tmp_path / "cut") == contents(tmp_path / "calm")


KILLED = """
import os, signal, sys
from pathlib import Path
from app.registry.rows import RowStore
calls = int(sys.argv[2])
def dying(call):
    def count(*arguments):
        global calls
        calls -= 1
        if calls < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments)
    return count
for name in ("pwrite", "fsync", "pread"):
    setattr(os, name, dying(getattr(os, name)))
RowStore(Path(sys.argv[1]), bytes(range(32))).make_null("ds_1", [1, 4096])
"""


@pytest.mark.slow
def test_a_deletion_killed_anywhere_is_completed_by_the_next(tmp_path: Path) -> None:
    """Killed with SIGKILL before any of its writes, syncs and reads, a deletion can be run again to the same end."""
    calm = stored(tmp_path / "calm", BLOCK_ROWS + 1)
    calm.make_null("ds_1", [1, BLOCK_ROWS])
    for calls in range(20):
        root = tmp_path / f"killed-{calls}"
        store = stored(root, BLOCK_ROWS + 1)
        process = subprocess.run([sys.executable, "-c", KILLED, str(root), str(calls)], check=False)
        store.make_null("ds_1", [1, BLOCK_ROWS])
        assert contents(root) == contents(tmp_path / "calm")
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
    assert calls == 13  # twice two writes, a sync, two reads; two digests and a sync


# --- digests ---------------------------------------------------------------------------------------------------------


def test_the_digest_tells_rows_keys_and_shapes_apart(tmp_path: Path) -> None:
    """Equal rows have equal digests; another row, another key or another number of slots gives another digest."""
    digest = stored(tmp_path / "a", 10).digest("ds_1")
    assert len(digest) == 64
    assert stored(tmp_path / "b", 10).digest("ds_1") == digest
    assert stored(tmp_path / "c", 10, seed=1).digest("ds_1") != digest
    assert stored(tmp_path / "d", 11).digest("ds_1") != digest
    assert stored(tmp_path / "e", 10, key=KEY[::-1]).digest("ds_1") != digest


def test_a_short_key_is_refused(tmp_path: Path) -> None:
    """A key that could be guessed, or that BLAKE2b does not take, is refused."""
    for key in (b"", b"short", bytes(65)):
        with pytest.raises(ValueError, match="digest_key"):
            RowStore(tmp_path, key)


def test_a_file_of_another_size_is_refused(store: RowStore, tmp_path: Path) -> None:
    """Rows whose files do not have the size that their shape asks for are not opened."""
    os.truncate(tmp_path / "ds_1" / "labels.i32", 8)
    with pytest.raises(OSError, match=r"labels\.i32"):
        store.open("ds_1")


# --- going -----------------------------------------------------------------------------------------------------------


def test_deleted_rows_are_overwritten_and_gone(store: RowStore, tmp_path: Path) -> None:
    """Every byte of a deleted dataset is zero before its name goes, and deleting again does nothing."""
    links = [tmp_path / f"link-{path.name}" for path in (tmp_path / "ds_1").iterdir()]
    for link in links:
        os.link(tmp_path / "ds_1" / link.name.removeprefix("link-"), link)
    store.delete("ds_1")
    assert all(link.stat().st_size > 0 and not any(link.read_bytes()) for link in links)
    assert set(tmp_path.iterdir()) == set(links)
    store.delete("ds_1")
    with pytest.raises(DatasetUnknown):
        store.open("ds_1")


def test_a_deletion_of_all_rows_cut_short_is_completed(store: RowStore, tmp_path: Path) -> None:
    """What a crash left under the hidden name goes with the next deletion or the next sweep."""
    (tmp_path / "ds_1").rename(tmp_path / ".deleting-ds_1")
    store.delete("ds_1")
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_wipes_what_a_crash_left(store: RowStore, tmp_path: Path) -> None:
    """Hidden folders of dead processes are wiped, datasets stay."""
    for name in (".writing-ds_2-00ff", ".deleting-ds_3"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "features.f32").write_bytes(b"someone")
    before = contents(tmp_path / "ds_1")
    store.sweep_temporary()
    assert [path.name for path in tmp_path.iterdir()] == ["ds_1"]
    assert contents(tmp_path / "ds_1") == before
