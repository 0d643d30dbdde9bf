"""Restore a backup into an empty installation, and erase the rows of everyone who has asked to be forgotten since.

The tombstones identify these people. Their requests are reopened, their rows are claimed immediately, and null rows are
written to disk instead. Weights are not backed up, so models are retrained. While a restore is running or has been
interrupted, a file in the data folder prevents serving. An interrupted restore can be run again.
"""

import dataclasses
import datetime
import itertools
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import config, errors, folders, installations, key_checks
from app.accounting import ledger
from app.audit import checkpoints, repository as audit_repository, service as audit
from app.catalogue import additions
from app.db import Database, bulk, migrate, now
from app.db.tables import Checkpoint, RequestEvent
from app.deletion import claims, repository as deletion_repository
from app.deletion.remembered import Remembered
from app.features.archives import archive, catching_up, service
from app.journal import tombstones, verification
from app.journal.journal import HeadSignature, Journal, JournalLine
from app.keys import KeyEncryptionFile, mac
from app.rows import blocks, repository as rows_repository
from app.vault.store import created, sync_folder, wipe_file

_ALL = 2**31 - 1
_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """An archive's description of itself: when and from what it was made."""

    id: str
    created_at: datetime.datetime
    tombstones: service.JournalPosition


class _Pieces:
    """Pieces of an archive, read one kind after another in a fixed order."""

    def __init__(self, reader: archive.Reader) -> None:
        self._pieces = iter(reader)
        self._next = next(self._pieces, None)

    def of(self, kind: str) -> Iterator[archive.Piece]:
        """Yield all pieces of one kind, which must be the next kind in the archive."""
        while self._next is not None and self._next.thing.partition("/")[0] == kind:
            yield self._next
            self._next = next(self._pieces, None)

    def one(self, kind: str) -> archive.Piece:
        """Return the only piece of a kind. Raises `BackupDamaged` unless there is exactly one."""
        pieces = list(self.of(kind))
        if len(pieces) != 1:
            raise errors.BackupDamaged("The archive does not hold what a backup holds.")
        return pieces[0]


def _about_of(piece: archive.Piece) -> About:
    document = json.loads(piece.content)
    if (document["format"], document["schema"]) != (service.FORMAT, migrate.heads()):
        raise errors.BackupRefused(
            f"The backup was made by Lethe {document['version']}; restore it with that, then upgrade."
        )
    return About(
        id=document["id"],
        created_at=datetime.datetime.fromisoformat(document["created_at"]),
        tombstones=service.JournalPosition(**document["tombstones"]),
    )


