import math

import pytest
from hypothesis import given, strategies as st

from lethe.features.theorems import evaluate
from lethe.features.theorems.bound import NotionError

orders = st.floats(-2, 4).map(lambda exponent: 1 + 10.0**exponent) | st.just(math.inf)
epsilons = st.just(0.0) | st.floats(-8, 2).map(lambda exponent: 10.0**exponent)


def test_exact_unlearning_can_be_inferred():
    """The record deleted at step i can be inferred with probability 1 - 2^(3 - i), which tends to 1."""
    chances = [evaluate("t31_success", {"i": i})["prob"] for i in range(4, 60)]
    assert chances[:3] == [0.5, 0.75, 0.875]
    assert chances == sorted(chances)
    assert chances[-1] == pytest.approx(1.0)


@given(eps=st.floats(0.01, 5), i=st.integers(1, 10**6), N=st.integers(0, 9_999))
def test_a_counter_leaks_without_limit(eps, i, N):
    """The counter's privacy loss starts at 0 and grows by eps/j at release j. It stays continuous where the
    implementation switches to another summation method."""

    def loss(releases: int) -> float:
        return evaluate("t32_count_loss", {"eps": eps, "i": i, "N": releases})["loss"]

    assert loss(0) == 0
    assert loss(N + 1) - loss(N) == pytest.approx(eps / (i + N), rel=1e-4)
    assert loss(10_001) - loss(10_000) == pytest.approx(eps / (i + 10_000), rel=1e-3)


@given(q=orders, eps=epsilons, factor=st.floats(1, 10))
def test_advantage_is_monotone(q, eps, factor):
    """The advantage lies in [0, 1], is 0 at epsilon 0 and rises with epsilon. The bound that also uses the chi-square
    branch is never larger."""
    at, there, nothing = (evaluate("t41_adv", {"q": q, "eps": value})["adv"] for value in (eps, eps * factor, 0))
    plus = evaluate("t41_adv_plus", {"q": q, "eps": eps})["adv"]
    assert nothing == 0 <= plus <= at <= there <= 1
    if eps >= 1:
        assert at == 1
    if math.isinf(q):
        assert at == pytest.approx(min(math.sqrt(2 * eps), math.expm1(min(eps, 1)), 1))


@pytest.mark.parametrize("name", ["t41_adv", "t41_adv_plus"])
def test_soundness_needs_the_joint_bound(name):
    """For an adaptive requester and more than one release, a bound that covers each version only individually is
    refused."""
    certificate = {"q": 2, "eps": 0.1}
    for allowed in (
        {"scope": "joint", "p": 3, "releases": 5},
        {"scope": "marginal", "p": 0, "releases": 5},
        {"scope": "marginal", "p": 3, "releases": 1},
    ):
        assert evaluate(name, certificate | allowed) == evaluate(name, certificate)
    with pytest.raises(NotionError, match=r"^scope: "):
        evaluate(name, certificate | {"scope": "marginal", "p": 1, "releases": 2})


@given(eps_dd=epsilons, eps_dp=epsilons, p=st.integers(0, 100), more=st.integers(0, 100))
def test_adaptive_reduction_is_linear(eps_dd, eps_dp, p, more):
    """Zero versions add nothing to epsilon, and each further version adds the same amount."""

    def adaptive(versions: int) -> float:
        return evaluate("t43_adaptive", {"eps_dd": eps_dd, "eps_dp": eps_dp, "p": versions})["eps"]

    assert adaptive(0) == eps_dd
    assert adaptive(p + more) - adaptive(p) == pytest.approx(more * eps_dp, rel=1e-9, abs=1e-9 * adaptive(p + more))


def test_mixed_orders_are_refused():
    """Combining Renyi values of different orders is refused. So is counting only the observed versions, because
    unobserved versions pass information on as well."""
    versions = {"eps_dd": 0.01, "eps_dp": 0.05, "p": 3}
    expected = evaluate("t43_adaptive", versions)
    assert evaluate("t43_adaptive", versions | {"q_dd": 2, "q_dp": 2}) == expected
    assert evaluate("t43_adaptive", versions | {"counted": "chain_bound"}) == expected
    with pytest.raises(NotionError, match=r"^same_order: "):
        evaluate("t43_adaptive", versions | {"q_dd": 2, "q_dp": 3})
    with pytest.raises(NotionError, match=r"^counted: "):
        evaluate("t43_adaptive", versions | {"counted": "observed_only"})


@given(q=orders, adv=st.floats(0, 1), less=st.floats(0, 1))
def test_refutation_threshold_inverts_soundness(q, adv, less):
    """The threshold is non-negative and rises with the advantage. At the threshold, the soundness bound equals the
    squared advantage."""

    def threshold(value: float) -> float:
        return evaluate("t45_threshold", {"q": q, "adv": value})["eps_min"]

    assert 0 <= threshold(0) <= threshold(adv * less) <= threshold(adv)
    assert evaluate("t41_adv", {"q": q, "eps": threshold(adv)})["adv"] == pytest.approx(adv**2, rel=1e-6, abs=1e-12)
