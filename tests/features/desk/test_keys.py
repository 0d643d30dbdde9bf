"""Keys on pages: created and shown once, rotated, revoked; and refusals."""

import re
from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from lethe.contract.sets import Scope
from tests.features.desk.browsing import Browser
from tests.tables import each

Get = Callable[[str], Any]


def _key_in(page: str) -> str:
    [key] = set(re.findall(r"lethe_[\w-]{43}", page))
    return str(key)


def test_a_key_is_shown_once(officer: Browser, gateway: TestClient, get: Get) -> None:
    """The response to the form shows the new key, which has the ticked scopes. The list never shows the key."""
    answer = officer.post(
        "/admin/keys",
        name="nightly",
        scopes=["models:read", "requests:read"],
        expires_on="2999-12-31",
        calls_per_minute="60",
    )
    assert answer.status_code == 201
    assert answer.headers["cache-control"] == "no-store"
    key = _key_in(answer.text)
    made = get("/api-keys")["items"][0]
    assert made["scopes"] == ["models:read", "requests:read"]
    assert (made["expires_at"], made["calls_per_minute"]) == ("2999-12-31T23:59:59Z", 60)
    assert gateway.get("/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200
    page = officer.get("/admin/keys").text
    assert "nightly" in page
    assert key not in page


@each(
    ("field", "value"),
    [("name", ""), ("scopes", []), ("scopes", ["root"]), ("expires_on", "soon"), ("calls_per_minute", "many")],
)
def test_an_invalid_key_is_not_created(officer: Browser, get: Get, field: str, value: str | list[str]) -> None:
    """An invalid form is shown again with its errors, and no key is created."""
    before = get("/api-keys")
    filled: dict[str, str | list[str]] = {"name": "nightly", "scopes": ["models:read"]}
    answer = officer.post("/admin/keys", **(filled | {field: value}))
    assert answer.status_code == 422
    assert f'title="{field}' in answer.text
    assert f'id="{field}-fault"' in answer.text
    assert get("/api-keys") == before


def test_a_key_is_rotated(officer: Browser, gateway: TestClient) -> None:
    """The new key is shown once. The old key remains valid for the chosen overlap, or stops working at once."""
    made = gateway.post("/v1/api-keys", json={"name": "app", "scopes": ["models:read"]}).json()
    for overlap, status in (("3600", 200), ("0", 401)):
        old = {"Authorization": f"Bearer {made['key']}"}
        answer = officer.post(f"/admin/keys/{made['id']}/rotate", overlap_seconds=overlap)
        assert answer.status_code == 201
        assert gateway.get("/v1/models", headers=old).status_code == status
        made = {"key": _key_in(answer.text), "id": re.findall(r'<dd><code class="id">(key_\w+)', answer.text)[0]}


def test_a_key_is_revoked(officer: Browser, gateway: TestClient) -> None:
    """A revoked key is refused. The last admin key cannot be revoked, and the page explains why."""
    made = gateway.post("/v1/api-keys", json={"name": "app", "scopes": ["models:read"]}).json()
    answer = officer.post(f"/admin/keys/{made['id']}/revoke")
    assert answer.headers["location"] == "/admin/keys?done=revoked"
    assert "Revoked" in officer.get(answer.headers["location"]).text
    assert gateway.get("/v1/models", headers={"Authorization": f"Bearer {made['key']}"}).status_code == 401
    assert officer.post(f"/admin/keys/{made['id']}/revoke").status_code == 404
    [own] = {key["id"] for key in gateway.get("/v1/api-keys").json()["items"]} - {made["id"]}
    answer = officer.post(f"/admin/keys/{own}/revoke")
    assert answer.status_code == 409
    assert "make another one first" in answer.text


def test_the_page_of_a_key_offers_revocation(officer: Browser, gateway: TestClient) -> None:
    """The page of a valid key offers to revoke it, and the page of a revoked key does not. The page of an unknown key
    returns 404."""
    made = gateway.post("/v1/api-keys", json={"name": "app", "scopes": ["models:read"]}).json()
    assert "Revoke it" in officer.get(f"/admin/keys/{made['id']}").text
    gateway.delete(f"/v1/api-keys/{made['id']}")
    assert "Revoke it" not in officer.get(f"/admin/keys/{made['id']}").text
    assert officer.get("/admin/keys/key_none").status_code == 404


def test_no_admin_grants_more_scopes_than_their_own(somebody_with: Callable[..., Browser]) -> None:
    """An admin who is not an operator is not offered the operator scope and cannot grant it."""
    browser = somebody_with(Scope.ADMIN)
    assert 'value="operator"' not in browser.get("/admin/keys").text
    assert browser.post("/admin/keys", name="more", scopes=["operator"]).status_code == 403
