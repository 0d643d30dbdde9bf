"""Rows at rest in a folder and in a bucket."""

import datetime
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.errors import DatasetTooLarge
from app.rows.blocks import BLOCK_ROWS, Filling
from app.rows.row_store import RowStore
from app.vault.sealing import SealedStore
from app.vault.store import ObjectStore
from lethe.contract.problems import DatasetDamaged, DatasetUnknown, DatasetUnusable
from tests.app.rows.at_rest import NUM_SLOTS, TOUCHED, batch_of, files, rows_of


def test_written_rows_are_read_back(store: RowStore, root: str, new_store: Callable[..., RowStore]) -> None:
    """Any process that opens the store reads the rows in the order of their batches, and cannot modify them."""
    expected = [batch_of(5), batch_of(NUM_SLOTS - 5, seed=1)]
    with new_store().open("ds_1", root) as rows:
        rows.show([range(rows.shape.num_blocks)])
        np.testing.assert_array_equal(rows.features, np.vstack([part[0] for part in expected]))
        np.testing.assert_array_equal(rows.labels, np.hstack([part[1] for part in expected]))
        assert not rows.features.flags.writeable
        assert not rows.labels.flags.writeable
    assert not rows.features.any()  # the memory was overwritten
    assert store.stored().keys() == {"ds_1"}
    assert store.stored()["ds_1"] <= datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=1)


def test_weights_are_stored_beside_labels(store: RowStore, new_store: Callable[..., RowStore]) -> None:
    """Row weights are read back from any block, and are nulled and filled together with their rows. A dataset cannot
    mix batches with and without weights, and a dataset with weights cannot be filled from a batch without them."""
    features, labels = batch_of(NUM_SLOTS)
    both = np.stack([labels, np.arange(1, NUM_SLOTS + 1, dtype=np.int32)], axis=1)
    with store.writing("ds_w") as writer:
        writer.write(features[:5], both[:5])
        writer.write(features[5:], both[5:])
    with new_store().open("ds_w", writer.root) as rows:
        assert rows.shape.has_weights
        for number in (rows.shape.num_blocks - 1, 0):
            rows.show([range(number, number + 1)])
            here = slice(number * BLOCK_ROWS, number * BLOCK_ROWS + rows.shape.rows_in(number))
            np.testing.assert_array_equal(rows.labels[here], both[here])
            np.testing.assert_array_equal(rows.features[here], features[here])
            assert np.count_nonzero(rows.labels[:, 1]) == here.stop - here.start  # the earlier block was overwritten
    with store.writing("more") as waiting:
        waiting.write(features[:1], both[:1])
    with store.writing("plain") as without:
        without.write(features[:1], labels[:1])
    nulled = store.edit("ds_w", writer.root, null=[3, BLOCK_ROWS])
    edited = store.edit("ds_w", nulled, fill=[Filling(rows_id="more", root=waiting.root, slots=(3,))])
    with store.open("ds_w", edited) as rows:
        rows.show([range(rows.shape.num_blocks)])
        assert rows.labels[[3, BLOCK_ROWS]].tolist() == [both[0].tolist(), [0, 0]]
    with pytest.raises(ValueError, match="has_weights"):
        store.edit("ds_w", nulled, fill=[Filling(rows_id="plain", root=without.root, slots=(3,))])

    def mix() -> None:
        with store.writing("mixed") as mixed:
            mixed.write(features[:1], both[:1])
            mixed.write(features[:1], labels[:1])

    with pytest.raises(ValueError, match="a weight for each row, or for none"):
        mix()


def test_stored_files_reveal_no_row(store: RowStore, root: str, objects: ObjectStore, tmp_path: Path) -> None:
    """Stored files contain no encoded row, nor any part of one, and can be read only by their owner."""
    features, _ = rows_of(store, root)
    at_rest = [objects.get(name) for name in objects.names()] + [path.read_bytes() for path in files(tmp_path)]
    for row in (0, BLOCK_ROWS, NUM_SLOTS - 1):
        assert not any(features[row].tobytes() in content for content in at_rest)
        assert not any(features[row, :2].tobytes() in content for content in at_rest)
    assert {path.stat().st_mode & 0o777 for path in files(tmp_path)} == {0o600}


