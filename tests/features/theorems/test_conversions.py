import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lethe.features.theorems import evaluate
from tests.tables import each


def powers_of_ten(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


orders = powers_of_ten(-3, 3).map(lambda excess: 1 + excess)
divergences = powers_of_ten(-6, 1.5)
deltas = powers_of_ten(-15, -0.01)
epsilons = st.just(0.0) | powers_of_ten(-4, 1.5)
mus = powers_of_ten(-5, 2)
more = st.floats(1.0, 10.0)


@given(alpha=orders, rho=divergences, delta=deltas, factor=more)
def test_renyi_to_epsilon_is_monotone(alpha, rho, delta, factor):
    """Both conversions rise with rho and fall with delta, and the newer conversion never exceeds Mironov's."""
    both = [
        [
            evaluate(name, {"alpha": alpha, "rho": rho_, "delta": delta_})["eps"]
            for rho_, delta_ in [(rho, delta), (rho * factor, delta), (rho, delta / factor)]
        ]
        for name in ("rdp_to_dp_cks", "rdp_to_dp_mironov")
    ]
    for here, larger_rho, smaller_delta in both:
        assert 0 <= here <= larger_rho
        assert here <= smaller_delta
    assert both[0][0] <= both[1][0]


@pytest.mark.parametrize("sided", ["one", "two"])
@pytest.mark.parametrize("name", ["rdp_to_dp_mironov", "rdp_to_dp_cks"])
def test_one_sided_bounds_yield_one_sided_inequalities(name, sided):
    """The conversion of a one-sided bound on the divergence is marked as one-sided, and that of a two-sided bound as
    two-sided."""
    assert evaluate(name, {"alpha": 2, "rho": 0.1, "delta": 0.1, "sided": sided})["sided"] == sided


def test_a_divergence_of_zero_costs_nothing():
    """Every conversion maps a divergence of 0 to an epsilon and delta of 0."""
    for name in ("rdp_to_dp_mironov", "rdp_to_dp_cks"):
        assert evaluate(name, {"alpha": 2, "rho": 0, "delta": 1e-5})["eps"] == 0
    for name in ("rdp_delta_cks", "rdp_delta_single_order_optimal"):
        assert evaluate(name, {"alpha": 2, "rho": 0, "eps": 0.1})["delta"] == 0
    for name in ("rdp_linear_mironov", "rdp_linear_cks"):
        assert evaluate(name, {"tau": 0, "delta": 1e-5}) == {"eps": 0, "alpha": "inf"}
    assert evaluate("gdp_eps", {"mu": 0, "delta": 1e-5}) == {"eps": 0}


def coins(alpha: float, rho: float, eps: float) -> float:
    """Return the largest p - e^eps q over pairs of coins with D_alpha(p || q) <= rho, where q lies on a grid and p is
    found by bisection."""
    q = np.concatenate([np.geomspace(1e-12, 0.5, 20_000), np.linspace(0.5, 1 - 1e-9, 20_000)])
    low, high = q.copy(), np.full_like(q, 1 - 1e-15)
    for _ in range(60):
        p = (low + high) / 2
        heads, tails = np.log(q) + alpha * np.log(p / q), np.log1p(-q) + alpha * (np.log1p(-p) - np.log1p(-q))
        allowed = np.logaddexp(heads, tails) <= (alpha - 1) * rho
        low, high = np.where(allowed, p, low), np.where(allowed, high, p)
    return float(np.max(low - math.exp(eps) * q))


@pytest.mark.slow
@each("alpha", [1.01, 2.0, 8.0, 300.0])
@each("rho", [1e-6, 1e-3, 0.2, 3.0])
@each("eps", [0.0, 0.1, 2.0])
def test_single_order_optimum_is_attained_by_coins(alpha, rho, eps):
    """Among pairs of coins whose Renyi divergence of the given order is at most rho, the largest delta found on a grid
    equals the optimal delta to 0.2 % and does not exceed it."""
    best = evaluate("rdp_delta_single_order_optimal", {"alpha": alpha, "rho": rho, "eps": eps})["delta"]
    attained = coins(alpha, rho, eps)
    assert attained <= best
    assert best == pytest.approx(attained, rel=2e-3, abs=1e-11)


@given(alpha=orders, rho=divergences, eps=epsilons, factor=more)
def test_optimal_delta_is_at_most_the_closed_form(alpha, rho, eps, factor):
    """For a single Renyi order, the optimal delta is at most the closed-form delta. Both are monotone and lie in [0,
    1]."""
    here, larger_rho, larger_eps = (
        [
            evaluate(name, {"alpha": alpha, "rho": rho_, "eps": eps_})["delta"]
            for name in ("rdp_delta_single_order_optimal", "rdp_delta_cks")
        ]
        for rho_, eps_ in [(rho, eps), (rho * factor, eps), (rho, eps * factor)]
    )
    assert 0 <= here[0] <= here[1] <= 1
    assert all(a <= b * (1 + 1e-9) for a, b in zip(here, larger_rho, strict=True))
    assert all(a >= b * (1 - 1e-9) for a, b in zip(here, larger_eps, strict=True))


@given(alpha=orders, rho=divergences, delta=deltas)
def test_delta_and_epsilon_of_one_order_are_inverse(alpha, rho, delta):
    """Converting delta to epsilon and back at the same order returns the original delta, unless epsilon was clamped to
    0."""
    eps = evaluate("rdp_to_dp_cks", {"alpha": alpha, "rho": rho, "delta": delta})["eps"]
    back = evaluate("rdp_delta_cks", {"alpha": alpha, "rho": rho, "eps": eps})["delta"]
    assert back <= delta * (1 + 1e-9)
    if eps > 0:
        assert back == pytest.approx(delta, rel=1e-6)


@given(mu=mus, delta=deltas, factor=more)
def test_gaussian_curve_orders_the_conversions(mu, delta, factor):
    """The exact epsilon is at most the epsilon over all Renyi orders, which is at most Mironov's. All of them rise with
    mu."""
    here, there = (
        [
            evaluate("gdp_eps", {"mu": mu_, "delta": delta})["eps"],
            evaluate("rdp_linear_cks", {"tau": mu_**2 / 2, "delta": delta})["eps"],
            evaluate("rdp_linear_mironov", {"tau": mu_**2 / 2, "delta": delta})["eps"],
        ]
        for mu_ in (mu, mu * factor)
    )
    assert here[0] <= here[1] * (1 + 1e-9) + 1e-12
    assert here[1] <= here[2]
    assert all(a <= b for a, b in zip(here, there, strict=True))


@given(tau=powers_of_ten(-6, 2), delta=deltas, alpha=orders)
def test_linear_curves_are_optimised_over_all_orders(tau, delta, alpha):
    """For either conversion, no single order gives a smaller epsilon than the optimum over a linear curve."""
    for linear, single in [("rdp_linear_cks", "rdp_to_dp_cks"), ("rdp_linear_mironov", "rdp_to_dp_mironov")]:
        best = evaluate(linear, {"tau": tau, "delta": delta})["eps"]
        assert best <= evaluate(single, {"alpha": alpha, "rho": tau * alpha, "delta": delta})["eps"] * (1 + 1e-9)


@given(eps=powers_of_ten(-3, 1.5), delta=deltas)
def test_tau_star_is_the_inverse_of_mironov(eps, delta):
    """Mironov's conversion of the largest slope that a target permits returns exactly that target."""
    tau = evaluate("tau_star", {"eps": eps, "delta": delta})["tau"]
    assert evaluate("rdp_linear_mironov", {"tau": tau, "delta": delta})["eps"] == pytest.approx(eps, rel=1e-9)


@given(eps=epsilons, mu=mus, delta=deltas, factor=more)
def test_gaussian_delta_is_monotone_and_invertible(eps, mu, delta, factor):
    """Delta lies in [0, 1], rises with mu and falls as epsilon increases. Its inverse functions recover it."""
    at = evaluate("gdp_delta", {"eps": eps, "mu": mu})["delta"]
    assert 0 <= at <= evaluate("gdp_delta", {"eps": eps, "mu": mu * factor})["delta"] <= 1
    assert at >= evaluate("gdp_delta", {"eps": eps * factor, "mu": mu})["delta"]
    needed = evaluate("gdp_eps", {"mu": mu, "delta": delta})["eps"]
    back = evaluate("gdp_delta", {"eps": needed, "mu": mu})["delta"]
    assert back <= delta * (1 + 1e-9)
    if needed > 0:
        assert back == pytest.approx(delta, rel=1e-6)
    allowed = evaluate("gdp_mu", {"eps": eps, "delta": delta})["mu"]
    assert evaluate("gdp_delta", {"eps": eps, "mu": allowed})["delta"] <= delta * (1 + 1e-9)


@pytest.mark.parametrize(("mu", "mironov", "cks", "exact"), [(0.3, 1.345, 1.073, 0.965), (0.05, 0.218, 0.147, 0.129)])
def test_three_conversions_match_published_values(mu, mironov, cks, exact):
    """At delta = 1/11982, all three conversions of a Gaussian curve reproduce the published values."""
    given_mu = {"mu": mu, "delta": 1 / 11982}
    slope = {"tau": mu**2 / 2, "delta": 1 / 11982}
    assert round(evaluate("rdp_linear_mironov", slope)["eps"], 3) == mironov
    assert round(evaluate("rdp_linear_cks", slope)["eps"], 3) == cks
    assert round(evaluate("gdp_eps", given_mu)["eps"], 3) == exact
