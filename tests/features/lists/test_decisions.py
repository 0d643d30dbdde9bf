"""`:count` and `:decide`: the number of matching requests, and one decision about all of them."""

import datetime
from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from lethe.contract.sets import Scope

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()


def test_requests_are_approved_batch_by_batch(gateway: TestClient, forget: Make, get: Get) -> None:
    """Each call decides at most as many requests as its limit and returns a cursor for the next call. Later and
    non-matching requests stay undecided, and repeating the decision has no effect."""
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


def test_an_unrejectable_request_does_not_stop_others(
    gateway: TestClient, live: dict[str, Any], forget: Make, get: Get, key_with: Callable[..., dict[str, str]]
) -> None:
    """A request that the rules do not allow to be rejected is left unchanged and counted as refused. All other requests
    are rejected."""
    # For a key that may not learn whether data is held, no request can be withdrawn without a grace period.
    app = key_with(Scope.REQUESTS_WRITE)
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
    """A rejection without a ground, an approval with a ground, and the approval of an accepted request are refused."""
    said = {"ground": "legal_claims", "explanation": "A case is before court."}
    for asked, path in (
        ({"decision": "reject", "status": "accepted"}, "rejection"),
        ({"decision": "approve", "status": "in_review", "rejection": said}, "rejection"),
        ({"decision": "approve", "status": "accepted"}, "status"),
    ):
        answer = gateway.post("/v1/deletion-requests:decide", json=asked | {"made_before": now()})
        problem = refused(answer, 422, "input_invalid")
        assert [fault["path"] for fault in problem["errors"]] == [path]
