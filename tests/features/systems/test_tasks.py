"""Tasks of systems in the life of a request."""

import datetime
import json
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from hypothesis import strategies as st
from joserfc.jwk import OKPKey

from app.db import Actor, now
from app.db.tables import DeletionRequest
from app.features.systems import jobs
from app.features.webhooks.tables import WebhookDelivery
from app.installations import Installation
from app.operations import periodic_jobs
from lethe.contract.sets import Scope
from lethe.features.systems import acknowledgements

New = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
DAY = datetime.timedelta(days=1)


def told(deliveries: Callable[[], list[WebhookDelivery]]) -> list[tuple[str, str]]:
    """Return the event and task id of each webhook that has been sent or planned."""
    rows = [row for row in deliveries() if row.event.startswith("system_task.")]
    return [(row.event.removeprefix("system_task."), json.loads(row.letter.body)["data"]["id"]) for row in rows]


def shift(installation: Installation, request_id: str, **times: datetime.timedelta) -> None:
    """Set the given times of a request, each relative to now."""
    with installation.database.writing() as session:
        request = session.get_one(DeletionRequest, request_id)
        for name, until in times.items():
            setattr(request, name, now(session) + until)


def test_every_request_waits_for_every_system(
    gateway: TestClient,
    new_system: New,
    system_key: dict[str, str],
    forget: New,
    task_of: New,
    settled: Callable[[], None],
    get: Get,
) -> None:
    """A request completes only once every system has acknowledged it, even if Lethe itself holds no data about the
    person."""
    system = new_system(public_key=system_key["x"])
    request = forget("a@example.com")
    assert request["status"] == "accepted"
    settled()
    assert get(f"/deletion-requests/{request['id']}")["status"] == "accepted"
    lines = get(f"/deletion-requests/{request['id']}/systems")
    assert (lines["waits_for"], lines["grade"]) == (["Recommender"], "not_reached")
    task = task_of(request["id"])
    assert (task["system_id"], task["status"], task["overdue"]) == (system["id"], "open", False)
    jws = acknowledgements.sign(system_key, task=task, by="on-call engineer")
    path = f"/v1/system-tasks/{task['id']}/acknowledge"
    for _ in range(2):
        answer = gateway.post(path, json={"jws": jws})
        assert (answer.status_code, answer.json()["status"]) == (200, "acknowledged"), answer.text
    again = gateway.post(path, json={"jws": acknowledgements.sign(system_key, task=task, by="somebody else")})
    assert (again.status_code, again.json()["code"]) == (409, "system_task_ended")
    settled()
    ended = get(f"/deletion-requests/{request['id']}")
    assert (ended["status"], ended["outcome"]) == ("completed", "nothing_held")
    assert get(f"/deletion-requests/{request['id']}/bundle")["grade"] == "acknowledged"


def test_an_acknowledgement_with_another_key_is_refused(
    gateway: TestClient, new_system: New, system_key: dict[str, str], forget: New, task_of: New, refused: Any, by: Actor
) -> None:
    """An acknowledgement signed with another key or for another task is refused, and the task stays open. A caller with
    the API key bound to the system needs no signature."""
    made = gateway.post("/v1/api-keys", json={"name": "system", "scopes": ["requests:read"]}).json()
    bound = {"Authorization": f"Bearer {made['key']}"}
    new_system(public_key=system_key["x"], api_key_id=made["id"])
    first, second = (task_of(forget(subject)["id"]) for subject in ("a", "b"))
    path = f"/v1/system-tasks/{first['id']}/acknowledge"
    with_d = OKPKey.generate_key("Ed25519").as_dict(private=True)
    forged = acknowledgements.sign(with_d, task=first, by="x")  # type: ignore[arg-type]
    refused(gateway.post(path, json={"jws": forged}), 403, "acknowledgement_refused")
    of_other = acknowledgements.sign(system_key, task=second, by="x")
    refused(gateway.post(path, json={"jws": of_other}), 403, "acknowledgement_refused")
    refused(gateway.post(path, json={"by": "x"}), 403, "acknowledgement_refused")
    refused(gateway.post(path, json={}, headers=bound), 422, "input_invalid")
    refused(gateway.post(path, json={"jws": of_other, "by": "x"}), 422, "input_invalid")
    assert task_of(first["request_id"])["status"] == "open"
    body = {"by": "on-call", "evidence_sha256": "AB" * 32, "note": "asked by a@example.com"}
    answer = gateway.post(path, json=body, headers=bound)
    assert answer.status_code == 200, answer.text
    shown = gateway.get(f"/v1/system-tasks/{first['id']}").json()
    assert (shown["by"], shown["evidence_sha256"], shown["api_key_id"]) == ("on-call", "ab" * 32, made["id"])
    assert (shown["note"], shown["jws"]) == ("asked by a@example.com", None)
    bundle = gateway.get(f"/v1/deletion-requests/{first['request_id']}/bundle").json()
    assert "a@example.com" not in json.dumps(bundle)


