"""A public bound on the second moment of batches: the constants that follow, and the effect of deletions."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lethe.proof import accountant, calibration
from lethe.proof.accountant import Run
from lethe.proof.errors import DomainError, PreconditionError
from lethe.proof.losses import Objective, smoothness
from lethe.proof.mechanism import Mechanism

BOUND = 0.4
BETA = {Objective.LOGISTIC_REGRESSION: 0.25, Objective.SMOOTHED_HINGE: 2.0, Objective.LEAST_SQUARES: 1.0}


def made(*, num_slots: int = 1000, num_classes: int = 2, **changed: Any) -> Mechanism:
    settings = calibration.ModelSettings(**{"epsilon": 1.0, "delta": 1e-5, "second_moment": BOUND} | changed)
    return calibration.mechanism_for(settings, num_slots=num_slots, num_classes=num_classes)


@pytest.mark.parametrize("objective", BETA)
def test_smoothness_is_proportional_to_the_bound(objective: Objective) -> None:
    """L - m is the loss's curvature bound beta times the given bound on the second moment, or beta itself if no bound
    is given."""
    classes = 1 if objective.is_regression else 2
    width = 0.5 if objective.has_width else None
    for bound in (None, 1.0, BOUND):
        found = smoothness(objective, classes, 0.01, loss_width=width, second_moment=bound)
        assert found == pytest.approx(BETA[objective] * (bound or 1) + 0.01)


@given(seed=st.integers(0, 2**32 - 1), nulled=st.integers(0, 12))
def test_a_step_contracts_before_and_after_a_deletion(seed: int, nulled: int) -> None:
    """If the bound is the largest eigenvalue of a batch, the noiseless softmax step contracts by the mechanism's c,
    even after rows are nulled. This c is no larger than it would be without the bound."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(12, 3)) + random.normal(size=3) * 3
    rows /= np.linalg.norm(rows, axis=1).max()
    bound = float(np.linalg.eigvalsh(rows.T @ rows / 12)[-1])
    classes, most = 3, min(bound * (1 + 1e-9), 1.0)
    mechanism = made(num_classes=classes, num_slots=12, batch_size=12, l2=0.05, second_moment=most)
    assert (
        mechanism.contraction
        <= made(num_classes=3, num_slots=12, batch_size=12, l2=0.05, second_moment=1.0).contraction
    )
    labels = random.integers(classes, size=12)
    rows[random.permutation(12)[:nulled]] = 0
    assert np.linalg.eigvalsh(rows.T @ rows / 12)[-1] <= bound * (1 + 1e-12)
    a, b = random.normal(size=(2, classes, 3)) * random.choice([0.1, 1, 10])

    def stepped(w: Any) -> Any:
        scores = rows @ w.T
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        gradient = (chances - np.eye(classes)[labels]).T @ rows / 12 + mechanism.l2 * w
        return w - mechanism.step_size * gradient

    assert np.linalg.norm(stepped(a) - stepped(b)) <= mechanism.contraction * np.linalg.norm(a - b) * (1 + 1e-12)


def test_the_smoothness_is_attained() -> None:
    """If all rows point in the same direction and their length is the square root of the bound, the curvature at a
    score of 0 is exactly L."""
    mechanism = made(num_slots=10, batch_size=10, l2=0.05)
    row, near = np.array([BOUND**0.5, 0.0]), 1e-6
    slope = (1 / (1 + np.exp(-near * row[0])) - 0.5) * row / near + mechanism.l2 * np.array([1.0, 0.0])
    assert slope[0] == pytest.approx(mechanism.smoothness, rel=1e-6)


def test_a_smaller_second_moment_takes_fewer_steps() -> None:
    """With a bound b < 1 on the second moment, training takes about b times as many steps as it would without a bound.
    A request also takes fewer steps."""
    tight, loose = made(), made(second_moment=None)
    assert tight.learn_steps == pytest.approx(BOUND * loose.learn_steps, rel=0.02)
    chains = [accountant.replay(m, [Run(steps=m.learn_steps)]) for m in (tight, loose)]
    steps = [calibration.least_steps(c, records=1, epsilon=1.0, delta=1e-5, at_most=10**6) for c in chains]
    assert steps[0] < steps[1]
    assert Mechanism.from_json(tight.to_json()) == tight
    assert "second_moment" not in loose.to_json()


@pytest.mark.parametrize("wrong", [0.0, -1.0, 1.1, float("nan"), float("inf")])
def test_a_malformed_bound_is_refused(wrong: float) -> None:
    """A bound on the second moment is refused unless it is above 0 and at most 1."""
    with pytest.raises(DomainError):
        made(second_moment=wrong)


def test_training_must_read_every_batch() -> None:
    """A mechanism whose training does not read every batch is refused, because unread batches would not be checked. A
    run whose bound differs from that of its chain is refused too."""
    with pytest.raises(PreconditionError, match="every_batch_checked"):
        made(learn_steps=9, cool_down=1)
    tight = made()
    chain = accountant.replay(tight, [Run(steps=tight.learn_steps)])
    with pytest.raises(PreconditionError, match="same_problem"):
        accountant.advance(chain, Run(steps=1, mechanism=replace(tight, second_moment=0.3)))
