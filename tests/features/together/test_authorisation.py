"""Authorisation of every route: by every scope, with wrong keys, and with another tenant's ids."""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from app import installations
from app.access import service as access
from app.access.service import DEFAULT_TENANT
from app.config import Settings
from app.db import Actor, now
from app.db.tables import new_id
from app.features.trainers import training
from app.features.webhooks.tables import Payload, WebhookDelivery
from app.installations import Installation
from app.main import create_app
from lethe.contract.sets import Scope
from lethe.features.webhooks.contract import DeliveryStatus
from tests.app.api.routes import NEEDS, OPEN_TO_ALL
from tests.conftest import FORM, one_row
from tests.features.desk.attached import PDF
from tests.features.networks import nets
from tests.features.trainers import made as trainers
from tests.tables import each
from worker import runner

Refused = Callable[..., dict[str, Any]]
ED25519 = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
JWK = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "1"}
DP_MODEL: dict[str, Any] = {
    "name": "Ranker",
    "ledger": {"format": "opacus", "history": [[4.0, 1.0, 1]]},
    "delta": 1e-5,
    "max_rows_per_person": 1,
    "budget_epsilon": 3.0,
    "trained_from": "2026-01-01T00:00:00Z",
}
SYSTEM = {"name": "Recommender", "contact": "its team", "webhook_url": "https://recommender.example/lethe"}
BODIES: dict[str, dict[str, Any]] = {
    "PATCH /v1/models/{model_id}": {"quality": {"metric": "accuracy", "threshold": 0.5}},
    "POST /v1/models/{model_id}/predictions": {"records": [[0.1, 0.2, 0.3]]},
    "POST /v1/deletion-requests/{request_id}/reject": {"ground": "legal_claims", "explanation": "a claim"},
    "POST /v1/deletion-requests/{request_id}/extend": {"reason": "much to do"},
    "POST /v1/deletion-requests/{request_id}/pause": {"reason": "identity"},
    "POST /v1/deletion-requests/{request_id}/assign": {"assignee": "nobody"},
    "POST /v1/deletion-requests/{request_id}/notes": {"text": "called back"},
    "POST /v1/deletion-requests/{request_id}/sent-replies": {"sent_on": "2026-01-31", "channel": "letter"},
    "POST /v1/system-tasks/{task_id}/acknowledge": {"jws": "a.b.c", "by": "nobody"},
    "POST /v1/system-tasks/{task_id}/search-report": {"jws": "a.b.c", "report": "{}"},
    "POST /v1/system-tasks/{task_id}/close": {"reason": "gone"},
    "POST /v1/dp-models/{dp_model_id}/ledgers": {name: value for name, value in DP_MODEL.items() if name != "name"},
    "POST /v1/attested-trainers/{attested_trainer_id}/identifiers": {"ids": ["p1"]},
    "POST /v1/attested-trainers/{attested_trainer_id}/manifests": {"jws": "a.b.c", "identifiers": []},
}
"""Well-formed bodies of routes with ids in their paths."""
NAMING: dict[str, Callable[[dict[str, str]], dict[str, Any]]] = {
    "POST /v1/models": lambda ids: {"name": "m", "dataset_id": ids["dataset_id"]},
    "POST /v1/accounting/preview": lambda ids: {"model_id": ids["model_id"]},
    "POST /v1/deletion-requests": lambda ids: {"subject_id": "p1", "dataset_ids": [ids["dataset_id"]]},
    "POST /v1/attested-trainers/{attested_trainer_id}/close": lambda ids: {"request_id": ids["waiting"]},
}
"""Bodies with ids."""
QUERIES = {
    "GET /v1/serving": {"artefact_sha256": "0" * 64},
    "GET /v1/drop/answer.csv": {"file": "20260312_4821_Email.csv"},
}
"""Queries of routes that need one."""
UPLOADS = {"POST /v1/datasets/{dataset_id}/records", "POST /v1/deletion-requests/{request_id}/attachments"}
"""Routes that take a file."""
BELONGS_TO_NOBODY = {"POST /v1/accounting/bounds/{name}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A gateway with two tenants, and a key for each scope in the first; `ids`, by parameter, are the first
    tenant's."""

    gateway: TestClient
    ids: dict[str, str]
    keys: dict[Scope, dict[str, str]]
    other: dict[str, str]

    def call(self, route: str, ids: dict[str, str], headers: dict[str, Any]) -> httpx.Response:
        method, path = route.split()
        if route in UPLOADS:
            return self.gateway.post(path.format(**ids), headers=headers, files=one_row("somebody"))
        body = NAMING[route](ids) if route in NAMING else BODIES.get(route, {})
        return self.gateway.request(method, path.format(**ids), headers=headers, json=body, params=QUERIES.get(route))


def forty(npz_of: Callable[..., bytes]) -> bytes:
    """Return an upload of forty people, which is enough for a rehearsal."""
    x = np.random.default_rng(0).normal(size=(40, 3))
    return npz_of(x=x, y=(x[:, 0] > 0).astype(int), subject=np.array([f"p{row}" for row in range(40)]))


def delivered(installation: Installation, request_id: str, *, status: DeliveryStatus = DeliveryStatus.DELIVERED) -> str:
    """Create an ended delivery about a request, by default a successful one, and return its id."""
    with installation.database.writing() as session:
        delivery = WebhookDelivery(
            id=new_id("whd"),
            tenant_id=DEFAULT_TENANT,
            request_id=request_id,
            event="deletion_request.accepted",
            receiver_ref="https://app.example/hook",
            host="app.example",
            letter=Payload(url="https://app.example/hook", body="{}"),
            status=status,
            attempts=1,
            next_attempt_at=now(session),
            created_at=now(session),
            ended_at=now(session),
        )
        session.add(delivery)
        return delivery.id


@pytest.fixture(scope="module")
def world(set_up_once: Path, tmp_path_factory: pytest.TempPathFactory, npz_of: Callable[..., bytes]) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("authorisation") / "data"
    shutil.copytree(set_up_once, folder)
    settings = Settings(data_dir=folder, failed_calls_per_minute=0)
    admin = {"Authorization": f"Bearer {settings.resolved_admin_key_file().read_text().strip()}"}
    with TestClient(create_app(settings)) as client, installations.opened(settings) as installation:

        def made(path: str, **asked: Any) -> dict[str, Any]:
            answer = client.post(f"/v1{path}", headers=admin, **asked)
            assert answer.is_success, answer.text
            runner.run_next(installation, worker="test")
            document: dict[str, Any] = answer.json()
            return document

        dataset = made("/datasets", data=FORM, files={"file": ("people.npz", forty(npz_of))})
        model = made("/models", json={"name": "model", "dataset_id": dataset["id"], "l2": 0.05})
        request = made("/deletion-requests", json={"subject_id": "p1"})
        [owed] = client.get(f"/v1/deletion-requests/{request['id']}", headers=admin).json()["models"]
        tenant = made("/tenants", json={"name": "other"})
        issuer = {"issuer": "https://login.example", "audience": "lethe", "jwks": {"keys": [JWK]}}
        ids = {
            "dataset_id": dataset["id"],
            "subject_id": "p2",
            "addition_id": made(f"/datasets/{dataset['id']}/records", files=one_row("somebody"))["id"],
            "model_id": model["id"],
            "rehearsal_id": made(f"/models/{model['id']}/rehearsals", json={"people": 10})["id"],
            "number": "1",
            "request_id": request["id"],
            "attachment_id": made(
                f"/deletion-requests/{request['id']}/attachments", files={"file": ("letter.pdf", PDF)}
            )["id"],
            "certificate_id": owed["certificate_id"],
            "run_id": owed["run_id"],
            "key_id": made("/api-keys", json={"name": "spare", "scopes": ["models:read"]})["id"],
            "user_id": made("/users", json={"name": "Maria", "email": "maria@example.com", "role": "viewer"})["id"],
            "tenant_id": DEFAULT_TENANT,
            "network_id": made("/networks", data=nets.FORM, files={"file": ("net.onnx", nets.linear())})["id"],
            "issuer_id": made("/identity-issuers", json=issuer)["id"],
            "id": made("/agents", json={"agent_id": "agent", "name": "Agent", "verify_key": ED25519})["id"],
            "name": "no-bound",
        }
        keys = {scope: access.new_key() for scope in Scope}
        with installation.database.writing(by=Actor(tenant_id=DEFAULT_TENANT, name="test")) as session:
            for scope, key in keys.items():
                scopes = {Scope.REQUESTS_REVIEW: [scope, Scope.ACCOUNTING_READ]}.get(scope, [scope])
                access.add_key(session, name=scope, key=key, scopes=scopes, own_requests_only=False)
        app = {"Authorization": f"Bearer {keys[Scope.REQUESTS_WRITE]}"}
        reader = {"Authorization": f"Bearer {keys[Scope.MODELS_READ]}"}
        place = f"/v1/models/{model['id']}"
        live = client.get(place, headers=reader).json()["live_version"]
        assert client.get(f"{place}/versions/{live}/weights", headers=reader).is_success
        ids["export_id"] = client.get(f"{place}/exports", headers=reader).json()["items"][0]["id"]
        asked = client.post("/v1/deletion-requests", headers=app, json={"subject_id": "p3"}).json()["id"]
        ids["delivery_id"] = delivered(installation, asked)
        ids["dp_model_id"] = made("/dp-models", json=DP_MODEL)["id"]
        table = made("/training-tables", data=trainers.TABLE, files=trainers.FILES)
        ids["table_id"] = table["id"]
        ids["trainer_id"] = made("/trainers", json=trainers.trainer(table["id"], ids["name"]))["id"]
        assert training.run_next(installation)
        ids["attested_trainer_id"] = made("/attested-trainers", json=SYSTEM | {"public_key": JWK["x"]})["id"]
        ids["system_id"] = made("/systems", json=SYSTEM)["id"]
        ids["waiting"] = made("/deletion-requests", json={"subject_id": "p4"})["id"]
        [task] = client.get("/v1/system-tasks", headers=admin).json()["items"]
        ids["task_id"] = task["id"]
        yield World(
            gateway=client,
            ids=ids,
            keys={scope: {"Authorization": f"Bearer {key}"} for scope, key in keys.items()},
            other={"Authorization": f"Bearer {tenant['admin_key']}"},
        )


def test_every_route_has_a_scope_or_is_public(world: World) -> None:
    """Each documented route needs a scope or is one of the few public routes. These tests can supply an id for each
    path parameter."""
    paths = world.gateway.get("/openapi.json").json()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert routes == NEEDS.keys() | OPEN_TO_ALL
    assert {name for route in NEEDS for name in re.findall(r"{(\w+)}", route)} <= world.ids.keys()


def _opening(route: str) -> set[Scope]:
    """Return the scopes whose keys can call a route. A key that can review requests also has accounting:read."""
    match NEEDS[route]:
        case Scope.OPERATOR:
            return {Scope.OPERATOR}
        case Scope.METRICS_READ:
            return {Scope.METRICS_READ, Scope.OPERATOR}
        case scope:
            with_it = {Scope.REQUESTS_REVIEW} if scope is Scope.ACCOUNTING_READ else set()
            return {scope, Scope.ADMIN, *with_it}


@each("route", sorted(NEEDS))
def test_a_key_may_call_the_routes_of_its_scope(world: World, refused: Refused, route: str) -> None:
    """A key can call exactly those routes of its tenant that need its scope. An admin's key can call all routes except
    the operator's, and an operator's key can also read the metrics."""
    for scope, headers in world.keys.items():
        if scope not in _opening(route):
            refused(world.call(route, world.ids, headers), 403, "scope_missing")
    # The object is still needed for the other routes. The tests of its resource delete it.
    if not route.startswith("DELETE"):
        for scope in _opening(route):
            answer = world.call(route, world.ids, world.keys[scope])
            opened = answer.is_success or answer.status_code in (409, 410, 422)
            # The door is open; the signature of the body is not that of the system.
            opened = opened or answer.json()["code"] == "acknowledgement_refused"
            assert opened or route in BELONGS_TO_NOBODY, answer.text


@pytest.mark.parametrize("header", ["", "Bearer ", "Bearer lethe_wrong", "Basic YTpi", "Bearer é"])
def test_routes_need_a_key(world: World, refused: Refused, header: str) -> None:
    """Without a valid key, every route that needs a scope returns 401 with a `WWW-Authenticate` header."""
    for route in NEEDS:
        answer = world.call(route, world.ids, {"Authorization": header.encode()} if header else {})
        refused(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"
    for route in OPEN_TO_ALL:
        assert world.gateway.get(route.split()[1]).status_code == 200


def _owned(route: str) -> bool:
    named = "{" in route or route in NAMING
    return named and Scope.ADMIN in _opening(route) and route not in BELONGS_TO_NOBODY


@each("route", [route for route in sorted(NEEDS) if _owned(route)])
def test_objects_of_another_tenant_are_unknown(world: World, route: str) -> None:
    """Another tenant's admin gets a response for an existing id that is byte-identical to the response for an unknown
    id."""
    unknown = {name: re.sub(r"_[0-9a-f]{20}$", f"_{'0' * 20}", one) for name, one in world.ids.items()}
    answers = []
    for ids in (world.ids, unknown):
        answer = world.call(route, ids, world.other)
        text = answer.text
        for name, one in ids.items():
            text = text.replace(one, f"<{name}>") if "_" in one else text
        headers = {name: value for name, value in answer.headers.items() if name not in ("date", "ratelimit")}
        answers.append((answer.status_code, headers, text))
    assert answers[0] == answers[1]
    assert answers[0][0] == 404, answers[0]


@each("route", [route for route in sorted(NEEDS) if route.startswith("GET") and "{" not in route])
def test_lists_contain_no_objects_of_another_tenant(world: World, route: str) -> None:
    """The lists that another tenant's admin sees contain no object of this tenant."""
    answer = world.call(route, world.ids, world.other)
    is_opened = Scope.ADMIN in _opening(route)
    expected = ({200, 409} if route in QUERIES else {200}) if is_opened else {403}
    assert answer.status_code in expected
    named = {one for name, one in world.ids.items() if "_" in one and name != "tenant_id"}
    assert not [one for one in named if one in answer.text]