def test_a_task_is_sent_when_the_grace_period_has_elapsed(
    installation: Installation,
    gateway: TestClient,
    policy: Callable[..., None],
    new_system: New,
    forget: New,
    task_of: New,
    deliveries: Callable[[], list[WebhookDelivery]],
) -> None:
    """A webhook is planned for the end of the grace period. If the request is cancelled before then, nothing is sent;
    if it is cancelled later, the system is notified."""
    policy(grace_seconds=3600)
    new_system()
    request = forget("a", external_id="case 7")
    task = task_of(request["id"])
    [planned] = deliveries()
    assert planned.created_at.isoformat() == request["held_until"].replace("Z", "+00:00")
    body = json.loads(planned.letter.body)
    assert (body["type"], body["data"]["id"], body["data"]["external_id"]) == (
        "system_task.opened",
        task["id"],
        "case 7",
    )
    assert gateway.post(f"/v1/deletion-requests/{request['id']}/cancel").status_code == 200
    assert deliveries() == []
    assert task_of(request["id"])["status"] == "cancelled"

    policy(grace_seconds=0)
    late = forget("b")
    task = task_of(late["id"])
    with installation.database.writing() as session:
        session.execute(sa.update(WebhookDelivery).values(attempts=1))
    assert gateway.post(f"/v1/deletion-requests/{late['id']}/cancel").status_code == 200
    assert told(deliveries) == [("opened", task["id"]), ("cancelled", task["id"])]


def test_the_decision_about_a_request_opens_its_tasks(
    gateway: TestClient, policy: Callable[..., None], new_system: New, forget: New, get: Get
) -> None:
    """A request in review has no tasks. Approving it opens its tasks once, and rejecting it opens none. A system gets
    no tasks for requests submitted before it was registered."""
    policy(auto_accept=False)
    new_system()
    approved, rejected = forget("a"), forget("b")
    assert get("/system-tasks")["items"] == []
    for _ in range(2):
        assert gateway.post(f"/v1/deletion-requests/{approved['id']}/approve").status_code == 200
    body = {"ground": "legal_claims", "explanation": "A lawsuit."}
    assert gateway.post(f"/v1/deletion-requests/{rejected['id']}/reject", json=body).status_code == 200
    new_system("Later")
    [task] = get("/system-tasks")["items"]
    assert (task["request_id"], task["system_name"]) == (approved["id"], "Recommender")


