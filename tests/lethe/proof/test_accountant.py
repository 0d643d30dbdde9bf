import dataclasses
import itertools
import math
from collections import Counter
from typing import Any

import mpmath
import pytest
from hypothesis import assume, given, settings, strategies as st

from lethe.proof import accountant, methods
from lethe.proof.accountant import Chain, Exposure, Run
from lethe.proof.errors import DomainError
from lethe.proof.lookback import Lookback
from lethe.proof.mechanism import Adjacency, Mechanism
from tests.lethe.proof.mnist import mechanism


@st.composite
def mechanisms(draw: st.DrawFn) -> Mechanism:
    """Draw a mechanism whose contraction is between 0.002 and 1 - 1e-12."""
    classes = draw(st.sampled_from([2, 4]))
    l2 = 10.0 ** draw(st.floats(-11, 1))
    return mechanism(
        num_slots=draw(st.integers(1, 10**7)),
        num_classes=classes,
        l2=l2,
        step_size=draw(st.floats(0.05, 1.0)) * 2 / ((0.25 if classes == 2 else 0.5) + 2 * l2),
        noise_scale=10.0 ** draw(st.floats(-6, 2)),
    )


runs = st.builds(Run, steps=st.integers(1, 3000), records=st.integers(0, 40))
histories = st.lists(runs, min_size=1, max_size=8)


def steps_of(history: list[Run]) -> int:
    return sum(run.steps for run in history)


def numbers(chain: Chain) -> list[float]:
    return [chain.steps, chain.edits, chain.variance, chain.presence, chain.influence, accountant.unlearning_mu(chain)]


# --- the recursion ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"step_size": 2 / 0.35},
        {"l2": 1e-12},
        {"l2": 2e-15},
        {"l2": 100.0, "step_size": 2 / 200.25},
        {"num_classes": 5, "step_size": 0.01},
    ],
)
def test_the_accountant_matches_the_recursion(changed):
    """The accountant's W and V equal the recursions W <- c W + s and V <- c^2 V + nu^2, computed step by step
    with 50 digits."""
    made = mechanism(**changed)
    history = [Run(steps=40), Run(steps=7, records=3), Run(steps=1, records=2), Run(steps=25)]
    with mpmath.workdps(50):
        c, nu2 = mpmath.mpf(made.contraction), mpmath.mpf(made.step_variance)
        s = mpmath.mpf(made.sensitivity(Adjacency.ZERO_OUT))
        variance, presence, influences = mpmath.mpf(0), mpmath.mpf(0), []
        for run in history:
            influences += [presence] * run.records
            for _ in range(run.steps):
                variance, presence = c**2 * variance + nu2, c * presence + s
                influences = [c * influence for influence in influences]
        chain = accountant.replay(made, history)
        assert chain.steps == 73
        assert chain.variance == pytest.approx(float(variance), rel=1e-13)
        assert chain.presence == pytest.approx(float(presence), rel=1e-13)
        assert chain.influence == pytest.approx(float(sum(influences)), rel=1e-13)
        mu = sum(influences) / mpmath.sqrt(variance)
        assert accountant.unlearning_mu(chain) == pytest.approx(float(mu), rel=1e-11)
        mu = 2 * influences[-1] / mpmath.sqrt(variance)
        assert accountant.deletion_mu(chain, records=2, steps_present=47) == pytest.approx(float(mu), rel=1e-11)


def test_a_long_run_is_stationary():
    """After many steps, W is s/(1 - c) and V is nu^2/(1 - c^2), even if c is within 1e-11 of 1."""
    for made in (mechanism(), mechanism(l2=1e-11)):
        chain = accountant.replay(made, [Run(steps=10**15)])
        c = made.contraction
        assert chain.presence == pytest.approx(made.sensitivity(Adjacency.ZERO_OUT) / (1 - c), rel=1e-12)
        assert chain.variance == pytest.approx(made.step_variance / (1 - c) / (1 + c), rel=1e-12)


def test_a_chain_without_steps_has_its_initial_law():
    """A chain without steps has its initial distribution, whatever the data."""
    chain = accountant.started(mechanism())
    assert (chain.steps, accountant.unlearning_mu(chain, records=5)) == (0, 0.0)


