"""The asynchronous client against a live gateway and a live worker, and against a server that misbehaves on purpose."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app.config import Settings
from lethe import AsyncClient
from lethe.errors import (
    CertificateInvalid,
    InputInvalid,
    NotAllowed,
    NotFound,
    Unavailable,
    Unreachable,
    WaitTimedOut,
)
from tests.faults import processes
from tests.lethe.client.test_http import ANNA, DROP, EMPTY, REQUEST, problem
from tests.lethe.client.test_waiting import COMPLETED, RUNNING
from tests.lethe.scripted import Reply, Script
from tests.threads import apart

Told = Callable[[AsyncClient], Awaitable[object]]


def told(url: str, key: str, story: Told, *, retry_seconds: float = 60.0) -> None:
    """Run a story with a new asynchronous client, which is closed afterwards."""

    async def all_of_it() -> None:
        async with AsyncClient(url, key, retry_seconds=retry_seconds) as client:
            await story(client)

    apart(asyncio.run, all_of_it())


def test_rows_are_uploaded_trained_on_and_forgotten(
    settings: Settings, admin_key: str, people: Path, tmp_path: Path
) -> None:
    """The client can upload rows, train a model on them and forget people. Both the gateway and the client verify the
    resulting certificate. Long responses are streamed."""

    async def story(client: AsyncClient) -> None:
        dataset = await client.datasets.upload(people, classes=["0", "1"], idempotency_key="once")
        assert await client.datasets.upload(people, classes=["0", "1"], idempotency_key="once") == dataset
        created = await client.models.create(name="m", dataset_id=dataset.id, l2=0.05)
        model = await client.models.wait(created.id, timeout_seconds=240)
        assert (model.status, model.live_version) == ("live", 1)
        assert await client.models.wait_for_audit(model.id) is None
        made = await client.deletion_requests.create(subject_id="p3")
        seen: list[str] = []
        done = await client.deletion_requests.wait(
            made.id, timeout_seconds=240, progress=lambda status, *_: seen.append(status)
        )
        assert (done.status, done.outcome, seen[-1]) == ("completed", "forgotten", "completed")
        [certificate] = await client.deletion_requests.certificates(made.id)
        keys = await client.certificates.public_keys()
        by_gateway = await client.certificates.verify(certificate)
        assert by_gateway == await client.certificates.verify(certificate, jwks=keys)
        for jwks in (None, keys):
            with pytest.raises(CertificateInvalid):
                await client.certificates.verify(certificate.model_copy(update={"version": 7}), jwks=jwks)
        assert len(await client.models.weights(model.id, 2)) > 0
        assert b"".join([piece async for piece in client.ledger.export()]).count(b"\n") >= 2
        await client.deletion_requests.export(tmp_path / "requests.csv", subject_id="p3")
        assert made.id in (tmp_path / "requests.csv").read_text()

    with processes.gateway(settings) as (_, address), processes.worker(settings):
        told(address, admin_key, story)


def test_concurrent_calls_get_their_own_responses(settings: Settings, admin_key: str) -> None:
    """Twenty concurrent calls each get their own response. A list contains the items of all pages, and a batch returns
    its results in order."""

    async def story(client: AsyncClient) -> None:
        requests = client.deletion_requests
        made = await asyncio.gather(*(requests.create(subject_id=f"p{n}", external_id=f"e{n}") for n in range(20)))
        assert [one.external_id for one in made] == [f"e{n}" for n in range(20)]
        assert await asyncio.gather(*(requests.get(one.id) for one in made[:10])) == made[:10]
        assert {one.id async for one in requests.list(limit=8)} == {one.id for one in made}
        with pytest.raises(NotFound):
            await requests.get("dr_none")
        asked = ({"subject_id": f"q{n}"} for n in range(25))
        found = [item async for item in requests.create_many(asked, source="s", batch_size=10)]
        assert [item.index for item in found] == list(range(25))
        assert all(item.accepted for item in found)
        by_csv = await requests.create_from_csv(b"subject_id\r\nr1\r\nr2\r\n", source="t")
        assert (by_csv.accepted, by_csv.refused) == (2, 0)

    with processes.gateway(settings) as (_, address):
        told(address, admin_key, story)


def test_repeatable_calls_are_retried(script: Script) -> None:
    """Calls that are safe to repeat are retried with the same idempotency key. Other calls, and calls that were
    refused, are sent only once."""

    async def story(client: AsyncClient) -> None:
        script.says(DROP, problem(429), problem(503), EMPTY)
        assert [one async for one in client.runs.list()] == []
        assert len(script.calls) == 4
        script.calls.clear()
        script.says(DROP, problem(503), Reply(status=202, body=REQUEST))
        assert (await client.deletion_requests.create(subject_id="p3")).id == "dr_1"
        assert len({(call.headers["Idempotency-Key"], call.body) for call in script.calls}) == 1
        for failure, kind in ((DROP, Unreachable), (problem(503), Unavailable), (problem(403), NotAllowed)):
            script.calls.clear()
            script.says(failure)
            with pytest.raises(kind):
                await client.deletion_requests.cancel("dr_1")
            assert len(script.calls) == 1
        script.calls.clear()
        with pytest.raises(InputInvalid):
            await client.models.get("..")
        assert script.calls == []

    told(script.url, "k", story)


@pytest.mark.slow
def test_retries_end(script: Script) -> None:
    """If the gateway is unreachable, the client gives up after the time limit. Other tasks run in the meantime."""
    script.says(problem(503))
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            ticks.append(time.monotonic())
            await asyncio.sleep(0.05)

    async def story(client: AsyncClient) -> None:
        beside = asyncio.create_task(tick())
        with pytest.raises(Unavailable):
            await client.models.get("mdl_1")
        beside.cancel()

    told(script.url, "k", story, retry_seconds=2.0)
    assert len(script.calls) >= 3
    assert len(ticks) >= 5


def test_waiting_survives_a_restart(script: Script) -> None:
    """A client waiting for a request survives a restart of the gateway, and stops waiting once its timeout has
    elapsed."""

    async def story(client: AsyncClient) -> None:
        script.says(RUNNING, DROP, problem(503), RUNNING, COMPLETED)
        assert (await client.deletion_requests.wait("dr_1")).status == "completed"
        script.says(RUNNING)
        with pytest.raises(WaitTimedOut):
            await client.deletion_requests.wait("dr_1", timeout_seconds=0.4)

    told(script.url, "k", story)


def test_pages_are_fetched_lazily(script: Script) -> None:
    """The second page is requested only when its first item is needed, with the same filters as the first page."""

    async def story(client: AsyncClient) -> None:
        script.says(Reply(body={"items": [REQUEST], "next_cursor": "c"}), EMPTY)
        found = client.deletion_requests.list(source="s")
        assert script.calls == []
        assert (await anext(found)).id == "dr_1"
        assert len(script.calls) == 1
        assert [one async for one in found] == []
        path, _, query = script.calls[1].path.partition("?")
        assert (path, set(query.split("&"))) == ("/v1/deletion-requests", {"source=s", "cursor=c"})

    told(script.url, "k", story)


def test_subjects_are_not_logged(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    """No log message contains a subject id, even at the lowest log level and with many concurrent calls."""
    caplog.set_level(logging.DEBUG)
    script.says(Reply(body={"num_records": 1}))

    async def story(client: AsyncClient) -> None:
        await asyncio.gather(*(client.datasets.subject("ds_1", ANNA) for _ in range(5)))

    told(script.url, "k", story)
    assert len(script.calls) == 5
    assert "anna" not in caplog.text.lower()
