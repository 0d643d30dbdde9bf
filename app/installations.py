"""Installations: the database, keys, rows and weights of one Lethe deployment, opened together."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import sqlalchemy as sa

from app import config, errors, folders, key_checks
from app.access import service as access
from app.db import Database, migrate
from app.dispatch import AtTicks, notifier
from app.keys import KeyEncryptionFile, Keys, KeyUnreadable, read_or_create
from app.rows.row_store import RowStore
from app.vault import memory, pieces, sealing, store
from lethe import sockets
from lethe.contract import problems, sets

OpenBucket: TypeAlias = Callable[[str, str], store.ObjectStore]
"""Function that opens the store for a folder's objects in the bucket at a URL (extension socket `BUCKETS`)."""

_KINDS = ("weights", "blocks")
"""Kinds of sealed content: versions' weights and datasets' rows."""
_FOLDERS = ("blocks", "encoding", "keys", "tmp", "vault", "weights", "workers")
"""Subfolders of a data folder. A separate folder for rows and weights has some of them."""
_PATIENCE_SECONDS = 30.0
"""Time that the set-up waits for a database server, which may still be starting as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    settings: config.Settings
    database: Database
    keys: Keys
    rows: RowStore
    weights: sealing.WeightStore
    vault: pieces.Vault
    notifier: AtTicks


@contextmanager
def opened(
    settings: config.Settings,
    *,
    read_only: bool = False,
    patience_seconds: float = 2.0,
    unfinished: bool = False,
    again: bool = False,
) -> Iterator[Installation]:
    """Open the stores configured in `settings`; the database, which may be `read_only`, must have been set up.

    `patience_seconds` is the time to wait for an unreachable database server. `unfinished` is True in the process that
    restores the installation; `again`, in one that has opened it before and may continue while a newer release migrates
    the database. Raises `DatabaseUnreadable` for an unknown schema, `RestoreUnfinished`, `FolderExposed`, and
    `InstallationMismatch` if keys, stores and database do not belong together; later sessions raise it too.
    """
    if not unfinished:
        _check_finished(settings)
    if not read_only:
        _close_to_others(settings)
    folder = settings.data_dir / "keys"
    # The accounting service verifies signatures, and computes no reference to a person.
    keys = Keys(folder, is_public=read_only and not folder.exists())
    url, vault = settings.resolved_database_url(), _vault(settings, keys)
    database = Database(
        url,
        # The accounting service does not read texts of callers.
        vault=None if read_only else vault,
        read_only=read_only,
        patience_seconds=patience_seconds,
    )
    try:
        if not again:
            with (
                suppress(sa.exc.OperationalError, sa.exc.TimeoutError, problems.DatabaseDamaged),
                database.looking() as connection,
            ):
                # If the database is unreachable or damaged, sessions raise it.
                migrate.check_connection(connection)
        if not unfinished:
            guard = _guard(settings, database, keys, partly=read_only)
            guard.start()
            database.guard(guard.check)
        yield Installation(
            settings=settings,
            database=database,
            keys=keys,
            rows=_rows(settings),
            weights=sealing.WeightStore(_sealed(settings, "weights")),
            vault=vault,
            notifier=notifier(settings),
        )
    finally:
        database.close()


def set_up(settings: config.Settings, *, reader_role: str | None = None) -> None:
    """Create the data folder, migrate the database, and add the first admin key. Concurrent calls are safe.

    Keys are created only for an empty database; any other database must match the existing keys, or nothing is changed.
    `reader_role` is granted the access that the accounting service needs. Raises `DatabaseUnreadable`,
    `InstallationMismatch`, `FolderExposed`, `InputInvalid`, `KeyUnreadable`, `RestoreUnfinished`.
    """
    _check_finished(settings)
    # The default database is in the data folder.
    if settings.database_url is None:
        folders.make(settings.data_dir)
    _close_to_others(settings)
    database = Database(settings.resolved_database_url(), patience_seconds=_PATIENCE_SECONDS)
    try:
        database.check()
        keys = _migrate_with_keys(settings, database)
        path = settings.resolved_admin_key_file()
        admin_key = read_or_create(path, access.new_key)
        if not re.fullmatch("[!-~]+", admin_key):
            raise KeyUnreadable(f"Expected one API key of visible ASCII characters in {path}; write it again.")
        with database.writing() as session:
            by = access.ensure_default_tenant(session)
        with database.writing(by=by) as session:
            access.ensure_key(session, name="admin", key=admin_key, scopes=[sets.Scope.ADMIN, sets.Scope.OPERATOR])
        if reader_role is not None:
            migrate.grant(database, reader_role)
        _guard(settings, database, keys).start()
    except sa.exc.OperationalError as error:
        raise errors.DatabaseUnreadable(f"{error.orig}; are LETHE_DATABASE_URL and LETHE_DATA_DIR right?") from error
    finally:
        database.close()


def _migrate_with_keys(settings: config.Settings, database: Database) -> Keys:
    """Migrate the database, and return the keys. Afterwards, keys and stores match the database. The storage locations'
    marks are read before the database, which is marked last. Hence, if the database is empty, unmarked locations hold
    no other installation's data."""
    marked = places(settings)
    is_anything_kept = _is_anything_kept(settings)
    owners = {place.name: place.owner() for place in marked}
    migrate.check(database.engine)
    identity = key_checks.of_database(database)
    keys, key_encryption = Keys(settings.data_dir / "keys"), key_encryption_of(settings)
    if identity is not None:
        if wrong := key_checks.wrong(keys, key_encryption, identity):
            raise problems.InstallationMismatch(wrong)
        key_checks.require(owners, identity, is_needed=identity.is_marked and key_checks.is_anything_stored(database))
        set_up_stores(settings)
    else:
        key_checks.require_unused(database)
        key_checks.require_nobodys(owners, is_anything_kept=is_anything_kept)
        folders.make(settings.data_dir)
        set_up_stores(settings)
        keys.create()
    if identity is None or not migrate.is_current(database.engine):
        migrate.upgrade(database.engine, then=lambda connection: key_checks.enter(connection, keys, key_encryption))
    now_known = key_checks.of_database(database)
    assert now_known is not None
    # Another process may have set up the database first, with other keys.
    if wrong := key_checks.wrong(keys, key_encryption, now_known):
        raise problems.InstallationMismatch(wrong)
    for place in marked:
        place.mark(now_known.id)
    if not now_known.is_marked:
        key_checks.confirm_marked(database)
    keys.publish()
    return keys


