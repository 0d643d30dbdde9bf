"""Epsilon of a differentially private training ledger, for all of one person's rows together.

A ledger lists a training run's noisy steps, as dp-accounting's event tree or as the history of an Opacus accountant.
Each step sums gradients clipped per row to norm C, and adds noise. Of a person's g rows, a Poisson sample at rate q
contains k with probability Binom(g, q)(k), which moves the sum by at most k C. The step is therefore dominated, both
for adding and for removing the g rows, by the pair of N(0, s^2) and the mixture of N(k, s^2) over k, where s is the
noise multiplier. Some datasets attain this bound, so it is exact.

Sources: A. Ganesh, "Tight Group-Level DP Guarantees for DP-SGD with Sampling via Mixture of Gaussians Mechanisms",
arXiv:2401.10294, for the group; C. A. Choquette-Choo et al., "Privacy Amplification for Matrix Mechanisms",
arXiv:2310.15526, Corollary 4.7, for sums of vectors; V. Doroshenko et al., "Connect the Dots", arXiv:2207.04380, for
the discretisation, which only ever overstates the loss.
"""

import functools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.proof.errors import PreconditionError

RELATIONS = ("add_or_remove_one", "replace_special")
"""Neighbouring relations, named as in dp-accounting: a row is added or removed, or replaced by a row that adds zero."""
MAX_EPSILON = 50.0
"""Largest epsilon that `bound` can return."""
MIN_DELTA, MAX_DELTA = 1e-9, 0.1
MAX_ROWS = 1000
MAX_STEPS = 10_000_000
_MAX_NODES = 2000
_MAX_DISTINCT = 50
_MAX_DEPTH = 20
_MAX_NAME_LENGTH = 100
_MAX_POINTS = 1 << 21
_INTERVAL = 1e-3
"""Discretisation interval of the privacy loss."""
_LOST = 1e-12
"""Part of delta that covers floating-point errors and truncated tails; it is small compared with `MIN_DELTA`."""
_DECIMALS = 1000
_SLACK = 1e-6
"""Margin added before rounding up, because the last digits of sums differ between processors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyStep:
    """Noisy training step. `noise` is a multiple of the clipping norm, `rate` the Poisson sampling rate in (0, 1]."""

    kind: str
    noise: float
    rate: float


Steps = Mapping[NoisyStep, int]
"""Number of times that each step was taken."""


def read(document: Any) -> Steps:
    """Return a ledger's steps.

    Args:
        document: `{"format": "opacus", "history": [[noise_multiplier, sample_rate, steps], ...]}`, or `{"format":
            "dp_event", "event": EVENT}`, where an event is an object with its `class_name` and fields as in
            dp-accounting 0.6. Gaussian and Laplace events, Poisson-sampled Gaussian events, their compositions and NoOp
            events are supported.

    Raises:
        PreconditionError: `event_known`, naming an unsupported event; `ledger_whole` for any other fault.
    """
    steps: Counter[NoisyStep] = Counter()
    match document:
        case {"format": "opacus", "history": list(history), **rest} if not rest:
            _require(len(history) <= _MAX_NODES, f"at most {_MAX_NODES} entries of the history")
            for entry in history:
                _require(isinstance(entry, list) and len(entry) == 3, "entries [noise_multiplier, sample_rate, steps]")
                noise, rate, count = entry
                steps[_step("gaussian", noise, rate)] += _count(count)
        case {"format": "dp_event", "event": event, **rest} if not rest:
            nodes = [0]
            _walk(event, 1, 1.0, steps, nodes, _MAX_DEPTH)
        case _:
            _require(False, "a format (opacus or dp_event) with its history or event, and nothing else")
    _require(0 < len(steps) <= _MAX_DISTINCT, f"1 to {_MAX_DISTINCT} different steps")
    _require(sum(steps.values()) <= MAX_STEPS, f"at most {MAX_STEPS} steps")
    return steps


def from_dp_event(event: Any) -> dict[str, Any]:
    """Return the ledger for a dp-accounting `DpEvent`."""
    return {"format": "dp_event", "event": _written(event)}


def from_opacus(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ledger for an Opacus accountant, given its `state_dict()`."""
    history = [[float(noise), float(rate), int(steps)] for noise, rate, steps in state["history"]]
    return {"format": "opacus", "history": history}


