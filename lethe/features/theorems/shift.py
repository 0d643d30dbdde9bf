"""The shift accountant, number by number: privacy amplification by iteration in its sharp form.

Two chains of projected noisy gradient descent with the same steps, whose gradients differ by at most delta_t and which
start within z0. Let c be the Lipschitz constant of a noiseless step and

    Delta <- c Delta + eta delta_t,  Delta_0 = z0;      v <- c^2 v + 2 eta sigma^2,  v_0 = 0.

Their last iterates are mu-GDP in both directions with mu = Delta/sqrt(v) if c <= 1 and delta_t never increases: no
log-Sobolev constant, no dimension, all orders at once, equality for quadratics. Elsewhere mu is that of the string
under the path of (v, Delta), `lethe.proof.taut_string`, of which this is the case of one piece.
`lethe.proof.accountant` is the same for the chain of a mechanism.

`cyclic_batches` reads batches in turn: step t reads batch t mod B, so that a row moves one step in B. The string of
`docs/mathematics/shift.md` is straight from a row's first visit to its last but one, and bent before the last: what
that step lets in is hidden by its own noise and that of the steps after it. However many steps there were before the
step size falls, their visits are one span.
"""

import math
from itertools import accumulate

from lethe.features.theorems import symbols as sym
from lethe.features.theorems.bound import Outputs, bound, expect, geometric, num_batches, require, steps_up
from lethe.proof import conversion, taut_string, work
from lethe.proof.errors import NotionError
from lethe.proof.taut_string import Span, Stretch, mu_of, spans_of

_ITERATION = f'{sym.SHIFTED}; Feldman, Mironov, Talwar, Thakurta, "Privacy amplification by iteration", FOCS 2018'
_STEP = "The step size is at most 2/(m + L), so that a noiseless step contracts by 1 - eta m."
_GD = (*sym.CONVEX[:1], _STEP, *sym.CONVEX[2:], sym.HIDDEN)
_MU = {"mu": "mu-GDP in both directions: alpha mu^2/2 in Renyi divergence at every order"}
_NO_STEP = Span(0.0, 0.0, 1.0)
_COOLDOWN_WORK = 50
"""Units of work that a step of the cool-down costs."""


@bound(
    "Contraction of a noiseless step",
    reference=_ITERATION,
    statement="x - eta grad f(x) is c-Lipschitz with c = max(|1 - eta m|, |1 - eta L|), which is 1 - eta m if"
    " eta <= 2/(m + L).",
    assumptions=sym.CONVEX[:1],
    outputs={"c": "Lipschitz constant", "decays": "false if c >= 1: then nothing is forgotten by iterating"},
)
def contraction(eta: sym.StepSize, m: sym.ConvexityOrZero, L: sym.Smoothness) -> Outputs:
    expect(m <= L, f"m={m} <= L={L}")
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
        sym.HIDDEN,
    ),
    outputs={
        **_MU,
        "Delta": "distance the noiseless chains can reach",
        "v": "variance per coordinate of the noise as it arrives",
    },
)
def shift_mu(
    z0: sym.StartDistance, segments: sym.Segments, c: sym.Contraction, eta: sym.StepSize, sigma: sym.Noise
) -> Outputs:
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
    S: sym.Group,
    Mlip: sym.Lipschitz,
    m: sym.Convexity,
    n: sym.Rows,
    eta: sym.StepSize,
    sigma: sym.Noise,
    L: sym.Smoothness | None = None,
    converged_start: sym.Converged = True,
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
    ages: sym.Ages,
    weights: sym.Weights,
    Mlip: sym.Lipschitz,
    m: sym.Convexity,
    n: sym.Rows,
    eta: sym.StepSize,
    sigma: sym.Noise,
    L: sym.Smoothness | None = None,
    converged_start: sym.Converged = True,
    non_adaptive: sym.NonAdaptive = True,
) -> Outputs:
    expect(len(ages) == len(weights), f"as many ages as weights, not {len(ages)} and {len(weights)}")
    c = _contraction(eta, m, L)
    influence = math.fsum(g * c**k for k, g in zip(ages, weights, strict=True))
    return {"mu": 2 * Mlip / (m * n) * influence / _spread(eta, sigma, c)}


