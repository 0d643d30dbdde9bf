import datetime
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from app.audit import service as audit
from app.audit.checkpoints import entry_hash
from app.audit.service import Deed
from app.db import Actor, Database, now
from app.db.tables import AuditEntry, Tenant
from app.installations import Installation
from lethe.verification.chains import GENESIS
from tests.tables import each

HERE, THERE = Actor(tenant_id="ten_here", name="key_1"), Actor(tenant_id="ten_there", name="key_2")


@pytest.fixture
def database(installation: Installation) -> Database:
    """Return a database with two new tenants."""
    with installation.database.writing() as session:
        for by in (HERE, THERE):
            session.add(Tenant(id=by.tenant_id, name=by.tenant_id, policy={}, created_at=now(session)))
    return installation.database


def deed(by: Actor, action: str = "thing.made", **detail: Any) -> Deed:
    return Deed(tenant_id=by.tenant_id, actor=by.name, action=action, object_id="th_1", detail=detail)


def chain(database: Database, by: Actor) -> list[AuditEntry]:
    """Return the tenant's stored log after checking that it has no gaps and that each hash is derived from its entry
    and the previous hash."""
    with database.reading(by=by) as session:
        entries = list(session.scalars(sa.select(AuditEntry).order_by(AuditEntry.sequence)))
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry.previous_hash for entry in entries] == [GENESIS, *(entry.hash for entry in entries)][: len(entries)]
    assert [entry.hash for entry in entries] == [entry_hash(entry) for entry in entries]
    return entries


def test_entries_record_actor_action_and_object(database: Database) -> None:
    """An entry contains the session's actor, the action, its object and details, and the time according to the
    database."""
    with database.writing(by=HERE) as session:
        before = now(session)
        audit.record(session, "model.created", "mdl_1", epsilon=0.5)
    [entry] = chain(database, HERE)
    assert (entry.tenant_id, entry.actor) == (HERE.tenant_id, HERE.name)
    assert (entry.action, entry.object_id, entry.detail) == ("model.created", "mdl_1", {"epsilon": 0.5})
    assert before <= entry.at <= before + datetime.timedelta(minutes=1)


def test_a_session_without_a_tenant_needs_an_actor(database: Database) -> None:
    """Recording an entry in a session without a tenant requires an explicit actor."""
    with database.writing() as session, pytest.raises(RuntimeError):
        audit.record(session, "thing.made", "th_1")


def test_each_tenant_has_its_own_chain(database: Database) -> None:
    """Each entry follows the last entry of the same tenant, whether the entries of several tenants are recorded in one
    transaction or in separate ones."""
    for by in (HERE, THERE, THERE, HERE):
        with database.writing(by=by) as session:
            audit.record(session, "thing.made", "th_1")
    with database.writing() as session:
        audit.record_all(session, [deed(by) for by in (HERE, THERE, THERE)])
    assert (len(chain(database, HERE)), len(chain(database, THERE))) == (3, 4)


def test_entries_keep_the_order_of_actions(database: Database) -> None:
    """Entries appear in the order of their actions, whether they are recorded together or one by one, with or without
    flushes in between."""
    with database.writing(by=HERE) as session:
        audit.record_all(session, [])
        audit.record_all(session, [deed(HERE, number=number) for number in range(150)])
        for number in range(150, 200):
            audit.record(session, "thing.made", "th_1", number=number)
            if number % 7 == 0:
                session.flush()
    assert [entry.detail["number"] for entry in chain(database, HERE)] == list(range(200))


def test_a_rollback_removes_entries(database: Database) -> None:
    """Rolling back a savepoint removes its audit entries, and the next entry follows the last one that remains."""
    with database.writing(by=HERE) as session:
        audit.record(session, "thing.made", "th_1", number=0)
        with session.begin_nested() as savepoint:
            audit.record(session, "thing.made", "th_1", number=1)
            audit.record(session, "thing.made", "th_1", number=2)
            savepoint.rollback()
        audit.record(session, "thing.made", "th_1", number=3)
        with session.begin_nested():
            audit.record(session, "thing.made", "th_1", number=4)
        audit.record(session, "thing.made", "th_1", number=5)
    assert [entry.detail["number"] for entry in chain(database, HERE)] == [0, 3, 4, 5]


def test_a_transaction_that_fails_leaves_no_entry(database: Database) -> None:
    """A transaction that fails leaves no audit entry."""

    def fail_half_way() -> None:
        with database.writing(by=HERE) as session:
            audit.record(session, "thing.made", "th_1")
            session.flush()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert chain(database, HERE) == []


def test_concurrent_writers_make_one_chain(database: Database) -> None:
    """Eight threads that record entries at the same time all succeed, and their entries form one chain."""
    start = threading.Barrier(8)

    def act(thread: int) -> None:
        start.wait()
        for _ in range(5):
            with database.writing(by=(HERE, THERE)[thread % 2]) as session:
                audit.record(session, "thing.made", "th_1", thread=thread)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(act, range(8)))
    assert (len(chain(database, HERE)), len(chain(database, THERE))) == (20, 20)


@each(
    "moment",
    [
        datetime.datetime(2026, 3, 1, 12, 0, 0, 123456, datetime.UTC),
        datetime.datetime(2026, 3, 1, 12, 0, 0, 0, datetime.UTC),
        datetime.datetime(2026, 3, 1, 0, 30, 0, 1, datetime.timezone(datetime.timedelta(hours=2))),
    ],
)
def test_times_round_trip(database: Database, moment: datetime.datetime) -> None:
    """A time is stored and hashed with microsecond precision, whatever its time zone."""
    with database.writing() as session:
        audit.record_all(session, [deed(HERE)], at=moment)
    *_, entry = chain(database, HERE)
    assert entry.at == moment


@each(
    "detail",
    [
        {},
        {"scopes": ["admin", "operator"], "nested": {"b": [1, None, True], "a": {}}},
        {"numbers": [0, -1, 2**53, 2**80, 0.1, 1e-300, 1e300, -0.0]},
        {"name": "é \u2028 \U0001f600 \\ \" '"},
    ],
)
def test_details_round_trip(database: Database, detail: dict[str, Any]) -> None:
    """An entry's details, which can be any JSON value, are read back exactly as they were recorded."""
    with database.writing(by=HERE) as session:
        audit.record(session, "thing.made", "th_1", **detail)
    *_, entry = chain(database, HERE)
    assert entry.detail == detail


@pytest.mark.parametrize("name", ["tenant_id", "actor", "action", "object_id", "previous_hash"])
def test_every_part_affects_the_hash(name: str) -> None:
    """Changing any part of an entry changes its hash."""
    at = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
    names = ("tenant_id", "actor", "action", "object_id", "previous_hash")
    entry = AuditEntry(sequence=1, at=at, detail={}, **dict.fromkeys(names, "a"))
    whole = entry_hash(entry)
    for part, changed in ((name, "b"), ("sequence", 2), ("detail", {"a": 1}), ("at", at.replace(microsecond=1))):
        before = getattr(entry, part)
        setattr(entry, part, changed)
        assert entry_hash(entry) != whole
        setattr(entry, part, before)
    assert entry_hash(entry) == whole