def test_one_step_is_the_gaussian_mechanism():
    """After one step, one record's mu is that of the Gaussian mechanism: the sensitivity divided by the standard
    deviation."""
    made = mechanism()
    for adjacency in Adjacency:
        expected = made.sensitivity(adjacency) / math.sqrt(made.step_variance)
        assert accountant.release_mu(made, steps=1, adjacency=adjacency) == pytest.approx(expected, rel=1e-13)


# --- laws ------------------------------------------------------------------------------------------------------------


@given(made=mechanisms(), history=histories, run=runs, share=st.floats(0, 1))
def test_splitting_a_run_changes_nothing(made, history, run, share):
    """Without a cool-down, splitting a run in two does not change the result."""
    assume(run.steps > 1)
    first = min(max(1, round(share * run.steps)), run.steps - 1)
    whole = accountant.replay(made, [*history, run])
    parts = accountant.replay(made, [*history, Run(steps=first, records=run.records), Run(steps=run.steps - first)])
    assert numbers(parts) == pytest.approx(numbers(whole), rel=1e-11, abs=1e-300)


@given(made=mechanisms(), history=histories)
def test_incremental_accounting_matches_a_replay(made, history):
    """Advancing the chain run by run, as the service does, gives exactly the result of a verifier's replay."""
    chain = accountant.started(made)
    for run in history:
        chain = accountant.advance(chain, run)
    assert chain == accountant.replay(made, history)


@given(made=mechanisms(), history=histories)
def test_influence_is_the_sum_over_deletions(made, history):
    """The influence of all deleted records is the sum of the individual deletions' `deletion_mu`."""
    chain = accountant.replay(made, history)
    present = itertools.accumulate((run.steps for run in history), initial=0)
    each = [
        accountant.deletion_mu(chain, records=run.records, steps_present=steps)
        for run, steps in zip(history, present, strict=False)
    ]
    assert accountant.unlearning_mu(chain) == pytest.approx(math.fsum(each), rel=1e-11, abs=1e-300)
    assert all(mu <= accountant.unlearning_mu(chain) * (1 + 1e-11) for mu in each)


@given(made=mechanisms(), history=histories, records=st.integers(1, 50))
def test_a_deletion_turns_presence_into_influence(made, history, records):
    """A deletion adds the presence of each deleted record to the chain's influence, and the next step lowers the
    resulting mu."""
    chain = accountant.replay(made, history)
    before = accountant.unlearning_mu(chain, records=records)
    expected = (chain.influence + records * chain.presence) / math.sqrt(chain.variance)
    assert before == pytest.approx(expected, rel=1e-11)
    after = accountant.advance(chain, Run(steps=1, records=records))
    assert accountant.unlearning_mu(after) < before


@given(made=mechanisms(), history=histories, steps=st.integers(1, 10**6))
def test_steps_after_a_deletion_never_raise_mu(made, history, steps):
    """Additional steps without the records never raise mu."""
    fewer = accountant.replay(made, [*history, Run(steps=steps, records=1)])
    more = accountant.advance(fewer, Run(steps=1))
    assert accountant.unlearning_mu(more) <= accountant.unlearning_mu(fewer) * (1 + 1e-13)


@given(made=mechanisms(), history=histories, records=st.integers(0, 10**6))
def test_more_records_never_lower_mu(made, history, records):
    """More deleted records never lower mu: it rises for `unlearning` and does not fall for `deletion`."""
    chain = accountant.replay(made, history)
    assert accountant.unlearning_mu(chain, records=records) < accountant.unlearning_mu(chain, records=records + 1)
    present = history[0].steps
    fewer, more = (accountant.deletion_mu(chain, records=r, steps_present=present) for r in (records, records + 1))
    assert fewer <= more


@given(made=mechanisms(), history=histories, factor=st.floats(1.01, 100))
def test_mu_is_inversely_proportional_to_the_noise(made, history, factor):
    """Mu is inversely proportional to the noise."""
    louder = dataclasses.replace(made, noise_scale=made.noise_scale * factor)
    mu, less = (accountant.unlearning_mu(accountant.replay(m, history)) for m in (made, louder))
    assert less * factor == pytest.approx(mu, rel=1e-11, abs=1e-300)


