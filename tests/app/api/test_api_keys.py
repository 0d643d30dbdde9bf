"""The endpoints below `/v1/api-keys`. Permissions by scope are tested in `test_authorisation.py` with the table
in `routes.py`."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from fastapi.testclient import TestClient
from pydantic import SecretStr

from app.access import callers
from app.config import Settings
from app.main import create_app
from tests.faults import processes
from tests.faults.processes import wait_until
from tests.tables import each

Refused = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


def test_a_key_is_shown_once_and_revoked(gateway: TestClient, get: Get, refused: Refused, installation: Any) -> None:
    """A new key works at once, appears only in the response that creates it, and stops working when it is revoked."""
    made = gateway.post("/v1/api-keys", json={"name": "crm", "scopes": ["requests:read", "requests:read"]})
    assert made.status_code == 201
    created = made.json()
    key = created.pop("key")
    assert made.headers["Location"] == f"/v1/api-keys/{created['id']}"
    listed = get("/api-keys")["items"]
    assert listed[0] == created == created | {"name": "crm", "scopes": ["requests:read"], "revoked_at": None}
    assert key not in str(listed)
    assert not any(
        key.encode() in path.read_bytes() for path in installation.settings.data_dir.rglob("*") if path.is_file()
    )

    header = {"Authorization": f"Bearer {key}"}
    assert gateway.get("/v1/deletion-requests", headers=header).status_code == 200
    assert gateway.delete(f"/v1/api-keys/{created['id']}").status_code == 204
    refused(gateway.get("/v1/deletion-requests", headers=header), 401, "unauthenticated")
    refused(gateway.delete(f"/v1/api-keys/{created['id']}"), 404, "key_unknown")
    assert get("/api-keys")["items"][0]["revoked_at"]


@each(
    ("wrong", "path"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes.0"),
        ({"name": ""}, "name"),
        ({"name": "a" * 201}, "name"),
        ({"key": "mine"}, "key"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
    ],
)
def test_a_malformed_key_is_refused(
    gateway: TestClient, get: Get, refused: Refused, wrong: dict[str, Any], path: str
) -> None:
    """A new key is refused if it has no name, an unknown scope, an expiry in the past or a secret chosen by the
    caller."""
    answer = gateway.post("/v1/api-keys", json={"name": "a", "scopes": ["admin"]} | wrong)
    assert [fault["path"] for fault in refused(answer, 422, "input_invalid")["errors"]] == [path]
    assert len(get("/api-keys")["items"]) == 1


def _as(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_a_key_is_rotated(gateway: TestClient, get: Get, refused: Refused) -> None:
    """Rotation returns a key with the same permissions; without an overlap, the old key stops working at once."""
    asked = {"name": "crm", "scopes": ["requests:read"], "calls_per_minute": 50}
    old = gateway.post("/v1/api-keys", json=asked).json()
    answer = gateway.post(f"/v1/api-keys/{old['id']}/rotate", json={"overlap_seconds": 60})
    assert answer.status_code == 201
    new = answer.json()
    assert answer.headers["Location"] == f"/v1/api-keys/{new['id']}"
    assert new == new | asked | {"expires_at": None}
    for key in (old["key"], new["key"]):
        assert gateway.get("/v1/deletion-requests", headers=_as(key)).status_code == 200
    assert gateway.post(f"/v1/api-keys/{new['id']}/rotate", json={}).status_code == 201
    refused(gateway.get("/v1/deletion-requests", headers=_as(new["key"])), 401, "unauthenticated")
    assert gateway.get("/v1/deletion-requests", headers=_as(old["key"])).status_code == 200
    refused(gateway.post(f"/v1/api-keys/{new['id']}/rotate", json={}), 404, "key_unknown")
    assert [key["expires_at"] is None for key in get("/api-keys")["items"]] == [True, False, False, True]


def test_key_uses_are_recorded_at_shutdown(settings: Settings, admin_key: str) -> None:
    """On shutdown, a gateway records which keys were used."""
    with TestClient(create_app(settings), headers=_as(admin_key)) as first:
        assert first.get("/v1/api-keys").json()["items"][0]["last_used_at"] is None
    with TestClient(create_app(settings), headers=_as(admin_key)) as second:
        assert second.get("/v1/api-keys").json()["items"][0]["last_used_at"]


@pytest.mark.usefixtures("minute")
def test_a_key_has_a_rate_limit(gateway: TestClient, refused: Refused) -> None:
    """Each response states how many calls the key has left. Calls above the limit return 429 with the time of the next
    permitted call."""
    asked = {"name": "a", "scopes": ["models:read"], "calls_per_minute": 3}
    key = gateway.post("/v1/api-keys", json=asked).json()["key"]
    left = [gateway.get("/v1/models", headers=_as(key)).headers for _ in range(3)]
    assert [one["ratelimit"].split(";")[1] for one in left] == ["r=2", "r=1", "r=0"]
    assert {one["ratelimit-policy"] for one in left} == {'"minute";q=3;w=60'}
    answer = gateway.get("/v1/models", headers=_as(key))
    refused(answer, 429, "rate_limited")
    assert int(answer.headers["retry-after"]) == 50
    assert gateway.get("/v1/models").status_code == 200


@pytest.fixture
def at_the_door(settings: Settings) -> Iterator[TestClient]:
    """Start a gateway that blocks an address after three wrong keys."""
    with TestClient(create_app(settings.model_copy(update={"failed_calls_per_minute": 3}))) as client:
        yield client


@pytest.mark.usefixtures("minute")
def test_wrong_keys_block_an_address(
    at_the_door: TestClient, admin_key: str, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a few wrong keys, an address cannot try another key during that minute. A valid key that the gateway has
    already seen still works from that address, and calls without a key do not count as wrong keys."""
    monkeypatch.setattr(callers, "_BELIEVED_SECONDS", -1.0)  # each call looks its key up again
    assert at_the_door.get("/v1/models", headers=_as(admin_key)).status_code == 200
    for _ in range(5):
        refused(at_the_door.get("/v1/models"), 401, "unauthenticated")
    for number in range(3):
        refused(at_the_door.get("/v1/models", headers=_as(f"lethe_{number}")), 401, "unauthenticated")
    refused(at_the_door.get("/v1/models", headers=_as("lethe_4")), 429, "rate_limited")
    assert at_the_door.get("/v1/models", headers=_as(admin_key)).status_code == 200


