"""Edits of every kind, models that were trained elsewhere, and histories that start over."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lethe.proof import accountant, conversion, methods
from lethe.proof.accountant import Exposure, Run
from lethe.proof.errors import DomainError
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Adjacency, Mechanism
from tests.lethe.proof.restart import restart_mu
from tests.tables import each


def mechanism(**changed: Any) -> Mechanism:
    set_up = {"num_slots": 100, "num_classes": 2, "l2": 0.05, "step_size": 2.0, "noise_scale": 0.1, "radius": 1.0}
    return Mechanism(objective=Objective.LOGISTIC_REGRESSION, **{**set_up, "learn_steps": 50, **changed})


few = st.integers(0, 6)
runs = st.builds(Run, steps=st.integers(1, 40), records=few, inserted=few, corrected=few)
histories = st.lists(runs, min_size=1, max_size=6)
made_with = st.builds(mechanism, l2=st.sampled_from([1e-4, 0.05, 1.0]), step_size=st.floats(0.1, 1.5))


def steps_of(history: list[Run]) -> int:
    return sum(run.steps for run in history)


def gaps(history: list[Run], weights: list[int]) -> list[int]:
    """Return for each step the number of records by which its data differ from the final data."""
    return [sum(weights[index + 1 :]) for index, run in enumerate(history) for _ in range(run.steps)]


def stepwise(made: Mechanism, differing: list[int], *, apart: float = 0.0) -> float:
    """Return mu, computed step by step with the recursion, from starts `apart` and with `differing` records in each
    step."""
    influence, variance = apart, 0.0
    for records in differing:
        influence = made.contraction * influence + records * made.sensitivity(Adjacency.ZERO_OUT)
        variance = made.contraction**2 * variance + made.step_variance
    return influence / math.sqrt(variance)


def exact_mu(made: Mechanism, *, curvatures: list[float], pulls: list[float], apart: float = 0.0) -> float:
    """Return mu of x <- (1 - eta h) x + eta g / n0 + N(0, nu^2) from two points `apart`, where the two g differ by
    `pulls`."""
    distance, variance = apart, 0.0
    for h, pull in zip(curvatures, pulls, strict=True):
        slope = 1 - made.step_size * h
        distance = slope * distance + made.step_size * pull / made.num_slots
        variance = slope**2 * variance + made.step_variance
    return abs(distance) / math.sqrt(variance)


# --- edits -----------------------------------------------------------------------------------------------------------


@given(made=made_with, history=histories)
def test_edits_count_in_earlier_steps(made, history):
    """In every step before an edit, a deletion or insertion counts as one differing record and a correction as two."""
    weights = [run.records + run.inserted + 2 * run.corrected for run in history]
    chain = accountant.replay(made, history)
    assert accountant.unlearning_mu(chain) == pytest.approx(stepwise(made, gaps(history, weights)), rel=1e-10)
    assert chain.edits == sum(weights)


@given(made=made_with, history=histories)
def test_an_insertion_costs_as_much_as_a_deletion(made, history):
    """Replacing deletions by insertions, or a correction by two deletions, leaves the replayed chain unchanged."""
    deleted = [Run(steps=run.steps, records=run.records + run.inserted + 2 * run.corrected) for run in history]
    assert accountant.replay(made, history) == accountant.replay(made, deleted)


@each(
    ("edit", "pull"),
    [({"records": 3}, 3.0), ({"inserted": 3}, -3.0), ({"corrected": 3}, 6.0), ({"records": 1, "inserted": 2}, 3.0)],
)
@each("l2", [1e-4, 0.05, 1.0])
def test_the_bound_is_exact_for_every_kind_of_edit(edit, pull, l2):
    """For a quadratic of curvature m and records that shift each step as far as possible, the bound equals the exact mu
    for every kind of edit."""
    made = mechanism(l2=l2, step_size=1 / (0.25 + l2))
    chain = accountant.replay(made, [Run(steps=60), Run(steps=9, **edit)])
    exact = exact_mu(made, curvatures=[l2] * 69, pulls=[pull] * 60 + [0.0] * 9)
    assert accountant.unlearning_mu(chain) / exact == pytest.approx(1, rel=1e-12)


@pytest.mark.slow
@settings(max_examples=200)
@given(seed=st.integers(0, 2**32), share=st.floats(0.1, 1.9), l2=st.floats(1e-3, 1.0))
def test_no_quadratic_exceeds_the_bound_for_random_edits(seed, share, l2):
    """If slots are repeatedly filled, emptied and corrected at random, a quadratic's exact mu stays below the bound."""
    made = mechanism(l2=l2, step_size=share / (0.25 + l2))
    generator = np.random.default_rng(seed)
    slots = np.where(generator.random(5) < 0.5, generator.uniform(-1, 1, 5), 0.0)  # 0: null
    history, contents = [], []
    for index in range(5):
        edits = {"records": 0, "inserted": 0, "corrected": 0}
        for slot in range(5) if index else ():
            fresh = generator.choice([-1.0, 1.0])
            match generator.integers(4), slots[slot]:
                case 0, 0.0:
                    slots[slot], edits["inserted"] = fresh, edits["inserted"] + 1
                case 1, content if content:
                    slots[slot], edits["records"] = 0.0, edits["records"] + 1
                case 2, content if content:
                    slots[slot], edits["corrected"] = fresh, edits["corrected"] + 1
        history.append(Run(steps=int(generator.integers(1, 30)), **edits))
        contents += [slots.copy()] * history[-1].steps
    pulls = [float((content - slots).sum()) for content in contents]
    curvatures = list(generator.uniform(l2, 0.25 + l2, size=len(pulls)))
    bound = accountant.unlearning_mu(accountant.replay(made, history))
    assert exact_mu(made, curvatures=curvatures, pulls=pulls) <= bound * (1 + 1e-12)
    assert exact_mu(made, curvatures=[l2] * len(pulls), pulls=pulls) <= bound * (1 + 1e-12)


