"""Schema migrations: `lethe migrate` and every start of `lethe up` run `upgrade`."""

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

import migrations
from app.db import tables
from app.db.session import Database
from app.errors import DatabaseUnreadable
from lethe import sockets
from lethe.contract.problems import InputInvalid

_CORE = "core"


def _config(connection: sa.Connection | None = None) -> Config:
    """Return Alembic's configuration: a branch of migrations for the core, and one for each feature with tables."""
    core, features = Path(migrations.__file__).parent, [Path(module.__file__ or "").parent for module in _of_features()]
    places = [core / "versions", *(feature / "migrations" for feature in features)]
    config = Config()
    config.set_main_option("script_location", str(core))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", "\n".join(str(place) for place in places if place.is_dir()))
    config.attributes["connection"] = connection
    return config


def _of_features() -> tuple[ModuleType, ...]:
    """Return the modules that declare the tables of features, each after the modules that it refers to."""
    return sockets.modules("app.features", "tables")


def _branches() -> list[str]:
    """Return the branches of the installed migrations, each after those whose tables it refers to."""
    return [_CORE, *(module.__name__.split(".")[-2] for module in _of_features())]


def check(engine: sa.Engine) -> None:
    """Raise `DatabaseUnreadable` unless the database is empty or has a schema of this version of Lethe."""
    with engine.connect().execution_options(lethe_read_only=True) as connection:
        check_connection(connection)


def check_connection(connection: sa.Connection) -> None:
    """Check the database of `connection` as `check` does."""
    revisions = {script.revision for script in _scripts().walk_revisions()}
    unknown = set(MigrationContext.configure(connection).get_current_heads()) - revisions
    if unknown:
        raise DatabaseUnreadable(
            f"The database is of another version of Lethe (schema {', '.join(sorted(unknown))}), which this version "
            "does not support: run the version that made it, or begin with an empty database and data folder."
        )


def upgrade(engine: sa.Engine, *, then: Callable[[sa.Connection], None] = lambda connection: None) -> None:
    """Migrate to the newest schema and call `then` in the same transaction. Concurrent migrations wait for each other.

    Raises `DatabaseUnreadable` as `check` does.
    """
    check(engine)
    with _alone(engine).begin() as connection:
        if not is_current_there(connection):
            for branch in _branches():
                command.upgrade(_config(connection), f"{branch}@head")
        then(connection)


def downgrade(engine: sa.Engine) -> None:
    """Drop all tables in one transaction. Raises `DatabaseUnreadable` as `check` does."""
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
    return set(MigrationContext.configure(connection).get_current_heads()) == set(heads())


def is_usable_there(connection: sa.Connection) -> bool:
    """Return True if the database of `connection` has the schema that this code expects, or a newer one whose
    migrations state that this code can go on with it."""
    return migrations.are_usable(MigrationContext.configure(connection).get_current_heads(), expected=heads())


@functools.cache
def heads() -> list[str]:
    """Return the revisions of the schema that this code expects: one of the core, and one of each feature."""
    return sorted(_scripts().get_heads())


@functools.cache
def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


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
"""Tables that `lethe serve-accounting` reads: neither idempotent answers nor events of requests."""


def grant(database: Database, role: str) -> None:
    """Grant `role` SELECT on `TABLES`, and revoke its other rights in Lethe's schema.

    Raises `InputInvalid` if the role does not exist, or the database is SQLite, which has no roles: there the
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
