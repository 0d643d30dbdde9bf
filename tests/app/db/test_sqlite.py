from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.access import service as access
from app.access.service import Scope
from app.db import Database
from app.db.tables import ApiKey
from app.installation import Installation


def test_what_is_deleted_is_overwritten(at: Installation) -> None:
    """Deleted rows do not linger in the pages of the database file."""
    with at.database.writing() as session:
        access.add_key(session, name="somebody-by-name", key=access.new_key(), scopes=[Scope.ADMIN])
    with at.database.writing() as session:
        session.execute(sa.delete(ApiKey).where(ApiKey.name == "somebody-by-name"))
    with at.database.engine.connect() as connection:
        connection.commit()
        connection.connection.driver_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[union-attr]
    files = [path for path in at.settings.data_dir.iterdir() if path.name.startswith("lethe.db")]
    assert files
    assert not any(b"somebody-by-name" in path.read_bytes() for path in files)


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'new.db'}")
    yield database
    database.close()


def test_sqlite_loses_nothing(closed: Database) -> None:
    """A new database syncs every commit, overwrites what is deleted, and lets readers go on while somebody writes."""
    with closed.engine.connect() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "secure_delete")
        }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "secure_delete": 1}
