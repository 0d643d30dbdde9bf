"""Every route that changes anything over HTTP, or looks up people, writes to the audit log."""

import datetime
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from joserfc.jwk import KeySet, OKPKey

from app.audit import repository
from app.audit.checkpoints import AUDIT
from app.db import Actor
from app.features.trainers import training
from app.installations import Installation
from app.unlearning import queue
from lethe.features.attested import manifests
from lethe.features.stores import reports
from lethe.features.systems import acknowledgements
from tests.app.api.routes import NEEDS
from tests.conftest import FORM, npz
from tests.features.attested.conftest import new_key
from tests.features.desk.attached import PDF
from tests.features.networks import nets
from tests.features.together.test_authorisation import DP_MODEL, ED25519, JWK, SYSTEM, delivered, one_row
from tests.features.trainers import made
from worker import runner

Make = Callable[..., dict[str, Any]]
CHANGE_NOTHING = {
    "POST /v1/models/{model_id}/predictions",
    "POST /v1/certificates:verify",
    "POST /v1/accounting/bounds/{name}",
    "POST /v1/accounting/preview",
    "POST /v1/audit-log:verify",
}
"""POST routes that only read, and take their query as a body."""
ADD_TO_A_COUNTER = {"POST /v1/leaving-reasons"}
"""Routes without an audit entry, which would reveal when a person gave a reason for leaving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class There:
    """Objects that a call may need, created on demand."""

    client: TestClient
    installation: Installation
    new_model: Callable[[], str]

    def made(self, path: str, **body: Any) -> str:
        answer = self.client.post(f"/v1{path}", json=body)
        assert answer.is_success, answer.text
        return str(answer.json()["id"])

    def request(self, *steps: str) -> str:
        """Return the path of a request awaiting approval, after calling these actions on it."""
        self.client.patch("/v1/tenant", json={"policy": {"auto_accept": False}})
        path = f"/v1/deletion-requests/{self.made('/deletion-requests', subject_id='p1')}"
        for step in steps:
            assert self.client.post(f"{path}/{step}", json={"reason": "identity"}).is_success
        return path


_LINKED = [{"id": "p1"}, {"kind": "device", "id": "d1"}]
_DROP_FILE = "20260312_4821_Email.csv"
Calls = dict[str, Callable[[There], httpx.Request]]


def _post(path: Callable[[There], str] | str, **sent: Any) -> Callable[[There], httpx.Request]:
    return lambda there: there.client.build_request("POST", path if isinstance(path, str) else path(there), **sent)


def _get(path: Callable[[There], str]) -> Callable[[There], httpx.Request]:
    return lambda there: there.client.build_request("GET", path(there))


def _delete(path: Callable[[There], str]) -> Callable[[There], httpx.Request]:
    return lambda there: there.client.build_request("DELETE", path(there))


def _drop_file(there: There, *lines: dict[str, str]) -> str:
    body = {"file": _DROP_FILE, "lines": lines, "num_lines": len(lines)}
    assert there.client.post("/v1/drop:load", json=body).is_success
    return f"/v1/drop/answer.csv?file={_DROP_FILE}"


def _of_several_people(there: There) -> str:
    hashed = "KA18MT/ph6IHYjzT9zwETySDQyvSh87YuoSBpOQtkhE="
    people = [{"id": name, "hashes": {"Email": [hashed]}} for name in ("p1", "p2")]
    assert there.client.post("/v1/drop/people", json={"people": people}).is_success
    _drop_file(there, {"id": "line00000001", "hash": hashed})
    return "/v1/drop:opt-out"


def _task(there: There, **of_system: Any) -> str:
    """Return the id of a system's open task, after creating the system and a request."""
    there.made("/systems", **SYSTEM | of_system)
    there.made("/deletion-requests", subject_id="p1")
    [task] = there.client.get("/v1/system-tasks").json()["items"]
    return str(task["id"])


def _acknowledgement(there: There) -> httpx.Request:
    """Build a call that acknowledges a task with the client's own API key, which is bound to the task's system."""
    [key] = there.client.get("/v1/api-keys").json()["items"]
    path = f"/v1/system-tasks/{_task(there, api_key_id=key['id'])}/acknowledge"
    return there.client.build_request("POST", path, json={"by": "on-call"})


