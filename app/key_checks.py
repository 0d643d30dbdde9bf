"""Proof that keys, stores and database are of one installation: check values, and marks.

The database keeps the installation's id and a check value of each key; the data folder, and the folder or bucket of
rows and weights, hold an object with the id. A process that has other keys than its database was set up with would find
nobody and open nothing: it is told here, before it says anything about anybody.
"""

import contextlib
import datetime
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from app import telemetry
from app.db import Database
from app.db.tables import Dataset, InstallationIdentity, Tenant, new_id
from app.keys import KeyEncryptionFile, KeyEncryptionKeyLost, Keys, KeyUnreadable
from app.vault.store import FolderAway, ObjectStore
from lethe.contract.problems import InstallationMismatch, Unavailable

_MARK = "installation.id"
_KEK = "kek"
_UNMARKED = "unmarked"
"""Stands beside the check values until every place is marked: a process that was killed before that goes on."""
_BELIEVED_SECONDS = 1.0
"""Time for which the check values that the database gave are believed. Files are looked at each time."""
_REFERENCES_SECONDS = 60.0
"""Interval at which the check values of datasets are compared."""
_ATTEMPTS = 5
"""Keys and check values are read one after the other: what changed in between is read again."""
_WHERE = "Are LETHE_DATA_DIR, LETHE_STORE_URL and LETHE_DATABASE_URL right?"
_table: Any = InstallationIdentity.__table__
_datasets: Any = Dataset.__table__


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity of a database, as it states it."""

    id: str
    check_values: Mapping[str, Any]

    @property
    def is_marked(self) -> bool:
        """Return True if all places said whose they are, once."""
        return _UNMARKED not in self.check_values


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder or bucket that says whose it is; `name`: for people."""

    name: str
    objects: ObjectStore

    def owner(self) -> str | None:
        """The id of the installation that it belongs to, if that is marked."""
        try:
            return self.objects.get(_MARK).decode(errors="replace").strip()
        except (FileNotFoundError, FolderAway):
            return None

    def mark(self, installation_id: str) -> None:
        """Say whose it is, once."""
        with contextlib.suppress(FileExistsError):
            self.objects.create(_MARK, installation_id.encode())


def of_database(database: Database) -> Identity | None:
    """The identity that the database states; None for one that states nothing."""
    with database.looking() as connection:
        if not sa.inspect(connection).has_table(_table.name):
            return None
        return _read(connection)


def is_unused(database: Database) -> bool:
    """Return True if nothing was ever put into the database."""
    with database.looking() as connection:
        if not sa.inspect(connection).has_table(Tenant.__tablename__):
            return True
        return connection.scalar(sa.select(sa.func.count()).select_from(Tenant.__table__)) == 0


def enter(connection: sa.Connection, keys: Keys, key_encryption: KeyEncryptionFile) -> None:
    """Let the database be of these keys from now on, unless it is somebody's already."""
    if _read(connection) is None:
        installation_id = new_id("ins")
        found = _values(keys, installation_id) | {_KEK: key_encryption.check_values(installation_id), _UNMARKED: True}
        at = datetime.datetime.now(datetime.UTC)
        connection.execute(sa.insert(_table).values(id=installation_id, check_values=found, created_at=at))
        for dataset_id in connection.scalars(sa.select(_datasets.c.id)).all():
            check = sa.type_coerce(keys.reference(dataset_id.encode()), sa.String)
            connection.execute(sa.update(_datasets).where(_datasets.c.id == dataset_id).values(references_check=check))


def accept(database: Database, key_encryption: Sequence[str]) -> None:
    """Let these be the check values of the key-encryption key: two, while it is changed."""
    with database.writing() as session:
        row = session.scalars(sa.select(InstallationIdentity)).one()
        row.check_values = row.check_values | {_KEK: list(dict.fromkeys(key_encryption))}


def confirm_marked(database: Database) -> None:
    """Note that every place says whose it is: from now on one that does not is not the database's."""
    with database.writing() as session:
        row = session.scalars(sa.select(InstallationIdentity)).one()
        row.check_values = {name: value for name, value in row.check_values.items() if name != _UNMARKED}


