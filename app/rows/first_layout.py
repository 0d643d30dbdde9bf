"""Rows as the first release kept them, sealed anew when an installation is set up: in a folder they lay in the clear.

    <rows id>/features.f32, labels.i32, block_digests.bin, shape.json     in a folder
    <rows id>.manifest, <rows id>.<block>-<digest>.sealed                 in a bucket

Their digests were keyed, and the one of the whole is in the database: rows that it does not fit are damaged, stay
where they are, and are tried again at the next start. Killed anywhere, this goes on the next time.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app import telemetry
from app.db import Database
from app.rows import damage
from app.rows import repository as rows_repository
from app.rows.blocks import mapped
from app.rows.manifest import BLOCK_ROWS
from app.rows.row_store import RowStore
from app.vault.files import wipe
from app.vault.sealing import Sealed
from app.vault.store import ObjectStore
from lethe.contract.problems import DatasetDamaged
from lethe.contract.sets import DamageKind

_DIGEST = 32
_MANIFEST = ".manifest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The places where rows of the first layout may be. `copies`: what a host kept of those in a bucket."""

    folder: Path
    bucket: ObjectStore | None
    sealed: Sealed
    copies: Path
    digest_key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Old:
    """Rows of the first layout, and what was written beside them: their shape and the digests of their blocks."""

    num_slots: int
    num_columns: int
    digests: list[bytes]
    block: Callable[[int], bytes]  # the content of a block, by its number


def convert(database: Database, rows: RowStore, found: Found) -> None:
    """Seal what the database refers to and the row store does not have yet; then wipe what it was."""
    for folder in found.copies.iterdir() if found.copies.is_dir() else ():
        wipe(folder)
    ids = _ids(found)
    if not ids:
        return
    with database.reading() as session:
        claimed = rows_repository.row_roots(session).keys()
    for rows_id in sorted(ids & claimed):
        with rows.alone(rows_id):
            _convert(database, rows, found, rows_id)
    for rows_id in ids - claimed:  # an upload that was cut off
        if found.bucket is None:
            wipe(found.folder / rows_id)
        else:
            rows.delete(rows_id)
    if found.bucket is None:
        for folder in found.folder.glob(".*"):
            wipe(folder)
        with suppress(OSError):  # what is damaged stays in it
            found.folder.rmdir()


def _ids(found: Found) -> set[str]:
    if found.bucket is None:
        return {path.name for path in found.folder.glob("[!.]*/")} if found.folder.is_dir() else set()
    return {name.removesuffix(_MANIFEST) for name in found.bucket.names() if name.endswith(_MANIFEST)}


def _convert(database: Database, rows: RowStore, found: Found, rows_id: str) -> None:
    with database.reading() as session:  # a run that is claimed after this waits until we are done
        root, busy = rows_repository.root(session, rows_id), rows_repository.is_any_run_on(session, dataset_id=rows_id)
    if root is None:  # it was retired meanwhile
        return
    if not rows.is_there(rows_id, root):
        try:
            root = _sealed(rows, found, rows_id, root)
        except DatasetDamaged as error:
            with database.writing() as session:
                damage.record(session, error)
            return
        with database.writing() as session:
            rows_repository.set_root(session, rows_id, root)
        telemetry.logger().info("catalogue_repository.rows_sealed", rows_id=rows_id)
    if not busy:  # else what a run is about to put on record would go; the next sweep settles it
        rows.settle(rows_id, root)
    if found.bucket is None:
        wipe(found.folder / rows_id)


def _sealed(rows: RowStore, found: Found, rows_id: str, digest: str) -> str:
    """The root of the same rows. Raises `DatasetDamaged` unless they are those of the digest."""
    damaged = DatasetDamaged.found(rows_id, DamageKind.FIRST_LAYOUT)
    try:
        old = _in_folder(found.folder / rows_id) if found.bucket is None else _in_bucket(found, found.bucket, rows_id)
        whole = hashlib.blake2b(key=found.digest_key, digest_size=_DIGEST, person=b"lethe.rows")
        whole.update(f"{old.num_slots} {old.num_columns} {BLOCK_ROWS}\n".encode())
        for one in old.digests:
            whole.update(one)
        if whole.hexdigest() != digest or len(old.digests) != -(-old.num_slots // BLOCK_ROWS):
            raise damaged
        with rows.beside(rows_id, old.num_columns) as writer:
            for number, expected in enumerate(old.digests):
                content = old.block(number)
                if _digest_of(content, found.digest_key) != expected:
                    raise damaged
                num_rows = min(BLOCK_ROWS, old.num_slots - number * BLOCK_ROWS)
                writer.write(*mapped(content, num_rows, old.num_columns))
        return writer.root
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise damaged from error


def _digest_of(content: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(content, key=key, digest_size=_DIGEST, person=b"lethe.block").digest()


def _in_folder(folder: Path) -> _Old:
    shape = json.loads((folder / "shape.json").read_bytes())
    num_slots, num_columns = int(shape["num_slots"]), int(shape["num_columns"])
    digests = (folder / "block_digests.bin").read_bytes()

    def block(number: int) -> bytes:
        parts = []
        for name, row_bytes in (("features.f32", 4 * num_columns), ("labels.i32", 4)):
            with (folder / name).open("rb") as file:
                file.seek(number * BLOCK_ROWS * row_bytes)
                parts.append(file.read(BLOCK_ROWS * row_bytes))
        return b"".join(parts)

    split = [digests[start : start + _DIGEST] for start in range(0, len(digests), _DIGEST)]
    return _Old(num_slots=num_slots, num_columns=num_columns, digests=split, block=block)


def _in_bucket(found: Found, bucket: ObjectStore, rows_id: str) -> _Old:
    read = json.loads(bucket.get(rows_id + _MANIFEST))
    digests = [bytes.fromhex(digest) for digest in read["digests"]]
    return _Old(
        num_slots=int(read["num_slots"]),
        num_columns=int(read["num_columns"]),
        digests=digests,
        block=lambda number: found.sealed.get(f"{rows_id}.{number:08}-{digests[number].hex()}"),
    )
