"""A model's target (epsilon, delta), and the largest values that count as forgetting.

A model that never forgot anything would meet a target of epsilon = 100 or delta = 0.99, so targets are bounded: epsilon
by `LARGEST_EPSILON` and delta by 1/n, above which a guarantee would permit publishing the record of one person in n. n
is the dataset's number of slots (n0 in docs/mathematics), the maximum number of records it can ever hold. It is public,
constant, and part of every certificate. A tenant's policy can narrow or widen these bounds; certificates disclose
targets beyond them.
"""

from dataclasses import asdict, dataclass
from typing import Any

from lethe.proof.errors import require_count

LARGEST_EPSILON = 8.0
"""Largest epsilon, in nats, that counts as forgetting unless a policy widens the bound."""


def largest_delta(num_slots: int) -> float:
    """Return the largest delta that counts as forgetting unless a policy widens it: 1 / `num_slots`.

    >>> largest_delta(1000)
    0.001
    """
    require_count(1, num_slots=num_slots)
    return 1 / num_slots


def is_widened(*, epsilon: float, delta: float, num_slots: int) -> bool:
    """Return True if a target exceeds the default bounds."""
    return epsilon > LARGEST_EPSILON or delta > largest_delta(num_slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A model's target with the default bounds; `widened` is True if the target exceeds them."""

    epsilon: float
    delta: float
    largest_epsilon: float
    largest_delta: float
    widened: bool

    def to_json(self) -> dict[str, Any]:
        """Return the target's fields as signed in certificates."""
        return asdict(self)


def target(*, epsilon: float, delta: float, num_slots: int) -> Target:
    """Return the target (epsilon, delta) and its default bounds for a model on a dataset of `num_slots` slots."""
    return Target(
        epsilon=epsilon,
        delta=delta,
        largest_epsilon=LARGEST_EPSILON,
        largest_delta=largest_delta(num_slots),
        widened=is_widened(epsilon=epsilon, delta=delta, num_slots=num_slots),
    )
