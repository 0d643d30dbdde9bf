"""The shift accountant, number by number: privacy amplification by iteration in its sharp form.

Consider two chains of projected noisy gradient descent with the same steps, whose gradients differ by at most delta_t
and whose starting points differ by at most z0. Let c be the Lipschitz constant of a noiseless step and

    Delta <- c Delta + eta delta_t,  Delta_0 = z0;      v <- c^2 v + 2 eta sigma^2,  v_0 = 0.

Their last iterates are mu-GDP in both directions with mu = Delta/sqrt(v) if c <= 1 and delta_t never increases: no
log-Sobolev constant, no dimension, all orders at once, equality for quadratics. Otherwise mu is that of the string
under the path of (v, Delta) (`lethe.features.analysis.taut_string`); the above is its one-piece case.
`lethe.proof.accountant` does the same for a mechanism's chain.

`cyclic_batches` reads batches cyclically: step t reads batch t mod B, so that a row affects one step in B. The string
of `docs/mathematics/shift.md` is straight from the first step that reads the row to the last but one, and bends before
the last: what that step lets in is hidden by its own noise and that of the steps after it. However many steps there
were before the step size falls, those that read the row are one span.
"""

import math
from itertools import accumulate

from lethe.features.analysis import taut_string, work
from lethe.features.analysis.taut_string import Span, Stretch, mu_of, spans_of
from lethe.features.theorems import symbols as sym
from lethe.features.theorems.bound import NotionError, Outputs, bound, expect, geometric, num_batches, require, steps_up
from lethe.proof import conversion

_NO_STEP = Span(0.0, 0.0, 1.0)
_COOLDOWN_WORK = 50
"""Units of work per step of the cool-down."""


@bound
def contraction(eta: sym.StepSize, m: sym.ConvexityOrZero, L: sym.Smoothness) -> Outputs:
    expect(m <= L, f"m={m} <= L={L}")
    c = max(abs(1 - eta * m), abs(1 - eta * L))
    return {"c": c, "decays": c < 1}


@bound
def shift_mu(
    z0: sym.StartDistance, segments: sym.Segments, c: sym.Contraction, eta: sym.StepSize, sigma: sym.Noise
) -> Outputs:
    reach, v = z0, 0.0
    for steps, gap in segments:
        reach, v = _advance(reach, v, steps, gap, c, eta, sigma)
    noise = 2 * eta * sigma**2
    path = (Stretch(steps=steps, contraction=c, variance=noise, push=eta * gap) for steps, gap in segments if steps)
    return {"mu": taut_string.mu(path, apart=z0), "Delta": reach, "v": v}


@bound
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


@bound
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


@bound
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


@bound
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


@bound
def mu_compose(mus: sym.Mus, notions: sym.Notions = None) -> Outputs:
    notions = [""] * len(mus) if notions is None else notions
    expect(len(notions) == len(mus), f"as many notions as mus, not {len(notions)} and {len(mus)}")
    if len(set(notions)) > 1:
        raise NotionError(f"notions: Expected one notion, not {', '.join(sorted(set(notions)))}")
    return {"mu": math.hypot(*mus)}


@bound
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


@bound
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


@bound
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
        """Return the mu of the batch last read `age` steps before the last of the T steps."""
        # `first` counts from the first step, `last` from the start of the cool-down.
        first, last = (T - age - 1) % B, q - 1 - age
        path: list[Span[float]] = []
        if first < T - q:
            path += spans_of(Stretch(steps=T - q - first, contraction=c, variance=variance, push=push, every=B))
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
    """Return (Delta, v) after `steps` steps whose gradients are `gap` apart."""
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
    """Compose each window of `length` consecutive steps. The result is empty if there are fewer steps."""
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
