"""Calls that are refused because of their arguments or their caller."""

import datetime
import re
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from app.access import rates
from app.main import create_app
from lethe.features.attested import manifests
from lethe.features.desk.contract import MAX_NOTES
from tests.app.deletion import people
from tests.conftest import CLASSES, npz
from tests.features.attested.conftest import new_key
from tests.features.networks import nets
from tests.features.networks.networks import exported
from tests.features.together.error_codes.world import World


def unknown(w: World, path: str, method: str = "GET") -> str:
    return w.code(method, path)


def task(w: World, **of_system: Any) -> str:
    """Return the id of a system's open task, after creating the system and a request."""
    body = {"name": "Shop", "contact": "its team", "webhook_url": "https://shop.example/lethe"} | of_system
    w.done("POST", "/systems", json=body)
    w.request_id()
    return str(w.done("GET", "/system-tasks")["items"][0]["id"])


def closed_task(w: World, verb: str) -> str:
    """Close a task as an officer, and return the error code for acknowledging it with the system's own key."""
    [key] = w.done("GET", "/api-keys")["items"]
    path = f"/system-tasks/{task(w, api_key_id=key['id'])}"
    w.done("POST", f"{path}/close", json={"reason": "gone"})
    return w.code("POST", f"{path}/{verb}", json={"by": "somebody"})


def manifest(w: World) -> str:
    """Return the error code for submitting a manifest that is signed with a different key."""
    key = new_key()
    body = {"name": "Churn", "contact": "its team", "webhook_url": "https://shop.example/lethe", "public_key": key["x"]}
    made = w.done("POST", "/attested-trainers", json=body)
    signed = manifests.sign(
        new_key(),
        trainer_id=made["id"],
        retraining_id=made["retraining_id"],
        rows_read_at=made["created_at"],
        identifiers=[],
        artefacts=["0" * 64],
        code_revision="1",
        environment="1",
    )
    return w.code("POST", f"/attested-trainers/{made['id']}/manifests", json=signed)


def in_review(w: World) -> str:
    w.done("PATCH", "/tenant", json={"policy": {"auto_accept": False}})
    return w.request_id()


def form_from_elsewhere(w: World) -> str:
    """Return the code that the page shows for a form sent from another site."""
    [code] = re.findall('data-code="([a-z_]+)"', w.gateway.post("/admin/login", data={"key": "lethe_x"}).text)
    return str(code)


def invited(w: World, **asked: str) -> dict[str, str]:
    """Invite a user, and return the response."""
    body = {"name": "Maria", "email": "maria@example.com", "role": "administrator"} | asked
    made: dict[str, str] = w.done("POST", "/users", json=body)
    return made


def at_the_door(w: World, path: str, **fields: str) -> str:
    """Return the error code of a page that is shown before login."""
    form = re.findall('name="csrf" value="([0-9a-f]{64})"', w.gateway.get("/admin/login").text)
    page = w.gateway.post(path, data={"csrf": form[0]} | fields, headers={"Origin": "http://testserver"})
    return str(re.findall('data-code="([a-z_]+)"', page.text)[0])


def by_provider(w: World, path: str) -> str:
    """Return the code that the login page shows when the identity provider is unreachable."""
    settings = w.settings.model_copy(update={"oidc_issuer": "http://127.0.0.1:9", "oidc_client_id": "lethe"})
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        return str(re.findall('data-code="([a-z_]+)"', client.get(path).text)[0])


def last_administrator(w: World) -> str:
    """Return the error code for making the only administrator a viewer when every API key has an expiry date."""
    made = invited(w)
    w.behind("UPDATE users SET password_hash = 'any'", "UPDATE api_keys SET expires_at = '2999-01-01 00:00:00.000000'")
    return w.code("PATCH", f"/users/{made['id']}", json={"role": "viewer"})