def test_a_system_is_reminded_once_before_and_once_after_the_deadline(
    installation: Installation,
    gateway: TestClient,
    new_system: New,
    forget: New,
    task_of: New,
    deliveries: Callable[[], list[WebhookDelivery]],
    get: Get,
) -> None:
    """A system is reminded once when the deadline is near and once when it has passed, however often the periodic job
    runs. An officer can close the task; the system then counts as not reached."""
    new_system()
    request = forget("a")
    task = task_of(request["id"])
    jobs.remind_systems(installation)
    assert told(deliveries) == [("opened", task["id"])]
    for until, count in ((DAY, 1), (-DAY, 2)):
        shift(installation, request["id"], deadline=until)
        for _ in range(3):
            jobs.remind_systems(installation)
        assert told(deliveries) == [("opened", task["id"])] + count * [("reminder", task["id"])]
    assert [task["id"] for task in get("/system-tasks?overdue=true")["items"]] == [task["id"]]
    closed = gateway.post(f"/v1/system-tasks/{task['id']}/close", json={"reason": "The system is gone."})
    assert (closed.status_code, closed.json()["status"]) == (200, "closed")
    assert get("/system-tasks?overdue=true")["items"] == []
    periodic_jobs.settle(installation)
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    assert get(f"/deletion-requests/{request['id']}/bundle")["grade"] == "not_reached"
    jobs.remind_systems(installation)
    assert len(told(deliveries)) == 3


def test_a_request_reaches_dependent_systems(
    gateway: TestClient, new_dataset: New, new_model: New, new_system: New, forget: New, get: Get, refused: Any
) -> None:
    """A request restricted to a dataset opens tasks for every system that depends on the dataset or on its models,
    directly or through a parent system. A parent that would form a cycle is refused, and a retired system gets no
    tasks."""
    here, there = (new_dataset(name)["id"] for name in ("here", "there"))
    model = new_model(here)["id"]
    feeds = new_system("feeds", dataset_ids=[here])
    derived = new_system("derived", dataset_ids=[there], parents=[feeds["id"]])
    new_system("distilled", dataset_ids=[there], parents=[model])
    new_system("elsewhere", dataset_ids=[there])
    retired = new_system("retired")
    assert gateway.delete(f"/v1/systems/{retired['id']}").status_code == 204
    request = forget("a", dataset_ids=[here])
    tasks = get(f"/system-tasks?request_id={request['id']}")["items"]
    assert {task["system_name"] for task in tasks} == {"feeds", "derived", "distilled"}
    cycle = gateway.patch(f"/v1/systems/{feeds['id']}", json={"parents": [derived["id"]]})
    assert "derived from this one" in refused(cycle, 422, "input_invalid")["errors"][0]["message"]
    own = gateway.patch(f"/v1/systems/{feeds['id']}", json={"parents": [feeds["id"]]})
    refused(own, 422, "input_invalid")
    assert get(f"/systems/{feeds['id']}")["parents"] == []


def test_tasks_are_hidden_from_discreet_callers(
    gateway: TestClient, key_with: Callable[..., dict[str, str]], new_system: New, forget: New, refused: Any
) -> None:
    """A caller who must not learn whether data is held sees the same request as without systems, and cannot see its
    tasks, their webhooks or the bundle."""
    new_system()
    discreet = key_with(Scope.REQUESTS_READ, Scope.REQUESTS_WRITE)
    answer = gateway.post("/v1/deletion-requests", json={"subject_id": "a"}, headers=discreet)
    request = answer.json()["id"]
    assert answer.json()["status"] == "accepted"
    for path in ("systems", "bundle"):
        refused(gateway.get(f"/v1/deletion-requests/{request}/{path}", headers=discreet), 403, "scope_missing")
    refused(gateway.get("/v1/system-tasks", headers=discreet), 403, "scope_missing")
    assert gateway.get("/v1/webhook-deliveries", headers=discreet).json()["items"] == []
    [sent] = gateway.get("/v1/webhook-deliveries").json()["items"]
    path = f"/v1/webhook-deliveries/{sent['id']}"
    refused(gateway.get(path, headers=discreet), 404, "delivery_unknown")


def test_notes_are_erased_with_the_details_of_a_request(
    installation: Installation, gateway: TestClient, new_system: New, forget: New, task_of: New, get: Get
) -> None:
    """A task's note is deleted together with its request's details. The acknowledging key and the bundle remain."""
    new_system()
    request = forget("a")
    task = task_of(request["id"])
    gateway.post(f"/v1/system-tasks/{task['id']}/close", json={"reason": "a@example.com was not found"})
    periodic_jobs.settle(installation)
    with installation.database.writing() as session:
        session.execute(sa.update(WebhookDelivery).values(status="delivered", ended_at=now(session)))
    shift(installation, request["id"], ended_at=-400 * DAY)
    periodic_jobs.purge_requests(installation)
    assert get(f"/system-tasks/{task['id']}")["note"] is None
    assert get(f"/deletion-requests/{request['id']}/bundle")["grade"] == "not_reached"


