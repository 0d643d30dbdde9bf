"""Selection among runs, noisy stochastic gradient descent, and unlearning by clipping without any convexity."""

import math

from scipy.special import log_ndtr

from lethe.features.theorems import symbols as sym
from lethe.features.theorems.bound import Outputs, bound, expect, geometric, require
from lethe.proof import conversion, work

_CLIP_WORK = 20
"""Units of work of one step of `model_clip_delta`."""
_STEPS_RESERVED = 1000
"""Number of steps of `model_clip_delta` whose work is reserved at once."""
_SGD = 'Chien, Wang, Chen, Li, "Certified machine unlearning via noisy stochastic gradient descent", arXiv 2403.17105'
_CYCLE = "Batches follow a fixed cycle; the bound of a random order needs joint convexity."
_EPOCHS = (*sym.CONVEX[:4], _CYCLE, sym.HIDDEN)
_CLIPPED = "Each step clips, then adds noise; no assumption on the loss. The reference starts anywhere in the ball C0."


@bound(
    "Publishing only runs that pass a test",
    reference="The law given an event of probability p has density at most 1/p times that of the law",
    statement="Conditioning on acceptance adds alpha/(alpha - 1) log(1/p_accept) to the Renyi divergence, per"
    " direction.",
    outputs={"add_eps": "to be added to the Renyi divergence at order alpha, nats"},
)
def selection_penalty(alpha: sym.Order, p_accept: sym.Accepted, both_runs: sym.BothRuns = True) -> Outputs:
    return {"add_eps": alpha / (alpha - 1) * -math.log(p_accept)}


@bound(
    "Distance of stationary laws under cyclic mini-batches",
    reference=_SGD,
    statement="The stationary laws of neighbours are within Z = 2 eta M/b/(1 - c^(n/b)) in W_infinity, c = 1 - eta m.",
    assumptions=_EPOCHS,
    outputs={"z": "W_infinity distance, at the worst position of the record"},
)
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


@bound(
    "Unlearning by cyclic mini-batches",
    reference=f"{_SGD}; the constant kept: {sym.SHIFTED}",
    statement="K epochs on the new data from laws within z in W_infinity give alpha z^2/(2 eta sigma^2) c^(2Kn/b).",
    assumptions=_EPOCHS,
    outputs={
        "eps": "Renyi divergence at order alpha, nats, as printed",
        "eps_shift": "the same by shift_mu(z, [(Kn/b, 0)]): smaller by 2(1 - c^(2Kn/b))/(1 - c^2)",
    },
)
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


@bound(
    "Hockey-stick divergence of two Gaussians",
    reference='Balle, Wang, "Improving the Gaussian mechanism", ICML 2018, Theorem 8',
    statement="theta(eps, r) = Phi(r/2 - eps/r) - e^eps Phi(-r/2 - eps/r) for N(0, 1) and N(r, 1): gdp_delta.",
    outputs={"theta": "delta, in [0, 1], rounded up"},
)
def theta_hs(eps: sym.Epsilon, r: sym.Separation) -> Outputs:
    return {"theta": conversion.gdp_delta(epsilon=eps, mu=r)}


@bound(
    "Unlearning by model clipping",
    reference=f"{sym.KOLOSKOVA}, model clipping",
    statement="delta <- delta theta(log(1 + (e^eps - 1)/delta), 2 C2/sigma) at every step: P - e^eps Q ="
    " delta P' - (delta + e^eps - 1) Q', and joint convexity.",
    assumptions=("The reference runs the same steps; what comes after the last one is post-processing.",),
    outputs={"delta": "delta at eps; never given below 1e-60"},
)
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


@bound(
    "Unlearning by gradient clipping",
    reference=f"{sym.SHIFTED}, applied to the algorithm of {sym.KOLOSKOVA}",
    statement="D_alpha <= alpha rho with rho = (2 C0 c^T + 2 gamma C1 (1 + ... + c^(T-1)))^2/(2 sigma^2 (1 + ... +"
    " c^(2(T-1)))), c = 1 - gamma lambda: two clipped gradients differ by 2 C1 at most, wherever they are taken.",
    assumptions=(_CLIPPED,),
    outputs={"rho": "slope of the Renyi curve, both directions"},
)
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


@bound(
    "Noise of unlearning by gradient clipping, as printed",
    reference=f"{sym.KOLOSKOVA}, Theorem 4.1",
    statement="sigma^2 = 9 log(1/delta)/(eps^2 T) (C0 + gamma C1 T)^2; with weight decay, 72 gamma lambda"
    " log(1/delta)/eps^2 (C0 (1 - gamma lambda)^T + C1/lambda)^2.",
    assumptions=(
        _CLIPPED,
        "grad_clip_rho confirms this noise for eps <= log(1/delta)/4, not as far as the theorem goes; and released code"
        " seems to convert without the factor alpha: recompute with grad_clip_rho.",
    ),
    outputs={"sigma2": "variance of the noise of one step, per coordinate"},
)
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
    """Return `theta_hs` without its outward margin, which the recursion would amplify; to 1e-12 for r >= 1e-3."""
    if r < 1e-3:
        return conversion.gdp_delta(epsilon=eps, mu=r)
    first, second = float(log_ndtr(r / 2 - eps / r)), float(log_ndtr(-r / 2 - eps / r))
    return math.exp(first) * -math.expm1(min(eps + second - first, 0.0))


def _shrink(gamma: float, lam: float) -> float:
    expect(gamma * lam < 1, f"gamma lam={gamma * lam} < 1")
    return 1 - gamma * lam
