"""Bounds for one record at the worst position in the order of the batches, compared with every position, step by
step."""

import dataclasses
import math
from collections import Counter
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from lethe.proof import accountant, lookback, methods
from lethe.proof.accountant import Exposure, Run
from lethe.proof.errors import DomainError
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Adjacency, Mechanism
from tests.lethe.proof.paths import Step, calls, pulled_mu, quadratic_mu, worst_slopes


def mechanism(**changed: Any) -> Mechanism:
    """Return a mechanism with ten batches of ten rows."""
    given = {"num_slots": 100, "num_classes": 2, "l2": 0.01, "step_size": 2.0, "noise_scale": 0.1, "radius": 100.0}
    settings = {**given, "learn_steps": 300, "batch_size": 10, "cool_down": 16, **changed}
    return Mechanism(objective=Objective.LOGISTIC_REGRESSION, **settings)


@st.composite
def mechanisms(draw: st.DrawFn) -> Mechanism:
    slots = draw(st.integers(1, 12))
    l2 = 10.0 ** draw(st.floats(-3, 0))
    return mechanism(
        num_slots=slots,
        batch_size=draw(st.integers(1, slots)),
        l2=l2,
        step_size=draw(st.floats(0.05, 0.99)) * 2 / (0.25 + l2),
        cool_down=draw(st.integers(1, 20)),
        learn_steps=20,
    )


lengths = st.lists(st.integers(1, 25) | st.integers(1, 3), min_size=1, max_size=4)


def path(made: Mechanism, present: list[int], after: list[int], *, place: int) -> list[Step]:
    """Return all steps for a record in batch `place` that is present during the first runs and null in the later
    ones."""
    steps: list[Step] = []
    for run in (*present, *after):
        for done in range(run):
            size = made.step_size * min(1.0, (run - done) / made.cool_down)
            c = max(abs(1 - size * made.strong_convexity), abs(1 - size * made.smoothness)) + 2.0**-50
            read = len(steps) < sum(present) and len(steps) % made.num_batches == place
            push = made.sensitivity(Adjacency.ZERO_OUT) * size / made.step_size if read else 0.0
            steps.append((c, made.step_variance * size / made.step_size, push))
    return steps


def exact(made: Mechanism, present: list[int], after: list[int]) -> float:
    return max(pulled_mu(path(made, present, after, place=place)) for place in range(made.num_batches))


def deleted(made: Mechanism, present: list[int], after: list[int]) -> float:
    chain = accountant.replay(made, [Run(steps=steps) for steps in (*present, *after)])
    return accountant.deletion_mu(chain, records=1, steps_present=sum(present))


# --- compared with every position ------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(made=mechanisms(), present=lengths, after=st.lists(st.integers(1, 25), max_size=2))
def test_the_bound_holds_for_every_batch(made, present, after):
    """For any runs before and after a record's deletion, the bound is at least the mu of the taut string, whichever
    batch contains the record. With a single batch, the bound equals that mu."""
    found, worst = deleted(made, present, after), exact(made, present, after)
    assert found >= worst * (1 - 1e-11)
    if made.num_batches == 1 or not worst:
        assert found == pytest.approx(worst, rel=1e-10)


@settings(max_examples=150, deadline=None)
@given(made=mechanisms(), steps=st.integers(1, 60))
def test_the_bound_for_a_single_run_is_exact(made, steps):
    """The bound for a single run equals the mu of the taut string for the worst batch."""
    assert lookback.worst_mu(made, steps) == pytest.approx(exact(made, [steps], []), rel=1e-10)


def test_the_bound_is_exact_after_a_few_passes():
    """Once the taut string is straight at every position, as it is when the target is reached, the bound is exact."""
    for after, loss in (([], 1.1), ([5], 1.1), ([50], 1 + 1e-6), ([100], 1 + 1e-11)):
        ratio = deleted(mechanism(), [300, 40, 7], after) / exact(mechanism(), [300, 40, 7], after)
        assert 1 - 1e-11 <= ratio <= loss


@given(
    batches=st.integers(2, 40),
    passes=st.integers(1, 40),
    l2=st.floats(0.001, 1),
    noise=st.floats(0.01, 10),
)
def test_whole_passes_match_the_published_closed_form(batches, passes, l2, noise):
    """Without a cool-down, the bound after whole passes equals that of Bok, Su and Altschuler (2024) for noisy cyclic
    gradient descent."""
    made = mechanism(num_slots=batches, batch_size=1, cool_down=1, l2=l2, step_size=1 / (0.25 + l2), noise_scale=noise)
    with mpmath.workdps(50):
        c, s = mpmath.mpf(made.contraction), mpmath.mpf(made.sensitivity(Adjacency.ZERO_OUT))
        r = c ** (batches * (passes - 1))
        rest = c ** (2 * batches - 2) * (1 - c**2) / (1 - c**batches) ** 2 * (1 - r) / (1 + r)
        expected = float(s / mpmath.sqrt(made.step_variance) * mpmath.sqrt(1 + rest))
    assert lookback.worst_mu(made, batches * passes) == pytest.approx(expected, rel=1e-10)


