"""Langevin unlearning of sequences, and its algorithms: Chien, Wang, Chen and Li, Corollary 3.4, Algorithms 4 to 8.

Corollary 3.4 doubles the order at every request, so that old requests hardly decay and the steps per request grow for
ever; `shift.py` does not. The slips of the printed listings are corrected: Algorithms 5 and 6 count one step after the
test and return one too many, the index of Algorithm 6 starts at -1, Algorithm 4 returns K instead of sigma, and the
first sigma that reaches it instead of the smallest. The step counts that the authors' code stores for two-class data
belong to a smoothness constant measured on the data (L = 0.1947 for MNIST), not to the L = 1/4 + lambda of the paper,
with which they are about 35 % larger.
"""

import math
from collections.abc import Callable
from typing import Annotated

from scipy.optimize import brentq, minimize_scalar

from lethe.proof.errors import DomainError, InfeasibleError, NotionError
from lethe.theorems import work
from lethe.theorems.bound import Domain, Outputs, bound, real
from lethe.theorems.langevin import RENYI, learning_slope, require_step
from lethe.theorems.symbols import (
    CONVEX,
    HIDDEN,
    LANGEVIN,
    AtMost,
    Batch,
    Convexity,
    Delta,
    Divergence,
    EpsilonTarget,
    Group,
    Lipschitz,
    Noise,
    NonAdaptive,
    Order,
    Records,
    Rows,
    Smoothness,
    StepList,
    StepsAtLeastOne,
    StepSize,
)

MOST_REQUESTS = 200
"""Longest sequence by Corollary 3.4: request s evaluates the first one at the order 2^(s - 1) alpha."""
_TRIALS = 40
"""So many orders at least are tried to find whether one number of steps suffices."""

RenyiSlope = Annotated[float, real("learning is RDP with epsilon_0(alpha) = eps0_coef alpha", "[0, inf)")]
Orders = Annotated[list[float], Domain(kind="reals", meaning="orders of the three values", interval="(1, inf)")]
_CONVERGED = (*CONVEX, HIDDEN, "Learning has converged, with C_LSI = 2 sigma^2/m.")


@bound(
    "A sequence of requests by the weak triangle inequality",
    reference=f"{LANGEVIN}, Corollary 3.4, Algorithms 7 and 8",
    statement="eps_(s+1)(alpha) = e^(-m eta K_(s+1)/alpha) (alpha - 1/2)/(alpha - 1) (eps0(2 alpha) + eps_s(2 alpha)),"
    " without the middle factor and eps_s at the first request.",
    assumptions=_CONVERGED,
    outputs={"eps": f"after the last request: {RENYI}"},
)
def c34_sequence(
    alpha: Order,
    Ks: StepList,
    eps0_coef: RenyiSlope,
    eta: StepSize,
    m: Convexity,
    L: Smoothness | None = None,
    non_adaptive: NonAdaptive = True,
) -> Outputs:
    require_step(eta, m, L)
    if not 1 <= len(Ks) <= MOST_REQUESTS:
        raise DomainError(f"Expected 1 <= number of requests={len(Ks)} <= {MOST_REQUESTS}")
    return {"eps": _sequence(alpha, Ks, eps0_coef, eta * m)}


@bound(
    "Least noise for a budget of steps",
    reference=f"{LANGEVIN}, Algorithm 4, with its return value corrected",
    statement="The smallest sigma for which K steps with eta = 1/L reach (eps_target, delta) for one batch of S, over"
    " all real orders.",
    assumptions=_CONVERGED,
    outputs={"sigma": "noise scale, rounded up"},
)
def alg4_sigma(
    eps_target: EpsilonTarget,
    K: StepsAtLeastOne,
    S: Group,
    Mlip: Lipschitz,
    m: Convexity,
    L: Smoothness,
    n: Rows,
    delta: Delta,
) -> Outputs:
    require_step(1 / L, m, L)

    def gap(log_sigma: float) -> float:
        slope = learning_slope(S, Mlip, m, math.exp(log_sigma), n)
        return _least_epsilon([K], slope, m / L, delta) - eps_target

    guess = math.log(S * Mlip / (n * math.sqrt(m)))
    return {"sigma": math.exp(brentq(gap, guess - 40, guess + 40, xtol=1e-12)) * (1 + 1e-9)}