def rotate_key_encryption_key(settings: config.Settings) -> None:
    """Wrap all keys under a new key-encryption key and destroy the old one, which makes all copies of the old wrapped
    keys useless. The service may be running: the database accepts the new key before anything is wrapped under it, and
    rejects the old one last. After a crash, run the command again; it resumes the rotation."""
    with opened(settings) as installation:
        path, key_encryption = settings.resolved_key_encryption_key_file(), key_encryption_of(settings)
        with store.locked(path.parent):
            identity = key_checks.of_database(installation.database)
            assert identity is not None
            present = key_encryption.check_values(identity.id)
            key_checks.accept(installation.database, [*present, key_encryption.prepare_rotation(identity.id)])
            key_encryption.begin_rotation()
            for sealed in _all_sealed(settings):
                sealed.rewrap()
            key_encryption.end_rotation()
            key_checks.accept(installation.database, key_encryption.check_values(identity.id))


def unfinished(settings: config.Settings) -> Path:
    """Return the path of the file that exists while a restoration is in progress and after one was interrupted."""
    return settings.data_dir / "restore-unfinished"


def _check_finished(settings: config.Settings) -> None:
    if unfinished(settings).exists():
        raise errors.RestoreUnfinished(f"{settings.data_dir} was not restored to the end; run `lethe restore` again.")


def set_up_stores(settings: config.Settings) -> None:
    """Create the key-encryption key if the stores are empty, and check the stores. Raises `StoreKeepsVersions`, and
    `KeyEncryptionKeyLost` if the key of existing content is missing."""
    key_encryption = key_encryption_of(settings)
    if all(sealed.empty() for sealed in _all_sealed(settings)):
        key_encryption.create()
    key_encryption.check()
    for name in _KINDS:
        _objects(settings, name).check()