def with_agent(w: World, **said: Any) -> str:
    """Return the error code for the refusal of an agent's message. The protocol itself states the refusal only in
    words."""
    words = w.agent().exercise(**said).json()["message"]
    sentences = {
        "another business": "message_refused",
        "from the future": "message_early",
        "expired": "message_expired",
    }
    return next((code for sentence, code in sentences.items() if sentence in words), words)


def between(w: World, *, issued: int, expires: int) -> str:
    """Return the code for an agent's message that is valid between these times, given in hours from now."""
    at, hour = datetime.datetime.now(datetime.UTC), datetime.timedelta(hours=1)
    moments = {"issued-at": at + issued * hour, "expires-at": at + expires * hour}
    return with_agent(w, **{name: moment.isoformat() for name, moment in moments.items()})


def rate_limited(w: World) -> str:
    body = {"name": "slow", "scopes": ["models:read"], "calls_per_minute": 1}
    headers = {"Authorization": f"Bearer {w.done('POST', '/api-keys', json=body)['key']}"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rates, "_present", lambda: 1000)
        w.done("GET", "/models", headers=headers)
        return w.code("GET", "/models", headers=headers)


def statement_wanted(w: World, **asked: str) -> str:
    w.done("PATCH", "/tenant", json={"policy": {"identity": "statement"}})
    return w.code("POST", "/deletion-requests", json={"subject_id": "p1"} | asked)


def beyond_quota(w: World) -> str:
    settings = w.settings.model_copy(update={"max_tenant_bytes": 1000})
    with TestClient(create_app(settings), headers=w.gateway.headers) as small:
        files = {"file": ("people.npz", npz(rows=20))}
        answer = small.post("/v1/datasets", data={"name": "people", "classes": CLASSES}, files=files)
    return str(answer.json()["code"])


def weights_destroyed(w: World) -> str:
    model_id = w.live()
    w.forget("p1")
    w.work()
    return w.code("GET", f"/models/{model_id}/versions/1/weights")


def less_than_asked_for(w: World) -> str:
    w.live()
    request_id = w.request_id()
    w.work()
    [certificate] = w.done("GET", f"/deletion-requests/{request_id}/certificate")["certificates"]
    return w.code("POST", "/certificates:verify", json={"jws": certificate["jws"], "max_epsilon": 1e-6})


def idempotency_conflict(w: World) -> str:
    once = {"headers": {"Idempotency-Key": "one"}}
    w.done("POST", "/deletion-requests", json={"subject_id": "p1"}, **once)
    return w.code("POST", "/deletion-requests", json={"subject_id": "p2"}, **once)


def evaluation_overlaps(w: World) -> str:
    one, other = w.dataset_id(), w.dataset_id()
    return w.code("POST", "/models", json={"name": "m", "dataset_id": one, "evaluation_dataset_id": other})


def subject_rule_fixed(w: World) -> str:
    w.request_id()
    return w.code("PATCH", "/tenant", json={"policy": {"subject_rule": "email"}})


def last_admin_key(w: World) -> str:
    [own] = w.done("GET", "/api-keys")["items"]
    return w.code("DELETE", f"/api-keys/{own['id']}")


def extended(w: World, *, after: datetime.timedelta | None = None, regulation: str = "gdpr", times: int = 1) -> str:
    w.new_dataset()
    path = f"/deletion-requests/{w.request_id(regulation=regulation)}/extend"
    if after:
        with w.installation.database.writing() as session:
            people.later(session, after)
    for _ in range(times - 1):
        w.done("POST", path, json={"reason": "much to do"})
    return w.code("POST", path, json={"reason": "much to do"})


def decided(w: World) -> str:
    request_id = w.request_id(identity_verified=False)
    w.done("POST", f"/deletion-requests/{request_id}/cancel")
    return w.code("POST", f"/deletion-requests/{request_id}/approve")


def paused(w: World) -> str:
    request_id = w.request_id(identity_verified=False, **w.under())
    return w.code("POST", f"/deletion-requests/{request_id}/pause", json={"reason": "identity"})


