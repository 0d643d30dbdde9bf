import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lethe.proof.errors import DomainError, PreconditionError
from lethe.proof.losses import Objective
from lethe.proof.mechanism import MIN_RELATIVE_NOISE, Adjacency, Mechanism
from tests.tables import each

NOT_POSITIVE_REALS = [0.0, -0.1, math.nan, math.inf, -math.inf, True, 10**400]
NOT_COUNTS = [0, -1, 2.0, math.nan, math.inf, True, 2**53 + 1, 10**400]


def mechanism(**changed: Any) -> Mechanism:
    settings = {"num_slots": 100, "num_classes": 2, "l2": 0.05, "step_size": 2.0, "noise_scale": 0.1, "radius": 20.0}
    return Mechanism(objective=Objective.LOGISTIC_REGRESSION, **{**settings, "learn_steps": 50, **changed})


# --- constants -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("classes", "bound", "curvature"), [(2, 1.0, 0.25), (3, math.sqrt(2), 0.5), (9, 2**0.5, 0.5)])
def test_constants_match_the_objectives(classes, bound, curvature):
    """Two classes have M = 1 and L = 1/4 + l2, and more classes have M = sqrt(2) and L = 1/2 + l2. In both cases m is
    l2."""
    made = mechanism(num_classes=classes)
    assert (made.gradient_bound, made.smoothness, made.strong_convexity) == (bound, curvature + 0.05, 0.05)


def test_no_softmax_gradient_or_curvature_exceeds_the_constants():
    """For random parameters and rows, softmax gradients stay below M and curvatures below L - l2, and both come close
    to these bounds."""
    generator = np.random.default_rng(0)
    longest, steepest = 0.0, 0.0
    for _ in range(2000):
        scores = generator.normal(size=3) * generator.choice([0.1, 1.0, 30.0])
        p = np.exp(scores - scores.max())
        p /= p.sum()
        longest = max(longest, np.linalg.norm(p - np.eye(3)[generator.integers(3)]))  # |x| = 1
        steepest = max(steepest, np.linalg.eigvalsh(np.diag(p) - np.outer(p, p))[-1])
    made = mechanism(num_classes=3)
    assert 0.99 * made.gradient_bound < longest <= made.gradient_bound
    assert 0.95 * (made.smoothness - made.l2) < steepest <= made.smoothness - made.l2


def test_no_logistic_gradient_or_curvature_exceeds_the_constants():
    """At every margin, the logistic gradient stays below M. The curvature is at most L - l2, which it attains at 0."""
    margins = np.linspace(-40, 40, 8001)
    sigmoid = 1 / (1 + np.exp(margins))
    made = mechanism()
    assert 0.999999 < sigmoid.max() <= made.gradient_bound
    assert (sigmoid * (1 - sigmoid)).max() == made.smoothness - made.l2 == 0.25


def test_contraction_matches_its_closed_form():
    """The contraction is (L - m)/(L + m) at a step size of 2/(L + m), and 1 - m/L at a step size of 1/L."""
    assert mechanism(step_size=2 / 0.35).contraction == pytest.approx(0.25 / 0.35, rel=1e-14)
    assert mechanism(step_size=1 / 0.3).contraction == pytest.approx(1 - 0.05 / 0.3, rel=1e-14)


@given(log_l2=st.floats(-14, 9), share=st.floats(1e-3, 1.0), classes=st.sampled_from([2, 3]))
def test_contraction_is_rounded_up(log_l2, share, classes):
    """The computed contraction is never below its exact rational value and exceeds it only by rounding."""
    l2 = 10.0**log_l2
    step_size = share * 2 / ((0.25 if classes == 2 else 0.5) + 2 * l2)
    exact_l2, exact_step = Fraction(l2), Fraction(step_size)
    curvature = Fraction(1, 4) if classes == 2 else Fraction(1, 2)
    exact = max(abs(1 - exact_step * exact_l2), abs(1 - exact_step * (curvature + exact_l2)))
    rounding = Fraction(2) ** -49
    if exact > 1 - rounding:
        return  # may be refused: see below
    stated = mechanism(num_classes=classes, l2=l2, step_size=step_size, noise_scale=1.0).contraction
    assert exact <= Fraction(stated) <= exact + rounding


@pytest.mark.parametrize(("adjacency", "factor"), [(Adjacency.ZERO_OUT, 1), (Adjacency.REPLACE, 2)])
def test_one_record_moves_a_step_by_its_share(adjacency, factor):
    """With n0 slots, adding or removing one record moves a step by at most eta M / n0, and replacing a record by at
    most twice that."""
    assert mechanism(num_classes=3).sensitivity(adjacency) == pytest.approx(factor * 2.0 * math.sqrt(2) / 100)


def test_noise_has_the_stated_variance():
    """A step adds noise of variance 2 eta sigma^2 to each coordinate."""
    assert mechanism().step_variance == pytest.approx(2 * 2.0 * 0.1**2, rel=1e-15)


