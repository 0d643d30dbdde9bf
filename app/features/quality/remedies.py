"""Remedies for a model of low quality, each with its cost.

All numbers follow from public ones (sizes, settings and the target), never from measurements.
"""

import math
from dataclasses import dataclass

from lethe.contract.sets import RemedyKind
from lethe.proof import accountant, calibration
from lethe.proof.accountant import Run
from lethe.proof.errors import InfeasibleError, PrivacyError
from lethe.proof.mechanism import Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Change that could raise the quality. `mechanism`: that of the changed model. `request_steps`: number of steps
    of the first request to it."""

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
    """Return the standard deviation of the score w.x of a row of norm 1 by noise in the long run, nu / sqrt(1 - c^2).

    The cool-down at the end of a run lessens it further.

    >>> settings = calibration.ModelSettings(epsilon=1.0, delta=1e-5)
    >>> round(score_noise(calibration.mechanism_for(settings, num_slots=32561, num_classes=2)), 3)
    0.35
    """
    return math.sqrt(mechanism.step_variance / -math.expm1(2 * math.log(mechanism.contraction)))


def is_noise_felt(mechanism: Mechanism) -> bool:
    """Return True if so much noise costs accuracy, by the rule that the default noise follows
    (`calibration.UNFELT_NOISE`)."""
    unit = calibration.TARGET_SHARE if mechanism.objective.scores_are_y else 1.0
    return score_noise(mechanism) > 1.001 * unit * calibration.UNFELT_NOISE


def remedies(mechanism: Mechanism, *, epsilon: float, delta: float) -> list[Remedy]:
    """Return the remedies that reach (epsilon, delta), the cheapest to learn first.

    They are learning again, a dataset with twice as many slots, and another regularisation: twice as much if noise is
    felt, otherwise half as much.
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
    """Return the mechanism for the same task with these numbers and defaults otherwise; None if the target is out of
    reach."""
    try:
        return calibration.mechanism_for(
            calibration.ModelSettings(loss_width=mechanism.loss_width, epsilon=epsilon, delta=delta, l2=l2),
            num_slots=num_slots,
            num_classes=mechanism.num_classes,
            objective=mechanism.objective,
            num_parameters=mechanism.num_parameters,
        )
    except PrivacyError:
        return None


def _request_steps(mechanism: Mechanism, *, epsilon: float, delta: float) -> int:
    learned = accountant.replay(mechanism, [Run(steps=mechanism.learn_steps)])
    try:
        return calibration.least_steps(learned, records=1, epsilon=epsilon, delta=delta, at_most=mechanism.learn_steps)
    except InfeasibleError:
        # The request would be served by learning again.
        return mechanism.learn_steps