def is_anything_stored(database: Database) -> bool:
    """Return True if the database tells of rows or weights, which must be somewhere."""
    with database.looking() as connection:
        return any(connection.scalar(sa.text(f"SELECT count(*) FROM {table}")) for table in ("datasets", "versions"))  # noqa: S608


def wrong(keys: Keys, key_encryption: KeyEncryptionFile, known: Identity) -> str | None:
    """Name the fault of these keys in a sentence; None if there is none."""
    return wrong_key(keys, known) or _wrong_key_encryption(key_encryption, known)


def wrong_key(keys: Keys, known: Identity) -> str | None:
    """The same, but for the key-encryption key."""
    for name, path in keys.paths().items():
        try:
            if keys.check_value(name, known.id) != known.check_values.get(name):
                return f"{path} is not the key that this database was set up with; put that back."
        except OSError as error:
            return str(error) if isinstance(error, KeyUnreadable) else f"{path} cannot be read."
    return None


def _wrong_key_encryption(key_encryption: KeyEncryptionFile, known: Identity) -> str | None:
    path, _ = key_encryption.paths()
    try:
        found = key_encryption.check_values(known.id)
    except OSError as error:
        return str(error) if isinstance(error, KeyEncryptionKeyLost) else f"{path} cannot be read."
    if set(found) <= set(known.check_values.get(_KEK, ())):
        return None
    return f"{path} is not the key-encryption key that this database was set up with; put that back."


class Guard:
    """Compares a process's keys, their files, and its stores with its database: at start, and before each session.

    `keys`: what the process holds in its memory. A file that has changed is noticed at once (by `stat`), and so is one
    that came back: nothing must be started again. A bucket is asked at start only. `partly`: for a process that sees
    neither the key-encryption key nor the stores; what it does see is compared.
    """

    def __init__(
        self,
        database: Database,
        *,
        keys: Keys,
        key_encryption: KeyEncryptionFile,
        folders: Mapping[Path, Place],
        bucket: Place | None,
        partly: bool = False,
    ) -> None:
        self._database = database
        self._keys = keys
        self._key_encryption = key_encryption
        self._folders = folders
        self._bucket = bucket
        self._partly = partly
        marks = [folder / _MARK for folder in folders]
        self._paths = (*keys.paths().values(), *key_encryption.paths(), *marks)
        self._seen: Sequence[object] | None = None
        self._until = 0.0
        self._references_until = 0.0
        self._said: str | None = None

    def start(self) -> None:
        """Raises `InstallationMismatch`, saying what is wrong; nothing while database or bucket cannot be asked."""
        try:
            found = self._wrong()
            if found is None and self._bucket is not None:
                with contextlib.suppress(OSError):  # a bucket that is away: until it is back nothing of it is used
                    found = _wrong_owner(self._bucket.name, self._bucket.owner(), self._known())
        except (sa.exc.OperationalError, sa.exc.TimeoutError, Unavailable):  # `check` asks again, before anything
            return
        if found is not None:
            raise InstallationMismatch(found)

    def check(self) -> None:
        """Raises `InstallationMismatch`, and says in the log what is wrong; `Unavailable`, where the database does not
        know yet."""
        seen = self._look()
        if seen == self._seen and time.monotonic() < self._until:
            return
        until = time.monotonic() + _BELIEVED_SECONDS
        found = self._wrong()
        if found is not None:
            self._seen = None
            if found != self._said:
                telemetry.logger().error("installation.mismatch", reason=found)
            self._said = found
            raise InstallationMismatch(
                "The keys or the stores of this process are not those of its database: nobody is answered until they "
                "are put back. Its log says which."
            )
        if self._said is not None:
            telemetry.logger().info("installation.mended")
        self._seen, self._until, self._said = seen, until, None

    def _wrong(self) -> str | None:
        """Name the fault in a sentence; it is looked for again if something was changed meanwhile."""
        found: str | None = None
        for _ in range(_ATTEMPTS):
            before = self._look()
            known = self._known()
            found = self._compared(known)
            if found is None or (before == self._look() and known == self._known()):
                break
        return found

    def _compared(self, known: Identity) -> str | None:
        for keys in (self._keys, self._keys.fresh()):
            if wrong := wrong_key(keys, known):
                return wrong
        for folder, place in self._folders.items():
            is_there = not self._partly or (folder / _MARK).exists()
            if is_there and (wrong := _wrong_place(place, known)):
                return wrong
        is_there = not self._partly or any(path.exists() for path in self._key_encryption.paths())
        if is_there and (wrong := _wrong_key_encryption(self._key_encryption, known)):
            return wrong
        return self._wrong_references()

    def _wrong_references(self) -> str | None:
        """A dataset whose people were stored under another key: who asks for one of them would find nobody."""
        if time.monotonic() < self._references_until:
            return None
        stored = sa.select(_datasets.c.id, sa.type_coerce(_datasets.c.references_check, sa.String).label("check"))
        with self._database.looking() as connection:
            found = connection.execute(stored.where(_datasets.c.references_check.is_not(None))).all()
        for dataset_id, check in found:
            if self._keys.reference(dataset_id.encode()) != check:
                path = self._keys.paths()["subject.key"]
                return (
                    f"The people of dataset {dataset_id} were not stored under {path}; put back what belongs together."
                )
        self._references_until = time.monotonic() + _REFERENCES_SECONDS
        return None

    def _known(self) -> Identity:
        try:
            with self._database.looking() as connection:
                known = _read(connection)
        except (sa.exc.ProgrammingError, sa.exc.OperationalError) as error:
            with self._database.looking() as connection:
                is_there = sa.inspect(connection).has_table(_table.name)
            if not is_there:  # as a database that is away
                raise sa.exc.OperationalError(None, None, error.orig or error) from error
            if isinstance(error, sa.exc.ProgrammingError):
                raise Unavailable(
                    "The database tells this role too little: run `lethe migrate --grant-reader`."
                ) from error
            raise
        if known is None:
            raise Unavailable("The database has not been set up by this release: run `lethe migrate`.")
        return known

    def _look(self) -> Sequence[object]:
        return [_state(path) for path in self._paths]


