"""Statements that bypass SQLAlchemy and go to SQLite directly."""

import datetime
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, InvalidRequestError, OperationalError

from app.access import service as access
from app.db import Actor, bulk, driver, now, rows
from app.db.tables import ApiKey, Tenant
from app.installations import Installation
from lethe.contract.problems import InputInvalid
from lethe.contract.sets import Scope
from tests.counted import statements_to

_NAMED: sa.BindParameter[list[str]] = sa.bindparam("names", expanding=True)
_SINCE = sa.bindparam("since", type_=ApiKey.created_at.type)
_KEYS = sa.union_all(
    sa.select(ApiKey.name, ApiKey.created_at, ApiKey.scopes, ApiKey.created_at.is_(None)).where(
        ApiKey.name.in_(_NAMED), ApiKey.created_at >= _SINCE, ApiKey.key_hash.not_in(["x", "y"])
    ),
    sa.select(ApiKey.name, ApiKey.created_at, ApiKey.scopes, ApiKey.expires_at.is_(None)).where(
        ApiKey.name.in_(_NAMED), ApiKey.created_at >= _SINCE
    ),
)


@pytest.mark.parametrize(
    "names", [[], ["a"], ["b", "a", "nobody"], [*map(str, range(99)), "a"], ["a", *map(str, range(500))]], ids=len
)
def test_a_select_returns_the_same_rows_as_sqlalchemy(installation: Installation, by: Actor, names: list[str]) -> None:
    """A SELECT with lists of any length, constants and typed columns returns the same rows as SQLAlchemy would, every
    time it is executed."""
    with installation.database.writing(by=by) as session:
        began = now(session)
        for name in ("a", "b"):
            access.add_key(session, name=name, key=access.new_key(), scopes=[Scope.ADMIN])
    with installation.database.reading() as session:
        connection = session.connection()
        for since in (began, began + datetime.timedelta(days=1), began):
            parameters: dict[str, Any] = {"names": names, "since": since}
            expected = connection.execute(_KEYS, parameters).all()
            assert [tuple(row) for row in rows(session, _KEYS, parameters)] == [*map(tuple, expected)]
            assert bool(expected) == (since == began and "a" in names)


def test_unstorable_text_is_refused(installation: Installation) -> None:
    """Text that the supported databases cannot store is refused, even inside a list."""
    query = sa.select(ApiKey.id).where(ApiKey.name.in_(_NAMED))
    with installation.database.reading() as session, pytest.raises(InputInvalid):
        rows(session, query, {"names": ["a\0b"]})


def test_lists_of_similar_lengths_share_a_statement(installation: Installation) -> None:
    """Lists of 5 to 8 elements are sent as the same statement, so that only a few lengths need to be compiled."""
    query = sa.select(ApiKey.id).where(ApiKey.name.in_(_NAMED))
    with statements_to(installation.database.engine) as statements, installation.database.reading() as session:
        for length in range(5, 9):
            assert rows(session, query, {"names": [*map(str, range(length))]}) == []
    assert len({statement for statement in statements if statement.startswith("SELECT api_keys")}) == 1


def test_listeners_are_notified_of_each_statement(installation: Installation) -> None:
    """The engine's listeners are notified of selects, of inserts and of the beginning of their transaction."""
    engine = installation.database.engine
    with statements_to(engine) as statements, installation.database.writing() as session:
        rows(session, sa.select(Tenant.id), {})
        tenant = bulk.new(Tenant, id="ten_2", name="", policy={}, webhook_generation=0, created_at=now(session))
        bulk.store(session, Tenant, [tenant])
    words = [statement.split()[0] for statement in statements]
    assert words[words.index("BEGIN") :][-2:] == ["SELECT", "INSERT"]


def test_nothing_is_written_after_a_failed_flush(installation: Installation, by: Actor) -> None:
    """Once a flush has failed, the transaction is over. Further statements of the block are refused, because SQLite
    would commit each of them at once."""
    with installation.database.writing() as session:
        assert rows(session, sa.select(Tenant.id), {})
        session.add(Tenant(id=by.tenant_id, name="again"))
        with pytest.raises(IntegrityError):
            session.flush()
        with pytest.raises(InvalidRequestError):
            driver.connection_of(session)
    with installation.database.reading() as session:
        assert "again" not in session.scalars(sa.select(Tenant.name)).all()


def test_a_savepoint_includes_statements_to_the_driver(installation: Installation) -> None:
    """A savepoint that is rolled back takes statements sent straight to the driver with it, and leaves earlier ones."""
    with installation.database.writing() as session:
        for name, keeps in (("kept", True), ("dropped", False)):
            with session.begin_nested() as savepoint:
                driver.run(driver.connection_of(session), "UPDATE tenants SET name = ?", (name,))
                if not keeps:
                    savepoint.rollback()
    with installation.database.reading() as session:
        assert set(session.scalars(sa.select(Tenant.name)).all()) == {"kept"}


def test_errors_are_raised_as_sqlalchemy_errors(installation: Installation) -> None:
    """A driver error is raised as the corresponding SQLAlchemy error, without any values, and the transaction can be
    rolled back."""
    database = installation.database
    sql = "INSERT INTO tenants (id, policy, created_at, webhook_generation, name) VALUES (?, '{}', '2026-01-01', 0, ?)"

    def insert_twice() -> None:
        with database.writing() as session:
            driver.run(session.connection(), sql, [("ten_2", "somebody")] * 2, many=True)

    with pytest.raises(IntegrityError) as caught:
        insert_twice()
    assert "somebody" not in str(caught.value)
    with pytest.raises(OperationalError), database.reading() as session:
        driver.run(session.connection(), "SELECT * FROM nowhere")
    with database.reading() as session:
        assert session.get(Tenant, "ten_2") is None


def test_times_are_written_as_sqlalchemy_writes_them(installation: Installation) -> None:
    """A time in any zone is stored as UTC with microseconds, and a time without a zone is refused."""
    dialect = installation.database.engine.dialect
    process = ApiKey.created_at.type.bind_processor(dialect)
    assert process is not None
    written = sa.DateTime().dialect_impl(dialect).bind_processor(dialect)
    assert written is not None
    for moment in (datetime.datetime(2026, 2, 3, 4, 5, 6, 7), datetime.datetime(987, 1, 1)):  # noqa: DTZ001
        aware = moment.replace(tzinfo=datetime.UTC)
        east = aware.astimezone(datetime.timezone(datetime.timedelta(hours=2, minutes=30)))
        assert {process(aware), process(east)} == {written(moment)}
        with pytest.raises(ValueError, match="aware"):
            process(moment)
    assert process(None) is None