@each("value", [-1, 0.5, math.nan, math.inf, True, None, "3"])
@each("kind", ["inserted", "corrected"])
def test_invalid_edits_are_refused(kind, value):
    """An invalid number of edits is refused with a specific error."""
    with pytest.raises(DomainError, match=f"integer {kind}="):
        Run(steps=1, **{kind: value})


def test_events_of_another_kind_are_refused():
    """An event that is not a run is refused, even if it has the same fields."""

    @dataclasses.dataclass
    class Jog:
        steps: int = 3
        edits: int = 0
        mechanism: None = None

    stranger: Any = Jog()
    with pytest.raises(DomainError, match="Jog"):
        accountant.advance(accountant.started(mechanism()), stranger)


# --- records that were inserted later --------------------------------------------------------------------------------


@given(made=made_with, absent=st.integers(1, 60), present=st.integers(1, 60), since=st.integers(1, 60))
def test_steps_before_an_insertion_do_not_count(made, absent, present, since):
    """Noise and steps before an insertion are not counted, as if the chain had started at the insertion."""
    chain = accountant.replay(made, [Run(steps=absent), Run(steps=present, inserted=2), Run(steps=since, records=2)])
    late = accountant.deletion_mu(chain, records=2, steps_present=present, steps_absent=absent)
    assert late == pytest.approx(stepwise(made, [2] * present + [0] * since), rel=1e-10)
    young = accountant.replay(made, [Run(steps=present), Run(steps=since)])
    assert late == pytest.approx(accountant.deletion_mu(young, records=2, steps_present=present), rel=1e-12)
    pulls = [0.0] * absent + [2.0] * present + [0.0] * since
    assert exact_mu(made, curvatures=[made.l2] * len(pulls), pulls=pulls) <= late * (1 + 1e-12)


def test_noise_before_an_insertion_does_not_hide_it():
    """A bound that counts the whole chain's noise would be too small: a quadratic that forgets its start in a single
    step has a larger exact mu."""
    made = mechanism(l2=0.01, step_size=1 / 0.26)
    chain = accountant.replay(made, [Run(steps=200), Run(steps=5, inserted=1)])
    curvatures = [0.26] * 200 + [0.01] * 5
    exact = exact_mu(made, curvatures=curvatures, pulls=[0.0] * 200 + [1.0] * 5)
    push = accountant.replay(made, [Run(steps=5)]).presence
    assert push / math.sqrt(chain.variance) < 0.7 * exact
    late = accountant.deletion_mu(chain, records=1, steps_present=5, steps_absent=200)
    assert exact <= late
    assert late == accountant.release_mu(made, steps=5, adjacency=Adjacency.ZERO_OUT)


