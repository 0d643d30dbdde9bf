"""Quality gates: a version that misses its model's threshold is degraded and, if the gate says so, held back.

A gate never delays forgetting: the version is published, accounted for and certified like any other, and replaces the
previous one. Measured values concern people in the evaluation dataset. They are stored only where they can later be
deleted, and hence not in the append-only audit log.
"""

import math
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.audit import service as audit
from app.catalogue import prediction, repository
from app.db.tables import Model, Version
from lethe.contract import fields, models, problems, sets
from lethe.features.quality.contract import RemedyKind
from lethe.proof import accountant, calibration, errors, losses
from lethe.proof.mechanism import Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Model's quality gate, as stored."""

    metric: sets.Metric
    threshold: float
    on_breach: sets.OnBreach

    def is_met(self, metrics: dict[str, Any]) -> bool:
        """Return True if the metric was measured, is a number, and reaches the threshold: anything else is a breach."""
        value = value_of(self.metric, metrics)
        if value is None:
            return False
        return value <= self.threshold if self.metric.less_is_better else value >= self.threshold


def gate_of(model: Model) -> Gate | None:
    """Return a model's gate; None if it has no gate."""
    stored = model.quality
    if stored is None:
        return None
    return Gate(
        metric=sets.Metric(stored["metric"]),
        threshold=stored["threshold"],
        on_breach=sets.OnBreach(stored["on_breach"]),
    )


def value_of(metric: sets.Metric, metrics: dict[str, Any]) -> float | None:
    """Return the value of a metric; None if it was not measured or is not finite."""
    value = metrics.get(metric)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def measured(mechanism: Mechanism) -> tuple[sets.Metric, ...]:
    """Return the metrics measured on evaluation data for models with this mechanism."""
    if mechanism.objective.is_regression:
        of_counts = (
            (sets.Metric.MEAN_POISSON_DEVIANCE,) if mechanism.objective is losses.Objective.POISSON_REGRESSION else ()
        )
        return sets.Metric.R_SQUARED, sets.Metric.MEAN_ABSOLUTE_ERROR, *of_counts
    ranked = (sets.Metric.AUC,) if mechanism.num_classes <= prediction.MAX_RANKED_CLASSES else ()
    if mechanism.objective is losses.Objective.SMOOTHED_HINGE:
        return sets.Metric.ACCURACY, *ranked
    probable = sets.Metric.LOG_LOSS, sets.Metric.CALIBRATION_ERROR
    if mechanism.objective is losses.Objective.MULTILABEL_LOGISTIC_REGRESSION:
        return sets.Metric.LABEL_ACCURACY, sets.Metric.EXACT_MATCH, *ranked, *probable
    return sets.Metric.ACCURACY, *ranked, *probable


def to_stored(gate: models.QualityIn, mechanism: Mechanism, is_evaluated: bool) -> dict[str, Any]:
    """Return a gate as stored with its model. Raises `PreconditionFailed` if its metric would never be measured."""
    if not is_evaluated:
        raise problems.PreconditionFailed.not_evaluated(
            [problems.FieldError("quality", "expected a model with an evaluation dataset")]
        )
    metrics = measured(mechanism)
    if gate.metric not in metrics:
        raise problems.PreconditionFailed.not_measured(
            [problems.FieldError("quality.metric", fields.expected(metrics))],
            metric=gate.metric,
            objective=mechanism.objective,
        )
    return gate.model_dump(mode="json")


def judge(session: Session, model: Model, version: Version) -> None:
    """Judge a version by its model's current gate. A version that was released before can be held again."""
    gate = gate_of(model)
    was_degraded, was_held = version.degraded or False, version.held or False
    version.degraded = gate is not None and not gate.is_met(version.metrics)
    version.held = version.degraded and gate is not None and gate.on_breach is sets.OnBreach.HOLD
    if version.degraded and not was_degraded:
        _record(session, "version.degraded", model, version)
    if version.held != was_held:
        _record(session, "version.held" if version.held else "version.released", model, version)


def describe(model: Model, version: Version | None) -> models.QualityOut | None:
    """Return a model's gate with the metric of `version`, and whether it passes or is held; None without a gate."""
    gate = gate_of(model)
    if gate is None:
        return None
    return models.QualityOut.of(
        gate,
        value=value_of(gate.metric, version.metrics) if version else None,
        is_met=not version.degraded if version else None,
        held=version is not None and version.held,
    )


def set_gate(session: Session, model: Model, stored: dict[str, Any] | None) -> None:
    """Set, replace or remove (None) a model's gate, and judge the live version by the new gate."""
    if model.quality != stored:
        model.quality = stored
        audit.record(session, "model.gate_set" if stored else "model.gate_removed", model.id, **(stored or {}))
    live = repository.live_version(session, model)
    if live is not None:
        judge(session, model, live)


