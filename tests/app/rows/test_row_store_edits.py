"""Edits of rows at rest, in a folder and in a bucket: what an edit writes, and what is destroyed after it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.rows.blocks import BLOCK_ROWS, Filling
from app.rows.row_store import RowStore
from app.vault.store import ObjectStore
from lethe.contract.problems import DatasetDamaged
from tests.app.rows.at_rest import NUM_SLOTS, TOUCHED, batch_of, rows_of
from tests.settled import is_settled

FILLED = (3, 4, 5, BLOCK_ROWS - 1, BLOCK_ROWS, 2 * BLOCK_ROWS + 6)


def test_roots_do_not_depend_on_rows_alone(store: RowStore, root: str) -> None:
    """Writing the same rows again produces a different root, but an edit that fills slots with the rows they already
    contain does not change the root."""
    with store.writing("ds_2") as writer:
        writer.write(*batch_of(5))
        writer.write(*batch_of(NUM_SLOTS - 5, seed=1))
    np.testing.assert_array_equal(rows_of(store, root)[0], rows_of(store, writer.root, "ds_2")[0])
    assert writer.root != root
    with store.writing("back") as back:
        back.write(*batch_of(NUM_SLOTS - 5, seed=1))
    refilled = store.edit("ds_2", writer.root, fill=[_of("back", back.root, range(5, NUM_SLOTS))])
    assert refilled == writer.root  # no change


def test_slots_become_null(store: RowStore, root: str, new_store: Callable[..., RowStore]) -> None:
    """Under the new root, the selected slots are zero and count as null, and all other slots are unchanged. The old
    root still opens the old rows. If all selected slots are already null, no new root is created."""
    before, labels = rows_of(store, root)
    after = store.edit("ds_1", root, null=TOUCHED)
    np.testing.assert_array_equal(rows_of(new_store(), root)[0], before)
    nulled, labels_nulled = rows_of(new_store(), after)
    before[TOUCHED], labels[TOUCHED] = 0, 0
    np.testing.assert_array_equal(nulled, before)
    np.testing.assert_array_equal(labels_nulled, labels)
    assert store.edit("ds_1", after, null=TOUCHED) == after
    assert [store.count("ds_1", one) for one in (root, after)] == [NUM_SLOTS, NUM_SLOTS - len(TOUCHED)]


def test_only_touched_blocks_are_written(store: RowStore, root: str, objects: ObjectStore) -> None:
    """An edit writes only the blocks that it changes and the nodes above them, and reads no other blocks."""
    before = objects.names().keys()
    victim = next(name for name in before if ".00000001-" in name)
    objects.put(victim, b"damaged")
    store.edit("ds_1", root, null=[1])
    assert len(objects.names().keys() - before) == 2


def test_replaced_blocks_cannot_be_opened(store: RowStore, root: str, tmp_path: Path) -> None:
    """Once the new root is recorded, the keys of objects used only by the old root are destroyed. Shared objects, and
    objects that a later run has written in the meantime, are kept."""
    after = store.edit("ds_1", root, null=[1])
    beside = store.edit("ds_1", after, null=[2])
    store.destroy_replaced("ds_1", before=root, after=after)
    with pytest.raises(DatasetDamaged):
        store.shape("ds_1", root)
    for one in (after, beside):
        store.check("ds_1", one)
    assert not is_settled(store, "ds_1", after)
    with store.alone("ds_1"):
        store.settle("ds_1", after)
    assert is_settled(store, "ds_1", after)
    with pytest.raises(DatasetDamaged):
        store.check("ds_1", beside)
    store.check("ds_1", after)
    assert len(list((tmp_path / "keys").iterdir())) == 3


def test_a_partial_manifest_is_swept(store: RowStore, root: str, tmp_path: Path) -> None:
    """If a process is killed and leaves a partially written manifest file in a folder, the next call of `settle` for
    the dataset removes the file."""
    left = tmp_path / "blocks" / ".unfinished" / f"ds_1.{'0' * 64}.node.34a09c37"
    left.write_bytes(b"half a node")
    with store.alone("ds_1"):
        store.settle("ds_1", root)
    assert not left.exists()
    store.check("ds_1", root)


def test_restored_old_blocks_are_swept(store: RowStore, root: str, objects: ObjectStore, tmp_path: Path) -> None:
    """If a restore brings back old blocks and keys that no root refers to, they are found and destroyed without being
    opened."""
    old_objects = {name: objects.get(name) for name in objects.names()}
    old_keys = {path: path.read_bytes() for path in (tmp_path / "keys").iterdir()}
    after = store.edit("ds_1", root, null=[1])
    store.destroy_replaced("ds_1", before=root, after=after)
    assert is_settled(store, "ds_1", after)
    for name, content in old_objects.items():
        objects.put(name, content)
    for path, content in old_keys.items():
        path.write_bytes(content)
    assert not is_settled(store, "ds_1", after)
    assert not rows_of(store, after)[0][1].any()
    with store.alone("ds_1"):
        store.settle("ds_1", after)
    assert len(objects.names()) == 4
    with pytest.raises(DatasetDamaged):
        store.check("ds_1", root)


@pytest.mark.parametrize("slot", [-1, NUM_SLOTS])
def test_a_slot_outside_the_dataset_is_refused(store: RowStore, root: str, objects: ObjectStore, slot: int) -> None:
    """Nulling a slot that does not exist raises an error before anything is written."""
    before = objects.names().keys()
    with pytest.raises(IndexError):
        store.edit("ds_1", root, null=[0, slot])
    assert objects.names().keys() == before


def _of(rows_id: str, root: str, slots: range | tuple[int, ...]) -> Filling:
    return Filling(rows_id=rows_id, root=root, slots=tuple(slots))


def test_a_batch_fills_slots(store: RowStore, root: str) -> None:
    """The rows of a batch fill the given slots in order, except for slots that the same edit nulls, and all other slots
    are unchanged. Repeating the edit does not change the root."""
    before, _ = rows_of(store, root)
    batch = batch_of(len(FILLED), seed=7)
    with store.writing("add_1") as writer:
        writer.write(*batch)
    filling = _of("add_1", writer.root, FILLED)
    after = store.edit("ds_1", root, fill=[filling], null=[4, 8])
    features, labels = rows_of(store, after)
    expected = batch[0].copy()
    expected[1] = 0
    np.testing.assert_array_equal(features[list(FILLED)], expected)
    assert labels[list(FILLED)].tolist() == [0 if slot == 4 else batch[1][n] for n, slot in enumerate(FILLED)]
    others = np.setdiff1d(np.arange(NUM_SLOTS), [*FILLED, 8])
    np.testing.assert_array_equal(features[others], before[others])
    assert not features[8].any()
    assert store.edit("ds_1", after, fill=[filling], null=[4, 8]) == after


def test_a_large_batch_fills_slots(store: RowStore, root: str) -> None:
    """A batch larger than a block can fill scattered slots."""
    batch = batch_of(BLOCK_ROWS + 100, seed=7)
    with store.writing("add_1") as writer:
        writer.write(*batch)
    slots = tuple(sorted(np.random.default_rng(3).choice(NUM_SLOTS, BLOCK_ROWS + 100, replace=False).tolist()))
    features, _ = rows_of(store, store.edit("ds_1", root, fill=[_of("add_1", writer.root, slots)]))
    np.testing.assert_array_equal(features[list(slots)], batch[0])


@pytest.mark.parametrize("slots", [(1, 2), (1, 1, 2), (2, 1, 0), (0, 1, NUM_SLOTS)])
def test_a_batch_that_does_not_fit_is_refused(store: RowStore, root: str, slots: tuple[int, ...]) -> None:
    """A batch is refused unless it has exactly one slot per row and the slots are distinct, in ascending order and
    within the dataset."""
    with store.writing("add_1") as writer:
        writer.write(*batch_of(3))
    with pytest.raises((ValueError, IndexError)):
        store.edit("ds_1", root, fill=[_of("add_1", writer.root, slots)])
