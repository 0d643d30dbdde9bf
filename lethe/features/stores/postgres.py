"""PostgreSQL tables with pgvector vectors.

A deletion leaves dead tuples in the table and its indices, and all data ever written in the write-ahead log; ANALYZE
copies values into the statistics. The adapter rewrites the table and the statistics, and makes the server remove old
log segments. It requires a superuser, and must run where the server's files can be read.
"""

import contextlib
import json
import secrets
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from psycopg import sql

from lethe.features.stores import needles, store

TESTED_SERVERS, TESTED = ("16",), "0.8."
LOCK_TIMEOUT = "10s"
_MAX_SEGMENTS = 4096
_VECTORS = ("vector", "halfvec")
_TEXTS = ("text", "character varying", "character", "uuid", "json", "jsonb")

_LATER_SEGMENTS = """
SELECT count(*) FROM pg_ls_waldir() WHERE length(name) = 24 AND name > pg_walfile_name(pg_current_wal_insert_lsn())
"""
_ELSEWHERE = """
SELECT EXISTS (
    SELECT 1 FROM pg_class c WHERE c.reltablespace != 0 AND (
        c.oid = to_regclass(%s)
        OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = to_regclass(%s))
    )
) OR (SELECT spcname != 'pg_default' FROM pg_tablespace t JOIN pg_database d ON d.dattablespace = t.oid
      WHERE d.datname = current_database())
"""


