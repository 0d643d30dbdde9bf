"""The target of a model, and the bounds beyond which what reaches it should not be called forgotten.

A target of epsilon = 100 or delta = 0.99 is met by a model from which nothing was ever taken away. So targets have
bounds: `LARGEST_EPSILON`, and 1/n, above which a guarantee allows that one person of n is simply published. n is the
number of the dataset's slots, n0 in docs/mathematics: the most records that the dataset can ever hold, which is public,
never changes, and is in every certificate. A tenant's policy may narrow the bounds, or widen them, which anybody who
verifies a certificate is then told.
"""

from dataclasses import asdict, dataclass
from typing import Any

from lethe.proof.errors import require_count

LARGEST_EPSILON = 8.0


def largest_delta(num_slots: int) -> float:
    """1 / n.

    >>> largest_delta(1000)
    0.001
    """
    require_count(1, num_slots=num_slots)
    return 1 / num_slots


def is_widened(*, epsilon: float, delta: float, num_slots: int) -> bool:
    """Return True if a target lies outside the bounds that hold where no policy says otherwise."""
    return epsilon > LARGEST_EPSILON or delta > largest_delta(num_slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of a model, beside the bounds that hold where no policy says otherwise."""

    epsilon: float
    delta: float
    largest_epsilon: float
    largest_delta: float
    widened: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def target(*, epsilon: float, delta: float, num_slots: int) -> Target:
    """A target as statements have it."""
    return Target(
        epsilon=epsilon,
        delta=delta,
        largest_epsilon=LARGEST_EPSILON,
        largest_delta=largest_delta(num_slots),
        widened=is_widened(epsilon=epsilon, delta=delta, num_slots=num_slots),
    )
