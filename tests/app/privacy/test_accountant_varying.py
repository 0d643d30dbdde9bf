"""Chains whose runs differ in step size and noise scale: the same two scalars, and when they may be read."""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.privacy import accountant
from app.privacy.accountant import Chain, Run
from app.privacy.errors import PreconditionError
from app.privacy.mechanism import Adjacency, Mechanism, Objective

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
    """For every step its mechanism and how many records the data differ by from the final data."""
    made = FIRST
    for index, run in enumerate(history):
        made = run.mechanism or made
        differing = sum(later.edits for later in history[index + 1 :])
        yield from [(made, differing)] * run.steps


def stepwise(history: list[Run], *, apart: float = 0.0) -> tuple[float, float]:
    """(mu, least z_t / W_t over all steps): the recursion and its shifts, one step at a time."""
    steps = list(steps_of(history))
    at = [(apart, 0.0)]
    for made, differing in steps:
        influence, variance = at[-1]
        s = differing * made.sensitivity(Adjacency.ZERO_OUT)
        at.append((made.contraction * influence + s, made.contraction**2 * variance + made.step_variance))
    influence, variance = at[-1]
    later = list(itertools.accumulate((made.contraction for made, _ in reversed(steps)), lambda a, c: a * c, initial=1))
    least, z = 0.0, apart
    for (made, differing), after, (reach, _) in zip(steps, later[-2::-1], at[1:], strict=True):
        z = made.contraction * z + differing * made.sensitivity(Adjacency.ZERO_OUT)
        z -= influence / variance * made.step_variance * after
        least = min(least, z / reach if reach else 0.0)
    return influence / math.sqrt(variance), least


def feasible(history: list[Run], *, apart: float = 0.0) -> bool:
    _, least = stepwise(history, apart=apart)
    assume(least > -1e-11 or least < -1e-8)
    return least > -1e-9


def exact_mu(history: list[Run], *, slopes: list[float], signs: list[float]) -> float:
    """mu of x <- slope x + eta g / n0 + N(0, nu^2), whose g differ by `signs` times the differing records."""
    distance, variance = 0.0, 0.0
    for (made, differing), slope, sign in zip(steps_of(history), slopes, signs, strict=True):
        distance = slope * distance + sign * differing * made.sensitivity(Adjacency.ZERO_OUT)
        variance = slope**2 * variance + made.step_variance
    return abs(distance) / math.sqrt(variance)


# --- the check -------------------------------------------------------------------------------------------------------


@settings(max_examples=400)
@given(history=histories, imported=st.booleans())
def test_it_is_the_recursion_where_all_shifts_are_feasible_and_refused_elsewhere(history, imported):
    """Checking where the noise fell is checking every step, and what passes is W / sqrt(V) step by step."""
    apart = 2 * FIRST.radius if imported else 0.0
    chain = accountant.resume(accountant.imported(FIRST) if imported else accountant.started(FIRST), history)
    if feasible(history, apart=apart):
        mu, _ = stepwise(history, apart=apart)
        assert accountant.unlearning_mu(chain) == pytest.approx(mu, rel=1e-10)
    else:
        with pytest.raises(PreconditionError) as refusal:
            accountant.unlearning_mu(chain)
        assert refusal.value.name == "shifts_feasible"


@given(history=histories, records=st.integers(0, 9))
def test_what_is_deleted_now_is_checked_too(history, records):
    """Asking what a deletion would leave is asking after it, with no step run."""
    chain = accountant.replay(FIRST, history)
    after = dataclasses.replace(
        chain, influence=chain.influence + records * chain.presence, edits=chain.edits + records
    )
    outcomes = []
    for ask in (lambda: accountant.unlearning_mu(chain, records=records), lambda: accountant.unlearning_mu(after)):
        try:
            outcomes.append(ask())
        except PreconditionError as error:
            outcomes.append(error.name)
    assert outcomes[0] == outcomes[1]


@given(history=histories, sizes=st.lists(st.floats(0.05, 6.0), min_size=6, max_size=6))
def test_neither_step_size_nor_rising_noise_needs_a_check(history, sizes):
    """Whatever the step sizes, while the noise does not fall every shift is feasible and nothing is remembered."""
    scales = sorted(run.mechanism.noise_scale if run.mechanism else 0.1 for run in history)
    history = [
        dataclasses.replace(run, mechanism=with_(step_size=size, noise_scale=scale))
        for run, size, scale in zip(history, sizes, scales, strict=False)
    ]
    chain = accountant.replay(FIRST, history)
    mu, least = stepwise(history)
    assert chain.falls == ()
    assert least > -1e-11
    assert accountant.unlearning_mu(chain) == pytest.approx(mu, rel=1e-10)


TOO_SOON = [Run(steps=50, mechanism=with_(noise_scale=1.0)), Run(steps=5, mechanism=FIRST), Run(steps=1, records=1)]


def test_a_deletion_too_soon_after_the_noise_fell_is_refused():
    """W / sqrt(V) would hide the quiet steps behind the loud ones: a quadratic exceeds it, so it is no bound."""
    chain = accountant.replay(FIRST, TOO_SOON)
    with pytest.raises(PreconditionError, match=r"shifts_feasible: Expected influence=.* after 50 steps"):
        accountant.unlearning_mu(chain)
    slopes = [0.9] * 50 + [0.4] + [0.9] * 5  # at the first quiet step the curvature is L
    assert exact_mu(TOO_SOON, slopes=slopes, signs=[1.0] * 56) > 1.2 * chain.influence / math.sqrt(chain.variance)


