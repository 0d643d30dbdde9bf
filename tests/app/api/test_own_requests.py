"""Keys for several apps of one tenant that see only their own requests."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.db.tables import DeletionRequest
from app.installations import Installation
from lethe.contract.sets import Scope
from tests.conftest import FORM, npz
from tests.tables import each

PLACE = "/v1/deletion-requests"
HOOK = "https://receiver.example/hook"
Refused = Callable[..., Any]


@pytest.fixture
def key(gateway: TestClient) -> Callable[..., dict[str, Any]]:
    """Create a key over HTTP and return the response."""

    def make(*scopes: str, **asked: Any) -> dict[str, Any]:
        answer = gateway.post("/v1/api-keys", json={"name": "app", "scopes": scopes} | asked)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    return make


def _of(key: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {key['key']}"}


def _ids(gateway: TestClient, path: str, key: dict[str, Any]) -> list[str]:
    return [one["id"] for one in gateway.get(path, headers=_of(key)).json()["items"]]


@each(
    ("scopes", "is_own"),
    [
        (["requests:read", "requests:write"], True),
        (["requests:write"], True),
        (["requests:read"], False),
        (["requests:read", "requests:write", "accounting:read"], False),
        (["admin"], False),
    ],
)
def test_request_keys_see_only_their_own_requests_by_default(
    key: Callable[..., dict[str, Any]], gateway: TestClient, scopes: list[str], is_own: bool
) -> None:
    """By default, a key that can only make requests sees only the requests made with it."""
    assert key(*scopes)["own_requests_only"] is is_own
    assert key("requests:write", own_requests_only=False)["own_requests_only"] is False
    assert {one["own_requests_only"] for one in gateway.get("/v1/api-keys").json()["items"]} >= {False}


def test_an_admins_key_sees_all_requests(gateway: TestClient, refused: Refused) -> None:
    """An admin key cannot be limited to its own requests."""
    asked = {"name": "officer", "scopes": ["admin"], "own_requests_only": True}
    refused(gateway.post("/v1/api-keys", json=asked), 422, "input_invalid")


def test_an_app_does_not_see_requests_of_other_apps(
    gateway: TestClient, key: Callable[..., dict[str, Any]], refused: Refused
) -> None:
    """A key limited to its own requests cannot find another app's requests by id or in lists, searches, exports, events
    or callbacks. It can neither cancel those requests nor refer to them. An admin sees the requests of both apps."""
    gateway.patch("/v1/tenant", json={"policy": {"grace_seconds": 3600}}).raise_for_status()
    apps = [key("requests:read", "requests:write") for _ in range(2)]
    bodies: list[dict[str, Any]] = [
        {"subject_id": "p1", "external_id": "case-1", "callback_url": HOOK},
        {"subject_id": "p1"},
    ]
    made = [
        gateway.post(PLACE, json=body, headers=_of(app)).json()["id"] for app, body in zip(apps, bodies, strict=True)
    ]
    batch = {"requests": [{"subject_id": "p2"}]}
    made.append(gateway.post(f"{PLACE}:batch", json=batch, headers=_of(apps[0])).json()["items"][0]["id"])
    for query in ("", "?subject_id=p1", "?external_id=case-1", "?due_before=2999-01-01T00:00:00Z", "?order=deadline"):
        assert set(_ids(gateway, PLACE + query, apps[0])) <= {made[0], made[2]}
        assert set(_ids(gateway, PLACE + query, apps[1])) <= {made[1]}
    assert set(_ids(gateway, PLACE, apps[0])) == {made[0], made[2]}
    assert _ids(gateway, PLACE, apps[1]) == [made[1]]
    exported = gateway.get(f"{PLACE}.csv", headers=_of(apps[1])).text
    assert [one in exported for one in made] == [False, True, False]
    for path in (made[0], f"{made[0]}/events"):
        assert gateway.get(f"{PLACE}/{path}", headers=_of(apps[0])).status_code == 200
        refused(gateway.get(f"{PLACE}/{path}", headers=_of(apps[1])), 404, "request_unknown")
    [told] = _ids(gateway, "/v1/webhook-deliveries", apps[0])[-1:]
    assert _ids(gateway, "/v1/webhook-deliveries", apps[1]) == []
    refused(gateway.get(f"/v1/webhook-deliveries/{told}", headers=_of(apps[1])), 404, "delivery_unknown")
    refused(gateway.get("/v1/suppressions", headers=_of(apps[1])), 403, "scope_missing")
    refused(gateway.post(f"{PLACE}/{made[0]}/cancel", headers=_of(apps[1])), 404, "request_unknown")
    assert gateway.post(f"{PLACE}/{made[0]}/cancel", headers=_of(apps[0])).status_code == 200
    follow = {"subject_id": "p1", "refers_to": made[0]}
    refused(gateway.post(PLACE, json=follow, headers=_of(apps[1])), 404, "request_unknown")
    assert gateway.post(PLACE, json=follow, headers=_of(apps[0])).status_code == 202
    assert set(made) <= {one["id"] for one in gateway.get(PLACE).json()["items"]}


def test_certificates_of_other_keys_are_unknown(
    gateway: TestClient,
    key: Callable[..., dict[str, Any]],
    refused: Refused,
    new_model: Callable[..., dict[str, Any]],
    work: Callable[[], int],
) -> None:
    """A key that can read certificates but is limited to its own requests can read only the certificates issued for
    them."""
    dataset = gateway.post("/v1/datasets", data=FORM, files={"file": ("people.npz", npz())}).json()
    new_model(dataset["id"])
    work()
    scopes = ("requests:read", "requests:write", "accounting:read")
    apps = [key(*scopes, own_requests_only=True) for _ in range(2)]
    made = gateway.post(PLACE, json={"subject_id": "p1"}, headers=_of(apps[0])).json()["id"]
    work()
    mine = gateway.get(f"{PLACE}/{made}/certificate", headers=_of(apps[0])).json()["certificates"][0]["id"]
    assert gateway.get(f"/v1/certificates/{mine}", headers=_of(apps[0])).status_code == 200
    refused(gateway.get(f"{PLACE}/{made}/certificate", headers=_of(apps[1])), 404, "request_unknown")
    refused(gateway.get(f"/v1/certificates/{mine}", headers=_of(apps[1])), 404, "certificate_unknown")


def test_requests_stay_visible_after_key_rotation(gateway: TestClient, key: Callable[..., dict[str, Any]]) -> None:
    """All successors of a rotated key see the requests made with it, and the key sees its successors' requests as long
    as it is valid."""
    keys = [key("requests:read", "requests:write")]
    made = []
    for _ in range(3):
        made.append(gateway.post(PLACE, json={"subject_id": "p1"}, headers=_of(keys[-1])).json()["id"])
        answer = gateway.post(f"/v1/api-keys/{keys[-1]['id']}/rotate", json={"overlap_seconds": 3600})
        keys.append(answer.json())
    assert all(set(_ids(gateway, PLACE, one)) == set(made) for one in keys)


def test_requests_without_a_recorded_key_are_hidden(
    installation: Installation,
    gateway: TestClient,
    key: Callable[..., dict[str, Any]],
    key_with: Callable[..., dict[str, str]],
) -> None:
    """Requests that were made before keys were recorded are visible only to keys that can see all requests of the
    tenant."""
    app = key("requests:read", "requests:write")
    made = gateway.post(PLACE, json={"subject_id": "p1"}, headers=_of(app)).json()["id"]
    with installation.database.writing() as session:
        session.execute(sa.update(DeletionRequest).values(maker=None))
    assert _ids(gateway, PLACE, app) == []
    reader = gateway.get(f"{PLACE}/{made}", headers=key_with(Scope.REQUESTS_READ))
    assert reader.status_code == 200
    assert datetime.datetime.fromisoformat(reader.json()["created_at"])