def _manifest(there: There) -> httpx.Request:
    """Build a call that submits the manifest of a retraining that read no rows."""
    key = new_key()
    trainer = there.made("/attested-trainers", **SYSTEM | {"public_key": key["x"]})
    path = f"/v1/attested-trainers/{trainer}"
    manifest = manifests.sign(
        key,
        trainer_id=trainer,
        retraining_id=there.client.get(path).json()["retraining_id"],
        rows_read_at=there.client.post(f"{path}/identifiers", json={"ids": ["p1"]}).json()["read_at"],
        identifiers=[],
        artefacts=["0" * 64],
        code_revision="1",
        environment="1",
    )
    return there.client.build_request("POST", f"{path}/manifests", json=manifest)


def _closed_wait(there: There) -> httpx.Request:
    path = f"/v1/attested-trainers/{there.made('/attested-trainers', **_TRAINER)}/close"
    request_id = there.made("/deletion-requests", subject_id="p1")
    return there.client.build_request("POST", path, json={"request_id": request_id})


_TRAINER = SYSTEM | {"public_key": JWK["x"]}


def _search_report(there: There) -> httpx.Request:
    """Build a call that reports a clean search, signed with a key of the system."""
    key = {name: str(value) for name, value in OKPKey.generate_key("Ed25519").as_dict(private=True).items()}
    task_id = _task(there, public_key=key["x"])
    task = there.client.get(f"/v1/system-tasks/{task_id}").json()
    counts = {kind: {"sought": 0, "found": 0} for kind in ("vector", "text", "id")}
    finding = {
        "store": {"kind": "documents", "version": "1"},
        "method": "removed",
        "records": 0,
        **dict.fromkeys(("before", "control", "after"), counts),
        "not_sought": dict.fromkeys(counts, 0),
        "files": {"count": 1, "bytes": 0, "sha256": "ab" * 32, "listed": []},
    }
    report = reports.compose(task, [finding])
    digest = hashlib.sha256(report.encode()).hexdigest()
    jws = acknowledgements.sign(key, task=task, by="agent", evidence_sha256=digest)
    path = f"/v1/system-tasks/{task_id}/search-report"
    return there.client.build_request("POST", path, json={"jws": jws, "report": report})


_USER = {"name": "Maria", "email": "maria@example.com", "role": "viewer"}
_KEY = {"name": "app", "scopes": ["models:read"]}
_ISSUER = {"issuer": "https://login.example", "audience": "lethe", "jwks": {"keys": [JWK]}}
_AGENT = {"agent_id": "agent", "name": "Agent", "verify_key": ED25519}
_GATE = {"metric": "accuracy", "threshold": 2.0, "on_breach": "hold"}
_APPROVAL = {"decision": "approve", "status": "in_review", "made_before": "2100-01-01T00:00:00Z"}


def _stated_copy(there: There) -> httpx.Request:
    """Build a call that states that a copy received by the client has been destroyed."""
    path = f"/v1/models/{_live_model(there)}"
    assert there.client.get(f"{path}/versions/1/weights").is_success
    [export] = there.client.get(f"{path}/exports").json()["items"]
    return there.client.build_request("PATCH", f"{path}/exports/{export['id']}", json={"destroyed": "stated"})


