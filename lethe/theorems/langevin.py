"""Langevin unlearning of one batch by log-Sobolev inequalities: Chien, Wang, Chen and Li, Theorems 3.2 and 3.3.

The decay e^(-m eta K/alpha) of the paper drops a term of the log-Sobolev inequality; kept, it shifts the order instead
and the 1/alpha goes away (`eps_order_shift`).
"""

import math
from collections.abc import Iterator
from typing import Annotated

from lethe.proof.errors import DomainError
from lethe.theorems import work
from lethe.theorems.bound import Outputs, bound, real, require
from lethe.theorems.symbols import (
    CONVEX,
    HIDDEN,
    LANGEVIN,
    Converged,
    Convexity,
    Divergence,
    FullGradient,
    Group,
    Lipschitz,
    LogSobolev,
    Noise,
    OpenRegime,
    Order,
    Radius,
    Regime,
    Rows,
    Smoothness,
    Steps,
    StepSize,
    StepsSummed,
)

GradientBoundOrZero = Annotated[float, real("bound of the full gradient on the ball", "[0, inf)")]
StepNoise = Annotated[
    float, real("noise variance per step xi: 2 eta sigma^2, or eta sigma^2 for half a step", "(0, inf)")
]
Positive = Annotated[float, real("Renyi divergence, nats", "(0, inf)", "nats")]

_RATES = {
    "sum_R": "R_0 + ... + R_(K-1): the divergence falls by the factor e^(-sum_R/alpha)",
    "R_0": "rate of the first step",
    "C_K": "log-Sobolev constant after K steps",
}
RENYI = "Renyi divergence at order alpha, nats, both directions"


@bound(
    "Largest log-Sobolev constant of a projected noisy step",
    reference=f"{LANGEVIN}, Lemma G.2",
    statement="On a ball C <= 6(4 rho^2 + xi) e^(4 rho^2/xi) with rho = R + eta M: C-tilde with xi = 2 eta sigma^2,"
    " C-bar with xi = eta sigma^2.",
    outputs={"log_C": "natural logarithm of the constant"},
)
def lsi_cap_log(
    R: Radius, Mlip: GradientBoundOrZero, eta: StepSize, s2_noise: StepNoise, bounds_full_gradient: FullGradient = True
) -> Outputs:
    return {"log_C": _log_cap(R + eta * Mlip, s2_noise)}


@bound(
    "Rates of unlearning in three regimes",
    reference=f"{LANGEVIN}, Theorem 3.2",
    statement="From the stationary law K steps on the new data reduce the divergence by e^(-(R_0 + ... +"
    " R_(K-1))/alpha).",
    assumptions=(
        *CONVEX,
        HIDDEN,
        "nc needs of these only the smoothness L; sc without L leaves eta <= 1/L to the caller.",
    ),
    outputs=_RATES,
)
def t32_rates(
    regime: Regime,
    K: StepsSummed,
    eta: StepSize,
    sigma: Noise,
    C_lsi: LogSobolev,
    m: Convexity | None = None,
    L: Smoothness | None = None,
    R: Radius | None = None,
    Mlip: GradientBoundOrZero | None = None,
    converged_start: Converged = True,
    bounds_full_gradient: FullGradient = True,
) -> Outputs:
    return _rates(regime, K, eta, sigma, C_lsi, m, L, R, Mlip)


@bound(
    "Unlearning in three regimes",
    reference=f"{LANGEVIN}, Theorem 3.2",
    statement="If learning is (alpha, eps0)-RDP and has converged, K steps on the new data are (alpha, eps)-Renyi"
    " unlearning with eps = eps0 e^(-sum_R/alpha), sum_R that of t32_rates.",
    assumptions=(
        *CONVEX,
        HIDDEN,
        "nc needs of these only the smoothness L; sc without L leaves eta <= 1/L to the caller.",
    ),
    outputs={"eps": RENYI, **_RATES},
)
def t32_eps(
    alpha: Order,
    eps0: Divergence,
    regime: Regime,
    K: StepsSummed,
    eta: StepSize,
    sigma: Noise,
    C_lsi: LogSobolev,
    m: Convexity | None = None,
    L: Smoothness | None = None,
    R: Radius | None = None,
    Mlip: GradientBoundOrZero | None = None,
    converged_start: Converged = True,
    bounds_full_gradient: FullGradient = True,
) -> Outputs:
    rates = _rates(regime, K, eta, sigma, C_lsi, m, L, R, Mlip)
    return {"eps": math.exp(-rates["sum_R"] / alpha) * eps0, **rates}