@bound(
    "Unlearning for ever",
    reference=_ITERATION,
    statement="With K steps per request of g records, mu never exceeds 2 g M/(m n) c^K/(1 - c^K)/sqrt(v), however many"
    " requests there are.",
    assumptions=_GD,
    outputs=_MU,
)
def seq_mu_bound(
    g: sym.Group,
    K: sym.StepsAtLeastOne,
    Mlip: sym.Lipschitz,
    m: sym.Convexity,
    n: sym.Rows,
    eta: sym.StepSize,
    sigma: sym.Noise,
    L: sym.Smoothness | None = None,
    converged_start: sym.Converged = True,
    non_adaptive: sym.NonAdaptive = True,
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
    K: sym.StepsAtLeastOne,
    S: sym.Group,
    Mlip: sym.Lipschitz,
    n: sym.Rows,
    eta: sym.StepSize,
    sigma: sym.Noise,
    c: sym.ContractionAtMostOne,
    row_present: sym.RowPresent = True,
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
def mu_compose(mus: sym.Mus, notions: sym.Notions = None) -> Outputs:
    notions = [""] * len(mus) if notions is None else notions
    expect(len(notions) == len(mus), f"as many notions as mus, not {len(notions)} and {len(mus)}")
    if len(set(notions)) > 1:
        raise NotionError(f"notions: Expected one notion, not {', '.join(sorted(set(notions)))}")
    return {"mu": math.hypot(*mus)}


@bound(
    "Steps that forget any start",
    reference=_ITERATION,
    statement="K steps from any point of the ball are mu-GDP from the same steps from any other, with"
    " mu = c^K 2R/sqrt(2 eta sigma^2 (1 - c^(2K))/(1 - c^2)): a recovery that does not trust the past.",
    assumptions=("Both chains run on the same data; rows that encode a deleted person are not undone.", sym.HIDDEN),
    outputs={"K": "least number of steps, >= 1"},
)
def reset_K(
    R: sym.PositiveRadius,
    c: sym.ContractionBelowOne,
    eta: sym.StepSize,
    sigma: sym.Noise,
    mu_target: sym.MuTarget,
    projection: sym.Projected = True,
) -> Outputs:
    # The maximum of c^(2K)/(1 - c^(2K)).
    ratio = (mu_target / (2 * R) * _spread(eta, sigma, c)) ** 2
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
    eps_target: sym.EpsilonTarget,
    delta: sym.Delta,
    batch: sym.Batch,
    total: sym.Records,
    Mlip: sym.Lipschitz,
    m: sym.Convexity,
    L: sym.Smoothness,
    eta: sym.StepSize,
    sigma: sym.Noise,
    n: sym.Rows,
    converged_start: sym.Converged = True,
    non_adaptive: sym.NonAdaptive = True,
) -> Outputs:
    requests = num_batches(total, batch, at_most=100_000)
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


