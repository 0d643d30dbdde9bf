"""The encoded rows of datasets: blocks of 4096 rows, sealed, never overwritten, in a folder or in a bucket alike.

    <rows id>.<block>-<block id>.sealed    features (float32), then labels (int32), little-endian, of 4096 rows;
                                           each label with its weight beside it, where rows have weights
    <rows id>.<hash>.node                  the manifest (`manifest.py`): which blocks the rows are

Each block has a data key of its own, used once, and a random id; its whole name is authenticated. What the rows of a
dataset are is said by the root of a manifest, which the database names. An edit writes new blocks and a new root beside
the old ones; nothing has changed until that root is on record, and everything once it is: then the keys of the blocks
that it does not name are destroyed. So what is on record never comes from what was found: a block that does not open
under the root stays unopened for every caller.

Rows are opened into memory of the process (`memory.py`); there is no file that holds one in the clear.
"""

import datetime
import errno
import os
import re
import secrets
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from app.rows.blocks import Block, Filling, RowWriter, mapped
from app.rows.manifest import BLOCK_ID, BLOCK_ROWS, Child, Manifest, Manifests, Shape
from app.rows.opened import OpenedRows
from app.vault.files import locked
from app.vault.sealing import Sealed
from app.vault.store import ObjectStore
from lethe.contract.problems import DatasetDamaged, DatasetUnknown
from lethe.contract.sets import DamageKind

_SEALERS = 4
"""Threads that seal blocks while the next ones are filled: mostly they wait for a disk or a bucket."""
_ROWS_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


