"""Blocks of plaintext rows: memory layout, writer, and manifest tree."""

import errno
import hashlib
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from app.vault.store import ObjectStore
from lethe.contract import problems, sets

BLOCK_ROWS = 4096
FANOUT = 256
BLOCK_ID = 16
_HASH = 32
_HEAD = b"lethe-rows/3\n"
_HEAD_WEIGHTED = b"lethe-rows/4\n"
_SHAPE = struct.Struct(">QII")  # slots, columns, rows per block
_BLOCK_CHILD, _NODE_CHILD = struct.Struct(f">{BLOCK_ID}sQ"), struct.Struct(f">{_HASH}sQ")
_NODE = ".node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Shape of a dataset's rows: the number of slots including null rows, the number of feature columns, and whether
    each row has a weight in addition to its label."""

    num_slots: int
    num_columns: int
    has_weights: bool = False

    @property
    def num_blocks(self) -> int:
        return -(-self.num_slots // BLOCK_ROWS)

    @property
    def height(self) -> int:
        """Number of levels of nodes below the root."""
        levels, capacity = 0, FANOUT
        while capacity < self.num_blocks:
            levels, capacity = levels + 1, capacity * FANOUT
        return levels

    def rows_in(self, block: int) -> int:
        return min(BLOCK_ROWS, self.num_slots - block * BLOCK_ROWS)

    @property
    def row_bytes(self) -> int:
        return 4 * (self.num_columns + self.num_labels)

    @property
    def num_labels(self) -> int:
        """Number of 4-byte values in a row besides its features: the label, and the weight if there is one."""
        return 2 if self.has_weights else 1

    @property
    def num_bytes(self) -> int:
        return self.num_slots * self.row_bytes


class ManifestEntry(NamedTuple):
    """Reference from a manifest node to a block or to a lower node. `records` counts the non-null rows there."""

    name: bytes
    records: int


_SEALING_BYTES = 16 * 2**20
"""Maximum total size in bytes of the blocks waiting to be sealed; a single larger block is allowed."""

Features = npt.NDArray[np.float32]  # (rows, columns)
Labels = npt.NDArray[np.int32]  # (rows,), or (rows, 2): label and weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Block of consecutive rows. `first` is the slot of its first row."""

    number: int
    first: int
    features: Features
    labels: Labels

    def content(self) -> bytes:
        features = self.features.astype("<f4", order="C", casting="no", copy=False).tobytes()
        return features + self.labels.astype("<i4", order="C", casting="no", copy=False).tobytes()

    def copy(self) -> "Block":
        """Return a writable copy."""
        return replace(self, features=self.features.copy(), labels=self.labels.copy())

    def without(self, slots: Sequence[int]) -> "Block":
        """Return the block with the rows in `slots` nulled: a copy, unless the block contains none of these slots."""
        positions = self.positions(slots)
        if not len(positions):
            return self
        changed = self.copy()
        changed.features[positions], changed.labels[positions] = 0, 0
        return changed

    def count(self) -> int:
        """Return the number of non-null rows."""
        begun = self.features[:, 0] != 0
        return int(np.count_nonzero(begun) + np.count_nonzero(self.features[~begun].any(axis=1)))

    def is_null(self, slots: Sequence[int]) -> bool:
        """Return True if all of the `slots` that lie in this block are null."""
        positions = self.positions(slots)
        return not (self.features[positions].any() or self.labels[positions].any())

    def positions(self, slots: Sequence[int]) -> npt.NDArray[np.int64]:
        chosen = np.asarray(slots, dtype=np.int64)
        return chosen[(chosen >= self.first) & (chosen < self.first + len(self.labels))] - self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """Batch of stored rows to be written into a dataset. `slots` holds the slot of each row, in ascending order."""

    rows_id: str
    root: str
    slots: tuple[int, ...]


