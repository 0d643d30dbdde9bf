"""What holds of rows at rest, in a folder and in a bucket alike."""

import datetime
import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from app.errors import DatasetTooLarge
from app.keys import KeyEncryptionFile, KeyEncryptionKeyLost
from app.rows.blocks import Features, Filling, Labels
from app.rows.manifest import BLOCK_ID, BLOCK_ROWS
from app.rows.row_store import RowStore
from app.vault.s3 import S3Store
from app.vault.sealing import Sealed
from app.vault.store import FolderStore, ObjectStore
from lethe.contract.problems import DatasetDamaged, DatasetUnknown, DatasetUnusable
from lethe.contract.sets import DamageKind
from tests.stored import flipped

NUM_SLOTS = 2 * BLOCK_ROWS + 7
TOUCHED = [1, BLOCK_ROWS - 1, NUM_SLOTS - 1]
FILLED = (3, 4, 5, BLOCK_ROWS - 1, BLOCK_ROWS, 2 * BLOCK_ROWS + 6)
ROOM = 2**20


def batch_of(num_rows: int = NUM_SLOTS, seed: int = 0) -> tuple[Features, Labels]:
    random = np.random.default_rng(seed)
    features = random.uniform(0.1, 0.5, (num_rows, 3)).astype(np.float32)
    labels = random.integers(1, 3, num_rows).astype(np.int32)
    return features, labels


