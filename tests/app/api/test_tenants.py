"""The endpoints `/v1/tenants` and `/v1/tenant`."""

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from app.installations import Installation
from lethe.contract.tenants import Policy
from tests.tables import each

Refused = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


def _as(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_an_operator_creates_tenants(gateway: TestClient, get: Get, installation: Installation) -> None:
    """An operator creates a tenant and receives the key of its first admin. The key works immediately, is shown only
    once, and is not stored."""
    answer = gateway.post("/v1/tenants", json={"name": "shop", "policy": {"grace_seconds": 5}})
    assert answer.status_code == 201
    made = answer.json()
    key = made.pop("admin_key")
    assert made == made | {"name": "shop", "policy": Policy(grace_seconds=5).model_dump(mode="json")}
    assert answer.headers["location"] == f"/v1/tenants/{made['id']}"
    assert get(f"/tenants/{made['id']}") == made
    assert [tenant["name"] for tenant in get("/tenants")["items"]] == ["shop", "default"]
    assert gateway.get("/v1/tenant", headers=_as(key)).json() == made
    assert not any(
        key.encode() in path.read_bytes() for path in installation.settings.data_dir.rglob("*") if path.is_file()
    )


def test_tenants_share_nothing(gateway: TestClient, get: Get, refused: Refused) -> None:
    """A new tenant has only its admin's key and its own log. Its admin can create keys but not tenants."""
    theirs = _as(gateway.post("/v1/tenants", json={"name": "shop"}).json()["admin_key"])
    [admin] = gateway.get("/v1/api-keys", headers=theirs).json()["items"]
    assert admin["scopes"] == ["admin"]
    made = gateway.post("/v1/api-keys", json={"name": "app", "scopes": ["models:read"]}, headers=theirs)
    assert made.status_code == 201
    assert made.json()["id"] not in str(get("/api-keys"))
    log = gateway.get("/v1/audit-log", headers=theirs).json()["items"]
    assert [entry["action"] for entry in reversed(log)] == ["tenant.created", "api_key.created", "api_key.created"]
    asked = {"name": "b", "scopes": ["operator"]}
    for answer in (
        gateway.post("/v1/tenants", json={"name": "b"}, headers=theirs),
        gateway.get("/v1/tenants", headers=theirs),
        gateway.post("/v1/api-keys", json=asked, headers=theirs),
    ):
        refused(answer, 403, "scope_missing")


def test_a_policy_patch_keeps_other_fields(gateway: TestClient, get: Get) -> None:
    """A PATCH changes the given fields immediately and only for this tenant; all other fields stay unchanged."""
    gateway.post("/v1/tenants", json={"name": "shop"})
    for changed in ({"grace_seconds": 60}, {"time_zone": "Europe/Berlin", "regulations": {"lgpd": {"days": 15}}}, {}):
        answer = gateway.patch("/v1/tenant", json={"policy": changed})
        assert answer.status_code == 200
    expected = Policy.model_validate(
        {"grace_seconds": 60, "time_zone": "Europe/Berlin", "regulations": {"lgpd": {"days": 15}}}
    ).model_dump(mode="json")
    assert get("/tenant")["policy"] == answer.json()["policy"] == expected
    assert get("/tenants")["items"][0]["policy"] == Policy().model_dump(mode="json")
    log = get("/audit-log?action=tenant.policy_changed")["items"]
    assert [sorted(entry["detail"]["policy"]) for entry in log] == [[], ["regulations", "time_zone"], ["grace_seconds"]]


def test_the_log_does_not_name_the_controller(gateway: TestClient, get: Get) -> None:
    """The audit log records that the controller or contact was set or removed, but not the value, which may be a
    person's name."""
    named = {"controller": "Jane Roe", "contact": "jane.roe@example.com", "grace_seconds": 60}
    for changed in (named, {"controller": "Acme", "contact": None}):
        gateway.patch("/v1/tenant", json={"policy": changed}).raise_for_status()
    log = get("/audit-log?action=tenant.policy_changed")["items"]
    assert [entry["detail"]["policy"] for entry in log] == [
        {"controller": "set", "contact": None},
        {"controller": "set", "contact": "set", "grace_seconds": 60},
    ]


@each(
    ("policy", "path"),
    [
        ({"grace_seconds": -1}, "policy.grace_seconds"),
        ({"time_zone": "Mars/Olympus"}, "policy.time_zone"),
        ({"identity": "face"}, "policy.identity"),
        ({"regulations": {"GDPR!": {}}}, "policy.regulations.GDPR!.[key]"),
        ({"unknown": 1}, "policy.unknown"),
        (None, "policy"),
    ],
)
def test_a_malformed_policy_is_refused(gateway: TestClient, get: Get, refused: Refused, policy: Any, path: str) -> None:
    """A malformed policy, whether for a new tenant or for the caller's own, returns 422 with the name of the field, and
    nothing is changed."""
    for answer in (
        gateway.patch("/v1/tenant", json={"policy": policy}),
        gateway.post("/v1/tenants", json={"name": "shop", "policy": policy}),
    ):
        assert refused(answer, 422, "input_invalid")["errors"][0]["path"] == path
    assert get("/tenant")["policy"] == Policy().model_dump(mode="json")
    assert len(get("/tenants")["items"]) == 1
