"""Endpoints of webhook deliveries and of the secret, the overview of deliveries, and the client."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.config import Settings
from app.features.webhooks.tables import WebhookDelivery
from app.installations import Installation
from lethe.contract.sets import Scope
from lethe.features.webhooks import signatures as signature
from lethe.features.webhooks.contract import DeliveryStatus
from tests import servers
from tests.faults.processes import wait_until
from tests.features.together.test_authorisation import delivered
from tests.servers import serving

Get = Callable[[str], Any]
Make = Callable[..., dict[str, Any]]
Refused = Callable[..., dict[str, Any]]
KeyWith = Callable[..., dict[str, str]]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"webhook_allowed_networks": "127.0.0.0/8, ::1/128"})


def ended(get: Get, *, count: int) -> list[dict[str, Any]]:
    """Wait until `count` deliveries exist and none is pending, and return them, newest first."""

    def found() -> list[dict[str, Any]] | None:
        items: list[dict[str, Any]] = get("/webhook-deliveries")["items"]
        return items if len(items) == count and all(item["ended_at"] for item in items) else None

    items = wait_until(found, seconds=60)
    assert isinstance(items, list)
    return items


def test_a_dead_delivery_is_found_and_replayed(
    gateway: TestClient, forget: Make, get: Get, installation: Installation, refused: Refused
) -> None:
    """An admin finds a dead delivery by its status or its request and replays it with one call."""
    requests = [forget(f"nobody{number}")["id"] for number in range(2)]
    dead = delivered(installation, requests[0], status=DeliveryStatus.DEAD)
    other = delivered(installation, requests[1])
    assert [item["id"] for item in get("/webhook-deliveries?status=dead")["items"]] == [dead]
    assert [item["id"] for item in get("/webhook-deliveries?limit=1")["items"]] == [other]
    assert [item["id"] for item in get(f"/webhook-deliveries?request_id={requests[0]}")["items"]] == [dead]
    assert get("/webhook-deliveries?request_id=dr_0")["items"] == []
    answer = gateway.post(f"/v1/webhook-deliveries/{dead}/replay")
    assert (answer.status_code, answer.json()["id"]) == (202, dead)
    assert answer.headers["Location"] == f"/v1/webhook-deliveries/{dead}"
    shown = get(f"/webhook-deliveries/{dead}")
    assert (shown["status"], shown["request_id"]) == ("pending", requests[0])
    assert (shown["url"], shown["host"], shown["body"]) == ("https://app.example/hook", "app.example", "{}")
    refused(gateway.post("/v1/webhook-deliveries/whd_0/replay"), 404, "delivery_unknown")
    refused(gateway.get("/v1/webhook-deliveries?status=lost"), 422, "input_invalid")


def test_ended_deliveries_are_replayed_together(
    gateway: TestClient, forget: Make, installation: Installation, refused: Refused
) -> None:
    """One call replays the deliveries with a given status, the oldest first and up to a limit, and reports whether more
    remain. Deliveries that are pending, that ended after a given time or that belong to other requests are not
    replayed."""
    requests = [forget(f"nobody{number}")["id"] for number in range(3)]
    sent = [delivered(installation, request_id) for request_id in requests]
    before = datetime.datetime.now(datetime.UTC).isoformat()

    def replay(**body: Any) -> Any:
        answer = gateway.post("/v1/webhook-deliveries:replay", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def over() -> list[str]:
        items = gateway.get("/v1/webhook-deliveries").json()["items"]
        return [item["id"] for item in items if item["ended_at"]][::-1]

    assert replay(status="dead") == {"replayed": 0, "more": False}
    assert replay(status="delivered", request_id="dr_0") == {"replayed": 0, "more": False}
    assert replay(status="delivered", ended_before="2026-01-01T00:00:00Z") == {"replayed": 0, "more": False}
    assert replay(status="delivered", request_id=requests[2]) == {"replayed": 1, "more": False}
    assert over() == sent[:2]
    assert replay(status="delivered", ended_before=before, limit=1) == {"replayed": 1, "more": True}
    assert over() == sent[1:2]
    assert replay(status="delivered", ended_before=before, limit=1) == {"replayed": 1, "more": False}
    refused(gateway.post("/v1/webhook-deliveries:replay", json={"status": "pending"}), 422, "input_invalid")
    refused(gateway.post("/v1/webhook-deliveries:replay", json={}), 422, "input_invalid")


def test_urls_are_hidden_without_admin(
    gateway: TestClient, forget: Make, installation: Installation, key_with: KeyWith, refused: Refused
) -> None:
    """Callers without the admin scope see hosts, but no URLs or bodies. Callers without accounting:read do not see
    deliveries about requests that callers with that scope submitted."""
    one = delivered(installation, forget("nobody")["id"])
    knows, app = key_with(Scope.REQUESTS_READ, Scope.ACCOUNTING_READ), key_with(Scope.REQUESTS_READ)
    [first] = gateway.get("/v1/webhook-deliveries", headers=knows).json()["items"]
    assert (first["id"], first["host"], first["url"]) == (one, "app.example", None)
    shown = gateway.get(f"/v1/webhook-deliveries/{one}", headers=knows)
    assert (shown.status_code, shown.json()["body"]) == (200, None)
    assert "/hook" not in shown.text
    assert gateway.get("/v1/webhook-deliveries", headers=app).json()["items"] == []
    refused(gateway.get(f"/v1/webhook-deliveries/{one}", headers=app), 404, "delivery_unknown")


def test_calls_after_a_rotation_have_two_signatures(
    gateway: TestClient, forget: Make, get: Get, refused: Refused, installation: Installation
) -> None:
    """After a rotation, calls are signed with both secrets, so that receivers have a day to switch to the new
    secret."""
    before = get("/webhook-secret")
    assert (before["generation"], before["rotated_at"], before["previous_until"]) == (1, None, None)
    answer = gateway.post("/v1/webhook-secret/rotate", json={"generation": 1})
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    after = get("/webhook-secret")
    assert answer.json() == after
    assert after["secret"] != before["secret"]
    assert datetime.datetime.fromisoformat(after["previous_until"]) - datetime.datetime.fromisoformat(
        after["rotated_at"]
    ) == datetime.timedelta(hours=24)
    refused(gateway.post("/v1/webhook-secret/rotate", json={}), 422, "input_invalid")
    with serving(servers.status(200)) as server:
        forget("nobody", callback_url=f"http://127.0.0.1:{server.port}/hook")
        ended(get, count=2)
    for call in server.calls:
        assert len(call.headers["webhook-signature"].split()) == 2
        for known in (before, after):
            now = datetime.datetime.now(datetime.UTC)
            assert signature.verify(known["secret"], call.headers, call.body, now=now) == call.headers["webhook-id"]
    folder = installation.settings.data_dir
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not any(known["secret"].encode() in path.read_bytes() for known in (before, after) for path in files)


def test_an_uncallable_url_is_refused(gateway: TestClient, refused: Refused) -> None:
    """A URL outside the permitted networks and a URL with a password are refused on submission, and the error quotes
    neither."""
    for url in ("https://10.0.0.1/", "https://user:pw@receiver.example/"):
        answer = gateway.post("/v1/deletion-requests", json={"subject_id": "p1", "callback_url": url})
        problem = refused(answer, 422, "input_invalid")
        assert [fault["path"] for fault in problem["errors"]] == ["callback_url"]
        assert url not in answer.text


def test_an_invalid_list_of_networks_prevents_startup() -> None:
    """If the list of permitted networks is invalid, the service does not start."""
    for wrong in ("127.0.0.1/8", "localhost", "10.0.0.0/33"):
        with pytest.raises(ValueError, match="webhook_allowed_networks"):
            Settings(webhook_allowed_networks=wrong)
    assert [
        str(network) for network in Settings(webhook_allowed_networks="10.0.0.0/8, ::1/128").webhook_networks()
    ] == [
        "10.0.0.0/8",
        "::1/128",
    ]


Forget = Callable[..., dict[str, Any]]


def test_undelivered_events_are_counted(
    installation: Installation, live: dict[str, Any], forget: Forget, get: Callable[[str], Any]
) -> None:
    """Every delivery that has not reached its receiver is counted, whether or not it has been attempted. Deliveries
    that have arrived or are not due yet are not counted."""
    of_each = [delivered(installation, forget(f"p{n}")["id"]) for n in range(5)]
    statuses = (("dead", "timed_out"), ("pending", "timed_out"), ("pending", None), ("delivered", None))
    with installation.database.writing() as session:
        for delivery_id, (status, error) in zip(of_each, [*statuses, ("pending", None)], strict=True):
            these = sa.update(WebhookDelivery).where(WebhookDelivery.id == delivery_id)
            session.execute(these.values(status=status, error=error))
        tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
        session.execute(sa.update(WebhookDelivery).where(WebhookDelivery.id == of_each[-1]).values(created_at=tomorrow))
    assert get("/overview")["undelivered"] == {"dead": 1, "pending": 2}
    assert {one["id"] for one in get("/webhook-deliveries?undelivered=true")["items"]} == set(of_each[:3])