def noted_too_late(w: World) -> str:
    """Return the error code for adding a note to a request that ended long ago."""
    request_id = w.request_id(identity_verified=False)
    w.done("POST", f"/deletion-requests/{request_id}/cancel")
    w.behind("UPDATE deletion_requests SET ended_at = '2020-01-01 00:00:00.000000'")
    return w.code("POST", f"/deletion-requests/{request_id}/notes", json={"text": "too late"})


def noted_too_often(w: World) -> str:
    path = f"/deletion-requests/{w.request_id()}/notes"
    for _ in range(MAX_NOTES):
        w.done("POST", path, json={"text": "again"})
    return w.code("POST", path, json={"text": "again"})


def attached_too_often(w: World) -> str:
    path = f"/deletion-requests/{w.request_id()}/attachments"
    for _ in range(w.settings.max_attachments):
        w.done("POST", path, files={"file": ("a.txt", b"again")})
    return w.code("POST", path, files={"file": ("a.txt", b"again")})


def referred(w: World) -> str:
    w.new_dataset()
    return w.code("POST", "/deletion-requests", json={"subject_id": "p1", "refers_to": w.request_id()})


def suppressed(w: World) -> str:
    w.new_dataset()
    w.forget("p1")
    w.work()
    return w.upload(npz(), classes=CLASSES)


def held(w: World) -> str:
    """Return the id of a model whose version misses its quality gate."""
    measured = w.dataset_id(name="measured", seed=1, first=1000)
    gate = {"metric": "accuracy", "threshold": 2.0, "on_breach": "hold"}
    model_id = w.model_id(evaluation_dataset_id=measured, quality=gate)
    w.work()
    return model_id


def waited_for(w: World) -> str:
    """Return the id of a model that a request is waiting for."""
    model_id = w.live()
    w.request_id()
    return model_id


def retired(w: World, kind: str, retired_id: str) -> str:
    w.done("DELETE", f"/{kind}/{retired_id}")
    return retired_id


def ended_run(w: World) -> str:
    w.live()
    return str(w.done("GET", "/runs")["items"][0]["id"])


def network(gateway: TestClient, content: bytes) -> str:
    """Return the error code of uploading a network; empty if the network is accepted."""
    answer = gateway.post("/v1/networks", data=nets.FORM, files={"file": ("net.onnx", content)})
    return str(answer.json().get("code", ""))


def network_without_memory(w: World) -> str:
    settings = w.settings.model_copy(update={"network_memory_bytes": 1})
    with TestClient(create_app(settings), raise_server_exceptions=False, headers=w.gateway.headers) as gateway:
        return network(gateway, nets.linear())


def network_in_use(w: World) -> str:
    """Return the error code for deleting a network whose features a dataset uses as rows."""
    network(w.gateway, nets.linear())
    [found] = w.done("GET", "/networks")["items"]
    w.behind(f"UPDATE datasets SET network_id = '{found['id']}' WHERE id = '{w.dataset_id()}'")
    return w.code("DELETE", f"/networks/{found['id']}")


def rehearsed(w: World) -> str:
    """Return the error code for rehearsing a version a second time."""
    path = f"/models/{w.live()}/rehearsals"
    w.done("POST", path, json={"people": 10})
    w.work()
    return w.code("POST", path, json={"people": 10})


def tangent_predicted(w: World) -> str:
    """Return the error code for requesting a prediction from a tangent model."""
    dataset = w.new_dataset()
    content = exported(torch.nn.Sequential(torch.nn.Linear(dataset["num_features"], 1)), dataset["num_features"])
    network(w.gateway, content)
    [found] = w.done("GET", "/networks")["items"]
    made = w.new_model(dataset["id"], tangent={"network_id": found["id"], "layers": ["0.weight"]}, l2=0.1)
    w.work()
    return w.code("POST", f"/models/{made['id']}/predictions", json={"records": [[0.0] * dataset["num_features"]]})