class PGVector:
    """Table named `schema.table`. `identifier` is the column that names the person, `record_id` the id column."""

    kind = "pgvector"
    method = "The rows were deleted, table, indices and statistics rewritten, and segments of the log removed."

    def __init__(self, url: str, *, table: str, identifier: str, record_id: str) -> None:
        self._url, self._identifier, self._id = url, identifier, record_id
        self._schema, _, self._name = table.rpartition(".")
        self._session: Any = None

    def version(self) -> str:
        with self._connected() as connection:
            server = connection.execute("SHOW server_version").fetchone()[0].split()[0]
            row = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
            if row is None:
                raise store.StoreError("store_unsupported", "The database has no extension vector")
        if server.split(".")[0] not in TESTED_SERVERS or not row[0].startswith(TESTED):
            raise store.StoreError("store_version_untested", f"Found PostgreSQL {server} with pgvector {row[0]}")
        return f"{server} with pgvector {row[0]}"

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:

        try:
            with psycopg.connect(self._url, autocommit=True, application_name="lethe store") as connection:
                connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
                yield connection
        except psycopg.errors.LockNotAvailable:
            raise store.StoreError("store_in_use", "The table is locked by another session; try again") from None
        except psycopg.Error as error:
            # The message may quote rows.
            raise store.StoreError("store_failed", f"PostgreSQL answered {type(error).__name__}") from None

    @property
    def _table(self) -> Any:

        return sql.Identifier(*filter(None, (self._schema, self._name)))

    def _sql(self, text: str) -> Any:

        names = {"table": self._table, "identifier": sql.Identifier(self._identifier)}
        return sql.SQL(text).format(**names)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        with self._connected() as connection:
            if not connection.execute("SELECT pg_try_advisory_lock(hashtext('lethe store'))").fetchone()[0]:
                raise store.StoreError("store_in_use", "Another run of lethe store works on the database")
            if not connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()[0]:
                raise store.StoreError(
                    "store_not_readable", "Expected a superuser, who may rewrite statistics and the log"
                )
            columns = {name: kind for name, kind, _ in self._columns(connection)}
            if missing := {self._identifier, self._id} - columns.keys():
                raise store.StoreError(
                    "identifier_missing", f"The table has {len(missing)} of the configured columns less"
                )
            if connection.execute(_ELSEWHERE, [self._table.as_string(connection)] * 2).fetchone()[0]:
                raise store.StoreError("store_unsupported", "The table lies in a tablespace of its own")
            self._session = connection
            yield
            # A server may notice only later that a connection was closed.
            connection.execute("SELECT pg_advisory_unlock_all()")

    def _columns(self, connection: Any) -> list[tuple[str, str, bool]]:
        """Return the name and type of each stored column, and whether the server generates its values."""
        rows = connection.execute(
            "SELECT attname, format_type(atttypid, NULL), attgenerated != '' OR attidentity != '' FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [self._table.as_string(connection)],
        )
        return [tuple(row) for row in rows]

    def find(self, identifier: str) -> list[needles.StoreRecord]:
        return self._select("WHERE {identifier}::text = %s", [identifier])

    def _select(self, condition: str, arguments: list[Any]) -> list[needles.StoreRecord]:

        columns = [(name, kind) for name, kind, _ in self._columns(self._session) if kind in (*_VECTORS, *_TEXTS)]
        listed = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name, _ in columns)
        query = sql.SQL("SELECT {} FROM {} ").format(listed or sql.SQL("NULL"), self._table)
        kinds = [kind for _, kind in columns]
        return [
            needles.StoreRecord(
                id=None,
                vectors=tuple(
                    np.array(value.strip("[]").split(","), dtype=np.float64)
                    for kind, value in zip(kinds, row, strict=False)
                    if value is not None and kind in _VECTORS
                ),
                texts=tuple(
                    text
                    for kind, value in zip(kinds, row, strict=False)
                    if value is not None and kind in _TEXTS
                    for text in _texts(value, kind)
                ),
            )
            for row in self._session.execute(query + self._sql(condition), arguments)
        ]

    def plant(self, identifier: str) -> None:

        names: list[Any] = []
        values: list[Any] = []
        template = self._sql("SELECT * FROM {table} LIMIT 1")
        for name, kind, is_filled in self._columns(self._session):
            if is_filled:
                continue
            column = sql.Identifier(name)
            names.append(column)
            if name == self._identifier:
                values.append(sql.SQL("{}").format(sql.Literal(identifier)))
            elif kind in _VECTORS:
                values.append(
                    sql.SQL("(SELECT array_agg(random() - 0.5) FROM generate_series(1, vector_dims({c})))::{k}").format(
                        c=column, k=sql.SQL(kind)
                    )
                )
            elif kind == "uuid":
                values.append(sql.SQL("gen_random_uuid()"))
            elif kind in _TEXTS[:2]:
                values.append(sql.Literal(f"{store.CONTROL}{secrets.token_hex(24)}"))
            elif name == self._id:
                values.append(sql.SQL("(SELECT max({c}) + 1 FROM {t})").format(c=column, t=self._table))
            else:
                values.append(column)
        insert = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM ({}) AS template").format(
            self._table, sql.SQL(", ").join(names), sql.SQL(", ").join(values), template
        )
        try:
            planted = self._session.execute(insert).rowcount
        except psycopg.Error:
            planted = 0
        if planted != 1:
            raise store.StoreError("control_not_planted", "The table takes no row of a made-up person")

    def erase(self, identifiers: Sequence[str]) -> None:
        session = self._session
        session.execute(self._sql("DELETE FROM {table} WHERE {identifier}::text = ANY(%s)"), [list(identifiers)])
        session.execute(self._sql("VACUUM (FULL, ANALYZE) {table}"))
        session.execute("VACUUM FULL pg_catalog.pg_statistic")
        self._drop_log()

    def _drop_log(self) -> None:
        """Make the server remove all log segments except the current one, including segments kept for reuse."""
        session = self._session
        before = session.execute("SHOW wal_recycle").fetchone()[0]
        session.execute("ALTER SYSTEM SET wal_recycle = off")
        try:
            session.execute("SELECT pg_reload_conf()")
            is_last = False
            for _ in range(_MAX_SEGMENTS):
                session.execute("SELECT pg_create_restore_point('lethe store'), pg_switch_wal()")
                session.execute("CHECKPOINT")
                # A segment that was kept for reuse has its old content behind what is written to it. A new one is made
                # by a switch only if there was none to reuse.
                was_last, is_last = is_last, not session.execute(_LATER_SEGMENTS).fetchone()[0]
                if was_last and is_last:
                    break
        finally:
            session.execute(
                "ALTER SYSTEM RESET wal_recycle" if before == "on" else "ALTER SYSTEM SET wal_recycle = off"
            )
            session.execute("SELECT pg_reload_conf()")

    def files(self) -> list[store.StoreFile]:
        session = self._session
        session.execute("CHECKPOINT")
        folder = Path(session.execute("SHOW data_directory").fetchone()[0])
        database = session.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchone()[0]
        try:
            with (folder / "global" / "pg_control").open("rb"):
                pass
            others = {d.name for d in (folder / "base").iterdir() if d.name not in (str(database), "pgsql_tmp")}
            paths = [
                path
                for top in sorted(folder.iterdir())
                for path in ([top] if top.is_file() else sorted(top.rglob("*")))
                if path.is_file() and not (top.name == "base" and path.relative_to(top).parts[0] in others)
            ]
        except OSError:
            raise store.StoreError(
                "store_not_readable", "Run lethe store where and as who can read the server's files"
            ) from None
        return [store.StoreFile(path=path, name=path.relative_to(folder).as_posix()) for path in paths]

    def live(self) -> Iterator[needles.StoreRecord]:
        yield from self._select("", [])


def _texts(value: str, kind: str) -> Iterator[str | bytes]:
    """Yield the texts in a value as the server stores them."""
    if kind == "uuid":
        yield uuid.UUID(value).bytes
    elif kind == "jsonb":
        pending = [json.loads(value)]
        while pending:
            value = pending.pop()
            if isinstance(value, str):
                yield value
            elif isinstance(value, dict | list):
                pending += value.values() if isinstance(value, dict) else value
    else:
        yield value
