"""The shift accountant, number by number: privacy amplification by iteration in its sharp form.

Two chains of projected noisy gradient descent with the same steps, whose gradients differ by at most delta_t and which
start within z0. Let c be the Lipschitz constant of a noiseless step and

    Delta <- c Delta + eta delta_t,  Delta_0 = z0;      v <- c^2 v + 2 eta sigma^2,  v_0 = 0.

Their last iterates are mu-GDP in both directions with mu = Delta/sqrt(v) if c <= 1 and delta_t never increases: no
log-Sobolev constant, no dimension, all orders at once, equality for quadratics. Elsewhere mu is that of the string
under the path of (v, Delta), `lethe.theorems.taut_string`, of which this is the case of one piece.
`lethe.proof.accountant` is the same for the chain of a mechanism.
"""

import math
from typing import Annotated

from lethe.proof import conversion
from lethe.proof.errors import DomainError, NotionError, PreconditionError
from lethe.theorems import taut_string, work
from lethe.theorems.bound import Domain, Outputs, bound, hypothesis, real, require, steps_up
from lethe.theorems.symbols import (
    CONVEX,
    HIDDEN,
    SHIFTED,
    Ages,
    Batch,
    Contraction,
    ContractionAtMostOne,
    ContractionBelowOne,
    Converged,
    Convexity,
    ConvexityOrZero,
    Delta,
    EpsilonTarget,
    Group,
    Lipschitz,
    Mus,
    MuTarget,
    Noise,
    NonAdaptive,
    PositiveRadius,
    Projected,
    Records,
    Rows,
    Smoothness,
    StepsAtLeastOne,
    StepSize,
    Weights,
)
from lethe.theorems.taut_string import Stretch

_ITERATION = f'{SHIFTED}; Feldman, Mironov, Talwar, Thakurta, "Privacy amplification by iteration", FOCS 2018'
_STEP = "The step size is at most 2/(m + L), so that a noiseless step contracts by 1 - eta m."
_GD = (*CONVEX[:1], _STEP, *CONVEX[2:], HIDDEN)

StartDistance = Annotated[float, real("largest distance of the two starts", "[0, inf)")]
Segments = Annotated[
    list[tuple[int, float]],
    Domain(
        kind="segments",
        meaning="pairs [steps, largest difference of the two gradients during them]; both nonnegative",
        interval="[0, inf)",
    ),
]
RowPresent = Annotated[
    bool,
    hypothesis("the row is in the data during the whole segment (else count from its insertion)", PreconditionError),
]
Notions = Annotated[
    list[str] | None, Domain(kind="words", meaning="notion of each mu, if known; they must all be the same")
]

_MU = {"mu": "mu-GDP in both directions: alpha mu^2/2 in Renyi divergence at every order"}


@bound(
    "Contraction of a noiseless step",
    reference=_ITERATION,
    statement="x - eta grad f(x) is c-Lipschitz with c = max(|1 - eta m|, |1 - eta L|), which is 1 - eta m if"
    " eta <= 2/(m + L).",
    assumptions=CONVEX[:1],
    outputs={"c": "Lipschitz constant", "decays": "false if c >= 1: then nothing is forgotten by iterating"},
)
def contraction(eta: StepSize, m: ConvexityOrZero, L: Smoothness) -> Outputs:
    if m > L:
        raise DomainError(f"Expected m={m} <= L={L}")
    c = max(abs(1 - eta * m), abs(1 - eta * L))
    return {"c": c, "decays": c < 1}


@bound(
    "The shift accountant",
    reference=_ITERATION,
    statement="The last iterates are mu-GDP, mu^2 the sum of (rise)^2/run over the straight pieces of a string: the"
    " greatest convex function from the origin to the end of the path (c^(2(T-t)) v_t, c^(T-t) Delta_t) that is nowhere"
    " above it. If c <= 1 and the difference never grows there is one piece, and mu = Delta/sqrt(v).",
    assumptions=(
        "Both chains have the same projection, c, eta and sigma; the data differ only as the segments say.",
        HIDDEN,
    ),
    outputs={
        **_MU,
        "Delta": "distance the noiseless chains can reach",
        "v": "variance per coordinate of the noise as it arrives",
    },
)
def shift_mu(z0: StartDistance, segments: Segments, c: Contraction, eta: StepSize, sigma: Noise) -> Outputs:
    reach, v = z0, 0.0
    for steps, gap in segments:
        reach, v = _advance(reach, v, steps, gap, c, eta, sigma)
    noise = 2 * eta * sigma**2
    path = (Stretch(steps=steps, contraction=c, variance=noise, push=eta * gap) for steps, gap in segments if steps)
    mu = taut_string.mu(path, apart=z0)
    return {"mu": mu, "Delta": reach, "v": v}


