"""What holds of rows wherever their truth is: in a folder, or in a bucket behind a copy."""

import datetime
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.errors import DatasetDamaged, DatasetUnknown, DatasetUnusable
from app.keys import KeyEncryptionFile
from app.registry.ingest import Batch
from app.registry.mirror import MirroredRowStore
from app.registry.rows import BLOCK_ROWS, RowStore
from app.registry.s3 import S3Store
from app.registry.sealing import Sealed

KEY = bytes(range(32))
NUM_SLOTS = 2 * BLOCK_ROWS + 7
TOUCHED = [1, BLOCK_ROWS - 1, NUM_SLOTS - 1]


def batch_of(num_rows: int = NUM_SLOTS, seed: int = 0) -> Batch:
    random = np.random.default_rng(seed)
    features = random.uniform(0.1, 0.5, (num_rows, 3)).astype(np.float32)
    labels = random.integers(1, 3, num_rows).astype(np.int32)
    return Batch(features=features, labels=labels, subjects=[None] * num_rows)


@pytest.fixture(params=["folder", "s3"])
def new_store(
    request: pytest.FixtureRequest, tmp_path: Path, key_encryption: KeyEncryptionFile
) -> Callable[[], RowStore]:
    """Opens a store in which there is nothing yet."""

    def opened() -> RowStore:
        if request.param == "folder":
            return RowStore(tmp_path / "datasets", KEY)
        objects = S3Store(f"s3://{request.getfixturevalue('bucket')}", "blocks")
        sealed = Sealed(objects, keys=tmp_path / "keys", key_encryption=key_encryption)
        return MirroredRowStore(tmp_path / "cache", KEY, objects=objects, sealed=sealed, locks=tmp_path / "locks")

    return opened


@pytest.fixture
def store(new_store: Callable[[], RowStore]) -> RowStore:
    store = new_store()
    with store.writing("ds_1") as writer:
        writer.append(batch_of(5))
        writer.append(batch_of(NUM_SLOTS - 5, seed=1))
    return store


def rows_of(store: RowStore) -> tuple[np.ndarray, np.ndarray]:
    rows = store.open("ds_1")
    return np.array(rows.features), np.array(rows.labels)


def test_what_was_written_is_read(store: RowStore, new_store: Callable[[], RowStore]) -> None:
    """Rows come back in the order of the batches, from whoever opens the store, as maps that cannot be changed."""
    expected = [batch_of(5), batch_of(NUM_SLOTS - 5, seed=1)]
    rows = new_store().open("ds_1")
    np.testing.assert_array_equal(rows.features, np.vstack([part.features for part in expected]))
    np.testing.assert_array_equal(rows.labels, np.hstack([part.labels for part in expected]))
    assert isinstance(rows.features, np.memmap)
    assert not rows.features.flags.writeable
    assert store.dataset_ids() == {"ds_1"}
    assert store.dataset_ids(older_than=datetime.timedelta(hours=1)) == set()


def test_nothing_remains_of_a_failed_upload(new_store: Callable[[], RowStore], tmp_path: Path) -> None:
    """When the block raises, or wrote no row, the dataset is unknown and can be written."""
    store = new_store()

    def torn_upload() -> None:
        with store.writing("ds_1") as writer:
            writer.append(batch_of(5))
            raise ConnectionError

    with pytest.raises(ConnectionError):
        torn_upload()
    with pytest.raises(DatasetUnusable), store.writing("ds_1"):
        pass
    assert store.dataset_ids() == set()
    assert not list(tmp_path.rglob("features.f32"))
    with pytest.raises(DatasetUnknown):
        store.open("ds_1")
    with store.writing("ds_1") as writer:
        writer.append(batch_of(5))
    assert store.open("ds_1").num_slots == 5


def test_nothing_is_seen_before_the_end(new_store: Callable[[], RowStore]) -> None:
    """While an upload is being written the dataset is unknown, and a sweep leaves the upload alone."""
    store = new_store()
    with store.writing("ds_1") as writer:
        writer.append(batch_of(5))
        store.sweep_temporary()
        with pytest.raises(DatasetUnknown):
            store.open("ds_1")
        assert store.dataset_ids() == set()
    assert store.open("ds_1").num_slots == 5


def test_rows_are_written_once(store: RowStore) -> None:
    """A second upload under the same id is refused and the first stays."""
    with pytest.raises(FileExistsError), store.writing("ds_1") as writer:
        writer.append(batch_of(5))
    assert store.open("ds_1").num_slots == NUM_SLOTS


def test_slots_become_null(store: RowStore, new_store: Callable[[], RowStore]) -> None:
    """The chosen slots are zero, the others keep their bits, for everybody; again changes nothing."""
    features, labels = rows_of(store)
    view = store.open("ds_1")
    features[TOUCHED], labels[TOUCHED] = 0, 0
    for _ in range(2):
        store.make_null("ds_1", TOUCHED)
        for opened in (store, new_store()):
            np.testing.assert_array_equal(rows_of(opened)[0], features)
            np.testing.assert_array_equal(rows_of(opened)[1], labels)
    assert not view.features[TOUCHED].any()


def test_a_slot_outside_changes_nothing(store: RowStore) -> None:
    """A slot that does not exist is an error before anything is written."""
    before = store.digest("ds_1")
    for slot in (-1, NUM_SLOTS):
        with pytest.raises(IndexError):
            store.make_null("ds_1", [0, slot])
    assert store.digest("ds_1") == before
    assert rows_of(store)[0].any(axis=1).all()


