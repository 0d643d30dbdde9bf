"""Back up a running installation as of one moment into one sealed archive.

An archive holds, in this order: a statement about itself, key files, the vault's keys, all tables, the rows of
datasets, and a tally of all these. Weights are never in it: models learn again, without the people forgotten since.
Rows are locked against edits from before the tables are read until they are read themselves, so that all rows that
tables name are there.
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
from app.db import migrate, now
from app.db.tables import new_id
from app.errors import BackupRefused
from app.features.archives import archive, coverage, dump, repository
from app.installations import Installation
from app.journal import verification
from app.journal.repository import BACKED_UP
from app.keys import KeyEncryption, KeyEncryptionFile
from app.rows import records
from app.rows import repository as rows_repository
from app.vault.store import sync_folder
from lethe.contract.problems import DatasetDamaged

FORMAT = 1
ABOUT, KEYS, VAULT, TABLES, ROWS, MANIFEST = "about", "keys", "vault", "tables", "rows", "manifest"
_ATTEMPTS = 5
Progress = Callable[[str, int, int | None], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """Backup that was written."""

    id: str
    created_at: datetime.datetime
    num_datasets: int
    num_bytes: int


class _RowsAdded(Exception):
    """Rows were added between the two reads of the database, and are not locked."""


def back_up(installation: Installation, path: Path, *, key_file: Path, progress: Progress) -> Backup:
    """Write an archive that opens with `key_file`, which is created if it is missing. A failure leaves no archive.

    Raises `BackupRefused`, and `DatasetDamaged` or `TombstonesDamaged`, with which the backup could not be restored.
    """
    _require_free(path)
    verification.require_whole(installation, now=True)
    key = KeyEncryptionFile(key_file)
    key.create()
    partial = path.with_name(f".{path.name}.partial")
    with _exclusively(partial) as file:
        # Another process may have written it meanwhile.
        _require_free(path)
        backup = _write_or_retry(installation, file, key, progress=progress)
        num_bytes = file.tell()
        partial.rename(path)
        sync_folder(path.parent)
    _record(installation, backup)
    return dataclasses.replace(backup, num_bytes=num_bytes)


def _require_free(path: Path) -> None:
    if path.exists():
        raise BackupRefused(f"{path} is there already; a backup replaces nothing.")


@contextmanager
def _exclusively(partial: Path) -> Iterator[IO[bytes]]:
    """Open and lock a file for writing, which is deleted if the block raises. A file left by a crash is overwritten."""
    with open(os.open(partial, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_the_same = os.path.samestat(os.fstat(file.fileno()), os.stat(partial))
        except (BlockingIOError, FileNotFoundError):
            is_the_same = False
        # Another process may have renamed it to a whole backup since it was opened.
        if not is_the_same:
            raise BackupRefused(f"Another process is writing {partial}.")
        try:
            yield file
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def _write_or_retry(installation: Installation, file: IO[bytes], key: KeyEncryption, *, progress: Progress) -> Backup:
    for attempt in range(_ATTEMPTS):
        file.seek(0)
        file.truncate()
        try:
            backup = _write(installation, archive.Writer(file, key), progress=progress)
        except _RowsAdded:
            time.sleep(0.2 * 2**attempt)
            continue
        except DatasetDamaged as error:
            with installation.database.writing() as session:
                records.record(session, error)
            raise
        file.flush()
        os.fsync(file.fileno())
        return backup
    raise BackupRefused("Rows were added again and again meanwhile; try later.")


def _write(installation: Installation, writer: archive.Writer, *, progress: Progress) -> Backup:
    with installation.database.reading() as session:
        wanted = rows_repository.row_roots(session).keys()
    with _locked(installation, wanted) as locks:
        with installation.database.reading() as session:
            roots, backup_id, created_at = rows_repository.row_roots(session), new_id("bak"), now(session)
            if roots.keys() - wanted:
                raise _RowsAdded
            for dataset in repository.datasets(session):
                if error := records.first_damaged(session, dataset):
                    raise error
            about = {
                "format": FORMAT,
                "id": backup_id,
                "created_at": created_at.isoformat(),
                "version": importlib.metadata.version("lethe-server"),
                "schema": migrate.heads(),
                "tombstones": asdict(coverage.current_position(session, installation)),
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
            locks[rows_id].close()
    writer.write(MANIFEST, json.dumps(writer.tallies()).encode())
    writer.close()
    progress("rows", len(roots), len(roots))
    return Backup(id=backup_id, created_at=created_at, num_datasets=len(roots), num_bytes=0)


@contextmanager
def _locked(installation: Installation, rows_ids: Iterable[str]) -> Iterator[dict[str, ExitStack]]:
    """Lock rows against edits, each until its lock is closed or the block ends."""
    with ExitStack() as stack:
        locks = {rows_id: stack.enter_context(ExitStack()) for rows_id in sorted(rows_ids)}
        for rows_id, lock in locks.items():
            lock.enter_context(installation.rows.alone(rows_id))
        yield locks


def _rows(installation: Installation, rows_id: str, root: str) -> Iterator[bytes]:
    """Yield the shape of the rows, then their blocks. Raises `DatasetDamaged`."""
    shape = installation.rows.shape(rows_id, root)
    yield json.dumps(asdict(shape)).encode()
    for block in installation.rows.read(rows_id, root):
        yield block.content()


def _key_files(installation: Installation) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each key file but the key encryption key, which a restore replaces."""
    folder, wrapping = installation.settings.data_dir / "keys", installation.settings.resolved_key_encryption_key_file()
    without = {wrapping.resolve(), wrapping.with_name(f"{wrapping.name}.next").resolve()}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith(".") and path.resolve() not in without:
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def _record(installation: Installation, backup: Backup) -> None:
    with installation.database.writing() as session:
        deeds = [
            audit.Deed(tenant_id=tenant_id, actor=audit.SERVICE, action=BACKED_UP, object_id=backup.id, detail={})
            for tenant_id in repository.tenant_ids(session)
        ]
        audit.record_all(session, deeds)
