"""Many concurrent deletion requests at one gateway."""

import itertools
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.api import intake
from app.db import Actor
from app.db.tables import DeletionRequest, RequestEvent
from app.installations import Installation
from tests.counted import statements_to
from tests.faults.processes import wait_until
from tests.threads import num_waiting

PLACE = "/v1/deletion-requests"
Make = Callable[..., dict[str, Any]]


def at_once(gateway: TestClient, calls: list[dict[str, Any]]) -> list[httpx.Response]:
    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(lambda call: gateway.post(PLACE, **call), calls))


def test_a_refused_call_does_not_affect_others_stored_with_it(gateway: TestClient, new_dataset: Make) -> None:
    """When several calls are stored in one transaction, each call still gets its own response: its request or the
    reason for its refusal."""
    dataset_id = new_dataset()["id"]
    good = [{"json": {"subject_id": f"p{number}", "dataset_ids": [dataset_id]}} for number in range(10)]
    unknown = [{"json": {"subject_id": "p1", "dataset_ids": [f"ds_{number}"]}} for number in range(5)]
    no_text = [{"json": {"subject_id": "p1", "dataset_ids": ["ds_\0"]}}] * 3
    future = [{"json": {"subject_id": "p1", "submitted_at": "2999-01-01T00:00:00Z"}}]
    strangers = [{"json": {"subject_id": "nobody"}, "params": {"strict": True}}]
    answers = at_once(gateway, [*good, *unknown, *no_text, *future, *strangers])
    codes = ["accepted"] * 10 + ["dataset_unknown"] * 5 + ["input_invalid"] * 4 + ["subject_unknown"]
    assert [answer.json().get("code", answer.json()["status"]) for answer in answers] == codes
    assert len({answer.json()["id"] for answer in answers[:10]}) == 10


def test_concurrent_calls_with_one_key_create_one_request(
    gateway: TestClient, installation: Installation, new_dataset: Make
) -> None:
    """Many concurrent calls with the same Idempotency-Key and body create one request; a call with a different body is
    a conflict."""
    new_dataset()
    same = [{"json": {"subject_id": "p1"}, "headers": {"Idempotency-Key": "k"}}] * 12
    answers = at_once(gateway, same)
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    others = [{"json": {"subject_id": f"p{n}"}, "headers": {"Idempotency-Key": "other"}} for n in range(12)]
    assert Counter(answer.status_code for answer in at_once(gateway, others)) == {202: 1, 409: 11}
    with installation.database.reading() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(DeletionRequest)) == 2


def test_concurrent_requests_for_one_person_share_a_run(
    gateway: TestClient,
    installation: Installation,
    live: dict[str, Any],
    work: Callable[[], int],
    get: Callable[[str], Any],
) -> None:
    """Requests about one person that are stored in one transaction are all served by one run."""
    made = [answer.json() for answer in at_once(gateway, [{"json": {"subject_id": "p1"}}] * 8)]
    assert work() == 1
    done = [get(f"/deletion-requests/{request['id']}") for request in made]
    assert {request["outcome"] for request in done} == {"forgotten"}
    with installation.database.reading() as session:
        events = Counter(session.scalars(sa.select(RequestEvent.status)))
    assert (events["received"], events["accepted"], events["completed"]) == (8, 8, 8)


def test_a_page_takes_no_more_statements_than_one_request(
    gateway: TestClient,
    live: dict[str, Any],
    forget: Make,
    get: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Listing a page of requests together with their models takes no more SQL statements than listing a single
    request."""
    monkeypatch.setattr(intake, "_FRESH_SECONDS", 3600.0)  # no estimate is computed in between
    engine = gateway.app.state.installation.database.engine  # type: ignore[attr-defined]
    for number in range(5):
        forget(f"p{number}")
    counts = []
    for limit in (1, 5):
        with statements_to(engine) as statements:
            page = get(f"/deletion-requests?limit={limit}")["items"]
        assert [len(request["models"]) for request in page] == [1] * limit
        counts.append(
            len([statement for statement in statements if "deletion_requests" in statement or "models" in statement])
        )
    assert counts[0] == counts[1] == 2


def test_estimates_include_earlier_requests(live: dict[str, Any], forget: Make) -> None:
    """Within a few seconds, the estimates of new requests take earlier requests into account."""
    first = forget("p0")["estimate"]["steps"]
    people = (f"p{number}" for number in itertools.count(1))
    wait_until(lambda: time.sleep(0.3) or forget(next(people))["estimate"]["steps"] > first)


def test_one_tenants_requests_do_not_delay_others(gateway: TestClient, installation: Installation, by: Actor) -> None:
    """While one tenant posts many requests, both in batches and singly, another tenant's request is stored ahead of all
    but at most two of the batches and two of the single requests."""
    key = gateway.post("/v1/tenants", json={"name": "quiet"}).json()["admin_key"]
    database = gateway.app.state.installation.database  # type: ignore[attr-defined]
    batch = {"requests": [{"subject_id": "hard", "external_id": "batch"}] * 10}
    with ThreadPoolExecutor(400) as threads, database.writing(by=by):
        for number in range(1, 7):
            threads.submit(gateway.post, f"{PLACE}:batch", json=batch)
            wait_until(lambda number=number: num_waiting(database.turns) >= number)
        threads.submit(gateway.post, PLACE, json={"subject_id": "first"})
        wait_until(lambda: num_waiting(database.turns) >= 7)
        for _ in range(150):
            threads.submit(gateway.post, PLACE, json={"subject_id": "hard"})
        waiting = gateway.app.state.intake._waiting  # type: ignore[attr-defined]
        wait_until(lambda: len(waiting) == 150)
        quiet = threads.submit(
            gateway.post, PLACE, json={"subject_id": "quiet"}, headers={"Authorization": f"Bearer {key}"}
        )
        wait_until(lambda: len(waiting) == 151)
    assert quiet.result().status_code == 202
    with installation.database.reading() as session:
        events = session.execute(
            sa.select(DeletionRequest.tenant_id, DeletionRequest.external_ref)
            .join(RequestEvent, RequestEvent.request_id == DeletionRequest.id)
            .where(RequestEvent.status == "received")
            .order_by(RequestEvent.id)
        ).all()
    place = next(place for place, (tenant_id, _) in enumerate(events) if tenant_id != by.tenant_id)
    assert Counter(ref is not None for _, ref in events[:place])[True] <= 20
    assert Counter(ref is not None for _, ref in events[:place])[False] <= 2
