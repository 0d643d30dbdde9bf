"""Quality gates: a version that misses the threshold of its model is degraded, and held back where the gate says so.

Nobody waits to be forgotten because of a gate: the version is published, accounted for and certified as any other, and
replaces the one before. Values that are measured are about people of the evaluation dataset, and go where those can be
dropped again: not into the audit log, which is append-only.
"""

import math
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.audit import service as audit
from app.audit.service import Deed
from app.catalogue import repository
from app.catalogue.prediction import MOST_RANKED
from app.db.tables import Model, Version
from lethe.contract.problems import FieldError, ModelHeld, PreconditionFailed
from lethe.contract.quality import QualityIn
from lethe.contract.sets import Metric, OnBreach
from lethe.contract.spelling import expected
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The stored gate of a model."""

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
    """The gate of a model, if it has one."""
    stored = model.quality
    if stored is None:
        return None
    return Gate(
        metric=Metric(stored["metric"]),
        threshold=stored["threshold"],
        on_breach=OnBreach(stored["on_breach"]),
    )


def value_of(metric: Metric, metrics: dict[str, Any]) -> float | None:
    """The measured value; None where there is none, or what there is, is no number."""
    value = metrics.get(metric)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def measured(mechanism: Mechanism) -> tuple[Metric, ...]:
    """The metrics that models of this mechanism have on evaluation data."""
    if mechanism.objective.is_regression:
        of_counts = (Metric.MEAN_POISSON_DEVIANCE,) if mechanism.objective is Objective.POISSON_REGRESSION else ()
        return Metric.R_SQUARED, Metric.MEAN_ABSOLUTE_ERROR, *of_counts
    ranked = (Metric.AUC,) if mechanism.num_classes <= MOST_RANKED else ()
    if mechanism.objective is Objective.SMOOTHED_HINGE:
        return Metric.ACCURACY, *ranked
    probable = Metric.LOG_LOSS, Metric.CALIBRATION_ERROR
    if mechanism.objective is Objective.MULTILABEL_LOGISTIC_REGRESSION:
        return Metric.LABEL_ACCURACY, Metric.EXACT_MATCH, *ranked, *probable
    return Metric.ACCURACY, *ranked, *probable


def stored_gate(asked: QualityIn | None, mechanism: Mechanism, *, is_evaluated: bool) -> dict[str, Any] | None:
    """The gate as a model stores it. Raises `PreconditionFailed` where its metric would never be measured."""
    if asked is None:
        return None
    if not is_evaluated:
        raise PreconditionFailed(
            "A quality gate needs evaluation data: create the model with an evaluation_dataset_id.",
            [FieldError("quality", "expected a model with an evaluation dataset")],
        )
    known = measured(mechanism)
    if asked.metric not in known:
        raise PreconditionFailed(
            f"{asked.metric} is not measured of {mechanism.objective}.",
            [FieldError("quality.metric", expected(known))],
        )
    return asked.model_dump(mode="json")


def judge(session: Session, model: Model, version: Version) -> None:
    """Judge a version by the gate of its model, as it is now; what was released before may be held again."""
    gate = gate_of(model)
    was_degraded, was_held = version.degraded or False, version.held or False
    version.degraded = gate is not None and not gate.is_met(version.metrics)
    version.held = version.degraded and gate is not None and gate.on_breach is OnBreach.HOLD
    if version.degraded and not was_degraded:
        _record(session, "version.degraded", model, version)
    if version.held != was_held:
        _record(session, "version.held" if version.held else "version.released", model, version)


def set_gate(session: Session, model: Model, stored: dict[str, Any] | None) -> None:
    """Set, replace or remove (None) the gate of a model, and judge the live version by it."""
    if model.quality != stored:
        model.quality = stored
        audit.record(session, "model.gate_set" if stored else "model.gate_removed", model.id, **(stored or {}))
    live = repository.live_version(session, model)
    if live is not None:
        judge(session, model, live)


def release(session: Session, model: Model, version: Version) -> None:
    """Serve a version that is held back. Doing it again changes nothing."""
    if version.held:
        version.held = False
        _record(session, "version.released", model, version)


def require_served(version: Version) -> None:
    """Raises `ModelHeld`."""
    if version.held:
        raise ModelHeld(
            f"Version {version.number} misses the quality gate of its model, and is held back from serving. Release it "
            f"(POST /v1/models/{version.model_id}/versions/{version.number}/release), or let the model learn again; "
            f"GET /v1/models/{version.model_id}/remedies says what else would help."
        )


def _record(session: Session, action: str, model: Model, version: Version) -> None:
    """By the session's actor, or the service itself, in whose runs versions are judged."""
    deed = Deed(
        tenant_id=model.tenant_id,
        actor=audit.actor_of(session),
        action=action,
        object_id=model.id,
        detail={"version": version.number},
    )
    audit.record_all(session, [deed])
