"""`/overview`: the numbers of a tenant, and of no other."""

import os
import time
from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from app.config import Settings
from lethe.contract.sets import Scope

Forget = Callable[..., dict[str, Any]]


def test_numbers_follow_the_requests(
    gateway: TestClient, live: dict[str, Any], forget: Forget, get: Callable[[str], Any], work: Callable[[], int]
) -> None:
    """What waits, is in review or has ended is counted by status, and what is overdue by its clock."""
    forget("p0")
    forget("p1", identity_verified=False, regulation="ccpa", submitted_at="2026-01-01T00:00:00Z")
    forget("stranger")
    found = get("/overview")
    assert found["open"] == {"accepted": 1, "in_review": 1, "received": 0, "running": 0}
    assert found["ended"] == {"cancelled": 0, "completed": 1, "rejected": 0}
    assert (found["overdue"], found["running"]) == (1, 0)
    assert found["queue_age_seconds"] > 0
    work()
    found = get("/overview")
    assert found["open"]["accepted"] == 0
    assert found["ended"]["completed"] == 2
    assert found["queue_age_seconds"] == 0


def test_an_app_sees_no_numbers(
    gateway: TestClient, key_with: Callable[..., dict[str, str]], refused: Callable[..., dict[str, Any]]
) -> None:
    """Whoever may not learn whether anything is held gets none: they could watch them fall."""
    refused(gateway.get("/v1/overview", headers=key_with(Scope.REQUESTS_READ)), 403, "scope_missing")


def test_tenants_have_numbers_of_their_own(gateway: TestClient, forget: Forget) -> None:
    """What one tenant's people ask is not counted for another."""
    forget("p0", identity_verified=False)
    made = gateway.post("/v1/tenants", json={"name": "other"}).json()
    answer = gateway.get("/v1/overview", headers={"Authorization": f"Bearer {made['admin_key']}"})
    assert set(answer.json()["open"].values()) == {0}


def test_open_requests_by_deadline(gateway: TestClient, forget: Forget, get: Callable[[str], Any]) -> None:
    """In the order of their deadlines, page by page, only open requests are listed."""
    dates = ["2026-11-20", "2026-11-02", "2026-11-11", "2026-11-08"]
    made = {date: forget(f"q{date}", identity_verified=False, submitted_at=f"{date}T00:00:00Z") for date in dates}
    forget("stranger")
    page = get("/deletion-requests?order=deadline&limit=3")
    rest = get(f"/deletion-requests?order=deadline&limit=3&cursor={page['next_cursor']}")
    assert [one["id"] for one in page["items"] + rest["items"]] == [made[date]["id"] for date in sorted(dates)]


def test_runs_by_status(live: dict[str, Any], get: Callable[[str], Any]) -> None:
    """Runs are listed by what became of them."""
    assert [run["status"] for run in get("/runs?status=published")["items"]] == ["published"]
    assert get("/runs?status=running")["items"] == []


def test_hosts_and_their_signs_of_life(settings: Settings, gateway: TestClient, get: Callable[[str], Any]) -> None:
    """Each host whose workers share the data folder is listed, alive or silent by its last sign."""
    assert get("/overview")["hosts"] == []
    folder = settings.data_dir / "workers"
    folder.mkdir(exist_ok=True)
    for name, seconds_ago in (("blue", 2.0), ("green", 300.0)):
        (folder / name).touch()
        moment = time.time() - seconds_ago
        os.utime(folder / name, (moment, moment))
    hosts = get("/overview")["hosts"]
    assert [(host["name"], host["workers"]) for host in hosts] == [("blue", "alive"), ("green", "silent")]
