from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.installations import Installation
from lethe.contract.tenants import Policy
from tests.app.deletion import people

Get = Callable[[str], Any]
Make = Callable[..., dict[str, Any]]
PLACE = "/v1/deletion-requests"
Refused = Callable[..., dict[str, Any]]
Work = Callable[[], int]


REVIEWED = Policy(auto_accept=False)


@pytest.fixture
def obey(installation: Installation) -> Callable[[Policy], None]:
    """Set the tenant's policy. Call this before the first request of a test, because a key's policy is cached for a
    second."""

    def write(policy: Policy) -> None:
        with installation.database.writing() as session:
            people.obey(session, policy)

    return write


def test_a_required_review_delays_processing(
    gateway: TestClient,
    obey: Callable[[Policy], None],
    new_dataset: Make,
    forget: Make,
    shown: Make,
    get: Get,
    work: Work,
) -> None:
    """If the policy requires a review, a request waits until an officer approves it and is processed only then."""
    obey(REVIEWED)
    new_dataset()
    request = forget("p1")
    assert (request["status"], request["estimate"], request["models"]) == ("in_review", None, [])
    assert work() == 0
    approved = gateway.post(f"{PLACE}/{request['id']}/approve").json()
    assert approved == approved | {"status": "accepted", "estimate": {"steps": 0, "models": []}}
    assert work() == 1
    done = shown(request)
    assert (done["status"], done["outcome"], done["clock"]["state"]) == ("completed", "forgotten", "ended")
    assert gateway.post(f"{PLACE}/{request['id']}/approve").json() == done
    events = get(f"/deletion-requests/{request['id']}/events")["items"]
    assert [event["status"] for event in events][:3] == ["received", "in_review", "accepted"]
    assert {event["actor"] for event in events[:3]} == {get("/api-keys")["items"][0]["id"]}
    assert events[-1]["actor"] == "lethe"


def test_a_rejection_needs_a_legal_ground(
    gateway: TestClient, obey: Callable[[Policy], None], forget: Make, shown: Make, refused: Refused
) -> None:
    """An officer can reject a request only with a legal ground and an explanation."""
    obey(REVIEWED)
    place = f"{PLACE}/{forget('p1')['id']}"
    body = {"ground": "legal_claims", "explanation": "a lawsuit is pending"}
    for wrong in ({"ground": "no_time"}, {"explanation": ""}):
        refused(gateway.post(f"{place}/reject", json=body | wrong), 422, "input_invalid")
    rejected = gateway.post(f"{place}/reject", json=body).json()
    assert rejected == rejected | {"status": "rejected", "rejection": body}
    assert gateway.post(f"{place}/reject", json=body).json()["status"] == "rejected"
    refused(gateway.post(f"{place}/approve"), 409, "transition_forbidden")
    refused(gateway.post(f"{place}/cancel"), 409, "transition_forbidden")


def test_the_clock_can_be_paused_resumed_and_extended(gateway: TestClient, forget: Make, refused: Refused) -> None:
    """The clock of a request from an unverified sender can be paused and resumed, and its deadline can be extended
    once. The request shows the state of its clock."""
    request = forget("p1", identity_verified=False)
    place = f"{PLACE}/{request['id']}"
    assert (request["status"], request["clock"]["state"]) == ("in_review", "paused")
    assert request["clock"]["paused_since"] == request["created_at"]
    resumed = gateway.post(f"{place}/resume").json()
    assert (resumed["clock"]["state"], resumed["clock"]["paused_since"]) == ("on_time", None)
    assert resumed["due_at"] > request["due_at"]
    assert gateway.post(f"{place}/pause", json={"reason": "identity"}).json()["clock"]["state"] == "paused"
    refused(gateway.post(f"{place}/pause", json={"reason": "a holiday"}), 422, "input_invalid")
    approved = gateway.post(f"{place}/approve").json()
    assert approved["clock"]["state"] == "ended"  # no rows are held about the person
    refused(gateway.post(f"{place}/extend", json={"reason": "so many"}), 409, "transition_forbidden")

    other = f"{PLACE}/{forget('p2', regulation='ccpa', identity_verified=False)['id']}"
    refused(gateway.post(f"{other}/pause", json={"reason": "identity"}), 409, "clock_runs_on")
    extended = gateway.post(f"{other}/extend", json={"reason": "so many"}).json()
    assert extended["clock"]["deadline"] == extended["extended_due_at"] > extended["due_at"]
    assert (extended["extension_reason"], extended["clock"]["days_left"]) == ("so many", 89)
    refused(gateway.post(f"{other}/extend", json={"reason": "so many"}), 409, "already_extended")
