"""Bring a database to the present schema: `upgrade` is what `lethe migrate` and every start of `lethe up` run."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

import migrations
from app.errors import DatabaseUnreadable

_OF_A_RELEASE = "audit_entries"
"""A table that every released schema has. Those from before used the same numbers."""


class Schema(StrEnum):
    """The kinds of content of a database, as far as this release knows them."""

    NOTHING = "nothing"
    OLDER = "older"
    CURRENT = "current"


def _config(connection: sa.Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["connection"] = connection
    return config


def schema(engine: sa.Engine) -> Schema:
    """The content of the database. Raises `DatabaseUnreadable` for what this release cannot bring up to date."""
    with engine.connect().execution_options(lethe_read_only=True) as connection:
        return schema_there(connection)


def schema_there(connection: sa.Connection) -> Schema:
    """The same, of a connection."""
    at = set(MigrationContext.configure(connection).get_current_heads())
    is_released = sa.inspect(connection).has_table(_OF_A_RELEASE)
    if not at:
        return Schema.NOTHING
    if not is_released:
        raise DatabaseUnreadable(
            f"The database is from before the first release of Lethe (schema {', '.join(sorted(at))}) and cannot be "
            "upgraded; export what you need with the code that made it, and begin with an empty database."
        )
    if at - {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}:
        raise DatabaseUnreadable(
            f"The database is of a newer release of Lethe (schema {', '.join(sorted(at))}); run that one."
        )
    return Schema.CURRENT if at == set(heads()) else Schema.OLDER


def upgrade(
    engine: sa.Engine, revision: str = "head", *, then: Callable[[sa.Connection], None] = lambda connection: None
) -> None:
    """Migrate up to `revision`, and do what comes `then`, in one transaction. Processes that do it at once wait for
    each other.

    Raises `DatabaseUnreadable` as `schema`.
    """
    schema(engine)
    with _alone(engine).begin() as connection:
        command.upgrade(_config(connection), revision)
        then(connection)


def downgrade(engine: sa.Engine, revision: str = "base") -> None:
    """Migrate down to `revision`, in one transaction. What only the newer schema holds is lost. Raises as `schema`."""
    schema(engine)
    with _alone(engine).begin() as connection:
        command.downgrade(_config(connection), revision)


def _alone(engine: sa.Engine) -> sa.Engine:
    return engine.execution_options(lethe_migrating=True)


def is_current(engine: sa.Engine) -> bool:
    """Return True if the database has the schema that this code expects."""
    with engine.connect().execution_options(lethe_read_only=True) as connection:
        return is_current_there(connection)


def is_current_there(connection: sa.Connection) -> bool:
    """The same, of a connection."""
    return set(MigrationContext.configure(connection).get_current_heads()) == set(heads())


def heads() -> list[str]:
    """The revision of the schema that this code expects."""
    return sorted(ScriptDirectory.from_config(_config()).get_heads())