# --- refusals --------------------------------------------------------------------------------------------------------


@each("name", ["l2", "step_size", "noise_scale", "radius"])
@each("value", NOT_POSITIVE_REALS)
def test_a_setting_out_of_range_is_refused(name, value):
    """A setting that is not a positive finite number raises a DomainError that names the setting."""
    with pytest.raises(DomainError, match=name):
        mechanism(**{name: value})


@each("name", ["num_slots", "num_classes", "learn_steps"])
@each("value", NOT_COUNTS)
def test_an_invalid_count_is_refused(name, value):
    """A count that is not a positive integer up to 2^53 raises a DomainError that names the count."""
    with pytest.raises(DomainError, match=name):
        mechanism(**{name: value})


@pytest.mark.parametrize("changed", [{"step_size": 2 / 0.3}, {"step_size": 1e300}, {"l2": 1e-17}, {"step_size": 1e-17}])
def test_a_step_without_contraction_is_refused(changed):
    """A step size too large, or a regulariser too weak, for steps to contract is refused with a specific error."""
    with pytest.raises(PreconditionError, match="contraction_below_one"):
        mechanism(**changed)


@pytest.mark.parametrize(
    "changed", [{"noise_scale": 1e-13}, {"radius": 1e13}, {"noise_scale": 1e-200, "radius": 1e-200}]
)
def test_noise_below_float_precision_is_refused(changed):
    """Noise so small that float64 would round it away at parameters as large as the radius is refused with a specific
    error."""
    with pytest.raises(PreconditionError, match="noise_resolvable"):
        mechanism(**changed)
    least = MIN_RELATIVE_NOISE * 20.0 / math.sqrt(2 * 2.0)
    assert mechanism(noise_scale=least * 1.001).noise_scale > 0


def test_noise_beyond_the_floats_is_refused():
    """Noise whose variance does not fit in a float is refused."""
    with pytest.raises(DomainError, match="step_variance"):
        mechanism(noise_scale=1e200)


def test_a_mechanism_is_frozen():
    """No field of a mechanism can be changed after its creation."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism().noise_scale = 1.0


# --- documents -------------------------------------------------------------------------------------------------------


def test_mechanisms_round_trip():
    """A mechanism read from its own document equals the original."""
    made = mechanism(num_classes=7, l2=1 / 3, step_size=0.1, noise_scale=1 / 7)
    assert Mechanism.from_json(made.to_json()) == made


@pytest.mark.parametrize("name", ["gradient_bound", "strong_convexity", "smoothness", "contraction", "step_variance"])
def test_an_inconsistent_constant_is_refused(name):
    """A document with a constant that does not follow from its settings is refused, and the error names the
    constant."""
    document = mechanism().to_json()
    for wrong in (document[name] * (1 - 1e-15), math.nan):
        with pytest.raises(PreconditionError, match=f"constants_follow: Expected {name}"):
            Mechanism.from_json(document | {name: wrong})
    for other_type in ("1", 1, True, None):
        with pytest.raises(PreconditionError, match=f"mechanism_of_format: Expected {name}"):
            Mechanism.from_json(document | {name: other_type})


@each("name", mechanism().to_json().keys())
def test_a_document_with_other_fields_is_refused(name):
    """A document with a missing or additional field is refused with a specific error. No field has a default, and no
    field is ignored."""
    document = mechanism().to_json()
    del document[name]
    for other in (document, mechanism().to_json() | {"momentum": 0.9}):
        with pytest.raises(PreconditionError, match="mechanism_of_format"):
            Mechanism.from_json(other)


def test_a_batch_size_of_zero_is_refused_in_a_document():
    """A batch size of zero, which means all rows when a model is created, is refused in a document."""
    with pytest.raises(PreconditionError, match="constants_follow: Expected batch_size=0 == 100"):
        Mechanism.from_json(mechanism().to_json() | {"batch_size": 0})


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({"batch_size": 101}, "batch_size=101 <= num_slots=100"),
        ({"batch_size": -1}, "integer batch_size=-1"),
        ({"batch_size": 2.0}, "integer batch_size"),
        ({"batch_size": False}, "integer batch_size"),
        ({"cool_down": 0}, "integer cool_down=0"),
        ({"cool_down": 51}, "cool_down=51 <= learn_steps=50"),
        ({"cool_down": 2000, "learn_steps": 3000}, "and <= 1024"),
    ],
)
def test_impossible_batches_are_refused(changed, refused):
    """A batch with no rows or with more rows than exist, and a cool-down longer than training, are each refused with a
    specific error."""
    with pytest.raises(DomainError, match=refused):
        mechanism(**changed)


def test_an_unknown_objective_is_refused():
    """An objective whose constants are unknown is refused."""
    with pytest.raises(ValueError, match="neural_network"):
        Mechanism.from_json(mechanism().to_json() | {"objective": "neural_network"})
