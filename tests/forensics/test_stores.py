"""Content planted in a real store is found, even after the store deleted it, which only forgets its place."""

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from tests.forensics import forms, person, search, servers, stores
from tests.forensics.finder import Finder
from tests.postgres.server import Server

SOMEBODY = person.new()
FINDER = Finder(SOMEBODY.patterns())
ROW = SOMEBODY.encoded()[0].tobytes()
SAID = f'{{"subject": "{SOMEBODY.subject_id}", "note": "{SOMEBODY.note}"}}'


def _kinds(residue: search.Residue) -> set[str]:
    """Return the kinds of the patterns found: `subject id`, `ignored column`, `row`."""
    names = {name.split(",")[0] for found in residue.values() for name in found}
    return {"row" if " row " in name else name for name in names}


@contextlib.contextmanager
def sqlite(path: Path, **pragmas: str) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for name, value in ({"journal_mode": "wal", "secure_delete": "off"} | pragmas).items():
            connection.execute(f"PRAGMA {name} = {value}")
        connection.execute("CREATE TABLE IF NOT EXISTS things (id INTEGER PRIMARY KEY, said TEXT, content BLOB)")
        yield connection
    finally:
        connection.close()


def test_sqlite_is_searched(tmp_path: Path) -> None:
    """The content of a SQLite table is found in the write-ahead log, later in the database file, and by querying the
    table."""
    with sqlite(tmp_path / "a.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("INSERT INTO things VALUES (1, ?, ?)", (SAID, ROW))
        residue = search.folders([tmp_path], FINDER)
        assert {Path(place).name for place in residue} == {"a.db-wal"}
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        residue = search.folders([tmp_path], FINDER)
        assert {Path(place).name for place in residue} == {"a.db"}
        assert _kinds(residue) == {"subject id", "ignored column", "row"}
        said = search.texts(stores.sqlite_tables(tmp_path / "a.db"), FINDER)
        assert _kinds(said) == _kinds(residue)


@pytest.mark.parametrize("change", ["DELETE FROM things", "UPDATE things SET said = NULL, content = NULL"])
def test_deleted_sqlite_content_is_found(tmp_path: Path, change: str) -> None:
    """Without secure_delete, content that SQLite has deleted is found in the database file although it is in no table.
    With secure_delete it is found only in the log."""
    for secure, left in (("off", {"a.db"}), ("on", set())):
        folder = tmp_path / secure
        folder.mkdir()
        with sqlite(folder / "a.db", secure_delete=secure) as connection:
            connection.execute("INSERT INTO things VALUES (1, ?, ?)", (SAID, ROW))
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute(change)
            assert search.texts(stores.sqlite_tables(folder / "a.db"), FINDER) == {}
            assert search.folders([folder], FINDER)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            residue = search.folders([folder], FINDER)
        assert {Path(place).name for place in residue} == left


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    with servers.postgres() as server:
        yield server


@pytest.fixture
def connection(postgres: Server) -> Iterator[psycopg.Connection]:
    """Open a connection to a new database."""
    with postgres.database() as name, psycopg.connect(postgres.url(name), autocommit=True) as connection:
        yield connection


REPETITIVE = "so it goes, " * 400
NOISE = os.urandom(9000)
IN_POSTGRES: dict[str, tuple[str, str, Callable[[str], str | bytes]]] = {
    "text": ("text", "EXTENDED", lambda text: text),
    "JSON": ("json", "EXTENDED", lambda text: json.dumps({"note": text})),
    "bytes": ("bytea", "EXTENDED", lambda text: text.encode()),
    "compressed text": ("text", "EXTENDED", lambda text: REPETITIVE + text + REPETITIVE),
    "compressed bytes": ("bytea", "EXTENDED", lambda text: REPETITIVE.encode() + text.encode()),
    "compressed text, elsewhere": ("text", "EXTENDED", lambda text: REPETITIVE + text + NOISE.hex() * 2),
    "bytes, elsewhere": ("bytea", "EXTERNAL", lambda text: NOISE + text.encode() + NOISE),
}
"""Type and storage of a column, and the form of its content."""


@pytest.mark.postgres
def test_postgres_is_searched(postgres: Server, connection: psycopg.Connection) -> None:
    """The content of a PostgreSQL tuple, compressed or not, is found in the table's file, in the write-ahead log, in
    the server's log and by querying the table. After deletion it is still found everywhere except by querying."""
    people = {way: person.new().subject_id for way in IN_POSTGRES}
    for number, (way, (kind, storage, written)) in enumerate(IN_POSTGRES.items()):
        connection.execute(f"CREATE TABLE things{number} (id int PRIMARY KEY, thing {kind})")
        connection.execute(f"ALTER TABLE things{number} ALTER thing SET STORAGE {storage}")
        connection.execute(f"INSERT INTO things{number} VALUES (1, %s)", (written(people[way]),))
    url = postgres.url(connection.info.dbname)
    patterns = {way: forms.of_text("subject id", text) for way, text in people.items()}
    finder = Finder({f"{way}: {name}": one for way, found in patterns.items() for name, one in found.items()})

    def ways(residue: search.Residue, where: str = "") -> set[str]:
        return {name.split(":")[0] for place, found in residue.items() if where in place for name in found}

    assert ways(search.texts(stores.postgres_tables(url), finder)) == set(people)
    for number in range(len(people)):
        connection.execute(f"DELETE FROM things{number}")
    connection.execute("CHECKPOINT")
    residue = search.folders([postgres.folder], finder)
    for where in ("data/base", "data/pg_wal", f"{postgres.folder}/log"):
        assert ways(residue, where) == set(people), where
    assert not ways(search.texts(stores.postgres_tables(url), finder))


@pytest.mark.postgres
def test_planner_statistics_are_searched(postgres: Server, connection: psycopg.Connection) -> None:
    """The search covers the planner statistics that PostgreSQL keeps about a column, even if the table is empty."""
    connection.execute("CREATE TABLE things (thing text)")
    for _ in range(9):
        connection.execute("INSERT INTO things VALUES (%s)", (SOMEBODY.note,))
    connection.execute("ANALYZE things")
    connection.execute("DELETE FROM things")
    assert list(search.texts(stores.postgres_tables(postgres.url(connection.info.dbname)), FINDER)) == [
        "table pg_statistic",
        "table pg_stats",
    ]


@pytest.mark.postgres
def test_compressed_page_images_are_searched(postgres: Server, connection: psycopg.Connection) -> None:
    """A person is found in a compressed page image in the write-ahead log."""
    connection.execute("CREATE TABLE things (id int PRIMARY KEY, thing text)")
    connection.execute("INSERT INTO things SELECT n, 'so it goes' FROM generate_series(1, 50) n")
    connection.execute("INSERT INTO things VALUES (99, %s)", (SOMEBODY.subject_id,))
    connection.execute("SELECT pg_switch_wal()")
    connection.execute("CHECKPOINT")
    connection.execute("UPDATE things SET thing = 'poo-tee-weet' WHERE id = 1")
    row = connection.execute("SELECT pg_walfile_name(pg_current_wal_lsn())").fetchone()
    assert row
    assert search.folders([postgres.folder / "data" / "pg_wal" / row[0]], FINDER)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[servers.Redis]:
    server = servers.Redis(tmp_path)
    server.keep()
    yield server
    server.kill()


@pytest.mark.redis
@pytest.mark.parametrize("where", ["value", "compressed value", "key", "list"])
def test_redis_is_searched(broker: servers.Redis, tmp_path: Path, where: str) -> None:
    """Redis content is found in the dump and in the log, compressed or not, and after deletion only in the log."""
    with redis.Redis(port=broker.port) as client:
        match where:
            case "value":
                client.set("thing", SAID)
            case "compressed value":
                client.set("thing", REPETITIVE + SAID + REPETITIVE)
            case "key":
                client.set(SAID, "thing")
            case "list":
                client.lpush("celery", *[SAID] * 20)
        broker.dump()
        residue = search.folders([tmp_path], FINDER)
        assert {Path(place.split(",")[0]).suffix for place in residue} == {".rdb", ".aof"}
        assert search.texts(stores.redis_keys(broker.port), FINDER)
        client.flushall()
        broker.dump()
        assert not search.texts(stores.redis_keys(broker.port), FINDER)
    assert {Path(place.split(",")[0]).suffix for place in search.folders([tmp_path], FINDER)} == {".aof"}
