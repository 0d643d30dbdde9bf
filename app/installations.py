"""One installation of Lethe, opened: its database, its keys, its rows and its weights."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import adoption, folders, key_checks
from app.access import service as access
from app.accounting import earlier
from app.config import Settings
from app.db import Database, migrate, reader
from app.db.migrate import Schema
from app.dispatch import Notifier, notifier
from app.errors import DatabaseUnreadable, RestoreUnfinished
from app.key_checks import Guard, Place
from app.keys import KeyEncryptionFile, KeyEncryptionKeyLost, Keys, read_or_create
from app.rows import first_layout, records
from app.rows.row_store import RowStore
from app.vault import memory
from app.vault.files import locked
from app.vault.pieces import Vault
from app.vault.s3 import S3Store
from app.vault.sealing import Sealed
from app.vault.store import FolderStore, ObjectStore
from app.vault.weights import WeightStore
from lethe.contract.problems import DatabaseDamaged, InstallationMismatch
from lethe.contract.sets import Scope

_KINDS = ("weights", "blocks")
"""The kinds of sealed content: versions, and the rows of datasets."""
_FOLDERS = ("blocks", "cache", "datasets", "encoding", "keys", "tmp", "vault", "weights", "workers")
"""The folders of a data folder; in a folder of rows and weights, some of them."""
_PATIENCE_SECONDS = 30.0
"""Longest time that setting up waits for a database server that may be starting too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    settings: Settings
    database: Database
    keys: Keys
    rows: RowStore
    weights: WeightStore
    vault: Vault
    notifier: Notifier


@contextmanager
def opened(
    settings: Settings,
    *,
    read_only: bool = False,
    patience_seconds: float = 2.0,
    unfinished: bool = False,
    again: bool = False,
) -> Iterator[Installation]:
    """Open the stores that `settings` name; the database, which may be `read_only`, must have been set up.

    `patience_seconds`: how long to wait for a database server that is away. `unfinished`: for the process that
    restores it. `again`: for a process that has opened it before, which may go on while a newer release migrates the
    database. Raises `DatabaseUnreadable` for a schema that this release does not know, `RestoreUnfinished` for anybody
    who does not restore, `InstallationMismatch` where keys, stores and database are not of one installation,
    `FolderExposed`; sessions that begin later raise `InstallationMismatch` too.
    """
    if not unfinished:
        _check_finished(settings)
    if not read_only:
        _close_to_others(settings)
    keys = Keys(settings.data_dir / "keys")
    url, vault = settings.resolved_database_url(), _vault(settings, keys)
    database = Database(
        url,
        vault=None if read_only else vault,  # accounting alone need not read what people wrote
        read_only=read_only,
        patience_seconds=patience_seconds,
    )
    try:
        if not again:
            with (
                suppress(sa.exc.OperationalError, sa.exc.TimeoutError, DatabaseDamaged),
                database.looking() as connection,
            ):
                migrate.schema_there(connection)  # without a database, or with a damaged one, calls say so
        if not unfinished:
            guard = _guard(settings, database, keys, partly=read_only)
            guard.start()
            database.guard(guard.check)
        yield Installation(
            settings=settings,
            database=database,
            keys=keys,
            rows=_rows(settings),
            weights=WeightStore(_sealed(settings, "weights")),
            vault=vault,
            notifier=notifier(settings),
        )
    finally:
        database.close()


def set_up(settings: Settings, *, reader_role: str | None = None) -> None:
    """Make the data folder, bring the database to the present schema, and let the first admin key in.

    Keys are made only for a database in which nothing is; any other must be of the keys that are there, or nothing is
    made or changed. `reader_role`: let this role of the database read what the accounting service reads. Safe to run by
    several processes at once. Raises `DatabaseUnreadable`, `InstallationMismatch`, `FolderExposed`, `InputInvalid`,
    `RestoreUnfinished`.
    """
    _check_finished(settings)
    if settings.database_url is None:  # it is in there
        folders.make(settings.data_dir)
    _close_to_others(settings)
    database = Database(settings.resolved_database_url(), patience_seconds=_PATIENCE_SECONDS)
    try:
        database.check()
        keys = _settled(settings, database)
        admin_key = read_or_create(settings.resolved_admin_key_file(), access.new_key)
        with database.writing() as session:
            by = access.ensure_default_tenant(session)
        with database.writing(by=by) as session:
            access.ensure_key(session, name="admin", key=admin_key, scopes=[Scope.ADMIN, Scope.OPERATOR])
        _seal_first_layout(settings, database)
        records.give_checks(database, keys.record_key)
        if reader_role is not None:
            reader.grant(database, reader_role)
        _guard(settings, database, keys).start()
    except sa.exc.OperationalError as error:
        raise DatabaseUnreadable(f"{error.orig}; are LETHE_DATABASE_URL and LETHE_DATA_DIR right?") from error
    finally:
        database.close()


