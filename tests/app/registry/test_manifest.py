"""Trees over blocks: what is written is read, whatever was edited, and edits are short."""

import secrets
from pathlib import Path

import pytest

from app.errors import DamageKind, DatasetDamaged
from app.registry import manifest
from app.registry.manifest import BLOCK_ID, BLOCK_ROWS, Manifests, Shape
from app.registry.store import FolderStore


@pytest.fixture
def objects(tmp_path: Path) -> FolderStore:
    objects = FolderStore(tmp_path / "nodes")
    objects.check()
    return objects


def shape_of(num_blocks: int) -> Shape:
    return Shape(num_slots=num_blocks * BLOCK_ROWS - 5, num_columns=3)


@pytest.mark.parametrize("num_blocks", [1, 3, 4, 5, 16, 17, 64, 70])
def test_trees_of_any_height(objects: FolderStore, monkeypatch: pytest.MonkeyPatch, num_blocks: int) -> None:
    """Blocks come back in their order, all or some of them, before and after edits; an edit of one block writes a node
    for each level, and shares the others."""
    monkeypatch.setattr(manifest, "FANOUT", 4)
    manifests, shape = Manifests(objects), shape_of(num_blocks)
    ids = [secrets.token_bytes(BLOCK_ID) for _ in range(num_blocks)]
    root = manifests.write("ds_1", shape, ids)
    assert manifests.shape("ds_1", root) == shape
    assert list(manifests.blocks("ds_1", root)) == list(enumerate(ids))
    assert manifests.node_names("ds_1", root) == objects.names().keys()
    some = {0, num_blocks // 2, num_blocks - 1}
    assert list(manifests.blocks("ds_1", root, some)) == [(number, ids[number]) for number in sorted(some)]

    before = objects.names().keys()
    one = manifests.replace("ds_1", root, {num_blocks - 1: b"n" * BLOCK_ID})
    assert len(objects.names().keys() - before) == shape.height + 1
    assert list(manifests.blocks("ds_1", one)) == list(enumerate([*ids[:-1], b"n" * BLOCK_ID]))
    assert list(manifests.blocks("ds_1", root)) == list(enumerate(ids))
    changes = {number: secrets.token_bytes(BLOCK_ID) for number in some}
    edited = manifests.replace("ds_1", root, changes)
    assert dict(manifests.blocks("ds_1", edited)) == dict(enumerate(ids)) | changes
    assert manifests.replace("ds_1", root, {}) == root


def test_every_node_is_what_the_one_above_says(objects: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bit of any node, or a node in the place of another, is found by whoever reads that way."""
    monkeypatch.setattr(manifest, "FANOUT", 4)
    manifests = Manifests(objects)
    root = manifests.write("ds_1", shape_of(20), [secrets.token_bytes(BLOCK_ID) for _ in range(20)])
    names = sorted(objects.names())
    assert len(names) == 8
    for name, other in zip(names, [*names[1:], names[0]], strict=True):
        right = objects.get(name)
        for wrong in (right[:-1] + bytes([right[-1] ^ 1]), right[:-1], objects.get(other)):
            objects.put(name, wrong)
            with pytest.raises(DatasetDamaged) as found:
                list(manifests.blocks("ds_1", root))
            assert found.value.kind is DamageKind.MANIFEST
        objects.put(name, right)
    assert len(list(manifests.blocks("ds_1", root))) == 20