# --- compared with chains --------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(made=mechanisms(), present=lengths, after=st.lists(st.integers(1, 12), max_size=2), seed=st.integers(0, 2**32))
def test_no_quadratic_exceeds_the_bound(made, present, after, seed):
    """For curvatures in [m, L] that change from step to step, the exact mu for any batch stays below the bound."""
    generator, bound = np.random.default_rng(seed), deleted(made, present, after)
    for place in range(made.num_batches):
        steps = path(made, present, after, place=place)
        sizes = [made.step_size * noise / made.step_variance for _, noise, _ in steps]
        for draw in (generator.uniform, lambda low, high: generator.choice([low, high], p=[0.9, 0.1])):
            slopes = [1 - size * draw(made.strong_convexity, made.smoothness) for size in sizes]
            assert quadratic_mu(steps, slopes=slopes, signs=[1.0] * len(steps)) <= bound * (1 + 1e-10)


def test_the_worst_quadratic_attains_the_bound():
    """With curvatures that change over time, the worst quadratic attains the bound for a single run."""
    made = mechanism(num_slots=5, batch_size=1, cool_down=4, step_size=1 / 0.26)
    found = lookback.worst_mu(made, 23)
    attained = []
    for place in range(5):
        steps = path(made, [23], [], place=place)
        attained.append(quadratic_mu(steps, slopes=worst_slopes(steps), signs=[1.0] * 23))
    assert max(attained) == pytest.approx(found, rel=1e-6)


# --- sums ------------------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(made=mechanisms(), runs=st.lists(st.tuples(st.integers(1, 20), st.integers(0, 3)), min_size=2, max_size=5))
def test_bounds_of_several_deletions_are_subadditive(made, runs):
    """The bound for records deleted at different times is at most the sum of the bounds for the individual deletions,
    and at least as large as each of them."""
    history = [Run(steps=steps, records=records) for steps, records in runs]
    chain, at, each = accountant.replay(made, history), history[0].steps, []
    for run in history[1:]:
        each.append(accountant.deletion_mu(chain, records=run.records, steps_present=at))
        at += run.steps
    together = accountant.unlearning_mu(chain)
    assert together <= math.fsum(each) * (1 + 1e-10)
    assert together >= max(each) * (1 - 1e-10)


def test_release_grows_with_passes_and_not_with_versions():
    """If versions come from runs shorter than a pass, a record contributes only as often as its batch was read, however
    many versions were published."""
    made = mechanism()
    often = [Exposure(mechanism=made, records=1, releases=((1, count),)) for count in (10, 100, 1000)]
    once = accountant.release_mu(made, steps=1, adjacency=Adjacency.ZERO_OUT)
    found = [methods.adaptive_mu([one]) for one in often]
    assert found == pytest.approx([once * math.sqrt(visits) for visits in (2, 11, 101)], rel=1e-12)
    apart = dataclasses.replace(often[0], stretches=5)
    assert methods.adaptive_mu([apart]) == pytest.approx(once * math.sqrt(6), rel=1e-12)
    mixed = Exposure(mechanism=made, records=1, releases=((1, 9), (5, 2), (10, 1), (300, 1)))
    by_size = [accountant.release_mu(made, steps=k, adjacency=Adjacency.ZERO_OUT) for k in (5, 5, 10, 300)]
    assert methods.adaptive_mu([mixed]) == pytest.approx(math.hypot(*by_size), rel=1e-12)


@settings(deadline=None)
@example(  # a long run lies between the two runs that read the first position
    made=mechanism(num_slots=7, batch_size=1, l2=1.0, step_size=1.5, cool_down=1, learn_steps=20), runs=[1, 1, 9, 4]
)
@given(made=mechanisms(), runs=st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_contributions_over_all_versions_stay_below_the_bound(made, runs):
    """For a record in any batch, the sum of its exact contributions to all versions of a chain stays below the
    bound."""
    bound = methods.adaptive_mu([Exposure(mechanism=made, records=1, releases=tuple(sorted(Counter(runs).items())))])
    for place in range(made.num_batches):
        squares, at = 0.0, 0
        for steps in runs:
            first = (place - at) % made.num_batches
            squares += pulled_mu(path(made, [steps], [], place=first)) ** 2
            at += steps
        assert math.sqrt(squares) <= bound * (1 + 1e-10)


@pytest.mark.parametrize("stretches", [0, -1, 1.0, None])
def test_invalid_stretches_are_refused(stretches):
    """An exposure with an invalid number of contiguous stretches is refused."""
    with pytest.raises(DomainError, match="stretches"):
        Exposure(mechanism=mechanism(), records=1, releases=((1, 1),), stretches=stretches)


# --- costs -----------------------------------------------------------------------------------------------------------


def test_query_cost_does_not_grow_with_the_history():
    """The cost of a query does not grow with the number of steps or batches."""

    def cost(**changed: Any) -> int:
        made = mechanism(**changed)
        chain = accountant.replay(made, [Run(steps=made.learn_steps)])
        return calls(lambda: accountant.unlearning_mu(chain, records=1))

    assert cost(learn_steps=10**9) <= cost(learn_steps=10**4) + 9
    assert cost(num_slots=10**5, learn_steps=10**7) <= cost(num_slots=10**3, learn_steps=10**7) + 50
