import pytest

from app.access import idempotency, repository
from app.access import service as access
from app.access.idempotency import Answer, Once
from app.db import Database
from app.errors import IdempotencyConflict
from app.installation import Installation

ANSWER = Answer(status=201, location="/v1/things/1", body={"id": "1", "numbers": [1, 0.1, None]})


@pytest.fixture
def database(at: Installation) -> Database:
    return at.database


@pytest.fixture
def once(database: Database) -> Once:
    """A call of the admin's."""
    with database.reading() as session:
        [admin] = repository.keys(session, limit=1, cursor=None).items
    return Once(api_key_id=admin.id, idempotency_key="k", fingerprint="f")


def test_the_first_answer_is_given_again(database: Database, once: Once) -> None:
    """A call that was made before is answered as it was then; one that was not has no answer."""
    with database.writing() as session:
        assert idempotency.replay(session, once) is None
        assert idempotency.remember(session, once, ANSWER) == ANSWER
    with database.reading() as session:
        assert idempotency.replay(session, once) == ANSWER


def test_another_call_with_the_same_key_is_a_conflict(database: Database, once: Once) -> None:
    """A key that came with another body is refused."""
    other = Once(api_key_id=once.api_key_id, idempotency_key="k", fingerprint="g")
    with database.writing() as session:
        idempotency.remember(session, once, ANSWER)
        with pytest.raises(IdempotencyConflict):
            idempotency.replay(session, other)


def test_keys_of_different_callers_do_not_meet(database: Database, once: Once) -> None:
    """The same idempotency key of another API key is another key."""
    with database.writing() as session:
        idempotency.remember(session, once, ANSWER)
        stranger = access.add_key(session, name="b", key="b", scopes=[])
        other = Once(api_key_id=stranger.id, idempotency_key="k", fingerprint="g")
        assert idempotency.replay(session, other) is None


def test_without_a_key_nothing_is_kept(database: Database, once: Once) -> None:
    """A call without an idempotency key is made as often as it comes."""
    call = Once(api_key_id=once.api_key_id, idempotency_key=None, fingerprint="f")
    with database.writing() as session:
        assert idempotency.remember(session, call, ANSWER) == ANSWER
        assert idempotency.replay(session, call) is None


def test_an_answer_goes_with_what_it_answers(database: Database, once: Once) -> None:
    """When the call fails after all, its answer was never given."""

    def fail() -> None:
        with database.writing() as session:
            idempotency.remember(session, once, ANSWER)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with database.reading() as session:
        assert idempotency.replay(session, once) is None
