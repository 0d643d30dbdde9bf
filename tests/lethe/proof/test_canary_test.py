"""Bounds from samples, compared with other computations, and the law of lanes, compared with its recursion."""

import json
import math
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import special, stats

from benchmarks import refuting
from lethe.proof import calibration, canary_test, conversion
from lethe.proof.canary_test import CanaryPlan, Observed
from lethe.proof.errors import LARGEST_COUNT, DomainError
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Adjacency, Mechanism
from tests.lethe.proof.canary_statements import apart, guesses, seen
from tests.tables import each

MECHANISM = calibration.mechanism_for(
    calibration.ModelSettings(epsilon=1.0, delta=1e-5, batch_size=1000, cool_down=1),
    num_slots=1000,
    num_classes=2,
    num_parameters=21,
)
LEARNING = CanaryPlan(lanes=256, steps_before=0, steps=2601)
FORGETTING = CanaryPlan(lanes=256, steps_before=2601, steps=87)


def mechanism(**changed: Any) -> Mechanism:
    settings = {
        "objective": Objective.LOGISTIC_REGRESSION,
        "num_slots": 50,
        "num_classes": 2,
        "l2": 0.1,
        "step_size": 2.0,
        "noise_scale": 0.05,
        "radius": 10.0,
        "learn_steps": 30,
    }
    return Mechanism(**settings | changed)


# --- the law of lanes ------------------------------------------------------------------------------------------------

MECHANISMS = st.builds(
    mechanism,
    num_slots=st.integers(1, 10**6),
    num_classes=st.sampled_from([2, 5]),
    l2=st.floats(1e-4, 3.0),
    step_size=st.floats(0.05, 0.57),
    noise_scale=st.floats(1e-3, 10.0),
) | st.builds(
    mechanism,
    l2=st.floats(1.0, 30.0),
    step_size=st.floats(0.02, 0.064),  # up to 2/L, where steps overshoot the minimiser
)
PLANS = st.builds(
    CanaryPlan, lanes=st.sampled_from([2, 64]), steps_before=st.integers(0, 300), steps=st.integers(1, 300)
)


BATCHES = st.builds(
    lambda settled, slots, batch, cool_down: replace(
        settled, num_slots=slots, batch_size=min(batch, slots), cool_down=cool_down, learn_steps=99
    ),
    MECHANISMS,
    slots=st.integers(1, 40),
    batch=st.integers(1, 40),
    cool_down=st.integers(1, 20),
)


@given(MECHANISMS | BATCHES, PLANS)
def test_the_law_matches_the_recursion(settled: Mechanism, plan: CanaryPlan) -> None:
    """The mean and variance of a lane follow w <- keep w + push + nu xi step by step, with and without canaries. A
    canary pushes in the steps that read its batch, in consecutive runs and with a falling step size."""
    law, one = canary_test.law(settled, plan), settled.sensitivity(Adjacency.ZERO_OUT)
    mean, variance, at = np.zeros(len(law.place)), 0.0, 0
    there, witnessed = law.records * one, np.zeros((2, plan.groups))
    for steps, canary in ((plan.steps_before, there), (plan.steps, 0.0 if plan.steps_before else there)):
        unforeseen, decay, start, witnessed = 0.0, 1.0, (mean, variance), 0 * witnessed
        for left in range(steps, 0, -1):
            share = min(1.0, left / settled.cool_down)
            keep = 1 - share * settled.step_size * settled.l2
            mean = keep * mean + share * canary * (law.place == at % settled.num_batches)
            pushed = law.witnesses[at % settled.num_batches]
            witnessed = keep * witnessed + share * np.array([pushed, abs(pushed)])
            variance = keep**2 * variance + share * settled.step_variance
            unforeseen, decay, at = keep**2 * unforeseen + share * settled.step_variance, keep * decay, at + 1
    assert law.start == pytest.approx(start[0], rel=1e-9, abs=1e-250)
    assert law.start_variance == pytest.approx(start[1], rel=1e-9)
    assert law.push == there
    assert law.decay == pytest.approx(decay, rel=1e-9)
    assert law.mean == pytest.approx(mean, rel=1e-7, abs=1e-250)
    assert (law.unforeseen, law.variance) == pytest.approx((unforeseen, variance), rel=1e-9)
    farthest = 1e6 * math.sqrt(unforeseen)
    assert law.witnessed == pytest.approx(witnessed[0], rel=1e-7, abs=1e-10 * farthest)
    if settled.step_size * settled.l2 <= 1:
        assert max(witnessed[1]) == pytest.approx(farthest, rel=1e-7)


