"""The endpoints below `/v1/suppressions`."""

from collections.abc import Callable
from typing import Any

import httpx
from fastapi.testclient import TestClient

PLACE = "/v1/suppressions"


def test_suppressions_are_listed_and_lifted(
    gateway: TestClient,
    upload: Callable[..., httpx.Response],
    forget: Callable[..., dict[str, Any]],
    get: Callable[[str], Any],
    refused: Callable[..., dict[str, Any]],
) -> None:
    """Suppressions are listed by reference only. A person's suppressions are lifted only with that person's consent."""
    requests = [forget(person) for person in ("p1", "p2", "p3")]
    page = get("/suppressions?limit=2")
    page["items"] += get(f"/suppressions?limit=2&cursor={page['next_cursor']}")["items"]
    assert [row["request_id"] for row in page["items"]] == [request["id"] for request in requests[::-1]]
    assert {row["subject_ref"] for row in page["items"]} == {request["subject_ref"] for request in requests}
    assert [row["request_id"] for row in get("/suppressions?subject_id=p2")["items"]] == [requests[1]["id"]]
    consent = {"subject_id": "p2", "reason": "consent_given"}
    refused(gateway.post(f"{PLACE}:lift", json=consent | {"reason": "convenience"}), 422, "input_invalid")
    assert [gateway.post(f"{PLACE}:lift", json=consent).json() for _ in range(2)] == [
        {"num_lifted": 1},
        {"num_lifted": 0},
    ]
    assert get("/suppressions?subject_id=p2")["items"] == []
    assert upload(suppressed="skip").json()["num_suppressed"] == 2
