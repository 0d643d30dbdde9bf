"""Differential privacy: conversions, groups, composition with unlearning, measured epsilon, and private means.

Conversions between Renyi divergence, Gaussian differential privacy and (epsilon, delta) are computed by
`lethe.proof.conversion` and `lethe.features.analysis.renyi`.
"""

import math

import numpy as np

# scipy loads its modules only when they are first used.
import scipy

from lethe.features.analysis import renyi
from lethe.features.theorems import symbols as sym
from lethe.features.theorems.bound import NotionError, Outputs, bound, expect, root_gap
from lethe.proof import conversion, errors


@bound
def rdp_to_dp_mironov(alpha: sym.Order, rho: sym.Divergence, delta: sym.Delta, sided: sym.Sided = "one") -> Outputs:
    return {"eps": renyi.renyi_to_epsilon_mironov(order=alpha, divergence=rho, delta=delta), "sided": sided}


@bound
def rdp_to_dp_cks(alpha: sym.Order, rho: sym.Divergence, delta: sym.Delta, sided: sym.Sided = "one") -> Outputs:
    return {"eps": renyi.renyi_to_epsilon_cks(order=alpha, divergence=rho, delta=delta), "sided": sided}


@bound
def rdp_delta_cks(alpha: sym.Order, rho: sym.Divergence, eps: sym.Epsilon) -> Outputs:
    return {"delta": renyi.renyi_to_delta_cks(order=alpha, divergence=rho, epsilon=eps)}


@bound
def rdp_delta_single_order_optimal(alpha: sym.Order, rho: sym.Divergence, eps: sym.Epsilon) -> Outputs:
    """Search over q. Permitted pairs (p, q) form a convex set, so the largest p, and p - e^eps q, are concave in q."""
    above = renyi.renyi_to_delta_cks(order=alpha, divergence=rho, epsilon=eps)
    # The margin covers the rounding of the constraint, 0 at p = q. `relaxed` is log q without 1 - p and 1 - q; above
    # `top`, p = 1 is allowed, and the gain falls with q or is negative.
    budget = (alpha - 1) * rho + 1e-14
    relaxed = budget - alpha * (eps + math.log1p(1 / (alpha - 1)))
    top = -max(rho, eps, 1e-12)
    bottom = min(relaxed, top) + min(math.log(budget), 0.0) - 50
    if rho == 0 or bottom < -700:
        return {"delta": above}

    def excess(log_ratio: float, log_q: float) -> float:
        """Return (alpha - 1) (D_alpha(p || q) - rho) at p = e^log_ratio q."""
        q, p = math.exp(log_q), math.exp(min(log_ratio + log_q, 0.0))
        tails = alpha * math.log1p(-p) + (1 - alpha) * math.log1p(-q) if p < 1 else -math.inf
        return float(np.logaddexp(log_q + alpha * log_ratio, tails)) - budget

    def loss(log_q: float) -> float:
        """Return e^eps q - p at the largest permitted p."""
        log_ratio = widest = -log_q
        if excess(widest, log_q) > 0:
            log_ratio = scipy.optimize.brentq(excess, 0.0, widest, args=(log_q,), xtol=1e-15, maxiter=10_000)
        return math.exp(log_q + eps) - math.exp(log_q + log_ratio)

    minimum = scipy.optimize.minimize_scalar(loss, bounds=(bottom, top), method="bounded", options={"xatol": 1e-9}).fun
    gain = -min(loss(top), float(minimum)) * (1 + 1e-10)
    return {"delta": min(max(gain, math.ulp(0.0)), above)}


@bound
def rdp_linear_mironov(tau: sym.Slope, delta: sym.Delta) -> Outputs:
    at = renyi.gaussian_epsilon_mironov(mu=math.sqrt(2 * tau), delta=delta)
    return {"eps": at.epsilon, "alpha": at.order}


@bound
def rdp_linear_cks(tau: sym.Slope, delta: sym.Delta) -> Outputs:
    at = renyi.gaussian_epsilon_cks(mu=math.sqrt(2 * tau), delta=delta)
    return {"eps": at.epsilon, "alpha": at.order}


@bound
def tau_star(eps: sym.EpsilonTarget, delta: sym.Delta) -> Outputs:
    return {"tau": root_gap(-math.log(delta), eps) ** 2}


@bound
def gdp_delta(eps: sym.Epsilon, mu: sym.Mu) -> Outputs:
    return {"delta": conversion.gdp_delta(epsilon=eps, mu=mu)}


@bound
def gdp_eps(mu: sym.Mu, delta: sym.Delta) -> Outputs:
    return {"eps": conversion.gdp_epsilon(mu=mu, delta=delta)}


@bound
def gdp_mu(eps: sym.Epsilon, delta: sym.Delta) -> Outputs:
    return {"mu": conversion.gdp_mu(epsilon=eps, delta=delta)}