@bound(
    "One converged model",
    reference=_ITERATION,
    statement="The stationary laws of two data sets that differ in S records are mu-GDP with"
    " mu = 2 S M/(m n)/sqrt(2 eta sigma^2/(1 - c^2)), c = 1 - eta m.",
    assumptions=_GD,
    outputs=_MU,
)
def stationary_mu(
    S: Group,
    Mlip: Lipschitz,
    m: Convexity,
    n: Rows,
    eta: StepSize,
    sigma: Noise,
    L: Smoothness | None = None,
    converged_start: Converged = True,
) -> Outputs:
    c = _contraction(eta, m, L)
    return {"mu": 2 * S * Mlip / (m * n) / _spread(eta, sigma, c)}


@bound(
    "Unlearning a sequence of edits",
    reference=_ITERATION,
    statement="Against retraining on the final data, mu = 2M/(m n) (g_1 c^(k_1) + g_2 c^(k_2) + ...)/sqrt(v): g_i"
    " records edited k_i steps ago.",
    assumptions=_GD,
    outputs=_MU,
)
def ru_mu_sequence(
    ages: Ages,
    weights: Weights,
    Mlip: Lipschitz,
    m: Convexity,
    n: Rows,
    eta: StepSize,
    sigma: Noise,
    L: Smoothness | None = None,
    converged_start: Converged = True,
    non_adaptive: NonAdaptive = True,
) -> Outputs:
    if len(ages) != len(weights):
        raise DomainError(f"Expected as many ages as weights, not {len(ages)} and {len(weights)}")
    c = _contraction(eta, m, L)
    left = math.fsum(g * c**k for k, g in zip(ages, weights, strict=True))
    return {"mu": 2 * Mlip / (m * n) * left / _spread(eta, sigma, c)}


@bound(
    "Unlearning for ever",
    reference=_ITERATION,
    statement="With K steps per request of g records, mu never exceeds 2 g M/(m n) c^K/(1 - c^K)/sqrt(v), however many"
    " requests there are.",
    assumptions=_GD,
    outputs=_MU,
)
def seq_mu_bound(
    g: Group,
    K: StepsAtLeastOne,
    Mlip: Lipschitz,
    m: Convexity,
    n: Rows,
    eta: StepSize,
    sigma: Noise,
    L: Smoothness | None = None,
    converged_start: Converged = True,
    non_adaptive: NonAdaptive = True,
) -> Outputs:
    c = _contraction(eta, m, L)
    return {"mu": 2 * g * Mlip / (m * n) * c**K / (1 - c**K) / _spread(eta, sigma, c)}


@bound(
    "One published version",
    reference=_ITERATION,
    statement="A version K steps after the last published one adds"
    " mu = 2 S M/n sqrt(eta/(2 sigma^2) (1 - c^K)/(1 + c^K) (1 + c)/(1 - c)), given that one.",
    assumptions=_GD,
    outputs=_MU,
)
def mu_release_segment(
    K: StepsAtLeastOne,
    S: Group,
    Mlip: Lipschitz,
    n: Rows,
    eta: StepSize,
    sigma: Noise,
    c: ContractionAtMostOne,
    row_present: RowPresent = True,
) -> Outputs:
    reach, v = _advance(0.0, 0.0, K, 2 * S * Mlip / n, c, eta, sigma)
    return {"mu": reach / math.sqrt(v)}


