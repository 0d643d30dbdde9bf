from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy.exc import IntegrityError

from app.db import Database, migrate
from app.db.tables import Table
from app.installation import Installation


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A database in which there is nothing yet."""
    database = Database(f"sqlite:///{tmp_path / 'new.db'}")
    yield database
    database.close()


def tables(database: Database) -> set[str]:
    return set(sa.inspect(database.engine).get_table_names()) - {"alembic_version"}


def test_up_and_down_and_up(database: Database) -> None:
    """Migrations make the whole schema, undo it without a trace, and make it again; only the newest is current."""
    assert not migrate.is_current(database.engine)
    for _ in range(2):
        migrate.upgrade(database.engine)
        assert migrate.is_current(database.engine)
        assert tables(database) == set(Table.metadata.tables)
        migrate.downgrade(database.engine)
        assert not migrate.is_current(database.engine)
        assert tables(database) == set()


def test_an_upgrade_of_what_is_current_changes_nothing(at: Installation) -> None:
    """Every start migrates; where there is nothing to do, nothing is done to the data."""
    with at.database.reading() as session:
        before = session.execute(sa.text("SELECT * FROM api_keys")).all()
    migrate.upgrade(at.database.engine)
    with at.database.reading() as session:
        assert session.execute(sa.text("SELECT * FROM api_keys")).all() == before


def test_the_tables_are_what_the_migrations_make(database: Database) -> None:
    """The schema in `tables.py` and the migrated one do not differ."""
    migrate.upgrade(database.engine)
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Table.metadata) == []


@pytest.mark.parametrize("statement", ["UPDATE ledger_entries SET body = ''", "DELETE FROM ledger_entries"])
def test_the_ledger_is_append_only(database: Database, statement: str) -> None:
    """The database itself refuses to change or remove a ledger entry."""
    migrate.upgrade(database.engine)
    with database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        connection.exec_driver_sql("INSERT INTO ledger_entries VALUES ('mdl_1', 1, '{}', '', '')")
        with pytest.raises(IntegrityError, match="append-only"):
            connection.exec_driver_sql(statement)
