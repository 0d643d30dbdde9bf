"""Langevin unlearning by log-Sobolev inequalities: Chien, Wang, Chen and Li; and Descent-to-Delete, their baseline.

Theorems 3.2 and 3.3 are about one batch. The paper's decay e^(-m eta K/alpha) drops a term of the log-Sobolev
inequality. Keeping the term shifts the order instead and removes the 1/alpha (`eps_order_shift`).

Corollary 3.4 and Algorithms 4 to 8 are about sequences of batches. The corollary doubles the order at every request, so
old requests hardly decay and the steps per request grow without limit; `shift.py` avoids this. Errors in the printed
listings are corrected: Algorithms 5 and 6 count one step after the test and return one too many, the index of Algorithm
6 starts at -1, Algorithm 4 returns K instead of sigma, and the first sigma that reaches it instead of the smallest. The
step counts that the authors' code stores for two-class data belong to a smoothness constant measured on the data (L =
0.1947 for MNIST), not to the L = 1/4 + lambda of the paper, with which they are about 35 % larger.

Descent-to-Delete is gradient descent without noise and one noisy publication. Its neighbours differ by adding or
removing a record, not by replacing one, which favours it against the other bounds: replacement has twice the
sensitivity.
"""

import math
from collections.abc import Callable, Iterator

# scipy loads its modules only when they are first used.
import scipy

from lethe.features.analysis import work
from lethe.features.theorems import symbols as sym
from lethe.features.theorems.bound import NotionError, Outputs, bound, expect, num_batches, require, root_gap, steps_up
from lethe.proof.errors import DomainError, InfeasibleError

_MAX_REQUESTS = 200
"""Maximum length of a sequence for Corollary 3.4: s requests evaluate the first one at order 2^(s - 1) alpha."""
_TRIALS = 40
"""Minimum number of orders tried to find out whether a given number of steps suffices."""


@bound
def lsi_cap_log(
    R: sym.Radius,
    Mlip: sym.GradientBoundOrZero,
    eta: sym.StepSize,
    s2_noise: sym.StepNoise,
    bounds_full_gradient: sym.FullGradient = True,
) -> Outputs:
    return {"log_C": _log_cap(R + eta * Mlip, s2_noise)}


@bound
def t32_rates(
    regime: sym.Regime,
    K: sym.StepsSummed,
    eta: sym.StepSize,
    sigma: sym.Noise,
    C_lsi: sym.LogSobolev,
    m: sym.Convexity | None = None,
    L: sym.Smoothness | None = None,
    R: sym.Radius | None = None,
    Mlip: sym.GradientBoundOrZero | None = None,
    converged_start: sym.Converged = True,
    bounds_full_gradient: sym.FullGradient = True,
) -> Outputs:
    noise = 2 * eta * sigma**2
    if regime == "sc":
        m = _given("m", m, "regime sc")
        _require_step(eta, m, L)
        require(sigma**2 / m < C_lsi, "large_log_sobolev", f"sigma^2/m = {sigma**2 / m:.6g} < C_lsi={C_lsi}")
        largest = 2 / m * (1 - sigma**2 / (m * C_lsi))
        require(eta <= largest, "step_size_of_case_3", f"eta={eta} <= 2/m (1 - sigma^2/(m C_lsi)) = {largest:.6g}")
        return {"sum_R": K * noise / C_lsi, "R_0": noise / C_lsi, "C_K": C_lsi}
    stretch = _stretch(regime, eta, L)
    cap = _exp(_log_cap(_projected(R) + eta * _given("Mlip", Mlip, f"regime {regime}"), noise))
    work.spend(K)
    C = C_lsi

    def rates() -> Iterator[float]:
        nonlocal C
        for _ in range(K):
            yield math.log1p(noise / (stretch * C))
            C = min(stretch * C + noise, cap)

    return {"sum_R": math.fsum(rates()), "R_0": math.log1p(noise / (stretch * C_lsi)), "C_K": C}


