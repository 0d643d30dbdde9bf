"""Back up a running installation, as of a single moment, into one sealed archive.

An archive contains, in this order: a description of itself, key files, the vault's keys, all tables, the datasets'
rows, and a tally of all of these. It never contains weights: models are retrained without the people forgotten since.
Rows are locked against edits from before the tables are read until all rows have been read, so that the archive
contains every row that the tables name.

Tombstones are at least as recent as a backup if they reach the position that the archive records. Tombstones that end
earlier were copied too soon: they lack people who have asked to be forgotten since.
"""

import contextlib
import dataclasses
import datetime
import fcntl
import importlib.metadata
import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import errors, installations
from app.audit import service as audit
from app.db import migrate, now
from app.db.tables import (
    Addition,
    Dataset,
    DeletionRequest,
    Erasure,
    Model,
    Record,
    RequestEvent,
    Tenant,
    Version,
    new_id,
)
from app.deletion.status import OPEN
from app.features.archives import archive
from app.journal import repository, tombstones, verification
from app.journal.journal import GENESIS, Extent, Journal, JournalLine
from app.keys import KeyEncryption, KeyEncryptionFile
from app.rows import records, repository as rows_repository
from app.unlearning import repository as unlearning_repository, service as unlearning
from app.vault.store import sync_folder
from lethe import sockets
from lethe.contract import problems, sets

FORMAT = 1
ABOUT, KEYS, VAULT, TABLES, ROWS, MANIFEST = "about", "keys", "vault", "tables", "rows", "manifest"
_ATTEMPTS = 5
Progress = Callable[[str, int, int | None], object]


def rows_of_retired(session: Session) -> set[str]:
    """Return the ids of stored row sets that belong to retired datasets and must no longer exist."""
    retired = sa.select(Dataset.id).where(Dataset.retired_at.is_not(None))
    batches = session.scalars(sa.select(Addition.id).where(Addition.dataset_id.in_(retired)))
    return set(session.scalars(retired)) | set(batches)


def add_lost(
    session: Session, *, version_id: str, model_id: str, dataset_id: str, mechanism: dict[str, Any], steps: int
) -> None:
    """Count a version that is missing from this database as lost: for its model or, if the model is missing too, for
    its dataset."""
    if session.get(Version, version_id) is not None:
        return
    model, dataset = session.get(Model, model_id), session.get(Dataset, dataset_id)
    if model is not None:
        model.lost_releases = [*model.lost_releases, steps]
    elif dataset is not None:
        before = dataset.lost_models.get(model_id, {"mechanism": mechanism, "steps": []})
        dataset.lost_models = dataset.lost_models | {model_id: before | {"steps": [*before["steps"], steps]}}


def add_lost_to_all(session: Session, *, steps: int, count: int) -> None:
    """Count `count` versions of every model as lost, each made by a run of `steps` steps."""
    for model in session.scalars(sa.select(Model)):
        model.lost_releases = [*model.lost_releases, *[steps] * count]


def datasets(session: Session) -> list[Dataset]:
    return list(session.scalars(sa.select(Dataset).order_by(Dataset.id)))


def claimed_positions(session: Session, rows_id: str) -> list[int]:
    """Return the positions of a dataset's or batch's rows that are claimed for erasure."""
    if session.get(Dataset, rows_id) is not None:
        query = sa.select(Record.slot).where(Record.dataset_id == rows_id, Record.erasure_id.is_not(None))
        return list(session.scalars(query.order_by(Record.slot)))
    of_batch = sa.select(Record.erasure_id).where(Record.addition_id == rows_id).order_by(Record.slot)
    return [position for position, erasure_id in enumerate(session.scalars(of_batch)) if erasure_id is not None]


def ended_requests(session: Session, request_ids: Collection[str]) -> set[str]:
    """Return those of `request_ids` whose requests have ended in this database."""
    ended = DeletionRequest.status.not_in(OPEN)
    return set(session.scalars(sa.select(DeletionRequest.id).where(DeletionRequest.id.in_(request_ids), ended)))