CALLS: Calls = {
    "POST /v1/datasets": _post("/v1/datasets", data=FORM, files={"file": ("people.npz", npz())}),
    "POST /v1/datasets/{dataset_id}/records": _post(
        lambda there: f"/v1/datasets/{_dataset_with_room(there)}/records", files=one_row("somebody")
    ),
    "POST /v1/models": lambda there: there.client.build_request(
        "POST", "/v1/models", json={"name": "m", "l2": 0.05, "dataset_id": _dataset(there)}
    ),
    "POST /v1/models/{model_id}/audit": _post(lambda there: f"/v1/models/{_live_model(there)}/audit"),
    "POST /v1/models/{model_id}/rehearsals": _post(
        lambda there: f"/v1/models/{_live_model(there)}/rehearsals", json={"people": 10}
    ),
    "PATCH /v1/models/{model_id}": lambda there: there.client.build_request(
        "PATCH", f"/v1/models/{_measured_model(there)}", json={"quality": _GATE}
    ),
    "DELETE /v1/models/{model_id}/gate": _delete(lambda there: f"/v1/models/{_measured_model(there, gate=_GATE)}/gate"),
    "POST /v1/models/{model_id}/versions/{number}/release": _post(
        lambda there: f"/v1/models/{_measured_model(there, gate=_GATE)}/versions/1/release"
    ),
    "DELETE /v1/models/{model_id}": _delete(lambda there: f"/v1/models/{there.new_model()}"),
    "DELETE /v1/datasets/{dataset_id}": _delete(lambda there: f"/v1/datasets/{_dataset(there)}"),
    "POST /v1/datasets/{dataset_id}/recheck": _post(lambda there: f"/v1/datasets/{_dataset(there)}/recheck"),
    "POST /v1/runs/{run_id}/cancel": _post(lambda there: f"/v1/runs/{_learning(there)}/cancel"),
    "POST /v1/models/{model_id}/relearn": _post(lambda there: f"/v1/models/{there.new_model()}/relearn"),
    "PATCH /v1/models/{model_id}/exports/{export_id}": _stated_copy,
    "POST /v1/deletion-requests": _post("/v1/deletion-requests", json={"subject_id": "p1"}),
    "POST /v1/deletion-requests:batch": _post(
        "/v1/deletion-requests:batch", json={"requests": [{"subject_id": "p1"}, {"subject_id": "p2"}]}
    ),
    "POST /v1/deletion-requests.csv": _post(
        "/v1/deletion-requests.csv", content="subject_id\np1\n", headers={"Content-Type": "text/csv"}
    ),
    "POST /v1/deletion-requests:decide": _post(
        lambda there: there.request() and "/v1/deletion-requests:decide", json=_APPROVAL
    ),
    "POST /v1/deletion-requests/{request_id}/cancel": _post(lambda there: there.request() + "/cancel"),
    "POST /v1/deletion-requests/{request_id}/approve": _post(lambda there: there.request() + "/approve"),
    "POST /v1/deletion-requests/{request_id}/reject": _post(
        lambda there: there.request() + "/reject", json={"ground": "legal_claims", "explanation": "a claim"}
    ),
    "POST /v1/deletion-requests/{request_id}/extend": _post(
        lambda there: there.request() + "/extend", json={"reason": "much to do"}
    ),
    "POST /v1/deletion-requests/{request_id}/pause": _post(
        lambda there: there.request() + "/pause", json={"reason": "identity"}
    ),
    "POST /v1/deletion-requests/{request_id}/resume": _post(lambda there: there.request("pause") + "/resume"),
    "POST /v1/deletion-requests/{request_id}/assign": lambda there: there.client.build_request(
        "POST", there.request() + "/assign", json={"assignee": there.made("/users", **_USER | {"role": "officer"})}
    ),
    "POST /v1/deletion-requests/{request_id}/sent-replies": _post(
        lambda there: there.request() + "/sent-replies",
        json={"sent_on": datetime.datetime.now(datetime.UTC).date().isoformat(), "channel": "letter"},
    ),
    "POST /v1/deletion-requests/{request_id}/notes": _post(
        lambda there: there.request() + "/notes", json={"text": "called back"}
    ),
    "POST /v1/deletion-requests/{request_id}/attachments": _post(
        lambda there: there.request() + "/attachments", files={"file": ("a.pdf", PDF)}
    ),
    "DELETE /v1/deletion-requests/{request_id}/attachments/{attachment_id}": _delete(lambda there: _attached(there)),
    "POST /v1/suppressions:lift": lambda there: there.client.build_request(
        "POST", "/v1/suppressions:lift", json={"subject_id": _suppressed(there), "reason": "consent_given"}
    ),
    "POST /v1/identity-issuers": _post("/v1/identity-issuers", json=_ISSUER),
    "DELETE /v1/identity-issuers/{issuer_id}": _delete(
        lambda there: f"/v1/identity-issuers/{there.made('/identity-issuers', **_ISSUER)}"
    ),
    "POST /v1/api-keys": _post("/v1/api-keys", json=_KEY),
    "POST /v1/api-keys/{key_id}/rotate": _post(
        lambda there: f"/v1/api-keys/{there.made('/api-keys', **_KEY)}/rotate", json={}
    ),
    "DELETE /v1/api-keys/{key_id}": _delete(lambda there: f"/v1/api-keys/{there.made('/api-keys', **_KEY)}"),
    "POST /v1/users": _post("/v1/users", json=_USER),
    "POST /v1/users/{user_id}/invite": _post(lambda there: f"/v1/users/{there.made('/users', **_USER)}/invite"),
    "PATCH /v1/users/{user_id}": lambda there: there.client.build_request(
        "PATCH", f"/v1/users/{there.made('/users', **_USER)}", json={"role": "officer"}
    ),
    "DELETE /v1/users/{user_id}": _delete(lambda there: f"/v1/users/{there.made('/users', **_USER)}"),
    "POST /v1/tenants": _post("/v1/tenants", json={"name": "shop"}),
    "PATCH /v1/tenant": lambda there: there.client.build_request(
        "PATCH", "/v1/tenant", json={"policy": {"grace_seconds": 9}}
    ),
    "POST /v1/webhook-deliveries/{delivery_id}/replay": _post(
        lambda there: f"/v1/webhook-deliveries/{delivered(there.installation, 'dr_0')}/replay"
    ),
    "POST /v1/webhook-deliveries:replay": _post(
        lambda there: delivered(there.installation, "dr_0") and "/v1/webhook-deliveries:replay",
        json={"status": "delivered"},
    ),
    "POST /v1/webhook-secret/rotate": _post("/v1/webhook-secret/rotate", json={"generation": 1}),
    "POST /v1/systems": _post("/v1/systems", json=SYSTEM),
    "PATCH /v1/systems/{system_id}": lambda there: there.client.build_request(
        "PATCH", f"/v1/systems/{there.made('/systems', **SYSTEM)}", json={"name": "Shop"}
    ),
    "DELETE /v1/systems/{system_id}": _delete(lambda there: f"/v1/systems/{there.made('/systems', **SYSTEM)}"),
    "POST /v1/dp-models": _post("/v1/dp-models", json=DP_MODEL),
    "POST /v1/dp-models/{dp_model_id}/ledgers": _post(
        lambda there: f"/v1/dp-models/{there.made('/dp-models', **DP_MODEL)}/ledgers",
        json={name: value for name, value in DP_MODEL.items() if name != "name"} | {"budget_epsilon": 2.0},
    ),
    "DELETE /v1/dp-models/{dp_model_id}": _delete(
        lambda there: f"/v1/dp-models/{there.made('/dp-models', **DP_MODEL)}"
    ),
    "POST /v1/system-tasks/{task_id}/acknowledge": lambda there: _acknowledgement(there),
    "POST /v1/system-tasks/{task_id}/search-report": lambda there: _search_report(there),
    "POST /v1/system-tasks/{task_id}/close": _post(
        lambda there: f"/v1/system-tasks/{_task(there)}/close", json={"reason": "gone"}
    ),
    "POST /v1/training-tables": _post("/v1/training-tables", data=made.TABLE, files=made.FILES),
    "DELETE /v1/training-tables/{table_id}": _delete(lambda there: f"/v1/training-tables/{_table(there)}"),
    "POST /v1/trainers": lambda there: there.client.build_request(
        "POST", "/v1/trainers", json=made.trainer(_table(there))
    ),
    "DELETE /v1/trainers/{trainer_id}": _delete(
        lambda there: f"/v1/trainers/{there.made('/trainers', **made.trainer(_table(there)))}"
    ),
    "POST /v1/trainers/{trainer_id}/release": _post(
        lambda there: f"/v1/trainers/{_trained(there, **made.GATE)}/release"
    ),
    "POST /v1/attested-trainers": _post("/v1/attested-trainers", json=_TRAINER),
    "PATCH /v1/attested-trainers/{attested_trainer_id}": lambda there: there.client.build_request(
        "PATCH", f"/v1/attested-trainers/{there.made('/attested-trainers', **_TRAINER)}", json={"name": "Shop"}
    ),
    "DELETE /v1/attested-trainers/{attested_trainer_id}": _delete(
        lambda there: f"/v1/attested-trainers/{there.made('/attested-trainers', **_TRAINER)}"
    ),
    "POST /v1/attested-trainers/{attested_trainer_id}/manifests": lambda there: _manifest(there),
    "POST /v1/attested-trainers/{attested_trainer_id}/close": lambda there: _closed_wait(there),
    "POST /v1/networks": _post("/v1/networks", data=nets.FORM, files={"file": ("net.onnx", nets.linear())}),
    "DELETE /v1/networks/{network_id}": _delete(lambda there: f"/v1/networks/{_network(there)}"),
    "POST /v1/identities": _post("/v1/identities", json={"links": [{"identifiers": _LINKED}]}),
    "POST /v1/identities:define-kind": _post("/v1/identities:define-kind", json={"name": "loyalty"}),
    "POST /v1/identities:forget": _post("/v1/identities:forget", json={"subject_id": "p1"}),
    "POST /v1/drop:load": _post("/v1/drop:load", json={"file": _DROP_FILE, "lines": [], "num_lines": 0}),
    "POST /v1/drop/people": _post("/v1/drop/people", json={"people": [{"id": "p1", "hashes": {"Email": []}}]}),
    "POST /v1/drop:opt-out": _post(lambda there: _of_several_people(there), json={"ids": ["line00000001"]}),
    "POST /v1/agents": _post("/v1/agents", json=_AGENT),
    "DELETE /v1/agents/{id}": _delete(lambda there: f"/v1/agents/{there.made('/agents', **_AGENT)}"),
}
"""Successful call of each route that changes something."""
LOOKS: Calls = {
    "POST /v1/attested-trainers/{attested_trainer_id}/identifiers": _post(
        lambda there: f"/v1/attested-trainers/{there.made('/attested-trainers', **_TRAINER)}/identifiers",
        json={"ids": ["p1"]},
    ),
    "GET /v1/datasets/{dataset_id}/subjects/{subject_id}": _get(
        lambda there: f"/v1/datasets/{_dataset(there)}/subjects/p1"
    ),
    "GET /v1/deletion-requests.csv": _get(lambda there: "/v1/deletion-requests.csv"),
    "GET /v1/models/{model_id}/versions/{number}/weights": _get(
        lambda there: f"/v1/models/{_live_model(there)}/versions/1/weights"
    ),
    "GET /v1/trainers/{trainer_id}/artefacts/{name}": _get(
        lambda there: f"/v1/trainers/{_trained(there)}/artefacts/model.txt"
    ),
    "GET /v1/deletion-requests/{request_id}/attachments/{attachment_id}": _get(lambda there: _attached(there)),
    "GET /v1/drop/answer.csv": _get(lambda there: _drop_file(there)),
    "POST /v1/lineage": _post("/v1/lineage", json={"subject_id": "p1"}),
    "GET /v1/deletion-requests/{request_id}/lineage": _get(lambda there: there.request() + "/lineage"),
    "GET /v1/deletion-requests": _get(lambda there: "/v1/deletion-requests?subject_id=p1"),
    "GET /v1/suppressions": _get(lambda there: "/v1/suppressions?subject_id=p1"),
}
"""Call of each route that reveals who is held, or exports what cannot be taken back."""


