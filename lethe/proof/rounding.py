"""Outward rounding of short sums and products: results are never below the exact value."""

import math

ROUNDING = 2.0**-49
"""Upper bound on the rounding error of a short sum or product, relative to its terms."""


def up(value: float) -> float:
    """Return `value` >= 0 increased by more than its rounding error."""
    return math.nextafter(value * (1 + ROUNDING), math.inf)


def sum_rounded_up(*terms: float) -> float:
    """Return the sum of `terms`, increased by more than the rounding errors of the terms and the sum."""
    return math.fsum(terms) + ROUNDING * sum(map(abs, terms))
