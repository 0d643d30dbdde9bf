"""Make a backup: what an installation is at one moment, in one sealed archive, while it runs.

An archive holds, in this order: what it is; the keys; the keys of what callers wrote; all tables; the rows of datasets;
a tally of all that. Never weights: those learn again, without the people forgotten since. Rows are read while nobody
edits them, from before the tables are read, so that what these name is there.
"""

import dataclasses
import datetime
import fcntl
import importlib.metadata
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from app.audit import service as audit
from app.backup import archive, coverage, dump, repository, verification
from app.db import migrate, now
from app.db.tables import new_id
from app.errors import BackupRefused
from app.installations import Installation
from app.keys import KeyEncryption, KeyEncryptionFile
from app.rows import damage, records
from app.rows import repository as rows_repository
from app.vault.files import sync_folder
from lethe.contract.problems import DatasetDamaged

FORMAT = 1
ABOUT, KEYS, VAULT, TABLES, ROWS, MANIFEST = "about", "keys", "vault", "tables", "rows", "manifest"
_ATTEMPTS = 5
Progress = Callable[[str, int, int | None], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """The backup that was made."""

    id: str
    created_at: datetime.datetime
    num_datasets: int
    num_bytes: int


class _Moved(Exception):
    """Rows were written between the look at the database and the look at them."""


def back_up(installation: Installation, path: Path, *, key_file: Path, progress: Progress) -> Backup:
    """Write an archive that opens with `key_file`, which is made if it is not there; whole, or not at all.

    Raises `BackupRefused`, `DatasetDamaged`, `TombstonesDamaged`: with those it could not be restored.
    """
    _require_free(path)
    verification.require_whole(installation, now=True)
    key = KeyEncryptionFile(key_file)
    key.create()
    partial = path.with_name(f".{path.name}.partial")
    with _alone(partial) as file:
        _require_free(path)  # another process may have written it meanwhile
        made = _written(installation, file, key, progress=progress)
        num_bytes = file.tell()
        partial.rename(path)
        sync_folder(path.parent)
    _record(installation, made)
    return dataclasses.replace(made, num_bytes=num_bytes)


def _require_free(path: Path) -> None:
    if path.exists():
        raise BackupRefused(f"{path} is there already; a backup replaces nothing.")


@contextmanager
def _alone(partial: Path) -> Iterator[IO[bytes]]:
    """A file to write, which is gone if the block raises; one that a crash left is written anew. It is sealed."""
    with open(os.open(partial, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_the_same = os.path.samestat(os.fstat(file.fileno()), os.stat(partial))
        except (BlockingIOError, FileNotFoundError):
            is_the_same = False
        if not is_the_same:  # else it may have become a whole backup since it was opened
            raise BackupRefused(f"Another process is writing {partial}.")
        try:
            yield file
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def _written(installation: Installation, file: IO[bytes], key: KeyEncryption, *, progress: Progress) -> Backup:
    for attempt in range(_ATTEMPTS):
        file.seek(0)
        file.truncate()
        try:
            made = _write(installation, archive.Writer(file, key), progress=progress)
        except _Moved:
            time.sleep(0.2 * 2**attempt)
            continue
        except DatasetDamaged as error:  # it stops the dataset, and the backup
            with installation.database.writing() as session:
                damage.record(session, error)
            raise
        file.flush()
        os.fsync(file.fileno())
        return made
    raise BackupRefused("Rows were added again and again meanwhile; try later.")


def _write(installation: Installation, writer: archive.Writer, *, progress: Progress) -> Backup:
    with installation.database.reading() as session:
        wanted = rows_repository.row_roots(session).keys()
    with _held(installation, wanted) as holds:
        with installation.database.reading() as session:
            roots, backup_id, created_at = rows_repository.row_roots(session), new_id("bak"), now(session)
            if roots.keys() - wanted:
                raise _Moved
            for dataset in repository.datasets(session):
                if error := records.first_damaged(session, dataset):
                    raise error
            about = {
                "format": FORMAT,
                "id": backup_id,
                "created_at": created_at.isoformat(),
                "version": importlib.metadata.version("lethe-server"),
                "schema": migrate.heads(),
                "tombstones": coverage.standing(session, installation).to_json(),
            }
            writer.write(ABOUT, json.dumps(about).encode())
            for name, content in _key_files(installation):
                writer.write(f"{KEYS}/{name}", content)
            for page, keys in installation.vault.pages():
                writer.write(f"{VAULT}/{page}", keys)
            for number, (name, table) in enumerate(dump.TABLES.items()):
                progress("tables", number, len(dump.TABLES))
                for piece in dump.pieces(session, table):
                    writer.write(f"{TABLES}/{name}", piece)
        for number, (rows_id, root) in enumerate(roots.items()):
            progress("rows", number, len(roots))
            for piece in _rows(installation, rows_id, root):
                writer.write(f"{ROWS}/{rows_id}", piece)
            holds[rows_id].close()
    writer.write(MANIFEST, json.dumps(writer.tallies()).encode())
    writer.close()
    progress("rows", len(roots), len(roots))
    return Backup(id=backup_id, created_at=created_at, num_datasets=len(roots), num_bytes=0)


class _Hold:
    """Rows that nobody edits until this is closed."""

    def __init__(self, installation: Installation, rows_id: str) -> None:
        self._stack = ExitStack()
        self._stack.enter_context(installation.rows.alone(rows_id))

    def close(self) -> None:
        self._stack.close()


@contextmanager
def _held(installation: Installation, wanted: Iterable[str]) -> Iterator[dict[str, _Hold]]:
    holds: dict[str, _Hold] = {}
    try:
        for rows_id in sorted(wanted):
            holds[rows_id] = _Hold(installation, rows_id)
        yield holds
    finally:
        for hold in holds.values():
            hold.close()


def _rows(installation: Installation, rows_id: str, root: str) -> Iterator[bytes]:
    """The shape, then the blocks. Raises `DatasetDamaged`."""
    shape = installation.rows.shape(rows_id, root)
    yield json.dumps(asdict(shape)).encode()
    for block in installation.rows.read(rows_id, root):
        yield block.content()


def _key_files(installation: Installation) -> Iterator[tuple[str, bytes]]:
    """All but what wraps keys: under another one everything is wrapped anew."""
    folder, wraps = installation.settings.data_dir / "keys", installation.settings.resolved_key_encryption_key_file()
    without = {wraps.resolve(), wraps.with_name(f"{wraps.name}.next").resolve()}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith(".") and path.resolve() not in without:
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def _record(installation: Installation, made: Backup) -> None:
    with installation.database.writing() as session:
        deeds = [
            audit.Deed(
                tenant_id=tenant_id, actor=audit.SERVICE, action=repository.BACKED_UP, object_id=made.id, detail={}
            )
            for tenant_id in repository.tenant_ids(session)
        ]
        audit.record_all(session, deeds)
