"""Places for network processes: isolation of tenants, and refusals beyond the limit."""

import threading
import time
from typing import Any

from fastapi.testclient import TestClient

from app.access.service import DEFAULT_TENANT
from app.features.networks import service
from tests.conftest import FORM, npz
from tests.features.networks import nets


def upload(gateway: TestClient, content: bytes, **headers: str) -> Any:
    return gateway.post("/v1/networks", data=nets.FORM, files={"file": ("net.onnx", content)}, headers=headers)


def test_many_uploads_of_a_tenant_do_not_delay_others(gateway: TestClient) -> None:
    """While one tenant uploads fourteen slow networks, another tenant gets responses without delay and can register a
    network. Uploads beyond the limit return 503 with Retry-After and are not stored."""
    key = gateway.post("/v1/tenants", json={"name": "shop"}).json()["admin_key"]
    theirs = {"Authorization": f"Bearer {key}"}
    answers: list[Any] = []
    uploads = [
        threading.Thread(target=lambda size=size: answers.append(upload(gateway, nets.slow(size))))
        for size in range(1000, 1014)
    ]
    for one in uploads:
        one.start()
    time.sleep(1)
    began = time.monotonic()
    assert gateway.get("/v1/networks", headers=theirs).status_code == 200
    waited = time.monotonic() - began
    registered = upload(gateway, nets.linear(), **theirs)
    are_busy = any(one.is_alive() for one in uploads)
    for one in uploads:
        one.join()
    assert waited < 3
    assert registered.status_code == 201, registered.text
    assert are_busy
    accepted = [answer.json()["id"] for answer in answers if answer.status_code == 201]
    refused = [answer for answer in answers if answer.status_code != 201]
    assert len(accepted) >= service.OF_TENANT
    assert {(answer.status_code, answer.json()["code"]) for answer in refused} == {(503, "busy")}
    assert all(int(answer.headers["retry-after"]) > 0 for answer in refused)
    assert {network["id"] for network in gateway.get("/v1/networks").json()["items"]} == set(accepted)


def test_uploads_of_rows_take_places(gateway: TestClient) -> None:
    """An upload of rows for a network returns 503 while its tenant uses all of its places, and nothing is stored.
    Places used by another tenant do not count."""
    network = upload(gateway, nets.linear()).json()["id"]
    rows = {"data": FORM | {"network_id": network}, "files": {"file": ("people.npz", npz(features=nets.WIDTH))}}
    with service.place(DEFAULT_TENANT), service.place(DEFAULT_TENANT), service.place(DEFAULT_TENANT):
        answer = gateway.post("/v1/datasets", **rows)
        assert (answer.status_code, answer.json()["code"]) == (503, "busy")
        assert gateway.get("/v1/datasets").json()["items"] == []
        assert gateway.get("/v1/datasets:encodings").json()["items"] == []
    with service.place("b"), service.place("b"), service.place("b"):
        assert gateway.post("/v1/datasets", **rows).status_code == 201
