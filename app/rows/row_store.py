"""Store of datasets' encoded rows: sealed blocks of 4096 rows, never overwritten, in a folder or a bucket.

    <rows id>.<block>-<block id>.sealed    features (float32), then labels (int32), little-endian, of 4096 rows;
                                           each label is followed by its weight if rows have weights
    <rows id>.<hash>.node                  node of the manifest (`blocks.py`), which names the blocks of the rows

Each block has its own data key, used once, and a random id; its whole name is authenticated. The manifest's root, which
is recorded in the database, determines a dataset's rows. An edit writes new blocks and a new root beside the old ones.
It takes effect when the new root is recorded; the keys of all blocks that this root does not name are then destroyed.
Stored files thus never determine the recorded state, and a block that does not open under the root is refused to every
caller.

Rows are opened into the process's memory (`app/vault/memory.py`); no file holds a row in plaintext.
"""

import datetime
import errno
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from app.errors import DatasetTooLarge
from app.rows import blocks
from app.vault.memory import Memory
from app.vault.sealing import SealedStore
from app.vault.store import ObjectStore, locked
from lethe.contract import problems, sets

Source = Callable[[Collection[int]], Iterable[blocks.Block]]
"""Function that opens the blocks with the given numbers, in order."""


class OpenedRows:
    """Read-only rows, with only some blocks in memory; all other blocks read as zeros and use no memory. A null row is
    zero throughout, including its label and weight.

    `records` is the number of non-null rows according to the root. `most_bytes` limits the memory in use. `descriptor`
    is a file descriptor through which other processes can map the memory: features, then labels.
    """

    def __init__(self, memory: Memory, shape: blocks.Shape, *, records: int, most_bytes: int, blocks: Source) -> None:
        self.shape, self.records, self.most_bytes = shape, records, most_bytes
        self.descriptor = memory.descriptor
        self.features, self.labels = _mapped(memory.view().toreadonly(), shape)
        self._memory, self._written = memory, _mapped(memory.view(), shape)
        self._blocks = blocks
        # Number of non-null rows of each block in memory.
        self._loaded: dict[int, int] = {}

    @classmethod
    @contextmanager
    def empty(cls, shape: blocks.Shape, *, records: int, most_bytes: int, blocks: Source) -> Iterator["OpenedRows"]:
        """Yield rows with no blocks in memory, and overwrite the loaded blocks on exit."""
        memory = Memory(shape.num_bytes)
        try:
            rows = cls(memory, shape, records=records, most_bytes=most_bytes, blocks=blocks)
            try:
                yield rows
            finally:
                rows._forget(rows._loaded)
        finally:
            memory.close()

    def show(self, numbers: Sequence[range], *, on_opened: Callable[[], None] = lambda: None) -> dict[int, int]:
        """Load the blocks in `numbers` into memory, overwrite all other loaded blocks, and return the number of
        non-null rows in each. Raises `DatasetTooLarge`.

        `on_opened` is called after each newly opened block, and may raise to stop loading.
        """
        wanted = {number for run in numbers for number in run}
        self._forget(self._loaded.keys() - wanted)
        self.require_room(sum(self.shape.rows_in(number) for number in wanted) * self.shape.row_bytes)
        features, labels = self._written
        for block in self._blocks(sorted(wanted - self._loaded.keys())):
            self._loaded[block.number] = block.count()
            place = slice(block.first, block.first + len(block.labels))
            features[place], labels[place] = block.features, block.labels
            on_opened()
        return {number: self._loaded[number] for number in wanted}

    def require_room(self, num_bytes: int) -> None:
        """Raise `DatasetTooLarge` if `num_bytes` of rows exceed the memory limit."""
        if num_bytes > self.most_bytes:
            raise DatasetTooLarge(
                f"What one step of a run reads takes {num_bytes} bytes of memory, and a run may use {self.most_bytes}: "
                "set LETHE_ROWS_MEMORY_BYTES to more, on a machine that has it, or give the model a smaller batch_size."
            )

    def _forget(self, numbers: Iterable[int]) -> None:
        num_features = self.shape.num_slots * self.shape.num_columns
        for number in list(numbers):
            first, num_rows = number * blocks.BLOCK_ROWS, self.shape.rows_in(number)
            self._memory.forget(4 * first * self.shape.num_columns, 4 * num_rows * self.shape.num_columns)
            num_labels = self.shape.num_labels
            self._memory.forget(4 * (num_features + num_labels * first), 4 * num_labels * num_rows)
            del self._loaded[number]


