"""Bring a database to the present schema: `upgrade` is what `lethe migrate` and every start of `lethe up` run."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

import migrations


def _config(connection: sa.Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["connection"] = connection
    return config


def upgrade(engine: sa.Engine, revision: str = "head") -> None:
    """Migrate up to `revision`, in one transaction. Processes that do it at once take turns."""
    with _alone(engine).begin() as connection:
        command.upgrade(_config(connection), revision)


def downgrade(engine: sa.Engine, revision: str = "base") -> None:
    """Migrate down to `revision`, in one transaction. What only the newer schema holds is lost."""
    with _alone(engine).begin() as connection:
        command.downgrade(_config(connection), revision)


def _alone(engine: sa.Engine) -> sa.Engine:
    return engine.execution_options(lethe_migrating=True)


def is_current(engine: sa.Engine) -> bool:
    """Whether the database has the schema that this code expects."""
    with engine.connect().execution_options(lethe_read_only=True) as connection:
        at = MigrationContext.configure(connection).get_current_heads()
    return set(at) == set(heads())


def heads() -> list[str]:
    """The revision of the schema that this code expects."""
    return sorted(ScriptDirectory.from_config(_config()).get_heads())
