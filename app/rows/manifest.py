"""The manifest of a dataset's rows: their blocks in a tree of small nodes, each named by the hash of its content.

A root names everything below it, and is all that the database keeps. Blocks have random names, so a root is a function
of no row: nobody who knows the rows, or guesses them, can compute it. With each name goes how many rows below it are
not null, so that a root says how many there are in all. Nodes never change: an edit of a few blocks writes the nodes on
the way to them anew, and shares all others.

    <rows id>.<hash>.node    root: a head, the shape, then its children; other nodes: their level, then their children
                             children of a lowest node: block names (16 bytes); of others: hashes of nodes (32 bytes);
                             each with its count (8 bytes)
"""

import errno
import hashlib
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from app.vault.store import ObjectStore
from lethe.contract.problems import DatasetDamaged
from lethe.contract.sets import DamageKind

BLOCK_ROWS = 4096
FANOUT = 256
BLOCK_ID = 16
_HASH = 32
_HEAD = b"lethe-rows/3\n"
_HEAD_WEIGHTED = b"lethe-rows/4\n"  # of rows that have weights
_SHAPE = struct.Struct(">QII")  # slots, columns, rows of a block
_BLOCK_CHILD, _NODE_CHILD = struct.Struct(f">{BLOCK_ID}sQ"), struct.Struct(f">{_HASH}sQ")
_NODE = ".node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The shape of rows: how many there are, null ones too, how long each is, and whether each has a weight beside its
    label."""

    num_slots: int
    num_columns: int
    has_weights: bool = False

    @property
    def num_blocks(self) -> int:
        return -(-self.num_slots // BLOCK_ROWS)

    @property
    def height(self) -> int:
        """Number of levels of nodes below the root."""
        levels, reach = 0, FANOUT
        while reach < self.num_blocks:
            levels, reach = levels + 1, reach * FANOUT
        return levels

    def rows_in(self, block: int) -> int:
        return min(BLOCK_ROWS, self.num_slots - block * BLOCK_ROWS)

    @property
    def row_bytes(self) -> int:
        return 4 * (self.num_columns + self.num_labels)

    @property
    def num_labels(self) -> int:
        """Numbers of each row beside its features: its label, and its weight if it has one."""
        return 2 if self.has_weights else 1

    @property
    def num_bytes(self) -> int:
        return self.num_slots * self.row_bytes


class Child(NamedTuple):
    """A block or a node, as the node above names it; `records`: how many of its rows are not null."""

    name: bytes
    records: int


class Manifests:
    """The nodes of all datasets of a store."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def write(self, rows_id: str, shape: Shape, blocks: Collection[Child]) -> str:
        """The root of a new tree; durable when this returns."""
        if len(blocks) != shape.num_blocks:
            raise ValueError(f"Expected {len(blocks)} blocks == {shape.num_blocks}")
        children = list(blocks)
        for level in range(shape.height):
            groups = [children[start : start + FANOUT] for start in range(0, len(children), FANOUT)]
            children = [_put_inner(self._objects, rows_id, level, some) for some in groups]
        return _put(self._objects, rows_id, _root(shape, children)).hex()

    def read(self, rows_id: str, root: str) -> "Manifest":
        """The tree of a root. Raises `DatasetDamaged`."""
        return Manifest(self._objects, rows_id, root)


