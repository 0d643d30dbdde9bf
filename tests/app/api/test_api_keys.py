"""The endpoints below `/v1/api-keys`, and what a key opens: every route against every scope."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.access.service import Scope

Refused = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]

NEEDS = {
    "GET /v1/datasets": Scope.MODELS_READ,
    "POST /v1/datasets": Scope.MODELS_WRITE,
    "GET /v1/datasets/{dataset_id}": Scope.MODELS_READ,
    "GET /v1/datasets/{dataset_id}/subjects/{subject_id}": Scope.ADMIN,
    "GET /v1/models": Scope.MODELS_READ,
    "POST /v1/models": Scope.MODELS_WRITE,
    "GET /v1/models/{model_id}": Scope.MODELS_READ,
    "POST /v1/models/{model_id}/relearn": Scope.MODELS_WRITE,
    "GET /v1/models/{model_id}/versions": Scope.MODELS_READ,
    "GET /v1/models/{model_id}/versions/{number}": Scope.MODELS_READ,
    "GET /v1/models/{model_id}/versions/{number}/weights": Scope.MODELS_READ,
    "POST /v1/models/{model_id}/predictions": Scope.MODELS_READ,
    "GET /v1/deletion-requests": Scope.REQUESTS_READ,
    "POST /v1/deletion-requests": Scope.REQUESTS_WRITE,
    "GET /v1/deletion-requests/{request_id}": Scope.REQUESTS_READ,
    "GET /v1/deletion-requests/{request_id}/events": Scope.REQUESTS_READ,
    "GET /v1/deletion-requests/{request_id}/certificate": Scope.REQUESTS_READ,
    "POST /v1/deletion-requests/{request_id}/cancel": Scope.REQUESTS_WRITE,
    "GET /v1/certificates/{certificate_id}": Scope.REQUESTS_READ,
    "POST /v1/certificates:verify": Scope.REQUESTS_READ,
    "GET /v1/accounting/models/{model_id}": Scope.ACCOUNTING_READ,
    "GET /v1/accounting/models/{model_id}/ledger": Scope.ACCOUNTING_READ,
    "GET /v1/accounting/models/{model_id}/trajectory": Scope.ACCOUNTING_READ,
    "GET /v1/accounting/deletion-requests/{request_id}": Scope.ACCOUNTING_READ,
    "POST /v1/accounting/preview": Scope.ACCOUNTING_READ,
    "GET /v1/accounting/bounds": Scope.ACCOUNTING_READ,
    "POST /v1/accounting/bounds/{name}": Scope.ACCOUNTING_READ,
    "GET /v1/runs": Scope.MODELS_READ,
    "GET /v1/runs/{run_id}": Scope.MODELS_READ,
    "GET /v1/api-keys": Scope.ADMIN,
    "POST /v1/api-keys": Scope.ADMIN,
    "DELETE /v1/api-keys/{key_id}": Scope.ADMIN,
}
OPEN_TO_ALL = {"GET /healthz", "GET /readyz", "GET /metrics", "GET /.well-known/jwks.json"}


def test_every_route_is_accounted_for(gateway: TestClient) -> None:
    """Each documented route needs one scope, or is one of the few that are open to all."""
    paths = gateway.get("/openapi.json").json()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert routes == NEEDS.keys() | OPEN_TO_ALL


@pytest.mark.parametrize("scope", Scope)
def test_a_key_opens_what_its_scope_says(
    gateway: TestClient, key_with: Callable[..., dict[str, str]], refused: Refused, scope: Scope
) -> None:
    """A key gets past the door of the routes that need its scope and of no others; an admin's gets past all."""
    header = key_with(scope)
    for route, needed in NEEDS.items():
        method, path = route.split()
        answer = gateway.request(method, path.replace("{number}", "1"), headers=header, json={})
        if scope in (needed, Scope.ADMIN):
            assert answer.status_code in (200, 404, 422), route
        else:
            refused(answer, 403, "scope_missing")


@pytest.mark.parametrize("header", ["", "Bearer ", "Bearer lethe_wrong", "Basic YTpi", "Bearer é"])
def test_without_a_key_nothing_opens(gateway: TestClient, refused: Refused, header: str) -> None:
    """Every route that needs a scope is a 401 without a key in force, and says how to authenticate."""
    del gateway.headers["Authorization"]
    for route in NEEDS:
        method, path = route.split()
        headers = {"Authorization": header.encode()} if header else {}
        answer = gateway.request(method, path.replace("{number}", "1"), headers=headers, json={})
        refused(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"
    for route in OPEN_TO_ALL:
        assert gateway.get(route.split()[1]).status_code == 200


def test_a_key_is_shown_once_and_revoked(gateway: TestClient, get: Get, refused: Refused, at: Any) -> None:
    """A new key works at once, is never shown again nor stored, and opens nothing once it is revoked."""
    made = gateway.post("/v1/api-keys", json={"name": "crm", "scopes": ["requests:read", "requests:read"]})
    assert made.status_code == 201
    created = made.json()
    key = created.pop("key")
    listed = get("/api-keys")["items"]
    assert listed[0] == created == created | {"name": "crm", "scopes": ["requests:read"], "revoked_at": None}
    assert key not in str(listed)
    assert not any(key.encode() in path.read_bytes() for path in at.settings.data_dir.rglob("*") if path.is_file())

    header = {"Authorization": f"Bearer {key}"}
    assert gateway.get("/v1/deletion-requests", headers=header).status_code == 200
    assert gateway.delete(f"/v1/api-keys/{created['id']}").status_code == 204
    refused(gateway.get("/v1/deletion-requests", headers=header), 401, "unauthenticated")
    refused(gateway.delete(f"/v1/api-keys/{created['id']}"), 404, "key_unknown")
    assert get("/api-keys")["items"][0]["revoked_at"]


@pytest.mark.parametrize(
    "wrong", [{"scopes": []}, {"scopes": ["root"]}, {"name": ""}, {"name": "a" * 201}, {"key": "mine"}]
)
def test_a_malformed_key_is_refused(gateway: TestClient, get: Get, refused: Refused, wrong: dict[str, Any]) -> None:
    """A key needs a name and known scopes, and nobody chooses the key itself."""
    refused(gateway.post("/v1/api-keys", json={"name": "a", "scopes": ["admin"]} | wrong), 422, "input_invalid")
    assert len(get("/api-keys")["items"]) == 1