def require(owners: Mapping[str, str | None], known: Identity, *, is_needed: bool) -> None:
    """Require that these places, by their names, are the database's; one that is not marked is so only if it is not
    needed yet.

    Raises `InstallationMismatch`.
    """
    for name, owner in owners.items():
        if (owner is not None or is_needed) and (wrong := _wrong_owner(name, owner, known)):
            raise InstallationMismatch(wrong)


def require_unmarked(owners: Mapping[str, str | None]) -> None:
    """Require that none of these places, by their names, is somebody's, for a database that does not say whose it is.

    Raises `InstallationMismatch`.
    """
    if taken := next((name for name, owner in owners.items() if owner is not None), None):
        raise InstallationMismatch(
            f"{taken} belongs to an installation, and the database is from before it was marked so. {_WHERE}"
        )


def require_nobodys(owners: Mapping[str, str | None], *, is_anything_kept: bool) -> None:
    """Require that these places, by their names, are free to become those of a database in which nothing is.

    Raises `InstallationMismatch`.
    """
    taken = next((name for name, owner in owners.items() if owner is not None), None)
    if taken is not None or is_anything_kept:
        raise InstallationMismatch(
            f"The database is empty, and {taken or next(iter(owners))} belongs to an installation. {_WHERE}"
        )


def _wrong_place(place: Place, known: Identity) -> str | None:
    try:
        return _wrong_owner(place.name, place.owner(), known)
    except OSError:
        return f"{place.name} cannot be read."


def _wrong_owner(name: str, owner: str | None, known: Identity) -> str | None:
    if owner == known.id:
        return None
    if owner is None:
        return f"{name} lacks what says that it belongs to this database ({_MARK}). {_WHERE}"
    return f"{name} belongs to another installation than the database. {_WHERE}"


def _read(connection: sa.Connection) -> Identity | None:
    row = connection.execute(sa.select(_table.c.id, _table.c.check_values)).first()
    return None if row is None else Identity(id=row.id, check_values=row.check_values)


def _values(keys: Keys, installation_id: str) -> dict[str, Any]:
    return {name: keys.check_value(name, installation_id) for name in keys.paths()}


def _state(path: Path) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
