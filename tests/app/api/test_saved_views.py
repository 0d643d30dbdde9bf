"""Saved views over HTTP: each caller's own, of known filters alone, and gone with them."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.db.tables import ApiKey, SavedView
from app.installations import Installation
from app.operations import periodic_jobs
from lethe.contract.saved_views import LONGEST_NAME, MOST_VIEWS
from lethe.contract.sets import Scope

PLACE = "/v1/saved-views"
Refused = Callable[..., dict[str, Any]]
VIEW = {
    "name": "Overdue, mine",
    "status": "in_review",
    "regulation": "gdpr",
    "clock": "overdue",
    "assignee": "me",
    "received_from": "2026-01-31",
    "order": "deadline",
    "columns": ["due", "source"],
    "page_size": 100,
}


def names(gateway: TestClient, headers: dict[str, str] | None = None) -> list[str]:
    answer = gateway.get(PLACE, headers=headers)
    assert answer.status_code == 200
    return [one["name"] for one in answer.json()["items"]]


def test_a_view_is_kept_as_it_was_saved(gateway: TestClient) -> None:
    """It comes back with all of its filters, newest first among the others, and a repeated call saves none twice."""
    once = {"Idempotency-Key": "once"}
    made = gateway.post(PLACE, json=VIEW, headers=once)
    assert made.status_code == 201
    assert made.json() == made.json() | VIEW
    assert made.headers["location"] == f"{PLACE}/{made.json()['id']}"
    assert gateway.post(PLACE, json=VIEW, headers=once).json() == made.json()
    plain = gateway.post(PLACE, json={"name": "All"}).json()
    assert plain == plain | {"status": None, "order": "newest", "columns": [], "page_size": 50}
    assert gateway.get(PLACE).json()["items"] == [plain, made.json()]


def test_a_view_is_for_whoever_saved_it(
    gateway: TestClient, key_with: Callable[..., dict[str, str]], refused: Refused
) -> None:
    """Nobody else lists it, deletes it, or is kept from its name: neither an admin nor another tenant."""
    app = key_with(Scope.REQUESTS_READ)
    made = gateway.post(PLACE, json=VIEW, headers=app).json()
    shop = gateway.post("/v1/tenants", json={"name": "shop"}).json()["admin_key"]
    for headers in (None, key_with(Scope.REQUESTS_READ), {"Authorization": f"Bearer {shop}"}):
        assert names(gateway, headers) == []
        refused(gateway.delete(f"{PLACE}/{made['id']}", headers=headers), 404, "saved_view_unknown")
        assert gateway.post(PLACE, json=VIEW, headers=headers).status_code == 201
    assert names(gateway, app) == [VIEW["name"]]
    assert gateway.delete(f"{PLACE}/{made['id']}", headers=app).status_code == 204
    assert names(gateway, app) == []


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ({"external_id": "case-7"}, "external_id"),
        ({"subject_id": "jane@example.org"}, "subject_id"),
        ({"sought": "jane"}, "sought"),
        ({"regulation": "jane_roe"}, "regulation"),
        ({"assignee": "jane"}, "assignee"),
        ({"columns": ["external_id"]}, "columns.0"),
        ({"columns": ["due", "due"]}, "columns"),
        ({"received_from": "jane"}, "received_from"),
        ({"page_size": 7}, "page_size"),
        ({"name": ""}, "name"),
        ({"name": "x" * (LONGEST_NAME + 1)}, "name"),
    ],
)
def test_what_no_view_has(gateway: TestClient, refused: Refused, asked: dict[str, Any], path: str) -> None:
    """A subject, a case number, search text, and values that no filter has, are refused by their fields, and the error
    does not repeat them."""
    problem = refused(gateway.post(PLACE, json={"name": "Mine"} | asked), 422, "input_invalid")
    assert [fault["path"] for fault in problem["errors"]] == [path]
    assert "jane" not in str(problem)
    assert names(gateway) == []


def test_limits(gateway: TestClient, refused: Refused) -> None:
    """A caller has each name once, and twenty views; one that is deleted makes room."""
    made = gateway.post(PLACE, json=VIEW).json()
    refused(gateway.post(PLACE, json={"name": VIEW["name"]}), 409, "saved_view_exists")
    for number in range(MOST_VIEWS - 1):
        assert gateway.post(PLACE, json={"name": f"View {number}"}).status_code == 201
    refused(gateway.post(PLACE, json={"name": "One more"}), 409, "saved_views_full")
    gateway.delete(f"{PLACE}/{made['id']}").raise_for_status()
    assert gateway.post(PLACE, json={"name": "One more"}).status_code == 201


def test_views_stay_with_a_key_that_is_replaced_and_end_with_the_last(
    gateway: TestClient, installation: Installation
) -> None:
    """The key that replaces another has its views; with the last of them in force they are deleted."""

    def bearing(made: dict[str, Any]) -> dict[str, str]:
        return {"Authorization": f"Bearer {made['key']}"}

    first = gateway.post("/v1/api-keys", json={"name": "app", "scopes": ["requests:read"]}).json()
    gateway.post(PLACE, json=VIEW, headers=bearing(first)).raise_for_status()
    second = gateway.post(f"/v1/api-keys/{first['id']}/rotate", json={"overlap_seconds": 3600}).json()
    assert names(gateway, bearing(second)) == [VIEW["name"]]
    gateway.delete(f"/v1/api-keys/{first['id']}").raise_for_status()
    assert names(gateway, bearing(second)) == [VIEW["name"]]
    gateway.delete(f"/v1/api-keys/{second['id']}").raise_for_status()
    with installation.database.reading() as session:
        assert session.scalars(sa.select(SavedView)).all() == []


def test_views_of_a_key_that_expires_are_forgotten(gateway: TestClient, installation: Installation) -> None:
    """Once no key of a line is in force a periodic job deletes its views, and nobody else's."""
    first = gateway.post("/v1/api-keys", json={"name": "app", "scopes": ["requests:read"]}).json()
    gateway.post(PLACE, json=VIEW, headers={"Authorization": f"Bearer {first['key']}"}).raise_for_status()
    gateway.post(PLACE, json={"name": "Of the admin"}).raise_for_status()
    second = gateway.post(f"/v1/api-keys/{first['id']}/rotate", json={"overlap_seconds": 3600}).json()
    for key, left in ((first, [VIEW["name"], "Of the admin"]), (second, ["Of the admin"])):
        with installation.database.writing() as session:
            over = sa.update(ApiKey).where(ApiKey.id == key["id"])
            session.execute(over.values(expires_at=datetime.datetime.now(datetime.UTC)))
        periodic_jobs.forget_sessions(installation)
        with installation.database.reading() as session:
            assert sorted(session.scalars(sa.select(SavedView.name))) == sorted(left)