class RowWriter:
    """Writer that seals each full block of rows in the background. `root` is set once everything is written."""

    def __init__(self, put: Callable[[Block], "Future[ManifestEntry]"], num_columns: int | None) -> None:
        self._put = put
        self._blocks: list[Future[ManifestEntry]] = []
        self._waiting: Block | None = None
        self._rows_waiting = 0
        self._has_weights: bool | None = None
        self.num_columns = num_columns
        self.num_slots = 0
        self.root = ""

    def write(self, features: Features, labels: Labels) -> None:  # (b, columns), (b,) or (b, 2)
        if self.num_columns is None:
            self.num_columns = features.shape[1]
        if features.shape != (len(labels), self.num_columns):
            raise ValueError(f"Expected {features.shape=} == {(len(labels), self.num_columns)}")
        if self._has_weights is None:
            self._has_weights = labels.ndim == 2
        if labels.shape[1:] != ((2,) if self._has_weights else ()):
            raise ValueError(f"Expected {labels.shape=} to have a weight for each row, or for none")
        if features.dtype.str != "<f4" or labels.dtype.str != "<i4":
            raise TypeError(f"Expected {features.dtype.str=} == '<f4' and {labels.dtype.str=} == '<i4'")
        num_written = 0
        while num_written < len(labels):
            waiting = self._waiting = self._waiting or self._empty(self.num_columns)
            count = min(BLOCK_ROWS - self._rows_waiting, len(labels) - num_written)
            place = slice(self._rows_waiting, self._rows_waiting + count)
            waiting.features[place] = features[num_written : num_written + count]
            waiting.labels[place] = labels[num_written : num_written + count]
            num_written, self._rows_waiting = num_written + count, self._rows_waiting + count
            self.num_slots += count
            if self._rows_waiting == BLOCK_ROWS:
                self._flush()

    def finish(self) -> tuple[Shape, list[ManifestEntry]]:
        """Seal the last block, and return the shape of all rows with the manifest entries of the blocks.

        Raises `DatasetUnusable` if no row was written.
        """
        self._flush()
        if not self.num_slots or not self.num_columns:
            raise problems.DatasetUnusable("There are no rows.")
        shape = Shape(num_slots=self.num_slots, num_columns=self.num_columns, has_weights=self._has_weights is True)
        return shape, [block.result() for block in self._blocks]

    def _flush(self) -> None:
        if self._waiting is None:
            return
        full, rows = self._waiting, slice(0, self._rows_waiting)
        block = Block(number=full.number, first=full.first, features=full.features[rows], labels=full.labels[rows])
        max_pending = max(1, _SEALING_BYTES // (full.features.nbytes + full.labels.nbytes))
        if len(self._blocks) >= max_pending:
            self._blocks[-max_pending].result()
        self._blocks.append(self._put(block))
        self._waiting, self._rows_waiting = None, 0

    def _empty(self, num_columns: int) -> Block:
        number = len(self._blocks)
        features = np.zeros((BLOCK_ROWS, num_columns), dtype=np.float32)
        labels = np.zeros((BLOCK_ROWS, 2) if self._has_weights else BLOCK_ROWS, dtype=np.int32)
        return Block(number=number, first=number * BLOCK_ROWS, features=features, labels=labels)


def mapped(
    memory: memoryview | bytes, num_slots: int, num_columns: int, has_weights: bool = False
) -> tuple[Features, Labels]:
    """Return views of the features and labels (with weights, if any) of the rows stored in `memory`."""
    features = np.frombuffer(memory, dtype="<f4", count=num_slots * num_columns)
    count = 2 * num_slots if has_weights else num_slots
    labels = np.frombuffer(memory, dtype="<i4", count=count, offset=features.nbytes)
    return features.reshape(num_slots, num_columns), labels.reshape(num_slots, 2) if has_weights else labels


class Manifests:
    """Manifest nodes of all datasets in an object store."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def write(self, rows_id: str, shape: Shape, blocks: Collection[ManifestEntry]) -> str:
        """Write a new tree durably, and return its root."""
        if len(blocks) != shape.num_blocks:
            raise ValueError(f"Expected {len(blocks)} blocks == {shape.num_blocks}")
        children = list(blocks)
        for level in range(shape.height):
            groups = [children[start : start + FANOUT] for start in range(0, len(children), FANOUT)]
            children = [_put_inner(self._objects, rows_id, level, group) for group in groups]
        return _put(self._objects, rows_id, _root(shape, children)).hex()

    def read(self, rows_id: str, root: str) -> "Manifest":
        """Return the tree with this root, or raise `DatasetDamaged`."""
        return Manifest(self._objects, rows_id, root)


class Manifest:
    """Manifest tree of one root. Each node is read lazily, and only once. Every reading method raises `DatasetDamaged`
    if a node does not match the hash in its parent."""

    def __init__(self, objects: ObjectStore, rows_id: str, root: str) -> None:
        self._objects = objects
        self._rows_id = rows_id
        self._read: dict[bytes, list[ManifestEntry]] = {}
        self.root = root
        self.shape, self._top = self._read_root()

    @property
    def records(self) -> int:
        """Number of non-null rows."""
        return _sum(self._top)

    def blocks(self, numbers: Collection[int] | None = None) -> Iterator[tuple[int, ManifestEntry]]:
        """Yield the number and the entry of each block, or of the blocks in `numbers`, in ascending order."""
        yield from self._below(self.shape.height, 0, self._top, None if numbers is None else set(numbers))

    def replaced(self, changes: Mapping[int, ManifestEntry]) -> str:
        """Durably write a tree with some blocks replaced, and return its root."""
        if not changes:
            return self.root
        children = self._replaced(self.shape.height, 0, self._top, changes)
        return _put(self._objects, self._rows_id, _root(self.shape, children)).hex()

    def node_names(self) -> set[str]:
        """Return the names of the objects that form the tree."""
        names, level, children = {_name(self._rows_id, bytes.fromhex(self.root))}, self.shape.height, self._top
        while level:
            names |= {_name(self._rows_id, child.name) for child in children}
            level -= 1
            children = [below for child in children for below in self._children(child, level)]
        return names

    def apart_from(self, other: "Manifest") -> tuple[list[str], list[tuple[int, ManifestEntry]]]:
        """Return what differs from `other`, a tree of the same shape: the names of this tree's nodes, and the numbers
        and entries of its blocks. Equal subtrees are not read."""
        if self.root == other.root:
            return [], []
        if self.shape != other.shape:
            raise ValueError(f"Expected {self.shape=} == {other.shape=}")
        nodes, blocks = [_name(self._rows_id, bytes.fromhex(self.root))], list[tuple[int, ManifestEntry]]()
        waiting = [(self.shape.height, 0, self._top, other._top)]
        while waiting:
            level, first, mine, theirs = waiting.pop()
            for place, (own, foreign) in enumerate(zip(mine, theirs, strict=True)):
                start = first + place * FANOUT**level
                if own.name == foreign.name:
                    continue
                if level == 0:
                    blocks.append((start, own))
                else:
                    nodes.append(_name(self._rows_id, own.name))
                    below = self._children(own, level - 1), other._children(foreign, level - 1)
                    waiting.append((level - 1, start, *below))
        return nodes, blocks

    def _below(
        self, level: int, first: int, children: list[ManifestEntry], numbers: Collection[int] | None
    ) -> Iterator[tuple[int, ManifestEntry]]:
        reach = FANOUT**level
        places = range(len(children)) if numbers is None else sorted({(number - first) // reach for number in numbers})
        for place in places:
            start = first + place * reach
            if level == 0:
                yield start, children[place]
            else:
                inside = None if numbers is None else {n for n in numbers if start <= n < start + reach}
                yield from self._below(level - 1, start, self._children(children[place], level - 1), inside)

    def _replaced(
        self, level: int, first: int, children: list[ManifestEntry], changes: Mapping[int, ManifestEntry]
    ) -> list[ManifestEntry]:
        replaced, reach = list(children), FANOUT**level
        for place in sorted({(number - first) // reach for number in changes}):
            if level == 0:
                replaced[place] = changes[first + place]
                continue
            start = first + place * reach
            inside = {n: block for n, block in changes.items() if start <= n < start + reach}
            below = self._replaced(level - 1, start, self._children(children[place], level - 1), inside)
            replaced[place] = _put_inner(self._objects, self._rows_id, level - 1, below)
        return replaced

    def _read_root(self) -> tuple[Shape, list[ManifestEntry]]:
        try:
            content = self._get(bytes.fromhex(self.root))
            num_slots, num_columns, block_rows = _SHAPE.unpack_from(content, len(_HEAD))
            if not content.startswith((_HEAD, _HEAD_WEIGHTED)) or block_rows != BLOCK_ROWS:
                raise self._damaged()
            has_weights = content.startswith(_HEAD_WEIGHTED)
            shape = Shape(num_slots=num_slots, num_columns=num_columns, has_weights=has_weights)
            return shape, _split(content[len(_HEAD) + _SHAPE.size :], shape.height)
        except (ValueError, struct.error) as error:
            # The root in the database is not a hash, or is the hash of an object that is not a root.
            raise self._damaged() from error

    def _children(self, node: ManifestEntry, level: int) -> list[ManifestEntry]:
        if node.name not in self._read:
            content = self._get(node.name)
            if content[0] != level:
                raise self._damaged()
            self._read[node.name] = _split(content[1:], level)
        children = self._read[node.name]
        if _sum(children) != node.records:
            raise self._damaged()
        return children

    def _get(self, node: bytes) -> bytes:
        try:
            content = self._objects.get(_name(self._rows_id, node))
        except FileNotFoundError as error:
            raise problems.DatasetDamaged.found(self._rows_id, sets.DamageKind.MANIFEST_MISSING) from error
        if _hash(content) != node:
            raise self._damaged()
        return content

    def _damaged(self) -> problems.DatasetDamaged:
        return problems.DatasetDamaged.found(self._rows_id, sets.DamageKind.MANIFEST)


def _put(objects: ObjectStore, rows_id: str, content: bytes) -> bytes:
    node = _hash(content)
    name = _name(rows_id, node)
    objects.put(name, content)
    if objects.get(name) != content:
        raise OSError(errno.EIO, "A node was written and something else was read back", name)
    return node


def _put_inner(objects: ObjectStore, rows_id: str, level: int, children: Collection[ManifestEntry]) -> ManifestEntry:
    return ManifestEntry(_put(objects, rows_id, bytes([level]) + _joined(level, children)), _sum(children))


def _root(shape: Shape, children: Collection[ManifestEntry]) -> bytes:
    packed = _SHAPE.pack(shape.num_slots, shape.num_columns, BLOCK_ROWS)
    return (_HEAD_WEIGHTED if shape.has_weights else _HEAD) + packed + _joined(shape.height, children)


def _joined(level: int, children: Collection[ManifestEntry]) -> bytes:
    entry = _NODE_CHILD if level else _BLOCK_CHILD
    return b"".join(entry.pack(*child) for child in children)


def _split(content: bytes, level: int) -> list[ManifestEntry]:
    return [ManifestEntry._make(entry) for entry in (_NODE_CHILD if level else _BLOCK_CHILD).iter_unpack(content)]


def _sum(children: Collection[ManifestEntry]) -> int:
    return sum(child.records for child in children)


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_HASH, person=b"lethe.manifest").digest()


def _name(rows_id: str, node: bytes) -> str:
    return f"{rows_id}.{node.hex()}{_NODE}"
