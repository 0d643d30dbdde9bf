"""Remedies for a model whose quality is too low: what could raise it, and what each would take.

Everything follows from public numbers: sizes, settings and the target, and nothing that was measured.
"""

import math
from dataclasses import dataclass

from lethe.contract.sets import RemedyKind
from lethe.proof import accountant
from lethe.proof.accountant import Run
from lethe.proof.errors import InfeasibleError, PrivacyError
from lethe.proof.mechanism import Mechanism
from lethe.theorems import calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """`mechanism`: of the model that it would take; `request_steps`: of the first person's request then."""

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
    """Standard deviation that noise gives the score w.x of a row of norm 1 in the long run, nu / sqrt(1 - c^2), before
    the cool-down lessens it.

    >>> round(score_noise(calibration.mechanism_for(num_slots=32561, num_classes=2, epsilon=1.0, delta=1e-5)), 3)
    0.35
    """
    return math.sqrt(mechanism.step_variance / -math.expm1(2 * math.log(mechanism.contraction)))


def is_noise_felt(mechanism: Mechanism) -> bool:
    """Return True if so much noise costs accuracy, by the rule that the default noise follows
    (`calibration.UNFELT_NOISE`)."""
    unit = calibration.TARGET_SHARE if mechanism.objective.scores_are_y else 1.0
    return score_noise(mechanism) > 1.001 * unit * calibration.UNFELT_NOISE


def remedies(mechanism: Mechanism, *, epsilon: float, delta: float) -> list[Remedy]:
    """The remedies that reach (epsilon, delta), those that are cheapest to learn first: learning again; a dataset with
    twice as many slots; other regularisation, more of it where noise is felt, less where it is not."""
    felt = is_noise_felt(mechanism)
    if felt:
        l2, why = (
            2 * mechanism.l2,
            "noise costs accuracy here: more regularisation needs less of it, and forgets sooner",
        )
    else:
        l2, why = mechanism.l2 / 2, "noise is not felt here: less regularisation fits the rows more closely"
    slots = 2 * mechanism.num_slots
    candidates: list[tuple[RemedyKind, Mechanism | None, str]] = [
        (RemedyKind.RELEARN, mechanism, "new noise, and rows that came since; what it costs in the long run stays"),
        (
            RemedyKind.MORE_SLOTS,
            _like(mechanism, num_slots=slots, l2=mechanism.l2, epsilon=epsilon, delta=delta),
            "twice as many rows: each is a smaller part, and needs less noise to hide",
        ),
        (RemedyKind.L2, _like(mechanism, num_slots=mechanism.num_slots, l2=l2, epsilon=epsilon, delta=delta), why),
    ]
    found = [
        Remedy(
            kind=kind,
            mechanism=of_it,
            request_steps=_request_steps(of_it, epsilon=epsilon, delta=delta),
            reason=reason,
        )
        for kind, of_it, reason in candidates
        if of_it is not None
    ]
    return sorted(found, key=lambda remedy: remedy.learn_passes)


def _like(mechanism: Mechanism, *, num_slots: int, l2: float, epsilon: float, delta: float) -> Mechanism | None:
    """The mechanism for the same task with this regularisation and so many slots, with the defaults else; None where
    there is none."""
    try:
        return calibration.mechanism_for(
            num_slots=num_slots,
            num_classes=mechanism.num_classes,
            objective=mechanism.objective,
            loss_width=mechanism.loss_width,
            num_parameters=mechanism.num_parameters,
            epsilon=epsilon,
            delta=delta,
            l2=l2,
        )
    except PrivacyError:
        return None


def _request_steps(mechanism: Mechanism, *, epsilon: float, delta: float) -> int:
    learned = accountant.replay(mechanism, [Run(steps=mechanism.learn_steps)])
    try:
        return calibration.least_steps(learned, records=1, epsilon=epsilon, delta=delta, at_most=mechanism.learn_steps)
    except InfeasibleError:
        return mechanism.learn_steps  # a request is served by learning again
