"""Selection among runs, noisy stochastic gradient descent, and unlearning by clipping without any convexity."""

import math

# scipy loads scipy.special only when it is first used.
import scipy

from lethe.features.analysis import work
from lethe.features.theorems import symbols as sym
from lethe.features.theorems.bound import Outputs, bound, expect, geometric, require
from lethe.proof import conversion

_CLIP_WORK = 20
"""Units of work per step of `model_clip_delta`."""
_STEPS_RESERVED = 1000
"""Number of `model_clip_delta` steps for which work is reserved at a time."""


@bound
def selection_penalty(alpha: sym.Order, p_accept: sym.Accepted, both_runs: sym.BothRuns = True) -> Outputs:
    return {"add_eps": alpha / (alpha - 1) * -math.log(p_accept)}


@bound
def sgd_z(
    eta: sym.StepSize,
    m: sym.Convexity,
    Mlip: sym.Lipschitz,
    n: sym.Rows,
    b: sym.BatchSize,
    L: sym.Smoothness | None = None,
    fixed_order: sym.FixedOrder = True,
) -> Outputs:
    return {"z": 2 * eta * Mlip / b / -math.expm1(_epochs(eta, m, n, b, L))}


@bound
def sgd_eps_printed(
    alpha: sym.Order,
    z: sym.StartGap,
    eta: sym.StepSize,
    m: sym.Convexity,
    sigma: sym.Noise,
    n: sym.Rows,
    b: sym.BatchSize,
    K: sym.StepsAtLeastOne,
    L: sym.Smoothness | None = None,
    fixed_order: sym.FixedOrder = True,
) -> Outputs:
    log_decay = 2 * K * _epochs(eta, m, n, b, L)
    eps = alpha * (z / sigma) ** 2 / (2 * eta) * math.exp(log_decay)
    return {"eps": eps, "eps_shift": eps * eta * m * (2 - eta * m) / -math.expm1(log_decay) / 2}


@bound
def theta_hs(eps: sym.Epsilon, r: sym.Separation) -> Outputs:
    return {"theta": conversion.gdp_delta(epsilon=eps, mu=r)}


@bound
def model_clip_delta(
    eps: sym.Epsilon,
    delta0: sym.StartDelta,
    C2: sym.ModelClip,
    sigma: sym.NoisePerStep,
    T: sym.StepsSummed,
    noise_every_step: sym.NoiseEveryStep = True,
) -> Outputs:
    delta = delta0
    for step in range(T):
        if step % _STEPS_RESERVED == 0:
            work.spend(_CLIP_WORK * min(_STEPS_RESERVED, T - step))
        if delta <= 1e-60:
            break
        delta *= _theta(math.log1p(math.expm1(eps) / delta), 2 * C2 / sigma)
    return {"delta": min(max(delta, 1e-60), 1.0)}


@bound
def grad_clip_rho(
    C0: sym.StartClip,
    C1: sym.GradientClip,
    gamma: sym.StepSize,
    lam: sym.Decay,
    sigma: sym.NoisePerStep,
    T: sym.Steps,
    noise_every_step: sym.NoiseEveryStep = True,
) -> Outputs:
    c = _shrink(gamma, lam)
    once, twice = geometric(c, T), geometric(c * c, T)
    reach = 2 * C0 * c**T + 2 * gamma * C1 * once
    return {"rho": (reach / sigma) ** 2 / (2 * twice) if T else math.inf if C0 else 0.0}


@bound
def koloskova_sigma2(
    C0: sym.StartClip,
    C1: sym.GradientClip,
    gamma: sym.StepSize,
    T: sym.StepsAtLeastOne,
    eps: sym.EpsilonTarget,
    delta: sym.Delta,
    lam: sym.Decay = 0.0,
) -> Outputs:
    loss = -math.log(delta)
    expect(eps <= 3 * loss, f"eps={eps} <= 3 log(1/delta) = {3 * loss:.6g}")
    c = _shrink(gamma, lam)
    if lam == 0:
        return {"sigma2": 9 * loss / (eps**2 * T) * (C0 + gamma * C1 * T) ** 2}
    require(c < 0.5, "strong_decay", f"gamma lam={gamma * lam} > 1/2")
    return {"sigma2": 72 * gamma * lam * loss / eps**2 * (C0 * c**T + C1 / lam) ** 2}


def _epochs(eta: float, m: float, n: int, b: int, L: float | None) -> float:
    """Return log c^(n/b), the contraction of one epoch."""
    expect(b <= n, f"b={b} <= n={n}")
    require(L is None or m <= L, "convexity_below_smoothness", f"m={m} <= L={L}")
    is_small = eta * (L or m) <= 1 + 1e-12 and eta * m < 1
    require(is_small, "step_size_at_most_inverse_smoothness", f"eta={eta} <= 1/L, < 1/m")
    return n / b * math.log1p(-eta * m)


def _theta(eps: float, r: float) -> float:
    """Return `theta_hs`, within 1e-12 for r >= 1e-3, without the outward margin that the recursion would amplify."""
    if r < 1e-3:
        return conversion.gdp_delta(epsilon=eps, mu=r)
    first, second = (float(scipy.special.log_ndtr(sign * r / 2 - eps / r)) for sign in (1, -1))
    return math.exp(first) * -math.expm1(min(eps + second - first, 0.0))


def _shrink(gamma: float, lam: float) -> float:
    expect(gamma * lam < 1, f"gamma lam={gamma * lam} < 1")
    return 1 - gamma * lam