_SEALERS = 4
"""Number of threads that seal blocks while the next ones are being filled; they mostly wait for a disk or bucket."""
_ROWS_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


class RowStore:
    """Store of the rows of all datasets, and of batches waiting to be added to a dataset.

    `locks` is a folder that all hosts share. `most_bytes` limits the memory for plaintext rows. Every reading method
    raises `DatasetDamaged` if stored data do not match the root, and `OSError` if the store is unavailable.
    """

    def __init__(self, objects: ObjectStore, sealed: SealedStore, *, locks: Path, most_bytes: int) -> None:
        self._objects = objects
        self._sealed = sealed
        self._manifests = blocks.Manifests(objects)
        self._locks = locks
        self._most_bytes = most_bytes

    @contextmanager
    def alone(self, rows_id: str, *, wait: bool = True) -> Iterator[None]:
        """Lock the rows, so that no other process destroys any part of them during the `with` block."""
        folder = self._locks / _checked(rows_id)
        with ExitStack() as stack:
            while True:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                # The folder disappears if another process deletes the rows in between.
                with suppress(FileNotFoundError):
                    descriptor = stack.enter_context(locked(folder, wait=wait))
                    if folder.stat().st_ino == os.fstat(descriptor).st_ino:
                        break
                stack.close()
            yield

    @contextmanager
    def writing(self, rows_id: str, num_columns: int | None = None) -> Iterator[blocks.RowWriter]:
        """Yield a writer for new rows. After the block, the rows are durable and the writer's `root` names them; if the
        block raises, they are destroyed. Without `num_columns`, the first batch determines the number of columns.

        Raises `FileExistsError` if rows with this id exist.
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
    def beside(self, rows_id: str, num_columns: int | None = None) -> Iterator[blocks.RowWriter]:
        """Yield a writer as `writing` does, but for an id that already has rows. The caller must hold the `alone` lock,
        and destroy the superseded rows."""
        with ThreadPoolExecutor(_SEALERS, thread_name_prefix="sealer") as sealers:
            writer = blocks.RowWriter(lambda block: sealers.submit(self._put, rows_id, block), num_columns)
            yield writer
            writer.root = self._manifests.write(rows_id, *writer.finish())

    def stored(self) -> dict[str, datetime.datetime]:
        """Return the ids of all stored rows, including remnants, each with the time of its last write."""
        newest: dict[str, datetime.datetime] = {}
        for name, at in [*self._objects.names().items(), *self._sealed.names().items()]:
            rows_id = name.partition(".")[0]
            newest[rows_id] = max(at, newest.get(rows_id, at))
        return newest

    def shape(self, rows_id: str, root: str) -> blocks.Shape:
        return self._manifest(rows_id, root).shape

    def count(self, rows_id: str, root: str) -> int:
        """Return the number of non-null rows according to the root."""
        return self._manifest(rows_id, root).records

    @contextmanager
    def open(self, rows_id: str, root: str, *, without: Sequence[int] = ()) -> Iterator[OpenedRows]:
        """Yield rows with no blocks in memory, and overwrite the loaded blocks on exit. Rows in the `without` slots are
        loaded as null; the store does not change."""
        manifest = self._manifest(rows_id, root)
        with OpenedRows.empty(
            manifest.shape,
            records=manifest.records,
            most_bytes=self._most_bytes,
            blocks=lambda numbers: (block.without(without) for block in self._numbered(rows_id, manifest, numbers)),
        ) as rows:
            yield rows

    def read(self, rows_id: str, root: str, *, holding: Sequence[int] | None = None) -> Iterator[blocks.Block]:
        """Yield all blocks in order; with `holding`, only the blocks that contain one of these slots."""
        manifest = self._manifest(rows_id, root)
        slots = None if holding is None else _within(holding, manifest.shape)
        yield from self._blocks(rows_id, manifest, slots)

    def check(self, rows_id: str, root: str, *, numbers: Sequence[range] | None = None) -> None:
        """Open every block, or only the blocks in `numbers`, and raise `DatasetDamaged` for the first block that does
        not match the root."""
        chosen = None if numbers is None else {number for run in numbers for number in run}
        for _ in self._numbered(rows_id, self._manifest(rows_id, root), chosen):
            pass

    def edit(self, rows_id: str, root: str, *, fill: Sequence[blocks.Filling] = (), null: Sequence[int] = ()) -> str:
        """Put the rows of the `fill` batches into their slots, and null the slots in `null`. Return the new root, or
        `root` itself if nothing changes.

        The edit takes effect only when the new root is recorded.
        """
        manifest = self._manifest(rows_id, root)
        batches = [_Waiting(self, filling, manifest.shape) for filling in fill]
        slots = _within([*null, *(slot for filling in fill for slot in filling.slots)], manifest.shape)
        changes = {}
        for old in self._blocks(rows_id, manifest, slots):
            block = old.copy()
            for batch in batches:
                batch.copy_into(block)
            positions = block.positions(null)
            block.features[positions], block.labels[positions] = 0, 0
            if block.content() != old.content():
                changes[block.number] = self._put(rows_id, block)
        return manifest.replaced(changes)

    def settle(self, rows_id: str, root: str) -> None:
        """Destroy everything that the recorded root does not name, starting with the keys.

        The caller must hold the `alone` lock, and must know that the root is recorded and no run is writing another.
        """
        manifest = self._manifest(rows_id, root)
        nodes, named = manifest.node_names(), _named(rows_id, manifest)
        self._sealed.destroy_group(rows_id, but=named)
        for name in self._objects.names(rows_id).keys() - nodes:
            if not name.endswith(".sealed"):
                self._objects.delete(name)

    def destroy_replaced(self, rows_id: str, *, before: str, after: str) -> None:
        """Destroy everything that the replaced root `before` names and the recorded root `after` does not. This is safe
        while other processes write, because no later root can name these blocks again."""
        with self.alone(rows_id):
            old, new = self._manifest(rows_id, before), self._manifest(rows_id, after)
            nodes, blocks = old.apart_from(new)
            self._sealed.destroy_all({_name(rows_id, number, child.name) for number, child in blocks})
            for name in nodes:
                self._objects.delete(name)

    def delete(self, rows_id: str, *, wait: bool = True) -> None:
        """Destroy all rows stored under an id. The call is idempotent."""
        with self.alone(rows_id, wait=wait):
            self._destroy(rows_id)
            with suppress(FileNotFoundError):
                (self._locks / rows_id).rmdir()

    def _destroy(self, rows_id: str) -> None:
        self._sealed.destroy_group(rows_id)
        for name in self._objects.names(rows_id):
            self._objects.delete(name)

    def _manifest(self, rows_id: str, root: str) -> blocks.Manifest:
        return self._manifests.read(_checked(rows_id), root)

    def _blocks(self, rows_id: str, manifest: blocks.Manifest, holding: Sequence[int] | None) -> Iterator[blocks.Block]:
        yield from self._numbered(
            rows_id, manifest, None if holding is None else {slot // blocks.BLOCK_ROWS for slot in holding}
        )

    def _numbered(
        self, rows_id: str, manifest: blocks.Manifest, numbers: Collection[int] | None
    ) -> Iterator[blocks.Block]:
        for number, child in manifest.blocks(numbers):
            yield self._get(rows_id, manifest.shape, number, child)

    def _put(self, rows_id: str, block: blocks.Block) -> blocks.ManifestEntry:
        """Seal a block under a new name, verify it by reading it back, and return its manifest entry."""
        child = blocks.ManifestEntry(secrets.token_bytes(blocks.BLOCK_ID), block.count())
        self._sealed.put(_name(rows_id, block.number, child.name), block.content())
        return child

    def _get(self, rows_id: str, shape: blocks.Shape, number: int, child: blocks.ManifestEntry) -> blocks.Block:
        name = _name(rows_id, number, child.name)
        try:
            content = self._sealed.get(name)
        except FileNotFoundError as error:
            kind = sets.DamageKind.BLOCK_MISSING if self._sealed.is_key_there(name) else sets.DamageKind.KEY_MISSING
            raise problems.DatasetDamaged.found(rows_id, kind, number) from error
        except ValueError as error:
            kind = sets.DamageKind.KEY if self._sealed.is_key_damaged(name) else sets.DamageKind.BLOCK
            raise problems.DatasetDamaged.found(rows_id, kind, number) from error
        features, labels = blocks.mapped(content, shape.rows_in(number), shape.num_columns, shape.has_weights)
        block = blocks.Block(number=number, first=number * blocks.BLOCK_ROWS, features=features, labels=labels)
        if block.count() != child.records:
            raise problems.DatasetDamaged.found(rows_id, sets.DamageKind.BLOCK, number)
        return block


class _Waiting:
    """Batch of stored rows, read block by block as its slots are filled in ascending order."""

    def __init__(self, store: RowStore, filling: blocks.Filling, shape: blocks.Shape) -> None:
        there = store.shape(filling.rows_id, filling.root)
        if there != (wanted := replace(shape, num_slots=len(filling.slots))):
            raise ValueError(f"Expected rows of {there=} == {wanted}, a slot for each")
        self._slots = np.asarray(filling.slots, dtype=np.int64)
        if (np.diff(self._slots) <= 0).any():
            raise ValueError("Expected slots in their order, each once")
        self._blocks = store.read(filling.rows_id, filling.root)
        self._present: blocks.Block | None = None

    def copy_into(self, block: blocks.Block) -> None:
        start, stop = np.searchsorted(self._slots, [block.first, block.first + len(block.labels)])
        for position in range(start, stop):
            batch = self._holding(position)
            source, target = position - batch.first, self._slots[position] - block.first
            block.features[target], block.labels[target] = batch.features[source], batch.labels[source]

    def _holding(self, position: int) -> blocks.Block:
        while self._present is None or position >= self._present.first + len(self._present.labels):
            self._present = next(self._blocks)
        return self._present


def _checked(rows_id: str) -> str:
    if not _ROWS_ID.fullmatch(rows_id):
        raise problems.DatasetUnknown("There is no dataset with this id.")
    return rows_id


def _within(slots: Sequence[int], shape: blocks.Shape) -> Sequence[int]:
    outside = [slot for slot in slots if not 0 <= slot < shape.num_slots]
    if outside:
        raise IndexError(f"Expected 0 <= slot={outside[0]} < num_slots={shape.num_slots}")
    return slots


def _named(rows_id: str, manifest: blocks.Manifest) -> set[str]:
    """Return the names of a manifest's sealed blocks."""
    return {_name(rows_id, number, child.name) for number, child in manifest.blocks()}


def _name(rows_id: str, number: int, block_id: bytes) -> str:
    return f"{rows_id}.{number:08}-{block_id.hex()}"


def _mapped(memory: memoryview, shape: blocks.Shape) -> tuple[blocks.Features, blocks.Labels]:
    return blocks.mapped(memory, shape.num_slots, shape.num_columns, shape.has_weights)
