"""A gateway that receives more calls than it can serve, and one that is killed under load."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import sqlalchemy as sa

from app.api.places import CALLS
from app.config import Settings
from app.db.tables import DeletionRequest, Erasure, IdempotentAnswer, RequestEvent
from app.installations import Installation
from tests.conftest import FORM, npz
from tests.faults import processes

KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]
on_both = pytest.mark.parametrize("kind", KINDS, indirect=True, scope="session")


def upload(client: httpx.Client) -> None:
    files = {"file": ("people.npz", npz(rows=3000))}
    client.post("/v1/datasets", data=FORM, files=files).raise_for_status()


@pytest.mark.soak
@on_both
def test_a_gateway_killed_under_load_loses_no_request(
    settings: Settings, installation: Installation, admin_key: str
) -> None:
    """If a gateway under load is killed with SIGKILL, every request that it had responded to is stored completely, and
    no request is stored partially."""
    answered: list[str] = []
    enough = threading.Event()
    headers = {"Authorization": f"Bearer {admin_key}"}
    with (
        processes.gateway(settings) as (child, address),
        httpx.Client(base_url=address, headers=headers, timeout=120) as client,
    ):
        upload(client)

        def ask(caller: int) -> None:
            with httpx.Client(base_url=address, headers=headers, timeout=120) as mine:
                for number in range(100):
                    try:
                        once = {"Idempotency-Key": f"{caller}-{number}"}
                        body = {"subject_id": f"p{caller * 100 + number}"}
                        answer = mine.post("/v1/deletion-requests", json=body, headers=once)
                    except httpx.TransportError:
                        return
                    assert answer.status_code == 202
                    answered.append(answer.json()["id"])
                    if len(answered) > 100:
                        enough.set()

        with ThreadPoolExecutor(16) as callers:
            asking = [callers.submit(ask, caller) for caller in range(16)]
            assert enough.wait(240)
            child.kill()
            for one in asking:
                one.result()
    assert len(answered) < 1600
    with installation.database.reading() as session:
        stored = set(session.scalars(sa.select(DeletionRequest.id)))
        erasures = Counter(session.scalars(sa.select(Erasure.request_id)))
        events = Counter(session.scalars(sa.select(RequestEvent.request_id)))
        kept = {location.split("/")[-1] for location in session.scalars(sa.select(IdempotentAnswer.location))}
        assert set(session.scalars(sa.select(DeletionRequest.status))) == {"accepted"}
    assert set(answered) <= stored
    assert (erasures, events, kept) == (dict.fromkeys(stored, 1), dict.fromkeys(stored, 2), stored)


@pytest.mark.soak
@on_both
def test_a_batch_interrupted_by_a_kill_can_be_repeated(
    settings: Settings, installation: Installation, admin_key: str
) -> None:
    """If a batch is interrupted by SIGKILL, sending it again completes it, with one request per person."""
    once = {"Authorization": f"Bearer {admin_key}", "Idempotency-Key": "batch"}
    batch = {"requests": [{"subject_id": f"p{number}", "external_id": str(number)} for number in range(5000)]}

    def count() -> int:
        with installation.database.reading() as session:
            return session.scalars(sa.select(sa.func.count()).select_from(DeletionRequest)).one()

    with processes.gateway(settings) as (child, address), ThreadPoolExecutor(1) as caller:
        call = caller.submit(httpx.post, f"{address}/v1/deletion-requests:batch", json=batch, headers=once, timeout=240)
        processes.wait_until(lambda: count() > 0)
        child.kill()
        assert isinstance(call.exception(), httpx.TransportError)
    assert 0 < count() < 5000
    with processes.gateway(settings) as (_, address):
        answer = httpx.post(f"{address}/v1/deletion-requests:batch", json=batch, headers=once, timeout=240)
        assert (answer.status_code, answer.json()["accepted"]) == (202, 5000)
    with installation.database.reading() as session:
        written = session.scalars(sa.select(DeletionRequest.particulars))
        assert Counter(one.external_id for one in written) == {str(number): 1 for number in range(5000)}


@on_both
def test_excess_calls_are_refused_at_once(settings: Settings, installation: Installation, admin_key: str) -> None:
    """While the database is blocked, calls beyond a limit are refused at once, and the other calls are served later."""
    headers = {"Authorization": f"Bearer {admin_key}"}
    limits = httpx.Limits(max_connections=None)
    with (
        processes.gateway(settings) as (_, address),
        httpx.Client(base_url=address, headers=headers, timeout=240, limits=limits) as client,
    ):
        upload(client)

        def ask(number: int) -> httpx.Response:
            return client.post("/v1/deletion-requests", json={"subject_id": f"p{number}"})

        with ThreadPoolExecutor(CALLS + 40) as callers:
            with installation.database.writing() as session:  # no other process writes
                session.execute(sa.text("SELECT 1"))
                asking = [callers.submit(ask, number) for number in range(CALLS + 40)]
                processes.wait_until(lambda: sum(call.done() for call in asking) == 40)
                refused = [call.result() for call in asking if call.done()]
                assert client.get("/healthz").status_code == 200
            answers = Counter(call.result().status_code for call in asking)
    assert answers == {202: CALLS, 503: 40}
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    assert {answer.headers["content-type"] for answer in refused} == {"application/problem+json"}
    assert {answer.json()["code"] for answer in refused} == {"busy"}
