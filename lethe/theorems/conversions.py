"""Between Renyi divergence, Gaussian differential privacy and (epsilon, delta): see `lethe.proof.conversion` and
`lethe.proof.renyi`."""

import math

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from lethe.proof import conversion, renyi
from lethe.theorems.bound import Outputs, bound
from lethe.theorems.symbols import Delta, Divergence, Epsilon, EpsilonTarget, Mu, Order, Sided, Slope

_MIRONOV = (
    'Mironov, "Renyi differential privacy", CSF 2017, Proposition 3; Chourasia, Shah, arXiv 2210.08911v2, Rem. 2.1'
)
_CKS = 'Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Proposition 12'
_GDP = 'Dong, Roth, Su, "Gaussian differential privacy", JRSS B 84 (2022), arXiv 1905.02383, Corollary 2.13'
_EVENTS = "P(O) <= e^eps Q(O) + delta for every event O"
_SIDED = (
    "A bound of one direction of the divergence gives that direction of the inequality only: the result is as sided"
    " as the divergence.",
)
_EPS_SIDED = {"eps": "epsilon, nats, >= 0", "sided": "one or two, as the divergence"}
_CURVE = {"eps": "least epsilon over all orders, nats", "alpha": "the order that attains it; inf if tau = 0"}


@bound(
    "Renyi to (epsilon, delta), Mironov",
    reference=_MIRONOV,
    statement=f"D_alpha(P || Q) <= rho implies {_EVENTS}, with eps = rho + log(1/delta)/(alpha - 1).",
    assumptions=_SIDED,
    outputs=_EPS_SIDED,
)
def rdp_to_dp_mironov(alpha: Order, rho: Divergence, delta: Delta, sided: Sided = "one") -> Outputs:
    return {"eps": renyi.renyi_to_epsilon_mironov(order=alpha, divergence=rho, delta=delta), "sided": sided}


@bound(
    "Renyi to (epsilon, delta), Canonne, Kamath, Steinke",
    reference=_CKS,
    statement=f"D_alpha(P || Q) <= rho implies {_EVENTS}, with"
    " eps = rho + log((alpha - 1)/alpha) - (log delta + log alpha)/(alpha - 1), or 0 if that is negative.",
    assumptions=_SIDED,
    outputs=_EPS_SIDED,
)
def rdp_to_dp_cks(alpha: Order, rho: Divergence, delta: Delta, sided: Sided = "one") -> Outputs:
    return {"eps": renyi.renyi_to_epsilon_cks(order=alpha, divergence=rho, delta=delta), "sided": sided}


@bound(
    "Renyi to delta, Canonne, Kamath, Steinke",
    reference=_CKS,
    statement=f"D_alpha(P || Q) <= rho implies {_EVENTS}, with"
    " delta = e^((alpha - 1)(rho - eps)) (1 - 1/alpha)^alpha / (alpha - 1), or 1 if that is larger.",
    assumptions=_SIDED,
    outputs={"delta": "delta, in [0, 1]"},
)
def rdp_delta_cks(alpha: Order, rho: Divergence, eps: Epsilon) -> Outputs:
    return {"delta": renyi.renyi_to_delta_cks(order=alpha, divergence=rho, epsilon=eps)}


