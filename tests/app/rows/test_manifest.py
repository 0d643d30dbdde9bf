"""Trees over blocks: reading returns what was written and edited, and edits write only a few nodes."""

import secrets
from pathlib import Path

import pytest

from app.rows import blocks as manifest
from app.rows.blocks import BLOCK_ID, BLOCK_ROWS, ManifestEntry, Manifests, Shape
from app.vault.store import FolderStore
from lethe.contract.problems import DatasetDamaged
from lethe.contract.sets import DamageKind


@pytest.fixture
def objects(tmp_path: Path) -> FolderStore:
    objects = FolderStore(tmp_path / "nodes")
    objects.check()
    return objects


def shape_of(num_blocks: int) -> Shape:
    return Shape(num_slots=num_blocks * BLOCK_ROWS - 5, num_columns=3)


def new_blocks(num_blocks: int) -> list[ManifestEntry]:
    return [ManifestEntry(secrets.token_bytes(BLOCK_ID), secrets.randbelow(BLOCK_ROWS)) for _ in range(num_blocks)]


@pytest.mark.parametrize("num_blocks", [1, 3, 4, 5, 16, 17, 64, 70])
def test_trees_return_blocks_in_order(objects: FolderStore, monkeypatch: pytest.MonkeyPatch, num_blocks: int) -> None:
    """A tree returns all or some of its blocks in order, both before and after edits. Editing one block writes one node
    per level and shares all other nodes."""
    monkeypatch.setattr(manifest, "FANOUT", 4)
    manifests, shape = Manifests(objects), shape_of(num_blocks)
    blocks = new_blocks(num_blocks)
    root = manifests.write("ds_1", shape, blocks)
    assert manifests.read("ds_1", root).shape == shape
    assert list(manifests.read("ds_1", root).blocks()) == list(enumerate(blocks))
    assert manifests.read("ds_1", root).node_names() == objects.names().keys()
    some = {0, num_blocks // 2, num_blocks - 1}
    assert list(manifests.read("ds_1", root).blocks(some)) == [(number, blocks[number]) for number in sorted(some)]

    before = objects.names().keys()
    new = ManifestEntry(b"n" * BLOCK_ID, 7)
    one = manifests.read("ds_1", root).replaced({num_blocks - 1: new})
    assert len(objects.names().keys() - before) == shape.height + 1
    assert list(manifests.read("ds_1", one).blocks()) == list(enumerate([*blocks[:-1], new]))
    assert list(manifests.read("ds_1", root).blocks()) == list(enumerate(blocks))
    changes = dict(zip(some, new_blocks(len(some)), strict=True))
    edited = manifests.read("ds_1", root).replaced(changes)
    assert dict(manifests.read("ds_1", edited).blocks()) == dict(enumerate(blocks)) | changes
    assert manifests.read("ds_1", root).replaced({}) == root


@pytest.mark.parametrize("num_blocks", [1, 4, 5, 17, 70])
def test_a_root_counts_its_non_null_rows(
    objects: FolderStore, monkeypatch: pytest.MonkeyPatch, num_blocks: int
) -> None:
    """A root's count is the sum of the numbers of non-null rows in its blocks, before and after edits and for trees of
    any height."""
    monkeypatch.setattr(manifest, "FANOUT", 4)
    manifests, blocks = Manifests(objects), new_blocks(num_blocks)
    root = manifests.write("ds_1", shape_of(num_blocks), blocks)
    assert manifests.read("ds_1", root).records == sum(block.records for block in blocks)
    [new] = new_blocks(1)
    edited = manifests.read("ds_1", root).replaced({num_blocks // 2: new})
    blocks[num_blocks // 2] = new
    assert manifests.read("ds_1", edited).records == sum(block.records for block in blocks)


def test_a_damaged_node_is_found(objects: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a manifest node is swapped for another, truncated, or has a flipped bit, the damage is detected when the node
    is read."""
    monkeypatch.setattr(manifest, "FANOUT", 4)
    manifests = Manifests(objects)
    root = manifests.write("ds_1", shape_of(20), new_blocks(20))
    names = sorted(objects.names())
    assert len(names) == 8
    for name, other in zip(names, [*names[1:], names[0]], strict=True):
        right = objects.get(name)
        for wrong in (right[:-1] + bytes([right[-1] ^ 1]), right[:-1], objects.get(other)):
            objects.put(name, wrong)
            with pytest.raises(DatasetDamaged) as found:
                list(manifests.read("ds_1", root).blocks())
            assert found.value.kind is DamageKind.MANIFEST
        objects.put(name, right)
    assert len(list(manifests.read("ds_1", root).blocks())) == 20


def test_inner_nodes_are_not_accepted_as_roots(objects: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of an inner node is not accepted as the name of a root, even in a tree where the node has few
    children."""
    monkeypatch.setattr(manifest, "FANOUT", 4)
    manifests = Manifests(objects)
    root = manifests.write("ds_1", shape_of(17), new_blocks(17))
    others = {name.split(".")[1] for name in objects.names()} - {root}
    assert len(others) == 7
    for other in others:
        with pytest.raises(DatasetDamaged) as found:
            manifests.read("ds_1", other)
        assert found.value.kind is DamageKind.MANIFEST


def test_a_node_is_read_once(objects: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node of a tree is read from the store only once, because every read from a bucket costs a request."""
    monkeypatch.setattr(manifest, "FANOUT", 4)
    manifests = Manifests(objects)
    root = manifests.write("ds_1", shape_of(20), new_blocks(20))
    read: list[str] = []
    get = objects.get

    def noted(name: str) -> bytes:
        read.append(name)
        return get(name)

    monkeypatch.setattr(objects, "get", noted)
    tree = manifests.read("ds_1", root)
    assert tree.shape == shape_of(20)
    for _ in range(2):
        assert len(list(tree.blocks())) == 20
        assert tree.node_names() == objects.names().keys()
    assert sorted(read) == sorted(objects.names())
