"""The work that a run does while it holds the write lock."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import signing
from app.installations import Installation
from app.signing import NotSigned, SignedAhead
from app.unlearning import queue
from tests.app.unlearning import held
from worker import edits, runner

Make = Callable[..., dict[str, Any]]


@dataclasses.dataclass
class Counted:
    """Numbers of statements and signatures within write transactions, and of signatures outside them."""

    statements: int = 0
    signed_inside: int = 0
    signed_outside: int = 0


@contextmanager
def counted(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    """Count a run's SQL statements and signatures inside and outside write transactions."""
    counts = Counted()
    engine, sign = installation.database.engine, signing.sign
    writers: set[int] = set()

    def is_writer(connection: sa.Connection) -> bool:
        options = connection.get_execution_options()
        return not options.get("lethe_read_only", False) and options.get("lethe_exclusive", True)

    def begin(connection: sa.Connection) -> None:
        if is_writer(connection):
            writers.add(id(connection))

    def end(connection: sa.Connection) -> None:
        writers.discard(id(connection))

    def execute(connection: sa.Connection, *_: Any) -> None:
        counts.statements += id(connection) in writers

    def spy(*given: Any, **named: Any) -> str:
        counts.signed_inside += bool(writers)
        counts.signed_outside += not writers
        return sign(*given, **named)

    events = {"begin": begin, "before_cursor_execute": execute, "commit": end, "rollback": end}
    with monkeypatch.context() as patched:
        patched.setattr(signing, "sign", spy)
        for name, listener in events.items():
            sa.event.listen(engine, name, listener)
        try:
            yield counts
        finally:
            for name, listener in events.items():
                sa.event.remove(engine, name, listener)


@pytest.fixture
def forgotten(
    gateway: TestClient,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    work: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[list[str]], Counted]:
    """Return a function that requests the deletion of several people from a live model in one call and counts the work
    of the resulting run."""
    new_model(new_dataset()["id"], noise_scale=0.02)
    assert work() == 1

    def forget(people: list[str]) -> Counted:
        body = {"requests": [{"subject_id": person} for person in people]}
        answer = gateway.post("/v1/deletion-requests:batch", json=body).json()
        with counted(installation, monkeypatch) as counts:
            assert runner.run_next(installation, worker="w")
        for item in answer["items"]:
            request = gateway.get(f"/v1/deletion-requests/{item['id']}").json()
            assert (request["status"], request["outcome"]) == ("completed", "forgotten")
            assert len(request["models"]) == 1
            assert request["models"][0]["certificate_id"]
        return counts

    return forget


@pytest.mark.soak
def test_requests_do_not_lengthen_write_transactions(forgotten: Callable[[list[str]], Counted]) -> None:
    """A run for thirty requests, whether about one person or thirty, executes about as many statements under the write
    lock as a run for ten. A run for a single request executes fewer, and its certificate is signed in the publishing
    transaction."""
    ten = forgotten(["p0"] * 10).statements
    assert forgotten(["p1"] * 30).statements <= ten + 5
    assert forgotten([f"p{number}" for number in range(2, 32)]).statements <= ten + 5
    assert forgotten(["p40"]).statements < ten


def test_certificates_are_signed_outside_write_transactions(forgotten: Callable[[list[str]], Counted]) -> None:
    """A run with many certificates signs them and the head of the ledger while other writers can write. A run with only
    a few signs them in the transaction that stores them."""
    counts = forgotten(["p0"] * 9)
    assert (counts.signed_inside, counts.signed_outside) == (0, 10)
    counts = forgotten(["p1"])
    assert (counts.signed_inside, counts.signed_outside) == (2, 0)


def test_a_request_that_joins_after_signing_is_certified(
    gateway: TestClient, installation: Installation, new_dataset: Make, new_model: Make, work: Callable[[], int]
) -> None:
    """If a request joins a run after the run's certificates were signed, all of the run's requests get newly signed
    certificates. The certificate signed first refers to another ledger entry and is not stored."""
    new_model(new_dataset()["id"], noise_scale=0.02)
    assert work() == 1
    ask = functools.partial(gateway.post, "/v1/deletion-requests", json={"subject_id": "p0"})
    first = ask().json()["id"]
    with installation.database.writing() as session:
        claimed = queue.claim(session, worker="w", lease_seconds=60, max_requests=10)
    assert claimed
    edits.edited(installation, claimed)
    ahead = SignedAhead(few=0)
    with pytest.raises(NotSigned):
        held.publish(installation, claimed, ahead=ahead)
    ahead.sign()
    second = ask().json()["id"]
    with pytest.raises(NotSigned):
        held.publish(installation, claimed, ahead=ahead)
    ahead.sign()
    held.publish(installation, claimed, ahead=ahead)
    entry = gateway.get(f"/v1/accounting/models/{claimed.model_id}/ledger").json()["items"][-1]
    for request_id in (first, second):
        [model] = gateway.get(f"/v1/deletion-requests/{request_id}").json()["models"]
        certificate = gateway.get(f"/v1/certificates/{model['certificate_id']}").json()
        statement = certificate["statement"]
        assert (statement["request"]["id"], statement["ledger"]["hash"]) == (request_id, entry["hash"])
    assert held.status_of(installation, claimed) == "published"


def test_signatures_of_other_facts_are_not_used() -> None:
    """A signature is used only for the facts that it covers. With `at_once`, a missing signature is created
    immediately."""
    ahead = SignedAhead(few=0)
    with pytest.raises(NotSigned):
        ahead.of({"a": (1, lambda: "signed 1")})
    ahead.sign()
    assert ahead.of({"a": (1, lambda: "made again")}) == {"a": "signed 1"}
    with pytest.raises(NotSigned):
        ahead.of({"a": (2, lambda: "signed 2")})
    ahead.at_once = True
    assert ahead.of({"a": (2, lambda: "signed 2")}) == {"a": "signed 2"}
