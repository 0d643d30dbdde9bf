"""Data deletion: Chourasia and Shah, "Forget unlearning".

Sections 3 and 4 are about requesters who watch what is published and choose their requests accordingly. As printed,
Theorems 4.1 and 4.3 assume a certificate that bounds each version on its own. If requesters read published versions,
that is not enough: later databases contain rows written by requesters who had seen the record. A counterexample with
epsilon = 0 and p = 1: A publishes the bit D; steps 1 to 3 publish a constant, a fresh pad r, and D_3 + r. The requester
has read the first version and copied the bit into another row, so that two releases together reveal it although neither
does alone. The statements hold for the joint law of the versions and the history of requests, which is what noisy
gradient descent certifies.

Theorem 5.1 and Appendix G are about noisy gradient descent on convex losses. Each bound has two forms: as printed, at
the rate lambda/2, and `_tight`, at the rate c1 = lambda (1 - eta lambda/2), which keeps what the printed form drops.

Theorem 5.2 is about bounded losses without convexity, by Gibbs laws. It is theory rather than a product: the step size
shrinks like 1/(d q B), so that a hundred parameters take millions of steps.
"""

import math
from collections.abc import Callable

# scipy loads its modules only when they are first used.
import scipy

from lethe.features.analysis import work
from lethe.features.theorems import symbols as sym
from lethe.features.theorems.bound import NotionError, Outputs, bound, expect, require, steps_up

Rate = Callable[[float, float], float]
"""Contraction rate of one step in continuous time, as a function of lambda and eta."""


def _printed_rate(lam: float, _eta: float) -> float:
    """Return lambda/2, the lower bound on c1 that the printed forms use."""
    return lam / 2


def _rate(lam: float, eta: float) -> float:
    """Return c1, the exact contraction rate of one step in continuous time."""
    return lam * (1 - eta * lam / 2)


@bound
def t31_success(i: sym.DeletionRequest) -> Outputs:
    return {"prob": -math.expm1((3 - i) * math.log(2))}


@bound
def t32_count_loss(eps: sym.EpsilonTarget, i: sym.FirstRelease, N: sym.Releases) -> Outputs:
    if N <= 10_000:
        work.spend(N)
        return {"loss": eps * math.fsum(1 / j for j in range(i, i + N))}
    return {"loss": eps * float(scipy.special.digamma(i + N) - scipy.special.digamma(i))}


@bound
def t41_adv(
    q: sym.OrderOrInfinity,
    eps: sym.Epsilon,
    scope: sym.CertificateScope = "joint",
    p: sym.VersionsSeen = 0,
    releases: sym.ReleasesAfter = 1,
) -> Outputs:
    return {"adv": _advantage(q, eps, scope, p, releases)}


@bound
def t41_adv_plus(
    q: sym.OrderOrInfinity,
    eps: sym.Epsilon,
    scope: sym.CertificateScope = "joint",
    p: sym.VersionsSeen = 0,
    releases: sym.ReleasesAfter = 1,
) -> Outputs:
    chi_square = math.sqrt(math.expm1(min(eps, 1.0))) if q >= 2 else math.inf
    return {"adv": min(_advantage(q, eps, scope, p, releases), chi_square)}


@bound
def t43_adaptive(
    eps_dd: sym.Epsilon,
    eps_dp: sym.Epsilon,
    p: sym.Count,
    q_dd: sym.OrderOrInfinity | None = None,
    q_dp: sym.OrderOrInfinity | None = None,
    counted: sym.Counted = "all_versions",
    conditional: sym.Conditional = True,
) -> Outputs:
    if q_dd is not None and q_dp is not None and q_dd != q_dp:
        raise NotionError(f"same_order: Expected q_dd={q_dd} == q_dp={q_dp}: Renyi values add at one order only")
    if counted == "observed_only" and p > 0:
        raise NotionError("counted: Expected p to count all versions, or eps_dp to be a chain bound")
    return {"eps": eps_dd + p * eps_dp}


@bound
def t45_threshold(q: sym.OrderOrInfinity, adv: sym.Advantage, lower_limit: sym.LowerLimit = True) -> Outputs:
    gain = math.log1p(adv**2)
    if not math.isinf(q):
        gain = math.log(q - 1) + q / (q - 1) * (gain - math.log(q) - math.log(2) / q)
    return {"eps_min": max(adv**4 / 2, gain)}


@bound
def g7_rdp(
    q: sym.Order, L: sym.Lipschitz, sigma: sym.Noise, n: sym.Rows, eta: sym.StepSize, K: sym.Steps, S: sym.Group = 1
) -> Outputs:
    return {"eps": q * (S * L / (sigma * n)) ** 2 * eta * K}


