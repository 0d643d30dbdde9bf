"""Canary tests on request: their plan, their place in the queue, and their end."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from app.catalogue import service as catalogue
from app.db import Actor, now
from app.db.tables import Model
from app.errors import AuditFailed
from app.features.canary_tests import service as canary_tests
from app.installations import Installation
from app.unlearning import queue, service as unlearning
from app.unlearning.queue import ClaimedRun
from lethe.proof.canary_test import CanaryPlan
from tests.lethe.proof import lanes

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Claim = Callable[[], ClaimedRun]


@pytest.fixture
def claim(installation: Installation) -> Claim:
    """Return a function that claims the next run, which must exist."""

    def claimed() -> ClaimedRun:
        with installation.database.writing() as session:
            found = queue.claim(session, worker="w", lease_seconds=30, max_requests=100)
        assert found
        return found

    return claimed


@pytest.fixture
def ask(installation: Installation, by: Actor) -> Callable[[dict[str, Any]], None]:
    """Return a function that requests a canary test of a model."""

    def asked(model: dict[str, Any]) -> None:
        with installation.database.writing(by=by) as session:
            canary_tests.ask(session, catalogue.get_model(session, model["id"]))

    return asked


@pytest.fixture
def live(new_dataset: Make, new_model: Make, work: Callable[[], int]) -> dict[str, Any]:
    """Return a live model trained on 60 people."""
    model = new_model(new_dataset()["id"])
    assert work() == 1
    return model


def end(installation: Installation, claimed: ClaimedRun, *, error_code: str | None = None) -> None:
    """End a canary test as a worker does once the lanes have run."""
    assert claimed.audit
    with installation.database.writing() as session:
        observed = lanes.observed(claimed.audit, claimed.mechanism)
        canary_tests.end(session, run_id=claimed.run_id, observed=observed, error_code=error_code)


def test_a_canary_test_takes_the_steps_of_training_and_of_a_first_request(
    live: dict[str, Any], forget: Make, ask: Callable[..., None], claim: Claim, installation: Installation
) -> None:
    """A canary test trains for as many steps as the model did, and forgets for as many steps as the run that serves the
    model's first request."""
    learned = live["mechanism"]["learn_steps"]
    ask(live)
    audit = claim()
    end(installation, audit)
    forget("p1")
    unlearned = claim()
    assert audit.audit == CanaryPlan(lanes=16 * 256, steps_before=learned, steps=unlearned.steps)
    assert audit.steps == learned + unlearned.steps
    assert (audit.parent_version_id, audit.erases, audit.slots_to_null) == (None, False, ())


def test_a_canary_test_gives_way_to_near_deadlines(
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    ask: Callable[..., None],
    claim: Claim,
    work: Callable[[], int],
) -> None:
    """A deletion request that is due within a week runs before a canary test of another dataset's model, however long
    the test has been waiting."""
    audited = new_model(new_dataset()["id"])
    other = new_model(new_dataset(rows=20, seed=1)["id"])
    assert work() == 2
    ask(audited)
    submitted_at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=27)
    forget("p1", dataset_ids=[other["dataset_id"]], submitted_at=submitted_at.isoformat())
    with installation.database.writing() as session:
        model = session.get_one(Model, audited["id"])
        model.audit_asked_at = now(session) - datetime.timedelta(days=90)
    assert [(one.kind, one.model_id) for one in (claim(), claim())] == [
        ("unlearn", other["id"]),
        ("audit", audited["id"]),
    ]


def test_a_canary_test_does_not_block_other_datasets(
    new_dataset: Make, new_model: Make, forget: Make, ask: Callable[..., None], claim: Claim, work: Callable[[], int]
) -> None:
    """Requests about other datasets are served while one dataset's model is being tested."""
    audited = new_model(new_dataset()["id"])
    other = new_model(new_dataset(rows=20, seed=1)["id"])
    assert work() == 2
    ask(audited)
    assert claim().kind == "audit"
    forget("p1", dataset_ids=[other["dataset_id"]])
    assert claim().model_id == other["id"]


