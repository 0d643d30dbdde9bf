"""Noisy gradient descent on convex losses: Chourasia and Shah, Theorem 5.1 and Appendix G.

Two forms of each bound: as printed, and `_tight`, with the constants that the printed form rounds away kept in the rate
c1 = lambda (1 - eta lambda/2).
"""

import math
from typing import Annotated

from lethe.proof.errors import DomainError
from lethe.theorems.bound import Outputs, bound, real, require, steps_up
from lethe.theorems.symbols import (
    CONVEX,
    FORGET,
    HIDDEN,
    P1,
    Convexity,
    DataSmoothness,
    Dimension,
    EpsilonTarget,
    ExcessRisk,
    Group,
    Lipschitz,
    Noise,
    NonAdaptive,
    Order,
    Rows,
    Steps,
    StepSize,
    Variance,
)

_PRIVACY = 'Chourasia, Ye, Shokri, "Differential privacy dynamics of Langevin diffusion", NeurIPS 2021, Corollary 1'
_LAST = {"eps": "Renyi divergence of the last iterate at order q, nats, both directions"}
_DELETED = {
    "eps": "Renyi divergence at order q from the run in which the record had been replaced from the start, nats"
}
_STARTED = (*CONVEX, "The initial law is Gaussian with at most the variance of g14_init_variance; a point will do.")
ConvexitySmoothed = Annotated[
    DataSmoothness | None, real("smoothness of the data loss; if not given, the caller establishes P2", "[0, inf)")
]


@bound(
    "All iterates of noisy gradient descent",
    reference=f"{FORGET}, Theorem G.7",
    statement="K steps on a loss with gradients bounded by L are (q, eps)-RDP with eps = q S^2 L^2 eta K/(sigma n)^2,"
    " for all iterates together.",
    assumptions=("No convexity: a gradient bound, or a clip of every row's gradient, of any model.",),
    outputs={"eps": "Renyi divergence of all iterates at order q, nats"},
)
def g7_rdp(q: Order, L: Lipschitz, sigma: Noise, n: Rows, eta: StepSize, K: Steps, S: Group = 1) -> Outputs:
    return {"eps": q * (S * L / (sigma * n)) ** 2 * eta * K}


@bound(
    "Last iterate of noisy gradient descent",
    reference=f"{FORGET}, Theorem G.9; {_PRIVACY}",
    statement="On convex losses K steps are (q, eps)-RDP with eps = 4 q S^2 L^2/(lambda (sigma n)^2)"
    " (1 - e^(-lambda eta K/2)).",
    assumptions=(*CONVEX, HIDDEN, "K counts the steps since the record entered."),
    outputs=_LAST,
)
def g9_rdp(
    q: Order,
    L: Lipschitz,
    lam: Convexity,
    sigma: Noise,
    n: Rows,
    eta: StepSize,
    K: Steps,
    beta: ConvexitySmoothed = None,
    S: Group = 1,
) -> Outputs:
    _require_small_step(eta, lam, beta)
    return {"eps": -_saturated(q, S * L, lam, sigma, n) * math.expm1(-lam * eta * K / 2)}


@bound(
    "Last iterate of noisy gradient descent, constants kept",
    reference=f"{FORGET}, Theorem G.9, without its last two estimates",
    statement="On convex losses K steps are (q, eps)-RDP with eps = 2 q S^2 L^2/(c1 (sigma n)^2) (1 - e^(-c1 eta K)),"
    " c1 = lambda (1 - eta lambda/2).",
    assumptions=(*CONVEX, HIDDEN, "K counts the steps since the record entered."),
    outputs=_LAST,
)
def g9_rdp_tight(
    q: Order,
    L: Lipschitz,
    lam: Convexity,
    sigma: Noise,
    n: Rows,
    eta: StepSize,
    K: Steps,
    beta: ConvexitySmoothed = None,
    S: Group = 1,
) -> Outputs:
    _require_small_step(eta, lam, beta)
    rate = _rate(lam, eta)
    return {"eps": -_saturated(q, S * L, rate, sigma, n) / 2 * math.expm1(-rate * eta * K)}


