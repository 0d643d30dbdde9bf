"""`:count` and `:decide`: how many requests match, and one decision about all of them."""

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


def test_many_are_approved_batch_by_batch(gateway: TestClient, forget: Make, get: Get) -> None:
    """Each call decides as many as it may and says where to go on; what came in later, or does not match, stays; done
    again it decides nothing."""
    for n in range(5):
        forget(f"q{n}", identity_verified=False)
    other = forget("other", identity_verified=False, regulation="ccpa")["id"]
    before = now()
    later = forget("later", identity_verified=False)["id"]
    asked = {"decision": "approve", "status": "in_review", "regulation": "gdpr", "made_before": before, "limit": 2}
    assert get("/deletion-requests:count?status=in_review")["count"] == 7
    assert get("/deletion-requests:count?regulation=ccpa")["count"] == 1
    long_ago = asked | {"received_before": "2020-01-01T00:00:00Z"}
    assert gateway.post("/v1/deletion-requests:decide", json=long_ago).json()["decided"] == 0
    decided, cursor = [], None
    while not decided or cursor:
        found = gateway.post("/v1/deletion-requests:decide", json=asked | {"cursor": cursor}).json()
        decided.append(found["decided"])
        cursor = found["next_cursor"]
    assert decided == [2, 2, 1]
    assert {one["id"] for one in get("/deletion-requests?status=in_review")["items"]} == {other, later}
    again = gateway.post("/v1/deletion-requests:decide", json=asked).json()
    assert again == {"decided": 0, "refused": 0, "next_cursor": None}


def test_one_that_cannot_be_rejected_holds_up_no_other(
    gateway: TestClient, live: dict[str, Any], forget: Make, get: Get, key_with: Callable[..., dict[str, str]]
) -> None:
    """A request that the rules keep from being rejected stays as it is, and is counted; the others are."""
    app = key_with(Scope.REQUESTS_WRITE)  # may not learn what is held: without a grace time nothing is taken back
    kept = gateway.post("/v1/deletion-requests", json={"subject_id": "p1"}, headers=app).json()["id"]
    rejected = forget("p2")["id"]
    said = {"ground": "legal_claims", "explanation": "A case is before court."}
    asked = {"decision": "reject", "status": "accepted", "made_before": now(), "rejection": said}
    answer = gateway.post("/v1/deletion-requests:decide", json=asked)
    assert answer.json() == {"decided": 1, "refused": 1, "next_cursor": None}
    assert get(f"/deletion-requests/{rejected}")["rejection"] == said
    assert get(f"/deletion-requests/{kept}")["status"] == "accepted"
    assert get(f"/deletion-requests/{kept}")["rejection"] is None


def test_malformed_decisions_are_refused(gateway: TestClient, refused: Callable[..., dict[str, Any]]) -> None:
    """A rejection without a ground, a ground without a rejection, and the approval of an accepted request are
    refused."""
    said = {"ground": "legal_claims", "explanation": "A case is before court."}
    for asked, path in (
        ({"decision": "reject", "status": "accepted"}, "rejection"),
        ({"decision": "approve", "status": "in_review", "rejection": said}, "rejection"),
        ({"decision": "approve", "status": "accepted"}, "status"),
    ):
        answer = gateway.post("/v1/deletion-requests:decide", json=asked | {"made_before": now()})
        problem = refused(answer, 422, "input_invalid")
        assert [fault["path"] for fault in problem["errors"]] == [path]


def test_a_summary_counts_requests_by_deadline(gateway: TestClient, forget: Make, get: Get) -> None:
    """Each open request counts on the day of its deadline in the policy's time zone, and each received one in its week;
    lists accept the bounds of a week."""
    gateway.patch("/v1/tenant", json={"policy": {"time_zone": "Pacific/Auckland"}}).raise_for_status()
    done = forget("stranger")["id"]
    waits = forget("q1", identity_verified=False, submitted_at=now())
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
    due = datetime.datetime.fromisoformat(waits["due_at"]).astimezone(zone).date()  # a month later: 28 to 31 days
    shown = [one["day"] for one in found["due"] if one["requests"]]
    assert (shown, found["later"]) == (([f"{due}"], 0) if due <= today + datetime.timedelta(days=29) else ([], 1))
    assert [one["received"] for one in found["weeks"]] == [0] * 11 + [2]
    assert [one["completed"] for one in found["weeks"]] == [0] * 11 + [1]
    assert found["completion"] == {"requests": 1, "median_days": 0, "p90_days": 0, "share_in_time": 1.0}
    monday = datetime.datetime.combine(datetime.date.fromisoformat(found["weeks"][-1]["starts"]), datetime.time(), zone)
    since = monday.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")
    assert [one["id"] for one in get(f"/deletion-requests?completed_from={since}")["items"]] == [done]
    assert get(f"/deletion-requests:count?completed_before={since}")["count"] == 0


def test_a_summary_is_discreet(
    gateway: TestClient, live: dict[str, Any], forget: Make, key_with: Callable[..., dict[str, str]]
) -> None:
    """Who may not learn whether anything is held is told of no completion before its report."""
    app = key_with(Scope.REQUESTS_READ, Scope.REQUESTS_WRITE)
    for person in ("p1", "stranger"):
        gateway.post("/v1/deletion-requests", json={"subject_id": person}, headers=app).raise_for_status()
    officer = gateway.get("/v1/deletion-requests:summary").json()
    seen = gateway.get("/v1/deletion-requests:summary", headers=app).json()
    assert (officer["completion"]["requests"], seen["completion"]["requests"]) == (1, 0)
    assert sum(one["requests"] for one in seen["due"]) + seen["later"] == 2
    assert seen["completion"] == {"requests": 0, "median_days": None, "p90_days": None, "share_in_time": None}
