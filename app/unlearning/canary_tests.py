"""Canary tests of runs: the lanes that a run must have, and what they found."""

from app.catalogue import service as catalogue
from app.db.tables import Model, Run
from app.errors import RunDiffersFromPlan
from app.unlearning import kinds
from lethe.proof.canary_test import CanaryPlan, Observed


def planned(run: Run, model: Model) -> CanaryPlan | None:
    """Return the planned lanes of a run; None if the model's runs are not tested or the run is a test without lanes."""
    if not model.audit_lanes:
        return None
    if asked_kind := kinds.asked_kind_of(run):
        return asked_kind.canaries(run, model)
    return CanaryPlan(lanes=model.audit_lanes, steps_before=run.first_step, steps=run.steps_total)


def findings(run: Run, model: Model, observed: Observed | None) -> tuple[str, ...]:
    """Return what a run's canary test found, or raise `RunDiffersFromPlan` if the run was not tested as planned."""
    if (observed and observed.plan) != planned(run, model):
        raise RunDiffersFromPlan(f"Run {run.id} did not have the canary test that was planned.")
    return observed.findings(catalogue.mechanism_of(model)) if observed else ()