def lose_weights(session: Session, *, at: datetime.datetime) -> int:
    """Mark all weights as destroyed, schedule each model with a live version for retraining, and count these models."""
    stored = Version.status.in_((sets.VersionStatus.LIVE, sets.VersionStatus.RETIRED))
    session.execute(sa.update(Version).where(stored).values(status=sets.VersionStatus.DESTROYED, destroyed_at=at))
    models = list(session.scalars(sa.select(Model).where(Model.live_version.is_not(None))))
    for model in models:
        model.wanted, model.status = sets.RunKind.RELEARN, sets.ModelStatus.LIVE
        model.attempts, model.deaths, model.not_before, model.error_code = 0, 0, None, None
    return len(models)


def tenant_ids(session: Session) -> list[str]:
    return list(session.scalars(sa.select(Tenant.id).order_by(Tenant.id)))


def last_telling_event(session: Session) -> tuple[int, str] | None:
    """Return the number and request id of the last event of a kind that tombstones record; None if there is none."""
    query = (
        sa.select(RequestEvent.id, RequestEvent.request_id).where(repository.TELLING).order_by(RequestEvent.id.desc())
    )
    event = session.execute(query.limit(1)).one_or_none()
    return (event[0], event[1]) if event else None


def end_restored(session: Session) -> None:
    """End a restored database's logins, invitations and artefacts, because they may have ended since the backup."""
    for end in sockets.plugs("app.features", "hooks", "RESTORED"):
        end(session)


def people_by_role(session: Session) -> dict[str, int]:
    """Return the number of people in each role, across all tenants, who can log in."""
    counts: dict[str, int] = {}
    for count in sockets.plugs("app.features", "hooks", "PEOPLE_BY_ROLE"):
        counts |= count(session)
    return counts


def set_root(session: Session, rows_id: str, root: str) -> None:
    """Record the root of rows rewritten with the same content, and clear any damage except damage to a record."""
    dataset = rows_repository.dataset_of_rows(session, rows_id)
    assert dataset is not None
    if dataset.damage and dataset.damage["rows"] == rows_id and dataset.damage["kind"] != sets.DamageKind.RECORD:
        dataset.damaged_at, dataset.damage = None, None
    if dataset.id == rows_id:
        dataset.digest = root
    else:
        session.get_one(Addition, rows_id).digest = root


def take_back_all(session: Session) -> int:
    """Hand back all runs of a restored database, because no workers are left to continue them. Return their number."""
    runs = unlearning_repository.running_runs(session)
    for run in runs:
        unlearning.abandon(session, run, error_code="restored")
    return len(runs)


