"""Losses other than the logistic loss: their constants, refusals and documents."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import optimize

from lethe.proof import accountant, calibration
from lethe.proof.accountant import Run
from lethe.proof.errors import DomainError, PreconditionError
from lethe.proof.losses import Objective, farthest_minimiser, gradient_bound, num_weight_rows, smoothness
from lethe.proof.mechanism import Mechanism
from tests.tables import each

HUBER, SQUARES, HINGE = Objective.HUBER_REGRESSION, Objective.LEAST_SQUARES, Objective.SMOOTHED_HINGE
LABELS, COUNTS = Objective.MULTILABEL_LOGISTIC_REGRESSION, Objective.POISSON_REGRESSION
WIDTHS = st.floats(1e-3, 1e3)


def classes_of(objective: Objective) -> int:
    return 2 if objective in (HINGE, LABELS) else 1


def width_of(objective: Objective, width: float = 0.5) -> float | None:
    return width if objective.has_width else None


def mechanism(objective: Objective, **changed: Any) -> Mechanism:
    settings = {"num_slots": 100, "l2": 0.05, "step_size": 0.5, "noise_scale": 0.1, "radius": 4.0, "learn_steps": 50}
    of_loss = {"num_classes": classes_of(objective), "loss_width": width_of(objective)}
    return Mechanism(objective=objective, **settings | of_loss | changed)


def loss(objective: Objective, score: Any, y: Any, width: float) -> Any:
    """Return the textbook loss. For the hinge, y is -1 or 1. For counts, (y + 1) / 2 is the count's share of its
    bound."""
    if objective is COUNTS:
        with np.errstate(over="ignore"):
            rates = np.where(score <= width, np.exp(score - width), 1 + score - width)
        return rates - (y + 1) / 2 * score
    if objective is HINGE:
        z = y * score
        return np.where(z >= 1, 0, np.where(z <= 1 - width, 1 - z - width / 2, (1 - z) ** 2 / (2 * width)))
    residual = np.abs(score - y)
    square = residual**2 / 2
    return square if objective is SQUARES else np.where(residual <= width, square, width * residual - width**2 / 2)


# --- constants -------------------------------------------------------------------------------------------------------


@each("objective", [HUBER, SQUARES, HINGE, COUNTS])
def test_constants_bound_slope_and_curvature_tightly(objective):
    """For every score in the ball and every target, the loss has a slope of at most M and a curvature of at most L -
    l2, and both bounds are attained."""
    made = mechanism(objective)
    scores = np.linspace(-made.radius, made.radius, 16_001)  # 1/2000 apart: |w.x| <= R
    steepest = curved = 0.0
    for y in (-1.0, 1.0) if objective is HINGE else np.linspace(-1, 1, 9):
        losses = loss(objective, scores, y, 0.5)
        slopes = np.diff(losses) / np.diff(scores)
        steepest = max(steepest, float(np.abs(slopes).max()))
        curved = max(curved, float((np.diff(slopes) / np.diff(scores)[1:]).max()))
    assert 0.999 * made.gradient_bound <= steepest <= made.gradient_bound * (1 + 1e-9)
    assert curved == pytest.approx(made.smoothness - made.l2, rel=1e-3 if objective is COUNTS else 1e-6)
    assert curved <= (made.smoothness - made.l2) * (1 + 1e-6)


def test_constants_match_their_closed_form():
    """M is h for Huber, R + 1 for least squares, and 1 for the hinge and counts. L is 1 + l2, except 1/width + l2 for
    the hinge, and m is l2."""
    of_all = ((HUBER, 0.5, 1.0), (SQUARES, 5.0, 1.0), (HINGE, 1.0, 2.0), (COUNTS, 1.0, 1.0))
    for objective, bound, curvature in of_all:
        made = mechanism(objective)
        found = (made.gradient_bound, made.smoothness, made.strong_convexity)
        assert found == (bound, curvature + 0.05, 0.05)
        assert num_weight_rows(made.num_classes) == 1


def test_least_squares_without_a_ball_is_unbounded():
    """Without a radius, the gradient bound M of least squares is infinite."""
    assert gradient_bound(SQUARES, 1) == math.inf


def test_labels_have_the_constants_of_logistic_losses():
    """C labels have M = sqrt(C) and L = 1/4 + l2. At random scores, no gradient exceeds M and no curvature exceeds L,
    and both bounds are attained. Two labels need two weight vectors."""
    made = mechanism(LABELS, num_classes=5)
    assert (made.gradient_bound, made.smoothness) == (math.sqrt(5), 0.3)
    assert (num_weight_rows(2, LABELS), num_weight_rows(5, LABELS)) == (2, 5)
    generator = np.random.default_rng(0)
    longest = curved = 0.0
    for scale in np.repeat([0.01, 1.0, 30.0], 500):
        p, has = 1 / (1 + np.exp(-scale * generator.normal(size=5))), generator.integers(0, 2, 5)
        longest = max(longest, float(np.linalg.norm(p - has)))  # |x| = 1
        curved = max(curved, float((p * (1 - p)).max()))
    assert 0.99 * made.gradient_bound < longest <= made.gradient_bound
    assert 0.999 * 0.25 < curved <= made.smoothness - made.l2


@given(
    objective=st.sampled_from([HUBER, SQUARES, HINGE, COUNTS]),
    seed=st.integers(0, 2**32 - 1),
    log_l2=st.floats(-3, 1),
    width=st.floats(0.01, 10),
)
def test_the_default_ball_contains_the_minimiser(objective, seed, log_l2, width):
    """For any rows and targets, the minimiser of the regularised loss f lies within the default radius."""
    generator, l2 = np.random.default_rng(seed), 10.0**log_l2
    rows = generator.normal(size=(generator.integers(1, 4), 2))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    y = generator.choice([-1.0, 1.0], len(rows))

    def value(w: Any) -> float:
        return float(loss(objective, rows @ w, y, width).mean() + l2 / 2 * w @ w)

    found = optimize.minimize(value, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-15})
    farthest = farthest_minimiser(objective, classes_of(objective), l2, loss_width=width_of(objective, width))
    assert np.linalg.norm(found.x) <= farthest * (1 + 1e-6)


@given(
    objective=st.sampled_from([HUBER, SQUARES, HINGE, COUNTS]),
    width=WIDTHS,
    scores=st.tuples(st.floats(-4, 4), st.floats(-4, 4)),
    y=st.floats(-1, 1),
)
def test_losses_are_convex_smooth_and_lipschitz(objective, width, scores, y):
    """Between any two scores in the ball, the loss changes by at most M times their distance, and it lies between its
    tangent and the parabola of curvature L - l2 above the tangent."""
    y = math.copysign(1.0, y) if objective is HINGE else y
    here, there = scores
    classes, of_loss = classes_of(objective), width_of(objective, width)
    most = gradient_bound(objective, classes, radius=4.0, loss_width=of_loss)
    curvature = smoothness(objective, classes, 0.0, loss_width=of_loss)
    step = 1e-6 * min(1.0, width)
    values = [float(loss(objective, score, y, width)) for score in (here - step, here + step, here, there)]
    slope, rise, away = (values[1] - values[0]) / (2 * step), values[3] - values[2], there - here
    # Each value is rounded, and the slope of the central difference is that of a point within a step of `here`.
    rounding = 1e-14 * (1 + most + max(map(abs, values)))
    error = rounding + abs(away) * (rounding / step + curvature * step)
    assert abs(rise) <= most * abs(away) + rounding
    assert slope * away - error <= rise
    assert rise <= slope * away + curvature / 2 * away**2 + error


@given(
    seed=st.integers(0, 2**32 - 1),
    width=st.floats(0.01, 20),
    log_radius=st.floats(-2, 4),
    rows=st.integers(1, 5),
)
def test_gradients_of_counts_stay_within_their_constants(seed, width, log_radius, rows):
    """For any two weight vectors, however far from the origin, no row's gradient is longer than M. The mean gradient
    changes by at most beta times the distance between the vectors, and never against their direction."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, 3))
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1) * generator.choice([1.0, 1.0, 3.0], (rows, 1))
    u = generator.choice([0.0, 1.0, generator.random()], rows)
    one, other = (10.0**log_radius * generator.normal(size=3) for _ in range(2))
    if generator.random() < 0.5:
        other = one + 1e-3 * generator.normal(size=3)

    def gradients(w: Any) -> Any:
        return (np.exp(np.minimum(x @ w - width, 0)) - u)[:, None] * x

    assert np.linalg.norm(gradients(one), axis=1).max() <= gradient_bound(COUNTS, 1, loss_width=width) * (1 + 1e-12)
    moved, apart = (gradients(one) - gradients(other)).mean(axis=0), one - other
    beta = smoothness(COUNTS, 1, 0.0, loss_width=width)
    assert np.linalg.norm(moved) <= beta * np.linalg.norm(apart) * (1 + 1e-9)
    assert moved @ apart >= moved @ moved / beta - 1e-9 * (1 + apart @ apart)  # Baillon and Haddad


