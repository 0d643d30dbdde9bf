"""Calibration of a mechanism to a target: settings, steps, batch sizes and noise that reach (epsilon, delta).

Every function inverts the accountant itself by bisection of a monotone quantity, so its result agrees with the ledger
to the last digit.
"""

import math
from dataclasses import dataclass, replace

from lethe.proof import accountant, conversion, errors, losses, mechanism
from lethe.proof.network import PublicNetwork

MAX_HEADROOM = 2.0
"""Maximum ratio of one record's stationary mu to that of the target with the default noise (`docs/decisions`)."""
UNFELT_NOISE = 0.1
"""Standard deviation of a logit up to which noise costs no accuracy; the default noise is never smaller."""
FELT_NOISE = 0.35
"""Standard deviation of a logit above which noise costs accuracy; the default exceeds it only beyond MAX_HEADROOM."""
TARGET_SHARE = 0.5
"""Ratio of the noise tolerated by a target in [-1, 1] to the noise tolerated by a logit."""
DEFAULT_WIDTHS = {
    losses.Objective.HUBER_REGRESSION: 0.2,
    losses.Objective.SMOOTHED_HINGE: 1.0,
    losses.Objective.POISSON_REGRESSION: 2.0,
}
INITIAL_DISTANCE = 1e-6
"""Fraction of the initial distance to the minimiser that remains when training ends."""
MIN_BATCH_SIZE = 100
"""Minimum default batch size, unless the dataset has fewer slots."""
MAX_DEFAULT_COOL_DOWN = 400
"""Maximum default number of cool-down steps, unless a third of a pass is more. With more steps, runs on up to a few
million rows read more rows, and runs on larger datasets fewer."""


def default_l2(
    num_slots: int, epsilon: float, objective: losses.Objective = losses.Objective.LOGISTIC_REGRESSION
) -> float:
    """Return the default l2: max(2/(n0 epsilon), 2.5e-4), where n0 is `num_slots` and epsilon is clipped to [0.05, 2].

    Fewer rows or a stricter target need stronger regularisation against the noise. For regressions that predict the
    target directly, the default is max(1/n0, 2.5e-4), because shrinkage biases the predictions themselves.

    The constants were chosen once, on public tables of 134 to 32,561 rows (`benchmarks/defaults.py`). The lower limit
    bounds the number of learning steps.

    >>> default_l2(1000, 1.0), default_l2(1000, 8.0), default_l2(1_000_000, 1.0)
    (0.002, 0.001, 0.00025)
    """
    numerator = 1.0 if objective.scores_are_y else 2 / min(max(epsilon, 0.05), 2.0)
    return max(numerator / num_slots, 2.5e-4)


def default_batch_size(num_slots: int) -> int:
    """Return the default batch size: min(n0/200, sqrt(n0)) for n0 slots, rounded up and at least `MIN_BATCH_SIZE`.

    A large dataset has two hundred batches or more; a dataset with fewer than `MIN_BATCH_SIZE` slots has one batch.

    >>> [default_batch_size(n) for n in (10, 1000, 32_561, 1_000_000)]
    [10, 100, 163, 1000]
    """
    return min(num_slots, max(MIN_BATCH_SIZE, math.ceil(min(num_slots / 200, math.sqrt(num_slots)))))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """A model's target and the settings of its mechanism, independent of its data.

    `mechanism_for` replaces each setting that is None with its default.
    """

    epsilon: float
    delta: float
    method: str = "langevin"
    loss_width: float | None = None
    l2: float | None = None
    noise_scale: float | None = None
    step_size: float | None = None
    radius: float | None = None
    learn_steps: int | None = None
    batch_size: int | None = None
    cool_down: int | None = None
    second_moment: float | None = None