def test_witnesses_of_batches_differ() -> None:
    """Each of a hundred batches has 16 witnesses (artificial records), one per group of lanes. All witnesses are
    distinct, and the witnesses of any two batches are well separated."""
    settled = mechanism(num_slots=100, batch_size=1, learn_steps=300)
    law = canary_test.law(settled, replace(LEARNING, steps=300))
    assert law.witnesses.shape == (100, 16)
    assert len(np.unique(law.witnesses)) == 1600
    apart = np.linalg.norm(law.witnesses[:, None] - law.witnesses, axis=2)[~np.eye(100, dtype=bool)]
    assert apart.min() > 0.3 * abs(law.witnesses).max() * math.sqrt(16)


def test_witnesses_of_many_batches_are_shared() -> None:
    """The last of 4,097 batches has the same witnesses as the first, and the law of the lanes accounts for both
    batches."""
    settled = mechanism(num_slots=4097, batch_size=1, l2=1e-4)
    plan = CanaryPlan(lanes=32, steps_before=4096, steps=2)
    law = canary_test.law(settled, plan)
    assert law.witnesses.shape == (4096, 2)
    assert law.witnessed == pytest.approx((1 + 1 - settled.step_size * settled.l2) * law.witnesses[0], rel=1e-12)


@given(BATCHES, PLANS)
def test_canaries_are_in_the_most_affected_batches(settled: Mechanism, plan: CanaryPlan) -> None:
    """One canary is in the batch in which a canary moves its lane farthest. The others are spread over as many other
    batches as possible."""
    law = canary_test.law(settled, plan)
    everywhere = canary_test.law(settled, replace(plan, lanes=2 * settled.num_batches))
    assert max(abs(law.mean) / law.records) == pytest.approx(max(abs(everywhere.mean) / everywhere.records), rel=1e-9)
    assert len(set(law.place.tolist())) == min(settled.num_batches, plan.lanes // 2)
    assert set(everywhere.place.tolist()) == set(range(settled.num_batches))


@given(MECHANISMS | BATCHES, PLANS)
def test_lanes_never_prove_more_than_is_certified(settled: Mechanism, plan: CanaryPlan) -> None:
    """A canary's exact mu is at most the certified mu of its records. The two are equal if every step reads all rows
    and the step size is at most the optimal one."""
    law = canary_test.law(settled, plan)
    exact = max(abs(law.mean)) / math.sqrt(law.variance)
    certified = canary_test.certified_mu(settled, plan, records=law.records)
    assert exact <= certified * (1 + 1e-9)
    keep = 1 - settled.step_size * settled.l2
    if settled.num_batches == 1 and keep > 0 and settled.contraction <= keep + 2**-49:
        assert exact == pytest.approx(certified, rel=1e-6)


@given(MECHANISMS | BATCHES, PLANS)
def test_canaries_are_large_enough(settled: Mechanism, plan: CanaryPlan) -> None:
    """The lane that its canary moves farthest ends at least 2.5 standard deviations from a lane without a canary,
    unless it would have to start more than a million standard deviations away. No canary is larger than needed."""
    law = canary_test.law(settled, plan)
    apart = max(abs(law.mean)) / math.sqrt(law.variance)
    far = max(law.start) / math.sqrt(law.start_variance) if plan.steps_before else 0.0
    assert apart >= 2.5 * (1 - 1e-9) or far >= 1e6 * (1 - 1e-9)
    if law.records > 1:
        fewer = canary_test.law(settled, plan, records=law.records - 1)
        assert max(abs(fewer.mean)) / math.sqrt(fewer.variance) < 2.5
        assert not plan.steps_before or max(fewer.start) / math.sqrt(fewer.start_variance) < 1e6


@pytest.mark.parametrize("steps", [10**6, 10**12, 2**52])
def test_very_long_runs_have_a_law(steps: int) -> None:
    """Even a run after which everything has decayed below the smallest float has a law, and its tests pass."""
    plan = CanaryPlan(lanes=4, steps_before=2601, steps=steps)
    law = canary_test.law(MECHANISM, plan)
    assert (law.decay, law.mean[0], law.mean[1]) == (0, 0, 0)
    keep = 1 - MECHANISM.step_size * MECHANISM.l2
    assert law.unforeseen == pytest.approx(MECHANISM.step_variance / (1 - keep**2), rel=1e-9)
    assert seen(plan, guesses(1, 2, 1, 2), squares=4.0).findings(MECHANISM) == ()


def test_the_size_of_a_canary_is_limited() -> None:
    """If a single record has almost no effect, a canary represents the largest number of records that can be counted,
    but no more."""
    settled = mechanism(num_slots=LARGEST_COUNT, noise_scale=1e3, radius=1.0)
    for plan in (LEARNING, FORGETTING):
        law = canary_test.law(settled, plan)
        assert law.records == LARGEST_COUNT
        assert seen(plan, guesses(64, 128, 64, 128), squares=256.0, made=settled).findings(settled) == ()


def test_a_step_of_full_decay_has_a_law() -> None:
    """At a step size of 1 / l2, a lane forgets everything in one step, and the decay and the mean of its law are 0."""
    law = canary_test.law(mechanism(l2=1.0, step_size=1.0), CanaryPlan(lanes=2, steps_before=5, steps=1))
    assert (law.decay, law.mean[0]) == (0, 0)
    assert law.variance == law.unforeseen == mechanism(l2=1.0, step_size=1.0).step_variance


def drawn(plan: CanaryPlan, audits: int, generator: np.random.Generator) -> list[Observed]:
    """Return canary tests of correct runs, drawn from the exact law."""
    law, half = canary_test.law(MECHANISM, plan), plan.lanes // 2
    canaries = np.repeat([1.0, 0.0], half)
    start = law.start[0] * canaries + math.sqrt(law.start_variance) * generator.standard_normal((audits, plan.lanes))
    residuals = generator.standard_normal((audits, plan.lanes))
    ends = (start * law.decay if plan.steps_before else law.mean[0] * canaries) + math.sqrt(law.unforeseen) * residuals
    along = start if plan.steps_before else np.tile(canaries, (audits, 1))
    (residuals, means), (along, _) = apart(plan, residuals), apart(plan, along)
    drift = (residuals * along).sum(1) / np.linalg.norm(along, axis=1)
    sums = zip((residuals**2).sum(1).tolist(), drift.tolist(), (means**2).sum(1).tolist(), strict=True)
    said = ends > law.mean[0] / 2
    guessed = [guesses(int(one[:half].sum()), half, int(one[half:].sum()), half) for one in said]
    return [seen(plan, made, squares=s, drift=d, visits=v) for made, (s, d, v) in zip(guessed, sums, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("plan", [LEARNING, FORGETTING], ids=["learning", "forgetting"])
def test_false_alarms_are_within_their_rate(plan: CanaryPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a family-wise error rate of 4.5 %, the tests of noise, forgetting and schedule each raise a false alarm in 1 %
    of 6,000 correct runs, and all tests together in at most 4.5 %, within 4 standard errors. At the error rate used in
    production, at most one of the runs causes an alarm."""
    audits = drawn(plan, 6000, np.random.default_rng(4))
    assert sum(bool(one.findings(MECHANISM)) for one in audits) <= 1
    monkeypatch.setattr(canary_test, "FALSE_ALARM", 0.045)
    found = [one.findings(MECHANISM) for one in audits]
    spread = 4 * math.sqrt(0.01 / 6000)
    for name in ("noise", "forgetting", "schedule"):
        assert abs(sum(name in names for names in found) / 6000 - 0.01) < spread
    assert sum("guarantee" in names for names in found) / 6000 < 0.015 + 4 * math.sqrt(0.015 / 6000)
    assert sum(bool(names) for names in found) / 6000 < 0.045 + 4 * math.sqrt(0.045 / 6000)


@pytest.mark.slow
@pytest.mark.parametrize("plan", [LEARNING, FORGETTING], ids=["learning", "forgetting"])
def test_the_lower_bound_is_valid_and_tight(plan: CanaryPlan) -> None:
    """Over 2,000 canary tests, the reported bound never exceeds the true value, and its median is about six tenths of
    that value."""
    law = canary_test.law(MECHANISM, plan)
    truth = law.mean[0] / math.sqrt(law.variance) / law.records
    bounds = [
        one.to_json(MECHANISM, delta=1e-5)["mu_lower_bound"] for one in drawn(plan, 2000, np.random.default_rng(5))
    ]
    assert max(bounds) < truth
    assert 0.55 < np.median(bounds) / truth < 1


def outcomes(settled: Mechanism, plan: CanaryPlan) -> tuple[np.ndarray, list[Observed]]:
    """Return the exact probability of each number of right guesses that a correct run can have, and the observation for
    each number."""
    law, half = canary_test.law(settled, plan), plan.lanes // 2
    right = special.ndtr(abs(law.mean[0]) / math.sqrt(law.variance) / 2)
    counts = np.arange(plan.lanes + 1)
    made = [
        seen(plan, guesses(k - k // 2, half, half - k // 2, half), squares=float(plan.lanes), made=settled)
        for k in counts.tolist()
    ]
    return stats.binom.pmf(counts, plan.lanes, right), made


LOUD = mechanism(num_slots=1, noise_scale=0.02)  # a single record moves a lane farther than lanes need to be apart
LONG_STEPS = mechanism(l2=2.0, step_size=0.88)  # beyond 2/(L + m), where lanes show less than is certified
SUMMED = [
    pytest.param(settled, CanaryPlan(lanes=lanes, steps_before=before, steps=steps), id=f"{name}-{lanes}-{before}")
    for name, settled in {"default": MECHANISM, "plain": mechanism(), "loud": LOUD, "long": LONG_STEPS}.items()
    for before, steps in ((0, 60), (60, 7), (2601, 87))
    for lanes in (2, 64, 256, 1024)
]


@pytest.mark.slow
@each(("settled", "plan"), SUMMED)
def test_reports_of_correct_runs_are_rarely_false(settled: Mechanism, plan: CanaryPlan) -> None:
    """The probability that a correct run reports more than the true value for a record, or is refused for its
    guesses, is at most 10^-6/3, summed over the exact law of the guesses. The probability that it is refused
    for any reason is at most 10^-6."""
    law = canary_test.law(settled, plan)
    truth = abs(law.mean[0]) / math.sqrt(law.variance) / law.records
    probabilities, made = outcomes(settled, plan)
    documents = [one.to_json(settled, delta=1e-5) for one in made]
    false = sum(p for p, said in zip(probabilities, documents, strict=True) if said["mu_lower_bound"] > truth)
    refused = sum(p for p, said in zip(probabilities, documents, strict=True) if "guarantee" in said["findings"])
    assert false <= canary_test.ERROR * (1 + 1e-9)
    assert refused <= canary_test.ERROR * (1 + 1e-9)
    # The other tests have their exact levels.
    assert refused + 2 * canary_test.ERROR <= canary_test.FALSE_ALARM * (1 + 1e-9)


@pytest.mark.soak
@each(("settled", "plan"), SUMMED)
def test_no_outcome_reports_more_than_is_certified(settled: Mechanism, plan: CanaryPlan) -> None:
    """Whatever the lanes show, either the lower bound is at most the certified bound or the run is refused."""
    for delta in (1e-9, 1e-5, 0.1):
        for one in outcomes(settled, plan)[1]:
            said = one.to_json(settled, delta=delta)
            if "guarantee" not in said["findings"]:
                assert said["mu_lower_bound"] <= said["mu"]
                assert said["epsilon_lower_bound"] <= said["epsilon"]


@pytest.mark.parametrize(
    ("observed", "names"),
    [
        (seen(FORGETTING, guesses(114, 128, 14, 128), squares=256.0), ()),
        (seen(FORGETTING, guesses(128, 128, 0, 128), squares=256.0), ("guarantee",)),
        (seen(FORGETTING, guesses(114, 128, 14, 128), squares=125.0), ("noise",)),
        (seen(FORGETTING, guesses(114, 128, 14, 128), squares=0.0), ("noise",)),
        (seen(FORGETTING, guesses(114, 128, 14, 128), squares=400.0), ("noise",)),
        (seen(FORGETTING, guesses(114, 128, 14, 128), squares=256.0, drift=5.2), ("forgetting",)),
        (seen(FORGETTING, guesses(114, 128, 14, 128), squares=256.0, drift=-5.2), ("forgetting",)),
        (seen(FORGETTING, guesses(114, 128, 14, 128), squares=256.0, visits=100.0), ("schedule",)),
        (seen(FORGETTING, guesses(114, 128, 14, 128), squares=256.0, visits=0.0), ()),
        (
            seen(LEARNING, guesses(128, 128, 0, 128), squares=1e300, drift=-1e300, visits=1e300),
            ("guarantee", "noise", "forgetting", "schedule"),
        ),
    ],
)
def test_each_fault_is_named(observed: Observed, names: tuple[str, ...]) -> None:
    """Each test detects its own fault: guesses that are right too often, too little or too much noise, a shifted mean,
    or batches that were read out of order."""
    assert observed.findings(MECHANISM) == names


@pytest.mark.parametrize("lanes", [256, 512, 4096])
def test_perfect_guesses_refute_the_guarantee(lanes: int) -> None:
    """If every guess after a run is right, a few hundred lanes are enough to refute the run's guarantee."""
    plan = replace(FORGETTING, lanes=lanes)
    observed = seen(plan, guesses(lanes // 2, lanes // 2, 0, lanes // 2), squares=float(lanes))
    assert observed.findings(MECHANISM) == ("guarantee",)


def test_stored_observations_round_trip() -> None:
    """A stored observation is read back exactly, and its document states both the certified and the proved
    bound on one record."""
    for plan in (LEARNING, FORGETTING):
        [observed] = drawn(plan, 1, np.random.default_rng(6))
        document = observed.to_json(MECHANISM, delta=1e-5)
        again = json.loads(json.dumps(document))
        assert again == document
        assert Observed.from_json(again) == observed
        assert Observed.from_json(observed.counted()) == observed
        assert document["mu"] == canary_test.certified_mu(MECHANISM, plan)
        assert 0 < document["mu_lower_bound"] < document["mu"]
        assert document["epsilon"] == conversion.gdp_epsilon(mu=document["mu"], delta=1e-5)
        assert document["epsilon_lower_bound"] < document["epsilon"]
        assert document["records"] == canary_test.law(MECHANISM, plan).records
        assert document["error"] == canary_test.ERROR == canary_test.FALSE_ALARM / 3
        assert document["notion"] == ("deletion" if plan.steps_before else "release")
        assert document["findings"] == []


def test_certified_mu_matches_the_accountant() -> None:
    """The certified mu of a training run is that of a release, and the certified mu of a run that forgets is that of
    deleting one record."""
    release = canary_test.certified_mu(MECHANISM, LEARNING)
    deletion = canary_test.certified_mu(MECHANISM, FORGETTING)
    law = canary_test.law(MECHANISM, FORGETTING, records=1)
    assert deletion == pytest.approx(law.mean[0] / math.sqrt(law.variance) + MECHANISM.rounding_mu, rel=1e-9)
    assert deletion <= conversion.gdp_mu(epsilon=1.0, delta=1e-5) < release


@each(
    "refused",
    [
        lambda: guesses(2, 1, 0, 1),
        lambda: guesses(0, 1, 2, 1),
        lambda: guesses(0, 0, 0, 1),
        lambda: guesses(-1, 1, 0, 1),
        lambda: canary_test.at_least(3, 2, error=0.1),
        lambda: canary_test.at_least(1, 2, error=0.0),
        lambda: canary_test.at_most(-1, 2, error=0.1),
        lambda: canary_test.mu_of_right_guesses(1, 2, error=0.3),
        lambda: refuting.epsilon_at_least(guesses(1, 1, 0, 1), delta=-1.0, error=0.1),
        lambda: CanaryPlan(lanes=3, steps_before=0, steps=1),
        lambda: CanaryPlan(lanes=canary_test.MAX_LANES + 2, steps_before=0, steps=1),
        lambda: CanaryPlan(lanes=0, steps_before=0, steps=1),
        lambda: CanaryPlan(lanes=2, steps_before=-1, steps=1),
        lambda: CanaryPlan(lanes=2, steps_before=0, steps=0),
        lambda: seen(FORGETTING, guesses(1, 1, 0, 1), squares=1.0),
        lambda: seen(FORGETTING, guesses(1, 128, 0, 128), squares=-1.0),
        lambda: seen(FORGETTING, guesses(1, 128, 0, 128), squares=math.nan),
        lambda: seen(FORGETTING, guesses(1, 128, 0, 128), squares=1.0, drift=math.inf),
        lambda: seen(FORGETTING, guesses(1, 128, 0, 128), squares=1.0, visits=-1.0),
        lambda: seen(FORGETTING, guesses(1, 128, 0, 128), squares=1.0, visits=math.nan),
        lambda: Observed.from_json(
            asdict(FORGETTING)
            | {"records": 9, "guesses": asdict(guesses(1, 9, 0, 9)), "squares": 1, "drift": 0, "visits": 1}
        ),
    ],
)
def test_impossible_counts_are_refused(refused: Any) -> None:
    """Impossible counts and other impossible numbers in a canary test are refused."""
    with pytest.raises(DomainError):
        refused()