def test_a_task_is_part_of_the_transaction_of_its_request(
    gateway: TestClient, monkeypatch: pytest.MonkeyPatch, new_system: New, forget: New, task_of: New, get: Get
) -> None:
    """A failure while tasks are being opened or ended changes nothing, and the call can be repeated."""
    new_system()

    def fail(*_arguments: Any, **_named: Any) -> None:
        raise RuntimeError

    with monkeypatch.context() as broken:
        broken.setattr("app.features.systems.service.webhooks.send_all", fail)
        assert gateway.post("/v1/deletion-requests", json={"subject_id": "a"}).status_code == 500
    assert get("/deletion-requests")["items"] == get("/system-tasks")["items"] == []
    request = forget("a")
    task = task_of(request["id"])
    with monkeypatch.context() as broken:
        broken.setattr("app.features.systems.service.audit.record", fail)
        closing = gateway.post(f"/v1/system-tasks/{task['id']}/close", json={"reason": "x"})
        assert closing.status_code == 500
    assert task_of(request["id"])["status"] == "open"
    assert get(f"/deletion-requests/{request['id']}")["status"] == "accepted"


STEPS = ("acknowledge", "close", "cancel", "settle", "remind", "later", "overdue")


@pytest.mark.soak
@hypothesis.settings(max_examples=20, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(grace=st.booleans(), steps=st.lists(st.sampled_from(STEPS), max_size=8))
def test_requests_complete_in_any_order_of_events(
    installation: Installation,
    gateway: TestClient,
    policy: Callable[..., None],
    new_system: New,
    system_key: dict[str, str],
    forget: New,
    deliveries: Callable[[], list[WebhookDelivery]],
    get: Get,
    grace: bool,
    steps: list[str],
) -> None:
    """Whatever the order of events and however often they are repeated, a request completes if and only if its grace
    period has elapsed and none of its tasks is open. Each system gets each notification at most once."""
    if not get("/systems")["items"]:
        new_system("first", public_key=system_key["x"])
        new_system("second", public_key=system_key["x"])
    policy(grace_seconds=3600 if grace else 0)
    before = len(told(deliveries))
    request = forget("a")["id"]
    for step in [*steps, "settle"]:
        tasks = get(f"/system-tasks?request_id={request}")["items"]
        match step:
            case "acknowledge":
                for task in tasks[:1]:
                    jws = acknowledgements.sign(system_key, task=task, by="x")
                    gateway.post(f"/v1/system-tasks/{task['id']}/acknowledge", json={"jws": jws})
            case "close":
                gateway.post(f"/v1/system-tasks/{tasks[1]['id']}/close", json={"reason": "x"})
            case "cancel":
                gateway.post(f"/v1/deletion-requests/{request}/cancel")
            case "settle":
                periodic_jobs.settle(installation)
            case "remind":
                jobs.remind_systems(installation)
            case "later":
                shift(installation, request, held_until=datetime.timedelta(seconds=-1))
            case "overdue":
                shift(installation, request, deadline=-DAY)
    after = get(f"/deletion-requests/{request}")
    tasks = get(f"/system-tasks?request_id={request}")["items"]
    states = {task["status"] for task in tasks}
    assert len(tasks) == 2
    is_over = not grace or "later" in steps
    if after["status"] == "cancelled":
        assert "open" not in states
    else:
        assert "cancelled" not in states
        assert (after["status"] == "completed") == ("open" not in states and is_over)
    messages = [pair for pair in told(deliveries)[before:] if pair[0] != "reminder"]
    assert len(messages) == len(set(messages))
