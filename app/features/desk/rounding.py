"""Human-readable numbers with a sensible number of digits, rounded in the direction that keeps the claim true."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float, digits: int = 4) -> str:
    """Format a number with `digits` significant digits, and with a power of ten if it would otherwise be long."""
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return "∞" if value > 0 else "−∞" if value < 0 else "not a number"
    if value and not 1e-3 <= abs(value) < 1e6:
        mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
        return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
    places = digits if not value else max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def at_most(value: float, digits: int = 4) -> str:
    """Format like `number`, but rounded up, for upper bounds."""
    return _rounded(value, digits, ROUND_CEILING)


def at_least(value: float, digits: int = 4) -> str:
    """Format like `number`, but rounded down, for lower bounds."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> str:
    if not value or not math.isfinite(value):
        return number(value, digits)
    exact = Decimal(repr(value))
    last = Decimal(1).scaleb(min(0, exact.adjusted() - digits + 1))
    return number(float(exact.quantize(last, rounding=rounding)), digits)
