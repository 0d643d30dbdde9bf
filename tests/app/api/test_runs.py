"""The endpoints below `/v1/runs`, and runs that must not be published."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.db.tables import Certificate, LedgerEntry, Run, Version
from app.errors import RunDiffersFromPlan
from app.installations import Installation
from app.unlearning import queue, service as unlearning
from app.unlearning.queue import ClaimedRun
from lethe.contract.problems import Problem
from tests.lethe.proof import lanes
from tests.tables import each
from worker import edits

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]


def test_runs_show_kind_steps_worker_and_times(
    gateway: TestClient, live: dict[str, Any], forget: Make, get: Get, work: Work, refused: Callable[..., Any]
) -> None:
    """A run shows its kind, steps, worker and times. The runs of all models or of one model are listed newest first."""
    forget("p1")
    work()
    unlearned, learned = get("/runs")["items"]
    assert [(run["kind"], run["status"], run["records"]) for run in (learned, unlearned)] == [
        ("learn", "published", 0),
        ("unlearn", "published", 1),
    ]
    assert learned["steps_done"] == learned["steps_total"] == live["mechanism"]["learn_steps"]
    assert (unlearned["model_id"], unlearned["worker"], unlearned["error_code"]) == (live["id"], "test", None)
    assert learned["started_at"] <= learned["finished_at"] <= unlearned["started_at"]
    assert get(f"/runs/{learned['id']}") == learned
    assert get(f"/runs?model_id={live['id']}")["items"] == [unlearned, learned]
    assert get("/runs?model_id=mdl_0")["items"] == []
    refused(gateway.get("/v1/runs/run_0"), 404, "run_unknown")


@pytest.fixture
def claimed(installation: Installation, live: dict[str, Any], forget: Make) -> ClaimedRun:
    """Return a run that makes a live model forget a person. A worker has claimed the run and the rows have been
    erased."""
    forget("p1")
    with installation.database.writing() as session:
        run = queue.claim(session, worker="test", lease_seconds=60, max_requests=10)
    assert run
    edits.edited(installation, run)
    return run


@pytest.fixture
def publish(installation: Installation, claimed: ClaimedRun) -> Callable[..., None]:
    """Publish the claimed run as if it had been executed as planned, except for the given changes."""

    def call(**changed: Any) -> None:
        ran = {
            "first_step_ran": claimed.first_step,
            "steps_ran": claimed.steps,
            "mechanism_ran": claimed.mechanism,
            "weights_sha256": "0" * 64,
            "metrics": {},
            "observed": claimed.audit and lanes.observed(claimed.audit, claimed.mechanism),
        }
        with installation.database.writing() as session:
            unlearning.publish(session, installation.keys, run_id=claimed.run_id, **(ran | changed))

    return call


@pytest.fixture
def published(installation: Installation) -> Callable[[], list[int]]:
    """Count the versions, ledger entries and certificates."""

    def count() -> list[int]:
        with installation.database.reading() as session:
            tables = (Version, LedgerEntry, Certificate)
            return [session.scalar(sa.select(sa.func.count()).select_from(table)) or 0 for table in tables]

    return count


def test_a_run_as_planned_is_published(publish: Callable[..., None], published: Callable[[], list[int]]) -> None:
    """A run whose steps and mechanism match the plan publishes a version, a ledger entry and a certificate."""
    publish()
    assert published() == [2, 2, 1]


def refuses(publish: Callable[..., None], condition: type[Problem], **changed: Any) -> None:
    with pytest.raises(condition):
        publish(**changed)


@each("difference", [-1, 1])
def test_a_run_with_unplanned_steps_is_not_published(
    publish: Callable[..., None], published: Callable[[], list[int]], claimed: ClaimedRun, get: Get, difference: int
) -> None:
    """A run that took more or fewer steps than planned is not certified, and its request stays open."""
    refuses(publish, RunDiffersFromPlan, steps_ran=claimed.steps + difference)
    assert published() == [1, 1, 0]
    assert get("/deletion-requests")["items"][0]["status"] == "running"


@each("constant", ["noise_scale", "step_size", "radius", "l2"])
def test_a_run_with_another_mechanism_is_not_published(
    publish: Callable[..., None], published: Callable[[], list[int]], claimed: ClaimedRun, constant: str
) -> None:
    """A run whose mechanism differs from the plan in any constant, even if only in the last bit, is not certified."""
    assert claimed.mechanism
    nudged = math.nextafter(getattr(claimed.mechanism, constant), math.inf)
    refuses(publish, RunDiffersFromPlan, mechanism_ran=replace(claimed.mechanism, **{constant: nudged}))
    assert published() == [1, 1, 0]


def test_a_run_whose_parent_is_not_live_is_not_published(
    installation: Installation, publish: Callable[..., None], published: Callable[[], list[int]], claimed: ClaimedRun
) -> None:
    """A run that continued a version that is no longer live is not certified."""
    with installation.database.writing() as session:
        session.get_one(Run, claimed.run_id).parent_version_id = "ver_superseded"
    refuses(publish, RunDiffersFromPlan)
    assert published() == [1, 1, 0]