@bound(
    "Composition",
    reference='Dong, Roth, Su, "Gaussian differential privacy", JRSS B 84 (2022), arXiv 1905.02383, Corollary 3.3',
    statement="mu_i-GDP releases, each given those before it, are together sqrt(mu_1^2 + mu_2^2 + ...)-GDP.",
    assumptions=("All values are of one notion and about the same record.",),
    outputs=_MU,
)
def mu_compose(mus: Mus, notions: Notions = None) -> Outputs:
    if notions is not None and len(notions) != len(mus):
        raise DomainError(f"Expected as many notions as mus, not {len(notions)} and {len(mus)}")
    if notions is not None and len(set(notions)) > 1:
        raise NotionError(f"notions: Expected one notion, not {', '.join(sorted(set(notions)))}")
    return {"mu": math.hypot(*mus)}


@bound(
    "Steps that forget any start",
    reference=_ITERATION,
    statement="K steps from any point of the ball are mu-GDP from the same steps from any other, with"
    " mu = c^K 2R/sqrt(2 eta sigma^2 (1 - c^(2K))/(1 - c^2)): a recovery that does not trust the past.",
    assumptions=("Both chains run on the same data; rows that encode a deleted person are not undone.", HIDDEN),
    outputs={"K": "least number of steps, >= 1"},
)
def reset_K(
    R: PositiveRadius,
    c: ContractionBelowOne,
    eta: StepSize,
    sigma: Noise,
    mu_target: MuTarget,
    projection: Projected = True,
) -> Outputs:
    ratio = (mu_target / (2 * R) * _spread(eta, sigma, c)) ** 2  # c^(2K)/(1 - c^(2K)) must not exceed it
    return {"K": max(1, steps_up(math.log1p(1 / ratio) / (-2 * math.log(c))))}


@bound(
    "Least steps for each of a sequence of batches",
    reference=_ITERATION,
    statement="Request by request the least K >= 1 that keeps the distance from retraining within gdp_mu(eps_target,"
    " delta): Delta <- Delta + 2 batch M/(m n), then Delta <- c^K Delta.",
    assumptions=_GD,
    outputs={"K": "steps of each request", "total": "their sum"},
)
def greedy_K_schedule(
    eps_target: EpsilonTarget,
    delta: Delta,
    batch: Batch,
    total: Records,
    Mlip: Lipschitz,
    m: Convexity,
    L: Smoothness,
    eta: StepSize,
    sigma: Noise,
    n: Rows,
    converged_start: Converged = True,
    non_adaptive: NonAdaptive = True,
) -> Outputs:
    requests, rest = divmod(total, batch)
    if rest or requests > 100_000:
        raise DomainError(f"Expected total={total} to be a multiple of batch={batch}, at most 100000 times")
    c = _contraction(eta, m, L)
    allowed = conversion.gdp_mu(epsilon=eps_target, delta=delta) * _spread(eta, sigma, c)
    work.spend(requests)
    reach = 0.0
    steps: list[int] = []
    for _ in range(requests):
        reach += 2 * batch * Mlip / (m * n)
        steps.append(max(1, steps_up(math.log(reach / allowed) / -math.log(c))))
        reach *= c ** steps[-1]
    return {"K": steps, "total": sum(steps)}


def _advance(reach: float, v: float, steps: int, gap: float, c: float, eta: float, sigma: float) -> tuple[float, float]:
    """(Delta, v) after `steps` with gradients `gap` apart."""
    return (
        c**steps * reach + eta * gap * _geometric(c, steps),
        c ** (2 * steps) * v + 2 * eta * sigma**2 * _geometric(c * c, steps),
    )


def _geometric(ratio: float, terms: int) -> float:
    """1 + ratio + ... + ratio^(terms - 1)."""
    if ratio == 1 or terms == 0:
        return float(terms)
    return math.expm1(terms * math.log(ratio)) / (ratio - 1) if ratio > 0 else 1.0


def _contraction(eta: float, m: float, L: float | None) -> float:
    require(L is None or m <= L, "convexity_below_smoothness", f"m={m} <= L={L}")
    require(eta * (m + (L or m)) <= 2 + 1e-12 and eta * m < 1, "step_size_contracts", f"eta={eta} <= 2/(m + L), < 1/m")
    return 1 - eta * m


def _spread(eta: float, sigma: float, c: float) -> float:
    """Standard deviation per coordinate of the stationary noise, sqrt(2 eta sigma^2/(1 - c^2))."""
    return sigma * math.sqrt(2 * eta / ((1 - c) * (1 + c)))
