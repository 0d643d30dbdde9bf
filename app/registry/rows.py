"""The encoded rows of a dataset on disk: fixed slots, edited in place. A deletion makes null rows; additions fill them.

    <root>/<dataset_id>/features.f32       (num_slots, num_columns) float32, little-endian, row-major
                        labels.i32         (num_slots,) int32, little-endian
                        block_digests.bin  32 bytes for each 4096 rows
                        shape.json

A folder is there whole or not at all: it is written under a hidden name and renamed. Whatever goes, goes by being
overwritten with zeros first; copies that a file system or a backup made on its own are beyond this module. Digests are
keyed: an unkeyed one of data that once held a person would let anybody confirm a guess about that person.
"""

import datetime
import errno
import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from app import hardening
from app.errors import DatasetDamaged, DatasetUnknown, DatasetUnusable
from app.registry.files import created, locked, overwrite, sync_folder, wipe, zero_and_verify

if TYPE_CHECKING:
    from app.registry.ingest import Batch

BLOCK_ROWS = 4096
DIGEST_BYTES = 32
_DATASET_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Read-only views of what is on disk; a null row is zero throughout, its label too."""

    features: np.memmap[tuple[int, int], np.dtype[np.float32]]  # (num_slots, num_columns)
    labels: np.memmap[tuple[int], np.dtype[np.int32]]  # (num_slots,)
    num_slots: int
    num_columns: int


class RowWriter:
    """Appends batches to a folder that is not visible yet."""

    def __init__(self, features: IO[bytes], labels: IO[bytes], num_columns: int | None) -> None:
        self._features = features
        self._labels = labels
        self.num_columns = num_columns
        self.num_slots = 0

    def append(self, batch: "Batch") -> None:
        self.write(batch.features, batch.labels)

    def write(self, features: npt.NDArray[np.float32], labels: npt.NDArray[np.int32]) -> None:  # (b, columns), (b,)
        if self.num_columns is None:
            self.num_columns = features.shape[1]
        if features.shape != (len(labels), self.num_columns):
            raise ValueError(f"Expected {features.shape=} == {(len(labels), self.num_columns)}")
        self._features.write(features.astype("<f4", order="C", casting="no", copy=False).tobytes())
        self._labels.write(labels.astype("<i4", casting="no", copy=False).tobytes())
        self.num_slots += len(labels)


class RowStore:
    """The rows of all datasets below `root`."""

    def __init__(self, root: Path, digest_key: bytes) -> None:
        if not 16 <= len(digest_key) <= 64:
            raise ValueError(f"Expected 16 <= len(digest_key)={len(digest_key)} <= 64")
        self._root = root
        self._key = digest_key

    @contextmanager
    def writing(self, dataset_id: str, num_columns: int | None = None) -> Iterator[RowWriter]:
        """A writer whose rows are there, whole and durable, when the block ends, and are gone when it raises.

        Without `num_columns` the first batch decides.
        """
        final = self._folder(dataset_id)
        if final.exists():
            raise FileExistsError(errno.EEXIST, "The dataset has rows already", str(final))
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = self._root / f".writing-{dataset_id}-{secrets.token_hex(8)}"
        folder.mkdir(mode=0o700)
        try:
            with locked(folder):
                with created(folder / "features.f32") as features, created(folder / "labels.i32") as labels:
                    writer = RowWriter(features, labels, num_columns)
                    yield writer
                if not writer.num_slots or not writer.num_columns:
                    raise DatasetUnusable("There are no rows.")
                shape = {"num_slots": writer.num_slots, "num_columns": writer.num_columns}
                with created(folder / "shape.json") as file:
                    file.write(json.dumps(shape).encode())
                with created(folder / "block_digests.bin") as file:
                    for block in range(num_blocks(writer.num_slots)):
                        file.write(self._block_digest(folder, writer.num_columns, block))
                sync_folder(folder)
                folder = folder.rename(final)
                sync_folder(self._root)
        except BaseException:
            wipe(folder)
            raise

    def dataset_ids(self, *, older_than: datetime.timedelta = datetime.timedelta(0)) -> set[str]:
        """The datasets whose rows are there, and have been for at least `older_than`."""
        before = time.time() - older_than.total_seconds()
        folders = (path for path in self._root.glob("*/") if _DATASET_ID.fullmatch(path.name))
        return {path.name for path in folders if path.stat().st_mtime <= before}

    def open(self, dataset_id: str) -> Rows:
        folder, num_slots, num_columns = self._shape(dataset_id)
        features = np.memmap(folder / "features.f32", dtype="<f4", mode="r", shape=(num_slots, num_columns))
        labels = np.memmap(folder / "labels.i32", dtype="<i4", mode="r", shape=(num_slots,))
        hardening.pageable(features, labels)
        return Rows(features=features, labels=labels, num_slots=num_slots, num_columns=num_columns)

    def make_null(self, dataset_id: str, slots: Sequence[int], *, admit: Callable[[], None] = lambda: None) -> None:
        """Overwrite the slots with the null row and prove it by reading back. After a crash anywhere, run it again.

        `admit` is asked when nobody else can write any more, and raises where it is too late to.
        """
        folder, num_slots, num_columns = self._shape(dataset_id)
        _check_slots(slots, num_slots)
        chosen = sorted(set(slots))
        with locked(folder):
            admit()
            for name, row_bytes in (("features.f32", 4 * num_columns), ("labels.i32", 4)):
                zero_and_verify(folder / name, [(slot * row_bytes, row_bytes) for slot in chosen])
            self._renew_digests(folder, num_columns, chosen)

    def fill(
        self, dataset_id: str, slots: Sequence[int], batch: Rows, *, admit: Callable[[], None] = lambda: None
    ) -> None:
        """Write the rows of `batch` into the slots, the first into the first of them, and read them back. After a crash
        anywhere, run it again; `admit` as in `make_null`."""
        folder, num_slots, num_columns = self._shape(dataset_id)
        _check_slots(slots, num_slots)
        if len(set(slots)) != len(slots) or (batch.num_slots, batch.num_columns) != (len(slots), num_columns):
            shape = (batch.num_slots, batch.num_columns)
            raise ValueError(f"Expected rows of shape {shape} == {(len(slots), num_columns)}, a slot for each")
        with locked(folder):
            admit()
            overwrite(folder / "features.f32", _pieces(slots, batch.features, 4 * num_columns))
            overwrite(folder / "labels.i32", _pieces(slots, batch.labels, 4))
            self._renew_digests(folder, num_columns, slots)
            there = RowStore.open(self, dataset_id)
            for rows in _runs(slots):
                wanted = slice(slots[rows.start], slots[rows.start] + rows.stop - rows.start)
                if not (
                    np.array_equal(there.features[wanted], batch.features[rows])
                    and np.array_equal(there.labels[wanted], batch.labels[rows])
                ):
                    raise OSError(errno.EIO, "Rows were written and something else was read back", str(folder))

    def verify(self, dataset_id: str, *, digest: str | None) -> None:
        """Read all rows and compare their digests with those on record, and these with `digest` if it is given.

        Raises `DatasetDamaged`: rows that were restored from a backup would bring people back.
        """
        folder, num_slots, num_columns = self._shape(dataset_id)
        recorded = (folder / "block_digests.bin").read_bytes()
        blocks = (self._block_digest(folder, num_columns, block) for block in range(num_blocks(num_slots)))
        if recorded != b"".join(blocks) or (digest is not None and digest != self._digest(dataset_id)):
            raise DatasetDamaged(
                f"The rows of dataset {dataset_id} are not those on record; nothing is learned from them."
            )

    def digest(self, dataset_id: str) -> str:
        """Keyed BLAKE2b, in hex, of the shape and the block digests."""
        return self._digest(dataset_id)

    def _digest(self, dataset_id: str) -> str:
        folder, num_slots, num_columns = self._shape(dataset_id)
        return self._digest_over(num_slots, num_columns, [(folder / "block_digests.bin").read_bytes()])

    def _digest_over(self, num_slots: int, num_columns: int, block_digests: Iterable[bytes]) -> str:
        digest = hashlib.blake2b(key=self._key, digest_size=DIGEST_BYTES, person=b"lethe.rows")
        digest.update(f"{num_slots} {num_columns} {BLOCK_ROWS}\n".encode())
        for one in block_digests:
            digest.update(one)
        return digest.hexdigest()

    @contextmanager
    def held(self, dataset_id: str) -> Iterator[tuple[int, int]]:
        """The number of slots and of columns of rows that nobody edits while the block lasts."""
        folder, num_slots, num_columns = self._shape(dataset_id)
        with locked(folder):
            yield num_slots, num_columns

    def blocks(self, dataset_id: str, *, digest: str | None) -> Iterator[bytes]:
        """Features and then labels of each 4096 rows that are `held`, as they are on disk.

        Raises `DatasetDamaged`, after the last, if they were not those of `digest`.
        """
        folder, num_slots, num_columns = self._shape(dataset_id)
        digests = []
        for block in range(num_blocks(num_slots)):
            content = block_content(folder, num_columns, block)
            digests.append(self._digest_of(content))
            yield content
        if digest is not None and digest != self._digest_over(num_slots, num_columns, digests):
            raise DatasetDamaged(f"The rows of dataset {dataset_id} are not those on record.")

    def delete(self, dataset_id: str) -> None:
        """Overwrite and remove the rows; nothing happens when there are none, so it can be run again."""
        folder = self._folder(dataset_id)
        leaving = self._root / f".deleting-{dataset_id}"
        wipe(leaving)
        if folder.exists():
            folder.rename(leaving)
            sync_folder(self._root)
            wipe(leaving)

    def release(self, dataset_id: str) -> None:
        """Say that this host needs the rows no longer. They are its own and stay; only a cache of them would go."""

    def sweep_temporary(self) -> None:
        """Wipe what a crash left half written or half deleted; a folder that a live process is writing stays."""
        for folder in [*self._root.glob(".writing-*"), *self._root.glob(".deleting-*")]:
            try:
                with locked(folder, wait=False):
                    wipe(folder)
            except (BlockingIOError, FileNotFoundError):  # in use, or finished meanwhile
                continue

    def _folder(self, dataset_id: str) -> Path:
        if not _DATASET_ID.fullmatch(dataset_id):
            raise DatasetUnknown("There is no dataset with this id.")
        return self._root / dataset_id

    def _shape(self, dataset_id: str) -> tuple[Path, int, int]:
        folder = self._folder(dataset_id)
        try:
            shape = json.loads((folder / "shape.json").read_bytes())
        except FileNotFoundError:
            raise DatasetUnknown("There is no dataset with this id.") from None
        num_slots, num_columns = int(shape["num_slots"]), int(shape["num_columns"])
        sizes = {
            "features.f32": 4 * num_slots * num_columns,
            "labels.i32": 4 * num_slots,
            "block_digests.bin": DIGEST_BYTES * num_blocks(num_slots),
        }
        for name, size in sizes.items():
            if (folder / name).stat().st_size != size:
                raise OSError(errno.EIO, f"Expected {size} bytes", str(folder / name))
        return folder, num_slots, num_columns

    def _renew_digests(self, folder: Path, num_columns: int, slots: Sequence[int]) -> None:
        touched = sorted({slot // BLOCK_ROWS for slot in slots})
        digests = ((block * DIGEST_BYTES, self._block_digest(folder, num_columns, block)) for block in touched)
        overwrite(folder / "block_digests.bin", digests)

    def _block_digest(self, folder: Path, num_columns: int, block: int) -> bytes:
        return self._digest_of(block_content(folder, num_columns, block))

    def _digest_of(self, block: bytes) -> bytes:
        return hashlib.blake2b(block, key=self._key, digest_size=DIGEST_BYTES, person=b"lethe.block").digest()


def block_content(folder: Path, num_columns: int, block: int) -> bytes:
    """The features and then the labels of a block, as they are on disk."""
    parts = []
    for name, row_bytes in (("features.f32", 4 * num_columns), ("labels.i32", 4)):
        with (folder / name).open("rb") as file:
            file.seek(block * BLOCK_ROWS * row_bytes)
            parts.append(file.read(BLOCK_ROWS * row_bytes))
    return b"".join(parts)


def _check_slots(slots: Sequence[int], num_slots: int) -> None:
    outside = [slot for slot in slots if not 0 <= slot < num_slots]
    if outside:
        raise IndexError(f"Expected 0 <= slot={outside[0]} < num_slots={num_slots}")


def _runs(slots: Sequence[int]) -> Iterator[slice]:
    """Positions in `slots` whose slots follow each other, a few thousand at once."""
    breaks = np.flatnonzero((np.diff(slots) != 1) | (np.arange(1, len(slots)) % BLOCK_ROWS == 0)) + 1
    for start, stop in pairwise([0, *breaks.tolist(), len(slots)]):
        yield slice(start, stop)


def _pieces(slots: Sequence[int], rows: npt.NDArray[Any], row_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Where in the file the rows for these slots go."""
    for positions in _runs(slots):
        yield slots[positions.start] * row_bytes, rows[positions].tobytes()


def num_blocks(num_slots: int) -> int:
    return -(-num_slots // BLOCK_ROWS)