def test_counts_attain_their_constants():
    """A count of 0 with a rate at the bound, and a count at the bound with a rate near 0, both have a slope of absolute
    value 1. At the bend, where the rate reaches its bound, the curvature approaches 1 from below."""
    for score, y, slope in ((3.0, -1.0, 1.0), (-60.0, 1.0, -1.0)):
        found = (loss(COUNTS, score + 1e-4, y, 2.0) - loss(COUNTS, score - 1e-4, y, 2.0)) / 2e-4
        assert found == pytest.approx(slope, abs=1e-9)
    with pytest.raises(DomainError, match="a loss_width for poisson_regression"):
        mechanism(COUNTS, loss_width=None)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "changed", "said"),
    [
        (HUBER, {"num_classes": 2}, "num_classes=2 == 1"),
        (COUNTS, {"num_classes": 2}, "num_classes=2 == 1"),
        (COUNTS, {"loss_width": 0.0}, "loss_width=0.0 > 0"),
        (SQUARES, {"num_classes": 2}, "num_classes=2 == 1"),
        (SQUARES, {"num_classes": True}, "num_classes=True == 1"),
        (HINGE, {"num_classes": 3}, "num_classes=3 == 2"),
        (LABELS, {"num_classes": 1}, "num_classes=1"),
        (LABELS, {"num_classes": 32}, "num_classes=32 <= 31"),
        (LABELS, {"loss_width": 1.0}, "no loss_width for multilabel"),
        (Objective.LOGISTIC_REGRESSION, {"num_classes": 1}, "num_classes=1"),
        (HUBER, {"loss_width": None}, "a loss_width for huber_regression"),
        (SQUARES, {"loss_width": 1.0}, "no loss_width for least_squares"),
        (Objective.LOGISTIC_REGRESSION, {"loss_width": 1.0, "num_classes": 2}, "no loss_width for logistic"),
        (HUBER, {"loss_width": 0.0}, "loss_width=0.0 > 0"),
        (HUBER, {"loss_width": math.nan}, "loss_width"),
        (HINGE, {"loss_width": math.inf}, "loss_width"),
    ],
)
def test_settings_of_another_loss_are_refused(objective, changed, said):
    """Classes for a numeric target, and a width that is missing, invalid or not used by the loss, are each refused with
    a specific error."""
    with pytest.raises(DomainError, match=said):
        mechanism(objective, **changed)