@bound(
    "Cyclic batches",
    reference=f"{sym.SHIFTED}: noisy cyclic gradient descent, the case T = B E, K = 0, q = 1",
    statement="T steps read B batches in turn, the row's among them, and K more leave it out. Whichever batch the row"
    " is in, the last iterates are mu-GDP: mu^2 adds (rise)^2/run over the straight pieces of the string. If B > 1,"
    " q = 1, K = 0 and T = B E, mu = (eta gap/nu) sqrt(1 + c^(2B-2) (1 - c^2)/(1 - c^B)^2 (1 - r)/(1 + r)) with"
    " r = c^(T-B) and nu^2 = 2 eta sigma^2.",
    assumptions=(
        *sym.CONVEX[:1],
        "The step size is at most 2/(m + L), so that a step a times as long contracts by 1 - a (1 - c).",
        *sym.CONVEX[2:4],
        "Which rows are in which batch, and the order of the batches, do not depend on the data; the row keeps its"
        " place when it is replaced or becomes null.",
        sym.HIDDEN,
    ),
    outputs={
        "mu": "mu-GDP in both directions of a row in the batch where it is largest",
        "since_visit": "how many of the T steps came after that batch was last read",
        "mu_least": "mu of a row in the batch where it is least; 0 if not all batches are read",
        "mu_full_batch": "mu of every row if each step had read all batches, which move it by a Bth of the gap",
    },
)
def cyclic_batches(
    B: sym.Batches,
    T: sym.StepsAtLeastOne,
    gap: sym.BatchGap,
    c: sym.ContractionAtMostOne,
    eta: sym.StepSize,
    sigma: sym.Noise,
    K: sym.Steps = 0,
    q: sym.Cooldown = 1,
) -> Outputs:
    require(q <= T, "cooldown_within_run", f"q={q} <= T={T}")
    work.spend(_COOLDOWN_WORK * q)
    push, variance = eta * gap, 2 * eta * sigma**2
    visits = [Span(push * a, variance * a, 1 - (1 - c) * a) for a in ((q - i) / q for i in range(q))]
    quiet = [Span(0.0, visit.variance, visit.decay) for visit in visits]
    rest = [*spans_of(Stretch(steps=K, contraction=c, variance=variance))] if K else []
    before = list(accumulate(quiet, Span.then, initial=_NO_STEP))
    after = list(accumulate([*quiet, *rest][::-1], lambda later, step: step.then(later), initial=_NO_STEP))[::-1]
    between = _windows(quiet, B - 1)

    def mu_of_place(age: int) -> float:
        """Return the mu of the batch that was last read `age` steps before the last of the T."""
        # `first` counts from the first step, `last` from the start of the cool-down.
        first, last = (T - age - 1) % B, q - 1 - age
        path: list[Span[float]] = []
        if first < T - q:
            alike = Stretch(steps=T - q - first, contraction=c, variance=variance, push=push, every=B)
            path += spans_of(alike)
        if last < 0:
            path.append(after[0])
        else:
            path.append(before[last % B])
            path += (visits[i].then(between[i + 1]) for i in range(last % B, last, B))
            path.append(visits[last].then(after[last + 1]))
        return mu_of(span for span in path if span.variance)

    # Of batches last read before the cool-down, the latest has the largest mu and the earliest the smallest.
    read = min(B, T)
    mus = {age: mu_of_place(age) for age in {*range(min(q, read)), min(q, read - 1), read - 1}}
    since_visit = max(sorted(mus), key=lambda age: mus[age])
    alike = [*spans_of(Stretch(steps=T - q, contraction=c, variance=variance, push=push / B))] if q < T else []
    evenly = [Span(visit.influence / B, visit.variance, visit.decay) for visit in visits]
    return {
        "mu": mus[since_visit],
        "since_visit": since_visit,
        "mu_least": min(mus.values()) if B <= T else 0.0,
        "mu_full_batch": mu_of([*alike, *evenly, *rest]),
    }


def _advance(reach: float, v: float, steps: int, gap: float, c: float, eta: float, sigma: float) -> tuple[float, float]:
    """Return (Delta, v) after `steps` with gradients `gap` apart."""
    return (
        c**steps * reach + eta * gap * geometric(c, steps),
        c ** (2 * steps) * v + 2 * eta * sigma**2 * geometric(c * c, steps),
    )


def _contraction(eta: float, m: float, L: float | None) -> float:
    require(L is None or m <= L, "convexity_below_smoothness", f"m={m} <= L={L}")
    require(eta * (m + (L or m)) <= 2 + 1e-12 and eta * m < 1, "step_size_contracts", f"eta={eta} <= 2/(m + L), < 1/m")
    return 1 - eta * m


def _spread(eta: float, sigma: float, c: float) -> float:
    """Return the standard deviation per coordinate of the stationary noise, sqrt(2 eta sigma^2/(1 - c^2))."""
    return sigma * math.sqrt(2 * eta / ((1 - c) * (1 + c)))


def _windows(steps: list[Span[float]], length: int) -> list[Span[float]]:
    """Compose each window of `length` consecutive steps; the list is empty if there are fewer steps."""
    if length > len(steps):
        return []
    windows, done, doubled, size = [_NO_STEP] * (len(steps) + 1), 0, steps, 1
    while done < length:
        if (length - done) & size:
            windows = [window.then(more) for window, more in zip(windows, doubled[done:], strict=False)]
            done += size
        doubled = [first.then(second) for first, second in zip(doubled, doubled[size:], strict=False)]
        size *= 2
    return windows
