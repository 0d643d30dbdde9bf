import hashlib

import pytest
import sqlalchemy as sa

from app.access import service as access
from app.access.service import Caller, Scope
from app.db.tables import ApiKey
from app.errors import KeyUnknown, ScopeMissing, Unauthenticated
from app.installation import Installation


def test_a_key_lets_its_holder_in(at: Installation) -> None:
    """A key that was added authenticates with its scopes, until it is revoked."""
    key = access.new_key()
    with at.database.writing() as session:
        row = access.add_key(session, name="a", key=key, scopes=[Scope.MODELS_READ, Scope.ACCOUNTING_READ])
    with at.database.reading() as session:
        caller = access.authenticate(session, key)
    assert caller == Caller(key_id=row.id, scopes=frozenset({"models:read", "accounting:read"}))
    with at.database.writing() as session:
        access.revoke_key(session, row.id)
    with at.database.reading() as session, pytest.raises(Unauthenticated):
        access.authenticate(session, key)


def test_a_key_is_revoked_once(at: Installation) -> None:
    """Revoking a key that is not in force is refused."""
    with at.database.writing() as session:
        row = access.add_key(session, name="a", key="k", scopes=[])
        access.revoke_key(session, row.id)
        for key_id in (row.id, "key_0"):
            with pytest.raises(KeyUnknown):
                access.revoke_key(session, key_id)


@pytest.mark.parametrize("key", [None, "", "lethe_", "\x00", "é"])
def test_anything_else_lets_nobody_in(at: Installation, key: str | None) -> None:
    """No key, an empty one and an unknown one are refused."""
    with at.database.reading() as session, pytest.raises(Unauthenticated):
        access.authenticate(session, key)


def test_only_the_hash_is_stored(at: Installation) -> None:
    """The database holds the SHA-256 of a key and not the key, which has 256 random bits."""
    key = access.new_key()
    with at.database.writing() as session:
        row = access.add_key(session, name="a", key=key, scopes=[])
        assert row.key_hash == hashlib.sha256(key.encode()).hexdigest()
    assert len(key) == len("lethe_") + 43
    assert len({access.new_key() for _ in range(100)}) == 100


def test_ensuring_a_key_twice_adds_it_once(at: Installation) -> None:
    """Every start lets the admin key in; it is one key all the same."""
    with at.database.writing() as session:
        for _ in range(2):
            access.ensure_key(session, name="again", key="k", scopes=[Scope.ADMIN])
    with at.database.reading() as session:
        assert len(session.scalars(sa.select(ApiKey).where(ApiKey.name == "again")).all()) == 1


@pytest.mark.parametrize("held", Scope)
@pytest.mark.parametrize("needed", Scope)
def test_a_scope_is_enough_for_itself(held: Scope, needed: Scope) -> None:
    """A scope opens what needs it and nothing else; admin opens everything."""
    caller = Caller(key_id="key_1", scopes=frozenset({held}))
    if held in (needed, Scope.ADMIN):
        caller.require(needed)
    else:
        with pytest.raises(ScopeMissing, match=needed.value):
            caller.require(needed)
