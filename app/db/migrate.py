"""Schema migrations: `lethe migrate` and every start of `lethe up` run `upgrade`.

Alembic is imported only to migrate: a process that finds the expected schema needs neither Alembic nor the scripts.
"""

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import sqlalchemy as sa

import migrations
from app.db import tables
from app.db.session import Database
from app.errors import DatabaseUnreadable
from lethe import sockets
from lethe.contract.problems import InputInvalid

if TYPE_CHECKING:
    from alembic.config import Config

_CORE = "core"
_HOME = Path(migrations.__file__).parent
_REVISION = re.compile(r'^revision = "(.+)"$', re.MULTILINE)


def _config(connection: sa.Connection | None = None) -> "Config":
    """Return Alembic's configuration: a branch of migrations for the core, and one for each feature with tables."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_HOME))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", "\n".join(map(str, _folders())))
    config.attributes["connection"] = connection
    return config


def _folders() -> Iterator[Path]:
    yield _HOME / "versions"
    for module in _of_features():
        folder = Path(module.__file__ or "").parent / "migrations"
        if folder.is_dir():
            yield folder


def _of_features() -> tuple[ModuleType, ...]:
    """Return the modules that declare features' tables, ordered so that each follows the modules it refers to."""
    return sockets.modules("app.features", "tables")


def _branches() -> list[str]:
    """Return the installed migration branches, ordered so that each follows the branches whose tables it refers to."""
    return [_CORE, *(module.__name__.split(".")[-2] for module in _of_features())]


def check(engine: sa.Engine) -> None:
    """Raise `DatabaseUnreadable` unless the database is empty or has a schema known to this version of Lethe."""
    with engine.connect().execution_options(lethe_read_only=True) as connection:
        check_connection(connection)


def check_connection(connection: sa.Connection) -> None:
    """Raise `DatabaseUnreadable` unless the database of `connection` is empty or has a schema known to this release."""
    if unknown := _recorded(connection).difference(_revisions()):
        raise DatabaseUnreadable(
            f"The database is of another version of Lethe (schema {', '.join(sorted(unknown))}), which this version "
            "does not support: run the version that made it, or begin with an empty database and data folder."
        )


def upgrade(engine: sa.Engine, *, then: Callable[[sa.Connection], None] = lambda connection: None) -> None:
    """Migrate to the newest schema and call `then` in the same transaction. Concurrent migrations wait for each other.

    Raises `DatabaseUnreadable` under the same conditions as `check`.
    """
    check(engine)
    with _alone(engine).begin() as connection:
        if not is_current_there(connection):
            from alembic import command

            for branch in _branches():
                command.upgrade(_config(connection), f"{branch}@head")
        then(connection)


def downgrade(engine: sa.Engine) -> None:
    """Drop all tables in one transaction. Raises `DatabaseUnreadable` for an unknown schema."""
    from alembic import command

    check(engine)
    with _alone(engine).begin() as connection:
        for branch in reversed(_branches()):
            command.downgrade(_config(connection), f"{branch}@base")


def _alone(engine: sa.Engine) -> sa.Engine:
    return engine.execution_options(lethe_migrating=True)


def is_current(engine: sa.Engine) -> bool:
    """Return True if the database has the schema that this code expects."""
    with engine.connect().execution_options(lethe_read_only=True) as connection:
        return is_current_there(connection)


def is_current_there(connection: sa.Connection) -> bool:
    """Return True if the database of `connection` has the schema that this code expects."""
    return _recorded(connection) == set(heads())


def is_usable_there(connection: sa.Connection, *, is_set_up: bool = False) -> bool:
    """Return True if the database of `connection` has the schema that this code expects, or a newer one that its
    migrations allow this code to use. With `is_set_up` it must not be empty."""
    return migrations.are_usable(_recorded(connection, is_set_up=is_set_up), expected=heads())


def _recorded(connection: sa.Connection, *, is_set_up: bool = False) -> set[str]:
    """Return the revisions recorded in the database, one per branch. The set is empty for an empty database."""
    versions = sa.table("alembic_version", sa.column("version_num", sa.String))
    if not is_set_up and not sa.inspect(connection).has_table(versions.name):
        return set()
    return set(connection.scalars(sa.select(versions.c.version_num)))


@functools.cache
def heads() -> list[str]:
    """Return the revisions of the schema that this code expects: one for the core, and one for each feature."""
    newest = {migrations.parsed(revision)[0]: revision for revision in sorted(_revisions(), key=migrations.parsed)}
    return sorted(newest.values())


@functools.cache
def _revisions() -> frozenset[str]:
    """Return the revisions named in all migration scripts."""
    scripts = (script.read_text() for folder in _folders() for script in folder.glob("*.py"))
    return frozenset(found[1] for script in scripts if (found := _REVISION.search(script)))


TABLES = (
    tables.Addition.__tablename__,
    tables.ApiKey.__tablename__,
    tables.Certificate.__tablename__,
    tables.Checkpoint.__tablename__,
    tables.Dataset.__tablename__,
    tables.DeletionRequest.__tablename__,
    tables.Erasure.__tablename__,
    tables.InstallationIdentity.__tablename__,
    tables.LedgerEntry.__tablename__,
    tables.LedgerLink.__tablename__,
    tables.Model.__tablename__,
    tables.Record.__tablename__,
    tables.RequestAlias.__tablename__,
    tables.RequestModel.__tablename__,
    tables.Run.__tablename__,
    tables.Tenant.__tablename__,
    tables.Version.__tablename__,
    "alembic_version",
    *sockets.plugs("app.features", "tables", "READ_BY_ACCOUNTING"),
)
"""Tables that `lethe serve-accounting` reads. Stored idempotent responses and request events are not among them."""


def grant(database: Database, role: str) -> None:
    """Grant `role` SELECT on `TABLES`, and revoke its other rights in Lethe's schema.

    Raises `InputInvalid` if the role does not exist, or if the database is SQLite, which has no roles; on SQLite the
    accounting service opens the file read-only.
    """
    dialect = database.engine.dialect
    if dialect.name != "postgresql":
        raise InputInvalid("SQLite has no roles; 'lethe serve-accounting' opens its file read-only.")
    quote = dialect.identifier_preparer.quote
    with database.writing() as session:
        if not session.scalar(sa.text("SELECT count(*) FROM pg_roles WHERE rolname = :role"), {"role": role}):
            raise InputInvalid(
                f"There is no role {role!r}; make it first: CREATE ROLE {quote(role)} LOGIN PASSWORD ..."
            )
        schema = quote(session.scalars(sa.text("SELECT current_schema()")).one())
        for statement in (
            f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {quote(role)}",
            f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA {schema} FROM {quote(role)}",
            f"REVOKE ALL ON SCHEMA {schema} FROM {quote(role)}",
            f"GRANT USAGE ON SCHEMA {schema} TO {quote(role)}",
            f"GRANT SELECT ON {', '.join(f'{schema}.{name}' for name in TABLES)} TO {quote(role)}",
        ):
            session.execute(sa.text(statement))