@given(made=mechanisms(), history=histories, factor=st.integers(2, 1000))
def test_mu_is_inversely_proportional_to_the_slots(made, history, factor):
    """Mu is inversely proportional to the number of slots."""
    slots = made.num_slots * factor
    larger = dataclasses.replace(made, num_slots=slots, batch_size=slots)
    mu, less = (accountant.unlearning_mu(accountant.replay(m, history)) for m in (made, larger))
    assert less * factor == pytest.approx(mu, rel=1e-11, abs=1e-300)


@given(made=mechanisms(), history=histories)
def test_retraining_removes_the_influence_of_deleted_records(made, history):
    """Records that were nulled before a retraining have no influence on the first run of the new chain."""
    assert accountant.unlearning_mu(accountant.replay(made, [Run(steps=9, records=history[0].records)])) == 0
    assert accountant.deletion_mu(accountant.replay(made, history), records=3, steps_present=0) == 0


# --- one release and many releases -----------------------------------------------------------------------------------


@given(made=mechanisms(), steps=st.integers(1, 10**6))
def test_a_longer_run_reveals_no_less(made, steps):
    """A longer run reveals no less about a record that it includes, and merging two runs into one reveals no more than
    the two runs."""
    one, next_one, two = (
        accountant.release_mu(made, steps=k, adjacency=Adjacency.ZERO_OUT) for k in (steps, steps + 1, 2 * steps)
    )
    assert one <= next_one * (1 + 1e-13)
    assert two <= math.sqrt(2) * one * (1 + 1e-12)


@given(made=mechanisms(), steps=st.integers(1, 1000))
def test_replacement_is_twice_removal(made, steps):
    """Replacing a record has twice the mu of removing it."""
    null, other = (accountant.release_mu(made, steps=steps, adjacency=adjacency) for adjacency in Adjacency)
    assert other == 2 * null


@given(
    first=mechanisms(), second=mechanisms(), records=st.integers(1, 20), steps=st.lists(st.integers(1, 500), max_size=9)
)
def test_mu_squared_of_releases_adds_up(first, second, records, steps):
    """The mu^2 of all versions of all models add up in any order, and each term grows with the square of the number of
    records."""
    exposures = [
        Exposure(mechanism=first, records=records, releases=tuple(sorted(Counter(steps).items()))),
        Exposure(mechanism=second, records=1, releases=((7, 3),)),
    ]
    each = [records * accountant.release_mu(first, steps=k, adjacency=Adjacency.ZERO_OUT) for k in steps]
    each += 3 * [accountant.release_mu(second, steps=7, adjacency=Adjacency.ZERO_OUT)]
    expected = math.hypot(*each)
    assert methods.adaptive_mu(exposures) == pytest.approx(expected, rel=1e-12)
    assert methods.adaptive_mu(exposures[::-1]) == pytest.approx(expected, rel=1e-12)


@given(made=mechanisms(), steps=st.lists(st.integers(1, 500), min_size=1, max_size=6), records=st.integers(1, 5))
def test_every_version_together_reveals_no_less_than_the_last(made, steps, records):
    """For a reader of every version, mu is at least the `deletion` mu of the last version that contains the record."""
    chain = accountant.replay(made, [Run(steps=k) for k in steps])
    exposure = Exposure(mechanism=made, records=records, releases=tuple(sorted(Counter(steps).items())))
    at_once = accountant.deletion_mu(chain, records=records, steps_present=chain.steps)
    assert methods.adaptive_mu([exposure]) >= at_once * (1 - 1e-12)


# --- a shorter history -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=300)
@given(
    made=mechanisms().filter(lambda made: made.contraction < 0.999),
    history=st.lists(st.builds(Run, steps=st.integers(1, 30_000), records=st.integers(0, 40)), min_size=1, max_size=12),
)
def test_a_compact_history_keeps_mu(made, history):
    """Shortening a history drops only its oldest runs and counts their steps. Mu changes by at most 1e-12 times the
    larger of mu itself and the mu that one record and the ball's radius would contribute."""
    left_out, short = accountant.compact(made, history)
    assert left_out + steps_of(short) == steps_of(history)
    assert short == history[len(history) - len(short) :]
    whole, less = accountant.replay(made, history), accountant.replay(made, short, steps_before=left_out)
    mu, mu_of_short = accountant.unlearning_mu(whole), accountant.unlearning_mu(less)
    one_record = (whole.presence + made.radius) / math.sqrt(whole.variance)
    assert mu_of_short == pytest.approx(mu, rel=1e-12, abs=1e-12 * one_record)
    assert less.presence == pytest.approx(whole.presence, rel=1e-12)
    assert less.variance == pytest.approx(whole.variance, rel=1e-12)


