import dataclasses
import datetime
import hashlib

import pytest
import sqlalchemy as sa

from app.access import service as access
from app.access.service import Caller
from app.db import Actor, now
from app.db.tables import ApiKey
from app.installations import Installation
from lethe.contract.problems import InputInvalid, KeyUnknown, LastAdminKey, ScopeMissing, Unauthenticated
from lethe.contract.sets import Scope
from lethe.contract.tenants import Policy
from tests.tables import each


def test_an_added_key_authenticates_until_it_is_revoked(installation: Installation, by: Actor) -> None:
    """A new key authenticates calls with its scopes until it is revoked."""
    key = access.new_key()
    with installation.database.writing(by=by) as session:
        row = access.add_key(session, name="a", key=key, scopes=[Scope.MODELS_READ, Scope.ACCOUNTING_READ])
    with installation.database.reading() as session:
        caller = access.caller_with(session, access.find(session, key))
    assert caller == Caller(
        id=row.id,
        name="a",
        tenant_name="default",
        tenant_id=by.tenant_id,
        scopes=frozenset({"models:read", "accounting:read"}),
        policy=Policy(),
        calls_per_minute=None,
    )
    with installation.database.writing(by=by) as session:
        access.revoke_key(session, row.id, by=None)
    with installation.database.reading() as session, pytest.raises(Unauthenticated):
        access.caller_with(session, access.find(session, key))


def test_a_key_cannot_be_revoked_twice(installation: Installation, by: Actor) -> None:
    """Revoking a key that is already revoked or does not exist is refused."""
    with installation.database.writing(by=by) as session:
        row = access.add_key(session, name="a", key="k", scopes=[])
        access.revoke_key(session, row.id, by=None)
        for key_id in (row.id, "key_0"):
            with pytest.raises(KeyUnknown):
                access.revoke_key(session, key_id, by=None)


@pytest.mark.parametrize("key", [None, "", "lethe_", "\x00", "é"])
def test_missing_and_unknown_keys_are_refused(installation: Installation, key: str | None) -> None:
    """A call is refused if its key is missing, empty or unknown."""
    with installation.database.reading() as session, pytest.raises(Unauthenticated):
        access.caller_with(session, access.find(session, key))


def test_only_the_hash_is_stored(installation: Installation, by: Actor) -> None:
    """Only the SHA-256 hash of a key is stored in the database. The key itself has 256 random bits."""
    key = access.new_key()
    with installation.database.writing(by=by) as session:
        row = access.add_key(session, name="a", key=key, scopes=[])
        assert row.key_hash == hashlib.sha256(key.encode()).hexdigest()
    assert len(key) == len("lethe_") + 43
    assert len({access.new_key() for _ in range(100)}) == 100


def test_ensuring_an_existing_key_adds_no_second_key(installation: Installation, by: Actor) -> None:
    """The check at each startup that the admin key exists creates the key only the first time."""
    with installation.database.writing(by=by) as session:
        for _ in range(2):
            access.ensure_key(session, name="again", key="k", scopes=[Scope.ADMIN])
    with installation.database.reading() as session:
        assert len(session.scalars(sa.select(ApiKey).where(ApiKey.name == "again")).all()) == 1


@each("held", Scope)
@each("needed", Scope)
def test_a_scope_permits_only_its_operations(held: Scope, needed: Scope) -> None:
    """A scope permits only the operations that require it. Admin permits everything except managing tenants and reading
    metrics, which cover all tenants and require the operator scope. Deciding on requests also requires
    accounting:read."""
    scopes = frozenset({held})
    caller = Caller(id="key_1", tenant_id="ten_1", scopes=scopes, policy=Policy(), calls_per_minute=None)
    of_all_tenants = {Scope.OPERATOR, Scope.METRICS_READ}
    opened = {Scope.ADMIN: set(Scope) - of_all_tenants, Scope.OPERATOR: of_all_tenants}
    if held == needed == Scope.REQUESTS_REVIEW:
        with pytest.raises(ScopeMissing, match=Scope.ACCOUNTING_READ):
            caller.require(needed)
        dataclasses.replace(caller, scopes=scopes | {Scope.ACCOUNTING_READ}).require(needed)
    elif needed in {held} | opened.get(held, set()):
        caller.require(needed)
    else:
        with pytest.raises(ScopeMissing, match=needed.value):
            caller.require(needed)


def _of(installation: Installation, key: str) -> Caller:
    with installation.database.reading() as session:
        return access.caller_with(session, access.find(session, key))


