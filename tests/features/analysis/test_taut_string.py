import doctest
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import minimize

from lethe.features.analysis import taut_string
from lethe.features.analysis.taut_string import Stretch
from tests.features.analysis.stretches import (
    any_contraction,
    chain_of,
    chains,
    contracting,
    nonnegative,
    positive,
    random_steps,
    steps_of,
    stretches_with,
)
from tests.lethe.proof.paths import pulled_mu, quadratic_mu, worst_slopes
from tests.tables import each

# --- it is the string under the path of every step -------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=300)
@given(stretches=chains, apart=nonnegative)
def test_closed_forms_equal_step_by_step_computation(stretches, apart):
    """For stretches of any number of steps, the mu computed with closed forms equals the mu computed step by step with
    50 digits, and is never below it."""
    expected = pulled_mu(steps_of(stretches), apart=apart)
    assert taut_string.mu(stretches, apart=apart) == pytest.approx(expected, rel=1e-13, abs=1e-300)
    assert taut_string.mu(stretches, apart=apart) >= expected


@pytest.mark.parametrize("contraction", [1 - 1e-12, 1 - 1e-6, 1.0, 1 + 1e-12, 1 + 1e-6])
def test_contractions_near_one_lose_no_precision(contraction):
    """No precision is lost to cancellation if a step contracts or expands only slightly."""
    stretches = [
        Stretch(steps=40, contraction=contraction, variance=2.0, push=0.3, every=7),
        Stretch(steps=25, contraction=contraction, variance=1.0, push=0.0),
        Stretch(steps=33, contraction=contraction, variance=0.5, push=0.1, every=4),
    ]
    assert taut_string.mu(stretches) == pytest.approx(pulled_mu(steps_of(stretches)), rel=1e-13)


@given(stretches=st.lists(stretches_with(contracting), min_size=1, max_size=5))
def test_a_taut_string_of_one_piece_equals_the_recursion(stretches):
    """If the distances s that the steps add never grow and the noise nu never falls, the taut string is a single
    straight piece and mu is W/sqrt(V). W and V follow the recursion W <- c W + s, V <- c^2 V + nu^2 for steps with
    contraction c."""
    variances = sorted(stretch.variance for stretch in stretches)
    pushes = sorted((stretch.push for stretch in stretches), reverse=True)
    influence, variance, steadier = 0.0, 0.0, []
    for stretch, noise, push in zip(stretches, variances, pushes, strict=True):
        steadier.append(
            Stretch(steps=stretch.steps, contraction=stretch.contraction, variance=noise, push=push, every=1)
        )
        for _ in range(stretch.steps):
            influence = stretch.contraction * influence + push
            variance = stretch.contraction**2 * variance + noise
    assert taut_string.mu(steadier) == pytest.approx(influence / math.sqrt(variance), rel=1e-12)


@given(stretches=chains)
def test_steps_before_a_difference_change_nothing(stretches):
    """Noise added before the two chains first differ does not lower mu: prepending steps with such noise leaves mu
    unchanged."""
    before = Stretch(steps=10**6, contraction=0.9, variance=50.0)
    expected = taut_string.mu(stretches)
    assert taut_string.mu([before, *stretches]) == pytest.approx(expected, rel=1e-14, abs=1e-300)


@pytest.mark.parametrize("steps", [10**7, 10**15])
@pytest.mark.parametrize("c", [0.5, 1 - 1e-9, 1.0, 1.001, 3.0])
def test_extreme_numbers_of_steps_reach_their_limits(c, steps):
    """The mu after ten million and after 10^15 steps equals its limit, even if the expansion exceeds the largest
    float."""
    alike = Stretch(steps=steps, contraction=c, variance=1.0, push=0.5)
    quiet = Stretch(steps=steps, contraction=c, variance=1.0)
    stays, starts = taut_string.mu([alike]), taut_string.mu([quiet], apart=2.0)
    if c < 1:
        left = math.exp(steps * math.log(c))
        assert stays == pytest.approx(0.5 * math.sqrt((1 + c) / (1 - c) * (1 - left) / (1 + left)), rel=1e-12)
        assert starts == pytest.approx(2 * left * math.sqrt((1 - c) * (1 + c) / (1 - left**2)), rel=1e-12, abs=1e-300)
        assert starts > 0
    else:
        assert stays == pytest.approx(0.5 * math.sqrt(steps), rel=1e-12)
        assert starts == pytest.approx(2 * (math.sqrt((c - 1) * (c + 1)) if c > 1 else steps**-0.5), rel=1e-12)


def test_expansion_and_contraction_cancel():
    """Ten million expanding steps followed by the same number of steps with the inverse contraction lead back to the
    original mu."""
    grown = Stretch(steps=10**7, contraction=2.0, variance=1e-6)
    shrunk = Stretch(steps=10**7, contraction=0.5, variance=1e-6)
    least = math.sqrt(1e-6 / 3 + 1e-6 * 4 / 3)
    assert taut_string.mu([grown, shrunk], apart=1.0) == pytest.approx(1 / least, rel=1e-12)


# --- it is the best of all shifts, and exact -------------------------------------------------------------------------


