"""Assignment of requests to people who decide, who alone see and filter by it."""

import csv
import io
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from lethe.contract.sets import Scope

PLACE = "/v1/deletion-requests"
Get = Callable[[str], Any]
Make = Callable[..., dict[str, Any]]
Refused = Callable[..., dict[str, Any]]


@pytest.fixture
def person(gateway: TestClient) -> Callable[..., str]:
    """Return a function that invites a user and returns their id."""

    def invite(name: str, role: str = "officer", **headers: str) -> str:
        body = {"name": name, "email": f"{name.lower()}@example.com", "role": role}
        answer = gateway.post("/v1/users", json=body, headers=headers)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    return invite


def test_a_request_can_be_reassigned(gateway: TestClient, forget: Make, get: Get, person: Callable[..., str]) -> None:
    """A request can be assigned, reassigned and unassigned, and responses contain the assignee's id and name. The audit
    log records each change once. Events, which applications can read, contain no name."""
    request = forget("p1")
    maria, ann = person("Maria"), person("Ann", "administrator")
    place = f"{PLACE}/{request['id']}/assign"
    assert (request["assignee"], request["assignee_name"]) == (None, None)
    before = get(f"/deletion-requests/{request['id']}/events")
    for wanted, shown in ((maria, (maria, "Maria")), (maria, (maria, "Maria")), (ann, (ann, "Ann"))):
        answer = gateway.post(place, json={"assignee": wanted}).json()
        assert (answer["assignee"], answer["assignee_name"]) == shown
    [listed] = get("/deletion-requests")["items"]
    assert (listed["assignee"], listed["assignee_name"]) == (ann, "Ann")
    assert gateway.post(place, json={"assignee": "nobody"}).json()["assignee"] is None
    assert get(f"/deletion-requests/{request['id']}/events") == before
    entries = get(f"/audit-log?object_id={request['id']}&action=deletion_request.assigned")["items"]
    assert [entry["detail"] for entry in entries] == [{"assignee": None}, {"assignee": ann}, {"assignee": maria}]


def test_only_users_who_may_decide_can_be_assigned(
    gateway: TestClient, forget: Make, get: Get, refused: Refused, person: Callable[..., str]
) -> None:
    """A case cannot be assigned to a user who is unknown, may not decide, is disabled or belongs to another tenant. A
    user who is disabled later keeps the existing cases and is marked as disabled."""
    shop = gateway.post("/v1/tenants", json={"name": "shop"}).json()["admin_key"]
    maria, viewer = person("Maria"), person("Victor", "viewer")
    engineer, operator = person("Eve", "engineer"), person("Olga", "operator")
    other = person("Otto", Authorization=f"Bearer {shop}")
    assert get("/deletion-requests:assignees")["items"] == [{"id": maria, "name": "Maria"}]
    place = f"{PLACE}/{forget('p1')['id']}/assign"
    for wanted in ("usr_0", viewer, engineer, operator, other):
        refused(gateway.post(place, json={"assignee": wanted}), 409, "not_assignable")
    refused(gateway.post(place, json={}), 422, "input_invalid")
    assert gateway.post(place, json={"assignee": maria}).is_success
    assert gateway.delete(f"/v1/users/{maria}").status_code == 204
    assert get("/deletion-requests:assignees")["items"] == []
    assert get("/deletion-requests")["items"][0]["assignee_name"] == "Maria"
    ann = f"{PLACE}/{forget('p2')['id']}/assign"
    refused(gateway.post(ann, json={"assignee": maria}), 409, "not_assignable")


def test_requests_are_filtered_by_assignee(
    gateway: TestClient, forget: Make, get: Get, person: Callable[..., str]
) -> None:
    """Lists, counts, exports and decisions can be filtered by assignee or restricted to unassigned requests."""
    ids = [forget(f"p{number}", identity_verified=False)["id"] for number in range(3)]
    maria = person("Maria")
    assert gateway.post(f"{PLACE}/{ids[1]}/assign", json={"assignee": maria}).is_success
    for wanted, found in ((maria, [ids[1]]), ("nobody", [ids[2], ids[0]]), ("usr_0", [])):
        assert [one["id"] for one in get(f"/deletion-requests?assignee={wanted}")["items"]] == found
        assert get(f"/deletion-requests:count?assignee={wanted}") == {"count": len(found)}
        assert len(gateway.get(f"{PLACE}.csv?assignee={wanted}").text.splitlines()) == 1 + len(found)
    decision = {"decision": "approve", "status": "in_review", "made_before": "2100-01-01T00:00:00Z", "assignee": maria}
    assert gateway.post(f"{PLACE}:decide", json=decision).json()["decided"] == 1
    assert {one["id"] for one in get("/deletion-requests?status=in_review")["items"]} == {ids[0], ids[2]}


def test_the_export_names_the_assignee(
    gateway: TestClient, forget: Make, key_with: Callable[..., dict[str, str]], person: Callable[..., str]
) -> None:
    """The CSV export has columns for the assignee's id and name, which are empty for unassigned requests. Callers who
    may not see assignees get neither column."""
    ids = [forget(f"p{number}")["id"] for number in range(2)]
    maria = person("Maria")
    assert gateway.post(f"{PLACE}/{ids[0]}/assign", json={"assignee": maria}).is_success
    rows = list(csv.DictReader(io.StringIO(gateway.get(f"{PLACE}.csv").text)))
    found = {row["id"]: (row["assignee"], row["assignee_name"]) for row in rows}
    assert found == {ids[0]: (maria, "Maria"), ids[1]: ("", "")}
    for scopes in ([Scope.REQUESTS_READ], [Scope.REQUESTS_READ, Scope.ACCOUNTING_READ]):
        text = gateway.get(f"{PLACE}.csv", headers=key_with(*scopes)).text
        assert {row["id"] for row in csv.DictReader(io.StringIO(text))} == set(ids)
        assert not any(word in text for word in ("assignee", maria, "Maria"))


def test_assignees_are_hidden_without_the_scope(
    gateway: TestClient,
    forget: Make,
    refused: Refused,
    key_with: Callable[..., dict[str, str]],
    person: Callable[..., str],
) -> None:
    """A caller without requests:review neither sees nor filters by the assignee of a request."""
    request_id = forget("p1")["id"]
    maria = person("Maria")
    assert gateway.post(f"{PLACE}/{request_id}/assign", json={"assignee": maria}).is_success
    for scopes in ([Scope.REQUESTS_READ], [Scope.REQUESTS_READ, Scope.ACCOUNTING_READ]):
        app = key_with(*scopes)
        for path in (f"{PLACE}/{request_id}", PLACE):
            assert "Maria" not in (text := gateway.get(path, headers=app).text)
            assert maria not in text
        for path in (f"{PLACE}?assignee={maria}", f"{PLACE}:count?assignee=nobody", f"{PLACE}.csv?assignee=nobody"):
            refused(gateway.get(path, headers=app), 403, "scope_missing")
        refused(gateway.get(f"{PLACE}:assignees", headers=app), 403, "scope_missing")
    seer = key_with(Scope.REQUESTS_READ, Scope.REQUESTS_REVIEW, Scope.ACCOUNTING_READ)
    assert gateway.get(f"{PLACE}/{request_id}", headers=seer).json()["assignee_name"] == "Maria"