def mechanism_for(
    settings: ModelSettings,
    *,
    num_slots: int,
    num_classes: int,
    objective: losses.Objective = losses.Objective.LOGISTIC_REGRESSION,
    num_parameters: int | None = None,
    class_weights: tuple[float, ...] | None = None,
    weight_bound: float | None = None,
    network: PublicNetwork | None = None,
) -> mechanism.Mechanism:
    """Return the mechanism of `settings`, with defaults that depend on public constants only.

    Defaults:

    - `loss_width`: `DEFAULT_WIDTHS[objective]` if the loss has a width.
    - `batch_size`: `default_batch_size(num_slots)`.
    - `cool_down`: two passes, at most max(`MAX_DEFAULT_COOL_DOWN` steps, a third of a pass); 1 if steps read all rows.
    - `l2`: `default_l2(num_slots, epsilon, objective)`.
    - `step_size`: 2 / (L + m), which minimises the contraction c.
    - `radius`: `farthest_minimiser`, the radius of a ball that contains the minimiser for every dataset.
    - `second_moment`: None. A stated bound lowers L and raises the default step size.
    - `class_weights`, `weight_bound`: None. They change no constant.
    - `learn_steps`: minimum T with c^T <= `INITIAL_DISTANCE`, but at least one pass and the cool-down.
    - `noise_scale`: the value at which one record's stationary mu, s / (1 - c^B) / spread, equals that of (epsilon,
      delta). The spread sqrt(nu^2 / (1 - c^2)) of a score is at least `UNFELT_NOISE` and exceeds `FELT_NOISE` only if
      mu would otherwise exceed `MAX_HEADROOM` times that of the target. Both limits are multiplied by `TARGET_SHARE` if
      scores predict the target directly.
    - `grid`: `finest_grid` if `num_parameters` is given, otherwise no rounding.
    - `network`: None.

    Raises:
        DomainError: if a number is out of range.
        PreconditionError: if the mechanism has no contraction or no representable noise.

    >>> m = mechanism_for(ModelSettings(epsilon=1.0, delta=1e-5), num_slots=32561, num_classes=2)
    >>> m.num_batches, m.cool_down, m.learn_steps, round(m.contraction, 6), round(m.noise_scale, 5)
    (199, 398, 6915, 0.998004, 0.00553)
    """
    if num_slots < 1:
        raise errors.DomainError(f"Expected num_slots={num_slots} >= 1")
    width = DEFAULT_WIDTHS.get(objective) if settings.loss_width is None else settings.loss_width
    losses.require_loss(objective, num_classes, width)
    m = default_l2(num_slots, settings.epsilon, objective) if settings.l2 is None else settings.l2
    if not (math.isfinite(m) and m > 0):
        raise errors.DomainError(f"Expected l2={m} > 0 and finite")
    minimiser_radius = losses.farthest_minimiser(objective, num_classes, m, loss_width=width)
    max_curvature = losses.smoothness(objective, num_classes, m, loss_width=width, second_moment=settings.second_moment)
    size = default_batch_size(num_slots) if settings.batch_size is None else settings.batch_size
    draft = mechanism.Mechanism(
        objective=objective,
        num_slots=num_slots,
        num_classes=num_classes,
        l2=m,
        loss_width=width,
        step_size=2 / (max_curvature + m) if settings.step_size is None else settings.step_size,
        noise_scale=max(1.0, minimiser_radius) if settings.noise_scale is None else settings.noise_scale,
        radius=minimiser_radius if settings.radius is None else settings.radius,
        learn_steps=max(settings.cool_down or 1, num_slots // size)
        if settings.learn_steps is None
        else settings.learn_steps,
        batch_size=size,
        cool_down=1 if settings.cool_down is None else settings.cool_down,
        second_moment=settings.second_moment,
        class_weights=class_weights,
        weight_bound=weight_bound,
        network=network,
    )
    gap = 1 - draft.contraction
    if settings.learn_steps is None:
        steps_to_minimiser = math.ceil(math.log(INITIAL_DISTANCE) / math.log1p(-gap))
        draft = replace(draft, learn_steps=max(steps_to_minimiser, draft.num_batches, draft.cool_down))
    if settings.cool_down is None:
        two_passes = 2 * draft.num_batches if draft.num_batches > 1 else 1
        longest = min(max(MAX_DEFAULT_COOL_DOWN, draft.num_batches // 3), mechanism.MAX_COOL_DOWN)
        draft = replace(draft, cool_down=min(two_passes, longest, draft.learn_steps))
    if settings.noise_scale is None:
        influence = draft.sensitivity(mechanism.Adjacency.ZERO_OUT) / -math.expm1(draft.num_batches * math.log1p(-gap))
        target = conversion.gdp_mu(epsilon=settings.epsilon, delta=settings.delta)
        unit = TARGET_SHARE if objective.scores_are_y else 1.0
        spread = unit * _default_spread(influence / target / unit)
        draft = replace(draft, noise_scale=spread * math.sqrt(gap * (2 - gap) / (2 * draft.step_size)))
    if num_parameters is not None:
        grid = mechanism.finest_grid(noise_std=draft.least_noise_std, radius=draft.radius)
        draft = replace(draft, grid=grid, num_parameters=num_parameters)
    return draft


def _default_spread(spread_at_target: float) -> float:
    """Return the default spread of a logit, given the spread at which one record's mu equals the target's mu."""
    return min(max(spread_at_target, UNFELT_NOISE), max(FELT_NOISE, spread_at_target / MAX_HEADROOM))


def least_steps(chain: accountant.Chain, *, records: int, epsilon: float, delta: float, at_most: int) -> int:
    """Return the minimum K >= 1 such that K steps meet the target after `records` more deletions.

    The target bounds `unlearning`, relative to training from scratch, and covers all earlier deletions of the chain.
    For each deleted record, the epsilon of `deletion` is then at most that of `unlearning`.

    Symbols: records >= 0; epsilon >= 0, in nats; 0 < delta < 1.

    Formal Guarantee: K steps reach (epsilon, delta) and K - 1 do not, unless K = 1. Every step applies the same map to
    both chains, so mu decreases in K, and doubling followed by bisection finds the minimum.

    Edge cases: raises `InfeasibleError` if `at_most` steps do not reach the target.

    >>> m = mechanism_for(ModelSettings(epsilon=1.0, delta=1e-5, l2=1e-3), num_slots=1000, num_classes=2)
    >>> chain = accountant.replay(m, [accountant.Run(steps=m.learn_steps)])
    >>> least_steps(chain, records=1, epsilon=1.0, delta=1e-5, at_most=m.learn_steps)
    93
    """
    errors.require_count(0, records=records)
    errors.require_count(1, at_most=at_most)
    target = conversion.gdp_mu(epsilon=epsilon, delta=delta)

    def meets_target(steps: int) -> bool:
        return (
            accountant.unlearning_mu(accountant.advance(chain, accountant.Run(steps=steps, records=records))) <= target
        )

    high = 1
    while not meets_target(high):
        if high >= at_most:
            raise errors.InfeasibleError(f"Expected at most {at_most} steps to reach epsilon={epsilon}, delta={delta}")
        high = min(2 * high, at_most)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if meets_target(middle) else (middle, high)
    return high
