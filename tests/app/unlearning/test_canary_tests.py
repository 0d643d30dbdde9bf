"""Canary tests of runs: their plans, and runs that are not published because of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from app.accounting.certificates import sha256
from app.db.tables import Model, Run, Version
from app.errors import AuditFailed, RunDiffersFromPlan
from app.installations import Installation
from app.unlearning import queue, service as unlearning
from app.unlearning.queue import ClaimedRun
from lethe.proof.canary_test import CanaryPlan, Observed
from lethe.proof.errors import PreconditionError
from lethe.proof.mechanism import Mechanism
from tests.lethe.proof import lanes
from tests.tables import each

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
def live(new_dataset: Make, new_model: Make, work: Callable[[], int]) -> dict[str, Any]:
    """Return a live model of 60 people."""
    model = new_model(new_dataset()["id"])
    assert work() == 1
    return model


def publish(installation: Installation, claimed: ClaimedRun, observed: Observed | None) -> None:
    """Publish a version as a worker does after the chain has run; the rows are already erased."""
    assert claimed.mechanism
    with installation.database.writing() as session:
        unlearning.publish(
            session,
            installation.keys,
            run_id=claimed.run_id,
            first_step_ran=claimed.first_step,
            steps_ran=claimed.steps,
            mechanism_ran=claimed.mechanism,
            weights_sha256=sha256(b""),
            metrics={},
            observed=observed,
        )


def test_lanes_take_the_same_steps_as_the_chain(
    installation: Installation, gateway: Any, live: dict[str, Any], forget: Make, claim: Claim, work: Callable[[], int]
) -> None:
    """In a run that continues a chain, the plan for the canary lanes includes all the steps taken since the model last
    started from scratch. In a run from scratch, the lanes start with no previous steps."""
    learned = live["mechanism"]["learn_steps"]
    forget("p1")
    work()
    forget("p2")
    second = claim()
    with installation.database.reading() as session:
        first = session.scalars(sa.select(Run.steps_total).where(Run.kind == "unlearn")).first()
    assert first
    assert second.audit == CanaryPlan(lanes=256, steps_before=learned + first, steps=second.steps)
    with installation.database.writing() as session:
        unlearning.take_back(session, worker="w")
    gateway.post(f"/v1/models/{live['id']}/relearn")
    again = claim()
    assert (again.kind, again.audit) == ("relearn", CanaryPlan(lanes=256, steps_before=0, steps=learned))


Observe = Callable[[CanaryPlan, Mechanism | None], Observed | None]
OBSERVED: dict[str, tuple[Observe, type[Exception]]] = {
    "not audited": (lambda plan, made: None, RunDiffersFromPlan),
    "fewer lanes": (lambda plan, made: lanes.observed(replace(plan, lanes=2), made), RunDiffersFromPlan),
    "other steps": (lambda plan, made: lanes.observed(replace(plan, steps_before=0), made), RunDiffersFromPlan),
    "other canaries": (lambda plan, made: lanes.observed(plan, made, records=10**6), PreconditionError),
    "half the noise": (lambda plan, made: lanes.observed(plan, made, squares=0.5 * plan.lanes), AuditFailed),
    "nothing forgotten": (lambda plan, made: lanes.observed(plan, made, drift=7.0), AuditFailed),
}


@each(("version", "case"), list(enumerate(OBSERVED, start=1)))
def test_a_run_refuted_by_its_canary_test_is_not_published(
    installation: Installation,
    live: dict[str, Any],
    forget: Make,
    get: Get,
    claim: Claim,
    work: Callable[[], int],
    version: int,
    case: str,
) -> None:
    """A run is not published if its canary test is missing, differs from the plan or has a finding. Its request stays
    open, and the next run completes the request."""
    observe, refusal = OBSERVED[case]
    request = forget(f"p{version}")
    claimed = claim()
    assert claimed.audit
    with pytest.raises(refusal):
        publish(installation, claimed, observe(claimed.audit, claimed.mechanism))
    with installation.database.writing() as session:
        assert session.scalars(sa.select(sa.func.max(Version.number))).one() == version
        unlearning.fail(session, run_id=claimed.run_id, error_code=refusal.__name__)
        session.execute(sa.update(Model).values(not_before=None))
    failed = get(f"/runs/{claimed.run_id}")
    assert (failed["status"], failed["error_code"]) == ("failed", refusal.__name__)
    assert get(f"/deletion-requests/{request['id']}")["completed_at"] is None
    assert get(f"/models/{live['id']}")["live_version"] == version
    assert work() == 1
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"


def test_a_run_over_an_unexpected_number_of_records_is_refused(
    installation: Installation, live: dict[str, Any], forget: Make, claim: Claim
) -> None:
    """A run is refused if it read more or fewer records than are recorded, because it then does not match its plan."""
    forget("p1")
    claimed = claim()
    assert claimed.audit
    observed = lanes.observed(claimed.audit, claimed.mechanism)
    with installation.database.writing() as session:
        unlearning.confirm_edited(session, run_id=claimed.run_id)
    with installation.database.reading() as session:
        assert unlearning.examine(session, run_id=claimed.run_id, records=59, observed=observed) == ()
        for records in (58, 60):
            with pytest.raises(RunDiffersFromPlan):
                unlearning.examine(session, run_id=claimed.run_id, records=records, observed=observed)
