"""Langevin unlearning by log-Sobolev inequalities: Chien, Wang, Chen and Li; and Descent-to-Delete, their baseline.

Theorems 3.2 and 3.3 are about one batch. The decay e^(-m eta K/alpha) of the paper drops a term of the log-Sobolev
inequality; kept, it shifts the order instead and the 1/alpha goes away (`eps_order_shift`).

Corollary 3.4 and Algorithms 4 to 8 are about sequences of batches. The corollary doubles the order at every request, so
that old requests hardly decay and the steps per request grow for ever; `shift.py` does not. The slips of the printed
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

from scipy.optimize import brentq, minimize_scalar

from lethe.features.theorems import symbols as sym
from lethe.features.theorems.bound import Outputs, bound, expect, num_batches, require, root_gap, steps_up
from lethe.proof import work
from lethe.proof.errors import DomainError, InfeasibleError, NotionError

_RATES = {
    "sum_R": "R_0 + ... + R_(K-1): the divergence falls by the factor e^(-sum_R/alpha)",
    "R_0": "rate of the first step",
    "C_K": "log-Sobolev constant after K steps",
}
_NEEDED = "nc needs of these only the smoothness L; sc without L leaves eta <= 1/L to the caller."
_REGIMES = (*sym.CONVEX, sym.HIDDEN, _NEEDED)
_RENYI = "Renyi divergence at order alpha, nats, both directions"
_MAX_REQUESTS = 200
"""Maximum length of a sequence by Corollary 3.4: request s evaluates the first one at the order 2^(s - 1) alpha."""
_TRIALS = 40
"""Minimum number of orders tried to find whether one number of steps suffices."""
_CONVERGED = (*sym.CONVEX, sym.HIDDEN, "Learning has converged, with C_LSI = 2 sigma^2/m.")
_NEEL = 'Neel, Roth, Sharifi-Malvajerdi, "Descent-to-delete", ALT 2021, arXiv 2007.02923'
_ASSUMED = (*sym.CONVEX[:1], *sym.CONVEX[2:5], "The step size is 2/(L + m), and eps is of order log(1/delta) at most.")


@bound(
    "Largest log-Sobolev constant of a projected noisy step",
    reference=f"{sym.LANGEVIN}, Lemma G.2",
    statement="On a ball C <= 6(4 rho^2 + xi) e^(4 rho^2/xi) with rho = R + eta M: C-tilde with xi = 2 eta sigma^2,"
    " C-bar with xi = eta sigma^2.",
    outputs={"log_C": "natural logarithm of the constant"},
)
def lsi_cap_log(
    R: sym.Radius,
    Mlip: sym.GradientBoundOrZero,
    eta: sym.StepSize,
    s2_noise: sym.StepNoise,
    bounds_full_gradient: sym.FullGradient = True,
) -> Outputs:
    return {"log_C": _log_cap(R + eta * Mlip, s2_noise)}


@bound(
    "Rates of unlearning in three regimes",
    reference=f"{sym.LANGEVIN}, Theorem 3.2",
    statement="From the stationary law K steps on the new data reduce the divergence by e^(-(R_0 + ... +"
    " R_(K-1))/alpha).",
    assumptions=_REGIMES,
    outputs=_RATES,
)
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


@bound(
    "Unlearning in three regimes",
    reference=f"{sym.LANGEVIN}, Theorem 3.2",
    statement="If learning is (alpha, eps0)-RDP and has converged, K steps on the new data are (alpha, eps)-Renyi"
    " unlearning with eps = eps0 e^(-sum_R/alpha), sum_R that of t32_rates.",
    assumptions=_REGIMES,
    outputs={"eps": _RENYI, **_RATES},
)
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


@bound(
    "Unlearning, strongly convex",
    reference=f"{sym.LANGEVIN}, Theorem 3.2, case 3 with C_LSI = 2 sigma^2/m",
    statement="If learning is (alpha, eps0)-RDP and has converged, K steps on the new data are (alpha, eps)-Renyi"
    " unlearning with eps = e^(-m eta K/alpha) eps0.",
    assumptions=(*sym.CONVEX, sym.HIDDEN),
    outputs={
        "eps": _RENYI,
        "eps_order_shift": "(1 - eta m)^(2K) eps0: the same with the order shifted instead of the term dropped; valid"
        " if the privacy of learning is linear in alpha, as that of t33_sc is",
    },
)
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


@bound(
    "Privacy of learning, strongly convex",
    reference=f"{sym.LANGEVIN}, Theorem 3.3",
    statement="T steps are (alpha, eps)-RDP for groups of S with eps = 4 alpha (S M)^2/(m (sigma n)^2) (1 - e^(-m eta"
    " T)).",
    assumptions=(
        *sym.CONVEX,
        sym.HIDDEN,
        "The initial law satisfies a log-Sobolev inequality with constant at most 2 sigma^2/m.",
    ),
    outputs={"eps": _RENYI},
)
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


@bound(
    "Privacy of learning without strong convexity",
    reference=f"{sym.LANGEVIN}, Theorem 3.3",
    statement="T steps are (alpha, eps)-RDP for groups of S with eps = 2 alpha eta (S M/(sigma n))^2 times the sum"
    " over t of prod (1 + eta sigma^2/C_(t',1))^(-1), the log-Sobolev constants C following the steps.",
    assumptions=(
        sym.HIDDEN,
        "The initial law satisfies a log-Sobolev inequality with constant C0; a point does for any C0.",
    ),
    outputs={"eps": _RENYI, "C_T": "log-Sobolev constant after T steps"},
)
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


@bound(
    "Iterations saved against retraining",
    reference=f"{sym.LANGEVIN}, Appendix E, equation (7)",
    statement="alpha/(m eta) log(d0/eps0) iterations, d0 the divergence of the initial law of retraining and eps0"
    " that of the learnt one.",
    outputs={"iterations": "saved; negative if retraining is cheaper", "retraining_cheaper": "whether it is negative"},
)
def savings_sc(
    alpha: sym.Order, m: sym.Convexity, eta: sym.StepSize, d0: sym.PositiveDivergence, eps0: sym.PositiveDivergence
) -> Outputs:
    saved = alpha / (m * eta) * math.log(d0 / eps0)
    return {"iterations": saved, "retraining_cheaper": saved < 0}


@bound(
    "A sequence of requests by the weak triangle inequality",
    reference=f"{sym.LANGEVIN}, Corollary 3.4, Algorithms 7 and 8",
    statement="eps_(s+1)(alpha) = e^(-m eta K_(s+1)/alpha) (alpha - 1/2)/(alpha - 1) (eps0(2 alpha) + eps_s(2 alpha)),"
    " without the middle factor and eps_s at the first request.",
    assumptions=_CONVERGED,
    outputs={"eps": f"after the last request: {_RENYI}"},
)
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


@bound(
    "Least noise for a budget of steps",
    reference=f"{sym.LANGEVIN}, Algorithm 4, with its return value corrected",
    statement="The smallest sigma for which K steps with eta = 1/L reach (eps_target, delta) for one batch of S, over"
    " all real orders.",
    assumptions=_CONVERGED,
    outputs={"sigma": "noise scale, rounded up"},
)
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
    return {"sigma": math.exp(brentq(gap, guess - 40, guess + 40, xtol=1e-12)) * (1 + 1e-9)}


@bound(
    "Least steps for one batch",
    reference=f"{sym.LANGEVIN}, Algorithm 5, with its count corrected",
    statement="The least K >= 1 for which K steps with eta = 1/L reach (eps_target, delta) for one batch of S, over all"
    " real orders; the printed listing counts one more.",
    assumptions=_CONVERGED,
    outputs={"K": "least number of steps, >= 1", "K_as_listed": "what the printed listing returns: K + 1"},
)
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


@bound(
    "Least steps for each of a sequence of batches",
    reference=f"{sym.LANGEVIN}, Algorithms 6 to 8, with their count and first index corrected",
    statement="Request by request the least K for which Corollary 3.4 with eta = 1/L keeps (eps_target, delta), over"
    " all real orders; it grows from request to request.",
    assumptions=_CONVERGED,
    outputs={"K": "least number of steps of each request", "total": "their sum"},
)
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


@bound(
    "Unlearning after too little training",
    reference=f"{sym.LANGEVIN}, Section 3.3, the weak triangle inequality twice",
    statement="w(alpha)(eps_T(2 alpha) + w(2 alpha)(eps_T(4 alpha) + eps_RU(4 alpha))), w(alpha) = (alpha -"
    " 1/2)/(alpha - 1), where eps_T bounds the distance of the trained law from the stationary one.",
    assumptions=("eps_T holds for all databases, in both directions.",),
    outputs={"eps": _RENYI},
)
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


@bound(
    "Descent-to-Delete with a secret state",
    reference=f"{_NEEL}, as quoted in {sym.LANGEVIN}, Theorem N.1",
    statement="I steps per request and noise of scale 4 sqrt(2) M g^I/(m n (1 - g^I)(sqrt(log(1/delta) + eps) -"
    " sqrt(log(1/delta)))), g = (L - m)/(L + m), publish an (eps, delta)-unlearnt model, but the noiseless model is"
    " kept: a baseline, never a certificate.",
    assumptions=_ASSUMED,
    outputs={
        "sigma": "standard deviation of the noise of publication",
        "T": "steps of learning on a ball of radius R, if R is given",
        "stateless": "false: the noiseless model outlives the deletion",
    },
)
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


@bound(
    "Descent-to-Delete without a secret state",
    reference=f"{_NEEL}, as quoted in {sym.LANGEVIN}, Theorem N.2",
    statement="Request i runs I + log(log(4 d i/delta))/log(1/g) steps, g = (L - m)/(L + m), from the published"
    " model, and publishes with noise of scale 8 M g^I/(m n (1 - g^I)(sqrt(2 log(2/delta) + 3 eps) - sqrt(2"
    " log(2/delta) + 2 eps))).",
    assumptions=_ASSUMED,
    outputs={
        "I": "least number of steps per request, before the term that grows with i",
        "iters": "steps of request i",
        "sigma": "standard deviation of the noise of publication",
    },
)
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
    """Return eps0(alpha)/alpha of a converged chain, for groups of S."""
    return 4 * (S * Mlip / (sigma * n)) ** 2 / m


def _triangle(alpha: float) -> float:
    """Return the factor of the weak triangle inequality with equal exponents."""
    return (alpha - 0.5) / (alpha - 1)


def _sequence(alpha: float, steps: list[int], slope: float, rate: float) -> float:
    """Evaluate Corollary 3.4 from the first request, at the order 2^(s-1) alpha, to the last, at alpha."""
    work.spend(len(steps))
    order = alpha * 2.0 ** (len(steps) - 1)
    eps = math.exp(-rate * steps[0] / order) * slope * order
    for K in steps[1:]:
        order /= 2
        eps = math.exp(-rate * K / order) * _triangle(order) * (slope * 2 * order + eps)
    return eps


def _least_epsilon(steps: list[int], slope: float, rate: float, delta: float) -> float:
    """Minimise Mironov's epsilon over all orders; any order that the search returns gives a valid epsilon."""

    def log_epsilon(log_excess: float) -> float:
        excess = math.exp(log_excess)
        divergence = _sequence(1 + excess, steps, slope, rate)
        return math.log(min(divergence - math.log(delta) / excess, 1e300))

    minimum = minimize_scalar(log_epsilon, bounds=(-14.0, 28.0), method="bounded", options={"xatol": 1e-7})
    return math.exp(minimum.fun)


def _least(reached: Callable[[int], bool], *, near: int, at_most: int) -> int:
    """Return the minimum K >= 1 that is reached, given that every larger K is reached as well."""
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