def _settled(settings: Settings, database: Database) -> Keys:
    """The keys, which are the database's, as the stores are; the database has the present schema.

    What is marked is looked at before the database, which is marked last: what is there belongs to nobody else if that
    is empty.
    """
    marked = places(settings)
    is_anything_kept = _is_anything_kept(settings)
    owners = {place.name: place.owner() for place in marked}
    found = migrate.schema(database.engine)
    known = key_checks.of_database(database)
    is_new = known is None and key_checks.is_unused(database)
    keys, key_encryption = Keys(settings.data_dir / "keys"), key_encryption_of(settings)
    if is_new:
        key_checks.require_nobodys(owners, is_anything_kept=is_anything_kept)
        folders.make(settings.data_dir)
        set_up_stores(settings)
        keys.create()
    elif known is not None:
        if wrong := key_checks.wrong(keys, key_encryption, known):
            raise InstallationMismatch(wrong)
        key_checks.require(owners, known, is_needed=known.is_marked and key_checks.is_anything_stored(database))
        set_up_stores(settings)
    else:
        key_checks.require_unmarked(owners)
        _require_fitting(settings, database, keys, key_encryption)
        set_up_stores(settings)
    if found is not Schema.CURRENT or known is None:
        migrate.upgrade(database.engine, then=lambda connection: _adopt(connection, keys, key_encryption))
    now_known = key_checks.of_database(database)
    assert now_known is not None
    if wrong := key_checks.wrong(keys, key_encryption, now_known):  # another process was first, with other keys
        raise InstallationMismatch(wrong)
    for place in marked:
        place.mark(now_known.id)
    if not now_known.is_marked:
        key_checks.confirm_marked(database)
    return keys


def _adopt(connection: sa.Connection, keys: Keys, key_encryption: KeyEncryptionFile) -> None:
    """Do the part of an upgrade that needs keys: it commits with the schema, or not at all."""
    key_checks.enter(connection, keys, key_encryption)
    with Session(connection) as session:
        earlier.vouch(session, keys)
        session.flush()


def _require_fitting(settings: Settings, database: Database, keys: Keys, key_encryption: KeyEncryptionFile) -> None:
    """Require that a database of the first layout, which does not say whose it is, is of these keys. Raises
    `InstallationMismatch`."""
    for path in (*keys.paths().values(), settings.data_dir):
        if not path.exists():
            raise InstallationMismatch(
                f"{path} is missing, and the database is somebody's: put back the data folder that belongs to it, or "
                "let LETHE_DATABASE_URL name an empty one. Nothing was changed."
            )
    try:
        key_encryption.check()
    except KeyEncryptionKeyLost as error:
        raise InstallationMismatch(f"{error} Nothing was changed.") from error
    adoption.check(
        database.engine,
        keys,
        key_encryption,
        open_sealed=_vault(settings, keys).open,
        wrapped_keys=_wrapped_keys(settings),
        pages=_pages(settings),
        datasets=settings.store_folder() / "datasets",
        tombstones=settings.resolved_tombstones(),
    )


def rotate_key_encryption_key(settings: Settings) -> None:
    """Wrap everything under a new key-encryption key and destroy the one before, and so all copies of old wrapped keys.

    The service may be running: the database knows the new key before anything is wrapped under it, and forgets the old
    one last. After a crash anywhere, run it again: it goes on with what it began.
    """
    with opened(settings) as installation:
        path, key_encryption = settings.resolved_key_encryption_key_file(), key_encryption_of(settings)
        with locked(path.parent):
            known = key_checks.of_database(installation.database)
            assert known is not None
            present = key_encryption.check_values(known.id)
            key_checks.accept(installation.database, [*present, key_encryption.prepare_rotation(known.id)])
            key_encryption.begin_rotation()
            for sealed in _all_sealed(settings):
                sealed.rewrap()
            key_encryption.end_rotation()
            key_checks.accept(installation.database, key_encryption.check_values(known.id))


def unfinished(settings: Settings) -> Path:
    """The file that is there while an installation is being restored, and after that was cut off."""
    return settings.data_dir / "restore-unfinished"


def _check_finished(settings: Settings) -> None:
    if unfinished(settings).exists():
        raise RestoreUnfinished(f"{settings.data_dir} was not restored to the end; run `lethe restore` again.")