def epsilon(steps: Steps, *, rows: int, delta: float) -> float | None:
    """Return `bound`, rounded up to three decimals."""
    value = bound(steps, rows=rows, delta=delta)
    return math.ceil((value + _SLACK) * _DECIMALS) / _DECIMALS if value else value


def is_epsilon(stated: Any, steps: Steps, *, rows: int, delta: float) -> bool:
    """Return True if `stated` is at least `bound` and exceeds it only by rounding."""
    value = bound(steps, rows=rows, delta=delta)
    return value is not None and _is_number(stated) and value <= stated <= value + 2 / _DECIMALS


def bound(steps: Steps, *, rows: int, delta: float) -> float | None:
    """Return an upper bound on epsilon at `delta` for adding or removing `rows` rows together, or None if it exceeds
    `MAX_EPSILON`. `rows` is in [0, MAX_ROWS], and `delta` in [MIN_DELTA, MAX_DELTA].

    Raises:
        PreconditionError: `accountant_installed` without dp-accounting; `ledger_whole` if an argument is out of range.
    """
    _require(type(rows) is int and 0 <= rows <= MAX_ROWS, f"rows in [0, {MAX_ROWS}]")
    _require(_is_number(delta) and MIN_DELTA <= delta <= MAX_DELTA, f"a delta in [{MIN_DELTA}, {MAX_DELTA}]")
    if rows == 0:
        return 0.0
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError:
        missing = "Install lethe-sdk[ledgers], which brings dp-accounting"
        raise PreconditionError("accountant_installed", missing) from None
    return _bound(tuple(steps.items()), rows, delta, privacy_loss_distribution)


@functools.lru_cache(maxsize=1000)
def _bound(
    steps: tuple[tuple[NoisyStep, int], ...], rows: int, delta: float, privacy_loss_distribution: Any
) -> float | None:
    total, num_steps = None, sum(count for _, count in steps)
    for step, count in steps:
        if step.kind == "laplace":
            part = _repeated(_laplace(step.noise / rows, privacy_loss_distribution), count, rows / step.noise)
        elif step.rate == 1:
            # Gaussian steps compose exactly: mu is the root of the summed squares (Dong, Roth, Su, Corollary 3.3).
            mu = rows * math.sqrt(count) / step.noise
            part = None if mu * mu / 2 > MAX_EPSILON else _gaussian(1 / mu, privacy_loss_distribution)
        else:
            part = _sampled(step, count, rows, _LOST / num_steps, privacy_loss_distribution)
        if part is None:
            return None
        total = part if total is None else total.compose(part)
    assert total is not None
    value = float(total.get_epsilon_for_delta(delta - 3 * _LOST)) + _LOST
    # NaN counts as beyond the maximum, too.
    return value if value <= MAX_EPSILON else None