@pytest.mark.redis
@pytest.mark.usefixtures("minute")
def test_gateways_share_a_limit(settings: Settings, admin_key: str, tmp_path: Path) -> None:
    """Two gateways that use the same Redis server share a key's limit. If Redis fails, each gateway enforces the limit
    separately."""
    minute = int(time.time()) // 60
    server = processes.Redis(tmp_path)
    shared = settings.model_copy(update={"broker_url": SecretStr(server.url), "calls_per_minute": 10})
    try:
        with (
            TestClient(create_app(shared)) as one,
            TestClient(create_app(shared)) as other,
            redis.Redis(port=server.port) as told,
        ):
            asked = {"name": "a", "scopes": ["models:read"]}
            first, second, third = (
                one.post("/v1/api-keys", json=asked, headers=_as(admin_key)).json() for _ in range(3)
            )

            def calls(gateway: TestClient, key: dict[str, str], times: int) -> list[int]:
                return [gateway.get("/v1/models", headers=_as(key["key"])).status_code for _ in range(times)]

            def is_told(key: dict[str, str], number: int) -> bool:
                return told.get(f"lethe:calls:{minute}:{key['id']}") == str(number).encode()

            assert calls(one, first, 7) == [200] * 7
            wait_until(lambda: is_told(first, 7))
            assert calls(other, first, 1) == [200]
            wait_until(lambda: is_told(first, 8))
            assert calls(other, third, 1) == [200]
            wait_until(lambda: is_told(third, 1))  # by an exchange after the one that reported the seven
            assert calls(other, first, 3) == [200] * 2 + [429]
            server.kill()
            for gateway in (one, other):
                assert calls(gateway, second, 11) == [200] * 10 + [429]
    finally:
        server.kill()