@pytest.fixture(params=["folder", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        store = FolderStore(tmp_path / "blocks")
        store.check()
        return store
    return S3Store(f"s3://{request.getfixturevalue('bucket')}", "blocks")


@pytest.fixture
def new_store(objects: ObjectStore, tmp_path: Path, key_encryption: KeyEncryptionFile) -> Callable[..., RowStore]:
    """Opens the store, as each process does for itself."""

    def opened(most_bytes: int = ROOM) -> RowStore:
        sealed = Sealed(objects, keys=tmp_path / "keys", key_encryption=key_encryption)
        return RowStore(objects, sealed, locks=tmp_path / "locks", most_bytes=most_bytes)

    return opened


@pytest.fixture
def store(new_store: Callable[..., RowStore]) -> RowStore:
    return new_store()


@pytest.fixture
def root(store: RowStore) -> str:
    """Of `ds_1`, which two batches made."""
    with store.writing("ds_1") as writer:
        writer.write(*batch_of(5))
        writer.write(*batch_of(NUM_SLOTS - 5, seed=1))
    return writer.root


def rows_of(store: RowStore, root: str, rows_id: str = "ds_1") -> tuple[np.ndarray, np.ndarray]:
    with store.open(rows_id, root) as rows:
        rows.show_all()
        return rows.features.copy(), rows.labels.copy()


def files(tmp_path: Path) -> Iterator[Path]:
    return (path for path in tmp_path.rglob("*") if path.is_file() and path.name != "kek")


def test_what_was_written_is_read(store: RowStore, root: str, new_store: Callable[..., RowStore]) -> None:
    """Rows come back in the order of the batches, from whoever opens the store, and cannot be changed."""
    expected = [batch_of(5), batch_of(NUM_SLOTS - 5, seed=1)]
    with new_store().open("ds_1", root) as rows:
        rows.show_all()
        np.testing.assert_array_equal(rows.features, np.vstack([part[0] for part in expected]))
        np.testing.assert_array_equal(rows.labels, np.hstack([part[1] for part in expected]))
        assert not rows.features.flags.writeable
        assert not rows.labels.flags.writeable
    assert not rows.features.any()  # what is left of the memory
    assert store.stored().keys() == {"ds_1"}
    assert store.stored()["ds_1"] <= datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=1)


def test_nothing_at_rest_shows_a_row(store: RowStore, root: str, objects: ObjectStore, tmp_path: Path) -> None:
    """Whatever is stored of rows holds none of them as it was encoded, nor a part of one, and is for its owner only."""
    features, _ = rows_of(store, root)
    at_rest = [objects.get(name) for name in objects.names()] + [path.read_bytes() for path in files(tmp_path)]
    for row in (0, BLOCK_ROWS, NUM_SLOTS - 1):
        assert not any(features[row].tobytes() in content for content in at_rest)
        assert not any(features[row, :2].tobytes() in content for content in at_rest)
    assert {path.stat().st_mode & 0o777 for path in files(tmp_path)} == {0o600}


def test_a_root_is_a_function_of_no_row(store: RowStore, root: str) -> None:
    """The same rows again have another root, and so have rows that were changed and changed back."""
    with store.writing("ds_2") as writer:
        writer.write(*batch_of(5))
        writer.write(*batch_of(NUM_SLOTS - 5, seed=1))
    np.testing.assert_array_equal(rows_of(store, root)[0], rows_of(store, writer.root, "ds_2")[0])
    assert writer.root != root
    with store.writing("back") as back:
        back.write(*batch_of(NUM_SLOTS - 5, seed=1))
    refilled = store.edit("ds_2", writer.root, fill=[_of("back", back.root, range(5, NUM_SLOTS))])
    assert refilled == writer.root  # nothing had changed


def test_rows_in_another_order_are_damaged(store: RowStore, root: str, objects: ObjectStore) -> None:
    """The root names the order of the rows: blocks that change places, in the tree or where they lie, are told."""
    node = next(name for name in objects.names() if root in name)
    was = objects.get(node)
    size = BLOCK_ID + 8  # with how many of its rows are not null
    first, second, last = (was[start:][:size] for start in range(len(was) - 3 * size, len(was), size))
    objects.put(node, was[: -3 * size] + second + first + last)
    with pytest.raises(DatasetDamaged):
        store.check("ds_1", root)
    objects.put(node, was)
    one, other = (next(name for name in objects.names() if block[:BLOCK_ID].hex() in name) for block in (first, second))
    contents = objects.get(one), objects.get(other)
    for name, content in zip((other, one), contents, strict=True):
        objects.put(name, content)
    with pytest.raises(DatasetDamaged):
        store.check("ds_1", root)


def test_nothing_remains_of_a_failed_upload(store: RowStore, objects: ObjectStore, tmp_path: Path) -> None:
    """When the block raises, or wrote no row, nothing is left, and the rows can be written."""

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


def test_nothing_remains_where_a_block_cannot_be_sealed(
    store: RowStore, objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a thread could not do is raised by whoever writes, and nothing is left of what the others did."""
    put, names = Sealed.put, list[str]()

    def full_at_the_third(self: Sealed, name: str, content: bytes) -> None:
        names.append(name)
        if len(names) >= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        put(self, name, content)

    monkeypatch.setattr(Sealed, "put", full_at_the_third)
    with pytest.raises(OSError, match="No space"), store.writing("ds_1") as writer:
        writer.write(*batch_of(5 * BLOCK_ROWS))
    assert store.stored() == {}
    assert not list(files(tmp_path))
    assert not objects.names()


def test_rows_are_written_once(store: RowStore, root: str) -> None:
    """A second upload under the same id is refused and the first stays."""
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
    """Batches whose types or shapes are not those of the rows raise, and nothing is stored."""
    with pytest.raises((ValueError, TypeError)), store.writing("ds_1", 3) as writer:
        writer.write(*spoilt)
    assert store.stored() == {}


def test_slots_become_null(store: RowStore, root: str, new_store: Callable[..., RowStore]) -> None:
    """Under the new root the chosen slots are zero and the others keep their bits; under the old one nothing changed;
    where all is null already the root stays."""
    before, labels = rows_of(store, root)
    after = store.edit("ds_1", root, null=TOUCHED)
    np.testing.assert_array_equal(rows_of(new_store(), root)[0], before)
    nulled, labels_nulled = rows_of(new_store(), after)
    before[TOUCHED], labels[TOUCHED] = 0, 0
    np.testing.assert_array_equal(nulled, before)
    np.testing.assert_array_equal(labels_nulled, labels)
    assert store.edit("ds_1", after, null=TOUCHED) == after


def test_only_touched_blocks_are_written(store: RowStore, root: str, objects: ObjectStore) -> None:
    """An edit writes the blocks that it changes and the way to them, and reads no other."""
    before = objects.names().keys()
    victim = next(name for name in before if ".00000001-" in name)
    objects.put(victim, b"damaged")
    store.edit("ds_1", root, null=[1])
    assert len(objects.names().keys() - before) == 2


def test_what_was_replaced_cannot_be_opened(store: RowStore, root: str, tmp_path: Path) -> None:
    """Once the new root is on record, the keys of what only the old one names are destroyed, and what both name stays;
    so does what a run after this one writes meanwhile."""
    after = store.edit("ds_1", root, null=[1])
    beside = store.edit("ds_1", after, null=[2])
    store.destroy_replaced("ds_1", before=root, after=after)
    with pytest.raises(DatasetDamaged):
        store.shape("ds_1", root)
    for one in (after, beside):
        store.check("ds_1", one)
    assert not store.is_settled("ds_1", after)
    with store.alone("ds_1"):
        store.settle("ds_1", after)
    assert store.is_settled("ds_1", after)
    with pytest.raises(DatasetDamaged):
        store.check("ds_1", beside)
    store.check("ds_1", after)
    assert len(list((tmp_path / "keys").iterdir())) == 3


def test_what_was_put_back_is_found_and_swept(store: RowStore, root: str, objects: ObjectStore, tmp_path: Path) -> None:
    """Blocks and keys of an older copy are named by no root: they are seen, opened by nobody, and destroyed."""
    old_objects = {name: objects.get(name) for name in objects.names()}
    old_keys = {path: path.read_bytes() for path in (tmp_path / "keys").iterdir()}
    after = store.edit("ds_1", root, null=[1])
    store.destroy_replaced("ds_1", before=root, after=after)
    assert store.is_settled("ds_1", after)
    for name, content in old_objects.items():
        objects.put(name, content)
    for path, content in old_keys.items():
        path.write_bytes(content)
    assert not store.is_settled("ds_1", after)
    assert not rows_of(store, after)[0][1].any()
    with store.alone("ds_1"):
        store.settle("ds_1", after)
    assert len(objects.names()) == 4
    with pytest.raises(DatasetDamaged):
        store.check("ds_1", root)


@pytest.mark.parametrize("slot", [-1, NUM_SLOTS])
def test_a_slot_outside_changes_nothing(store: RowStore, root: str, objects: ObjectStore, slot: int) -> None:
    """A slot that does not exist is an error before anything is written."""
    before = objects.names().keys()
    with pytest.raises(IndexError):
        store.edit("ds_1", root, null=[0, slot])
    assert objects.names().keys() == before


def _of(rows_id: str, root: str, slots: range | tuple[int, ...]) -> Filling:
    return Filling(rows_id=rows_id, root=root, slots=tuple(slots))


def test_a_batch_fills_slots(store: RowStore, root: str) -> None:
    """The rows of a batch are in their slots in its order but for those that end null, and everything else is what it
    was; where all is so already the root stays."""
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
    """A batch of more than a block goes into slots here and there."""
    batch = batch_of(BLOCK_ROWS + 100, seed=7)
    with store.writing("add_1") as writer:
        writer.write(*batch)
    slots = tuple(sorted(np.random.default_rng(3).choice(NUM_SLOTS, BLOCK_ROWS + 100, replace=False).tolist()))
    features, _ = rows_of(store, store.edit("ds_1", root, fill=[_of("add_1", writer.root, slots)]))
    np.testing.assert_array_equal(features[list(slots)], batch[0])


@pytest.mark.parametrize("slots", [(1, 2), (1, 1, 2), (2, 1, 0), (0, 1, NUM_SLOTS)])
def test_a_batch_that_does_not_fit(store: RowStore, root: str, slots: tuple[int, ...]) -> None:
    """As many slots as rows, each once, in their order and in the dataset."""
    with store.writing("add_1") as writer:
        writer.write(*batch_of(3))
    with pytest.raises((ValueError, IndexError)):
        store.edit("ds_1", root, fill=[_of("add_1", writer.root, slots)])


def _only(tmp_path: Path, objects: ObjectStore, what: str) -> str:
    """The name of an object, or of a key file, of the second block or of the manifest."""
    wanted = ".node" if what == "manifest" else ".00000001-"
    return next(name for name in objects.names() if wanted in name)


@pytest.mark.parametrize(
    ("what", "kind", "block"),
    [
        ("block", DamageKind.BLOCK, 1),
        ("block lost", DamageKind.BLOCK_MISSING, 1),
        ("another block", DamageKind.BLOCK, 1),
        ("key", DamageKind.KEY, 1),
        ("head of the key", DamageKind.KEY, 1),
        ("key zeroed", DamageKind.KEY, 1),
        ("key lost", DamageKind.KEY_MISSING, 1),
        ("manifest", DamageKind.MANIFEST, None),
        ("manifest lost", DamageKind.MANIFEST_MISSING, None),
    ],
)
def test_damage_is_found_and_named(
    store: RowStore, root: str, objects: ObjectStore, tmp_path: Path, what: str, kind: DamageKind, block: int | None
) -> None:
    """One bit of any file that rows are kept in, or that file gone, and nobody opens them, however often they try."""
    name = _only(tmp_path, objects, what.partition(" ")[0])
    key = tmp_path / "keys" / f"{name.removesuffix('.sealed')}.key"
    match what:
        case "block" | "manifest":
            objects.put(name, flipped(objects.get(name), 40))
        case "another block":
            other = next(one for one in objects.names() if ".00000000-" in one)
            objects.put(name, objects.get(other))
        case "block lost" | "manifest lost":
            objects.delete(name)
        case "key":
            key.write_bytes(flipped(key.read_bytes(), 50))
        case "head of the key":
            key.write_bytes(flipped(key.read_bytes(), 3))
        case "key zeroed":
            key.write_bytes(bytes(76))
        case "key lost":
            key.unlink()
    for _ in range(2):
        with pytest.raises(DatasetDamaged) as found:
            store.check("ds_1", root)
        assert (found.value.rows_id, found.value.kind, found.value.block) == ("ds_1", kind, block)
        with pytest.raises(DatasetDamaged), store.open("ds_1", root) as rows:
            rows.show_all()
        with pytest.raises(DatasetDamaged):
            store.edit("ds_1", root, null=[BLOCK_ROWS])


def test_a_root_says_how_many_rows_are_not_null(store: RowStore, root: str) -> None:
    """A root counts the rows that are not null, and an edit brings the count along."""
    assert store.count("ds_1", root) == NUM_SLOTS
    nulled = store.edit("ds_1", root, null=TOUCHED)
    assert store.count("ds_1", nulled) == NUM_SLOTS - len(TOUCHED)
    assert store.count("ds_1", store.edit("ds_1", nulled, null=TOUCHED)) == NUM_SLOTS - len(TOUCHED)


def test_a_block_of_another_count_is_damaged(store: RowStore, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that opens, and has another number of rows that are not null than its root says, is damage."""
    put = RowStore._put
    with monkeypatch.context() as patch:
        patch.setattr(RowStore, "_put", lambda *given: put(*given)._replace(records=BLOCK_ROWS))
        wrong = store.edit("ds_1", root, null=[BLOCK_ROWS])
    with pytest.raises(DatasetDamaged) as found:
        store.check("ds_1", wrong)
    assert (found.value.kind, found.value.block) == (DamageKind.BLOCK, 1)


def test_a_root_that_is_none(store: RowStore, root: str) -> None:
    """A database that names another root, or something that is no root, is damaged too."""
    for other in ("0" * 64, root[:-1] + ("0" if root[-1] != "0" else "1"), "no root", root[:-1]):
        with pytest.raises(DatasetDamaged) as found:
            store.check("ds_1", other)
        assert found.value.kind in (DamageKind.MANIFEST, DamageKind.MANIFEST_MISSING)


def test_another_key_encryption_key_damages_nothing(
    store: RowStore, root: str, tmp_path: Path, key_encryption: KeyEncryptionFile
) -> None:
    """While the key-encryption key is away, or is another one, rows do not open, and they do again when it is back."""
    [kek] = tmp_path.rglob("kek")
    right = kek.read_text()
    for wrong in ("0" * 64, "not a key"):
        kek.write_text(wrong)
        with pytest.raises(KeyEncryptionKeyLost):
            store.check("ds_1", root)
    kek.write_text(right)
    store.check("ds_1", root)


def test_a_folder_that_is_not_there_damages_nothing(tmp_path: Path, key_encryption: KeyEncryptionFile) -> None:
    """A store that cannot be reached is no damage: whoever asks tries again."""
    objects = FolderStore(tmp_path / "blocks")
    objects.check()
    sealed = Sealed(objects, keys=tmp_path / "keys", key_encryption=key_encryption)
    store = RowStore(objects, sealed, locks=tmp_path / "locks", most_bytes=ROOM)
    with store.writing("ds_1") as writer:
        writer.write(*batch_of(5))
    (tmp_path / "blocks").rename(tmp_path / "away")
    with pytest.raises(OSError, match="mounted"):
        store.check("ds_1", writer.root)
    (tmp_path / "away").rename(tmp_path / "blocks")
    store.check("ds_1", writer.root)


def test_rows_that_do_not_fit_are_refused(root: str, new_store: Callable[..., RowStore]) -> None:
    """Rows that would take more memory than may be used are not opened; edits need room for one block only."""
    needed = NUM_SLOTS * 16
    small = new_store(most_bytes=needed - 1)
    with small.open("ds_1", root) as rows:
        with pytest.raises(DatasetTooLarge, match="LETHE_ROWS_MEMORY_BYTES"):
            rows.show_all()
        rows.show([range(1, 3)])
    small.check("ds_1", small.edit("ds_1", root, null=TOUCHED))
    with new_store(most_bytes=needed).open("ds_1", root) as rows:
        rows.show_all()


def test_only_what_is_shown_takes_memory(store: RowStore, root: str) -> None:
    """Blocks come into memory when they are asked for, take room there while they are, and are zeros before and
    after; of blocks that nobody asks for nothing is opened."""
    features, labels = rows_of(store, root)
    middle, end = slice(BLOCK_ROWS, 2 * BLOCK_ROWS), slice(2 * BLOCK_ROWS, NUM_SLOTS)
    opened: list[int] = []
    get = Sealed.get

    def noted(self: Sealed, name: str) -> bytes:
        opened.append(int(name.split(".")[1].split("-")[0]))
        return get(self, name)

    with pytest.MonkeyPatch.context() as patch, store.open("ds_1", root) as rows:
        patch.setattr(Sealed, "get", noted)
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
    """Of deleted rows nothing is left, and deleting again does nothing."""
    for _ in range(2):
        store.delete("ds_1")
        assert store.stored() == {}
    assert not objects.names()
    assert not list(files(tmp_path))
    assert not list((tmp_path / "locks").iterdir())
    with pytest.raises(DatasetDamaged):
        store.shape("ds_1", root)


def test_ids_that_are_none_are_refused(store: RowStore) -> None:
    """An id that could be a path is an unknown dataset."""
    with pytest.raises(DatasetUnknown):
        store.shape("../ds_1", "0" * 64)
    with pytest.raises(DatasetUnknown):
        store.delete("../ds_1")


def test_nothing_is_destroyed_under_whoever_is_alone(
    store: RowStore, root: str, new_store: Callable[..., RowStore]
) -> None:
    """What the database named when somebody began to read is there until they have ended."""
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


def test_the_lock_of_rows_that_were_deleted(store: RowStore, root: str, new_store: Callable[..., RowStore]) -> None:
    """Whoever waited while the rows were deleted, and their lock with them, is alone with what is there then."""
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