def test_more_steps_heal_it():
    """Once enough steps have followed the last edit the shifts are feasible, and remain so."""
    for steps, healed in ((0, False), (100, True), (101, True), (400, True)):
        history = [*TOO_SOON, Run(steps=steps)] if steps else TOO_SOON
        mu, least = stepwise(history)
        assert (least > -1e-9) is healed
        if healed:
            assert accountant.unlearning_mu(accountant.replay(FIRST, history)) == pytest.approx(mu, rel=1e-10)


@given(history=histories, more=st.integers(1, 60))
def test_what_is_feasible_stays_feasible_until_the_next_edit(history, more):
    """Steps on the same data never make a shift infeasible, as long as the noise does not fall."""
    assume(feasible(history))
    accountant.unlearning_mu(accountant.replay(FIRST, [*history, Run(steps=more)]))


# --- exact on quadratics ---------------------------------------------------------------------------------------------


def slopes_within(history: list[Run], draw: Any) -> list[float]:
    """1 - eta h for curvatures h in [m, L] chosen by `draw` for every step."""
    return [1 - made.step_size * draw(made.strong_convexity, made.smoothness) for made, _ in steps_of(history)]


@settings(max_examples=300)
@given(history=histories, seed=st.integers(0, 2**32))
def test_no_quadratic_exceeds_what_is_not_refused(history, seed):
    """For any curvatures in [m, L] and any pulls of the records, step by step, the exact mu stays below the bound."""
    assume(feasible(history))
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
def test_it_is_exact_for_the_worst_quadratic(history):
    """Where the curvature m decides in every step, it attains the bound, however eta and sigma vary."""
    assume(all(made.step_size <= 5 for made, _ in steps_of(history)))
    assume(feasible(history))
    bound = accountant.unlearning_mu(accountant.replay(FIRST, history))
    slopes = slopes_within(history, lambda low, high: low)
    assert exact_mu(history, slopes=slopes, signs=[1.0] * len(slopes)) == pytest.approx(bound, rel=1e-11)


# --- books -----------------------------------------------------------------------------------------------------------


@given(history=histories)
def test_keeping_books_is_replaying(history):
    """Advancing run by run gives exactly what a replay gives, falls included."""
    chain = accountant.started(FIRST)
    for index, run in enumerate(history, start=1):
        chain = accountant.advance(chain, run)
        assert chain == accountant.replay(FIRST, history[:index])


@given(history=histories)
def test_naming_the_same_mechanism_is_naming_none(history):
    """A run that states the mechanism of the run before it is the run that states none, to the last bit."""
    plain = [dataclasses.replace(run, mechanism=None) for run in history]
    named = [dataclasses.replace(run, mechanism=FIRST) for run in history]
    assert accountant.replay(FIRST, named) == accountant.replay(FIRST, plain)


@given(history=histories, data=st.data())
def test_one_person_is_followed_through_varying_runs(history, data):
    """`deletion` where mechanisms vary is the recursion over the steps since the records came, theirs alone."""
    came = data.draw(st.integers(0, len(history) - 1))
    left = data.draw(st.integers(came, len(history) - 1))
    absent, present = (sum(run.steps for run in part) for part in (history[:came], history[came:left]))
    alone = accountant.alone(FIRST, history, records=2, steps_present=present, steps_absent=absent)
    steps = list(steps_of(history))[absent:]
    assert [made for made, _ in steps_of(alone)] == [made for made, _ in steps]
    assert [differing for _, differing in steps_of(alone)] == [2] * present + [0] * (len(steps) - present)
    assume(feasible(alone))
    assert accountant.unlearning_mu(accountant.replay(FIRST, alone)) == pytest.approx(stepwise(alone)[0], rel=1e-10)


@given(history=histories)
def test_a_restart_is_the_best_import_that_is_feasible(history):
    """The comparison begins anew before the run where that helps most, and where its shifts are feasible."""
    spelt, made = [], FIRST
    for run in history:
        made = run.mechanism or made
        spelt.append(dataclasses.replace(run, mechanism=made))
    suffixes = [spelt[index:] for index in range(len(spelt))]
    best = min(
        (stepwise(suffix, apart=2.0)[0] for suffix in suffixes if feasible(suffix, apart=2.0)),
        default=math.inf,
    )
    assert accountant.restart_mu(FIRST, history) == pytest.approx(best, rel=1e-10)


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", [{"num_slots": 101}, {"num_classes": 3}, {"l2": 0.06}, {"radius": 2.0}])
def test_a_chain_keeps_its_problem(changed):
    """Runs of one chain may differ in step size and noise scale, and in nothing else the bound depends on."""
    run = Run(steps=1, mechanism=with_(**changed))
    attempts: list[Any] = [
        lambda: accountant.replay(FIRST, [run]),
        lambda: accountant.alone(FIRST, [run], records=1, steps_present=0),
        lambda: accountant.restart_mu(FIRST, [run]),
    ]
    for attempt in attempts:
        with pytest.raises(PreconditionError, match=f"same_problem: Expected {next(iter(changed))}="):
            attempt()


@pytest.mark.parametrize("changed", [{"step_size": 1.0}, {"noise_scale": 0.2}, {"noise_scale": 0.05}])
def test_the_closed_form_is_for_one_mechanism(changed):
    """`deletion_mu` refuses a chain of several mechanisms, also after the first has returned."""
    history = [Run(steps=9), Run(steps=3, mechanism=with_(**changed)), Run(steps=5, records=1, mechanism=FIRST)]
    chain: Chain = accountant.replay(FIRST, history)
    with pytest.raises(PreconditionError, match="mechanism_constant"):
        accountant.deletion_mu(chain, records=1, steps_present=12)