def test_a_compact_history_has_bounded_length():
    """A history of ten thousand runs is shortened to the runs within the horizon plus at most `CUT` older ones."""
    made = mechanism()
    left_out, short = accountant.compact(made, [Run(steps=50)] + [Run(steps=10, records=1)] * 10_000)
    assert len(short) <= accountant.CUT + math.log(1e-18) / math.log(made.contraction) / 10
    assert left_out + steps_of(short) == 100_050


def test_a_growing_history_is_cut_at_the_same_place():
    """With rare exceptions, a history is still cut at the same place after it grows by one run, so that cached results
    can be reused."""
    made = mechanism()
    grown = [[Run(steps=50)] + [Run(steps=10, records=1)] * age for age in range(1000, 1000 + 2 * accountant.CUT)]
    began = [accountant.compact(made, history)[0] for history in grown]
    assert len(set(began)) == 3


# --- refusals --------------------------------------------------------------------------------------------------------

NOT_COUNTS = [-1, 0.5, 3.0, math.nan, math.inf, True, None, "3", 2**53 + 1]


@pytest.mark.parametrize("value", NOT_COUNTS)
def test_invalid_counts_are_refused(value):
    """A number of steps, records or versions that is not an integer within range raises a DomainError that names it."""
    made = mechanism()
    chain = accountant.replay(made, [Run(steps=9)])
    refused: list[Any] = [
        ("steps", lambda: Run(steps=value)),
        ("records", lambda: Run(steps=1, records=value)),
        ("records", lambda: accountant.unlearning_mu(chain, records=value)),
        ("records", lambda: accountant.deletion_mu(chain, records=value, steps_present=9)),
        ("steps_present", lambda: accountant.deletion_mu(chain, records=1, steps_present=value)),
        ("steps", lambda: accountant.release_mu(made, steps=value, adjacency=Adjacency.REPLACE)),
        ("records", lambda: Exposure(mechanism=made, records=value, releases=((1, 1),))),
        ("steps", lambda: Exposure(mechanism=made, records=1, releases=((value, 1),))),
        ("count", lambda: Exposure(mechanism=made, records=1, releases=((1, 1), (1, value)))),
    ]
    for name, attempt in refused:
        with pytest.raises(DomainError, match=f"integer {name}="):
            attempt()


def test_zero_counts_are_refused():
    """A run of 0 steps, a release of 0 steps and an exposure of 0 records are refused, because zero never stands for a
    default."""
    made = mechanism()
    for attempt in (
        lambda: Run(steps=0),
        lambda: accountant.release_mu(made, steps=0, adjacency=Adjacency.ZERO_OUT),
        lambda: Exposure(mechanism=made, records=0, releases=()),
        lambda: Exposure(mechanism=made, records=1, releases=((5, 0),)),
    ):
        with pytest.raises(DomainError):
            attempt()


def test_presence_beyond_the_chain_is_refused():
    """A deletion of records that were present for more steps than the chain has taken is refused."""
    with pytest.raises(DomainError, match="steps_present=10"):
        accountant.deletion_mu(accountant.replay(mechanism(), [Run(steps=9)]), records=1, steps_present=10)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0])
def test_invalid_numbers_are_not_certified(wrong):
    """A chain whose influence or noise is NaN, infinite or negative raises an error instead of yielding a mu."""
    chain = accountant.replay(mechanism(), [Run(steps=9), Run(steps=9, records=1)])
    for moved in (Lookback((1.0,), (wrong,)), Lookback((wrong,), (1.0,))):
        with pytest.raises(DomainError):
            accountant.unlearning_mu(dataclasses.replace(chain, edited=moved))