def test_a_failed_upload_leaves_nothing(store: RowStore, objects: ObjectStore, tmp_path: Path) -> None:
    """If an upload raises an error or contains no rows, no file is left behind, and rows can be written again under the
    same id."""

    def torn_upload() -> None:
        with store.writing("ds_1") as writer:
            writer.write(*batch_of(BLOCK_ROWS + 5))
            raise ConnectionError

    with pytest.raises(ConnectionError):
        torn_upload()
    with pytest.raises(DatasetUnusable), store.writing("ds_1"):
        pass
    assert store.stored() == {}
    assert not list(files(tmp_path))
    assert not objects.names()
    with store.writing("ds_1") as writer:
        writer.write(*batch_of(5))
    assert store.shape("ds_1", writer.root).num_slots == 5


def test_a_failed_writing_thread_leaves_nothing(
    store: RowStore, objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure in a writing thread is raised in the thread that uploads, and the blocks that other threads have
    written are removed."""
    put, names = SealedStore.put, list[str]()

    def full_at_the_third(self: SealedStore, name: str, content: bytes) -> None:
        names.append(name)
        if len(names) >= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        put(self, name, content)

    monkeypatch.setattr(SealedStore, "put", full_at_the_third)
    with pytest.raises(OSError, match="No space"), store.writing("ds_1") as writer:
        writer.write(*batch_of(5 * BLOCK_ROWS))
    assert store.stored() == {}
    assert not list(files(tmp_path))
    assert not objects.names()


def test_a_second_upload_under_the_same_id_is_refused(store: RowStore, root: str) -> None:
    """A second upload under the same id is refused, and the rows of the first upload remain."""
    with pytest.raises(FileExistsError), store.writing("ds_1") as writer:
        writer.write(*batch_of(5))
    assert store.shape("ds_1", root).num_slots == NUM_SLOTS


@pytest.mark.parametrize(
    "spoilt",
    [
        (np.zeros((2, 3), np.float64), np.zeros(2, np.int32)),
        (np.zeros((2, 3), np.float32), np.zeros(2, np.int64)),
        (np.zeros((2, 3), np.float32), np.zeros(3, np.int32)),
        (np.zeros((2, 4), np.float32), np.zeros(2, np.int32)),
    ],
)
def test_arrays_of_another_kind_are_refused(store: RowStore, spoilt: tuple[np.ndarray, np.ndarray]) -> None:
    """A batch whose types or shapes differ from those of earlier batches raises an error, and nothing is stored."""
    with pytest.raises((ValueError, TypeError)), store.writing("ds_1", 3) as writer:
        writer.write(*spoilt)
    assert store.stored() == {}


def test_rows_that_do_not_fit_are_refused(root: str, new_store: Callable[..., RowStore]) -> None:
    """Rows that need more memory than permitted are not opened; an edit needs memory for only one block at a time."""
    needed = NUM_SLOTS * 16
    small = new_store(most_bytes=needed - 1)
    with small.open("ds_1", root) as rows:
        with pytest.raises(DatasetTooLarge, match="LETHE_ROWS_MEMORY_BYTES"):
            rows.show([range(rows.shape.num_blocks)])
        rows.show([range(1, 3)])
    small.check("ds_1", small.edit("ds_1", root, null=TOUCHED))
    with new_store(most_bytes=needed).open("ds_1", root) as rows:
        rows.show([range(rows.shape.num_blocks)])


def test_only_requested_blocks_take_memory(store: RowStore, root: str) -> None:
    """Blocks are loaded on request and take up memory only while in use. Before and after that, their memory is zero.
    Blocks that are not requested are never opened."""
    features, labels = rows_of(store, root)
    middle, end = slice(BLOCK_ROWS, 2 * BLOCK_ROWS), slice(2 * BLOCK_ROWS, NUM_SLOTS)
    opened: list[int] = []
    get = SealedStore.get

    def noted(self: SealedStore, name: str) -> bytes:
        opened.append(int(name.split(".")[1].split("-")[0]))
        return get(self, name)

    with pytest.MonkeyPatch.context() as patch, store.open("ds_1", root) as rows:
        patch.setattr(SealedStore, "get", noted)
        assert os.fstat(rows.descriptor).st_blocks == 0
        assert rows.records == NUM_SLOTS
        assert rows.show([range(1, 2)]) == {1: BLOCK_ROWS}
        np.testing.assert_array_equal(rows.features[middle], features[middle])
        np.testing.assert_array_equal(rows.labels[middle], labels[middle])
        assert os.fstat(rows.descriptor).st_blocks * 512 <= 2 * BLOCK_ROWS * 16
        assert rows.show([range(1, 3)]) == {1: BLOCK_ROWS, 2: 7}
        assert rows.show([range(2, 3)]) == {2: 7}
        assert opened == [1, 2]
        np.testing.assert_array_equal(rows.features[end], features[end])
        np.testing.assert_array_equal(rows.labels[end], labels[end])
        assert os.fstat(rows.descriptor).st_blocks * 512 <= 4 * 4096
        for nothing in (slice(0, BLOCK_ROWS), middle):
            assert not rows.features[nothing].any()
            assert not rows.labels[nothing].any()


def test_deleted_rows_are_gone(store: RowStore, root: str, objects: ObjectStore, tmp_path: Path) -> None:
    """After rows are deleted, no file contains them, and deleting them again is a no-op."""
    for _ in range(2):
        store.delete("ds_1")
        assert store.stored() == {}
    assert not objects.names()
    assert not list(files(tmp_path))
    assert not list((tmp_path / "locks").iterdir())
    with pytest.raises(DatasetDamaged):
        store.shape("ds_1", root)


def test_an_id_that_is_a_path_is_unknown(store: RowStore) -> None:
    """An id that could be a path is treated as an unknown dataset."""
    with pytest.raises(DatasetUnknown):
        store.shape("../ds_1", "0" * 64)
    with pytest.raises(DatasetUnknown):
        store.delete("../ds_1")


def test_rows_in_use_are_not_destroyed(store: RowStore, root: str, new_store: Callable[..., RowStore]) -> None:
    """Rows that the database referred to when a reader began are kept until the reader has ended."""
    after = store.edit("ds_1", root, null=TOUCHED)
    destroying = threading.Thread(target=lambda: new_store().destroy_replaced("ds_1", before=root, after=after))
    with store.alone("ds_1"):
        destroying.start()
        assert sum(len(block.labels) for block in store.read("ds_1", root)) == NUM_SLOTS
        assert destroying.is_alive()
        with pytest.raises(BlockingIOError):
            new_store().delete("ds_1", wait=False)
    destroying.join()
    with pytest.raises(DatasetDamaged):
        store.check("ds_1", root)


def test_a_deleted_lock_is_replaced(store: RowStore, root: str, new_store: Callable[..., RowStore]) -> None:
    """If rows and their lock are deleted while a process waits for the lock, the process then gets exclusive access to
    the rows that exist at that time."""
    entered = threading.Event()

    def wait() -> None:
        with new_store().alone("ds_1"):
            entered.set()

    waiting = threading.Thread(target=wait)
    with store.alone("ds_1"):
        waiting.start()
    waiting.join()
    store.delete("ds_1")
    with store.alone("ds_1"), pytest.raises(BlockingIOError), new_store().alone("ds_1", wait=False):
        pass
    assert entered.is_set()
