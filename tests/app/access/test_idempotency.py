import pytest
from sqlalchemy.orm import Session

from app.access import idempotency
from app.access.idempotency import Once, StoredResponse
from app.db import Database
from app.installations import Installation
from lethe.contract.problems import IdempotencyConflict

ONCE = Once(name="k", fingerprint="f")
ANSWER = StoredResponse(status=201, location="/v1/things/1", body={"id": "1", "numbers": [1, 0.1, None]})


def make(_session: Session) -> StoredResponse:
    return ANSWER


def refuse(_session: Session) -> StoredResponse:
    raise AssertionError("it was done before")


@pytest.fixture
def database(installation: Installation) -> Database:
    return installation.database


def test_repeated_calls_get_the_stored_response(database: Database) -> None:
    """The first call with an idempotency key finds no stored response; a repeated call returns the stored one."""
    with database.writing() as session:
        assert idempotency.replay(session, ONCE) is None
        assert idempotency.perform(session, ONCE, make) == ANSWER
    with database.writing() as session:
        assert idempotency.perform(session, ONCE, refuse) == ANSWER


def test_reusing_a_key_for_another_call_is_a_conflict(database: Database) -> None:
    """Reusing an idempotency key with a different body is refused."""
    other = Once(name="k", fingerprint="g")
    with database.writing() as session:
        idempotency.perform(session, ONCE, make)
        with pytest.raises(IdempotencyConflict):
            idempotency.perform(session, other, refuse)


def test_calls_without_a_key_are_not_stored(database: Database) -> None:
    """A call without an idempotency key is executed, and its response is not stored for replay."""
    call = Once(name=None, fingerprint="f")
    with database.writing() as session:
        assert idempotency.perform(session, call, make) == ANSWER
        assert idempotency.replay(session, call) is None


def test_stored_responses_roll_back_with_their_call(database: Database) -> None:
    """If the transaction fails after a response was stored, the stored response is rolled back too."""

    def fail() -> None:
        with database.writing() as session:
            idempotency.perform(session, ONCE, make)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with database.reading() as session:
        assert idempotency.replay(session, ONCE) is None
