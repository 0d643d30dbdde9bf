"""One installation of Lethe, opened: its database, its keys, its rows and its weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.access import service as access
from app.config import Settings
from app.db import Database, migrate
from app.dispatch import Bell, bell
from app.keys import Keys, read_or_create
from app.registry.rows import RowStore
from app.registry.weights import WeightStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    settings: Settings
    database: Database
    keys: Keys
    rows: RowStore
    weights: WeightStore
    bell: Bell


@contextmanager
def opened(settings: Settings, *, read_only: bool = False) -> Iterator[Installation]:
    """Open the stores that `settings` name; the database, which may be `read_only`, must have been set up."""
    keys = Keys(settings.data_dir / "keys")
    database = Database(settings.resolved_database_url(), read_only=read_only)
    try:
        yield Installation(
            settings=settings,
            database=database,
            keys=keys,
            rows=RowStore(settings.data_dir / "datasets", keys.digest_key),
            weights=WeightStore(settings.data_dir / "weights"),
            bell=bell(settings),
        )
    finally:
        database.close()


def set_up(settings: Settings) -> None:
    """Make the data folder, bring the database to the present schema, and let the first admin key in."""
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    admin_key = read_or_create(settings.resolved_admin_key_file(), access.new_key)
    database = Database(settings.resolved_database_url())
    try:
        migrate.upgrade(database.engine)
        with database.writing() as session:
            access.ensure_key(session, name="admin", key=admin_key, scopes=[access.Scope.ADMIN])
    finally:
        database.close()
