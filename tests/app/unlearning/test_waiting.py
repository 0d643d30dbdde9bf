"""People with waiting requests are not covered by any guarantee, and every reader of the model is shown their
number."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from app.db import now
from app.db.tables import Dataset, Model, Run, new_id
from app.installations import Installation
from lethe.contract.problems import AdaptiveBudgetSpent
from lethe.contract.sets import RunKind, RunStatus

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
DAY = 86_400


@pytest.fixture
def patient(new_dataset: Make, new_model: Make, work: Callable[[], int]) -> dict[str, Any]:
    """Return a live model that waits for two hundred requests or one day."""
    model = new_model(new_dataset(rows=60, rows_each=2)["id"], batching={"max_requests": 200, "max_wait_seconds": DAY})
    assert work() == 1
    return model


def reasons(waiting: dict[str, Any]) -> dict[str, int]:
    return {one["reason"]: one["requests"] for one in waiting["reasons"]}


def test_waiting_people_are_reported_beside_an_epsilon_of_zero(
    patient: dict[str, Any], forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """If people's accepted requests are waiting for a batch, their number is reported next to the epsilon of 0, along
    with the first deadline and the latest time at which the requests will be served. Before these requests are made,
    all counts are zero."""
    nobody = {"people": 0, "requests": 0, "first_due_at": None, "reasons": []}
    assert get(f"/models/{patient['id']}")["waiting"] == nobody
    made = [forget("p1"), forget("p2"), forget("p3", regulation="ccpa"), forget("p1")]
    assert work() == 0
    shown = get(f"/models/{patient['id']}")
    assert [one["epsilon"] for one in shown["guarantee"] if one["notion"] == "unlearning"] == [0.0]
    waiting = shown["waiting"]
    assert (waiting["people"], waiting["requests"]) == (3, 4)
    assert waiting["first_due_at"] == min(one["due_at"] for one in made)
    [batch] = waiting["reasons"]
    assert (batch["reason"], batch["requests"]) == ("batch", 4)
    first = datetime.datetime.fromisoformat(made[0]["submitted_at"])
    assert datetime.datetime.fromisoformat(batch["until"]) == first + datetime.timedelta(seconds=DAY)
    [listed] = get("/models")["items"]
    assert listed["waiting"] == waiting


def test_a_queued_request_no_longer_waits_after_its_run(
    new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """A request is queued until a worker takes it; after the run, the reported epsilon covers its person."""
    model = new_model(new_dataset()["id"])
    assert get(f"/models/{model['id']}")["waiting"] is None  # no model carries any person
    work()
    forget("p1")
    assert reasons(get(f"/models/{model['id']}")["waiting"]) == {"queued": 1}
    assert work() == 1
    shown = get(f"/models/{model['id']}")
    assert shown["waiting"]["people"] == 0
    assert next(one["epsilon"] for one in shown["guarantee"] if one["notion"] == "unlearning") > 0


def test_requests_in_review_and_in_the_grace_period_count(
    patient: dict[str, Any], new_dataset: Make, forget: Make, get: Get, gateway: TestClient
) -> None:
    """A request in review is counted if any of its ids belongs to a person in the model's dataset, unless the request
    covers only other datasets. A request in its grace period is counted in the same way, and the end of the grace
    period is reported."""
    elsewhere = new_dataset(name="elsewhere")["id"]
    forget("p1", identity_verified=False)
    forget("stranger", aliases=["p2"], identity_verified=False)
    forget("p3", dataset_ids=[elsewhere], identity_verified=False)
    forget("p5", dataset_ids=[elsewhere, patient["dataset_id"]], identity_verified=False)
    forget("nobody", identity_verified=False)
    assert gateway.patch("/v1/tenant", json={"policy": {"grace_seconds": 3600}}).status_code == 200
    held_until = get(f"/deletion-requests/{forget('p4')['id']}")["held_until"]
    waiting = get(f"/models/{patient['id']}")["waiting"]
    assert waiting["people"] == 4
    assert waiting["reasons"] == [
        {"reason": "in_review", "requests": 3, "until": None},
        {"reason": "grace", "requests": 1, "until": held_until},
    ]


SOON = datetime.timedelta(minutes=5)
Change = Callable[[Session, Dataset, Model], None]
CHANGES: list[tuple[Change, str, bool]] = [
    (lambda session, dataset, model: setattr(dataset, "damaged_at", now(session)), "damaged", False),
    (lambda session, dataset, model: setattr(model, "error_code", AdaptiveBudgetSpent.code), "budget_spent", False),
    (lambda session, dataset, model: setattr(dataset, "not_before", now(session) + SOON), "delayed", True),
    (lambda session, dataset, model: setattr(model, "not_before", now(session) + SOON), "delayed", True),
    (lambda session, dataset, model: setattr(model, "not_before", now(session) - SOON), "queued", False),
    (lambda session, dataset, model: session.add(run_on(dataset, now(session))), "run_under_way", False),
]


def run_on(dataset: Dataset, at: datetime.datetime) -> Run:
    return Run(
        id=new_id("run"),
        tenant_id=dataset.tenant_id,
        kind=RunKind.ADD,
        status=RunStatus.RUNNING,
        dataset_id=dataset.id,
        revision=dataset.revision,
        version_id=new_id("ver"),
        first_step=0,
        steps_total=0,
        steps_done=0,
        records=0,
        reason="requested",
        worker="test",
        lease_expires_at=at + SOON,
        started_at=at,
    )


def test_reasons_for_waiting_are_reported(
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """Damage, a spent budget, a failed run that will be retried and another run in progress are each reported as the
    reason why no worker takes a request."""
    live = new_model(new_dataset()["id"])
    assert work() == 1
    forget("p1")
    for change, reason, is_until_known in CHANGES:
        with installation.database.writing() as session:
            dataset, model = session.get_one(Dataset, live["dataset_id"]), session.get_one(Model, live["id"])
            dataset.damaged_at = dataset.not_before = model.not_before = model.error_code = None
            change(session, dataset, model)
        [one] = get(f"/models/{live['id']}")["waiting"]["reasons"]
        assert (one["reason"], one["requests"], one["until"] is not None) == (reason, 1, is_until_known)
