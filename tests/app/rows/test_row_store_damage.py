"""Damage to rows at rest, in a folder and in a bucket, is detected and named; an unavailable store is not damage."""

from pathlib import Path

import pytest

from app.keys import KeyEncryptionFile, KeyEncryptionKeyLost
from app.rows.blocks import BLOCK_ID, BLOCK_ROWS
from app.rows.row_store import RowStore
from app.vault.sealing import SealedStore
from app.vault.store import FolderStore, ObjectStore
from lethe.contract.problems import DatasetDamaged
from lethe.contract.sets import DamageKind
from tests.app.rows.at_rest import ROOM, batch_of
from tests.stored import flipped


def test_reordered_blocks_are_damage(store: RowStore, root: str, objects: ObjectStore) -> None:
    """Swapping blocks, in the tree or in the store, is reported as damage, because the root fixes the order of
    the rows."""
    node = next(name for name in objects.names() if root in name)
    was = objects.get(node)
    size = BLOCK_ID + 8  # followed by its number of non-null rows
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


def _only(tmp_path: Path, objects: ObjectStore, what: str) -> str:
    """Return the name of the object that belongs to the second block or to the manifest."""
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
def test_damage_is_reported_on_every_open(
    store: RowStore, root: str, objects: ObjectStore, tmp_path: Path, what: str, kind: DamageKind, block: int | None
) -> None:
    """If a block, key or manifest file is altered or lost, the damage is reported every time the rows are opened."""
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
            rows.show([range(rows.shape.num_blocks)])
        with pytest.raises(DatasetDamaged):
            store.edit("ds_1", root, null=[BLOCK_ROWS])


def test_a_block_with_another_row_count_is_damage(store: RowStore, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that can be opened but does not have the number of non-null rows stated in its tree is reported as
    damaged."""
    put = RowStore._put
    with monkeypatch.context() as patch:
        patch.setattr(RowStore, "_put", lambda *given: put(*given)._replace(records=BLOCK_ROWS))
        wrong = store.edit("ds_1", root, null=[BLOCK_ROWS])
    with pytest.raises(DatasetDamaged) as found:
        store.check("ds_1", wrong)
    assert (found.value.kind, found.value.block) == (DamageKind.BLOCK, 1)


def test_an_invalid_root_is_damage(store: RowStore, root: str) -> None:
    """If the root in the database is invalid or does not exist, the rows are reported as damaged."""
    for other in ("0" * 64, root[:-1] + ("0" if root[-1] != "0" else "1"), "no root", root[:-1]):
        with pytest.raises(DatasetDamaged) as found:
            store.check("ds_1", other)
        assert found.value.kind in (DamageKind.MANIFEST, DamageKind.MANIFEST_MISSING)


def test_another_key_encryption_key_is_not_damage(
    store: RowStore, root: str, tmp_path: Path, key_encryption: KeyEncryptionFile
) -> None:
    """While the key-encryption key is missing or wrong, rows cannot be opened but are not reported as damaged. They
    open again once the key is restored."""
    [kek] = tmp_path.rglob("kek")
    right = kek.read_text()
    for wrong in ("0" * 64, "not a key"):
        kek.write_text(wrong)
        with pytest.raises(KeyEncryptionKeyLost):
            store.check("ds_1", root)
    kek.write_text(right)
    store.check("ds_1", root)


def test_an_unreachable_store_is_not_damage(tmp_path: Path, key_encryption: KeyEncryptionFile) -> None:
    """A store that cannot be reached is not reported as damaged, and a later check succeeds."""
    objects = FolderStore(tmp_path / "blocks")
    objects.check()
    sealed = SealedStore(objects, keys=tmp_path / "keys", key_encryption=key_encryption)
    store = RowStore(objects, sealed, locks=tmp_path / "locks", most_bytes=ROOM)
    with store.writing("ds_1") as writer:
        writer.write(*batch_of(5))
    (tmp_path / "blocks").rename(tmp_path / "away")
    with pytest.raises(OSError, match="mounted"):
        store.check("ds_1", writer.root)
    (tmp_path / "away").rename(tmp_path / "blocks")
    store.check("ds_1", writer.root)
