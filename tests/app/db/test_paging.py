import base64
import contextlib
import datetime
import json
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from hypothesis import given, strategies as st
from sqlalchemy.orm import Session

from app.db.bulk import page
from app.db.tables import ApiKey, Tenant
from lethe.contract.problems import InputInvalid
from tests.postgres.server import Server

MOMENTS = st.datetimes(
    min_value=datetime.datetime(2026, 1, 1),  # noqa: DTZ001  made aware below
    max_value=datetime.datetime(2026, 1, 1, 0, 0, 0, 3),  # noqa: DTZ001  so that ties are common
    timezones=st.sampled_from([datetime.UTC, datetime.timezone(datetime.timedelta(hours=2))]),
)


@pytest.fixture(scope="module")
def engine(kind: str, request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    with contextlib.ExitStack() as stack:
        url = "sqlite://"
        if kind == "postgresql":
            server: Server = request.getfixturevalue("postgres")
            url = server.url(stack.enter_context(server.database())).replace("://", "+psycopg://")
        engine = sa.create_engine(url)
        stack.callback(engine.dispose)
        ApiKey.metadata.create_all(engine, tables=[ApiKey.metadata.tables[name] for name in ("tenants", "api_keys")])
        with Session(engine) as session, session.begin():
            session.add(Tenant(id="ten_1", name="", policy={}, created_at=datetime.datetime.now(datetime.UTC)))
        yield engine


def add(session: Session, moments: list[datetime.datetime], *, prefix: str) -> None:
    for number, moment in enumerate(moments):
        key_id = f"{prefix}{number}"
        session.add(ApiKey(id=key_id, tenant_id="ten_1", name="", key_hash=key_id, scopes=[], created_at=moment))
    session.flush()


def pages(
    session: Session, *, limit: int, in_between: list[datetime.datetime], ascending: bool = False
) -> list[list[ApiKey]]:
    """Return all pages of a list, adding rows to the list after the first page is read."""
    found: list[list[ApiKey]] = []
    cursor = None
    while cursor is not None or not found:
        result = page(
            session, sa.select(ApiKey), ApiKey.created_at, ApiKey.id, limit=limit, cursor=cursor, ascending=ascending
        )
        found.append(result.items)
        cursor = result.next_cursor
        add(session, in_between if len(found) == 1 else [], prefix="later")
    return found


@given(moments=st.lists(MOMENTS, max_size=12), limit=st.integers(1, 5), ascending=st.booleans())
def test_pages_contain_every_row_once(
    engine: sa.Engine, moments: list[datetime.datetime], limit: int, ascending: bool
) -> None:
    """Taken together, the pages contain every row exactly once, newest or oldest first, and only the last page may be
    short."""
    with Session(engine) as session:
        add(session, moments, prefix="row")
        found = pages(session, limit=limit, in_between=[], ascending=ascending)
        rows = [row for items in found for row in items]
        everything = list(session.scalars(sa.select(ApiKey)))
        assert sorted(row.id for row in rows) == sorted(row.id for row in everything)
        assert [(row.created_at, row.id) for row in rows] == sorted(
            ((row.created_at, row.id) for row in everything), reverse=not ascending
        )
        assert all(len(items) == limit for items in found[:-1])
        assert len(found[-1]) > 0 or not rows


@given(
    moments=st.lists(MOMENTS, max_size=12),
    limit=st.integers(1, 5),
    in_between=st.lists(MOMENTS, min_size=1, max_size=4),
)
def test_pages_are_stable(
    engine: sa.Engine, moments: list[datetime.datetime], limit: int, in_between: list[datetime.datetime]
) -> None:
    """Rows added during pagination neither displace nor duplicate existing rows."""
    with Session(engine) as session:
        add(session, moments, prefix="row")
        seen = [row.id for items in pages(session, limit=limit, in_between=in_between) for row in items]
        assert len(seen) == len(set(seen))
        assert {f"row{number}" for number in range(len(moments))} <= set(seen)


def encoded(document: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode()


@given(cursor=st.text(max_size=30) | st.recursive(st.none() | st.text(), st.lists, max_leaves=3).map(encoded))
def test_a_malformed_cursor_is_refused(engine: sa.Engine, cursor: str) -> None:
    """A malformed cursor is refused, and the error names the field."""
    with Session(engine) as session, pytest.raises(InputInvalid) as caught:
        page(session, sa.select(ApiKey), ApiKey.created_at, ApiKey.id, limit=1, cursor=cursor)
    assert [fault.path for fault in caught.value.errors] == ["cursor"]
