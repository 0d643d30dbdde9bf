"""Chains whose runs differ in step size and noise scale: the taut string bends only where the noise decreased."""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from lethe.proof import accountant
from lethe.proof.accountant import Run
from lethe.proof.errors import PreconditionError
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Adjacency, Mechanism
from tests.lethe.proof.paths import Step, calls, pulled_mu, quadratic_mu, worst_slopes
from tests.lethe.proof.restart import restart_mu

FIRST = Mechanism(
    objective=Objective.LOGISTIC_REGRESSION,
    num_slots=100,
    num_classes=2,
    l2=0.05,
    step_size=2.0,
    noise_scale=0.1,
    radius=1.0,
    learn_steps=50,
)


def with_(**changed: Any) -> Mechanism:
    return dataclasses.replace(FIRST, **changed)


variants = st.builds(with_, step_size=st.floats(0.05, 6.0), noise_scale=st.floats(0.02, 0.5))
few = st.integers(0, 3)
runs = st.builds(
    Run,
    steps=st.integers(1, 25),
    records=few,
    inserted=few,
    corrected=few,
    mechanism=st.none() | variants,
)
histories = st.lists(runs, min_size=1, max_size=6)


def steps_of(history: list[Run]) -> Iterator[tuple[Mechanism, int]]:
    """Yield each step's mechanism and the number of records by which the step's data differ from the final data."""
    made = FIRST
    for index, run in enumerate(history):
        made = run.mechanism or made
        differing = sum(later.edits for later in history[index + 1 :])
        yield from [(made, differing)] * run.steps


def path_of(history: list[Run]) -> list[Step]:
    return [
        (made.contraction, made.step_variance, differing * made.sensitivity(Adjacency.ZERO_OUT))
        for made, differing in steps_of(history)
    ]


def stepwise(history: list[Run], *, apart: float = 0.0) -> float:
    """Return mu of the string under the path of all single steps, with 50 digits."""
    return pulled_mu(path_of(history), apart=apart)


def one_piece(history: list[Run]) -> float:
    """Return W / sqrt(V), computed step by step. It is not a bound if the string is bent."""
    influence, variance = 0.0, 0.0
    for contraction, noise, push in path_of(history):
        influence, variance = contraction * influence + push, contraction**2 * variance + noise
    return influence / math.sqrt(variance)


def exact_mu(history: list[Run], *, slopes: list[float], signs: list[float]) -> float:
    """Return mu of x <- slope x + eta g / n0 + N(0, nu^2), where the two g differ by `signs` times the differing
    records."""
    return quadratic_mu(path_of(history), slopes=slopes, signs=signs)


# --- the string ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=300)
@given(history=histories, imported=st.booleans())
def test_mu_matches_the_taut_string_of_all_steps(history, imported):
    """With at most one edit, a chain's mu equals that of the taut string over all its steps. With several edits at
    different times, mu is the sum over the edits' separate strings, which is at least the exact value."""
    apart = 2 * FIRST.radius if imported else 0.0
    chain = accountant.resume(accountant.imported(FIRST) if imported else accountant.started(FIRST), history)
    mu, exact = accountant.unlearning_mu(chain), stepwise(history, apart=apart)
    assert mu >= exact * (1 - 1e-10)
    if sum(run.edits > 0 for run in history[1:]) + imported <= 1:
        assert mu == pytest.approx(exact, rel=1e-10)


@given(history=histories, records=st.integers(0, 9))
def test_the_mu_predicted_for_a_deletion_is_reached(history, records):
    """The mu predicted for a planned deletion equals the mu immediately after that deletion."""
    chain = accountant.replay(FIRST, history)
    after = accountant.erased(chain, records=records)
    assert accountant.unlearning_mu(chain, records=records) == accountant.unlearning_mu(after)
    assert after.influence == pytest.approx(chain.influence + records * chain.presence, rel=1e-12)


