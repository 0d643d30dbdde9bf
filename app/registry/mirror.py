"""Rows whose truth is in an object store: sealed blocks and a manifest; a host runs on a copy, which it checks first.

    <dataset_id>.manifest                   the shape and the digest of each block, JSON
    <dataset_id>.<block>-<digest>.sealed    the features, then the labels, of 4096 rows

An edit seals the touched blocks anew under new names, replaces the manifest, which commits it, and destroys the keys
of the blocks before; killed anywhere, it can be run again, on any host. One process at a time has a dataset to itself,
by a lock in a folder that all hosts share. A copy is laid out as `RowStore` says. Before any use it is compared with
the manifest: what is stale in it is overwritten in place, and a copy of rows that are gone is wiped.
"""

import datetime
import errno
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from app.errors import DatasetDamaged, DatasetUnknown
from app.registry.files import locked, overwrite
from app.registry.rows import BLOCK_ROWS, DIGEST_BYTES, Rows, RowStore, RowWriter, block_content
from app.registry.sealing import Sealed
from app.registry.store import ObjectStore

_MANIFEST = ".manifest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What the rows of a dataset are."""

    num_slots: int
    num_columns: int
    digests: tuple[bytes, ...]  # one for each block

    def to_bytes(self) -> bytes:
        digests = [digest.hex() for digest in self.digests]
        shape = {"num_slots": self.num_slots, "num_columns": self.num_columns, "block_rows": BLOCK_ROWS}
        return json.dumps(shape | {"digests": digests}).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Raises `ValueError`."""
        read = json.loads(content)
        try:
            if read["block_rows"] != BLOCK_ROWS or len(read["digests"]) != -(-read["num_slots"] // BLOCK_ROWS):
                raise ValueError("The blocks do not fit the shape.")
            digests = tuple(bytes.fromhex(digest) for digest in read["digests"])
            return cls(num_slots=read["num_slots"], num_columns=read["num_columns"], digests=digests)
        except (KeyError, TypeError) as error:
            raise ValueError("Something is missing.") from error

    def blocks(self, dataset_id: str) -> list[str]:
        """The names under which the blocks are sealed."""
        return [f"{dataset_id}.{block:08}-{digest.hex()}" for block, digest in enumerate(self.digests)]


class MirroredRowStore(RowStore):
    """The rows of all datasets of an object store, copied to `cache`, a folder of this host alone.

    `locks`: a folder that all hosts share.
    """

    def __init__(self, cache: Path, digest_key: bytes, *, objects: ObjectStore, sealed: Sealed, locks: Path) -> None:
        super().__init__(cache, digest_key)
        self._objects = objects
        self._sealed = sealed
        self._locks = locks

    @contextmanager
    def writing(self, dataset_id: str, num_columns: int | None = None) -> Iterator[RowWriter]:
        self._folder(dataset_id)
        if dataset_id + _MANIFEST in self._objects.names(dataset_id):
            raise FileExistsError(errno.EEXIST, "The dataset has rows already", dataset_id)
        with ExitStack() as stack:
            with super().writing(dataset_id, num_columns) as writer:
                yield writer
                stack.enter_context(self._alone(dataset_id))  # before anybody else sees a copy without a manifest
            try:
                self._publish(dataset_id, before=None)
            except BaseException:
                self._delete(dataset_id)
                raise

    def dataset_ids(self, *, older_than: datetime.timedelta = datetime.timedelta(0)) -> set[str]:
        """The datasets of which anything is in the store, and of which nothing was written since `older_than` ago."""
        before = datetime.datetime.now(datetime.UTC) - older_than
        newest: dict[str, datetime.datetime] = {}
        for name, at in [*self._objects.names().items(), *self._sealed.names().items()]:
            dataset_id = name.partition(".")[0]
            newest[dataset_id] = max(at, newest.get(dataset_id, at))
        return {dataset_id for dataset_id, at in newest.items() if at <= before}

    def open(self, dataset_id: str) -> Rows:
        with self._alone(dataset_id):
            self._refresh(dataset_id)
            return super().open(dataset_id)

    @contextmanager
    def held(self, dataset_id: str) -> Iterator[tuple[int, int]]:
        with self._alone(dataset_id):
            manifest = self._refresh(dataset_id)
            yield manifest.num_slots, manifest.num_columns

    def make_null(self, dataset_id: str, slots: Sequence[int], *, admit: Callable[[], None] = lambda: None) -> None:
        with self._alone(dataset_id):
            manifest = self._refresh(dataset_id, reading={slot // BLOCK_ROWS for slot in slots})
            super().make_null(dataset_id, slots, admit=admit)
            self._publish(dataset_id, before=manifest)

    def fill(
        self, dataset_id: str, slots: Sequence[int], batch: Rows, *, admit: Callable[[], None] = lambda: None
    ) -> None:
        with self._alone(dataset_id):
            manifest = self._refresh(dataset_id, reading={slot // BLOCK_ROWS for slot in slots})
            super().fill(dataset_id, slots, batch, admit=admit)
            self._publish(dataset_id, before=manifest)

    def verify(self, dataset_id: str, *, digest: str | None) -> None:
        """As `RowStore.verify`, after replacing what is damaged in the copy."""
        with self._alone(dataset_id):
            manifest = self._refresh(dataset_id)
            try:
                super().verify(dataset_id, digest=digest)
            except DatasetDamaged:
                self._refresh(dataset_id, reading=range(len(manifest.digests)))
                super().verify(dataset_id, digest=digest)

    def digest(self, dataset_id: str) -> str:
        with self._alone(dataset_id):
            self._refresh(dataset_id)
            return self._digest(dataset_id)

    def delete(self, dataset_id: str) -> None:
        self._folder(dataset_id)
        with self._alone(dataset_id):
            self._delete(dataset_id)

    def release(self, dataset_id: str) -> None:
        """Wipe this host's copy, if nobody else on it is about to use it."""
        with self._alone(dataset_id):
            super().delete(dataset_id)

    def sweep_temporary(self) -> None:
        """Wipe what a crash left in this host's copies, and from all of them whoever has been forgotten since."""
        super().sweep_temporary()
        for dataset_id in super().dataset_ids():
            try:
                with self._alone(dataset_id, wait=False):
                    self._refresh(dataset_id)
            except (BlockingIOError, DatasetUnknown, DatasetDamaged):  # in use; wiped; to be told to whoever uses it
                continue

    def _delete(self, dataset_id: str) -> None:
        super().delete(dataset_id)
        self._sealed.destroy_group(dataset_id)
        self._objects.delete(dataset_id + _MANIFEST)

    def _publish(self, dataset_id: str, *, before: Manifest | None) -> None:
        """Make this host's copy the truth, and destroy what was before."""
        folder, num_slots, num_columns = self._shape(dataset_id)
        manifest = Manifest(num_slots=num_slots, num_columns=num_columns, digests=_recorded(folder))
        names = manifest.blocks(dataset_id)
        known = set(before.blocks(dataset_id)) if before else set()
        for block, (name, digest) in enumerate(zip(names, manifest.digests, strict=True)):
            if name not in known:
                self._sealed.put(name, block_content(folder, num_columns, block))
                if self._digest_of(self._sealed.get(name)) != digest:
                    raise OSError(errno.EIO, "A block was written and something else was read back", name)
        content = manifest.to_bytes()
        self._objects.put(dataset_id + _MANIFEST, content)
        if self._objects.get(dataset_id + _MANIFEST) != content:
            raise OSError(errno.EIO, "A manifest was written and something else was read back", dataset_id)
        self._sealed.destroy_group(dataset_id, but=set(names))

    def _refresh(self, dataset_id: str, *, reading: Collection[int] = ()) -> Manifest:
        """Make this host's copy what the manifest says; the blocks of `reading` are read to see whether they are.

        Raises `DatasetUnknown`, having wiped the copy, and `DatasetDamaged` where the store does not hold what it says.
        """
        manifest = self._manifest(dataset_id)
        try:
            folder, num_slots, num_columns = self._shape(dataset_id)
        except (DatasetUnknown, OSError, ValueError):
            folder, num_slots, num_columns = self._folder(dataset_id), 0, 0
        if (num_slots, num_columns) != (manifest.num_slots, manifest.num_columns):
            super().delete(dataset_id)
            with super().writing(dataset_id, manifest.num_columns) as writer:
                for block in range(len(manifest.digests)):
                    writer.write(*self._block(dataset_id, manifest, block))
            return manifest
        for block, recorded in enumerate(_recorded(folder)):
            digest = manifest.digests[block]
            if recorded != digest or (block in reading and self._block_digest(folder, num_columns, block) != digest):
                features, labels = self._block(dataset_id, manifest, block)
                first = block * BLOCK_ROWS * 4
                overwrite(folder / "features.f32", [(first * num_columns, features.tobytes())])
                overwrite(folder / "labels.i32", [(first, labels.tobytes())])
                overwrite(folder / "block_digests.bin", [(block * DIGEST_BYTES, digest)])
        return manifest

    def _manifest(self, dataset_id: str) -> Manifest:
        self._folder(dataset_id)
        try:
            return Manifest.from_bytes(self._objects.get(dataset_id + _MANIFEST))
        except FileNotFoundError:
            super().delete(dataset_id)
            raise DatasetUnknown("There is no dataset with this id.") from None
        except ValueError as error:
            raise DatasetDamaged(f"The manifest of dataset {dataset_id} cannot be read; restore it.") from error

    def _block(
        self, dataset_id: str, manifest: Manifest, block: int
    ) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.float32]], np.ndarray[tuple[int], np.dtype[np.int32]]]:
        """Features (b, num_columns) and labels (b,) from the store."""
        try:
            content = self._sealed.get(manifest.blocks(dataset_id)[block])
        except (FileNotFoundError, ValueError) as error:
            raise DatasetDamaged(f"Block {block} of dataset {dataset_id} does not open; restore it.") from error
        num_rows = min(BLOCK_ROWS, manifest.num_slots - block * BLOCK_ROWS)
        size = 4 * num_rows * manifest.num_columns
        if self._digest_of(content) != manifest.digests[block] or len(content) != size + 4 * num_rows:
            raise DatasetDamaged(f"Block {block} of dataset {dataset_id} is not the one on record; restore it.")
        features = np.frombuffer(content[:size], dtype="<f4").reshape(num_rows, manifest.num_columns)
        return features, np.frombuffer(content[size:], dtype="<i4")

    @contextmanager
    def _alone(self, dataset_id: str, *, wait: bool = True) -> Iterator[None]:
        folder = self._locks / self._folder(dataset_id).name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(folder, wait=wait):
            yield


def _recorded(folder: Path) -> tuple[bytes, ...]:
    digests = (folder / "block_digests.bin").read_bytes()
    return tuple(digests[start : start + DIGEST_BYTES] for start in range(0, len(digests), DIGEST_BYTES))