def key_encryption_of(settings: config.Settings) -> KeyEncryptionFile:
    return KeyEncryptionFile(settings.resolved_key_encryption_key_file())


def places(settings: config.Settings) -> list[key_checks.StorageLocation]:
    """Return the storage locations marked with their installation: the data folder, and the folder or bucket that holds
    rows and weights."""
    locations = [_folder("data folder", settings.data_dir)]
    if settings.in_bucket:
        locations.append(_bucket(settings))
    elif settings.store_folder().resolve() != settings.data_dir.resolve():
        locations.append(_folder("folder", settings.store_folder()))
    return locations


def _folder(kind: str, folder: Path) -> key_checks.StorageLocation:
    return key_checks.StorageLocation(name=f"the {kind} {folder}", objects=store.FolderStore(folder))


def _bucket(settings: config.Settings) -> key_checks.StorageLocation:
    return key_checks.StorageLocation(
        name=f"the bucket {settings.store_url}", objects=_objects(settings, "installation")
    )


def _guard(settings: config.Settings, database: Database, keys: Keys, *, partly: bool = False) -> key_checks.Guard:
    of_folders = {settings.data_dir: _folder("data folder", settings.data_dir)}
    if not settings.in_bucket:
        of_folders[settings.store_folder()] = _folder("folder", settings.store_folder())
    return key_checks.Guard(
        database,
        keys=keys,
        key_encryption=key_encryption_of(settings),
        folders=of_folders,
        bucket=_bucket(settings) if settings.in_bucket and not partly else None,
        partly=partly,
    )


def _close_to_others(settings: config.Settings) -> None:
    """Remove other users' access to folders, keys and SQLite files. Raises `FolderExposed`."""
    ours = {settings.data_dir} if settings.in_bucket else {settings.data_dir, settings.store_folder()}
    below = [folder / name for folder in ours for name in _FOLDERS]
    files = [path for path in (settings.data_dir / "keys").glob("*") if path.is_file()]
    files.append(settings.resolved_key_encryption_key_file())
    url = sa.make_url(settings.resolved_database_url())
    if url.get_backend_name() == "sqlite" and url.database:
        files += [Path(url.database + suffix) for suffix in ("", "-wal", "-shm")]
    folders.close([*sorted(ours), *sorted(below)], files)


def _is_anything_kept(settings: config.Settings) -> bool:
    """Return True if rows, weights or callers' texts exist, whichever installation they belong to."""
    keys = (path for name in _KINDS for path in settings.data_dir.glob(f"{name}/keys/[!.]*.key"))
    return any(keys) or any(settings.data_dir.glob("vault/[!.]*.page"))


def _rows(settings: config.Settings) -> RowStore:
    return RowStore(
        _objects(settings, "blocks"),
        _sealed(settings, "blocks"),
        locks=settings.data_dir / "blocks" / "locks",
        most_bytes=settings.rows_memory_bytes or memory.half(),
    )


def _all_sealed(settings: config.Settings) -> list[sealing.SealedStore | pieces.Vault]:
    sealed = [_sealed(settings, name) for name in _KINDS]
    return [*sealed, _vault(settings, Keys(settings.data_dir / "keys"))]


def _sealed(settings: config.Settings, name: str) -> sealing.SealedStore:
    """Return a store with its objects at the configured location and its wrapped keys always in the data folder."""
    keys = settings.data_dir / name / "keys"
    return sealing.SealedStore(_objects(settings, name), keys=keys, key_encryption=key_encryption_of(settings))


def _vault(settings: config.Settings, keys: Keys) -> pieces.Vault:
    return pieces.Vault(
        settings.data_dir / "vault", key_encryption_of(settings), reference=keys.reference, record_key=keys.record_key
    )


def _objects(settings: config.Settings, name: str) -> store.ObjectStore:
    if settings.store_url is None or not settings.in_bucket:
        return store.FolderStore(settings.store_folder() / name)
    openers: tuple[OpenBucket, ...] = sockets.plugs("app.features", "stores", "BUCKETS")
    for open_bucket in openers:
        return open_bucket(settings.store_url, name)
    raise problems.InputInvalid("LETHE_STORE_URL names a bucket, for which nothing is installed; name a folder.")