@given(made=made_with, history=histories, data=st.data())
def test_deletion_follows_one_person(made, history, data):
    """A person's `deletion` mu equals the `unlearning` mu of a history that starts when the person's records are
    inserted and contains no other edits."""
    came = data.draw(st.integers(0, len(history) - 1))
    left = data.draw(st.integers(came, len(history) - 1))
    spans = {"steps_absent": steps_of(history[:came]), "steps_present": steps_of(history[came:left])}
    own = [Run(steps=run.steps, records=3 if place == left else 0) for place, run in enumerate(history)][came:]
    found = accountant.deletion_mu(accountant.replay(made, history), records=3, **spans)
    assert found == pytest.approx(accountant.unlearning_mu(accountant.replay(made, own)), rel=1e-10)


def test_edits_within_a_run_are_refused():
    """An insertion or deletion in the middle of a run, or after the last run, is refused."""
    chain = accountant.replay(mechanism(), [Run(steps=5), Run(steps=7)])
    for spans in ({"steps_present": 4}, {"steps_present": 2, "steps_absent": 3}, {"steps_present": 6}):
        with pytest.raises(DomainError, match="runs to begin"):
            accountant.deletion_mu(chain, records=1, **spans)
    with pytest.raises(DomainError, match="steps_present"):
        accountant.deletion_mu(chain, records=1, steps_present=6, steps_absent=7)
    assert accountant.deletion_mu(chain, records=1, steps_present=0, steps_absent=12) == 0


def test_retraining_does_not_undo_published_versions():
    """A new chain does not depend on edits of the previous one, but mu for its readers includes the versions of both
    chains."""
    made = mechanism()
    assert accountant.unlearning_mu(accountant.replay(made, [Run(steps=50, records=5, inserted=1, corrected=2)])) == 0
    before = Exposure(mechanism=made, records=1, releases=((9, 2), (50, 1)))
    after = Exposure(mechanism=dataclasses.replace(made, noise_scale=0.3), records=1, releases=((50, 1),))
    read = [methods.adaptive_mu(exposures) for exposures in ([before], [after], [before, after])]
    assert read[2] == pytest.approx(math.hypot(read[0], read[1]), rel=1e-14)


# --- imported models -------------------------------------------------------------------------------------------------


@given(made=made_with, history=histories)
def test_an_imported_model_starts_anywhere_in_the_ball(made, history):
    """A chain from an imported model starts with W = 2R and V = 0, both for `unlearning` and for `deletion`."""
    weights = [run.edits for run in history]
    chain = accountant.resume(accountant.imported(made), history)
    expected = stepwise(made, gaps(history, weights), apart=2 * made.radius)
    assert accountant.unlearning_mu(chain) == pytest.approx(expected, rel=1e-10)
    present = history[0].steps
    expected = stepwise(made, [4] * present + [0] * (chain.steps - present), apart=2 * made.radius)
    assert accountant.deletion_mu(chain, records=4, steps_present=present) == pytest.approx(expected, rel=1e-10)


def test_a_record_inserted_after_an_import_is_independent_of_it():
    """The `deletion` mu of a record inserted after an import is the same as without the import."""
    made, history = mechanism(), [Run(steps=20), Run(steps=5, inserted=1), Run(steps=8, records=1)]
    chains = accountant.resume(accountant.imported(made), history), accountant.replay(made, history)
    here, there = (accountant.deletion_mu(c, records=1, steps_present=5, steps_absent=20) for c in chains)
    assert here == there


def test_an_imported_model_has_no_bound_before_its_first_step():
    """An imported model has an infinite bound until its first noisy step."""
    chain = accountant.imported(mechanism())
    assert accountant.unlearning_mu(chain) == math.inf
    assert accountant.deletion_mu(chain, records=1, steps_present=0) == math.inf


