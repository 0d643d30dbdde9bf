"""Canary tests on request: a separate run trains on canaries and then forgets them, in several chains of lanes.

The run reads no rows about people and publishes no version.
"""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit import service as audit
from app.catalogue import service as catalogue
from app.db import now, tables
from app.unlearning import kinds, planner, service as unlearning
from lethe.contract import problems, sets
from lethe.proof import canary_test, methods
from lethe.proof.mechanism import Mechanism


def ask(session: Session, model: tables.Model) -> None:
    """Request a canary test of a model. The test reads no rows about people and publishes no version. Raises
    `ModelNotLive`, `ModelRetired`, and `PreconditionFailed` for a model without canaries."""
    catalogue.get_live_version(session, model)
    if not model.audit_lanes:
        raise problems.PreconditionFailed.no_canaries()
    model.audit_asked_at = model.audit_asked_at or now(session)
    audit.record(session, "model.audit_asked", model.id)


def end(session: Session, *, run_id: str, observed: canary_test.Observed | None, error_code: str | None) -> None:
    """End a requested canary test. If `error_code` is given, the test is marked as failed. Raises `LeaseLost`."""
    run = unlearning.finish(session, run_id=run_id, observed=observed, error_code=error_code)
    session.get_one(tables.Model, run.model_id).audit_asked_at = None


class CanaryTest:
    """Canary test of a model. The model's `audit_asked_at` holds the time of the request for the test."""

    kind = sets.RunKind.AUDIT
    rule = sets.QueueRule.AUDIT

    def due(self, models: sa.Select[str, str]) -> sa.Select[str, str, datetime.datetime]:
        asked_at = sa.type_coerce(tables.Model.audit_asked_at, tables.Run.started_at.type)
        return models.add_columns(asked_at).where(asked_at.is_not(None))

    def model_due(self, session: Session, *, dataset_id: str) -> tables.Model | None:
        return _model_to_test(session, dataset_id=dataset_id)

    def canaries(self, run: tables.Run, model: tables.Model) -> canary_test.CanaryPlan:
        learned = catalogue.mechanism_of(model).learn_steps
        before = learned if run.steps_total > learned else 0
        lanes = model.audit_lanes * model.audit_chains
        return canary_test.CanaryPlan(lanes=lanes, steps_before=before, steps=run.steps_total - before)

    def plan(self, session: Session, dataset: tables.Dataset) -> kinds.PlannedRun:
        model = _model_to_test(session, dataset_id=dataset.id)
        assert model is not None
        plan = _plan(catalogue.mechanism_of(model), epsilon=model.epsilon, delta=model.delta)
        return kinds.PlannedRun(model=model, plan=plan, live=None)

    def start(self, session: Session, run: tables.Run) -> None:
        """Do nothing: `audit_asked_at` stays set until the run ends."""

    def lose(self, session: Session, run: tables.Run, *, max_runs: int) -> None:
        session.flush()
        if _count_lost(session, session.get_one(tables.Model, run.model_id)) >= max_runs:
            self.cancel(session, run)

    def cancel(self, session: Session, run: tables.Run) -> None:
        session.get_one(tables.Model, run.model_id).audit_asked_at = None

    def drop_measured(self, session: Session, *, dataset_id: str) -> None:
        """Do nothing: canary tests measure only canaries, not rows of a dataset."""

    def drop_model(self, session: Session, *, model_id: str) -> None:
        """Do nothing: canary tests are runs, and a retired model keeps its runs."""


def _plan(mechanism: Mechanism, *, epsilon: float, delta: float) -> planner.Plan:
    """Plan a canary test that trains on canaries and forgets them in as many steps as the first deletion would take."""
    method = methods.of(mechanism)
    learned = planner.after(method.started(mechanism), planner.learn(mechanism), records=0)
    forgetting = planner.forget(learned, records=1, epsilon=epsilon, delta=delta)
    forgets = forgetting.kind == sets.RunKind.UNLEARN or not method.continues
    steps = mechanism.learn_steps + (forgetting.steps if forgets else 0)
    return planner.Plan(kind=sets.RunKind.AUDIT, steps=steps, reason=planner.PlanReason.CANARY_TEST_REQUESTED)


def _model_to_test(session: Session, *, dataset_id: str) -> tables.Model | None:
    """Return the dataset's model whose pending canary test was requested first, even if its runs are in back-off."""
    query = sa.select(tables.Model).where(
        tables.Model.dataset_id == dataset_id, tables.Model.audit_asked_at.is_not(None)
    )
    return session.scalars(query.order_by(tables.Model.audit_asked_at, tables.Model.id).limit(1)).first()


def _count_lost(session: Session, model: tables.Model) -> int:
    """Return how many of a model's canary tests failed or were abandoned since the pending test was requested."""
    lost = sa.and_(
        tables.Run.model_id == model.id,
        tables.Run.kind == sets.RunKind.AUDIT,
        tables.Run.status.in_((sets.RunStatus.FAILED, sets.RunStatus.ABANDONED)),
    )
    query = (
        sa.select(sa.func.count()).select_from(tables.Run).where(lost, tables.Run.started_at >= model.audit_asked_at)
    )
    return session.scalars(query).one()