@bound
def t32_eps(
    alpha: sym.Order,
    eps0: sym.Divergence,
    regime: sym.Regime,
    K: sym.StepsSummed,
    eta: sym.StepSize,
    sigma: sym.Noise,
    C_lsi: sym.LogSobolev,
    m: sym.Convexity | None = None,
    L: sym.Smoothness | None = None,
    R: sym.Radius | None = None,
    Mlip: sym.GradientBoundOrZero | None = None,
    converged_start: sym.Converged = True,
    bounds_full_gradient: sym.FullGradient = True,
) -> Outputs:
    rates = t32_rates.function(regime, K, eta, sigma, C_lsi, m, L, R, Mlip)
    return {"eps": math.exp(-rates["sum_R"] / alpha) * eps0, **rates}


@bound
def t32_sc_eps(
    alpha: sym.Order,
    eps0: sym.Divergence,
    m: sym.Convexity,
    eta: sym.StepSize,
    K: sym.Steps,
    L: sym.Smoothness | None = None,
    converged_start: sym.Converged = True,
) -> Outputs:
    _require_step(eta, m, L)
    shifted = math.exp(2 * K * math.log1p(-eta * m)) if eta * m < 1 else float(K == 0)
    return {"eps": math.exp(-m * eta * K / alpha) * eps0, "eps_order_shift": shifted * eps0}


@bound
def t33_sc(
    alpha: sym.Order,
    S: sym.Group,
    Mlip: sym.Lipschitz,
    m: sym.Convexity,
    sigma: sym.Noise,
    n: sym.Rows,
    eta: sym.StepSize | None = None,
    T: sym.Steps | None = None,
    L: sym.Smoothness | None = None,
) -> Outputs:
    eps = alpha * _learning_slope(S, Mlip, m, sigma, n)
    if eta is not None:
        _require_step(eta, m, L)
    if T is None:
        return {"eps": eps}
    return {"eps": -eps * math.expm1(-m * _given("eta", eta, "a finite T") * T)}


@bound
def t33_general(
    regime: sym.OpenRegime,
    alpha: sym.Order,
    S: sym.Group,
    Mlip: sym.Lipschitz,
    sigma: sym.Noise,
    n: sym.Rows,
    eta: sym.StepSize,
    T: sym.StepsSummed,
    C0: sym.LogSobolev,
    R: sym.Radius | None = None,
    L: sym.Smoothness | None = None,
    bounds_full_gradient: sym.FullGradient = True,
) -> Outputs:
    stretch = _stretch(regime, eta, L)
    half = eta * sigma**2
    cap = _exp(_log_cap(_projected(R) + eta * Mlip, half))
    push = 2 * eta * (S * Mlip / (sigma * n)) ** 2
    C, total = C0, 0.0
    work.spend(T)
    for _ in range(T):
        between = min(stretch * C + half, cap)
        total = (total + push) / (1 + half / between)
        C = min(between + half, cap)
    return {"eps": alpha * total, "C_T": C}


@bound
def savings_sc(
    alpha: sym.Order, m: sym.Convexity, eta: sym.StepSize, d0: sym.PositiveDivergence, eps0: sym.PositiveDivergence
) -> Outputs:
    saved = alpha / (m * eta) * math.log(d0 / eps0)
    return {"iterations": saved, "retraining_cheaper": saved < 0}


@bound
def c34_sequence(
    alpha: sym.Order,
    Ks: sym.StepList,
    eps0_coef: sym.RenyiSlope,
    eta: sym.StepSize,
    m: sym.Convexity,
    L: sym.Smoothness | None = None,
    non_adaptive: sym.NonAdaptive = True,
) -> Outputs:
    _require_step(eta, m, L)
    expect(1 <= len(Ks) <= _MAX_REQUESTS, f"1 <= number of requests={len(Ks)} <= {_MAX_REQUESTS}")
    return {"eps": _sequence(alpha, Ks, eps0_coef, eta * m)}