def _g9(
    q: sym.Order,
    L: sym.Lipschitz,
    lam: sym.Convexity,
    sigma: sym.Noise,
    n: sym.Rows,
    eta: sym.StepSize,
    K: sym.Steps,
    beta: sym.ConvexitySmoothed = None,
    S: sym.Group = 1,
    *,
    rate_of: Rate,
) -> Outputs:
    _require_small_step(eta, lam, beta)
    rate = rate_of(lam, eta)
    return {"eps": -_saturated(q, S * L, rate, sigma, n) / 2 * math.expm1(-rate * eta * K)}


g9_rdp = bound(_g9, name="g9_rdp", rate_of=_printed_rate)
g9_rdp_tight = bound(_g9, name="g9_rdp_tight", rate_of=_rate)


@bound
def g14_init_variance(
    lam: sym.Convexity, sigma: sym.Noise, eta: sym.StepSize, actual_variance: sym.Variance | None = None
) -> Outputs:
    return {"var": _initial_variance(lam, sigma, eta, None, actual_variance)}


def _g15(
    q: sym.Order,
    L: sym.Lipschitz,
    lam: sym.Convexity,
    sigma: sym.Noise,
    n: sym.Rows,
    eta: sym.StepSize,
    K: sym.Steps,
    beta: sym.ConvexitySmoothed = None,
    S: sym.Group = 1,
    initial_variance: sym.Variance | None = None,
    non_adaptive: sym.NonAdaptive = True,
    *,
    rate_of: Rate,
) -> Outputs:
    _initial_variance(lam, sigma, eta, beta, initial_variance)
    rate = rate_of(lam, eta)
    return {"eps": _saturated(q, S * L, rate, sigma, n) / 2 * math.exp(-rate * eta * K)}


g15_eps = bound(_g15, name="g15_eps", rate_of=_printed_rate)
g15_eps_tight = bound(_g15, name="g15_eps_tight", rate_of=_rate)


@bound
def g15_K(
    q: sym.Order,
    L: sym.Lipschitz,
    lam: sym.Convexity,
    sigma: sym.Noise,
    n: sym.Rows,
    eta: sym.StepSize,
    eps_dd: sym.EpsilonTarget,
    beta: sym.ConvexitySmoothed = None,
    S: sym.Group = 1,
    initial_variance: sym.Variance | None = None,
    non_adaptive: sym.NonAdaptive = True,
) -> Outputs:
    _initial_variance(lam, sigma, eta, beta, initial_variance)
    return {"K": steps_up(2 / (eta * lam) * math.log(_saturated(q, S * L, lam, sigma, n) / eps_dd))}


@bound
def t51(
    lam: sym.Convexity,
    beta: sym.DataSmoothness,
    L: sym.Lipschitz,
    q: sym.Order,
    eps_dp: sym.EpsilonTarget,
    eps_dd: sym.EpsilonTarget,
    n: sym.Rows,
    d: sym.Dimension,
    r: sym.Group,
) -> Outputs:
    expect(eps_dd <= eps_dp, f"eps_dd={eps_dd} <= eps_dp={eps_dp}")
    expect(r <= n, f"r={r} <= n={n}")
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


@bound
def g16(
    err: sym.ExcessRisk, lam: sym.Convexity, beta: sym.DataSmoothness, L: sym.Lipschitz, n: sym.Rows, r: sym.Group
) -> Outputs:
    return {"err": (1 + beta / lam) * (2 * err + 16 * (r * L / n) ** 2 / lam)}


@bound
def g17(
    err0: sym.ExcessRisk,
    lam: sym.Convexity,
    beta: sym.DataSmoothness,
    sigma: sym.Noise,
    d: sym.Dimension,
    eta: sym.StepSize,
    K: sym.Steps,
) -> Outputs:
    _require_small_step(eta, lam, beta)
    floor = (1 + beta / lam) * d * sigma**2
    return {"err": err0 * math.exp(-lam * eta * K / 2) + floor, "err_fast": err0 * math.exp(-lam * eta * K) + floor}


@bound
def g22(
    q: sym.Order,
    R0: sym.Divergence,
    lam: sym.Convexity,
    beta: sym.DataSmoothness,
    B: sym.Boundedness,
    d: sym.Dimension,
    eta: sym.StepSize,
    K: sym.Steps,
) -> Outputs:
    largest = _largest_step(q, lam, beta, B)
    require(eta <= largest, "step_size_of_convergence", f"eta={eta} <= lam/(64 B q^2 (beta + lam)^2) = {largest:.6g}")
    bias = 32 * d * eta * q * B * (beta + lam) ** 2 / lam
    return {"bound": q * math.exp(-lam * eta * K / (2 * B)) * R0 + bias}


