"""`/overview`: the numbers of one tenant."""

import datetime
import os
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.config import Settings
from app.db import Actor, now
from app.db.tables import Dataset, Model
from app.installations import Installation
from app.unlearning import queue, service as unlearning
from lethe.contract.sets import Scope

Forget = Callable[..., dict[str, Any]]


def test_the_overview_counts_requests_by_status(
    gateway: TestClient, live: dict[str, Any], forget: Forget, get: Callable[[str], Any], work: Callable[[], int]
) -> None:
    """The overview counts open and closed requests by status, and counts requests that are past their deadline as
    overdue."""
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


def test_a_request_waiting_for_a_batch_does_not_age_the_queue(
    gateway: TestClient,
    new_dataset: Forget,
    new_model: Forget,
    forget: Forget,
    work: Callable[[], int],
    get: Callable[[str], Any],
) -> None:
    """A request that is waiting for a batch does not count towards the age of the queue, unless the person also has
    rows in another dataset that is ready to be processed."""
    collecting, _ = new_dataset()["id"], new_dataset()
    new_model(collecting, batching={"max_wait_seconds": 3600})
    work()
    forget("p0", dataset_ids=[collecting])
    assert (get("/overview")["open"]["accepted"], get("/overview")["queue_age_seconds"]) == (1, 0)
    forget("p1")
    assert get("/overview")["queue_age_seconds"] > 0


def test_the_overview_is_per_tenant(gateway: TestClient, forget: Forget) -> None:
    """A tenant's overview does not count other tenants' requests."""
    forget("p0", identity_verified=False)
    made = gateway.post("/v1/tenants", json={"name": "other"}).json()
    answer = gateway.get("/v1/overview", headers={"Authorization": f"Bearer {made['admin_key']}"})
    assert set(answer.json()["open"].values()) == {0}


def test_requests_are_sorted_in_either_direction(
    gateway: TestClient, forget: Forget, get: Callable[[str], Any], key_with: Callable[..., dict[str, str]]
) -> None:
    """Requests are listed page by page in order of receipt, deadline or completion, in either direction. Ordering by
    completion excludes open and rejected requests. An application's list is ordered by the states that the application
    is shown."""
    dates = ["2026-11-20", "2026-11-02", "2026-11-11"]
    waiting = [forget(f"q{one}", identity_verified=False, submitted_at=f"{one}T00:00:00Z")["id"] for one in dates]
    done = [forget(name)["id"] for name in ("stranger", "somebody", "nobody")]

    def listed(order: str, headers: dict[str, str] | None = None) -> list[str]:
        found: list[str] = []
        cursor = ""
        while cursor is not None:
            page = gateway.get(f"/v1/deletion-requests?order={order}&limit=2{cursor}", headers=headers).json()
            found += [one["id"] for one in page["items"]]
            cursor = page["next_cursor"] and f"&cursor={page['next_cursor']}"
        return found

    by_deadline = [waiting[1], waiting[2], waiting[0]]
    for first, last, expected in (
        ("oldest", "newest", waiting + done),
        ("deadline", "latest_deadline", by_deadline),
        ("first_completed", "last_completed", done),
    ):
        assert listed(first) == expected
        assert listed(last) == expected[::-1]
    app = key_with(Scope.REQUESTS_READ)
    assert listed("first_completed", app) == []
    assert listed("latest_deadline", app)[-3:] == by_deadline[::-1]
    assert get("/deletion-requests?order=last_completed&status=in_review")["items"] == []
    assert get("/deletion-requests?order=last_completed&clock=overdue")["items"] == []


def test_models_and_runs_are_sorted_in_either_direction(
    live: dict[str, Any], new_model: Forget, work: Callable[[], int], get: Callable[[str], Any]
) -> None:
    """The lists of models, of models at risk and of runs are sorted newest or oldest first."""
    new_model(live["dataset_id"])
    work()
    for path in ("/models?", "/runs?", "/models?danger=waiting&"):
        newest = get(f"{path}order=newest")["items"]
        assert get(f"{path}order=oldest")["items"] == newest[::-1], path
    assert len(get("/models?order=oldest")["items"]) == len(get("/runs?order=oldest")["items"]) == 2


def test_runs_are_filtered_by_status(live: dict[str, Any], get: Callable[[str], Any]) -> None:
    """The list of runs can be filtered by status."""
    assert [run["status"] for run in get("/runs?status=published")["items"]] == ["published"]
    assert get("/runs?status=running")["items"] == []


def test_hosts_are_listed_as_alive_or_silent(
    settings: Settings, gateway: TestClient, get: Callable[[str], Any]
) -> None:
    """Each host whose workers share the data folder is listed as alive or silent according to its last heartbeat."""
    assert get("/overview")["hosts"] == []
    folder = settings.data_dir / "workers"
    folder.mkdir(exist_ok=True)
    for name, seconds_ago in (("blue", 2.0), ("green", 300.0)):
        (folder / name).touch()
        moment = time.time() - seconds_ago
        os.utime(folder / name, (moment, moment))
    hosts = get("/overview")["hosts"]
    assert [(host["name"], host["workers"]) for host in hosts] == [("blue", "alive"), ("green", "silent")]


