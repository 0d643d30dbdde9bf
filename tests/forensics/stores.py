"""Contents of stores, queried in their own language: tables, keys of Redis, answers of the API."""

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import psycopg
import redis
from psycopg import sql

from tests.app.api.routes import NEEDS, OPEN_TO_ALL

Said = tuple[str, bytes]
"""A place and its content."""


def sqlite_tables(path: Path) -> Iterator[Said]:
    """Yield every value in every table of a SQLite database."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        connection.text_factory = bytes
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in tables:
            for row in connection.execute(f'SELECT * FROM "{name.decode()}"'):
                yield f"table {name.decode()}", _written(row)
    connection.close()


def postgres_tables(url: str) -> Iterator[Said]:
    """Yield every value in every table, in the planner's statistics, and in the current or last statement of each
    connection."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('information_schema')"
        ).fetchall()
        names = [*found, ("pg_catalog", "pg_stats"), ("pg_catalog", "pg_stat_activity")]
        for schema, name in names:
            query = sql.SQL("SELECT * FROM {}.{}").format(sql.Identifier(schema), sql.Identifier(name))
            for row in connection.execute(query):
                yield f"table {name}", _written(row)


def redis_keys(port: int) -> Iterator[Said]:
    """Yield every Redis key and its value."""
    with redis.Redis(port=port) as client:
        for key in client.scan_iter():
            yield "key of Redis", key
            yield f"value of {key!r}", b"REDIS" + (client.dump(key) or b"")


def answers(client: httpx.Client, *, subject_id: str) -> Iterator[Said]:
    """Yield the responses to every GET of the API, for all known ids. `subject_id` belongs to another person."""
    known: dict[str, set[str]] = {"subject_id": {subject_id}, "number": {"1", "2", "3"}, "name": {"model.txt"}}
    todo = [route.removeprefix("GET ") for route in (*NEEDS, *sorted(OPEN_TO_ALL)) if route.startswith("GET ")]
    while todo:
        askable = [path for path in todo if known.keys() >= _parameters(path)]
        if not askable:
            raise KeyError(f"No list has told what to fill in: {todo}")
        for path in askable:
            for address in _filled(path, known):
                yield from _pages(client, address, _NAMES.get(path.rsplit("/", 1)[-1], ""), known)
        todo = [path for path in todo if path not in askable]


def _parameters(path: str) -> set[str]:
    return set(re.findall(r"{(\w+)}", path))


def _filled(path: str, known: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the paths that result from filling a template with all known values."""
    addresses = [path]
    for name in _parameters(path):
        addresses = [one.replace(f"{{{name}}}", value) for one in addresses for value in sorted(known[name])]
    return addresses


def _pages(client: httpx.Client, path: str, name: str, known: dict[str, set[str]]) -> Iterator[Said]:
    cursor: dict[str, str] = {}
    while True:
        answer = client.get(path, params=cursor)
        assert answer.status_code < 500, f"{path}: {answer.text}"
        yield f"GET {path}", answer.content + json.dumps(dict(answer.headers)).encode()
        said: Any = answer.json() if _ONE_VALUE.search(answer.headers.get("content-type", "")) else {}
        said = said if isinstance(said, dict) else {}
        items = next((said[key] for key in ("items", "certificates") if key in said), [])
        if name:
            known.setdefault(name, set()).update(str(one["id"]) for one in items)
        if not said.get("next_cursor"):
            return
        cursor = {"cursor": said["next_cursor"]}


_ONE_VALUE = re.compile(r"[/+]json\b")
"""Matches the media type of a single JSON value, not of a ledger's export, which has a value per line."""

_NAMES = {
    "datasets": "dataset_id",
    "additions": "addition_id",
    "models": "model_id",
    "networks": "network_id",
    "rehearsals": "rehearsal_id",
    "users": "user_id",
    "deletion-requests": "request_id",
    "attachments": "attachment_id",
    "certificate": "certificate_id",
    "runs": "run_id",
    "api-keys": "key_id",
    "tenants": "tenant_id",
    "webhook-deliveries": "delivery_id",
    "systems": "system_id",
    "dp-models": "dp_model_id",
    "attested-trainers": "attested_trainer_id",
    "system-tasks": "task_id",
    "training-tables": "table_id",
    "trainers": "trainer_id",
}
"""Parameter in other paths that names an item of each list."""


def _written(row: Iterable[Any]) -> bytes:
    return b"\n".join(
        value if isinstance(value, bytes) else json.dumps(value, default=str, ensure_ascii=False).encode()
        for value in row
    )