@bound
def alg4_sigma(
    eps_target: sym.EpsilonTarget,
    K: sym.StepsAtLeastOne,
    S: sym.Group,
    Mlip: sym.Lipschitz,
    m: sym.Convexity,
    L: sym.Smoothness,
    n: sym.Rows,
    delta: sym.Delta,
) -> Outputs:
    _require_step(1 / L, m, L)

    def gap(log_sigma: float) -> float:
        slope = _learning_slope(S, Mlip, m, math.exp(log_sigma), n)
        return _least_epsilon([K], slope, m / L, delta) - eps_target

    guess = math.log(S * Mlip / (n * math.sqrt(m)))
    return {"sigma": math.exp(scipy.optimize.brentq(gap, guess - 40, guess + 40, xtol=1e-12)) * (1 + 1e-9)}


@bound
def alg5_K(
    eps_target: sym.EpsilonTarget,
    sigma: sym.Noise,
    S: sym.Group,
    Mlip: sym.Lipschitz,
    m: sym.Convexity,
    L: sym.Smoothness,
    n: sym.Rows,
    delta: sym.Delta,
    at_most: sym.AtMost = 10**12,
) -> Outputs:
    _require_step(1 / L, m, L)
    slope = _learning_slope(S, Mlip, m, sigma, n)
    least = _least(lambda K: _least_epsilon([K], slope, m / L, delta) <= eps_target, near=1, at_most=at_most)
    return {"K": least, "K_as_listed": least + 1}