@given(made=made_with, steps=st.integers(1, 10**5), radius=st.floats(1e-3, 1e3))
def test_reset_matches_its_formula(made, steps, radius):
    """K steps from any start have mu = c^K 2R / sqrt(nu^2 (1 - c^2K)/(1 - c^2)), which is exact and decreases with
    K."""
    made = dataclasses.replace(made, radius=radius)
    c = made.contraction
    variance = made.step_variance * math.expm1(2 * steps * math.log(c)) / math.expm1(2 * math.log(c))
    mu = accountant.reset_mu(made, steps=steps)
    assert mu == pytest.approx(2 * radius * c**steps / math.sqrt(variance), rel=1e-10, abs=1e-300)
    assert accountant.reset_mu(made, steps=steps + 1) <= mu


@pytest.mark.parametrize(("epsilon_mu", "steps"), [(0.3, 60), (3.0, 5)])
def test_reset_is_exact_for_the_worst_quadratic(epsilon_mu, steps):
    """With curvature m, two starts at opposite ends of the ball attain the reset bound."""
    made = mechanism(radius=epsilon_mu)
    exact = exact_mu(made, curvatures=[0.05] * steps, pulls=[0.0] * steps, apart=2 * epsilon_mu)
    assert accountant.reset_mu(made, steps=steps) / exact == pytest.approx(1, rel=1e-12)


def test_known_numbers_of_steps_forget_any_start():
    """For the MNIST model of Chien et al. and R = 100, 167 steps reach (epsilon, delta) = (1, 1/n), and 211 steps reach
    (0.1, 1/n)."""
    made = mechanism(num_slots=11982, l2=0.0119, step_size=1 / 0.2619, noise_scale=0.03, radius=100.0)
    for epsilon, least in ((1.0, 167), (0.1, 211)):
        target = conversion.gdp_mu(epsilon=epsilon, delta=1 / 11982)
        assert accountant.reset_mu(made, steps=least) <= target < accountant.reset_mu(made, steps=least - 1)


# --- restarting ------------------------------------------------------------------------------------------------------


@given(made=made_with, history=histories)
def test_a_restart_is_an_import_before_the_best_run(made, history):
    """The restart bound is the minimum, over all runs, of the bound for an imported model whose history starts with
    that run."""
    best = min(
        accountant.unlearning_mu(accountant.resume(accountant.imported(made), history[index:]))
        for index in range(len(history))
    )
    assert restart_mu(made, history) == pytest.approx(best, rel=1e-10)


def test_a_restart_bounds_many_edits():
    """With restarts, the distance never exceeds the ball's diameter 2R, even if every slot is edited ten times."""
    made = mechanism(l2=1e-4, step_size=1 / 0.2501, radius=1.0)
    history = [Run(steps=5000), Run(steps=40, corrected=100), Run(steps=400, records=1)]
    chain = accountant.replay(made, history)
    assert restart_mu(made, history) < 0.01 * accountant.unlearning_mu(chain)
    assert restart_mu(made, history[:2]) == pytest.approx(accountant.reset_mu(made, steps=40), rel=1e-12)
    assert restart_mu(made, []) == math.inf


def test_a_restart_does_not_help_after_few_edits():
    """A restart does not lower the bound of a single deletion, because a deletion moves the chain by less than
    the ball's diameter."""
    made = mechanism(radius=20.0)
    history = [Run(steps=100), Run(steps=9, records=1)]
    assert accountant.unlearning_mu(accountant.replay(made, history)) < restart_mu(made, history)


# --- compact histories -----------------------------------------------------------------------------------------------


@given(made=made_with, history=st.lists(runs, min_size=1, max_size=40))
def test_a_compact_history_bounds_edits_of_every_kind(made, history):
    """Dropping old events lowers mu by at most their remaining effect. A history with varying mechanisms is not
    shortened."""
    long = [dataclasses.replace(run, steps=50 * run.steps) for run in history]
    left_out, short = accountant.compact(made, long)
    whole, less = accountant.replay(made, long), accountant.replay(made, short, steps_before=left_out)
    rest = 1e-16 * made.radius / math.sqrt(whole.variance)
    assert accountant.unlearning_mu(less) >= accountant.unlearning_mu(whole) * (1 - 1e-11) - rest
    assert less.steps == whole.steps
    louder = dataclasses.replace(made, noise_scale=1.0)
    varied = [*long, Run(steps=3, mechanism=louder)]
    assert accountant.compact(made, varied) == (0, varied)