@bound(
    "Unlearning, strongly convex",
    reference=f"{LANGEVIN}, Theorem 3.2, case 3 with C_LSI = 2 sigma^2/m",
    statement="If learning is (alpha, eps0)-RDP and has converged, K steps on the new data are (alpha, eps)-Renyi"
    " unlearning with eps = e^(-m eta K/alpha) eps0.",
    assumptions=(*CONVEX, HIDDEN),
    outputs={
        "eps": RENYI,
        "eps_order_shift": "(1 - eta m)^(2K) eps0: the same with the order shifted instead of the term dropped; valid"
        " if the privacy of learning is linear in alpha, as that of t33_sc is",
    },
)
def t32_sc_eps(
    alpha: Order,
    eps0: Divergence,
    m: Convexity,
    eta: StepSize,
    K: Steps,
    L: Smoothness | None = None,
    converged_start: Converged = True,
) -> Outputs:
    require_step(eta, m, L)
    shifted = math.exp(2 * K * math.log1p(-eta * m)) if eta * m < 1 else float(K == 0)
    return {"eps": math.exp(-m * eta * K / alpha) * eps0, "eps_order_shift": shifted * eps0}


@bound(
    "Privacy of learning, strongly convex",
    reference=f"{LANGEVIN}, Theorem 3.3",
    statement="T steps are (alpha, eps)-RDP for groups of S with eps = 4 alpha (S M)^2/(m (sigma n)^2) (1 - e^(-m eta"
    " T)).",
    assumptions=(
        *CONVEX,
        HIDDEN,
        "The initial law satisfies a log-Sobolev inequality with constant at most 2 sigma^2/m.",
    ),
    outputs={"eps": RENYI},
)
def t33_sc(
    alpha: Order,
    S: Group,
    Mlip: Lipschitz,
    m: Convexity,
    sigma: Noise,
    n: Rows,
    eta: StepSize | None = None,
    T: Steps | None = None,
    L: Smoothness | None = None,
) -> Outputs:
    eps = alpha * learning_slope(S, Mlip, m, sigma, n)
    if eta is not None:
        require_step(eta, m, L)
    if T is None:
        return {"eps": eps}
    return {"eps": -eps * math.expm1(-m * _given("eta", eta, "a finite T") * T)}


@bound(
    "Privacy of learning without strong convexity",
    reference=f"{LANGEVIN}, Theorem 3.3",
    statement="T steps are (alpha, eps)-RDP for groups of S with eps = 2 alpha eta (S M/(sigma n))^2 times the sum"
    " over t of prod (1 + eta sigma^2/C_(t',1))^(-1), the log-Sobolev constants C following the steps.",
    assumptions=(
        HIDDEN,
        "The initial law satisfies a log-Sobolev inequality with constant C0; a point does for any C0.",
    ),
    outputs={"eps": RENYI, "C_T": "log-Sobolev constant after T steps"},
)
def t33_general(
    regime: OpenRegime,
    alpha: Order,
    S: Group,
    Mlip: Lipschitz,
    sigma: Noise,
    n: Rows,
    eta: StepSize,
    T: StepsSummed,
    C0: LogSobolev,
    R: Radius | None = None,
    L: Smoothness | None = None,
    bounds_full_gradient: FullGradient = True,
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
    reference=f"{LANGEVIN}, Appendix E, equation (7)",
    statement="alpha/(m eta) log(d0/eps0) iterations, d0 the divergence of the initial law of retraining and eps0"
    " that of the learnt one.",
    outputs={"iterations": "saved; negative if retraining is cheaper", "retraining_cheaper": "whether it is negative"},
)
def savings_sc(alpha: Order, m: Convexity, eta: StepSize, d0: Positive, eps0: Positive) -> Outputs:
    saved = alpha / (m * eta) * math.log(d0 / eps0)
    return {"iterations": saved, "retraining_cheaper": saved < 0}


def _rates(
    regime: str,
    K: int,
    eta: float,
    sigma: float,
    C_lsi: float,
    m: float | None,
    L: float | None,
    R: float | None,
    Mlip: float | None,
) -> Outputs:
    noise = 2 * eta * sigma**2
    if regime == "sc":
        m = _given("m", m, "regime sc")
        require_step(eta, m, L)
        require(sigma**2 / m < C_lsi, "large_log_sobolev", f"sigma^2/m = {sigma**2 / m:.6g} < C_lsi={C_lsi}")
        longest = 2 / m * (1 - sigma**2 / (m * C_lsi))
        require(eta <= longest, "step_size_of_case_3", f"eta={eta} <= 2/m (1 - sigma^2/(m C_lsi)) = {longest:.6g}")
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


def _stretch(regime: str, eta: float, L: float | None) -> float:
    """Factor by which a noiseless step multiplies a log-Sobolev constant."""
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


def require_step(eta: float, m: float, L: float | None) -> None:
    require(L is None or m <= L, "convexity_below_smoothness", f"m={m} <= L={L}")
    require(eta * (L or m) <= 1 + 1e-12, "step_size_at_most_inverse_smoothness", f"eta={eta} <= 1/L, L={L or m}")


def _log_cap(reach: float, noise: float) -> float:
    spread = 4 * reach**2
    return math.log(6 * (spread + noise)) + spread / noise


def _exp(value: float) -> float:
    return math.exp(value) if value < 709 else math.inf


def learning_slope(S: int, Mlip: float, m: float, sigma: float, n: int) -> float:
    """eps0(alpha)/alpha of a converged chain, for groups of S."""
    return 4 * (S * Mlip / (sigma * n)) ** 2 / m
