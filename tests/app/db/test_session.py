import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import StatementError
from sqlalchemy.orm import aliased

from app.access import service as access
from app.db import Actor, Database, actor, now
from app.db.tables import ApiKey, Dataset, Model, Record, Tenant
from app.installations import Installation
from lethe.contract.sets import Scope
from tests.faults.processes import wait_until
from tests.tables import each
from tests.threads import num_waiting


@pytest.fixture
def database(installation: Installation) -> Database:
    return installation.database


def names(database: Database) -> list[str]:
    with database.reading() as session:
        return sorted(session.scalars(sa.select(ApiKey.name)))


def add(database: Database, by: Actor, name: str) -> None:
    with database.writing(by=by) as session:
        access.add_key(session, name=name, key=access.new_key(), scopes=[Scope.ADMIN])


def test_a_writing_session_is_committed(database: Database, by: Actor) -> None:
    """A writing session commits when its block ends."""
    add(database, by, "a")
    assert names(database) == ["a", "admin"]


def test_a_writing_session_that_raises_changes_nothing(database: Database, by: Actor) -> None:
    """If the `with` block of a writing session raises an error, the database is left unchanged."""

    def fail_half_way() -> None:
        with database.writing(by=by) as session:
            access.add_key(session, name="a", key="k", scopes=[])
            session.flush()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert names(database) == ["admin"]


def test_a_reading_session_changes_nothing(database: Database) -> None:
    """Changes in a reading session are discarded when its block ends."""
    with database.reading() as session:
        session.execute(sa.delete(ApiKey))
    assert names(database) == ["admin"]


def test_a_reading_session_sees_a_snapshot(database: Database, by: Actor) -> None:
    """A reading session does not see commits made while it is open, and does not block them."""
    with database.reading() as session:
        before = session.scalars(sa.select(sa.func.count()).select_from(ApiKey)).one()
        add(database, by, "a")
        assert session.scalars(sa.select(sa.func.count()).select_from(ApiKey)).one() == before
    assert len(names(database)) == before + 1


def test_writers_queue_up(database: Database) -> None:
    """Eight threads that read and then write the same value all succeed, and no write is lost."""
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


def test_one_tenants_writers_do_not_delay_others(database: Database, by: Actor) -> None:
    """If a tenant has many queued writers, a writer of another tenant or of the service itself waits for only one of
    them. Queued writers hold no connection, so they do not block readers."""
    order: list[str] = []

    def write(tenant_id: str) -> None:
        with database.writing(by=replace(by, tenant_id=tenant_id) if tenant_id else None) as session:
            session.execute(sa.select(ApiKey))
            order.append(tenant_id)

    writers = [*["hard"] * 20, "quiet", ""]
    with ThreadPoolExecutor(len(writers)) as threads, database.writing(by=by):
        for number, tenant_id in enumerate(writers, start=1):
            threads.submit(write, tenant_id)
            wait_until(lambda number=number: num_waiting(database.turns) == number)
        assert names(database) == ["admin"]
    assert order == ["hard", "quiet", "", *["hard"] * 19]


def test_foreign_keys_are_enforced(database: Database) -> None:
    """A row cannot refer to a row that does not exist."""
    with pytest.raises(sa.exc.IntegrityError), database.writing() as session:
        session.execute(
            sa.text("INSERT INTO records (dataset_id, slot, subject_ref, erasure_id) VALUES ('ds_0', 0, NULL, NULL)")
        )


def test_errors_do_not_quote_values(database: Database) -> None:
    """The text of a database error, which may be logged, does not contain the values used in the statement."""
    with pytest.raises(StatementError) as caught, database.writing() as session:
        session.execute(sa.text("INSERT INTO nowhere VALUES (:subject)"), {"subject": "somebody-by-name"})
    assert "somebody-by-name" not in str(caught.value)


def test_the_clock_is_aware_and_monotonic(database: Database) -> None:
    """The database clock returns timezone-aware UTC times that never decrease from one transaction to the next."""
    moments = []
    for _ in range(3):
        with database.reading() as session:
            moments.append(now(session))
    assert moments == sorted(moments)
    assert all(moment.utcoffset() is not None and not moment.utcoffset() for moment in moments)


# --- tenants ---------------------------------------------------------------------------------------------------------

HERE, THERE = Actor(tenant_id="ten_here", name="test"), Actor(tenant_id="ten_there", name="test")
OTHER_KEY = aliased(ApiKey)
KEYS, DATASETS = (ApiKey.metadata.tables[name] for name in ("api_keys", "datasets"))
HELD = Record.dataset_id == Dataset.id