# --- documents -------------------------------------------------------------------------------------------------------


TODAY = {
    "objective": "logistic_regression",
    "num_slots": 100,
    "num_classes": 2,
    "l2": 0.05,
    "step_size": 2.0,
    "noise_scale": 0.1,
    "radius": 20.0,
    "learn_steps": 50,
    "grid": 0.0,
    "num_parameters": 1,
    "batch_size": 100,
    "cool_down": 1,
    "gradient_bound": 1.0,
    "strong_convexity": 0.05,
    "smoothness": 0.3,
    "contraction": 0.9000000000000009,
    "step_variance": 0.04000000000000001,
    "num_batches": 1,
}
"""A mechanism as earlier releases stated it in ledgers and certificates."""


def test_earlier_documents_are_unchanged():
    """Stored mechanism documents for classes are read and written unchanged."""
    assert Mechanism.from_json(TODAY).to_json() == TODAY
    assert list(Mechanism.from_json(TODAY).to_json()) == list(TODAY)


@each("objective", [HUBER, SQUARES, HINGE, LABELS, COUNTS])
def test_mechanisms_round_trip(objective):
    """A mechanism read back from its own document is unchanged, and the document states a width only if the loss has
    one."""
    made = mechanism(objective)
    assert Mechanism.from_json(made.to_json()) == made
    assert ("loss_width" in made.to_json()) == objective.has_width