def test_filters_match_the_counts_of_the_overview(forget: Forget, get: Callable[[str], Any]) -> None:
    """The filters for overdue, at-risk and paused requests list as many requests as the overview counts."""
    forget("p1", identity_verified=False)
    forget("p2", identity_verified=False, regulation="ccpa", submitted_at="2026-01-01T00:00:00Z")
    soon = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=42)
    forget("p3", identity_verified=False, regulation="ccpa", submitted_at=soon.isoformat())
    found = get("/overview")
    listed = {clock: get(f"/deletion-requests?clock={clock}")["items"] for clock in ("overdue", "at_risk", "paused")}
    assert (found["overdue"], found["at_risk"]) == (1, 1)
    assert {clock: len(items) for clock, items in listed.items()} == {"overdue": 1, "at_risk": 1, "paused": 1}
    assert {item["clock"]["state"] for items in listed.values() for item in items} == set(listed)


def test_models_are_ranked_by_danger(
    installation: Installation,
    by: Actor,
    new_dataset: Callable[..., dict[str, Any]],
    new_model: Callable[..., dict[str, Any]],
    forget: Forget,
    get: Callable[[str], Any],
    work: Callable[[], int],
) -> None:
    """Models are ranked by the deadline of their waiting requests and then by epsilon relative to the target. All
    models that are not retired are counted, and each count agrees with the filtered list."""
    calm, loaded, retired = (new_model(new_dataset(rows=rows)["id"], audit={"lanes": 0}) for rows in (7, 8, 9))
    late = new_model(new_dataset(rows=60)["id"])
    work()
    forget("p5", regulation="ccpa")
    work()
    forget("p30", identity_verified=False)
    with installation.database.writing(by=by) as session:
        session.execute(sa.update(Model).where(Model.id == calm["id"]).values(epsilon=1e6, status="failed"))
        session.execute(sa.update(Model).where(Model.id == retired["id"]).values(retired_at=now(session)))
    ranked = [late["id"], loaded["id"], calm["id"]]
    first = get("/models?order=risk&limit=2")
    rest = get(f"/models?order=risk&limit=2&cursor={first['next_cursor']}")
    assert [one["id"] for one in first["items"] + rest["items"]] == ranked
    assert rest["next_cursor"] is None
    assert get("/overview")["models"] == {
        "total": 3,
        "waiting": 1,
        "failed": 1,
        "audits_passed": 1,
        "audits_refused": 0,
        "degraded": 0,
        "held": 0,
        "first_due_at": first["items"][0]["waiting"]["first_due_at"],
    }
    for danger, found in (("waiting", [late]), ("failed", [calm]), ("audit_refused", [])):
        assert [one["id"] for one in get(f"/models?danger={danger}")["items"]] == [one["id"] for one in found]


def test_ranking_by_danger_needs_the_scope(
    gateway: TestClient, key_with: Callable[..., dict[str, str]], refused: Callable[..., dict[str, Any]]
) -> None:
    """A key that must not learn whether data is held cannot rank or filter models by danger. An unknown cursor is
    refused."""
    for query in ("order=risk", "danger=waiting"):
        answer = gateway.get(f"/v1/models?{query}", headers=key_with(Scope.MODELS_READ))
        refused(answer, 403, "scope_missing")
    problem = refused(gateway.get("/v1/models?order=risk&cursor=mdl_none"), 422, "input_invalid")
    assert [fault["path"] for fault in problem["errors"]] == ["cursor"]


def test_unresolved_failures_are_counted_by_reason(
    installation: Installation, live: dict[str, Any], forget: Forget, get: Callable[[str], Any], work: Callable[[], int]
) -> None:
    """A failed run is counted under its reason until a later run of the same model succeeds or the model is retired."""
    assert get("/overview")["failed_runs"] == {}
    forget("p1")
    with installation.database.writing() as session:
        claimed = queue.claim(session, worker="test", lease_seconds=60, max_requests=1)
        assert claimed is not None
        unlearning.fail(session, run_id=claimed.run_id, error_code="run_process_died")
    assert get("/overview")["failed_runs"] == {"run_process_died": 1}
    assert [run["id"] for run in get("/runs?unresolved=true")["items"]] == [claimed.run_id]
    with installation.database.writing() as session:
        session.execute(sa.update(Model).values(not_before=None))
        session.execute(sa.update(Dataset).values(not_before=None))
    work()
    assert get("/overview")["failed_runs"] == {}
    assert get("/runs?unresolved=true")["items"] == []
    assert {run["status"] for run in get("/runs")["items"]} == {"published", "failed"}
