"""Outward rounding of short sums and products: never below the exact value."""

import math

ROUNDING = 2.0**-49  # more than the rounding of any short sum or product of a conversion, relative to its terms


def up(value: float) -> float:
    return math.nextafter(value * (1 + ROUNDING), math.inf)


def sum_rounded_up(*terms: float) -> float:
    return math.fsum(terms) + ROUNDING * sum(map(abs, terms))
