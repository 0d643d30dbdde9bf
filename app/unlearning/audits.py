"""The audit that belongs to a run: what is planned, and what it means that it ran."""

from app.catalogue import service as catalogue
from app.db.tables import Model, Run
from app.errors import RunDiffersFromPlan
from lethe.contract.sets import RunKind
from lethe.proof.audit import AuditPlan, Observed


def planned(run: Run, model: Model) -> AuditPlan | None:
    """None if the model's runs are not audited, or the run is a rehearsal's. An audit that was asked for has several
    chains of lanes, which start at the origin."""
    if not model.audit_lanes or run.kind == RunKind.REHEARSAL:
        return None
    if run.kind == RunKind.AUDIT:
        learned = catalogue.mechanism_of(model).learn_steps
        before = learned if run.steps_total > learned else 0
        lanes = model.audit_lanes * model.audit_chains
        return AuditPlan(lanes=lanes, steps_before=before, steps=run.steps_total - before)
    return AuditPlan(lanes=model.audit_lanes, steps_before=run.first_step, steps=run.steps_total)


def findings(run: Run, model: Model, observed: Observed | None) -> tuple[str, ...]:
    """Name the faults of a run that its audit shows. Raises `RunDiffersFromPlan` if it was not audited as planned."""
    if (observed and observed.plan) != planned(run, model):
        raise RunDiffersFromPlan(f"Run {run.id} was not audited as it was to be.")
    return observed.findings(catalogue.mechanism_of(model)) if observed else ()