@each("seed", range(60))
def test_a_constrained_optimiser_finds_no_better_shifts(seed):
    """A general optimiser that minimises the sum of a_t^2/nu_t^2 over all sequences of shifts a_t finds the square of
    the taut string's mu. The constraints are z_t = c_t z_(t-1) + s_t - a_t >= 0 and a final z of 0."""
    steps = random_steps(seed)
    count = len(steps)
    variances = np.array([variance for _, variance, _ in steps])
    carried = np.array(
        [
            [math.prod(c for c, _, _ in steps[i + 1 : t + 1]) if i <= t else 0.0 for i in range(count)]
            for t in range(count)
        ]
    )
    pushed = carried @ np.array([push for _, _, push in steps])
    found = minimize(
        lambda shifts: float((shifts**2 / variances).sum()),
        pushed / count,
        jac=lambda shifts: 2 * shifts / variances,
        method="SLSQP",
        constraints=[
            {"type": "eq", "fun": lambda shifts: pushed[-1] - carried[-1] @ shifts, "jac": lambda _: -carried[-1]},
            {"type": "ineq", "fun": lambda shifts: (pushed - carried @ shifts)[:-1], "jac": lambda _: -carried[:-1]},
        ],
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert taut_string.mu(chain_of(steps)) == pytest.approx(math.sqrt(found.fun), rel=1e-6)


@each("seed", range(200))
def test_time_varying_curvatures_attain_the_bound(seed):
    """The worst quadratic, found by an exact search over the slopes of all steps, attains the bound, which is the mu of
    the taut string."""
    steps = random_steps(seed, most=12)
    bound = taut_string.mu(chain_of(steps))
    attained = quadratic_mu(steps, slopes=worst_slopes(steps), signs=[1.0] * len(steps))
    assert attained <= bound * (1 + 1e-12)
    assert attained >= bound * (1 - 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_local_search_never_exceeds_the_bound(seed):
    """Local searches over each step's curvature and over the sign and size of the push between the chains never exceed
    the bound, and one of them reaches it."""
    steps = random_steps(seed, most=5)
    count, bound = len(steps), taut_string.mu(chain_of(steps))
    contractions = np.array([c for c, _, _ in steps])
    generator, reached = np.random.default_rng(seed), []
    for _ in range(6):
        climbed = minimize(
            lambda x: -quadratic_mu(steps, slopes=x[:count], signs=x[count:]),
            np.concatenate([generator.uniform(0, contractions), generator.uniform(0, 1, count)]),
            method="L-BFGS-B",
            bounds=[*((-c, c) for c in contractions), *([(-1.0, 1.0)] * count)],
            options={"ftol": 1e-15, "gtol": 1e-10},
        )
        reached.append(-climbed.fun)
    assert max(reached) <= bound * (1 + 1e-12)
    assert max(reached) >= bound * (1 - 1e-6)


@given(
    stretches=st.lists(stretches_with(any_contraction, steps=6), min_size=1, max_size=5),
    apart=nonnegative,
    seed=st.integers(0, 2**32),
)
def test_no_quadratic_exceeds_the_bound(stretches, apart, seed):
    """The exact mu of a quadratic does not exceed the bound for any slopes in [-c_t, c_t] and any pushes up to s_t in
    each step t."""
    steps = steps_of(stretches)
    generator = np.random.default_rng(seed)
    bound = taut_string.mu(stretches, apart=apart)
    for low in (-1.0, 0.0, 0.9):
        slopes = [c * generator.uniform(low, 1) for c, _, _ in steps]
        signs = generator.uniform(low, 1, len(steps))
        assert quadratic_mu(steps, slopes=slopes, signs=list(signs), apart=apart) <= bound * (1 + 1e-12)
    plain = [c for c, _, _ in steps]
    assert quadratic_mu(steps, slopes=plain, signs=[1.0] * len(steps), apart=apart) <= bound * (1 + 1e-12)


# --- cyclic batches --------------------------------------------------------------------------------------------------


@given(batches=st.integers(2, 60), epochs=st.integers(1, 60), c=st.floats(0.05, 0.9999), ratio=positive)
def test_cyclic_batches_have_the_published_closed_form(batches, epochs, c, ratio):
    """For the slot used last, mu equals the closed form of Bok, Su and Altschuler (2024) for noisy cyclic gradient
    descent."""
    quiet = Stretch(steps=batches - 1, contraction=c, variance=1.0)
    visits = Stretch(steps=batches * (epochs - 1) + 1, contraction=c, variance=1.0, push=ratio, every=batches)
    rest = c ** (batches * (epochs - 1))
    square = 1 + c ** (2 * batches - 2) * (1 - c * c) / (1 - c**batches) ** 2 * (1 - rest) / (1 + rest)
    assert taut_string.mu([quiet, visits]) == pytest.approx(ratio * math.sqrt(square), rel=1e-9)


@given(
    batches=st.integers(1, 9),
    steps=st.integers(1, 60),
    after=st.integers(0, 20),
    c=any_contraction.filter(bool),
)
def test_the_slot_used_last_is_the_worst(batches, steps, after, c):
    """If all steps are equal, whatever their contraction, mu is larger for slots that are used later."""
    mus = []
    # The slot is visited in steps place, place + batches, ...
    for place in range(batches):
        chain = [Stretch(steps=place, contraction=c, variance=1.0)] if place else []
        if steps > place:
            chain.append(Stretch(steps=steps - place, contraction=c, variance=1.0, push=1.0, every=batches))
        if after:
            chain.append(Stretch(steps=after, contraction=c, variance=1.0))
        mus.append(taut_string.mu(chain))
    latest_first = [mus[(steps - 1 - ago) % batches] for ago in range(batches)]
    for later, earlier in itertools.pairwise(latest_first):
        assert earlier <= later * (1 + 1e-12)


def test_examples_in_docstrings_are_correct():
    """The examples in the module's docstrings produce the results shown there."""
    failed, attempted = doctest.testmod(taut_string)
    assert attempted
    assert not failed