def _table(there: There) -> str:
    answer = there.client.post("/v1/training-tables", data=made.TABLE, files=made.FILES)
    return str(answer.json()["id"])


def _trained(there: There, **given: Any) -> str:
    trainer_id = there.made("/trainers", **made.trainer(_table(there), **given))
    assert training.run_next(there.installation)
    return trainer_id


def _network(there: There) -> str:
    answer = there.client.post("/v1/networks", data=nets.FORM, files={"file": ("net.onnx", nets.linear())})
    return str(answer.json()["id"])


def _attached(there: There) -> str:
    """Return the path of a file attached to a request."""
    path = there.request() + "/attachments"
    return f"{path}/{there.client.post(path, files={'file': ('a.pdf', PDF)}).json()['id']}"


def _dataset(there: There) -> str:
    answer = there.client.post("/v1/datasets", data=FORM, files={"file": ("people.npz", npz())})
    return str(answer.json()["id"])


def _dataset_with_room(there: There) -> str:
    dataset_id = _dataset(there)
    there.made("/deletion-requests", subject_id="p1")
    _work(there)
    return dataset_id


def _live_model(there: There) -> str:
    model_id = there.new_model()
    _work(there)
    return model_id


def _measured_model(there: There, *, gate: dict[str, Any] | None = None) -> str:
    """Return the id of a live model that is measured on people outside its training data, and misses its gate if it has
    one."""
    files = {"file": ("more.npz", npz(seed=1, first=1000))}
    measured = there.client.post("/v1/datasets", data=FORM, files=files).json()["id"]
    asked = {"name": "m", "l2": 0.05, "dataset_id": _dataset(there), "evaluation_dataset_id": measured, "quality": gate}
    model_id = there.made("/models", **asked)
    _work(there)
    return model_id


