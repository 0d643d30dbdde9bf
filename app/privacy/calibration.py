"""The inverse questions: the settings and the steps that reach a target."""

import math
from dataclasses import replace

from app.privacy import accountant, conversion
from app.privacy.accountant import Chain, Run
from app.privacy.errors import DomainError, InfeasibleError
from app.privacy.mechanism import Mechanism, Objective, gradient_bound, smoothness

DEFAULT_HEADROOM = 2.0
"""Default noise makes one record's stationary mu this many times the target's (see `docs/decisions`)."""
INITIAL_DISTANCE = 1e-6
"""Learning runs until the distance to the initial law has contracted below this fraction of one record's influence."""


def default_l2(num_slots: int) -> float:
    """max(1/n0, 2.5e-4): the fewer rows, the more they need to be held together against the noise.

    Chosen once, on Adult and random parts of it (`benchmarks/defaults.py`); the floor bounds the steps of learning.

    >>> default_l2(1000), default_l2(1_000_000)
    (0.001, 0.00025)
    """
    return max(1 / num_slots, 2.5e-4)


def mechanism_for(
    *,
    num_slots: int,
    num_classes: int,
    epsilon: float,
    delta: float,
    l2: float | None = None,
    noise_scale: float | None = None,
    step_size: float | None = None,
    radius: float | None = None,
    learn_steps: int | None = None,
) -> Mechanism:
    """A mechanism for logistic regression, with defaults that are functions of public constants alone.

    - `l2`: `default_l2(num_slots)`.
    - `step_size`: 2 / (L + m), the least contraction there is.
    - `radius`: M / m, a ball that holds the minimiser whatever the data (|grad f(0)| <= M, f m-strongly convex).
    - `learn_steps`: least T with c^T R <= 1e-6 s / (1 - c): what is left of the start, which lies within R of the
      minimiser, is a millionth of the influence of one record.
    - `noise_scale`: one record's stationary mu, s / (1 - c) / sqrt(nu^2 / (1 - c^2)), is `DEFAULT_HEADROOM` times the
      mu of the target (epsilon, delta).

    Raises `DomainError`, `PreconditionError`.

    >>> m = mechanism_for(num_slots=32561, num_classes=2, epsilon=1.0, delta=1e-5)
    >>> m.learn_steps, round(m.contraction, 6), round(m.noise_scale, 5)
    (12116, 0.998004, 0.00362)
    """
    objective = Objective.LOGISTIC_REGRESSION
    if num_slots < 1 or num_classes < 2:
        raise DomainError(f"Expected num_slots={num_slots} >= 1 and num_classes={num_classes} >= 2")
    m = default_l2(num_slots) if l2 is None else l2
    if not (math.isfinite(m) and m > 0):
        raise DomainError(f"Expected l2={m} > 0 and finite")
    bound = gradient_bound(objective, num_classes)
    draft = Mechanism(
        objective=objective,
        num_slots=num_slots,
        num_classes=num_classes,
        l2=m,
        step_size=2 / (smoothness(objective, num_classes, m) + m) if step_size is None else step_size,
        noise_scale=max(1.0, bound / m) if noise_scale is None else noise_scale,
        radius=bound / m if radius is None else radius,
        learn_steps=1 if learn_steps is None else learn_steps,
    )
    gap = 1 - draft.contraction
    influence = draft.step_size * bound / num_slots / gap
    if noise_scale is None:
        spread = influence / (DEFAULT_HEADROOM * conversion.gdp_mu(epsilon=epsilon, delta=delta))
        draft = replace(draft, noise_scale=spread * math.sqrt(gap * (2 - gap) / (2 * draft.step_size)))
    if learn_steps is None:
        shrink = INITIAL_DISTANCE * influence / draft.radius
        draft = replace(draft, learn_steps=max(1, math.ceil(math.log(shrink) / math.log1p(-gap))))
    return draft


def least_steps(chain: Chain, *, records: int, epsilon: float, delta: float, at_most: int) -> int:
    """Least K >= 1 such that, after `records` more become null and K steps run, `unlearning` meets (epsilon, delta).

    The `deletion` guarantee of each of these records is then no larger. mu falls with every step, since
    1 / mu^2 = (V + nu^2 (c^-2 + ... + c^-2K)) / W^2, so doubling and bisection find the least K.

    Raises `InfeasibleError` if `at_most` steps do not reach it.
    """
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
