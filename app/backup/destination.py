"""The destination of a restore: empty, but for what a restore left that was cut off."""

import shutil
from pathlib import Path

import sqlalchemy as sa

from app import folders, installations
from app.backup import dump, verification
from app.backup.archive import Piece
from app.config import Settings
from app.db import Database, migrate
from app.errors import BackupRefused, DatabaseUnreadable
from app.vault.files import created, sync_folder, wipe_file


def check(settings: Settings, remembered_in: Path | None) -> None:
    """Require that nothing is overwritten, and nobody overlooked, but for what a restore left that was cut off."""
    own = settings.resolved_tombstones()
    if remembered_in is not None and not remembered_in.exists():
        raise BackupRefused(f"There are no tombstones at {remembered_in}.")
    if own.exists() and (remembered_in is None or not own.samefile(remembered_in)):
        raise BackupRefused(f"There are tombstones at {own}: restore with those, or move them away.")
    if installations.unfinished(settings).exists():
        return
    ours = {path.resolve() for path in (own, *verification.files(settings))}
    folders = {settings.data_dir} if settings.in_bucket else {settings.data_dir, settings.store_folder()}
    for folder in folders:
        if any(path.resolve() not in ours and not _is_empty_folder(path) for path in _entries(folder)):
            raise BackupRefused(f"{folder} is not empty: a backup is restored where nothing is.")
    if _tables(settings):
        raise BackupRefused("The database is not empty: a backup is restored where nothing is.")


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.exists() else []


def _is_empty_folder(path: Path) -> bool:
    """As a volume is that is mounted in a data folder."""
    return path.is_dir() and not any(path.iterdir())


def _tables(settings: Settings) -> list[str]:
    """The tables of the database that the settings name: those of them that are ours."""
    url = settings.resolved_database_url()
    if url == Settings(data_dir=settings.data_dir).resolved_database_url() and not settings.data_dir.exists():
        return []  # it is in there
    database = Database(url)
    try:
        there = set(sa.inspect(database.engine).get_table_names())
    except sa.exc.OperationalError as error:
        raise DatabaseUnreadable(f"{error.orig}; is LETHE_DATABASE_URL right?") from error
    finally:
        database.close()
    return sorted(there & dump.TABLES.keys())


def claim(settings: Settings) -> None:
    """From here on nobody may serve; what an earlier try left goes."""
    folders.make(settings.data_dir)
    begun, own = installations.unfinished(settings), settings.resolved_tombstones()
    if not begun.exists():
        with created(begun):
            pass
        sync_folder(settings.data_dir)
        return
    if _tables(settings):
        database = Database(settings.resolved_database_url())
        try:
            migrate.downgrade(database.engine)
        finally:
            database.close()
    for path in _entries(settings.data_dir):
        if path == begun or path.resolve() == own.resolve():
            continue
        for file in [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]:
            wipe_file(file)
        shutil.rmtree(path, ignore_errors=True)


def write_key(folder: Path, piece: Piece) -> None:
    path = folder.joinpath(*piece.thing.split("/")[1:])
    folders.make(path.parent)
    with created(path) as file:
        file.write(piece.content)
    sync_folder(path.parent)


def bring(journal: Path, own: Path) -> None:
    """Copy the tombstones to where the installation keeps its own."""
    if own.exists():  # the same
        return
    copied = own.with_name(f".{own.name}.next")
    copied.unlink(missing_ok=True)
    with created(copied) as file, journal.open("rb") as source:
        shutil.copyfileobj(source, file)
    copied.rename(own)
    sync_folder(own.parent)