def _last_name(piece: archive.Piece) -> str:
    return piece.thing.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Result of a restore. `num_models`: number of models to retrain. `people`: number of people in each role who can
    log in. `remembered`: True if there were tombstones."""

    about: About
    requests: catching_up.Again
    num_models: int
    num_datasets: int
    people: dict[str, int]
    remembered: bool


def restore(
    settings: config.Settings,
    path: Path,
    *,
    key_file: Path,
    remembered_in: Path | None,
    lost_versions: int = 0,
    progress: service.Progress,
) -> Restored:
    """Restore the archive at `path`.

    `remembered_in` is the tombstone file; without it, people who asked to be forgotten since the backup stay in the
    data. `lost_versions` is the maximum number of versions that any one model has published since the backup without a
    record in the tombstones. Raises `BackupRefused`, `TombstonesDamaged` and `TombstonesStale` before any change.
    `BackupDamaged` may be raised after changes; serving then remains blocked.
    """
    if not key_file.exists():
        raise errors.BackupRefused(f"There is no key file {key_file}, without which the backup cannot be opened.")
    with path.open("rb") as file:
        reader = archive.Reader(file, KeyEncryptionFile(key_file))
        pieces = _Pieces(reader)
        about = _about_of(pieces.one(service.ABOUT))
        _require_free(settings, remembered_in)
        keys = list(pieces.of(service.KEYS))
        journal = _journal(remembered_in, keys, about)
        _claim(settings)
        for piece in keys:
            _write_key(settings.data_dir / "keys", piece)
        installations.set_up_stores(settings)
        with installations.opened(settings, unfinished=True) as installation:
            migrate.upgrade(installation.database.engine)
            for piece in pieces.of(service.VAULT):
                installation.vault.put_page(_last_name(piece), piece.content)
            _load(installation, pieces, progress=progress)
            identity = _check_keys(installation)
            requests, num_models = _forget(installation, journal, lost_versions=lost_versions)
            num_datasets = _write_rows(installation, pieces, progress=progress)
            with installation.database.reading() as session:
                people = service.people_by_role(session)
            # The manifest is not part of its own tallies.
            tallies = reader.tallies()
            if json.loads(pieces.one(service.MANIFEST).content) != tallies:
                raise errors.BackupDamaged("The archive lacks something that was written into it.")
            restored = Restored(
                about=about,
                requests=requests,
                num_models=num_models,
                num_datasets=num_datasets,
                people=people,
                remembered=journal is not None,
            )
            for place in installations.places(settings):
                place.mark(identity.id)
            _finish(installation, restored, journal)
    return restored


@dataclass(frozen=True, slots=True, kw_only=True)
class _SubjectKey:
    """Text of a `subject.key` file that is not on disk yet. It computes the same fingerprints as `Keys`."""

    text: str

    def fingerprint(self, *parts: bytes) -> str:
        return mac(bytes.fromhex(self.text), *parts).hex()


def _journal(remembered_in: Path | None, keys: list[archive.Piece], about: About) -> Journal | None:
    """Open the tombstones, which must reach back to the backup and not be older. Return None if no file is given.

    The key for the tombstones' references to people comes from the archive, because nothing is on disk yet.
    """
    if remembered_in is None:
        return None
    texts = [piece.content.decode().strip() for piece in keys if piece.thing == f"{service.KEYS}/subject.key"]
    if len(texts) != 1:
        raise errors.BackupDamaged("The archive does not hold what a backup holds.")
    journal = Journal(remembered_in, _SubjectKey(text=texts[0]))
    service.require(journal, about.tombstones, made_at=about.created_at)
    for line in journal.lines():
        if line.kind == "dropped" and line.at > about.created_at:
            raise errors.BackupRefused(
                f"The tombstones remember nothing before {line.at:%F %T}; the backup is older than that."
            )
    return journal


def _remembered(session: Session, journal: Journal) -> list[Remembered]:
    """Return the last recorded state of each request that is missing or open in the database.

    All lines of the journal are read, even those from before the backup, because the database in the archive may itself
    have been restored before the backup was made.
    """
    by_id: dict[str, Remembered] = {}
    requests = (line.request for line in journal.lines() if line.request is not None)
    while batch := list(itertools.islice(requests, _AT_ONCE)):
        ended = service.ended_requests(session, {request.id for request in batch})
        by_id |= {request.id: request for request in batch if request.id not in ended}
    return list(by_id.values())


def _load(installation: installations.Installation, pieces: _Pieces, *, progress: service.Progress) -> None:
    with installation.database.writing() as session:
        tables = itertools.groupby(pieces.of(service.TABLES), key=_last_name)
        for number, (name, table_pieces) in enumerate(tables):
            progress("tables", number, len(archive.TABLES))
            for piece in table_pieces:
                archive.load(session, archive.TABLES[name], piece.content)
        bulk.count_on(session)


def _check_keys(installation: installations.Installation) -> key_checks.DatabaseIdentity:
    """Return the restored database's identity, and accept the new key encryption key.

    Raises `BackupDamaged` if the archive's keys do not belong to its database, and `BackupRefused` if the storage for
    rows and weights belongs to another installation.
    """
    identity = key_checks.of_database(installation.database)
    if identity is None or key_checks.wrong_key(installation.keys, identity):
        raise errors.BackupDamaged("The keys in the archive are not those of its database.")
    for place in installations.places(installation.settings):
        if place.owner() not in (None, identity.id):
            raise errors.BackupRefused(f"{place.name} belongs to another installation than the backup.")
    key_encryption = installations.key_encryption_of(installation.settings)
    key_checks.accept(installation.database, key_encryption.check_values(identity.id))
    return identity


def _forget(
    installation: installations.Installation, journal: Journal | None, *, lost_versions: int
) -> tuple[catching_up.Again, int]:
    """Void runs and weights, restore the recorded state of requests, and claim the rows of everyone to be forgotten.

    Releases since the backup are counted as lost. No run begins before the claimed rows are null. Returns the counts of
    recreated and updated requests, and the number of models to retrain.
    """
    with installation.database.writing() as session:
        releases = (line.release for line in journal.lines() if line.release) if journal else ()
        # Most releases are recorded in two lines each.
        for release in {release.version_id: release for release in releases}.values():
            service.add_lost(session, **dataclasses.asdict(release))
        service.add_lost_to_all(session, steps=installation.settings.max_steps, count=lost_versions)
        service.take_back_all(session)
        num_models = service.lose_weights(session, at=now(session))
        service.end_restored(session)
        requests = catching_up.catch_up(session, _remembered(session, journal) if journal else [])
        for dataset in service.datasets(session):
            if deletion_repository.pending_erasures(session, dataset_id=dataset.id, limit=1):
                additions.take(session, dataset=dataset)
                claims.claim_erasures(session, dataset=dataset, limit=_ALL)
        for retired_id in (line.retired for line in journal.lines() if line.retired) if journal else ():
            catching_up.retire_again(session, retired_id)
    return requests, num_models


def _write_rows(installation: installations.Installation, pieces: _Pieces, *, progress: service.Progress) -> int:
    """Write all datasets' rows, with zeros in claimed slots, and return the number of datasets."""
    with installation.database.reading() as session:
        stored = rows_repository.row_roots(session)
        retired = service.rows_of_retired(session)
    total = len(stored)
    for number, (rows_id, parts) in enumerate(itertools.groupby(pieces.of(service.ROWS), key=_last_name)):
        progress("rows", number, total)
        if stored.pop(rows_id, None) is None:
            if rows_id in retired:
                continue
            raise errors.BackupDamaged("The archive holds rows of which its tables do not tell.")
        with installation.database.reading() as session:
            positions = service.claimed_positions(session, rows_id)
        root = _write(installation, rows_id, parts, np.array(positions, dtype=np.int64))
        with installation.database.writing() as session:
            service.set_root(session, rows_id, root)
    if stored:
        raise errors.BackupDamaged("The archive lacks rows of which its tables tell.")
    return total


