"""Gateways and workers killed at each hop of a system's task and of an attested retraining.

Each is a separate process, killed by SIGKILL when it reaches the hop, and followed by another. Nothing is lost, nothing
is applied twice, and the request completes."""

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest

from app.config import Settings
from app.features.webhooks.tables import WebhookDelivery
from app.installations import Installation
from lethe.features.attested import manifests
from lethe.features.systems import acknowledgements
from tests.faults import processes
from tests.faults.processes import wait_until
from tests.features.webhooks.conftest import Receiver

HOPS = ("not committed", "committed")
Receiving = Callable[..., AbstractContextManager[Receiver]]


@contextlib.contextmanager
def _gateway(settings: Settings, admin_key: str, *, hop: str | None = None) -> Iterator[httpx.Client]:
    """Yield a client for a gateway process. If `hop` is given, check that the gateway died by SIGKILL."""
    with processes.gateway(settings, hop=hop) as (child, address):
        with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {admin_key}"}, timeout=120) as client:
            yield client
        assert hop is None or child.died() == -9, child.log.read_text()


def _post(client: httpx.Client, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
    answer = client.post(f"/v1{path}", json=body)
    assert answer.status_code == status, answer.text
    made: dict[str, Any] = answer.json()
    return made


def _get(client: httpx.Client, path: str, **query: str) -> dict[str, Any]:
    answer = client.get(f"/v1{path}", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _lost(client: httpx.Client, path: str, **body: Any) -> None:
    """Make a call to a gateway that dies before it responds."""
    with pytest.raises(httpx.TransportError):
        client.post(f"/v1{path}", json=body)


def _entries(client: httpx.Client) -> Counter[str]:
    """Count the audit log's entries by action."""
    return Counter(entry["action"] for entry in _get(client, "/audit-log", limit="200")["items"])


def _completed(settings: Settings, client: httpx.Client, request: dict[str, Any]) -> None:
    """Check that a worker completes the request exactly once."""
    path = f"/deletion-requests/{request['id']}"
    with processes.worker(settings):
        wait_until(lambda: _get(client, path)["status"] == "completed")
    statuses = [event["status"] for event in _get(client, f"{path}/events")["items"]]
    assert statuses.count("completed") == 1


@pytest.mark.parametrize("hop", HOPS)
def test_a_killed_gateway_applies_an_acknowledgement_once(
    hop: str, settings: Settings, admin_key: str, system_key: dict[str, str], receiving: Receiving
) -> None:
    """If the gateway is killed before or after committing an acknowledgement, sending the acknowledgement again applies
    it only once. The request stays open until all other systems have acknowledged too."""
    with receiving() as receiver:
        with _gateway(settings, admin_key, hop=f"app.features.systems.service.acknowledge, {hop}") as client:
            body = {"contact": "its team", "webhook_url": receiver.url, "public_key": system_key["x"]}
            for name in ("Recommender", "Warehouse"):
                _post(client, "/systems", 201, name=name, **body)
            request = _post(client, "/deletion-requests", 202, subject_id="ada")
            tasks = _get(client, "/system-tasks", request_id=request["id"])["items"]
            signed = {task["id"]: acknowledgements.sign(system_key, task=task, by="on call") for task in tasks}
            first, second = signed
            receiver.got(2)
            _lost(client, f"/system-tasks/{first}/acknowledge", jws=signed[first])
        with _gateway(settings, admin_key) as client:
            status = {"not committed": "open", "committed": "acknowledged"}[hop]
            assert _get(client, f"/system-tasks/{first}")["status"] == status
            for _ in range(2):
                ended = _post(client, f"/system-tasks/{first}/acknowledge", jws=signed[first])
                assert ended["status"] == "acknowledged"
            assert _get(client, f"/deletion-requests/{request['id']}")["status"] != "completed"
            _post(client, f"/system-tasks/{second}/acknowledge", jws=signed[second])
            _completed(settings, client, request)
            assert _entries(client)["system_task.acknowledged"] == 2
            assert _get(client, f"/deletion-requests/{request['id']}/bundle")["grade"] == "acknowledged"
    assert Counter(json.loads(call.body)["data"]["id"] for call in receiver.server.calls).keys() == set(signed)
    assert len(set(receiver.ids())) == 2


@pytest.mark.parametrize("hop", HOPS)
def test_a_killed_gateway_loses_no_task(
    hop: str, settings: Settings, admin_key: str, system_key: dict[str, str], receiving: Receiving
) -> None:
    """If the gateway is killed while it opens the tasks of a request, the request either has all of its tasks or does
    not exist. Repeating the call with its idempotency key results in one request with one task, and the system is
    notified once."""
    keyed = {"Idempotency-Key": "ticket 7"}
    with receiving() as receiver:
        with _gateway(settings, admin_key, hop=f"app.features.systems.service._open, {hop}") as client:
            body = {"contact": "its team", "webhook_url": receiver.url, "public_key": system_key["x"]}
            _post(client, "/systems", 201, name="Recommender", **body)
            with pytest.raises(httpx.TransportError):
                client.post("/v1/deletion-requests", json={"subject_id": "ada"}, headers=keyed)
        with _gateway(settings, admin_key) as client:
            present = _get(client, "/system-tasks")["items"]
            assert len(present) == len(_get(client, "/deletion-requests")["items"]) == (hop == "committed")
            answers = [
                client.post("/v1/deletion-requests", json={"subject_id": "ada"}, headers=keyed).json() for _ in range(2)
            ]
            assert len({one["id"] for one in answers}) == 1
            [task] = _get(client, "/system-tasks")["items"]
            assert present in ([], [task])
            receiver.got(1)
            jws = acknowledgements.sign(system_key, task=task, by="on call")
            _post(client, f"/system-tasks/{task['id']}/acknowledge", jws=jws)
            _completed(settings, client, answers[0])
    assert len(set(receiver.ids())) == 1


@pytest.mark.parametrize("hop", HOPS)
def test_a_killed_gateway_applies_a_manifest_once(
    hop: str, settings: Settings, admin_key: str, system_key: dict[str, str], receiving: Receiving
) -> None:
    """If the gateway is killed before or after committing a manifest, sending the manifest again completes each waiting
    request only once. Before that, none of the manifest's artefacts may be served."""
    artefact = hashlib.sha256(b"weights").hexdigest()
    with receiving() as receiver:
        with _gateway(settings, admin_key, hop=f"app.features.attested.service.accept, {hop}") as client:
            trainer, requests = _trainer_with_requests(client, system_key, receiver.url, "ada", "bob")
            path = f"/attested-trainers/{trainer['id']}"
            body = _manifest(client, trainer, system_key, artefact)
            _lost(client, f"{path}/manifests", **body)
        with _gateway(settings, admin_key) as client:
            serving = _get(client, "/serving", artefact_sha256=artefact)
            assert (serving["may_serve"], serving["reason"]) == (
                (True, None) if hop == "committed" else (False, "unknown")
            )
            accepted = [_post(client, f"{path}/manifests", **body) for _ in range(2)]
            assert accepted[0] == accepted[1]
            assert accepted[0]["num_served"] == 2
            for request in requests:
                _completed(settings, client, request)
            assert _entries(client)["attested_trainer.manifest_accepted"] == 1
            assert _get(client, path)["retraining_id"] != trainer["retraining_id"]
            assert _get(client, "/serving", artefact_sha256=artefact)["may_serve"]
            lines = _get(client, f"/deletion-requests/{requests[0]['id']}/bundle")["statement"]["lines"]
            assert "retrained_attested" in {line["grade"] for line in lines}


@pytest.mark.parametrize("hop", HOPS)
def test_a_killed_worker_announces_a_retraining_once(
    hop: str,
    settings: Settings,
    installation: Installation,
    admin_key: str,
    system_key: dict[str, str],
    receiving: Receiving,
    deliveries: Callable[[], list[WebhookDelivery]],
) -> None:
    """If a worker is killed while it announces the next retraining to a trainer, before or after the commit, the next
    worker ensures that the announcement is sent once. The trainer's manifest then completes the request."""
    with receiving() as receiver, _gateway(settings, admin_key) as client:
        trainer, [request] = _trainer_with_requests(client, system_key, receiver.url, "ada")
        with processes.worker(settings, hop=f"app.features.attested.service.announce, {hop}") as victim:
            assert victim.died() == -9, victim.log.read_text()
        told = [row for row in deliveries() if row.event == "retraining_due"]
        assert len(told) == (hop == "committed")
        with processes.worker(settings, name="next"):
            [call] = receiver.got(1)
        assert call["data"]["retraining_id"] == trainer["retraining_id"]
        artefact = hashlib.sha256(b"weights").hexdigest()
        body = _manifest(client, trainer, system_key, artefact)
        assert _post(client, f"/attested-trainers/{trainer['id']}/manifests", **body)["num_served"] == 1
        _completed(settings, client, request)
    assert [row.event for row in deliveries()].count("retraining_due") == 1
    assert len(set(receiver.ids())) == 1


def _trainer_with_requests(
    client: httpx.Client, key: dict[str, str], url: str, *people: str
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Register a trainer and submit a request about each person."""
    trainer = _post(
        client, "/attested-trainers", 201, name="Churn", contact="its team", webhook_url=url, public_key=key["x"]
    )
    return trainer, [_post(client, "/deletion-requests", 202, subject_id=person) for person in people]


def _manifest(client: httpx.Client, trainer: dict[str, Any], key: dict[str, str], artefact: str) -> dict[str, Any]:
    """Return the signed manifest for an artefact that was trained without the people to be forgotten."""
    read = _post(client, f"/attested-trainers/{trainer['id']}/identifiers", ids=["ada", "eve"])
    assert read["digests"][0] is None
    return manifests.sign(
        key,
        trainer_id=trainer["id"],
        retraining_id=trainer["retraining_id"],
        rows_read_at=read["read_at"],
        identifiers=[digest for digest in read["digests"] if digest],
        artefacts=[artefact],
        code_revision="5cff449",
        environment="sha256:11",
    )