@given(history=histories, sizes=st.lists(st.floats(0.05, 6.0), min_size=6, max_size=6))
def test_mu_is_a_ratio_unless_the_noise_falls(history, sizes):
    """For any step sizes, mu is W / sqrt(V) as long as the noise does not decrease."""
    scales = sorted(run.mechanism.noise_scale if run.mechanism else 0.1 for run in history)
    history = [
        dataclasses.replace(run, mechanism=with_(step_size=size, noise_scale=scale))
        for run, size, scale in zip(history, sizes, scales, strict=False)
    ]
    chain = accountant.replay(FIRST, history)
    assert accountant.unlearning_mu(chain) == pytest.approx(one_piece(history), rel=1e-10)
    assert accountant.unlearning_mu(chain) == pytest.approx(stepwise(history), rel=1e-10)


TOO_SOON = [Run(steps=50, mechanism=with_(noise_scale=1.0)), Run(steps=5, mechanism=FIRST), Run(steps=1, records=1)]


def test_noise_before_a_decrease_does_not_hide_later_edits():
    """With W / sqrt(V), the noise of early steps would hide changes in the quiet steps that follow them. The taut
    string avoids this, and a quadratic attains its mu."""
    bound = accountant.unlearning_mu(accountant.replay(FIRST, TOO_SOON))
    slopes = [0.9] * 50 + [0.4] + [0.9] * 5  # at the first quiet step the curvature is L
    exact = exact_mu(TOO_SOON, slopes=slopes, signs=[1.0] * 56)
    assert 1.2 * one_piece(TOO_SOON) < exact <= bound
    best = worst_slopes(path_of(TOO_SOON))
    assert exact_mu(TOO_SOON, slopes=best, signs=[1.0] * 56) == pytest.approx(bound, rel=1e-6)


def test_more_steps_straighten_the_taut_string():
    """Once enough steps have followed the last edit, the taut string is a straight line, and further steps keep it
    straight."""
    for steps, straight in ((0, False), (100, True), (101, True), (400, True)):
        history = [*TOO_SOON, Run(steps=steps)] if steps else TOO_SOON
        ratio = accountant.unlearning_mu(accountant.replay(FIRST, history)) / one_piece(history)
        assert (ratio < 1 + 1e-10) is straight
        assert ratio > 1 - 1e-10


@given(history=histories, more=st.integers(1, 60))
def test_steps_without_edits_never_raise_mu(history, more):
    """Steps without edits never raise mu, whatever the mechanism and the history."""
    fewer = accountant.unlearning_mu(accountant.replay(FIRST, history))
    assert accountant.unlearning_mu(accountant.replay(FIRST, [*history, Run(steps=more)])) <= fewer * (1 + 1e-12)


# --- exact on quadratics ---------------------------------------------------------------------------------------------


def slopes_within(history: list[Run], draw: Any) -> list[float]:
    """Return 1 - eta h for every step, with the curvatures h in [m, L] chosen by `draw`."""
    return [1 - made.step_size * draw(made.strong_convexity, made.smoothness) for made, _ in steps_of(history)]


@pytest.mark.slow
@settings(max_examples=300)
@given(history=histories, seed=st.integers(0, 2**32))
def test_no_quadratic_exceeds_the_bound(history, seed):
    """For any curvatures in [m, L] and any shifts caused by the records in each step, the exact mu stays below the
    bound."""
    bound = accountant.unlearning_mu(accountant.replay(FIRST, history))
    generator = np.random.default_rng(seed)
    count = sum(run.steps for run in history)
    ends = [
        slopes_within(history, generator.uniform),
        slopes_within(history, lambda low, high: generator.choice([low, high], p=[0.9, 0.1])),
    ]
    for slopes, signs in itertools.product(ends, ([1.0] * count, list(generator.uniform(-1, 1, count)))):
        assert exact_mu(history, slopes=slopes, signs=signs) <= bound * (1 + 1e-10)