class RowStore:
    """The rows of all datasets, and those that wait to be added to one.

    `locks`: a folder that all hosts share. `most_bytes`: of memory that rows in the clear may take at once. Whatever
    reads raises `DatasetDamaged` where something is not what the root says, and `OSError` where the store cannot say.
    """

    def __init__(self, objects: ObjectStore, sealed: Sealed, *, locks: Path, most_bytes: int) -> None:
        self._objects = objects
        self._sealed = sealed
        self._manifests = Manifests(objects)
        self._locks = locks
        self._most_bytes = most_bytes

    @contextmanager
    def alone(self, rows_id: str, *, wait: bool = True) -> Iterator[None]:
        """While the block lasts no other process destroys anything of these rows: what the database names stays."""
        folder = self._locks / _checked(rows_id)
        with ExitStack() as stack:
            while True:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                with suppress(FileNotFoundError):  # it was removed when the rows were deleted
                    descriptor = stack.enter_context(locked(folder, wait=wait))
                    if folder.stat().st_ino == os.fstat(descriptor).st_ino:
                        break
                stack.close()
            yield

    @contextmanager
    def writing(self, rows_id: str, num_columns: int | None = None) -> Iterator[RowWriter]:
        """A writer whose `root` names the rows, whole and durable, when the block ends; they are gone when it raises.

        Without `num_columns` the first batch decides.
        """
        with self.alone(rows_id):
            if self._sealed.keys(rows_id):
                raise FileExistsError(errno.EEXIST, "There are rows already", rows_id)
            try:
                with self.beside(rows_id, num_columns) as writer:
                    yield writer
            except BaseException:
                self._destroy(rows_id)
                raise

    @contextmanager
    def beside(self, rows_id: str, num_columns: int | None = None) -> Iterator[RowWriter]:
        """As `writing`, whatever is there already; for a caller that is `alone` with it, and destroys what is not
        needed."""
        with ThreadPoolExecutor(_SEALERS, thread_name_prefix="sealer") as sealers:
            writer = RowWriter(lambda block: sealers.submit(self._put, rows_id, block), num_columns)
            yield writer
            writer.root = self._manifests.write(rows_id, *writer.finish())

    def is_there(self, rows_id: str, root: str) -> bool:
        """Return True if there is a manifest of this root."""
        try:
            self.shape(rows_id, root)
        except DatasetDamaged:
            return False
        return True

    def stored(self) -> dict[str, datetime.datetime]:
        """The datasets of which anything is there, and when the last of it was written."""
        newest: dict[str, datetime.datetime] = {}
        for name, at in [*self._objects.names().items(), *self._sealed.names().items()]:
            rows_id = name.partition(".")[0]
            newest[rows_id] = max(at, newest.get(rows_id, at))
        return newest

    def shape(self, rows_id: str, root: str) -> Shape:
        return self._manifest(rows_id, root).shape

    def count(self, rows_id: str, root: str) -> int:
        """Number of rows that are not null, as their root says."""
        return self._manifest(rows_id, root).records

    @contextmanager
    def open(self, rows_id: str, root: str, *, without: Sequence[int] = ()) -> Iterator[OpenedRows]:
        """Rows none of which is in memory yet; what of them came there is overwritten when the block ends. Those in the
        slots `without` come there as null rows, and stay what they are in the store."""
        manifest = self._manifest(rows_id, root)
        with OpenedRows.empty(
            manifest.shape,
            records=manifest.records,
            most_bytes=self._most_bytes,
            blocks=lambda numbers: (one.without(without) for one in self._numbered(rows_id, manifest, numbers)),
        ) as rows:
            yield rows

    def read(self, rows_id: str, root: str, *, holding: Sequence[int] | None = None) -> Iterator[Block]:
        """One block after the other; with `holding`, only those that hold one of these slots."""
        manifest = self._manifest(rows_id, root)
        slots = None if holding is None else _within(holding, manifest.shape)
        yield from self._blocks(rows_id, manifest, slots)

    def check(self, rows_id: str, root: str, *, numbers: Sequence[range] | None = None) -> None:
        """Open each block once, or each of these. Raises `DatasetDamaged` for the first that is not what the root
        says."""
        some = None if numbers is None else {number for run in numbers for number in run}
        for _ in self._numbered(rows_id, self._manifest(rows_id, root), some):
            pass

    def edit(self, rows_id: str, root: str, *, fill: Sequence[Filling] = (), null: Sequence[int] = ()) -> str:
        """The root of rows that are filled, and then null in the slots of `null`; the same where they were so already.

        Nothing changes for anybody until that root is on record.
        """
        manifest = self._manifest(rows_id, root)
        batches = [_Waiting(self, one, manifest.shape) for one in fill]
        slots = _within([*null, *(slot for one in fill for slot in one.slots)], manifest.shape)
        changes = {}
        for found in self._blocks(rows_id, manifest, slots):
            block = found.copy()
            for batch in batches:
                batch.copy_into(block)
            here = block.positions(null)
            block.features[here], block.labels[here] = 0, 0
            if block.content() != found.content():
                changes[block.number] = self._put(rows_id, block)
        return manifest.replaced(changes)

    def settle(self, rows_id: str, root: str) -> None:
        """Destroy what a root that is on record does not name, the keys of all that before anything else.

        For a caller that is `alone` with the rows, and knows that the root is on record and that no run writes another.
        """
        manifest = self._manifest(rows_id, root)
        nodes, named = manifest.node_names(), _named(rows_id, manifest)
        self._sealed.destroy_group(rows_id, but=named)
        for name in self._objects.names(rows_id).keys() - nodes:
            if not name.endswith(".sealed"):
                self._objects.delete(name)

    def is_settled(self, rows_id: str, root: str) -> bool:
        """Return True if no key is there of a block that the root does not name."""
        return self._sealed.keys(rows_id) <= _named(rows_id, self._manifest(rows_id, root))

    def destroy_replaced(self, rows_id: str, *, before: str, after: str) -> None:
        """Destroy what the one root names and the other, which is on record in its place, does not: no root will ever
        name that again, no matter who is at work."""
        with self.alone(rows_id):
            old, new = self._manifest(rows_id, before), self._manifest(rows_id, after)
            nodes, blocks = old.apart_from(new)
            self._sealed.destroy_all({_name(rows_id, number, child.name) for number, child in blocks})
            for name in nodes:
                self._objects.delete(name)

    def delete(self, rows_id: str, *, wait: bool = True) -> None:
        """Destroy all rows; nothing happens when there are none, so it can be run again."""
        with self.alone(rows_id, wait=wait):
            self._destroy(rows_id)
            with suppress(FileNotFoundError):
                (self._locks / rows_id).rmdir()

    def _destroy(self, rows_id: str) -> None:
        self._sealed.destroy_group(rows_id)
        for name in self._objects.names(rows_id):
            self._objects.delete(name)

    def _manifest(self, rows_id: str, root: str) -> Manifest:
        return self._manifests.read(_checked(rows_id), root)

    def _blocks(self, rows_id: str, manifest: Manifest, holding: Sequence[int] | None) -> Iterator[Block]:
        yield from self._numbered(
            rows_id, manifest, None if holding is None else {slot // BLOCK_ROWS for slot in holding}
        )

    def _numbered(self, rows_id: str, manifest: Manifest, numbers: Collection[int] | None) -> Iterator[Block]:
        for number, child in manifest.blocks(numbers):
            yield self._get(rows_id, manifest.shape, number, child)

    def _put(self, rows_id: str, block: Block) -> Child:
        """Seal a block under a new name, and open it again."""
        child = Child(secrets.token_bytes(BLOCK_ID), block.count())
        self._sealed.put(_name(rows_id, block.number, child.name), block.content())
        return child

    def _get(self, rows_id: str, shape: Shape, number: int, child: Child) -> Block:
        name = _name(rows_id, number, child.name)
        try:
            content = self._sealed.get(name)
        except FileNotFoundError as error:
            kind = DamageKind.BLOCK_MISSING if self._sealed.is_key_there(name) else DamageKind.KEY_MISSING
            raise DatasetDamaged.found(rows_id, kind, number) from error
        except ValueError as error:
            kind = DamageKind.KEY if self._sealed.is_key_damaged(name) else DamageKind.BLOCK
            raise DatasetDamaged.found(rows_id, kind, number) from error
        features, labels = mapped(content, shape.rows_in(number), shape.num_columns, shape.has_weights)
        block = Block(number=number, first=number * BLOCK_ROWS, features=features, labels=labels)
        if block.count() != child.records:
            raise DatasetDamaged.found(rows_id, DamageKind.BLOCK, number)
        return block


class _Waiting:
    """Rows that wait beside a dataset, block by block, as the slots that they are for come by in their order."""

    def __init__(self, store: RowStore, filling: Filling, shape: Shape) -> None:
        there = store.shape(filling.rows_id, filling.root)
        if there != (wanted := replace(shape, num_slots=len(filling.slots))):
            raise ValueError(f"Expected rows of {there=} == {wanted}, a slot for each")
        self._slots = np.asarray(filling.slots, dtype=np.int64)
        if (np.diff(self._slots) <= 0).any():
            raise ValueError("Expected slots in their order, each once")
        self._blocks = store.read(filling.rows_id, filling.root)
        self._present: Block | None = None

    def copy_into(self, block: Block) -> None:
        start, stop = np.searchsorted(self._slots, [block.first, block.first + len(block.labels)])
        for position in range(start, stop):
            of_batch = self._holding(position)
            there, here = position - of_batch.first, self._slots[position] - block.first
            block.features[here], block.labels[here] = of_batch.features[there], of_batch.labels[there]

    def _holding(self, position: int) -> Block:
        while self._present is None or position >= self._present.first + len(self._present.labels):
            self._present = next(self._blocks)
        return self._present


def _checked(rows_id: str) -> str:
    if not _ROWS_ID.fullmatch(rows_id):
        raise DatasetUnknown("There is no dataset with this id.")
    return rows_id


def _within(slots: Sequence[int], shape: Shape) -> Sequence[int]:
    outside = [slot for slot in slots if not 0 <= slot < shape.num_slots]
    if outside:
        raise IndexError(f"Expected 0 <= slot={outside[0]} < num_slots={shape.num_slots}")
    return slots


def _named(rows_id: str, manifest: Manifest) -> set[str]:
    """The names under which blocks are sealed."""
    return {_name(rows_id, number, child.name) for number, child in manifest.blocks()}


def _name(rows_id: str, number: int, block_id: bytes) -> str:
    return f"{rows_id}.{number:08}-{block_id.hex()}"