@bound(
    "Variance of the initial law",
    reference=f"{FORGET}, Lemma G.14",
    statement="Started from N(0, v I) with v = sigma^2/(lambda (1 - eta lambda/2)), or less, the tracing diffusions"
    " satisfy the log-Sobolev inequality with constant v at all times.",
    assumptions=("Convex losses and eta <= 2/(2 lambda + beta).",),
    outputs={"var": "variance per coordinate"},
)
def g14_init_variance(lam: Convexity, sigma: Noise, eta: StepSize, actual_variance: Variance | None = None) -> Outputs:
    _require_small_step(eta, lam, None)
    return {"var": _initial_variance(lam, sigma, eta, actual_variance)}


@bound(
    "Data deletion by noisy gradient descent",
    reference=f"{FORGET}, Theorem G.15",
    statement="After K steps on the edited data, eps = 4 q S^2 L^2/(lambda (sigma n)^2) e^(-lambda eta K/2), however"
    " many requests came before.",
    assumptions=(*_STARTED, HIDDEN),
    outputs=_DELETED,
)
def g15_eps(
    q: Order,
    L: Lipschitz,
    lam: Convexity,
    sigma: Noise,
    n: Rows,
    eta: StepSize,
    K: Steps,
    beta: ConvexitySmoothed = None,
    S: Group = 1,
    initial_variance: Variance | None = None,
    non_adaptive: NonAdaptive = True,
) -> Outputs:
    _require_small_step(eta, lam, beta)
    _initial_variance(lam, sigma, eta, initial_variance)
    return {"eps": _saturated(q, S * L, lam, sigma, n) * math.exp(-lam * eta * K / 2)}


@bound(
    "Data deletion by noisy gradient descent, constants kept",
    reference=f"{FORGET}, Theorem G.15, without its last two estimates",
    statement="After K steps on the edited data, eps = 2 q S^2 L^2/(c1 (sigma n)^2) e^(-c1 eta K),"
    " c1 = lambda (1 - eta lambda/2).",
    assumptions=(*_STARTED, HIDDEN),
    outputs=_DELETED,
)
def g15_eps_tight(
    q: Order,
    L: Lipschitz,
    lam: Convexity,
    sigma: Noise,
    n: Rows,
    eta: StepSize,
    K: Steps,
    beta: ConvexitySmoothed = None,
    S: Group = 1,
    initial_variance: Variance | None = None,
    non_adaptive: NonAdaptive = True,
) -> Outputs:
    _require_small_step(eta, lam, beta)
    _initial_variance(lam, sigma, eta, initial_variance)
    rate = _rate(lam, eta)
    return {"eps": _saturated(q, S * L, rate, sigma, n) / 2 * math.exp(-rate * eta * K)}


@bound(
    "Steps of data deletion by noisy gradient descent",
    reference=f"{FORGET}, Theorem G.15, equation (111)",
    statement="K = 2/(eta lambda) log(4 q S^2 L^2/(lambda eps_dd (sigma n)^2)) steps reach (q, eps_dd)-data-deletion.",
    assumptions=(*_STARTED, HIDDEN),
    outputs={"K": "least number of steps, >= 0"},
)
def g15_K(
    q: Order,
    L: Lipschitz,
    lam: Convexity,
    sigma: Noise,
    n: Rows,
    eta: StepSize,
    eps_dd: EpsilonTarget,
    beta: ConvexitySmoothed = None,
    S: Group = 1,
    initial_variance: Variance | None = None,
    non_adaptive: NonAdaptive = True,
) -> Outputs:
    _require_small_step(eta, lam, beta)
    _initial_variance(lam, sigma, eta, initial_variance)
    return {"K": steps_up(2 / (eta * lam) * math.log(_saturated(q, S * L, lam, sigma, n) / eps_dd))}