def _write(
    installation: installations.Installation,
    rows_id: str,
    parts: Iterator[archive.Piece],
    claimed: npt.NDArray[np.int64],
) -> str:
    """Write one dataset's rows, with null rows in the `claimed` slots, and return the rows' root."""
    try:
        shape = blocks.Shape(**json.loads(next(parts).content))
    except (TypeError, ValueError) as error:
        raise errors.BackupDamaged("The archive does not state the shape of rows as this release does.") from error
    # An interrupted restore may have left rows.
    installation.rows.delete(rows_id)
    with installation.rows.writing(rows_id, shape.num_columns) as writer:
        for block, piece in enumerate(parts):
            num_rows = shape.rows_in(block)
            if len(piece.content) != num_rows * shape.row_bytes:
                raise errors.BackupDamaged("The archive holds rows that are not of the shape that it states.")
            stored_rows = blocks.mapped(piece.content, num_rows, shape.num_columns, shape.has_weights)
            features, labels = stored_rows[0].copy(), stored_rows[1].copy()
            positions = claimed[claimed // blocks.BLOCK_ROWS == block] % blocks.BLOCK_ROWS
            features[positions], labels[positions] = 0, 0
            writer.write(features, labels)
        if writer.num_slots != shape.num_slots:
            raise errors.BackupDamaged("The archive holds fewer rows than it states.")
    return writer.root


def _finish(installation: installations.Installation, restored: Restored, journal: Journal | None) -> None:
    """Record the restore in every tenant's chains, sign the chains, continue the tombstones, and allow serving."""
    heads = {(head.tenant_id, head.log): head for head in journal.heads()} if journal else {}
    with installation.database.writing() as session:
        last = _last_checkpoint(session)
        signed = last.number if last else 0
        for tenant_id in service.tenant_ids(session):
            lost = {
                chain.name: _lost(session, chain, heads.get((tenant_id, chain.name))) for chain in checkpoints.CHAINS
            }
            _record(session, installation, restored, tenant_id, lost)
    if journal is not None:
        _copy_tombstones(journal.path, installation.settings.resolved_tombstones())
        record_restored(installation, signed=signed)
        tombstones.record(installation)
    installations.unfinished(installation.settings).unlink()
    sync_folder(installation.settings.data_dir)


def _record(
    session: Session,
    installation: installations.Installation,
    restored: Restored,
    tenant_id: str,
    lost: dict[str, dict[str, Any] | None],
) -> None:
    """Append entries to the tenant's audit log and its ledger, each with the head that its chain lost (`lost`).

    The record tells anyone who holds a lost head why the chain no longer contains it.
    """
    about = restored.about
    detail: dict[str, Any] = {
        "backed_up_at": about.created_at.isoformat(),
        "tombstones": restored.remembered,
        "requests_made_again": restored.requests.made,
        "requests_changed": restored.requests.changed,
        "models_to_learn_again": restored.num_models,
        "lost_head": lost[checkpoints.AUDIT.name],
        "lost_ledger_head": lost[checkpoints.LEDGER.name],
    }
    deed = audit.Deed(
        tenant_id=tenant_id, actor=audit.SERVICE, action="installation.restored", object_id=about.id, detail=detail
    )
    audit.record_all(session, [deed])
    if lost[checkpoints.LEDGER.name] or audit_repository.last_row(session, checkpoints.LEDGER, tenant_id=tenant_id):
        ledger.link(
            session,
            tenant_id=tenant_id,
            kind="restored",
            backup_id=about.id,
            backed_up_at=about.created_at.isoformat(),
            restored_at=now(session).isoformat(),
            lost=lost[checkpoints.LEDGER.name],
        )
    for chain in checkpoints.CHAINS:
        checkpoints.checkpoint_now(session, installation.keys, chain, tenant_id=tenant_id)


def _lost(session: Session, chain: checkpoints.StoredChain, head: HeadSignature | None) -> dict[str, Any] | None:
    """Return `head` if it was signed but is missing from the restored chain; otherwise return None."""
    if head is None:
        return None
    row = session.get(chain.table, (head.tenant_id, head.sequence))
    return None if row is not None and row.hash == head.hash else {"sequence": head.sequence, "hash": head.hash}


def _require_free(settings: config.Settings, remembered_in: Path | None) -> None:
    """Raise `BackupRefused` if a restore would overwrite data or ignore tombstones. The remains of an interrupted
    restore may be overwritten."""
    own = settings.resolved_tombstones()
    if remembered_in is not None and not remembered_in.exists():
        raise errors.BackupRefused(f"There are no tombstones at {remembered_in}.")
    if own.exists() and (remembered_in is None or not own.samefile(remembered_in)):
        raise errors.BackupRefused(f"There are tombstones at {own}: restore with those, or move them away.")
    if installations.unfinished(settings).exists():
        return
    expected = {path.resolve() for path in (own, *verification.files(settings))}
    data_folders = {settings.data_dir} if settings.in_bucket else {settings.data_dir, settings.store_folder()}
    for folder in data_folders:
        if any(path.resolve() not in expected and not _is_empty_folder(path) for path in _entries(folder)):
            raise errors.BackupRefused(f"{folder} is not empty: a backup is restored where nothing is.")
    if _has_tables(settings):
        raise errors.BackupRefused("The database is not empty: a backup is restored where nothing is.")


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.exists() else []


def _is_empty_folder(path: Path) -> bool:
    """Return True for an empty folder, such as the mount point of an empty volume."""
    return path.is_dir() and not any(path.iterdir())


def _has_tables(settings: config.Settings) -> bool:
    """Return True if the database has any of this release's tables."""
    url = settings.resolved_database_url()
    # The default database is in the data folder.
    if url == config.Settings(data_dir=settings.data_dir).resolved_database_url() and not settings.data_dir.exists():
        return False
    database = Database(url)
    try:
        names = set(sa.inspect(database.engine).get_table_names())
    except sa.exc.OperationalError as error:
        raise errors.DatabaseUnreadable(f"{error.orig}; is LETHE_DATABASE_URL right?") from error
    finally:
        database.close()
    return bool(names & archive.TABLES.keys())


def _claim(settings: config.Settings) -> None:
    """Block serving until a restore is complete, and delete the remains of an interrupted restore."""
    folders.make(settings.data_dir)
    marker, own = installations.unfinished(settings), settings.resolved_tombstones()
    if not marker.exists():
        with created(marker):
            pass
        sync_folder(settings.data_dir)
        return
    if _has_tables(settings):
        database = Database(settings.resolved_database_url())
        try:
            migrate.downgrade(database.engine)
        finally:
            database.close()
    for path in _entries(settings.data_dir):
        if path == marker or path.resolve() == own.resolve():
            continue
        for file in [path] if path.is_file() else [inner for inner in path.rglob("*") if inner.is_file()]:
            wipe_file(file)
        shutil.rmtree(path, ignore_errors=True)


def _write_key(folder: Path, piece: archive.Piece) -> None:
    path = folder.joinpath(*piece.thing.split("/")[1:])
    folders.make(path.parent)
    with created(path) as file:
        file.write(piece.content)
    sync_folder(path.parent)


def _copy_tombstones(journal: Path, own: Path) -> None:
    """Copy the tombstones to the installation's own file. A file that already exists is the same (`_require_free`)."""
    if own.exists():
        return
    partial = own.with_name(f".{own.name}.next")
    partial.unlink(missing_ok=True)
    with created(partial) as file, journal.open("rb") as source:
        shutil.copyfileobj(source, file)
    partial.rename(own)
    sync_folder(own.parent)


def _last_checkpoint(session: Session) -> Checkpoint | None:
    """Return the most recently signed checkpoint of any chain; None if there is no checkpoint."""
    return session.scalars(sa.select(Checkpoint).order_by(Checkpoint.number.desc()).limit(1)).one_or_none()


def record_restored(installation: installations.Installation, *, signed: int | None = None) -> None:
    """Append a `restored` line, so that recording continues after the restored database's events and its checkpoints up
    to number `signed` (by default, all of them)."""

    def restored(_last: JournalLine | None) -> list[JournalLine]:
        with installation.database.reading() as session:
            number = session.scalar(sa.select(sa.func.max(RequestEvent.id))) or 0
            event = session.get(RequestEvent, number)
            of = event.request_id if event else None
            last = _last_checkpoint(session)
            last_signed = signed if signed is not None else last.number if last else 0
            return [JournalLine(kind="restored", number=number, of=of, signed=last_signed, at=now(session))]

    tombstones.journal(installation).append(restored)