SELECTIONS: dict[str, tuple[Callable[[], sa.Executable], list[tuple[object, ...]]]] = {
    "columns": (lambda: sa.select(Dataset.id, Dataset.name), [("ds_here", "here")]),
    "an alias": (lambda: sa.select(OTHER_KEY.id), [("key_here",)]),
    "an alias of a subquery": (lambda: sa.select(aliased(ApiKey, sa.select(ApiKey).subquery()).id), [("key_here",)]),
    "a join": (lambda: sa.select(Model.id, Dataset.id).join(Dataset, sa.true()), [("mdl_here", "ds_here")]),
    "a join with itself": (
        lambda: sa.select(ApiKey.id, OTHER_KEY.id).join(OTHER_KEY, sa.true()),
        [("key_here", "key_here")],
    ),
    "a join from what has no tenant": (
        lambda: sa.select(Record.slot, Dataset.id).join(Dataset, HELD),
        [(1, "ds_here")],
    ),
    "an outer join": (
        lambda: sa.select(Record.slot, Dataset.id).outerjoin(Dataset, HELD).order_by(Record.slot),
        [(1, "ds_here"), (2, None)],
    ),
    "a count": (lambda: sa.select(sa.func.count()).select_from(ApiKey), [(1,)]),
    "a count of a subquery": (lambda: sa.select(sa.func.count()).select_from(sa.select(ApiKey).subquery()), [(1,)]),
    "a scalar subquery": (
        lambda: sa.select(sa.select(sa.func.count()).select_from(ApiKey).scalar_subquery()),
        [(1,)],
    ),
    "a common table expression": (lambda: sa.select(sa.select(ApiKey.id).cte().c.id), [("key_here",)]),
    "a union": (
        lambda: sa.union_all(sa.select(ApiKey.id), sa.select(Dataset.id)).order_by("id"),
        [("ds_here",), ("key_here",)],
    ),
    "a difference": (lambda: sa.select(ApiKey.id).except_(sa.select(Dataset.id)), [("key_here",)]),
    "a union in a subquery": (
        lambda: sa.select(sa.union(sa.select(ApiKey.id), sa.select(ApiKey.id)).subquery().c.id),
        [("key_here",)],
    ),
    "exists": (lambda: sa.select(Record.slot).where(sa.exists().where(HELD)), [(1,)]),
    "in": (lambda: sa.select(Record.slot).where(Record.dataset_id.in_(sa.select(Dataset.id))), [(1,)]),
    "nothing of a class": (lambda: sa.select(sa.exists().where(ApiKey.id == "key_there")), [(False,)]),
}


@pytest.fixture
def shared(database: Database) -> Database:
    """Create two tenants, each with a key, a dataset with one record, and a model."""
    for slot, name in enumerate(("here", "there"), start=1):
        owned = {"tenant_id": f"ten_{name}", "name": name}
        shape = {"classes": [], "num_features": 1, "num_slots": 9, "digest": "", "revision": 0}
        target = {"mechanism": {}, "epsilon": 1.0, "delta": 0.1, "status": "live"}
        with database.writing() as session:
            at = now(session)
            session.add(Tenant(id=f"ten_{name}", name=name, policy={}, created_at=at))
            session.flush()
            session.add(ApiKey(id=f"key_{name}", key_hash=name, scopes=[], created_at=at, **owned))
            session.add(Dataset(id=f"ds_{name}", created_at=at, **shape, **owned))
            session.flush()
            session.add(Model(id=f"mdl_{name}", dataset_id=f"ds_{name}", created_at=at, **target, **owned))
            session.add(Record(dataset_id=f"ds_{name}", slot=slot))
    return database


@each("shape", SELECTIONS)
def test_a_tenant_sees_only_its_own_rows(shared: Database, shape: str) -> None:
    """In a tenant's session, statements of every kind return only the tenant's own rows, whether they are executed for
    the first time or again."""
    statement, found = SELECTIONS[shape]
    for _ in range(2):
        with shared.reading(by=HERE) as session:
            assert [tuple(row) for row in session.execute(statement())] == found
        with shared.reading(by=THERE) as session:
            assert "_here" not in str(session.execute(statement()).all())


def test_a_tenant_gets_only_its_own_objects(shared: Database) -> None:
    """Looking up another tenant's row by id returns None. An object that is refreshed, or reloaded after it expired,
    still belongs to its tenant."""
    for by, own, other in ((HERE, "key_here", "key_there"), (THERE, "key_there", "key_here")):
        with shared.reading(by=by) as session:
            assert session.get(ApiKey, other) is None
            [found] = session.scalars(sa.select(ApiKey))
            assert found.id == own
            session.refresh(found)
            session.expire(found)
            assert session.get_one(ApiKey, own).tenant_id == by.tenant_id