def test_canary_tests_run_in_the_order_of_requests(
    installation: Installation,
    live: dict[str, Any],
    new_model: Make,
    ask: Callable[..., None],
    claim: Claim,
    work: Callable[[], int],
) -> None:
    """Two canary tests for models of one dataset run in the order in which they were requested."""
    other = new_model(live["dataset_id"])
    work()
    for model in (other, live):
        ask(model)
    for model in (other, live):
        claimed = claim()
        assert (claimed.kind, claimed.model_id) == ("audit", model["id"])
        end(installation, claimed)
    assert work() == 0


def test_a_canary_test_that_detects_a_fault_fails(
    installation: Installation,
    live: dict[str, Any],
    forget: Make,
    get: Get,
    ask: Callable[..., None],
    claim: Claim,
    work: Any,
) -> None:
    """A canary test that detects leftover influence is marked as failed, and its run shows the measurements. The model
    stays live and continues to forget."""
    ask(live)
    claimed = claim()
    end(installation, claimed, error_code=AuditFailed.code)
    run = get(f"/runs/{claimed.run_id}")
    assert (run["status"], run["error_code"], run["audit"]["lanes"]) == ("failed", "audit_failed", 4096)
    shown = get(f"/models/{live['id']}")
    assert (shown["status"], shown["error_code"]) == ("live", None)
    assert (shown["audit"]["asked_at"], shown["audit"]["last_run_id"]) == (None, claimed.run_id)
    assert work() == 0
    request = forget("p1")
    assert work() == 1
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"


def test_an_unsuccessful_canary_test_is_repeated(
    installation: Installation, live: dict[str, Any], get: Get, ask: Callable[..., None], claim: Claim, work: Any
) -> None:
    """A canary test whose run fails is run again, and the failure does not count against the model."""
    ask(live)
    claimed = claim()
    with installation.database.writing() as session:
        unlearning.fail(session, run_id=claimed.run_id, error_code="OSError")
    waits = get(f"/models/{live['id']}")
    assert (waits["status"], waits["error_code"], waits["audit"]["asked_at"] is None) == ("live", None, False)
    assert work() == 1
    assert [run["status"] for run in get("/runs")["items"]] == ["published", "failed", "published"]
    over = get(f"/models/{live['id']}")
    assert (over["error_code"], over["audit"]["asked_at"]) == (None, None)


def test_a_canary_test_is_dropped_after_three_failures(
    installation: Installation, live: dict[str, Any], ask: Callable[..., None], claim: Claim, get: Get, forget: Make
) -> None:
    """A canary test that fails three times is dropped without delaying requests, and the model continues unchanged."""
    ask(live)
    for _ in range(3):
        claimed = claim()
        assert claimed.kind == "audit"
        with installation.database.writing() as session:
            unlearning.fail(session, run_id=claimed.run_id, error_code="MemoryError")
    over = get(f"/models/{live['id']}")
    assert (over["error_code"], over["audit"]["asked_at"]) == (None, None)
    forget("p1")
    assert claim().kind == "unlearn"


def test_a_canary_test_runs_during_backoff(
    installation: Installation, live: dict[str, Any], ask: Callable[..., None], claim: Claim, forget: Make, get: Get
) -> None:
    """A canary test can be requested and run while the model is in backoff after a failed run. The test does not change
    the backoff."""
    forget("p1")
    failed = claim()
    with installation.database.writing() as session:
        unlearning.confirm_edited(session, run_id=failed.run_id)
        unlearning.fail(session, run_id=failed.run_id, error_code="audit_failed")
        session.execute(sa.update(Model).values(not_before=now(session) + datetime.timedelta(hours=1)))
    ask(live)
    audit = claim()
    assert (audit.kind, audit.erases, audit.slots_to_null) == ("audit", False, ())
    end(installation, audit)
    model = get(f"/models/{live['id']}")
    assert (model["error_code"], model["audit"]["asked_at"]) == ("audit_failed", None)


def test_a_canary_test_does_not_take_waiting_requests(
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    ask: Callable[..., None],
    claim: Claim,
    get: Get,
    work: Callable[[], int],
) -> None:
    """During a canary test, requests waiting for a batch keep waiting and can still be cancelled."""
    model = new_model(new_dataset()["id"], batching={"max_wait_seconds": 86400})
    assert work() == 1
    request = forget("p1")
    ask(model)
    audit = claim()
    assert (audit.kind, audit.slots_to_null) == ("audit", ())
    end(installation, audit)
    assert get(f"/deletion-requests/{request['id']}")["status"] == "accepted"