def test_a_rotated_key_overlaps_with_the_new_one(installation: Installation, by: Actor) -> None:
    """A key created by rotation has the same permissions as the old key. The old key stops working when the overlap
    ends or when it expires, whichever is earlier."""
    with installation.database.writing(by=by) as session:
        access.add_key(session, name="admin", key="a", scopes=[Scope.ADMIN])
        old = access.add_key(session, name="crm", key="old", scopes=[Scope.REQUESTS_WRITE], calls_per_minute=7)
    maker = _of(installation, "a")
    with installation.database.writing(by=by) as session:
        new = access.rotate_key(session, old.id, by=maker, key="new", overlap_seconds=60)
    assert (new.name, new.scopes, new.calls_per_minute, new.expires_at) == ("crm", old.scopes, 7, None)
    assert _of(installation, "old").scopes == _of(installation, "new").scopes
    with installation.database.reading() as session:
        ends = session.get_one(ApiKey, old.id).expires_at
        assert ends is not None
        assert 55 < (ends - now(session)).total_seconds() <= 60
    with installation.database.writing(by=by) as session:
        access.rotate_key(session, old.id, by=maker, key="newer", overlap_seconds=3600)
        assert session.get_one(ApiKey, old.id).expires_at == ends
        access.rotate_key(session, old.id, by=maker, key="newest", overlap_seconds=0)
    with pytest.raises(Unauthenticated):
        _of(installation, "old")
    with pytest.raises(KeyUnknown), installation.database.writing(by=by) as session:
        access.rotate_key(session, old.id, by=maker, key="none", overlap_seconds=0)


def test_a_rotated_key_keeps_its_lifetime(installation: Installation, by: Actor) -> None:
    """Rotating a key that was created with a lifetime of one month creates a key with the same lifetime, unless another
    expiry is given."""
    month = datetime.timedelta(days=30)
    with installation.database.writing(by=by) as session:
        access.add_key(session, name="admin", key="a", scopes=[Scope.ADMIN])
        old = access.add_key(session, name="crm", key="old", scopes=[], expires_at=now(session) + month)
    with installation.database.writing(by=by) as session:
        new = access.rotate_key(session, old.id, by=_of(installation, "a"), key="new", overlap_seconds=0)
        assert new.expires_at is not None
        assert abs(new.expires_at - new.created_at - month) < datetime.timedelta(seconds=2)


def test_an_admin_cannot_rotate_an_operators_key(installation: Installation, by: Actor) -> None:
    """An admin who is not an operator can neither rotate nor revoke an operator's key."""
    with installation.database.writing(by=by) as session:
        access.add_key(session, name="admin", key="a", scopes=[Scope.ADMIN])
        operator = access.add_key(session, name="operator", key="o", scopes=[Scope.OPERATOR])
    with pytest.raises(ScopeMissing), installation.database.writing(by=by) as session:
        access.rotate_key(session, operator.id, by=_of(installation, "a"), key="new", overlap_seconds=0)
    with pytest.raises(ScopeMissing), installation.database.writing(by=by) as session:
        access.revoke_key(session, operator.id, by=_of(installation, "a"))


def test_the_last_permanent_admin_key_cannot_be_removed(installation: Installation, by: Actor) -> None:
    """The last admin or operator key without an expiry can be neither revoked nor given an expiry by rotation; keys
    with an expiry and revoked keys do not count."""
    with installation.database.writing(by=by) as session:
        [first] = session.scalars(sa.select(ApiKey)).all()
        everything = [Scope.ADMIN, Scope.OPERATOR]
        later = now(session) + datetime.timedelta(days=1)
        access.add_key(session, name="for a day", key="d", scopes=everything, expires_at=later)
        access.add_key(session, name="admin alone", key="a", scopes=[Scope.ADMIN])
        other = access.add_key(session, name="other", key="o", scopes=everything)
        session.flush()
        access.revoke_key(session, other.id, by=None)
    maker = _of(installation, "d")
    for attempt in (
        lambda session: access.revoke_key(session, first.id, by=None),
        lambda session: access.rotate_key(session, first.id, by=maker, key="n", overlap_seconds=9, expires_at=later),
    ):
        with pytest.raises(LastAdminKey, match="operator"), installation.database.writing(by=by) as session:
            attempt(session)
    with installation.database.writing(by=by) as session:
        successor = access.rotate_key(session, first.id, by=maker, key="s", overlap_seconds=9)
        access.revoke_key(session, first.id, by=None)
    assert _of(installation, "s").scopes == frozenset(successor.scopes) == {"admin", "operator"}


def test_an_expiry_before_creation_is_refused(installation: Installation, by: Actor) -> None:
    """A key whose expiry precedes its creation is refused."""
    with pytest.raises(InputInvalid), installation.database.writing(by=by) as session:
        access.add_key(session, name="a", key="k", scopes=[], expires_at=now(session))
