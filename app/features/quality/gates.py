"""Quality gates: a version that misses the threshold of its model is degraded and, if the gate says so, held back.

A gate never delays forgetting: the version is published, accounted for and certified like any other, and replaces the
previous one. Measured values are about people of the evaluation dataset. They are stored only where they can be dropped
again, and so not in the audit log, which is append-only.
"""

import math
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.audit import service as audit
from app.audit.service import Deed
from app.catalogue import repository
from app.catalogue.prediction import MAX_RANKED_CLASSES
from app.db.tables import Model, Version
from lethe.contract.fields import expected
from lethe.contract.models import QualityIn, QualityOut
from lethe.contract.problems import FieldError, PreconditionFailed
from lethe.contract.sets import Metric, OnBreach
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Gate of a model as it is stored."""

    metric: Metric
    threshold: float
    on_breach: OnBreach

    def is_met(self, metrics: dict[str, Any]) -> bool:
        """Return True if the metric was measured, is a number, and reaches the threshold: anything else is a breach."""
        value = value_of(self.metric, metrics)
        if value is None:
            return False
        return value <= self.threshold if self.metric.less_is_better else value >= self.threshold


def gate_of(model: Model) -> Gate | None:
    """Return the gate of a model; None if it has no gate."""
    stored = model.quality
    if stored is None:
        return None
    return Gate(metric=Metric(stored["metric"]), threshold=stored["threshold"], on_breach=OnBreach(stored["on_breach"]))


def value_of(metric: Metric, metrics: dict[str, Any]) -> float | None:
    """Return the value of a metric; None if it was not measured or is not finite."""
    value = metrics.get(metric)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def measured(mechanism: Mechanism) -> tuple[Metric, ...]:
    """Return the metrics that models of this mechanism have on evaluation data."""
    if mechanism.objective.is_regression:
        of_counts = (Metric.MEAN_POISSON_DEVIANCE,) if mechanism.objective is Objective.POISSON_REGRESSION else ()
        return Metric.R_SQUARED, Metric.MEAN_ABSOLUTE_ERROR, *of_counts
    ranked = (Metric.AUC,) if mechanism.num_classes <= MAX_RANKED_CLASSES else ()
    if mechanism.objective is Objective.SMOOTHED_HINGE:
        return Metric.ACCURACY, *ranked
    probable = Metric.LOG_LOSS, Metric.CALIBRATION_ERROR
    if mechanism.objective is Objective.MULTILABEL_LOGISTIC_REGRESSION:
        return Metric.LABEL_ACCURACY, Metric.EXACT_MATCH, *ranked, *probable
    return Metric.ACCURACY, *ranked, *probable


def to_stored(gate: QualityIn, mechanism: Mechanism, is_evaluated: bool) -> dict[str, Any]:
    """Return a gate as its model stores it. Raises `PreconditionFailed` if its metric would never be measured."""
    if not is_evaluated:
        raise PreconditionFailed.not_evaluated([FieldError("quality", "expected a model with an evaluation dataset")])
    metrics = measured(mechanism)
    if gate.metric not in metrics:
        raise PreconditionFailed.not_measured(
            [FieldError("quality.metric", expected(metrics))], metric=gate.metric, objective=mechanism.objective
        )
    return gate.model_dump(mode="json")


def judge(session: Session, model: Model, version: Version) -> None:
    """Judge a version by the present gate of its model. A version that was released before may be held again."""
    gate = gate_of(model)
    was_degraded, was_held = version.degraded or False, version.held or False
    version.degraded = gate is not None and not gate.is_met(version.metrics)
    version.held = version.degraded and gate is not None and gate.on_breach is OnBreach.HOLD
    if version.degraded and not was_degraded:
        _record(session, "version.degraded", model, version)
    if version.held != was_held:
        _record(session, "version.held" if version.held else "version.released", model, version)


def describe(model: Model, version: Version | None) -> QualityOut | None:
    """Return the gate of a model with the standing of `version`; None if the model has no gate."""
    gate = gate_of(model)
    if gate is None:
        return None
    return QualityOut.of(
        gate,
        value=value_of(gate.metric, version.metrics) if version else None,
        is_met=not version.degraded if version else None,
        held=version is not None and version.held,
    )


def set_gate(session: Session, model: Model, stored: dict[str, Any] | None) -> None:
    """Set, replace or remove (None) the gate of a model, and judge the live version by it."""
    if model.quality != stored:
        model.quality = stored
        audit.record(session, "model.gate_set" if stored else "model.gate_removed", model.id, **(stored or {}))
    live = repository.live_version(session, model)
    if live is not None:
        judge(session, model, live)


def release(session: Session, model: Model, version: Version) -> None:
    """Allow serving a version that is held back. Repeating the call is a no-op."""
    if version.held:
        version.held = False
        _record(session, "version.released", model, version)


def _record(session: Session, action: str, model: Model, version: Version) -> None:
    """Write an audit entry; the actor is `lethe` when a run judged the version."""
    deed = Deed(
        tenant_id=model.tenant_id,
        actor=audit.actor_of(session),
        action=action,
        object_id=model.id,
        detail={"version": version.number},
    )
    audit.record_all(session, [deed])