@bound(
    "Convex data deletion with all constants",
    reference=f"{FORGET}, Theorem 5.1",
    statement="With the step size, noise and initial law returned, learning and deletion are (q, eps_dp)-RDP for any"
    " number of steps, deletion is (q, eps_dd)-data-deletion after K_del steps, and the excess risk stays below"
    " risk_bound if learning runs K_A_util and each deletion K_Abar_util steps.",
    assumptions=(*CONVEX, "The loss is twice differentiable and convex; requests are non-adaptive."),
    outputs={
        "kappa": "condition number (lambda + beta)/lambda",
        "eta": "step size 1/(2(lambda + beta))",
        "sigma2": "squared noise scale 4 q L^2/(lambda eps_dp n^2)",
        "init_var": "variance per coordinate of the initial law",
        "K_del": "steps per deletion for (q, eps_dd)",
        "K_A_util": "steps of learning for the risk bound",
        "K_Abar_util": "steps per deletion for the risk bound, requests of r records",
        "risk_bound": "10 kappa q d L^2/(lambda eps_dp n^2)",
    },
)
def t51(
    lam: Convexity,
    beta: DataSmoothness,
    L: Lipschitz,
    q: Order,
    eps_dp: EpsilonTarget,
    eps_dd: EpsilonTarget,
    n: Rows,
    d: Dimension,
    r: Group,
) -> Outputs:
    if eps_dd > eps_dp:
        raise DomainError(f"Expected eps_dd={eps_dd} <= eps_dp={eps_dp}")
    if r > n:
        raise DomainError(f"Expected r={r} <= n={n}")
    kappa = (lam + beta) / lam
    eta = 1 / (2 * (lam + beta))
    sigma2 = 4 * q * L**2 / (lam * eps_dp * n**2)
    return {
        "kappa": kappa,
        "eta": eta,
        "sigma2": sigma2,
        "init_var": sigma2 / _rate(lam, eta),
        "K_del": steps_up(4 * kappa * math.log(eps_dp / eps_dd)),
        "K_A_util": steps_up(4 * kappa * math.log(eps_dp * n**2 / (4 * q * d))),
        "K_Abar_util": steps_up(4 * kappa * math.log(max(5 * kappa, 8 * eps_dp * r**2 / (q * d)))),
        "risk_bound": 10 * kappa * q * d * L**2 / (lam * eps_dp * n**2),
    }


@bound(
    "Excess risk after an edit",
    reference=f"{FORGET}, Lemma G.16",
    statement="On the edited data the excess risk is at most (1 + beta/lambda)(2 err + 16 r^2 L^2/(lambda n^2)).",
    assumptions=(P1, "The loss is convex."),
    outputs={"err": "expected excess risk on the edited data"},
)
def g16(err: ExcessRisk, lam: Convexity, beta: DataSmoothness, L: Lipschitz, n: Rows, r: Group) -> Outputs:
    return {"err": (1 + beta / lam) * (2 * err + 16 * (r * L / n) ** 2 / lam)}


@bound(
    "Excess risk after K steps",
    reference=f"{FORGET}, Lemma G.17",
    statement="After K steps the excess risk is at most err0 e^(-lambda eta K/2) + (1 + beta/lambda) d sigma^2; the"
    " rate e^(-lambda eta K) also holds, and the printed one is loose by 2 in the exponent.",
    assumptions=(P1, "The loss is convex."),
    outputs={"err": "expected excess risk, printed rate", "err_fast": "expected excess risk, twice the printed rate"},
)
def g17(
    err0: ExcessRisk, lam: Convexity, beta: DataSmoothness, sigma: Noise, d: Dimension, eta: StepSize, K: Steps
) -> Outputs:
    _require_small_step(eta, lam, beta)
    floor = (1 + beta / lam) * d * sigma**2
    return {"err": err0 * math.exp(-lam * eta * K / 2) + floor, "err_fast": err0 * math.exp(-lam * eta * K) + floor}


def _saturated(q: float, gradient: float, rate: float, sigma: float, n: int) -> float:
    return 4 * q * (gradient / (sigma * n)) ** 2 / rate


def _rate(lam: float, eta: float) -> float:
    """c1, the exact contraction of one step in continuous time."""
    return lam * (1 - eta * lam / 2)


def _require_small_step(eta: float, lam: float, beta: float | None) -> None:
    known = lam + (beta or 0.0)
    require(eta * known < 1, "step_size_below_inverse_smoothness", f"eta={eta} < 1/(lam + beta) = {1 / known:.6g}")


def _initial_variance(lam: float, sigma: float, eta: float, actual: float | None) -> float:
    most = sigma**2 / _rate(lam, eta)
    require(actual is None or actual <= most, "initial_variance", f"actual variance {actual} <= {most:.6g}")
    return most