def _learning(there: There) -> str:
    """Return the id of a run that a worker has claimed."""
    there.new_model()
    with there.installation.database.writing() as session:
        claimed = queue.claim(session, worker="test", lease_seconds=60, max_requests=1)
    assert claimed
    return claimed.run_id


def _work(there: There) -> None:
    while runner.run_next(there.installation, worker="test"):
        pass


def _suppressed(there: There) -> str:
    there.made("/deletion-requests", subject_id="p1")
    return "p1"


@pytest.fixture
def there(gateway: TestClient, installation: Installation, new_dataset: Make, new_model: Make) -> There:
    return There(client=gateway, installation=installation, new_model=lambda: str(new_model(new_dataset()["id"])["id"]))


def test_every_route_that_changes_something_is_called() -> None:
    """Every route that is not a GET is either called by these tests or listed as an exception."""
    changing = {route for route in NEEDS if not route.startswith("GET")}
    assert changing == CALLS.keys() | CHANGE_NOTHING | ADD_TO_A_COUNTER | {
        route for route in LOOKS if route.startswith("POST")
    }


@pytest.mark.parametrize("route", sorted(CALLS | LOOKS))
def test_changes_and_look_ups_are_recorded(
    there: There, gateway: TestClient, installation: Installation, by: Actor, route: str
) -> None:
    """A call that changes something or reveals whether a person's data is held adds an audit entry with the caller's
    key. The log still verifies."""
    call = (CALLS | LOOKS)[route](there)
    key_id = gateway.get("/v1/api-keys").json()["items"][-1]["id"]
    before = gateway.get("/v1/audit-log").json()["items"][0]["sequence"]
    answer = gateway.send(call)
    assert answer.is_success, answer.text
    entries = gateway.get("/v1/audit-log").json()["items"]
    assert entries[0]["sequence"] > before
    assert {entry["actor"] for entry in entries if entry["sequence"] > before} == {key_id}
    with installation.database.reading() as session:
        AUDIT.verify(by.tenant_id, repository.all_entries(session, tenant_id=by.tenant_id), [], KeySet([]))