@bound
def alg6_K_list(
    eps_target: sym.EpsilonTarget,
    sigma: sym.Noise,
    total: sym.Records,
    batch: sym.Batch,
    Mlip: sym.Lipschitz,
    m: sym.Convexity,
    L: sym.Smoothness,
    n: sym.Rows,
    delta: sym.Delta,
    at_most: sym.AtMost = 10**12,
    non_adaptive: sym.NonAdaptive = True,
) -> Outputs:
    _require_step(1 / L, m, L)
    requests = num_batches(total, batch, at_most=_MAX_REQUESTS)
    slope = _learning_slope(batch, Mlip, m, sigma, n)
    work.foresee(_TRIALS * requests * (requests + 1) // 2)
    steps: list[int] = []

    def reached(K: int) -> bool:
        return _least_epsilon([*steps, K], slope, m / L, delta) <= eps_target

    for _ in range(requests):
        steps.append(_least(reached, near=steps[-1] if steps else 1, at_most=at_most))
    return {"K": steps, "total": sum(steps)}


@bound
def insufficient_training(
    alpha: sym.Order,
    epsT_2a: sym.Divergence,
    epsT_4a: sym.Divergence,
    eps_ru_4a: sym.Divergence,
    orders: sym.Orders | None = None,
) -> Outputs:
    if orders is not None and orders != [2 * alpha, 4 * alpha, 4 * alpha]:
        raise NotionError(f"orders: Expected {[2 * alpha, 4 * alpha, 4 * alpha]}, not {orders}: one order per term")
    return {"eps": _triangle(alpha) * (epsT_2a + _triangle(2 * alpha) * (epsT_4a + eps_ru_4a))}


@bound
def n1_sigma(
    Mlip: sym.Lipschitz,
    m: sym.Convexity,
    L: sym.Smoothness,
    n: sym.Rows,
    I: sym.Iterations,  # noqa: E741
    eps: sym.EpsilonTarget,
    delta: sym.Delta,
    R: sym.PositiveRadius | None = None,
    add_remove: sym.AddRemove = True,
    purpose: sym.Purpose = "baseline",
) -> Outputs:
    require(purpose == "baseline", "stateless", "a mechanism that keeps nothing but its last published model")
    rate = _rate(m, L)
    shrunk = math.exp(-I * rate)
    gap = root_gap(-math.log(delta), eps)
    return {
        "sigma": 4 * math.sqrt(2) * Mlip * shrunk / (m * n * -math.expm1(-I * rate) * gap),
        "T": None if R is None else max(I, I + steps_up(math.log(R * m * n / Mlip) / rate)),
        "stateless": False,
    }


@bound
def n2_d2d(
    Mlip: sym.Lipschitz,
    m: sym.Convexity,
    L: sym.Smoothness,
    n: sym.Rows,
    d: sym.Dimension,
    i: sym.Request,
    eps: sym.EpsilonTarget,
    delta: sym.Delta,
    add_remove: sym.AddRemove = True,
) -> Outputs:
    rate = _rate(m, L)
    loss = 2 * math.log(2 / delta)
    least = max(1, steps_up(math.log(math.sqrt(2 * d) / (-math.expm1(-rate) * root_gap(loss, eps))) / rate))
    # Positive, as 4 d i/delta > 4 > e.
    late = math.log(math.log(4 * d * i / delta)) / rate
    noise = 8 * Mlip * math.exp(-least * rate) / (m * n * -math.expm1(-least * rate) * root_gap(loss + 2 * eps, eps))
    return {"I": least, "iters": least + steps_up(late), "sigma": noise}


def _stretch(regime: str, eta: float, L: float | None) -> float:
    """Return the factor by which a noiseless step multiplies a log-Sobolev constant."""
    if regime == "nc":
        return (1 + eta * _given("L", L, "regime nc")) ** 2
    require(L is None or eta * L <= 2, "step_size_of_convex_case", f"eta={eta} <= 2/L")
    return 1.0


def _projected(R: float | None) -> float:
    require(R is not None, "projection", "a radius R: without strong convexity the steps must project onto a ball")
    return R or 0.0


def _given(name: str, value: float | None, where: str) -> float:
    if value is None:
        raise DomainError(f"Expected parameter {name!r}: {where} needs it")
    return value


def _require_step(eta: float, m: float, L: float | None) -> None:
    require(L is None or m <= L, "convexity_below_smoothness", f"m={m} <= L={L}")
    require(eta * (L or m) <= 1 + 1e-12, "step_size_at_most_inverse_smoothness", f"eta={eta} <= 1/L, L={L or m}")


def _log_cap(reach: float, noise: float) -> float:
    spread = 4 * reach**2
    return math.log(6 * (spread + noise)) + spread / noise


def _exp(value: float) -> float:
    return math.exp(value) if value < 709 else math.inf


def _learning_slope(S: int, Mlip: float, m: float, sigma: float, n: int) -> float:
    """Return eps0(alpha)/alpha of a converged chain, for groups of S records."""
    return 4 * (S * Mlip / (sigma * n)) ** 2 / m


def _triangle(alpha: float) -> float:
    """Return the factor of the weak triangle inequality with equal exponents."""
    return (alpha - 0.5) / (alpha - 1)


def _sequence(alpha: float, steps: list[int], slope: float, rate: float) -> float:
    """Evaluate Corollary 3.4 from the first request, at order 2^(s-1) alpha, to the last, at order alpha."""
    work.spend(len(steps))
    order = alpha * 2.0 ** (len(steps) - 1)
    eps = math.exp(-rate * steps[0] / order) * slope * order
    for K in steps[1:]:
        order /= 2
        eps = math.exp(-rate * K / order) * _triangle(order) * (slope * 2 * order + eps)
    return eps


def _least_epsilon(steps: list[int], slope: float, rate: float, delta: float) -> float:
    """Return Mironov's epsilon minimised over all orders; the epsilon is valid at whatever order the search finds."""

    def log_epsilon(log_excess: float) -> float:
        excess = math.exp(log_excess)
        divergence = _sequence(1 + excess, steps, slope, rate)
        return math.log(min(divergence - math.log(delta) / excess, 1e300))

    minimum = scipy.optimize.minimize_scalar(log_epsilon, bounds=(-14, 28), method="bounded", options={"xatol": 1e-7})
    return math.exp(minimum.fun)


def _least(reached: Callable[[int], bool], *, near: int, at_most: int) -> int:
    """Return the minimum K >= 1 that meets a condition, provided that every larger K also meets it."""
    low, high, stride = 0, near, 1
    while not reached(high):
        if high >= at_most:
            raise InfeasibleError(f"Expected at most {at_most} steps to reach the target")
        low, high, stride = high, min(high + stride, at_most), 2 * stride
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def _rate(m: float, L: float) -> float:
    """Return log(1/g) for g = (L - m)/(L + m)."""
    expect(m < L, f"m={m} < L={L}")
    return math.log((L + m) / (L - m))