def set_up_stores(settings: Settings) -> None:
    """Raises `KeyEncryptionKeyLost` rather than make a key that opens nothing, `StoreKeepsVersions`."""
    key_encryption = key_encryption_of(settings)
    if all(sealed.empty() for sealed in _all_sealed(settings)):
        key_encryption.create()
    key_encryption.check()
    for name in _KINDS:
        _objects(settings, name).check()


def key_encryption_of(settings: Settings) -> KeyEncryptionFile:
    return KeyEncryptionFile(settings.resolved_key_encryption_key_file())


def places(settings: Settings) -> list[Place]:
    """The places that say whose they are, beside the database: the data folder, and where rows and weights are."""
    found = [_data_folder(settings)]
    if settings.in_bucket:
        found.append(_bucket(settings))
    elif settings.store_folder().resolve() != settings.data_dir.resolve():
        found.append(_store_folder(settings))
    return found


def _data_folder(settings: Settings) -> Place:
    return Place(name=f"the data folder {settings.data_dir}", objects=FolderStore(settings.data_dir))


def _store_folder(settings: Settings) -> Place:
    return Place(name=f"the folder {settings.store_folder()}", objects=FolderStore(settings.store_folder()))


def _bucket(settings: Settings) -> Place:
    return Place(name=f"the bucket {settings.store_url}", objects=_objects(settings, "installation"))


def _guard(settings: Settings, database: Database, keys: Keys, *, partly: bool = False) -> Guard:
    of_folders = {settings.data_dir: _data_folder(settings)}
    if not settings.in_bucket:
        of_folders[settings.store_folder()] = _store_folder(settings)
    return Guard(
        database,
        keys=keys,
        key_encryption=key_encryption_of(settings),
        folders=of_folders,
        bucket=_bucket(settings) if settings.in_bucket and not partly else None,
        partly=partly,
    )


def _close_to_others(settings: Settings) -> None:
    """Raises `FolderExposed`."""
    ours = {settings.data_dir} if settings.in_bucket else {settings.data_dir, settings.store_folder()}
    below = [folder / name for folder in ours for name in _FOLDERS]
    files = [path for path in (settings.data_dir / "keys").glob("*") if path.is_file()]
    url = sa.make_url(settings.resolved_database_url())
    if url.get_backend_name() == "sqlite" and url.database:
        files += [Path(url.database + suffix) for suffix in ("", "-wal", "-shm")]
    folders.close([*sorted(ours), *sorted(below)], files)


def _is_anything_kept(settings: Settings) -> bool:
    """Return True if rows, weights, or what callers wrote are there, of any installation."""
    rows = [] if settings.in_bucket else settings.store_folder().glob("datasets/*")  # of the first layout
    return any((*_wrapped_keys(settings), *_pages(settings), *rows))


def _wrapped_keys(settings: Settings) -> list[Path]:
    return [path for name in _KINDS for path in settings.data_dir.glob(f"{name}/keys/[!.]*.key")]


def _pages(settings: Settings) -> list[Path]:
    return list(settings.data_dir.glob("vault/[!.]*.page"))


def _rows(settings: Settings) -> RowStore:
    return RowStore(
        _objects(settings, "blocks"),
        _sealed(settings, "blocks"),
        locks=settings.data_dir / "blocks" / "locks",
        most_bytes=settings.rows_memory_bytes or memory.half(),
    )


def _seal_first_layout(settings: Settings, database: Database) -> None:
    """Rows that a release before kept in the clear, or in a bucket by another manifest."""
    first_layout.convert(
        database,
        _rows(settings),
        first_layout.Found(
            folder=settings.store_folder() / "datasets",
            bucket=_objects(settings, "blocks") if settings.in_bucket else None,
            sealed=_sealed(settings, "blocks"),
            copies=settings.data_dir / "cache",
            digest_key=Keys(settings.data_dir / "keys").digest_key,
        ),
    )


def _all_sealed(settings: Settings) -> list[Sealed | Vault]:
    sealed = [_sealed(settings, name) for name in _KINDS]
    return [*sealed, _vault(settings, Keys(settings.data_dir / "keys"))]


def _sealed(settings: Settings, name: str) -> Sealed:
    """Objects where the settings say, wrapped keys always in the data folder."""
    keys = settings.data_dir / name / "keys"
    return Sealed(_objects(settings, name), keys=keys, key_encryption=key_encryption_of(settings))


def _vault(settings: Settings, keys: Keys) -> Vault:
    return Vault(
        settings.data_dir / "vault",
        key_encryption_of(settings),
        reference=keys.reference,
        record_key=keys.record_key,
    )


def _objects(settings: Settings, name: str) -> ObjectStore:
    if settings.store_url is not None and settings.in_bucket:
        return S3Store(settings.store_url, name)
    return FolderStore(settings.store_folder() / name)