def test_a_look_up_is_recorded_without_its_subject(there: There, gateway: TestClient) -> None:
    """The audit log, which is kept forever, records who looked a person up, when, and by which kind of search. It
    records neither the person nor the result."""
    dataset_id = _dataset(there)
    reference = there.client.post("/v1/deletion-requests", json={"subject_id": "p3"}).json()["subject_ref"]
    for person, status in (("p1", 200), ("nobody", 404)):
        assert gateway.get(f"/v1/datasets/{dataset_id}/subjects/{person}").status_code == status
        assert gateway.post("/v1/lineage", json={"subject_id": person}).status_code == 200
    sought = {"subject_id": "p3", "status": "accepted", "source": "the list of Jane Doe"}
    assert gateway.get("/v1/deletion-requests.csv", params=sought).status_code == 200
    for path in ("deletion-requests", "suppressions"):
        assert gateway.get(f"/v1/{path}", params={"subject_id": "p3"}).status_code == 200
        assert gateway.get(f"/v1/{path}").status_code == 200
    entries = gateway.get("/v1/audit-log?limit=7").json()["items"]
    tenant_id = entries[0]["tenant_id"]
    assert [(one["action"], one["object_id"], one["detail"]) for one in entries] == [
        ("suppressions.looked_up", tenant_id, {}),
        ("deletion_requests.looked_up", tenant_id, {}),
        ("deletion_requests.exported", tenant_id, {"sought_by": ["source", "status", "subject_ref"]}),
        *2 * [("lineage.read", tenant_id, {}), ("subject.looked_up", dataset_id, {})],
    ]
    assert not [secret for secret in ("'p1'", "'p3'", "nobody", "Jane", reference) if secret in str(entries)]


def test_refused_look_ups_are_not_recorded(there: There, gateway: TestClient) -> None:
    """The audit log has no entry for refused look-ups, because they disclose nothing."""
    key = gateway.post("/v1/api-keys", json={"name": "app", "scopes": ["requests:read"]}).json()["key"]
    app = {"Authorization": f"Bearer {key}"}
    before = gateway.get("/v1/audit-log").json()["items"][0]["sequence"]
    for path, headers, status in (
        (f"/v1/datasets/{_dataset(there)}/subjects/p1", app, 403),
        ("/v1/datasets/ds_0/subjects/p1", {}, 404),
        ("/v1/deletion-requests.csv?model_id=mdl_0", app, 403),
        ("/v1/deletion-requests.csv?source=%00", {}, 422),
        (f"/v1/deletion-requests.csv?subject_id=p1&subject_sha256={'0' * 64}", {}, 422),
        ("/v1/deletion-requests.csv?external=x", {}, 422),
    ):
        assert gateway.get(path, headers=headers).status_code == status
    assert gateway.post("/v1/lineage", headers=app, json={"subject_id": "p1"}).status_code == 403
    after = gateway.get("/v1/audit-log").json()["items"]
    assert {one["action"] for one in after if one["sequence"] > before} == {"dataset.created"}