@bound
def group_privacy(eps: sym.Epsilon, delta: sym.DeltaOrOne, k: sym.Group) -> Outputs:
    log_delta = math.log(delta) + _log_geometric(eps, k) if delta > 0 else -math.inf
    if log_delta >= 0:
        raise errors.InfeasibleError(f"Expected delta of a group of {k} < 1: the guarantee of one record is too weak")
    return {"eps": k * eps, "delta": math.exp(log_delta), "k_delta": k * delta}


@bound
def group_privacy_inverse(eps: sym.Epsilon, delta: sym.DeltaOrOne, k: sym.Group) -> Outputs:
    return {"eps": eps / k, "delta": delta * math.exp(-_log_geometric(eps / k, k))}


@bound
def group_privacy_inverse_as_printed(eps: sym.Epsilon, delta: sym.DeltaOrOne, k: sym.Group) -> Outputs:
    return {"eps": eps / k, "delta": delta * math.exp(-_log_geometric(eps, k))}


@bound
def pretrain_then_unlearn(
    eps: sym.Epsilon,
    delta: sym.DeltaOrOne,
    eps_u: sym.Epsilon,
    delta_u: sym.DeltaOrOne,
    uniform_over_starts: sym.UniformStart = True,
    group_size: sym.Group | None = None,
    forget_size: sym.Group | None = None,
) -> Outputs:
    if group_size is not None and forget_size is not None and group_size < forget_size:
        raise NotionError(f"group_size: Expected group_size={group_size} >= forget_size={forget_size}")
    crossed = min(_grown(eps, delta_u) + delta, _grown(eps_u, delta) + delta_u)
    return {"eps": eps + eps_u, "delta_min_form": min(crossed, 1.0), "delta_sum": min(delta + delta_u, 1.0)}


@bound
def eps_hat(fpr: sym.Rate, fnr: sym.Rate, delta: sym.DeltaOrZero) -> Outputs:
    return {"eps": _distinguished(fpr, fnr, delta), "estimate": True}


@bound
def clopper_pearson_upper(x: sym.Count, n: sym.Trials, conf: sym.Confidence) -> Outputs:
    return {"upper": _upper_limit("x", x, "n", n, conf)}


@bound
def eps_lower_cp(
    fp: sym.Count,
    n0: sym.Trials,
    fn: sym.Count,
    n1: sym.Trials,
    delta: sym.DeltaOrZero,
    gamma: sym.Miss,
    rules: sym.Rules = 1,
    rule_fixed_in_advance: sym.FixedRule = True,
    independent_runs: sym.IndependentRuns = True,
) -> Outputs:
    level = 1 - gamma / rules / 2
    fpr, fnr = _upper_limit("fp", fp, "n0", n0, level), _upper_limit("fn", fn, "n1", n1, level)
    return {"eps": max(_distinguished(fpr, fnr, delta), 0.0), "fpr_upper": fpr, "fnr_upper": fnr}


@bound
def central_mean_mse(
    n: sym.Rows, eps: sym.EpsilonTarget, var: sym.ValueVariance = 0.25, width: sym.Width = 1.0
) -> Outputs:
    return {"mse": var / n + 2 * (width / (n * eps)) ** 2}


@bound
def local_mean_mse(
    n: sym.Rows, eps: sym.EpsilonTarget, var: sym.ValueVariance = 0.25, width: sym.Width = 1.0
) -> Outputs:
    return {"mse": var / n + 2 * (width / eps) ** 2 / n}


@bound
def local_unbounded_tau(n: sym.Rows, eps: sym.EpsilonTarget, s2: sym.SecondMoment) -> Outputs:
    return {"tau": (s2**2 * n * eps**2 / 8) ** 0.25}


@bound
def local_unbounded_mse(n: sym.Rows, eps: sym.EpsilonTarget, s2: sym.SecondMoment, tau: sym.Clip) -> Outputs:
    return {"mse": s2 / n + 2 * (s2 / tau) ** 2 + 16 * (tau / eps) ** 2 / n}


def _log_geometric(eps: float, k: int) -> float:
    """Return the log of 1 + e^eps + ... + e^((k - 1) eps) = (e^(k eps) - 1)/(e^eps - 1)."""
    if k == 1 or eps == 0:
        return math.log(k)
    return (k - 1) * eps + math.log(math.expm1(-k * eps) / math.expm1(-eps))


def _grown(eps: float, delta: float) -> float:
    """Return min(e^eps delta, 1)."""
    return math.exp(min(eps + math.log(delta), 0.0)) if delta > 0 else 0.0


def _distinguished(fpr: float, fnr: float, delta: float) -> float:
    """Return the minimum epsilon at which (epsilon, delta)-indistinguishability permits these test error rates."""

    def branch(excess: float, rate: float) -> float:
        if excess <= 0:
            return -math.inf
        return math.log(excess / rate) if rate > 0 else math.inf

    return max(branch(1 - delta - fpr, fnr), branch(1 - delta - fnr, fpr))


def _upper_limit(count_name: str, count: int, trials_name: str, trials: int, confidence: float) -> float:
    expect(count <= trials, f"{count_name}={count} <= {trials_name}={trials}")
    return float(scipy.special.betaincinv(count + 1, trials - count, confidence)) if count < trials else 1.0
