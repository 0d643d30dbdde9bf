import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import installations
from app.access import service as access
from app.config import Settings
from app.db import Actor, Database, sqlite
from app.db.tables import ApiKey
from app.installations import Installation
from lethe.contract.sets import Scope


def files(folder: Path) -> bytes:
    """Return the concatenated bytes of the database, its write-ahead log and its index."""
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()) if ".db" in path.name)


def test_no_file_contains_deleted_or_updated_values(installation: Installation, by: Actor) -> None:
    """After scrubbing, no file contains deleted values or the old values of updated rows, even if another process has
    the database open and has read from it."""
    with installation.database.writing(by=by) as session:
        for name in ("deleted-by-name", "updated-by-name"):
            access.add_key(session, name=name, key=access.new_key(), scopes=[Scope.ADMIN])
    assert b"deleted-by-name" in files(installation.settings.data_dir)
    with installation.database.writing() as session:
        session.execute(sa.delete(ApiKey).where(ApiKey.name == "deleted-by-name"))
        session.execute(sa.update(ApiKey).where(ApiKey.name == "updated-by-name").values(name="somebody"))
    assert b"deleted-by-name" in files(installation.settings.data_dir)  # in the log, so the search works
    with installations.opened(installation.settings, read_only=True) as another:
        with another.database.reading() as session:
            assert session.scalars(sa.select(ApiKey.name).where(ApiKey.name == "somebody")).one()
        installation.database.scrub()
        found = files(installation.settings.data_dir)
    assert b"somebody" in found
    assert b"deleted-by-name" not in found
    assert b"updated-by-name" not in found


def test_a_reader_delays_scrubbing_without_blocking_writers(installation: Installation, by: Actor) -> None:
    """Deleted rows that an open reader may still see are scrubbed only once the reader has ended; in the meantime,
    writers can continue."""
    with installation.database.writing(by=by) as session:
        access.add_key(session, name="seen-by-a-reader", key=access.new_key(), scopes=[Scope.ADMIN])
    with installation.database.reading() as reader:
        assert reader.scalars(sa.select(ApiKey.name).where(ApiKey.name == "seen-by-a-reader")).one()
        with installation.database.writing() as session:
            session.execute(sa.delete(ApiKey).where(ApiKey.name == "seen-by-a-reader"))
        assert not sqlite.scrub(installation.database.engine)
        assert b"seen-by-a-reader" in files(installation.settings.data_dir)
        with installation.database.writing(by=by) as session:
            access.add_key(session, name="written-meanwhile", key=access.new_key(), scopes=[Scope.ADMIN])
        assert reader.scalars(sa.select(ApiKey.name).where(ApiKey.name == "seen-by-a-reader")).one()
    assert sqlite.scrub(installation.database.engine)
    assert b"seen-by-a-reader" not in files(installation.settings.data_dir)
    assert b"written-meanwhile" in files(installation.settings.data_dir)


_RENAME = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as connection:
    connection.execute("UPDATE api_keys SET name = 'second'")
