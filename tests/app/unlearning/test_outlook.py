"""The outlook of a request: what it erases, at what cost, and what it waits for, before anybody decides."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


def test_what_a_request_in_review_would_erase(
    gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """Rows, the version that goes out, steps as the planner has them, passes, measured seconds, and that it waits for a
    decision; a request of somebody unknown erases nothing."""
    dataset = new_dataset()["id"]
    model = new_model(dataset)
    work()
    made = forget("p1", identity_verified=False)
    found = get(f"/deletion-requests/{made['id']}/preview")
    held = get(f"/datasets/{dataset}/subjects/p1")["num_records"]
    assert found["is_open"]
    assert found["datasets"] == [{"dataset_id": dataset, "rows": held}]
    [one] = found["models"]
    told = gateway.post("/v1/accounting/preview", json={"model_id": model["id"], "num_records": held}).json()
    assert (one["version"], one["rows"], one["kind"], one["steps"]) == (1, held, told["kind"], told["steps"])
    mechanism = get(f"/models/{model['id']}")["mechanism"]
    assert one["passes"] == pytest.approx(one["steps"] / mechanism["num_batches"])
    assert one["seconds"] > 0
    assert (one["reason"], one["waiting"]) == ("in_review", 1)
    stranger = forget("stranger", identity_verified=False)
    assert get(f"/deletion-requests/{stranger['id']}/preview") == {
        "request_id": stranger["id"],
        "is_open": True,
        "datasets": [],
        "models": [],
    }


def test_why_an_accepted_request_waits(
    new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """One that waits for a batch says how many wait, for how many, and until when; once a run took it, the preview is
    over."""
    new_model(new_dataset()["id"], batching={"max_requests": 2, "max_wait_seconds": 3600})
    work()
    first = forget("p1")
    [one] = get(f"/deletion-requests/{first['id']}/preview")["models"]
    assert (one["reason"], one["waiting"], one["batch"]) == ("batch", 1, 2)
    assert one["until"] > first["created_at"]
    forget("p2")
    [one] = get(f"/deletion-requests/{first['id']}/preview")["models"]
    assert (one["reason"], one["waiting"]) == ("queued", 2)
    work()
    assert get(f"/deletion-requests/{first['id']}/preview") == {
        "request_id": first["id"],
        "is_open": False,
        "datasets": [],
        "models": [],
    }
