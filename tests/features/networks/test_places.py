"""Places for network processes: isolation of tenants, and refusals beyond the limit."""

import threading
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.access.service import DEFAULT_TENANT
from app.features.networks import service
from tests.conftest import FORM, npz
from tests.faults.processes import wait_until
from tests.features.networks import nets


def upload(gateway: TestClient, content: bytes, **headers: str) -> Any:
    return gateway.post("/v1/networks", data=nets.FORM, files={"file": ("net.onnx", content)}, headers=headers)


@pytest.mark.soak
def test_one_tenants_uploads_do_not_delay_other_tenants(gateway: TestClient) -> None:
    """While one tenant uploads fourteen slow networks, another tenant gets responses and can register a network before
    the first of those uploads ends. Uploads beyond the limit get a 503 response with Retry-After and are not stored."""
    key = gateway.post("/v1/tenants", json={"name": "shop"}).json()["admin_key"]
    theirs = {"Authorization": f"Bearer {key}"}
    answers: list[Any] = []
    uploads = [
        threading.Thread(target=lambda size=size: answers.append(upload(gateway, nets.slow(size))))
        for size in range(1200, 1214)
    ]
    for one in uploads:
        one.start()
    wait_until(lambda: len(answers) >= len(uploads) - service.OF_TENANT)
    assert gateway.get("/v1/networks", headers=theirs).json()["items"] == []
    registered = upload(gateway, nets.linear(), **theirs)
    refused = list(answers)
    for one in uploads:
        one.join()
    assert registered.status_code == 201, registered.text
    assert {(answer.status_code, answer.json()["code"]) for answer in refused} == {(503, "busy")}
    assert all(int(answer.headers["retry-after"]) > 0 for answer in refused)
    accepted = answers[len(refused) :]
    assert [answer.status_code for answer in accepted] == [201] * service.OF_TENANT
    stored = {network["id"] for network in gateway.get("/v1/networks").json()["items"]}
    assert stored == {answer.json()["id"] for answer in accepted}


@pytest.mark.slow
def test_row_uploads_count_towards_the_process_limit(gateway: TestClient) -> None:
    """While a tenant is running its maximum number of network processes, an upload of rows for a network gets a 503
    response and nothing is stored. Other tenants' processes do not count."""
    network = upload(gateway, nets.linear()).json()["id"]
    rows = {"data": FORM | {"network_id": network}, "files": {"file": ("people.npz", npz(features=nets.WIDTH))}}
    with service.place(DEFAULT_TENANT), service.place(DEFAULT_TENANT), service.place(DEFAULT_TENANT):
        answer = gateway.post("/v1/datasets", **rows)
        assert (answer.status_code, answer.json()["code"]) == (503, "busy")
        assert gateway.get("/v1/datasets").json()["items"] == []
        assert gateway.get("/v1/datasets:encodings").json()["items"] == []
    with service.place("b"), service.place("b"), service.place("b"):
        assert gateway.post("/v1/datasets", **rows).status_code == 201