@bound
def g23(c: sym.PotentialGap, sigma: sym.Noise) -> Outputs:
    return {"bound": 2 * c / sigma**2}


@bound
def g24(
    d: sym.Dimension, sigma: sym.Noise, lam: sym.Convexity, beta: sym.DataSmoothness, B: sym.Boundedness
) -> Outputs:
    return {"err": d * sigma**2 / 2 * (math.log1p(beta / lam) + math.sqrt(B))}


@bound
def pE1(F: sym.RecordGap, n: sym.Rows, sigma: sym.Noise) -> Outputs:
    return {"eps": 2 * F / (n * sigma**2)}


@bound
def t52(
    lam: sym.Convexity,
    beta: sym.DataSmoothness,
    L: sym.Lipschitz,
    q: sym.Order,
    B: sym.Boundedness,
    eps_dp: sym.EpsilonTarget,
    eps_dd: sym.EpsilonTarget,
    n: sym.Rows,
    d: sym.Dimension,
    r: sym.Group,
    sigma2: sym.Variance,
    max_abs_loss: sym.LargestLoss | None = None,
    steps_learned: sym.LearningSteps = None,
) -> Outputs:
    # The paper's eps_dp < d serves its risk bound; nothing else changes at equality.
    expect(eps_dd <= eps_dp <= d, f"eps_dd={eps_dd} <= eps_dp={eps_dp} <= d={d}")
    expect(r <= n, f"r={r} <= n={n}")
    log_B = math.log(B)
    loss_bound = sigma2 * log_B / 4
    require(max_abs_loss is None or max_abs_loss <= loss_bound, "bounded_loss", f"{max_abs_loss} <= {loss_bound:.6g}")
    printed = lam * eps_dd / (64 * d * q * B * (beta + lam) ** 2)
    largest = _largest_step(q, lam, beta, B)
    eta = min(printed, largest)
    unit = 2 * B / (lam * eta)
    shift = eps_dd + r / n * log_B
    least = unit * math.log(q * log_B / eps_dd)
    learning = steps_up(least)
    deletion = steps_up(unit * math.log(2 * q * shift / eps_dd))
    run = learning if steps_learned is None else steps_learned
    require(run >= learning, "enough_learning", f"steps_learned={run} >= K_A={learning}")
    eps_dp_actual = q * L**2 / (sigma2 * n**2) * eta * max(run, deletion)
    require(eps_dp_actual <= eps_dp, "noise_for_privacy", f"eps_dp_actual={eps_dp_actual:.6g} <= eps_dp={eps_dp}")
    return {
        "eta_printed": printed,
        "eta_g22": largest,
        "eta": eta,
        "K_A": learning,
        "K_Abar": deletion,
        "K_Abar_printed": steps_up((least if steps_learned is None else run) - unit * math.log(log_B / (2 * shift))),
        "loss_bound": loss_bound,
        "eps_dp_actual": eps_dp_actual,
        "cheaper_than_retraining": r / n <= 0.5 - eps_dd / log_B,
    }


def _advantage(q: float, eps: float, scope: str, p: int, releases: int) -> float:
    """Return the minimum of 1 and the two branches of Theorem 4.1. Raises `NotionError` if a joint bound is needed."""
    if scope == "marginal" and p > 0 and releases > 1:
        raise NotionError(f"scope: Expected a joint bound, or p={p} == 0, or releases={releases} == 1")
    log_one_plus = eps
    if not math.isinf(q):
        log_one_plus = math.log(q / (q - 1)) + eps * (q - 1) / q + math.log(2 * (q - 1)) / q
    return min(math.sqrt(2 * eps), math.expm1(min(log_one_plus, 1.0)), 1.0)


def _saturated(q: float, gradient: float, rate: float, sigma: float, n: int) -> float:
    return 4 * q * (gradient / (sigma * n)) ** 2 / rate


def _require_small_step(eta: float, lam: float, beta: float | None) -> None:
    smoothness = lam + (beta or 0.0)
    detail = f"eta={eta} < 1/(lam + beta) = {1 / smoothness:.6g}"
    require(eta * smoothness < 1, "step_size_below_inverse_smoothness", detail)


def _initial_variance(lam: float, sigma: float, eta: float, beta: float | None, actual: float | None) -> float:
    """Return the initial law's maximum variance. Raises `PreconditionError` if the `actual` variance exceeds it."""
    _require_small_step(eta, lam, beta)
    maximum = sigma**2 / _rate(lam, eta)
    require(actual is None or actual <= maximum, "initial_variance", f"actual variance {actual} <= {maximum:.6g}")
    return maximum


def _largest_step(q: float, lam: float, beta: float, B: float) -> float:
    """Return the maximum step size for which Theorem G.22 holds."""
    return lam / (64 * B * q**2 * (beta + lam) ** 2)