@pytest.mark.parametrize(
    "document",
    [
        TODAY | {"loss_width": None},
        mechanism(HUBER).to_json() | {"loss_width": None},
        {name: said for name, said in mechanism(HUBER).to_json().items() if name != "gradient_bound"},
    ],
)
def test_an_incomplete_document_is_refused(document):
    """A mechanism document that lacks its gradient bound, or whose width is null, is refused."""
    with pytest.raises(PreconditionError, match="mechanism_of_format"):
        Mechanism.from_json(document)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"loss_width": 0.25}, PreconditionError),  # another M follows
        ({"objective": "least_squares"}, DomainError),
        ({"objective": "logistic_regression"}, DomainError),
        ({"radius": 5.0}, None),
    ],
)
def test_constants_of_a_document_follow_from_its_loss(change, error):
    """A document whose constants belong to another width or another loss is refused. The M of Huber does not depend on
    the radius."""
    document = mechanism(HUBER).to_json() | change
    if error is None:
        assert Mechanism.from_json(document).gradient_bound == 0.5
        return
    with pytest.raises(error):
        Mechanism.from_json(document)


def test_constants_of_least_squares_must_follow_from_the_ball():
    """A least-squares document whose M does not follow from its radius is refused."""
    with pytest.raises(PreconditionError, match="gradient_bound"):
        Mechanism.from_json(mechanism(SQUARES).to_json() | {"radius": 3.0})


# --- defaults --------------------------------------------------------------------------------------------------------


def default(objective: Objective, **asked: Any) -> Mechanism:
    settings = calibration.ModelSettings(epsilon=1.0, delta=1e-5, **asked)
    return calibration.mechanism_for(settings, objective=objective, num_slots=10_000, num_classes=classes_of(objective))


@each("objective", [HUBER, SQUARES, HINGE, LABELS, COUNTS])
def test_default_mechanisms_can_forget_one_record(objective):
    """Every objective has a default mechanism, with which a run shorter than training brings one record to the
    target."""
    made = default(objective)
    learned = accountant.replay(made, [Run(steps=made.learn_steps)])
    steps = calibration.least_steps(learned, records=1, epsilon=1.0, delta=1e-5, at_most=10 * made.learn_steps)
    assert 1 <= steps < made.learn_steps
    assert made.step_size == 2 / (made.smoothness + made.l2)


def test_default_balls_match_the_proof():
    """The default radius is 1/sqrt(l2) for least squares, the smaller of 1/sqrt(l2) and h/l2 for Huber with width h,
    and 1/l2 for the hinge."""
    found: Callable[[Objective], float] = lambda objective: default(objective, l2=0.01).radius  # noqa: E731
    assert [found(HUBER), found(SQUARES), found(HINGE)] == pytest.approx([10.0, 10.0, 100.0])
    assert default(HUBER, l2=0.01, loss_width=0.05).radius == pytest.approx(5.0)
    assert default(SQUARES, l2=4.0).radius == pytest.approx(0.25)
    rate = math.exp(-2)  # at a score of 0; the counts farthest from it are 0 and the bound
    assert default(COUNTS, l2=0.01).radius == pytest.approx(math.sqrt(2 * (rate + 1) / 0.01))
    assert default(COUNTS, l2=4.0).radius == pytest.approx((1 - rate) / 4)
    assert default(COUNTS, l2=4.0, loss_width=0.1).radius == pytest.approx(math.exp(-0.1) / 4)


def test_a_smaller_ball_lowers_the_gradient_bound():
    """The gradient bound for least squares is proportional to R + 1."""
    small, large = (default(SQUARES, radius=radius) for radius in (2.0, 9.0))
    assert large.gradient_bound / small.gradient_bound == pytest.approx(10 / 3)