@given(history=histories)
def test_the_bound_is_exact_for_the_worst_quadratic(history):
    """If the noise does not decrease, the quadratic of curvature m attains the bound, however eta and sigma vary."""
    assume(all(made.step_size <= 5 for made, _ in steps_of(history)))
    chain = accountant.replay(FIRST, history)
    slopes = slopes_within(history, lambda low, high: low)
    exact = exact_mu(history, slopes=slopes, signs=[1.0] * len(slopes))
    assert exact <= accountant.unlearning_mu(chain) * (1 + 1e-11)
    noises = [made.noise_scale for made, _ in steps_of(history)]
    if noises == sorted(noises):
        assert exact == pytest.approx(accountant.unlearning_mu(chain), rel=1e-11)


# --- books -----------------------------------------------------------------------------------------------------------


@given(history=histories)
def test_incremental_accounting_matches_a_replay(history):
    """Advancing a chain run by run gives the same result as a replay, even if the noise decreases."""
    chain = accountant.started(FIRST)
    for index, run in enumerate(history, start=1):
        chain = accountant.advance(chain, run)
        assert chain == accountant.replay(FIRST, history[:index])


@given(history=histories)
def test_restating_a_mechanism_changes_nothing(history):
    """A replay gives the same bits whether or not a run restates the mechanism of the previous run."""
    plain = [dataclasses.replace(run, mechanism=None) for run in history]
    named = [dataclasses.replace(run, mechanism=FIRST) for run in history]
    assert accountant.replay(FIRST, named) == accountant.replay(FIRST, plain)


@given(history=histories, data=st.data())
def test_deletion_follows_one_person_through_varying_runs(history, data):
    """With varying mechanisms, the `deletion` mu of a person's records is that of the taut string over the steps since
    their insertion, ignoring all other edits."""
    came = data.draw(st.integers(0, len(history) - 1))
    left = data.draw(st.integers(came, len(history) - 1))
    absent, present = (sum(run.steps for run in part) for part in (history[:came], history[came:left]))
    mechanisms = [made for made, _ in steps_of(history)][absent:]
    path = [
        (made.contraction, made.step_variance, 2 * made.sensitivity(Adjacency.ZERO_OUT) * (step < present))
        for step, made in enumerate(mechanisms)
    ]
    chain = accountant.replay(FIRST, history)
    found = accountant.deletion_mu(chain, records=2, steps_present=present, steps_absent=absent)
    assert found == pytest.approx(pulled_mu(path), rel=1e-10)


@given(history=histories)
def test_a_restart_is_the_best_import(history):
    """With varying mechanisms, the restart bound uses the run where a restart lowers the bound most, and the bounds of
    several edits add up."""
    spelt, made = [], FIRST
    for run in history:
        made = run.mechanism or made
        spelt.append(dataclasses.replace(run, mechanism=made))
    best = min(stepwise(spelt[index:], apart=2.0) for index in range(len(spelt)))
    found = restart_mu(FIRST, history)
    assert found >= best * (1 - 1e-10)
    if not any(run.edits for run in history[1:]):
        assert found == pytest.approx(best, rel=1e-10)


def test_the_cost_of_a_query_is_bounded_by_the_horizon():
    """On a long chain, a query makes a bounded number of function calls for each run within the horizon and one for
    every other run, however many steps the runs have."""

    def cost(runs: int, steps: int) -> int:
        chain = accountant.replay(FIRST, [Run(steps=steps)] * runs)
        return calls(lambda: accountant.unlearning_mu(chain, records=1))

    assert cost(2, 10**9) <= cost(2, 10**6) + 9
    assert cost(300, 50) <= cost(200, 50) + 100 + 9


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", [{"num_slots": 101}, {"num_classes": 3}, {"l2": 0.06}, {"radius": 2.0}])
def test_runs_of_one_chain_differ_only_in_step_size_and_noise(changed):
    """The runs of a chain can differ in step size and noise scale, but not in any other value on which the bound
    depends."""
    run = Run(steps=1, mechanism=with_(**changed))
    attempts: list[Any] = [
        lambda: accountant.replay(FIRST, [run]),
        lambda: restart_mu(FIRST, [run]),
    ]
    for attempt in attempts:
        with pytest.raises(PreconditionError, match=f"same_problem: Expected {next(iter(changed))}="):
            attempt()