@bound(
    "Renyi to delta, the best that one order allows",
    reference='Asoodeh, Liao, Calmon, Kosut, Sankar, "Three variants of differential privacy", JSAIT 2021;'
    ' Balle, Barthe, Gaboardi, Hsu, Sato, "Hypothesis testing interpretations", AISTATS 2020',
    statement="The largest p - e^eps q over coins (p), (q) with D_alpha(p || q) <= rho: attained, by those coins.",
    assumptions=_SIDED,
    outputs={"delta": "delta, in [0, 1]"},
)
def rdp_delta_single_order_optimal(alpha: Order, rho: Divergence, eps: Epsilon) -> Outputs:
    """The coins allowed form a convex set, so the largest p is concave in q, and so is the gain p - e^eps q."""
    above = renyi.renyi_to_delta_cks(order=alpha, divergence=rho, epsilon=eps)
    budget = (alpha - 1) * rho + 1e-14  # past the rounding of the constraint, which is 0 at p = q
    relaxed = budget - alpha * (eps + math.log1p(1 / (alpha - 1)))  # log q, were 1 - p and 1 - q ignored
    top = -max(rho, eps, 1e-12)  # above it p = 1 is allowed, and the gain falls with q, or is negative
    bottom = min(relaxed, top) + min(math.log(budget), 0.0) - 50
    if rho == 0 or bottom < -700:
        return {"delta": above}

    def excess(log_ratio: float, log_q: float) -> float:
        """(alpha - 1) (D_alpha(p || q) - rho) at p = e^log_ratio q."""
        q, p = math.exp(log_q), math.exp(min(log_ratio + log_q, 0.0))
        tails = alpha * math.log1p(-p) + (1 - alpha) * math.log1p(-q) if p < 1 else -math.inf
        return float(np.logaddexp(log_q + alpha * log_ratio, tails)) - budget

    def loss(log_q: float) -> float:
        """e^eps q - p at the largest p."""
        log_ratio = widest = -log_q
        if excess(widest, log_q) > 0:
            log_ratio = brentq(excess, 0.0, widest, args=(log_q,), xtol=1e-15, maxiter=10_000)
        return math.exp(log_q + eps) - math.exp(log_q + log_ratio)

    least = minimize_scalar(loss, bounds=(bottom, top), method="bounded", options={"xatol": 1e-9}).fun
    gain = -min(loss(top), float(least)) * (1 + 1e-10)
    return {"delta": min(max(gain, math.ulp(0.0)), above)}


@bound(
    "Linear Renyi curve to (epsilon, delta), Mironov",
    reference=_MIRONOV,
    statement="D_alpha <= tau alpha for every alpha implies eps = tau + 2 sqrt(tau log(1/delta)).",
    assumptions=_SIDED,
    outputs=_CURVE,
)
def rdp_linear_mironov(tau: Slope, delta: Delta) -> Outputs:
    at = renyi.gaussian_epsilon_mironov(mu=math.sqrt(2 * tau), delta=delta)
    return {"eps": at.epsilon, "alpha": at.order}


@bound(
    "Linear Renyi curve to (epsilon, delta), Canonne, Kamath, Steinke",
    reference=_CKS,
    statement="The least rdp_to_dp_cks(alpha, tau alpha, delta) over all real alpha > 1.",
    assumptions=_SIDED,
    outputs=_CURVE,
)
def rdp_linear_cks(tau: Slope, delta: Delta) -> Outputs:
    at = renyi.gaussian_epsilon_cks(mu=math.sqrt(2 * tau), delta=delta)
    return {"eps": at.epsilon, "alpha": at.order}


@bound(
    "Largest slope of a linear Renyi curve that meets (epsilon, delta)",
    reference=_MIRONOV,
    statement="tau = (sqrt(log(1/delta) + eps) - sqrt(log(1/delta)))^2, the inverse of rdp_linear_mironov.",
    outputs={"tau": "slope, nats"},
)
def tau_star(eps: EpsilonTarget, delta: Delta) -> Outputs:
    return {"tau": root_gap(-math.log(delta), eps) ** 2}


@bound(
    "Gaussian differential privacy to delta",
    reference=_GDP,
    statement=f"mu-GDP implies {_EVENTS}, with delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu): exact.",
    outputs={"delta": "delta, in [0, 1], rounded up"},
)
def gdp_delta(eps: Epsilon, mu: Mu) -> Outputs:
    return {"delta": conversion.gdp_delta(epsilon=eps, mu=mu)}


@bound(
    "Gaussian differential privacy to epsilon",
    reference=_GDP,
    statement="The inverse of gdp_delta in eps; 0 if delta >= gdp_delta(0, mu).",
    outputs={"eps": "epsilon, nats, rounded up"},
)
def gdp_eps(mu: Mu, delta: Delta) -> Outputs:
    return {"eps": conversion.gdp_epsilon(mu=mu, delta=delta)}


@bound(
    "Largest mu that meets (epsilon, delta)",
    reference=_GDP,
    statement="The inverse of gdp_delta in mu.",
    outputs={"mu": "mu, rounded down"},
)
def gdp_mu(eps: Epsilon, delta: Delta) -> Outputs:
    return {"mu": conversion.gdp_mu(epsilon=eps, delta=delta)}


def root_gap(base: float, rise: float) -> float:
    """sqrt(base + rise) - sqrt(base), without cancellation."""
    return rise / (math.sqrt(base + rise) + math.sqrt(base))
