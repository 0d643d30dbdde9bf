import math

import pytest
from hypothesis import assume, given, strategies as st
from scipy.stats import binom

from lethe.features.theorems import evaluate
from lethe.features.theorems.bound import NotionError
from lethe.proof.errors import DomainError, InfeasibleError

epsilons = st.just(0.0) | st.floats(1e-6, 3.0)
deltas = st.just(0.0) | st.floats(-12, -4).map(lambda exponent: 10.0**exponent)
sizes = st.integers(1, 200)


def group(eps: float, delta: float, k: int) -> tuple[float, float]:
    result = evaluate("group_privacy", {"eps": eps, "delta": delta, "k": k})
    return result["eps"], result["delta"]


@given(eps=epsilons, delta=deltas, k=st.integers(1, 40), others=st.integers(1, 40))
def test_groups_compose_record_by_record(eps, delta, k, others):
    """A group of one record has a single record's guarantee, and delta rises with the group size k. Extending a group
    of k by further records gives the same guarantee as one group of the combined size."""
    assume(delta * math.exp((k + others) * eps) * (k + others) < 1)
    assert group(eps, delta, 1) == pytest.approx((eps, delta), rel=1e-12)
    grown_eps, grown = group(eps, delta, k)
    for _ in range(others):
        grown_eps, grown = grown_eps + eps, delta + math.exp(eps) * grown
    assert group(eps, delta, k + others) == pytest.approx((grown_eps, grown), rel=1e-9)
    assert group(eps, delta, k)[1] <= group(eps, delta, k + others)[1]


@given(eps=st.floats(0, 20), delta=deltas, k=sizes)
def test_group_targets_are_met_exactly(eps, delta, k):
    """Converting the computed per-record target back to the group gives exactly the group's target. The formula as
    printed never gives a larger per-record delta."""
    target = evaluate("group_privacy_inverse", {"eps": eps, "delta": delta, "k": k})
    printed = evaluate("group_privacy_inverse_as_printed", {"eps": eps, "delta": delta, "k": k})
    assert group(target["eps"], target["delta"], k) == pytest.approx((eps, delta), rel=1e-9)
    assert printed["eps"] == target["eps"]
    assert printed["delta"] <= target["delta"] * (1 + 1e-12)


def test_printed_group_formula_is_needlessly_strict():
    """At epsilon 1 and ten records, the formula as printed gives a per-record delta that is 785 times smaller than
    necessary."""
    given_target = {"eps": 1.0, "delta": 1e-5, "k": 10}
    exact = evaluate("group_privacy_inverse", given_target)["delta"]
    assert exact / evaluate("group_privacy_inverse_as_printed", given_target)["delta"] == pytest.approx(785, abs=1)


def test_k_delta_is_refuted_by_three_databases():
    """On three databases, an outcome with probabilities 0, delta and delta (1 + e^eps) attains the bound for a group of
    two, which exceeds 2 delta."""
    result = evaluate("group_privacy", {"eps": 0.5, "delta": 0.01, "k": 2})
    assert result["delta"] == pytest.approx(0.01 * (1 + math.exp(0.5)), rel=1e-12)
    assert result["k_delta"] == 0.02 < result["delta"]


@pytest.mark.parametrize("given_group", [(1.0, 1e-5, 100), (0.0, 0.5, 2), (0.1, 1.0, 1), (1e6, 1e-300, 2)])
def test_groups_too_large_to_protect_are_refused(given_group):
    """A group whose delta reaches 1 has no guarantee, and evaluating its delta raises `InfeasibleError`."""
    with pytest.raises(InfeasibleError, match="Expected delta of a group"):
        group(*given_group)


@given(eps=epsilons, delta=deltas, eps_u=epsilons, delta_u=deltas)
def test_epsilons_and_deltas_add(eps, delta, eps_u, delta_u):
    """Under composition epsilons add and deltas add. The multiplicative form of delta is never smaller than the sum."""
    result = evaluate("pretrain_then_unlearn", {"eps": eps, "delta": delta, "eps_u": eps_u, "delta_u": delta_u})
    assert result["eps"] == eps + eps_u
    assert result["delta_sum"] == delta + delta_u <= result["delta_min_form"] * (1 + 1e-12) + 1e-300


def test_small_pretraining_groups_are_refused():
    """Pre-training that protects only groups smaller than the forget set does not compose and is refused."""
    pipeline = {"eps": 0.5, "delta": 0, "eps_u": 0.5, "delta_u": 1e-5, "group_size": 5}
    assert evaluate("pretrain_then_unlearn", pipeline | {"forget_size": 5})["eps"] == 1.0
    with pytest.raises(NotionError, match="group_size=5 >= forget_size=6"):
        evaluate("pretrain_then_unlearn", pipeline | {"forget_size": 6})