class Manifest:
    """The tree of one root, each node of which is read once, when it is needed. Whatever reads raises `DatasetDamaged`
    where a node is not what the one above says."""

    def __init__(self, objects: ObjectStore, rows_id: str, root: str) -> None:
        self._objects = objects
        self._rows_id = rows_id
        self._read: dict[bytes, list[Child]] = {}
        self.root = root
        self.shape, self._top = self._read_root()

    @property
    def records(self) -> int:
        """Number of rows that are not null."""
        return _sum(self._top)

    def blocks(self, numbers: Collection[int] | None = None) -> Iterator[tuple[int, Child]]:
        """The number of each block, or of each of these, and what is said of it, in their order."""
        yield from self._below(self.shape.height, 0, self._top, None if numbers is None else set(numbers))

    def replaced(self, changes: Mapping[int, Child]) -> str:
        """The root of a tree in which some blocks are others; durable when this returns."""
        if not changes:
            return self.root
        children = self._replaced(self.shape.height, 0, self._top, changes)
        return _put(self._objects, self._rows_id, _root(self.shape, children)).hex()

    def node_names(self) -> set[str]:
        """The objects that the tree consists of."""
        names, level, children = {_name(self._rows_id, bytes.fromhex(self.root))}, self.shape.height, self._top
        while level:
            names |= {_name(self._rows_id, child.name) for child in children}
            level -= 1
            children = [below for child in children for below in self._children(child, level)]
        return names

    def apart_from(self, other: "Manifest") -> tuple[list[str], list[tuple[int, Child]]]:
        """The objects that the tree consists of, and its blocks, as far as the other tree has others in their places;
        nothing is read but the way to these."""
        if self.root == other.root:
            return [], []
        if self.shape != other.shape:
            raise ValueError(f"Expected {self.shape=} == {other.shape=}")
        nodes, blocks = [_name(self._rows_id, bytes.fromhex(self.root))], list[tuple[int, Child]]()
        waiting = [(self.shape.height, 0, self._top, other._top)]
        while waiting:
            level, first, mine, theirs = waiting.pop()
            for place, (one, another) in enumerate(zip(mine, theirs, strict=True)):
                start = first + place * FANOUT**level
                if one.name == another.name:
                    continue
                if level == 0:
                    blocks.append((start, one))
                else:
                    nodes.append(_name(self._rows_id, one.name))
                    below = self._children(one, level - 1), other._children(another, level - 1)
                    waiting.append((level - 1, start, *below))
        return nodes, blocks

    def _below(
        self, level: int, first: int, children: list[Child], numbers: Collection[int] | None
    ) -> Iterator[tuple[int, Child]]:
        reach = FANOUT**level
        places = range(len(children)) if numbers is None else sorted({(number - first) // reach for number in numbers})
        for place in places:
            start = first + place * reach
            if level == 0:
                yield start, children[place]
            else:
                inside = None if numbers is None else {n for n in numbers if start <= n < start + reach}
                yield from self._below(level - 1, start, self._children(children[place], level - 1), inside)

    def _replaced(self, level: int, first: int, children: list[Child], changes: Mapping[int, Child]) -> list[Child]:
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

    def _read_root(self) -> tuple[Shape, list[Child]]:
        try:
            content = self._get(bytes.fromhex(self.root))
            num_slots, num_columns, block_rows = _SHAPE.unpack_from(content, len(_HEAD))
            if not content.startswith((_HEAD, _HEAD_WEIGHTED)) or block_rows != BLOCK_ROWS:
                raise self._damaged()
            has_weights = content.startswith(_HEAD_WEIGHTED)
            shape = Shape(num_slots=num_slots, num_columns=num_columns, has_weights=has_weights)
            return shape, _split(content[len(_HEAD) + _SHAPE.size :], shape.height)
        except (ValueError, struct.error) as error:  # what the database says is no hash, or that of no root
            raise self._damaged() from error

    def _children(self, node: Child, level: int) -> list[Child]:
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
            raise DatasetDamaged.found(self._rows_id, DamageKind.MANIFEST_MISSING) from error
        if _hash(content) != node:
            raise self._damaged()
        return content

    def _damaged(self) -> DatasetDamaged:
        return DatasetDamaged.found(self._rows_id, DamageKind.MANIFEST)


def _put(objects: ObjectStore, rows_id: str, content: bytes) -> bytes:
    node = _hash(content)
    name = _name(rows_id, node)
    objects.put(name, content)
    if objects.get(name) != content:
        raise OSError(errno.EIO, "A node was written and something else was read back", name)
    return node


def _put_inner(objects: ObjectStore, rows_id: str, level: int, children: Collection[Child]) -> Child:
    return Child(_put(objects, rows_id, bytes([level]) + _joined(level, children)), _sum(children))


def _root(shape: Shape, children: Collection[Child]) -> bytes:
    packed = _SHAPE.pack(shape.num_slots, shape.num_columns, BLOCK_ROWS)
    return (_HEAD_WEIGHTED if shape.has_weights else _HEAD) + packed + _joined(shape.height, children)


def _joined(level: int, children: Collection[Child]) -> bytes:
    entry = _NODE_CHILD if level else _BLOCK_CHILD
    return b"".join(entry.pack(*child) for child in children)


def _split(content: bytes, level: int) -> list[Child]:
    return [Child._make(one) for one in (_NODE_CHILD if level else _BLOCK_CHILD).iter_unpack(content)]


def _sum(children: Collection[Child]) -> int:
    return sum(child.records for child in children)


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_HASH, person=b"lethe.manifest").digest()


def _name(rows_id: str, node: bytes) -> str:
    return f"{rows_id}.{node.hex()}{_NODE}"
