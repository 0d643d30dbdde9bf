"""The inverse questions: the settings, the steps and the sizes that reach a target.

Every answer is read off the accountant itself, by bisection of numbers that rise or fall: what is answered is what the
ledger will say, to the last digit.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace

from lethe.proof import accountant, conversion
from lethe.proof.accountant import Chain, Exposure, Run
from lethe.proof.errors import LARGEST_COUNT, DomainError, InfeasibleError, require_count
from lethe.proof.losses import Objective, farthest_minimiser, require_loss, smoothness
from lethe.proof.mechanism import Adjacency, Mechanism, finest_grid
from lethe.proof.network import PublicNetwork

MOST_HEADROOM = 2.0
"""With the default noise no record's stationary mu is more than this many times the target's (`docs/decisions`)."""
UNFELT_NOISE = 0.1
"""Standard deviation of a logit up to which noise costs no accuracy: the least there is by default."""
FELT_NOISE = 0.35
"""Standard deviation of a logit from which noise costs accuracy: where the target asks for more, headroom is given."""
TARGET_SHARE = 0.5
"""Ratio of the noise that a target feels, which is between -1 and 1, to that which a logit feels."""
DEFAULT_WIDTHS = {Objective.HUBER_REGRESSION: 0.2, Objective.SMOOTHED_HINGE: 1.0, Objective.POISSON_REGRESSION: 2.0}
INITIAL_DISTANCE = 1e-6
"""Learning runs until the distance to the minimiser has contracted below this fraction of what it was."""
LEAST_BATCH = 100
MOST_COOL_DOWN = 256


def default_l2(num_slots: int, epsilon: float, objective: Objective = Objective.LOGISTIC_REGRESSION) -> float:
    """max(2/(n0 epsilon), 2.5e-4), of epsilon from 0.05 to 2: the fewer rows and the stricter the target, the more they
    need to be held together against the noise. For regressions whose scores are the target itself max(1/n0, 2.5e-4):
    what shrinks them is felt at once.

    Chosen once, on public tables of 134 to 32,561 rows (`benchmarks/defaults.py`); the floor bounds the steps of
    learning.

    >>> default_l2(1000, 1.0), default_l2(1000, 8.0), default_l2(1_000_000, 1.0)
    (0.002, 0.001, 0.00025)
    """
    held = 1.0 if objective.scores_are_y else 2 / min(max(epsilon, 0.05), 2.0)
    return max(held / num_slots, 2.5e-4)


def default_batch_size(num_slots: int) -> int:
    """min(n0/100, 2 sqrt(n0)), and `LEAST_BATCH` at least: about a hundred batches, more where there are many rows.

    >>> [default_batch_size(n) for n in (10, 1000, 32_561, 1_000_000)]
    [10, 100, 326, 2000]
    """
    return min(num_slots, max(LEAST_BATCH, math.ceil(min(num_slots / 100, 2 * math.sqrt(num_slots)))))


def mechanism_for(
    *,
    num_slots: int,
    num_classes: int,
    objective: Objective = Objective.LOGISTIC_REGRESSION,
    loss_width: float | None = None,
    num_parameters: int | None = None,
    epsilon: float,
    delta: float,
    l2: float | None = None,
    noise_scale: float | None = None,
    step_size: float | None = None,
    radius: float | None = None,
    learn_steps: int | None = None,
    batch_size: int | None = None,
    cool_down: int | None = None,
    second_moment: float | None = None,
    class_weights: tuple[float, ...] | None = None,
    weight_bound: float | None = None,
    network: PublicNetwork | None = None,
) -> Mechanism:
    """A mechanism, with defaults that are functions of public constants alone.

    - `loss_width`: `DEFAULT_WIDTHS`, where the loss has one.
    - `batch_size`: `default_batch_size(num_slots)`.
    - `cool_down`: one pass, `MOST_COOL_DOWN` steps at most.
    - `l2`: `default_l2(num_slots, epsilon, objective)`.
    - `step_size`: 2 / (L + m), the least contraction there is.
    - `radius`: `farthest_minimiser`, a ball that holds the minimiser whatever the data.
    - `second_moment`: none; stated, it makes L less and the step size larger.
    - `class_weights`, `weight_bound`: none; they leave all constants as they are.
    - `learn_steps`: least T with c^T <= 1e-6, of what the start is away from the minimiser, but one pass and the
      cool-down at least.
    - `noise_scale`: such that one record's stationary mu, s / (1 - c^B) / spread, is that of the target (epsilon,
      delta); but the spread sqrt(nu^2 / (1 - c^2)), which is that of a score, is `UNFELT_NOISE` at least, and no more
      than `FELT_NOISE` unless mu would be more than `MOST_HEADROOM` times the target's; where scores are the target
      itself, both times `TARGET_SHARE`.
    - `grid`: `finest_grid`, if it is told `num_parameters`.
    - `network`: none.

    Raises `DomainError`, `PreconditionError`.

    >>> m = mechanism_for(num_slots=32561, num_classes=2, epsilon=1.0, delta=1e-5)
    >>> m.num_batches, m.cool_down, m.learn_steps, round(m.contraction, 6), round(m.noise_scale, 5)
    (99, 99, 6915, 0.998004, 0.00553)
    """
    if num_slots < 1:
        raise DomainError(f"Expected num_slots={num_slots} >= 1")
    width = DEFAULT_WIDTHS.get(objective) if loss_width is None else loss_width
    require_loss(objective, num_classes, width)
    m = default_l2(num_slots, epsilon, objective) if l2 is None else l2
    if not (math.isfinite(m) and m > 0):
        raise DomainError(f"Expected l2={m} > 0 and finite")
    farthest = farthest_minimiser(objective, num_classes, m, loss_width=width)
    steepest = smoothness(objective, num_classes, m, loss_width=width, second_moment=second_moment)
    size = default_batch_size(num_slots) if batch_size is None else batch_size
    draft = Mechanism(
        objective=objective,
        num_slots=num_slots,
        num_classes=num_classes,
        l2=m,
        loss_width=width,
        step_size=2 / (steepest + m) if step_size is None else step_size,
        noise_scale=max(1.0, farthest) if noise_scale is None else noise_scale,
        radius=farthest if radius is None else radius,
        learn_steps=max(cool_down or 1, num_slots // size) if learn_steps is None else learn_steps,
        batch_size=size,
        cool_down=1 if cool_down is None else cool_down,
        second_moment=second_moment,
        class_weights=class_weights,
        weight_bound=weight_bound,
        network=network,
    )
    gap = 1 - draft.contraction
    if learn_steps is None:
        settled = math.ceil(math.log(INITIAL_DISTANCE) / math.log1p(-gap))
        draft = replace(draft, learn_steps=max(settled, draft.num_batches, draft.cool_down))
    if cool_down is None:
        draft = replace(draft, cool_down=min(draft.num_batches, MOST_COOL_DOWN, draft.learn_steps))
    if noise_scale is None:
        influence = draft.sensitivity(Adjacency.ZERO_OUT) / -math.expm1(draft.num_batches * math.log1p(-gap))
        unit = TARGET_SHARE if objective.scores_are_y else 1.0
        spread = unit * _default_spread(influence / conversion.gdp_mu(epsilon=epsilon, delta=delta) / unit)
        draft = replace(draft, noise_scale=spread * math.sqrt(gap * (2 - gap) / (2 * draft.step_size)))
    if num_parameters is not None:
        grid = finest_grid(noise_std=draft.least_noise_std, radius=draft.radius)
        draft = replace(draft, grid=grid, num_parameters=num_parameters)
    return draft


def _default_spread(wanted: float) -> float:
    """The spread of a logit where that of `wanted` brings one record's mu to the target's."""
    return min(max(wanted, UNFELT_NOISE), max(FELT_NOISE, wanted / MOST_HEADROOM))


# --- what it takes, and what that buys -------------------------------------------------------------------------------
#
# Common to all below. Symbols: epsilon >= 0, in nats; 0 < delta < 1; `records` >= 1 that become null (0 where said),
# then `steps` K >= 1 without them. The target is that of `unlearning`, against learning from scratch, and covers all
# earlier deletions of the chain; the `deletion` guarantee of each of these records is then no larger.
# Assumptions: those of the accountant; requests do not depend on published models, except for `releases_left`.
# Reference: that of the accountant, `docs/mathematics/shift.md`.


def least_steps(chain: Chain, *, records: int, epsilon: float, delta: float, at_most: int) -> int:
    """Least K >= 1 such that, after `records` >= 0 more become null and K steps run, `unlearning` meets the target.

    Formal Guarantee: K steps reach (epsilon, delta) and K - 1 do not, unless K = 1. mu falls with every step, which
    treats both chains alike, so doubling and bisection find K.

    Edge cases: raises `InfeasibleError` if `at_most` steps do not reach it.

    >>> m = mechanism_for(num_slots=1000, num_classes=2, epsilon=1.0, delta=1e-5, l2=1e-3)
    >>> chain = accountant.replay(m, [Run(steps=m.learn_steps)])
    >>> least_steps(chain, records=1, epsilon=1.0, delta=1e-5, at_most=m.learn_steps)
    88
    """
    require_count(0, records=records)
    require_count(1, at_most=at_most)
    target = conversion.gdp_mu(epsilon=epsilon, delta=delta)

    def reached(steps: int) -> bool:
        return accountant.unlearning_mu(accountant.advance(chain, Run(steps=steps, records=records))) <= target

    high = 1
    while not reached(high):
        if high >= at_most:
            raise InfeasibleError(f"Expected at most {at_most} steps to reach epsilon={epsilon}, delta={delta}")
        high = min(2 * high, at_most)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def schedule(chain: Chain, *, batches: Iterable[int], epsilon: float, delta: float, at_most: int) -> list[int]:
    """The steps that batch after batch of so many records takes, each brought to the target before the next comes.

    Greedy: each batch takes the `least_steps` that the chain then needs, so what earlier batches left counts.
    Formal Guarantee: every version that is published meets (epsilon, delta). [1] * R is R requests handled one by one,
    [b] * (R // b) batches of b, [R] all at once; sums compare what they cost.

    Edge cases: raises `InfeasibleError` if a batch would take more than `at_most` steps.

    >>> m = mechanism_for(num_slots=1000, num_classes=2, epsilon=1.0, delta=1e-5, l2=1e-3)
    >>> chain = accountant.replay(m, [Run(steps=m.learn_steps)])
    >>> [sum(schedule(chain, batches=b, epsilon=1.0, delta=1e-5, at_most=10**6)) for b in ([1] * 8, [4] * 2, [8])]
    [1075, 539, 349]
    """
    taken = []
    for records in batches:
        steps = least_steps(chain, records=records, epsilon=epsilon, delta=delta, at_most=at_most)
        chain = accountant.advance(chain, Run(steps=steps, records=records))
        taken.append(steps)
    return taken


def least_epsilon(chain: Chain, *, records: int, steps: int, delta: float) -> float:
    """The epsilon of `unlearning` at `delta` after `records` >= 0 more become null and `steps` K >= 0 run.

    Formal Guarantee: never below the exact value; falls with `steps`, rises with `records`.

    Edge cases: K = 0 tells what unlearning is for; 0 if the chain has forgotten enough for `delta` alone.

    >>> m = mechanism_for(num_slots=1000, num_classes=2, epsilon=1.0, delta=1e-5, l2=1e-3)
    >>> chain = accountant.replay(m, [Run(steps=m.learn_steps)])
    >>> [round(least_epsilon(chain, records=1, steps=steps, delta=1e-5), 6) for steps in (0, 86, 87)]
    [2.111909, 1.009323, 1.000529]
    """
    require_count(0, records=records, steps=steps)
    if steps:
        chain, records = accountant.advance(chain, Run(steps=steps, records=records)), 0
    return conversion.gdp_epsilon(mu=accountant.unlearning_mu(chain, records=records), delta=delta)


def most_records(chain: Chain, *, steps: int, epsilon: float, delta: float) -> int:
    """The largest batch that `steps` bring to the target: most records, of `num_slots`, that may become null before.

    Formal Guarantee: so many records reach (epsilon, delta) in K steps and one more does not, unless that is all slots.
    mu rises with the records.

    Edge cases: 0 if there is no room for one. Raises `InfeasibleError` if what was deleted before misses the target
    even so.

    >>> m = mechanism_for(num_slots=1000, num_classes=2, epsilon=1.0, delta=1e-5, l2=1e-3)
    >>> chain = accountant.replay(m, [Run(steps=m.learn_steps)])
    >>> [most_records(chain, steps=steps, epsilon=1.0, delta=1e-5) for steps in (1, 87, 348)]
    [0, 0, 7]
    """
    target = conversion.gdp_mu(epsilon=epsilon, delta=delta)

    def mu_after(records: int) -> float:
        return accountant.unlearning_mu(accountant.advance(chain, Run(steps=steps, records=records)))

    most = bisect_right(range(chain.mechanism.num_slots + 1), target, key=mu_after) - 1
    if most < 0:
        raise InfeasibleError(f"Expected {steps} steps to bring what was deleted before to the target")
    return most


def least_noise(mechanism: Mechanism, *, records: int, steps: int, epsilon: float, delta: float) -> float:
    """The least `noise_scale` with which, after learning, `records` >= 1 reach the target in `steps`.

    Formal Guarantee: with it (epsilon, delta) is reached, and with less by more than the rounding it is not. The noise
    that `mechanism` has plays no part: influence does not depend on it, so mu is inversely proportional to it.

    Edge cases: raises `PreconditionError` where float64 cannot carry so little noise beside the radius.

    >>> m = mechanism_for(num_slots=1000, num_classes=2, epsilon=1.0, delta=1e-5, l2=1e-3)
    >>> [round(least_noise(m, records=1, steps=steps, epsilon=1.0, delta=1e-5) / m.noise_scale, 6) for steps in (1, 87)]
    [1.945502, 1.000482]
    """
    require_count(1, records=records)
    target = conversion.gdp_mu(epsilon=epsilon, delta=delta)
    runs = [Run(steps=mechanism.learn_steps), Run(steps=steps, records=records)]

    def mu_with(noise: float) -> float:
        return accountant.unlearning_mu(accountant.replay(replace(mechanism, noise_scale=noise), runs))

    noise = mechanism.noise_scale * (mu_with(mechanism.noise_scale) / target)
    while mu_with(noise) > target:  # by rounding alone
        noise = math.nextafter(noise, math.inf)
    return noise


def releases_left(
    exposures: Sequence[Exposure], mechanism: Mechanism, *, records: int, steps: int, epsilon: float, delta: float
) -> int:
    """Number of versions, each made by a run of K `steps`, that may still be published before `adaptive` exceeds the
    budget.

    Symbols: `exposures`: what was published while the person's `records` >= 1 were present, of every model.

    Formal Guarantee: for a person who stays for that many more versions of this model, and for no others, the
    `adaptive` guarantee keeps (epsilon, delta) when they are forgotten; with one more version it does not.

    Edge cases: 0 if there is no room for one; 2^53 at most. Raises `InfeasibleError` if the budget is exceeded already.

    >>> m = mechanism_for(num_slots=1000, num_classes=2, epsilon=1.0, delta=1e-5, l2=1e-3)
    >>> learned = [Exposure(mechanism=m, records=1, releases=((m.learn_steps, 1),))]
    >>> [releases_left(learned, m, records=1, steps=87, epsilon=epsilon, delta=1e-5) for epsilon in (3.0, 10.0)]
    [2, 38]
    """
    target = conversion.gdp_mu(epsilon=epsilon, delta=delta)
    if accountant.adaptive_mu(exposures) > target:
        raise InfeasibleError(f"Expected what is published to keep epsilon={epsilon}, delta={delta}")

    def mu_after(releases: int) -> float:
        more = Exposure(mechanism=mechanism, records=records, releases=((steps, releases),))
        return accountant.adaptive_mu([*exposures, more])

    return bisect_right(range(1, LARGEST_COUNT + 1), target, key=mu_after)
