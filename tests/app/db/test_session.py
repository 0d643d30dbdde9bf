import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import StatementError

from app.access import service as access
from app.access.service import Scope
from app.db import Database, now
from app.db.tables import ApiKey
from app.installation import Installation


@pytest.fixture
def database(at: Installation) -> Database:
    return at.database


def names(database: Database) -> list[str]:
    with database.reading() as session:
        return sorted(session.scalars(sa.select(ApiKey.name)))


def add(database: Database, name: str) -> None:
    with database.writing() as session:
        access.add_key(session, name=name, key=access.new_key(), scopes=[Scope.ADMIN])


def test_a_writing_session_is_committed(database: Database) -> None:
    """What is written is there for everybody when the block has ended."""
    add(database, "a")
    assert names(database) == ["a", "admin"]


def test_a_writing_session_that_raises_changes_nothing(database: Database) -> None:
    """A block that raises leaves the database as it was."""

    def fail_half_way() -> None:
        with database.writing() as session:
            access.add_key(session, name="a", key="k", scopes=[])
            session.flush()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert names(database) == ["admin"]


def test_a_reading_session_changes_nothing(database: Database) -> None:
    """What a reading session changed by mistake is gone when its block ends."""
    with database.reading() as session:
        session.execute(sa.delete(ApiKey))
    assert names(database) == ["admin"]


def test_a_reading_session_sees_one_moment(database: Database) -> None:
    """A reading session does not see what is committed while it is open, nor does it keep anybody from committing."""
    with database.reading() as session:
        before = session.scalars(sa.select(sa.func.count()).select_from(ApiKey)).one()
        add(database, "a")
        assert session.scalars(sa.select(sa.func.count()).select_from(ApiKey)).one() == before
    assert len(names(database)) == before + 1


def test_writers_queue_up(database: Database) -> None:
    """Of eight threads that read and then write what they read, none fails and none overwrites another."""
    start = threading.Barrier(8)

    def count_up(_thread: int) -> None:
        start.wait()
        for _ in range(5):
            with database.writing() as session:
                admin = session.scalars(sa.select(ApiKey).where(ApiKey.key_hash != "")).one()
                admin.name = str(int(admin.name) + 1)

    with database.writing() as session:
        session.scalars(sa.select(ApiKey)).one().name = "0"
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(count_up, range(8)))
    assert names(database) == ["40"]


def test_foreign_keys_hold(database: Database) -> None:
    """A row cannot refer to one that is not there."""
    with pytest.raises(sa.exc.IntegrityError), database.writing() as session:
        session.execute(
            sa.text("INSERT INTO records (dataset_id, slot, subject_ref, erasure_id) VALUES ('ds_0', 0, NULL, NULL)")
        )


def test_errors_do_not_quote_values(database: Database) -> None:
    """The text of a database error, which may end in a log, does not repeat the values of the statement."""
    with pytest.raises(StatementError) as caught, database.writing() as session:
        session.execute(sa.text("INSERT INTO nowhere VALUES (:subject)"), {"subject": "somebody-by-name"})
    assert "somebody-by-name" not in str(caught.value)


def test_the_clock_is_aware_and_never_goes_back(database: Database) -> None:
    """The database's clock gives aware times in UTC, one transaction after another."""
    moments = []
    for _ in range(3):
        with database.reading() as session:
            moments.append(now(session))
    assert moments == sorted(moments)
    assert all(moment.utcoffset() is not None and not moment.utcoffset() for moment in moments)