"""


def test_a_question_is_repeated_only_after_a_commit_or_scrub(
    installation: Installation, settings: Settings, by: Actor
) -> None:
    """A question answered with no is not asked again until this process or another one commits, or until its arguments
    change. Scrubbing repeats it, too, so that a file that was replaced in place is noticed; reading does not."""
    asked: list[str] = []

    def is_any(session: Session, *, name: str) -> bool:
        asked.append(name)
        return bool(session.scalar(sa.select(sa.exists().where(ApiKey.name == name))))

    database = installation.database
    database.scrub()
    for name in ("first", "first", "second", "second"):
        assert database.is_ruled_out(is_any, name=name)
    with database.reading() as session:
        session.scalars(sa.select(ApiKey)).all()
    assert database.is_ruled_out(is_any, name="second")
    assert asked == ["first", "second"]
    database.scrub()
    for _ in range(2):
        assert database.is_ruled_out(is_any, name="second")
    assert asked == ["first", "second", "second"]
    with database.writing(by=by) as session:
        access.add_key(session, name="third", key=access.new_key(), scopes=[Scope.ADMIN])
    assert database.is_ruled_out(is_any, name="second")
    subprocess.run([sys.executable, "-c", _RENAME, str(settings.data_dir / "lethe.db")], check=True)
    assert not database.is_ruled_out(is_any, name="second")
    assert not database.is_ruled_out(is_any, name="second")
    assert asked == ["first", "second", "second", "second", "second"]


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'new.db'}")
    yield database
    database.close()


def test_sqlite_is_configured_for_durability(closed: Database) -> None:
    """A new database syncs every commit, overwrites deleted content, writes no temporary files, and lets readers
    continue during a write."""
    with closed.engine.connect() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "secure_delete", "temp_store")
        }
    assert settings == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "secure_delete": 1,
        "temp_store": 2,
    }


def test_concurrent_first_opens_succeed(tmp_path: Path) -> None:
    """If several processes open a new database at the same time, they wait for each other, and none of them finds the
    database locked."""
    together = threading.Barrier(4)
    for number in range(20):
        engines = [sqlite.engine(sa.make_url(f"sqlite:///{tmp_path}/{number}.db"), read_only=False) for _ in range(4)]

        def journal(engine: sa.Engine) -> Any:
            together.wait()
            with engine.begin() as connection:
                return connection.exec_driver_sql("PRAGMA journal_mode").scalar()

        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(journal, engines)) == ["wal"] * 4
        for engine in engines:
            engine.dispose()


def test_vacuuming_clears_unused_space(closed: Database, tmp_path: Path) -> None:
    """Vacuuming removes the copies that inserts, updates and deletes have left in the unused space of pages. This works
    for rows of any size, and live rows are kept."""
    draw = random.Random(3)
    live: set[str] = set()
    with closed.writing() as session:
        session.execute(sa.text("CREATE TABLE held (id TEXT PRIMARY KEY, content TEXT)"))
    for _ in range(60):
        with closed.writing() as session:
            for _ in range(draw.randrange(1, 80)):
                person = f"p{draw.randrange(16**12):012x}"
                row = {"id": person, "content": f"PLANT{person}" * draw.choice([1, 2, 5, 60])}
                session.execute(sa.text("INSERT INTO held VALUES (:id, :content)"), row)
                live.add(person)
        with closed.writing() as session:
            for person in draw.sample(sorted(live), min(len(live), draw.randrange(1, 80))):
                change = draw.choice(["DELETE FROM held", "UPDATE held SET content = NULL"])
                session.execute(sa.text(f"{change} WHERE id = :id"), {"id": person})
                live.remove(person)

    def found() -> set[str]:
        return {match.decode() for match in re.findall(rb"PLANT(p[0-9a-f]{12})", files(tmp_path))}

    assert sqlite.scrub(closed.engine)
    assert found() > live  # secure_delete leaves these bytes
    closed.scrub()
    assert found() == live
    assert (tmp_path / "new.db-wal").stat().st_size == 0


def test_the_file_is_rewritten_once_an_hour(closed: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a rewrite is requested, the database file is rewritten at most once an hour. If the clock has
    jumped back, it is rewritten at once."""
    began = time.time()

    def done(seconds: float) -> bool:
        monkeypatch.setattr(time, "time", lambda: began + seconds)
        return sqlite.rewrite(closed.engine)

    at = (0, 60, 3500, 3660, 3700, 100_000, -900_000, -899_000)
    assert [done(seconds) for seconds in at] == [True, False, False, True, False, True, True, False]


def test_another_connection_does_not_remove_the_log(installation: Installation) -> None:
    """While this process has the database open, the write-ahead log is not removed when another process opens and
    closes the database. This holds even if this process opens and closes further connections."""
    log = installation.settings.data_dir / "lethe.db-wal"
    come_and_go = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM tenants'); c.close()"
    with installation.database.reading() as session:
        session.execute(sa.text("SELECT 1"))
        with installations.opened(installation.settings) as again, again.database.writing() as other:
            other.execute(sa.text("UPDATE tenants SET name = name"))
        assert log.exists()
        subprocess.run([sys.executable, "-c", come_and_go, installation.settings.data_dir / "lethe.db"], check=True)
        assert log.exists()
