import datetime
import time
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from app.access import callers as believing, service as access, tenants
from app.access.callers import Callers, LastUses
from app.db import Actor, now
from app.db.tables import ApiKey
from app.installations import Installation
from lethe.contract.problems import Unauthenticated
from lethe.contract.sets import Scope
from tests.counted import statements_to

Add = Callable[..., tuple[str, str]]


@pytest.fixture
def add(installation: Installation, by: Actor) -> Add:
    """Return a function that adds an API key and returns the key and its id."""

    def make(**limits: datetime.datetime) -> tuple[str, str]:
        key = access.new_key()
        with installation.database.writing(by=by) as session:
            return key, access.add_key(session, name="a", key=key, scopes=[Scope.MODELS_READ], **limits).id

    return make


@pytest.fixture
def uses(installation: Installation) -> LastUses:
    """Return a recorder of when keys were last used. Its background thread sleeps for longer than any test runs."""
    return LastUses(installation.database)


def _last_used(installation: Installation, key_id: str) -> datetime.datetime | None:
    with installation.database.reading() as session:
        return session.get_one(ApiKey, key_id).last_used_at


def test_revoked_keys_work_for_at_most_a_second(
    installation: Installation, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that another process revokes keeps working for at most one second and is then refused as unknown."""
    key, key_id = add()
    assert believing._BELIEVED_SECONDS == 1.0
    monkeypatch.setattr(believing, "_BELIEVED_SECONDS", 60.0)  # the machine may be slow
    callers = Callers(installation.database)
    assert callers.recall(key) is None
    caller = callers.authenticate(key)
    assert callers.recall(key) == caller
    with installation.database.writing() as session:  # simulates another process: this one is not notified
        session.execute(sa.update(ApiKey).where(ApiKey.id == key_id).values(revoked_at=now(session)))
    assert callers.recall(key) == caller
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 61)
    assert callers.recall(key) is None
    assert callers.has_known(key)
    with pytest.raises(Unauthenticated):
        callers.authenticate(key)
    assert not callers.has_known(key)


def test_changes_by_this_process_apply_immediately(
    installation: Installation, by: Actor, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Revoking a key or changing a policy in this process takes effect immediately."""
    monkeypatch.setattr(believing, "_BELIEVED_SECONDS", 60.0)  # the machine may be slow
    key, key_id = add()
    callers = Callers(installation.database)
    callers.authenticate(key)
    with installation.database.writing(by=by) as session:
        tenants.change_policy(session, {"auto_accept": False})
        assert callers.recall(key) is not None
    assert callers.recall(key) is None
    assert callers.authenticate(key).policy.auto_accept is False
    with installation.database.writing(by=by) as session:
        access.revoke_key(session, key_id, by=None)
    assert callers.recall(key) is None
    with pytest.raises(Unauthenticated):
        callers.authenticate(key)


def test_a_key_expires(installation: Installation, add: Add) -> None:
    """A key stops working at its expiry time."""
    with installation.database.reading() as session:
        key, key_id = add(expires_at=now(session) + datetime.timedelta(hours=1))
    Callers(installation.database).authenticate(key)
    with installation.database.writing() as session:
        expired = sa.update(ApiKey).where(ApiKey.id == key_id).values(expires_at=now(session))
        session.execute(expired)
    with pytest.raises(Unauthenticated):
        Callers(installation.database).authenticate(key)


def test_calls_without_a_key_do_not_query_the_database(installation: Installation) -> None:
    """A call without a key is refused without querying the database."""
    callers = Callers(installation.database)
    installation.database.close()
    installation.database.engine.dispose()
    for key in (None, ""):
        with pytest.raises(Unauthenticated):
            callers.authenticate(key)


def test_key_uses_are_written_once_a_minute(installation: Installation, add: Add, uses: LastUses) -> None:
    """Key uses are collected and written to the database in one statement, at most once a minute."""
    keys = [add() for _ in range(3)]
    callers = Callers(installation.database, used=uses.note)
    with statements_to(installation.database.engine) as statements:

        def changes() -> int:
            return sum(statement.startswith("UPDATE") for statement in statements)

        for key, _ in keys * 10:
            callers.authenticate(key)
        assert changes() == 0
        uses.write()
        assert changes() == 1
        first = [_last_used(installation, key_id) for _, key_id in keys]
        assert all(first)
        for key, _ in keys * 10:
            callers.authenticate(key)
        uses.write()
        assert changes() == 1
    assert [_last_used(installation, key_id) for _, key_id in keys] == first
    uses.close()


def test_uses_noted_by_another_gateway_are_not_written_again(
    installation: Installation, add: Add, uses: LastUses
) -> None:
    """A gateway does not write a key use that another gateway recorded within the last minute."""
    key, key_id = add()
    other = LastUses(installation.database)
    for one in (uses, other):
        Callers(installation.database, used=one.note).authenticate(key)
    uses.write()
    first = _last_used(installation, key_id)
    other.write()
    assert first is not None
    assert _last_used(installation, key_id) == first
    with installation.database.writing() as session:
        past = first - datetime.timedelta(seconds=61)
        session.execute(sa.update(ApiKey).where(ApiKey.id == key_id).values(last_used_at=past))
    Callers(installation.database, used=other.note).authenticate(key)
    other.close()  # closing writes the remaining uses
    uses.close()
    again = _last_used(installation, key_id)
    assert again is not None
    assert again >= first


def test_pending_key_uses_survive_an_outage(installation: Installation, add: Add, uses: LastUses) -> None:
    """Key uses held in memory are kept while the database refuses writes, and are written once it accepts writes
    again."""
    key, key_id = add()
    Callers(installation.database, used=uses.note).authenticate(key)
    broken = sa.exc.OperationalError("UPDATE", {}, Exception("away"))

    def refuse(*_: object) -> None:
        raise broken

    sa.event.listen(installation.database.engine, "before_cursor_execute", refuse)
    uses.write()
    sa.event.remove(installation.database.engine, "before_cursor_execute", refuse)
    uses.write()
    assert _last_used(installation, key_id)
    uses.close()


def test_pending_key_uses_survive_a_schema_mismatch(installation: Installation, add: Add, uses: LastUses) -> None:
    """While the database has the schema of another release, key uses held in memory are kept and no error is raised."""
    key, key_id = add()
    Callers(installation.database, used=uses.note).authenticate(key)
    with installation.database.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE api_keys RENAME TO keys_of_another_release")
    uses.close()
    with installation.database.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE keys_of_another_release RENAME TO api_keys")
    uses.write()
    assert _last_used(installation, key_id)