@bound(
    "Least steps for one batch",
    reference=f"{LANGEVIN}, Algorithm 5, with its count corrected",
    statement="The least K >= 1 for which K steps with eta = 1/L reach (eps_target, delta) for one batch of S, over all"
    " real orders; the printed listing counts one more.",
    assumptions=_CONVERGED,
    outputs={"K": "least number of steps, >= 1", "K_as_listed": "what the printed listing returns: K + 1"},
)
def alg5_K(
    eps_target: EpsilonTarget,
    sigma: Noise,
    S: Group,
    Mlip: Lipschitz,
    m: Convexity,
    L: Smoothness,
    n: Rows,
    delta: Delta,
    at_most: AtMost = 10**12,
) -> Outputs:
    require_step(1 / L, m, L)
    slope = learning_slope(S, Mlip, m, sigma, n)
    least = _least(lambda K: _least_epsilon([K], slope, m / L, delta) <= eps_target, near=1, at_most=at_most)
    return {"K": least, "K_as_listed": least + 1}


@bound(
    "Least steps for each of a sequence of batches",
    reference=f"{LANGEVIN}, Algorithms 6 to 8, with their count and first index corrected",
    statement="Request by request the least K for which Corollary 3.4 with eta = 1/L keeps (eps_target, delta), over"
    " all real orders; it grows from request to request.",
    assumptions=_CONVERGED,
    outputs={"K": "least number of steps of each request", "total": "their sum"},
)
def alg6_K_list(
    eps_target: EpsilonTarget,
    sigma: Noise,
    total: Records,
    batch: Batch,
    Mlip: Lipschitz,
    m: Convexity,
    L: Smoothness,
    n: Rows,
    delta: Delta,
    at_most: AtMost = 10**12,
    non_adaptive: NonAdaptive = True,
) -> Outputs:
    require_step(1 / L, m, L)
    requests, rest = divmod(total, batch)
    if rest or requests > MOST_REQUESTS:
        raise DomainError(f"Expected total={total} to be a multiple of batch={batch}, at most {MOST_REQUESTS} times")
    slope = learning_slope(batch, Mlip, m, sigma, n)
    work.foresee(_TRIALS * requests * (requests + 1) // 2)
    steps: list[int] = []

    def reached(K: int) -> bool:
        return _least_epsilon([*steps, K], slope, m / L, delta) <= eps_target

    for _ in range(requests):
        steps.append(_least(reached, near=steps[-1] if steps else 1, at_most=at_most))
    return {"K": steps, "total": sum(steps)}


@bound(
    "Unlearning after too little training",
    reference=f"{LANGEVIN}, Section 3.3, the weak triangle inequality twice",
    statement="w(alpha)(eps_T(2 alpha) + w(2 alpha)(eps_T(4 alpha) + eps_RU(4 alpha))), w(alpha) = (alpha -"
    " 1/2)/(alpha - 1), where eps_T bounds the distance of the trained law from the stationary one.",
    assumptions=("eps_T holds for all databases, in both directions.",),
    outputs={"eps": RENYI},
)
def insufficient_training(
    alpha: Order, epsT_2a: Divergence, epsT_4a: Divergence, eps_ru_4a: Divergence, orders: Orders | None = None
) -> Outputs:
    if orders is not None and orders != [2 * alpha, 4 * alpha, 4 * alpha]:
        raise NotionError(f"orders: Expected {[2 * alpha, 4 * alpha, 4 * alpha]}, not {orders}: one order per term")
    return {"eps": _triangle(alpha) * (epsT_2a + _triangle(2 * alpha) * (epsT_4a + eps_ru_4a))}


def _triangle(alpha: float) -> float:
    """The factor of the weak triangle inequality with equal exponents."""
    return (alpha - 0.5) / (alpha - 1)


def _sequence(alpha: float, steps: list[int], slope: float, rate: float) -> float:
    """Corollary 3.4, evaluated from the first request, at the order 2^(s-1) alpha, to the last, at alpha."""
    work.spend(len(steps))
    order = alpha * 2.0 ** (len(steps) - 1)
    eps = math.exp(-rate * steps[0] / order) * slope * order
    for K in steps[1:]:
        order /= 2
        eps = math.exp(-rate * K / order) * _triangle(order) * (slope * 2 * order + eps)
    return eps


def _least_epsilon(steps: list[int], slope: float, rate: float, delta: float) -> float:
    """By Mironov's conversion, over all orders; whatever order the search finds gives a valid epsilon."""

    def log_epsilon(log_excess: float) -> float:
        excess = math.exp(log_excess)
        divergence = _sequence(1 + excess, steps, slope, rate)
        return math.log(min(divergence - math.log(delta) / excess, 1e300))

    found = minimize_scalar(log_epsilon, bounds=(-14.0, 28.0), method="bounded", options={"xatol": 1e-7})
    return math.exp(found.fun)


def _least(reached: Callable[[int], bool], *, near: int, at_most: int) -> int:
    """The least K >= 1 that is reached, given that every larger one is, too."""
    low, high, stride = 0, near, 1
    while not reached(high):
        if high >= at_most:
            raise InfeasibleError(f"Expected at most {at_most} steps to reach the target")
        low, high, stride = high, min(high + stride, at_most), 2 * stride
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