def release(session: Session, model: Model, version: Version) -> None:
    """Allow a version that is held back to be served. Repeating the call is a no-op."""
    if version.held:
        version.held = False
        _record(session, "version.released", model, version)


def _record(session: Session, action: str, model: Model, version: Version) -> None:
    """Write an audit entry; the actor is `lethe` when a run judged the version."""
    deed = audit.Deed(
        tenant_id=model.tenant_id,
        actor=audit.actor_of(session),
        action=action,
        object_id=model.id,
        detail={"version": version.number},
    )
    audit.record_all(session, [deed])


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Change that could improve a model's quality. `mechanism`: mechanism of the changed model. `request_steps`: number
    of steps that the changed model's first request takes."""

    kind: RemedyKind
    mechanism: Mechanism
    request_steps: int
    reason: str

    @property
    def learn_passes(self) -> float:
        return self.mechanism.learn_steps / self.mechanism.num_batches

    @property
    def request_passes(self) -> float:
        return self.request_steps / self.mechanism.num_batches


def score_noise(mechanism: Mechanism) -> float:
    """Return the long-run standard deviation that noise gives to the score w.x of a row of norm 1: nu / sqrt(1 - c^2).

    nu^2 is the step variance, c the contraction. The cool-down at the end of a run reduces the deviation further.

    >>> settings = calibration.ModelSettings(epsilon=1.0, delta=1e-5)
    >>> round(score_noise(calibration.mechanism_for(settings, num_slots=32561, num_classes=2)), 3)
    0.35
    """
    return math.sqrt(mechanism.step_variance / -math.expm1(2 * math.log(mechanism.contraction)))


def is_noise_felt(mechanism: Mechanism) -> bool:
    """Return True if the noise costs accuracy by the criterion for default noise (`calibration.UNFELT_NOISE`)."""
    unit = calibration.TARGET_SHARE if mechanism.objective.scores_are_y else 1.0
    return score_noise(mechanism) > 1.001 * unit * calibration.UNFELT_NOISE


def remedies(mechanism: Mechanism, *, epsilon: float, delta: float) -> list[Remedy]:
    """Return the remedies that reach (epsilon, delta), ordered by training cost, cheapest first.

    They include retraining, doubling the dataset's slots, and changing the regularisation: doubled if noise costs
    accuracy, otherwise halved.
    """
    if is_noise_felt(mechanism):
        l2, why = (
            2 * mechanism.l2,
            "noise costs accuracy here: more regularisation needs less of it, and forgets sooner",
        )
    else:
        l2, why = mechanism.l2 / 2, "noise is not felt here: less regularisation fits the rows more closely"
    slots = 2 * mechanism.num_slots
    candidates: list[tuple[RemedyKind, Mechanism | None, str]] = [
        (
            RemedyKind.RELEARN,
            mechanism,
            "for rows that were added since; not to draw the noise again, which certificates do not cover",
        ),
        (
            RemedyKind.MORE_SLOTS,
            _like(mechanism, num_slots=slots, l2=mechanism.l2, epsilon=epsilon, delta=delta),
            "twice as many rows: each is a smaller part, and needs less noise to hide",
        ),
        (RemedyKind.L2, _like(mechanism, num_slots=mechanism.num_slots, l2=l2, epsilon=epsilon, delta=delta), why),
    ]
    reachable = [
        Remedy(
            kind=kind,
            mechanism=changed,
            request_steps=_request_steps(changed, epsilon=epsilon, delta=delta),
            reason=reason,
        )
        for kind, changed, reason in candidates
        if changed is not None
    ]
    return sorted(reachable, key=lambda remedy: remedy.learn_passes)


def _like(mechanism: Mechanism, *, num_slots: int, l2: float, epsilon: float, delta: float) -> Mechanism | None:
    """Return a mechanism for the same task with the given values and defaults for all others; None if it cannot reach
    the target."""
    try:
        return calibration.mechanism_for(
            calibration.ModelSettings(loss_width=mechanism.loss_width, epsilon=epsilon, delta=delta, l2=l2),
            num_slots=num_slots,
            num_classes=mechanism.num_classes,
            objective=mechanism.objective,
            num_parameters=mechanism.num_parameters,
        )
    except errors.PrivacyError:
        return None


def _request_steps(mechanism: Mechanism, *, epsilon: float, delta: float) -> int:
    learned = accountant.replay(mechanism, [accountant.Run(steps=mechanism.learn_steps)])
    try:
        return calibration.least_steps(learned, records=1, epsilon=epsilon, delta=delta, at_most=mechanism.learn_steps)
    except errors.InfeasibleError:
        # The request would be served by retraining.
        return mechanism.learn_steps