def test_the_digest_is_that_of_the_rows_alone(store: RowStore, tmp_path: Path) -> None:
    """Digests do not depend on where rows are kept, nor on whether they were null from the start."""
    batch = batch_of(NUM_SLOTS)
    for name in ("features", "labels"):
        getattr(batch, name)[:] = np.concatenate(
            [getattr(batch_of(5), name), getattr(batch_of(NUM_SLOTS - 5, seed=1), name)]
        )
        getattr(batch, name)[TOUCHED] = 0
    never = RowStore(tmp_path / "never", KEY)
    with never.writing("ds_1") as writer:
        writer.append(batch)
    store.make_null("ds_1", TOUCHED)
    assert store.digest("ds_1") == never.digest("ds_1")
    store.verify("ds_1", digest=never.digest("ds_1"))


def test_rows_that_are_not_those_on_record_are_refused(store: RowStore) -> None:
    """A digest other than that of the rows is an error."""
    before = store.digest("ds_1")
    store.verify("ds_1", digest=before)
    store.make_null("ds_1", TOUCHED)
    store.verify("ds_1", digest=None)
    with pytest.raises(DatasetDamaged):
        store.verify("ds_1", digest=before)


def test_released_rows_can_be_opened(store: RowStore) -> None:
    """Whoever releases rows may need them again."""
    before = rows_of(store)
    store.release("ds_1")
    np.testing.assert_array_equal(rows_of(store)[0], before[0])


def test_deleted_rows_are_gone(store: RowStore, tmp_path: Path) -> None:
    """Deleted rows are unknown, nothing of them is left on disk, and deleting again does nothing."""
    for _ in range(2):
        store.delete("ds_1")
        assert store.dataset_ids() == set()
    with pytest.raises(DatasetUnknown):
        store.open("ds_1")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "kek"]


def test_ids_that_are_none_are_refused(store: RowStore) -> None:
    """An id that could be a path is an unknown dataset."""
    for call in (store.open, store.digest, store.delete):
        with pytest.raises(DatasetUnknown):
            call("../ds_1")


FILLED = [3, 4, 5, BLOCK_ROWS - 1, BLOCK_ROWS, 2 * BLOCK_ROWS + 6]


def _batch(store: RowStore, num_rows: int = len(FILLED)) -> Batch:
    """Rows that lie beside the dataset, as `add_1`."""
    batch = batch_of(num_rows, seed=7)
    with store.writing("add_1") as writer:
        writer.append(batch)
    return batch


def test_a_batch_fills_slots(store: RowStore, new_store: Callable[[], RowStore]) -> None:
    """The rows of a batch are in their slots in its order, everything else is what it was, and the digests hold, for
    every host; filling again changes nothing."""
    before, labels_before = rows_of(store)
    store.make_null("ds_1", FILLED)
    batch = _batch(store)
    for _ in range(2):
        store.fill("ds_1", FILLED, store.open("add_1"))
        for host in (store, new_store()):
            host.verify("ds_1", digest=store.digest("ds_1"))
            features, labels = rows_of(host)
            np.testing.assert_array_equal(features[FILLED], batch.features)
            np.testing.assert_array_equal(labels[FILLED], batch.labels)
            others = np.setdiff1d(np.arange(NUM_SLOTS), FILLED)
            np.testing.assert_array_equal(features[others], before[others])
            np.testing.assert_array_equal(labels[others], labels_before[others])
    store.delete("add_1")
    assert new_store().dataset_ids() == {"ds_1"}


@pytest.mark.parametrize("slots", [[1, 2], [1, 1, 2], [0, 1, NUM_SLOTS]])
def test_a_batch_that_does_not_fit(store: RowStore, slots: list[int]) -> None:
    """As many slots as rows, each once, each in the dataset; or nothing is written."""
    _batch(store, 3)
    digest = store.digest("ds_1")
    with pytest.raises((ValueError, IndexError)):
        store.fill("ds_1", slots, store.open("add_1"))
    store.verify("ds_1", digest=digest)


def test_nothing_is_written_too_late(store: RowStore) -> None:
    """Whoever is not admitted, when nobody else can write any more, neither erases nor fills."""
    _batch(store)
    digest = store.digest("ds_1")

    def refuse() -> None:
        raise PermissionError

    with pytest.raises(PermissionError):
        store.make_null("ds_1", TOUCHED, admit=refuse)
    with pytest.raises(PermissionError):
        store.fill("ds_1", FILLED, store.open("add_1"), admit=refuse)
    store.verify("ds_1", digest=digest)


def test_held_rows_are_edited_by_nobody(store: RowStore, new_store: Callable[[], RowStore]) -> None:
    """Whoever would make slots null waits until the rows are let go; until then all their blocks are as they were."""
    features, labels = rows_of(store)
    digest = store.digest("ds_1")
    editing = threading.Thread(target=lambda: new_store().make_null("ds_1", TOUCHED))
    with store.held("ds_1") as (num_slots, num_columns):
        editing.start()
        blocks = list(store.blocks("ds_1", digest=digest))
        assert editing.is_alive()
    editing.join()
    assert (num_slots, num_columns) == (NUM_SLOTS, 3)
    size = 4 * 3 * BLOCK_ROWS
    assert blocks[1] == features[BLOCK_ROWS : 2 * BLOCK_ROWS].tobytes() + labels[BLOCK_ROWS : 2 * BLOCK_ROWS].tobytes()
    assert (len(blocks), len(blocks[0])) == (3, size + 4 * BLOCK_ROWS)
    assert not rows_of(store)[0][TOUCHED].any()
    with store.held("ds_1"), pytest.raises(DatasetDamaged):
        list(store.blocks("ds_1", digest=digest))
