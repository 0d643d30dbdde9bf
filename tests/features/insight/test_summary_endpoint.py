"""`:summary`: due requests, and the duration of completed ones."""

import datetime
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

from fastapi.testclient import TestClient

from lethe.contract.sets import Scope

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()


def test_a_summary_counts_requests_by_deadline(gateway: TestClient, forget: Make, get: Get) -> None:
    """Each open request counts once: as overdue, as paused, or on the day of its deadline in the policy's time zone.
    Each request also counts in the week in which it was received, and lists accept a week's bounds as filters."""
    gateway.patch("/v1/tenant", json={"policy": {"time_zone": "Pacific/Auckland"}}).raise_for_status()
    done = forget("stranger")["id"]
    forget("q1", identity_verified=False, submitted_at=now())
    ago = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=20)).isoformat()
    waits = forget("q3", identity_verified=False, regulation="ccpa", submitted_at=ago)
    forget("q2", identity_verified=False, regulation="ccpa", submitted_at="2026-01-01T00:00:00Z")
    found = get("/deletion-requests:summary")
    assert (found["time_zone"], found["overdue"], len(found["due"]), len(found["weeks"])) == (
        "Pacific/Auckland",
        1,
        30,
        12,
    )
    zone = ZoneInfo("Pacific/Auckland")
    today = datetime.datetime.fromisoformat(found["at"]).astimezone(zone).date()
    assert [one["day"] for one in found["due"]] == [f"{today + datetime.timedelta(days=n)}" for n in range(30)]
    due = datetime.datetime.fromisoformat(waits["due_at"]).astimezone(zone).date()
    assert [(one["day"], one["requests"]) for one in found["due"] if one["requests"]] == [(f"{due}", 1)]
    assert (found["paused"], found["later"]) == (1, 0)
    received = [one["received"] for one in found["weeks"]]
    assert (sum(received), received[-1]) == (3, 2)
    assert [one["completed"] for one in found["weeks"]] == [0] * 11 + [1]
    assert found["completion"] == {"requests": 1, "median_days": 0, "p90_days": 0, "share_in_time": 1.0}
    monday = datetime.datetime.combine(datetime.date.fromisoformat(found["weeks"][-1]["starts"]), datetime.time(), zone)
    since = monday.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")
    assert [one["id"] for one in get(f"/deletion-requests?completed_from={since}")["items"]] == [done]
    assert get(f"/deletion-requests:count?completed_before={since}")["count"] == 0


def test_a_summary_is_discreet(
    gateway: TestClient, live: dict[str, Any], forget: Make, key_with: Callable[..., dict[str, str]]
) -> None:
    """For a caller who must not learn whether data is held, the summary counts a completion only once it has been
    reported."""
    app = key_with(Scope.REQUESTS_READ, Scope.REQUESTS_WRITE)
    for person in ("p1", "stranger"):
        gateway.post("/v1/deletion-requests", json={"subject_id": person}, headers=app).raise_for_status()
    officer = gateway.get("/v1/deletion-requests:summary").json()
    seen = gateway.get("/v1/deletion-requests:summary", headers=app).json()
    assert (officer["completion"]["requests"], seen["completion"]["requests"]) == (1, 0)
    assert sum(one["requests"] for one in seen["due"]) + seen["later"] + seen["paused"] == 2
    assert seen["completion"] == {"requests": 0, "median_days": None, "p90_days": None, "share_in_time": None}
