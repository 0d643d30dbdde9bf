"""Concurrent calls to several gateways that share one database."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from app.config import Settings
from app.db.tables import Dataset, DeletionRequest
from app.installations import Installation
from tests.conftest import FORM, npz
from tests.faults import processes

pytestmark = pytest.mark.postgres

Make = Callable[..., dict[str, Any]]
CALLS = 8


@pytest.fixture
def gateways(settings: Settings, admin_key: str) -> Iterator[list[httpx.Client]]:
    """Start two gateway processes and return a client of each."""
    with contextlib.ExitStack() as stack:
        clients = []
        for number in range(2):
            apart = settings.model_copy(update={"log_level": "error"})
            _, address = stack.enter_context(processes.gateway(apart))
            headers = {"Authorization": f"Bearer {admin_key}"}
            clients.append(stack.enter_context(httpx.Client(base_url=address, headers=headers, timeout=240)))
            assert clients[number].get("/healthz").status_code == 200
        yield clients


def at_once(gateways: list[httpx.Client], call: Callable[[httpx.Client, int], httpx.Response]) -> list[httpx.Response]:
    """Return the responses to `CALLS` concurrent calls, sent to the gateways alternately."""
    together = threading.Barrier(CALLS)

    def one(number: int) -> httpx.Response:
        together.wait()
        return call(gateways[number % 2], number)

    with ThreadPoolExecutor(CALLS) as threads:
        return list(threads.map(one, range(CALLS)))


def test_concurrent_calls_with_one_key_have_one_effect(
    gateways: list[httpx.Client], installation: Installation
) -> None:
    """The same call sent concurrently to two gateways with one Idempotency-Key has one effect and one response: an
    upload creates one dataset with one copy of the rows, and a request is created once. If different calls with one key
    are sent concurrently, one succeeds and the others get a conflict."""
    content = npz()

    def upload(gateway: httpx.Client, _number: int) -> httpx.Response:
        files = {"file": ("people.npz", content)}
        return gateway.post("/v1/datasets", data=FORM, files=files, headers={"Idempotency-Key": "upload"})

    answers = at_once(gateways, upload)
    assert [answer.status_code for answer in answers] == [201] * CALLS
    with installation.database.reading() as session:
        [dataset_id] = session.scalars(sa.select(Dataset.id))
    assert {answer.json()["id"] for answer in answers} == {dataset_id}
    assert set(installation.rows.stored()) == {dataset_id}

    def ask(gateway: httpx.Client, key: str, person: str) -> httpx.Response:
        return gateway.post("/v1/deletion-requests", json={"subject_id": person}, headers={"Idempotency-Key": key})

    def num_requests() -> int | None:
        with installation.database.reading() as session:
            return session.scalar(sa.select(sa.func.count()).select_from(DeletionRequest))

    answers = at_once(gateways, lambda gateway, _number: ask(gateway, "one person", "p1"))
    assert [answer.status_code for answer in answers] == [202] * CALLS
    assert len({answer.text for answer in answers}) == 1
    assert num_requests() == 1

    answers = at_once(gateways, lambda gateway, number: ask(gateway, "many people", f"p{number + 2}"))
    assert Counter(answer.status_code for answer in answers) == {202: 1, 409: CALLS - 1}
    assert {answer.json()["code"] for answer in answers if answer.status_code == 409} == {"idempotency_conflict"}
    assert num_requests() == 2


def test_concurrent_requests_for_one_person_all_complete(
    gateways: list[httpx.Client],
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    work: Callable[[], int],
) -> None:
    """Concurrent requests about one person all complete, each with a certificate, and the rows are erased only once."""
    new_model(new_dataset()["id"], noise_scale=0.02)
    work()

    def ask(gateway: httpx.Client, number: int) -> httpx.Response:
        key = {"Idempotency-Key": f"key {number}"}
        return gateway.post("/v1/deletion-requests", json={"subject_id": "p1"}, headers=key)

    made = [answer.json()["id"] for answer in at_once(gateways, ask)]
    assert len(set(made)) == CALLS
    assert work() == 1
    for request_id in made:
        request = gateways[0].get(f"/v1/deletion-requests/{request_id}").json()
        assert (request["status"], request["outcome"]) == ("completed", "forgotten")
        assert [model["status"] for model in request["models"]] == ["completed"]