@pytest.mark.parametrize(
    ("fpr", "fnr", "delta", "eps"),
    [
        (0.0, 0.5, 0.1, "inf"),
        (0.5, 0.0, 0.1, "inf"),
        (1.0, 1.0, 0.0, "-inf"),
        (1.0, 0.0, 0.0, 0.0),
        (0.95, 0.0, 0.1, math.log(0.9 / 0.95)),
    ],
)
def test_point_estimate_is_infinite_without_errors(fpr, fnr, delta, eps):
    """The point estimate of epsilon is infinite if the attack makes no errors and 0 if it never succeeds. It is always
    marked as an estimate."""
    assert evaluate("eps_hat", {"fpr": fpr, "fnr": fnr, "delta": delta}) == {"eps": eps, "estimate": True}


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_clopper_pearson_is_exact(counts, conf):
    """At the upper limit, the probability of at most the observed number of successes is 1 - conf. If all trials
    succeed, the limit is 1."""
    x, n = counts
    upper = evaluate("clopper_pearson_upper", {"x": x, "n": n, "conf": conf})["upper"]
    assert x / n <= upper <= 1
    if x < n:
        assert binom.cdf(x, n, upper) == pytest.approx(1 - conf, rel=1e-6)


def test_too_many_successes_are_refused():
    """A count larger than its number of trials is refused, and the error names the count."""
    with pytest.raises(DomainError, match="x=3 <= n=2"):
        evaluate("clopper_pearson_upper", {"x": 3, "n": 2, "conf": 0.9})
    for counts, name in [((3, 2, 0, 2), "fp=3 <= n0=2"), ((0, 2, 3, 2), "fn=3 <= n1=2")]:
        with pytest.raises(DomainError, match=name):
            lower(*counts)


def lower(fp: int, n0: int, fn: int, n1: int, delta: float = 0.0, gamma: float = 0.05, **more: object) -> float:
    counts = {"fp": fp, "n0": n0, "fn": fn, "n1": n1}
    return evaluate("eps_lower_cp", counts | {"delta": delta, "gamma": gamma} | more)["eps"]


@given(fp=st.integers(0, 100), fn=st.integers(0, 100), delta=st.floats(0, 0.2), gamma=st.floats(0.01, 0.5))
def test_lower_limit_is_monotone(fp, fn, delta, gamma):
    """The lower limit is at most the point estimate and symmetric in the two error rates. It grows with the number of
    trials at equal rates and falls as more rules are tried."""
    at = lower(fp, 100, fn, 100, delta, gamma)
    estimate = evaluate("eps_hat", {"fpr": fp / 100, "fnr": fn / 100, "delta": delta})["eps"]
    assert 0 <= at <= max(float(estimate), 0.0)
    assert at == lower(fn, 100, fp, 100, delta, gamma)
    assert at <= lower(10 * fp, 1000, 10 * fn, 1000, delta, gamma)
    assert at >= lower(fp, 100, fn, 100, delta, gamma, rules=10)


@pytest.mark.parametrize("gamma", [0.05, 0.3])
def test_lower_limit_rarely_misses(gamma):
    """For randomised response, the tight case, the lower limit exceeds the true epsilon with probability at most
    gamma."""
    rate, n = 1 / (1 + math.e), 40
    weights = binom.pmf(range(n + 1), n, rate)
    missed = sum(
        weights[fp] * weights[fn]
        for fp in range(n + 1)
        for fn in range(fp, n + 1)
        for _ in range(1 if fp == fn else 2)
        if lower(fp, n, fn, n, 0.0, gamma) > 1.0
    )
    assert missed <= gamma


@given(n=st.integers(1, 10**6), eps=st.floats(0.01, 10), s2=st.floats(0.01, 10), factor=st.floats(1, 5))
def test_errors_of_mean_estimation_are_monotone(n, eps, s2, factor):
    """The mean squared errors fall with n and epsilon, and the central model's error is never larger than the local
    model's. The returned clipping threshold minimises the error."""
    for name in ("central_mean_mse", "local_mean_mse"):
        at = evaluate(name, {"n": n, "eps": eps})["mse"]
        assert at >= evaluate(name, {"n": 2 * n, "eps": eps})["mse"]
        assert at >= evaluate(name, {"n": n, "eps": eps * factor})["mse"]
    central, local = (evaluate(name, {"n": n, "eps": eps})["mse"] for name in ("central_mean_mse", "local_mean_mse"))
    assert central <= local * (1 + 1e-12)
    unbounded = {"n": n, "eps": eps, "s2": s2}
    tau = evaluate("local_unbounded_tau", unbounded)["tau"]
    best = evaluate("local_unbounded_mse", unbounded | {"tau": tau})["mse"]
    assert best == pytest.approx(s2 / n + 8 * math.sqrt(2) * s2 / (math.sqrt(n) * eps), rel=1e-9)
    for other in (tau * factor, tau / factor):
        assert best <= evaluate("local_unbounded_mse", unbounded | {"tau": other})["mse"] * (1 + 1e-12)
