"""Canary tests: the lanes of each run, and the test on request, which is a run of its own."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.catalogue import service as catalogue
from app.db.tables import Dataset, Model, Run
from app.errors import RunDiffersFromPlan
from app.unlearning import kinds, planner, repository
from app.unlearning.kinds import PlannedRun
from lethe.contract.sets import QueueRule, RunKind
from lethe.proof.canary_test import CanaryPlan, Observed


def planned(run: Run, model: Model) -> CanaryPlan | None:
    """Return the planned lanes of a run; None if the model's runs are not tested or the run is another kind of test.
    A canary test has several chains of lanes, which start at the origin."""
    if not model.audit_lanes:
        return None
    if run.kind == RunKind.AUDIT:
        learned = catalogue.mechanism_of(model).learn_steps
        before = learned if run.steps_total > learned else 0
        lanes = model.audit_lanes * model.audit_chains
        return CanaryPlan(lanes=lanes, steps_before=before, steps=run.steps_total - before)
    if kinds.asked_kind_of(run):
        return None
    return CanaryPlan(lanes=model.audit_lanes, steps_before=run.first_step, steps=run.steps_total)


def findings(run: Run, model: Model, observed: Observed | None) -> tuple[str, ...]:
    """Return what a run's canary test found, or raise `RunDiffersFromPlan` if the run was not tested as planned."""
    if (observed and observed.plan) != planned(run, model):
        raise RunDiffersFromPlan(f"Run {run.id} did not have the canary test that was planned.")
    return observed.findings(catalogue.mechanism_of(model)) if observed else ()


class CanaryTest:
    """Canary test of a model. `audit_asked_at` of the model holds the time of its request."""

    kind = RunKind.AUDIT
    rule = QueueRule.AUDIT

    def due(self, models: sa.Select[str, str]) -> sa.Select[str, str, datetime.datetime]:
        asked_at = sa.type_coerce(Model.audit_asked_at, Run.started_at.type)
        return models.add_columns(asked_at).where(asked_at.is_not(None))

    def model_due(self, session: Session, *, dataset_id: str) -> Model | None:
        return repository.model_to_test(session, dataset_id=dataset_id)

    def plan(self, session: Session, dataset: Dataset) -> PlannedRun:
        model = repository.model_to_test(session, dataset_id=dataset.id)
        assert model is not None
        plan = planner.canary_test(catalogue.mechanism_of(model), epsilon=model.epsilon, delta=model.delta)
        return PlannedRun(model=model, plan=plan, live=None)

    def start(self, session: Session, run: Run) -> None:
        """Do nothing: `audit_asked_at` stays set until the run ends."""

    def lose(self, session: Session, run: Run, *, max_runs: int) -> None:
        session.flush()
        if repository.count_canary_tests_lost(session, session.get_one(Model, run.model_id)) >= max_runs:
            self.cancel(session, run)

    def cancel(self, session: Session, run: Run) -> None:
        session.get_one(Model, run.model_id).audit_asked_at = None

    def drop_measured(self, session: Session, *, dataset_id: str) -> None:
        """Do nothing: only canaries are measured."""

    def drop_model(self, session: Session, *, model_id: str) -> None:
        """Do nothing: the tests are runs, which a retired model keeps."""