def drop_unclaimed(session: Session, *, dataset_id: str) -> None:
    """Delete a dataset's unclaimed erasures."""
    unclaimed = sa.and_(Erasure.dataset_id == dataset_id, Erasure.revision.is_(None))
    session.execute(sa.delete(Erasure).where(unclaimed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """Result of a finished backup."""

    id: str
    created_at: datetime.datetime
    num_datasets: int
    num_bytes: int


class _RowsAdded(Exception):
    """Error for rows that were added between the two reads of the database and are not locked."""


def back_up(installation: installations.Installation, path: Path, *, key_file: Path, progress: Progress) -> Backup:
    """Write an archive that opens with `key_file`, which is created if missing. A failed backup leaves no archive.

    Raises `BackupRefused`, and `DatasetDamaged` or `TombstonesDamaged` if the backup could not be restored.
    """
    _require_free(path)
    verification.require_whole(installation, now=True)
    key = KeyEncryptionFile(key_file)
    key.create()
    partial = path.with_name(f".{path.name}.partial")
    with _exclusively(partial) as file:
        # Another process may have written the archive meanwhile.
        _require_free(path)
        backup = _write_or_retry(installation, file, key, progress=progress)
        num_bytes = file.tell()
        partial.rename(path)
        sync_folder(path.parent)
    _record(installation, backup)
    return dataclasses.replace(backup, num_bytes=num_bytes)


def _require_free(path: Path) -> None:
    if path.exists():
        raise errors.BackupRefused(f"{path} is there already; a backup replaces nothing.")


@contextmanager
def _exclusively(partial: Path) -> Iterator[IO[bytes]]:
    """Open and lock a file for writing, and delete it if the block raises. A crashed backup's file is overwritten."""
    with open(os.open(partial, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_the_same = os.path.samestat(os.fstat(file.fileno()), os.stat(partial))
        except (BlockingIOError, FileNotFoundError):
            is_the_same = False
        # Another process may have completed and renamed it since it was opened.
        if not is_the_same:
            raise errors.BackupRefused(f"Another process is writing {partial}.")
        try:
            yield file
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def _write_or_retry(
    installation: installations.Installation, file: IO[bytes], key: KeyEncryption, *, progress: Progress
) -> Backup:
    for attempt in range(_ATTEMPTS):
        file.seek(0)
        file.truncate()
        try:
            backup = _write(installation, archive.Writer(file, key), progress=progress)
        except _RowsAdded:
            time.sleep(0.2 * 2**attempt)
            continue
        except problems.DatasetDamaged as error:
            with installation.database.writing() as session:
                records.record(session, error)
            raise
        file.flush()
        os.fsync(file.fileno())
        return backup
    raise errors.BackupRefused("Rows were added again and again meanwhile; try later.")


def _write(installation: installations.Installation, writer: archive.Writer, *, progress: Progress) -> Backup:
    with installation.database.reading() as session:
        wanted = rows_repository.row_roots(session).keys()
    with _locked(installation, wanted) as locks:
        with installation.database.reading() as session:
            roots, backup_id, created_at = rows_repository.row_roots(session), new_id("bak"), now(session)
            if roots.keys() - wanted:
                raise _RowsAdded
            for dataset in datasets(session):
                if error := records.first_damaged(session, dataset):
                    raise error
            about = {
                "format": FORMAT,
                "id": backup_id,
                "created_at": created_at.isoformat(),
                "version": importlib.metadata.version("lethe-server"),
                "schema": migrate.heads(),
                "tombstones": asdict(current_position(session, installation)),
            }
            writer.write(ABOUT, json.dumps(about).encode())
            for name, content in _key_files(installation):
                writer.write(f"{KEYS}/{name}", content)
            for page, keys in installation.vault.pages():
                writer.write(f"{VAULT}/{page}", keys)
            for number, (name, table) in enumerate(archive.TABLES.items()):
                progress("tables", number, len(archive.TABLES))
                for piece in archive.pieces(session, table):
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
def _locked(installation: installations.Installation, rows_ids: Iterable[str]) -> Iterator[dict[str, ExitStack]]:
    """Lock each set of rows against edits until its lock is closed or the block ends."""
    with ExitStack() as stack:
        locks = {rows_id: stack.enter_context(ExitStack()) for rows_id in sorted(rows_ids)}
        for rows_id, lock in locks.items():
            lock.enter_context(installation.rows.alone(rows_id))
        yield locks


def _rows(installation: installations.Installation, rows_id: str, root: str) -> Iterator[bytes]:
    """Yield the rows' shape as JSON, then their blocks. Raises `DatasetDamaged`."""
    shape = installation.rows.shape(rows_id, root)
    yield json.dumps(asdict(shape)).encode()
    for block in installation.rows.read(rows_id, root):
        yield block.content()


def _key_files(installation: installations.Installation) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each key file except the key encryption key, which a restore replaces."""
    folder, wrapping = installation.settings.data_dir / "keys", installation.settings.resolved_key_encryption_key_file()
    without = {wrapping.resolve(), wrapping.with_name(f"{wrapping.name}.next").resolve()}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith(".") and path.resolve() not in without:
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def _record(installation: installations.Installation, backup: Backup) -> None:
    with installation.database.writing() as session:
        deeds = [
            audit.Deed(
                tenant_id=tenant_id, actor=audit.SERVICE, action=repository.BACKED_UP, object_id=backup.id, detail={}
            )
            for tenant_id in tenant_ids(session)
        ]
        audit.record_all(session, deeds)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalPosition:
    """Position in the tombstones: the `file`, its number of `lines`, the last line's `hash` and time `ended_at`, and
    the `number` and request (`of`) of the last event in the archive's database of a kind that tombstones record.

    The event identifies the position in another host's file, or in a file that was rewritten after a loss.
    """

    file: str | None
    lines: int
    hash: str
    ended_at: str | None
    number: int
    of: str | None


def current_position(session: Session, installation: installations.Installation) -> JournalPosition:
    """Bring the tombstones up to date with the session's database, and return the position of their last line.

    Raises `TombstonesDamaged`, and `BackupRefused` if the file cannot be written.
    """
    number, of = last_telling_event(session) or (0, None)
    try:
        # A database that was put back can still be backed up and then restored properly.
        with contextlib.suppress(problems.DatabasePutBack):
            tombstones.record(installation)
    except OSError as error:
        place = installation.settings.resolved_tombstones()
        raise errors.BackupRefused(
            f"The tombstones at {place} cannot be written ({type(error).__name__}); "
            "without them nobody could restore the backup."
        ) from error
    ends = tombstones.journal(installation).ends()
    if ends is None:
        return JournalPosition(file=None, lines=0, hash=GENESIS, ended_at=None, number=number, of=of)
    first, last, extent = ends
    ended_at = last.at.isoformat()
    return JournalPosition(
        file=first.file, lines=extent.lines, hash=extent.hash, ended_at=ended_at, number=number, of=of
    )


def require(journal: Journal, position: JournalPosition, *, made_at: datetime.datetime) -> None:
    """Raise `TombstonesStale` unless the tombstones reach the position at which the backup was made."""
    first: JournalLine | None = None
    last, extent = None, Extent(lines=0, bytes=0, hash=GENESIS)
    is_covered = position.lines == 0
    for last, extent in journal.entries():
        first = first or last
        is_covered = is_covered or _covers(first, last, extent, position, made_at=made_at)
    if is_covered:
        return
    if first is None or last is None:
        raise errors.TombstonesStale(f"{journal.path} is empty; {_should_have(position)}")
    if first.file != position.file:
        lacks = f"It lacks all since {last.at:%F %T} UTC, among them event {position.number} of the backup."
    elif extent.lines < position.lines:
        lacks = f"It lacks {position.lines - extent.lines} of them, all since {last.at:%F %T} UTC."
    else:
        lacks = "Its entries are others than those: it went another way since."
    raise errors.TombstonesStale(f"{journal.path} has {extent.lines} entries; {_should_have(position)} {lacks}")


def _should_have(position: JournalPosition) -> str:
    return (
        f"when the backup was made there were {position.lines}, up to {position.ended_at}. Whoever asked to be "
        "forgotten since would be back. Nothing was restored; find the newest copy of the tombstones."
    )


def _covers(
    first: JournalLine, line: JournalLine, extent: Extent, position: JournalPosition, *, made_at: datetime.datetime
) -> bool:
    """Return True if `line` shows that the tombstones file beginning with `first` reaches the position."""
    if first.file is not None and first.file == position.file:
        was_dropped = line.kind == "dropped" and line.count is not None and line.count > position.lines
        return was_dropped or (extent.lines, extent.hash) == (position.lines, position.hash)
    begun_at = first.at if first.kind == "begun" else first.begun
    # A file begun after the backup was written from a database that knew everything in the backup.
    if begun_at is not None and begun_at >= made_at:
        return True
    was_dropped = line.kind == "dropped" and line.count is not None and line.number > position.number
    has_event = position.number == 0 or (line.number, line.of) == (position.number, position.of)
    return was_dropped or has_event or (extent.lines, extent.hash) == (position.lines, position.hash)