def test_a_session_without_a_tenant_sees_everything(shared: Database) -> None:
    """A session without a tenant sees the rows of all tenants. Requesting its actor raises an error."""
    with shared.reading() as session:
        assert len(session.scalars(sa.select(ApiKey)).all()) == 3
        assert session.get(ApiKey, "key_here")
        assert session.get(ApiKey, "key_there")
        with pytest.raises(RuntimeError, match="no tenant"):
            actor(session)
    with shared.reading(by=HERE) as session:
        assert actor(session) == HERE


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (lambda: sa.update(ApiKey).values(name="changed"), {"key_here": "changed"}),
        (lambda: sa.update(ApiKey).where(ApiKey.id == "key_there").values(name="changed"), {}),
        (
            lambda: sa.update(ApiKey).where(ApiKey.id.in_(sa.select(OTHER_KEY.id))).values(name="changed"),
            {"key_here": "changed"},
        ),
        (lambda: sa.delete(ApiKey), {"key_here": None}),
        (lambda: sa.delete(ApiKey).where(ApiKey.id == "key_there"), {}),
    ],
)
def test_a_tenant_changes_only_its_own_rows(
    shared: Database, change: Callable[[], sa.Executable], changed: dict[str, str | None]
) -> None:
    """Updates and deletes leave the rows of other tenants unchanged."""
    before = {"key_here": "here", "key_there": "there"}
    with shared.writing(by=HERE) as session:
        session.execute(change())
    with shared.reading() as session:
        after = {key.id: key.name for key in session.scalars(sa.select(ApiKey).where(ApiKey.id.in_(before)))}
    assert after == {key_id: name for key_id, name in (before | changed).items() if name is not None}


def test_records_are_changed_through_the_tenants_datasets(shared: Database) -> None:
    """A tenant's session can change or copy records only through the tenant's own datasets."""
    mine = sa.select(Dataset.id)
    with shared.writing(by=HERE) as session:
        session.execute(sa.update(Record).where(Record.dataset_id.in_(mine)).values(subject_ref="sub_1"))
        copied = sa.select(Dataset.id, sa.literal(3))
        session.execute(sa.insert(Record).from_select(["dataset_id", "slot"], copied))
    with shared.reading() as session:
        query = sa.select(Record.dataset_id, Record.slot, Record.subject_ref).order_by(Record.slot)
        found = [tuple(row) for row in session.execute(query)]
    assert found == [("ds_here", 1, "sub_1"), ("ds_there", 2, None), ("ds_here", 3, None)]


@pytest.mark.parametrize(
    "statement",
    [
        lambda: sa.select(KEYS.c.id),
        lambda: sa.select(KEYS.alias().c.id),
        lambda: sa.select(ApiKey.id).union(sa.select(KEYS.c.id)),
        lambda: sa.select(Record.slot).where(sa.exists().where(KEYS.c.id != "")),
        lambda: sa.select(Record.slot).outerjoin(KEYS, sa.true()),
        lambda: sa.text("SELECT id FROM api_keys"),
        lambda: sa.select(ApiKey).from_statement(sa.text("SELECT * FROM api_keys")),
        lambda: sa.update(KEYS).values(name="changed"),
        lambda: sa.delete(KEYS),
        lambda: sa.insert(Record).from_select(["dataset_id", "slot"], sa.select(DATASETS.c.id, sa.literal(3))),
    ],
)
def test_a_statement_without_a_mapped_class_is_refused(
    shared: Database, statement: Callable[[], sa.Executable]
) -> None:
    """In a tenant's session, a statement without a mapped class is refused, because it would bypass the tenant
    filter."""
    for _ in range(2):
        with shared.writing(by=HERE) as session, pytest.raises(RuntimeError, match="belongs to all"):
            session.execute(statement())
    assert names(shared) == ["admin", "here", "there"]
    with shared.reading() as session:
        session.execute(statement())


def test_bulk_changes_by_primary_key_are_refused(shared: Database) -> None:
    """A tenant's session refuses bulk changes by primary key, because they cannot be restricted to the tenant."""
    changes = [{"id": "key_there", "name": "changed"}]
    with shared.writing(by=HERE) as session, pytest.raises(RuntimeError, match="belongs to all"):
        session.execute(sa.update(ApiKey), changes)
    assert names(shared) == ["admin", "here", "there"]