def curve(steps: Steps, *, delta: float, budget: float) -> dict[int, float | None]:
    """Search for the largest number of rows with epsilon <= `budget`; map each number tried to its epsilon."""
    points: dict[int, float | None] = {}

    def fits(rows: int) -> bool:
        points[rows] = epsilon(steps, rows=rows, delta=delta)
        return (value := points[rows]) is not None and value <= budget

    low, high = 0, 1
    while high <= MAX_ROWS and fits(high):
        low, high = high, 2 * high
    high = min(high, MAX_ROWS + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return dict(sorted(points.items()))


def rows_within(points: Mapping[int, float | None], budget: float) -> int:
    """Return the largest number of rows in `points` whose epsilon is at most `budget`, or 0 if there is none."""
    return max((rows for rows, value in points.items() if value is not None and value <= budget), default=0)


def _walk(event: Any, count: int, rate: float, steps: Counter[NoisyStep], nodes: list[int], depth: int) -> None:
    nodes[0] += 1
    _require(nodes[0] <= _MAX_NODES and depth > 0, f"at most {_MAX_NODES} events, nested at most {_MAX_DEPTH} deep")
    _require(isinstance(event, dict) and isinstance(event.get("class_name"), str), "events with their class_name")
    name, module = event["class_name"], event.get("module_name", "")
    is_name = isinstance(module, str) and len(module) <= _MAX_NAME_LENGTH and module.isascii() and module.isprintable()
    _require(is_name, f"a module_name of at most {_MAX_NAME_LENGTH} characters of ASCII")
    fields = {key: value for key, value in event.items() if key not in ("class_name", "module_name")}
    match name, fields:
        case "NoOpDpEvent", {**rest} if not rest:
            pass
        case "GaussianDpEvent", {"noise_multiplier": noise, **rest} if not rest:
            steps[_step("gaussian", noise, rate)] += count
        case "LaplaceDpEvent", {"noise_multiplier": noise, **rest} if not rest and rate == 1:
            steps[_step("laplace", noise, rate)] += count
        case "SelfComposedDpEvent", {"event": inner, "count": times, **rest} if not rest and rate == 1:
            _walk(inner, count * _count(times), rate, steps, nodes, depth - 1)
        case "ComposedDpEvent", {"events": list(inner), **rest} if not rest and rate == 1:
            for child in inner:
                _walk(child, count, rate, steps, nodes, depth - 1)
        case "PoissonSampledDpEvent", {
            "sampling_probability": sampling,
            "event": {"class_name": "GaussianDpEvent"} as inner,
            **rest,
        } if not rest and rate == 1:
            _walk(inner, count, _rate(sampling), steps, nodes, depth - 1)
        case _:
            inner = fields.get("event")
            of = f" of {inner.get('class_name')!r}"[:60] if isinstance(inner, dict) else ""
            names = [field[:60] for field in sorted(fields)[:5]]
            raise PreconditionError(
                "event_known",
                f"The event {name[:60]!r}{of}, with the fields {names}, has no exact bound for a person's "
                "rows here; expected Gaussian, Laplace or Poisson-sampled Gaussian events and their compositions",
            )


def _step(kind: str, noise: Any, rate: Any) -> NoisyStep:
    _require(_is_number(noise) and 1e-3 <= noise <= 1e6, "noise multipliers in [0.001, 1000000]")
    return NoisyStep(kind=kind, noise=float(noise), rate=_rate(rate))


def _rate(rate: Any) -> float:
    _require(_is_number(rate) and 1e-9 <= rate <= 1, "sampling rates in [0.000000001, 1]")
    return float(rate)


def _count(count: Any) -> int:
    _require(type(count) is int and 0 < count <= MAX_STEPS, f"whole numbers of steps in [1, {MAX_STEPS}]")
    return int(count)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < math.inf


def _require(holds: bool, expected: str) -> None:
    if not holds:
        raise PreconditionError("ledger_whole", f"Expected {expected}")


def _written(event: Any) -> Any:
    """Return an event, or the value of an event's field, as JSON."""
    if isinstance(event, (list, tuple)):
        return [_written(part) for part in event]
    names = [field.name for field in getattr(type(event), "__attrs_attrs__", ())]
    if not names and type(event).__name__[-7:] != "DpEvent":
        return event
    return {"class_name": type(event).__name__} | {name: _written(getattr(event, name)) for name in names}


def _gaussian(deviation: float, distributions: Any) -> Any:
    return distributions.from_gaussian_mechanism(deviation, value_discretization_interval=_INTERVAL)


def _laplace(scale: float, distributions: Any) -> Any:
    # The privacy loss is at most 1 / scale.
    if 1 / scale > MAX_EPSILON:
        return None
    return distributions.from_laplace_mechanism(scale, value_discretization_interval=_INTERVAL)


def _repeated(part: Any, count: int, most: float) -> Any:
    """Compose `part`, whose loss is at most `most`, with itself `count` times; None if the result would be too long."""
    if part is None or count * most / _INTERVAL > 2 * _MAX_POINTS:
        return None
    return part.self_compose(count)


def _sampled(step: NoisyStep, count: int, rows: int, lost: float, distributions: Any) -> Any:
    """Return the privacy loss of `count` Poisson-sampled Gaussian steps for `rows` rows; None beyond `MAX_EPSILON`.

    Unlikely samples, which contain the most rows and have a total probability below `lost`, are ignored. This changes
    delta and epsilon by at most `lost` per step.
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, MixtureGaussianPrivacyLoss
    from scipy import stats

    most = min(rows, 1 + int(stats.binom.isf(lost, rows, step.rate)))
    held = np.arange(most + 1)
    weights = stats.binom.pmf(held, rows, step.rate)
    weights /= weights.sum()
    parts = []
    for adjacency in (AdjacencyType.REMOVE, AdjacencyType.ADD):
        bounds = MixtureGaussianPrivacyLoss(
            step.noise, held.astype(float), weights, adjacency_type=adjacency
        ).connect_dots_bounds()
        low, high = (bounds.epsilon_lower / _INTERVAL, bounds.epsilon_upper / _INTERVAL)
        if high - low > _MAX_POINTS:
            return None
        loss = _mixture(step.noise, held, weights, adjacency)
        if count * loss.mean() > MAX_EPSILON:
            return None
        low, high = math.floor(low), math.ceil(high)
        deltas = loss.get_delta_for_epsilon(np.arange(low, high + 1) * _INTERVAL)
        parts.append(pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(_INTERVAL, low, high, deltas))
    return distributions.PrivacyLossDistribution(*parts).self_compose(count)


def _mixture(noise: float, held: Any, weights: Any, adjacency: Any) -> Any:
    """Return dp-accounting's privacy loss for a mixture of Gaussians, with a vectorised inverse, because the original
    takes seconds."""
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, MixtureGaussianPrivacyLoss
    from scipy import special, stats

    sign = -1.0 if adjacency == AdjacencyType.REMOVE else 1.0
    logs = np.log(weights) - held**2 / (2 * noise**2)
    slopes = sign * held / noise**2
    # The mass beyond 40 deviations is below the smallest positive float.
    grid = np.linspace(-40 * noise - held[-1], 40 * noise + held[-1], 1 << 13)

    def losses(x: Any) -> tuple[Any, Any]:
        exponents = logs + np.multiply.outer(x, slopes)
        total = special.logsumexp(exponents, axis=1)
        return -sign * total, -sign * (np.exp(exponents - total[:, None]) @ slopes)

    on_grid = losses(grid)[0]

    class LossOnGrid(MixtureGaussianPrivacyLoss):  # type: ignore[misc]
        def inverse_privacy_losses(self, privacy_losses: Any, precision: float = 0) -> Any:
            """Return the points at which the decreasing loss takes each value, using a table and Newton's method."""
            place = np.clip(np.searchsorted(-on_grid, -privacy_losses), 1, grid.size - 1)
            left, right = grid[place - 1], grid[place]
            x = np.clip(np.interp(-privacy_losses, -on_grid, grid), left, right)
            for _ in range(4):
                loss_at_x, slope = losses(x)
                x = np.clip(x - (loss_at_x - privacy_losses) / np.minimum(slope, -1e-300), left, right)
            return x

        def mean(self) -> float:
            centres = -held if adjacency == AdjacencyType.REMOVE else np.zeros(1)
            shares = weights if adjacency == AdjacencyType.REMOVE else np.ones(1)
            density = stats.norm.pdf(np.subtract.outer(grid, centres), scale=noise) @ shares
            return float(np.trapezoid(on_grid * density, grid))

    return LossOnGrid(noise, held.astype(float), weights, adjacency_type=adjacency)
