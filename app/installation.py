"""One installation of Lethe, opened: its database, its keys, its rows and its weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from app.access import service as access
from app.config import Settings
from app.db import Database, migrate, reader
from app.dispatch import Bell, bell
from app.errors import DatabaseUnreadable, RestoreUnfinished
from app.keys import KeyEncryptionFile, Keys, read_or_create
from app.registry import first_layout, memory
from app.registry.files import locked
from app.registry.rows import RowStore
from app.registry.s3 import S3Store
from app.registry.sealing import Sealed
from app.registry.store import FolderStore, ObjectStore
from app.registry.vault import Vault
from app.registry.weights import WeightStore

_KINDS = ("weights", "blocks")
"""What is sealed: versions, and the rows of datasets."""
_PATIENCE_SECONDS = 30.0
"""How long setting up waits for a database server that may be starting too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    settings: Settings
    database: Database
    keys: Keys
    rows: RowStore
    weights: WeightStore
    vault: Vault
    bell: Bell


@contextmanager
def opened(
    settings: Settings, *, read_only: bool = False, patience_seconds: float = 2.0, unfinished: bool = False
) -> Iterator[Installation]:
    """Open the stores that `settings` name; the database, which may be `read_only`, must have been set up.

    `patience_seconds`: how long whoever needs the database waits for a server that is away. `unfinished`: for whoever
    restores it. Raises `RestoreUnfinished` for anybody else.
    """
    if not unfinished:
        _check_finished(settings)
    keys = Keys(settings.data_dir / "keys")
    url, vault = settings.resolved_database_url(), _vault(settings, keys)
    database = Database(
        url,
        vault=None if read_only else vault,  # whoever only accounts need not read what people wrote
        read_only=read_only,
        patience_seconds=patience_seconds,
    )
    try:
        yield Installation(
            settings=settings,
            database=database,
            keys=keys,
            rows=_rows(settings),
            weights=WeightStore(_sealed(settings, "weights")),
            vault=vault,
            bell=bell(settings),
        )
    finally:
        database.close()


def set_up(settings: Settings, *, reader_role: str | None = None) -> None:
    """Make the data folder, bring the database to the present schema, and let the first admin key in.

    `reader_role`: let this role of the database read what the accounting service reads. Safe to run by several
    processes at once. Raises `DatabaseUnreadable`, `InputInvalid`, `RestoreUnfinished`.
    """
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_finished(settings)
    set_up_stores(settings)
    Keys(settings.data_dir / "keys").create()
    admin_key = read_or_create(settings.resolved_admin_key_file(), access.new_key)
    database = Database(settings.resolved_database_url(), patience_seconds=_PATIENCE_SECONDS)
    try:
        migrate.upgrade(database.engine)
        with database.writing() as session:
            by = access.ensure_default_tenant(session)
        with database.writing(by=by) as session:
            access.ensure_key(session, name="admin", key=admin_key, scopes=[access.Scope.ADMIN, access.Scope.OPERATOR])
        _seal_first_layout(settings, database)
        if reader_role is not None:
            reader.grant(database, reader_role)
    except sa.exc.OperationalError as error:
        raise DatabaseUnreadable(f"{error.orig}; are LETHE_DATABASE_URL and LETHE_DATA_DIR right?") from error
    finally:
        database.close()


def rotate_key_encryption_key(settings: Settings) -> None:
    """Wrap everything under a new key-encryption key and destroy the one before, and so all copies of old wrapped keys.

    The service may be running. After a crash anywhere, run it again: it goes on with what it began.
    """
    path = settings.resolved_key_encryption_key_file()
    key_encryption = KeyEncryptionFile(path)
    with locked(path.parent):
        key_encryption.begin_rotation()
        for sealed in _all_sealed(settings):
            sealed.rewrap()
        key_encryption.end_rotation()


def unfinished(settings: Settings) -> Path:
    """The file that is there while an installation is being restored, and after that was cut off."""
    return settings.data_dir / "restore-unfinished"


def _check_finished(settings: Settings) -> None:
    if unfinished(settings).exists():
        raise RestoreUnfinished(f"{settings.data_dir} was not restored to the end; run `lethe restore` again.")


def set_up_stores(settings: Settings) -> None:
    """Raises `KeyEncryptionKeyLost` rather than make a key that opens nothing, `StoreKeepsVersions`."""
    key_encryption = KeyEncryptionFile(settings.resolved_key_encryption_key_file())
    if all(sealed.empty() for sealed in _all_sealed(settings)):
        key_encryption.create()
    key_encryption.check()
    for name in _KINDS:
        _objects(settings, name).check()


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
    key_encryption = KeyEncryptionFile(settings.resolved_key_encryption_key_file())
    keys = settings.data_dir / name / "keys"
    return Sealed(_objects(settings, name), keys=keys, key_encryption=key_encryption)


def _vault(settings: Settings, keys: Keys) -> Vault:
    key_encryption = KeyEncryptionFile(settings.resolved_key_encryption_key_file())
    return Vault(settings.data_dir / "vault", key_encryption, reference=keys.reference)


def _objects(settings: Settings, name: str) -> ObjectStore:
    if settings.store_url is not None and settings.in_bucket:
        return S3Store(settings.store_url, name)
    return FolderStore(settings.store_folder() / name)
