"""Exceptions of the privacy accounting, and the argument checks that raise them.

A bound computed from a number outside the range of its theorem is not a bound, so inputs are never clamped. The checks
raise, and the message shows the violated condition, such as `Expected step_size=-0.1 > 0`. NaN and infinity fail every
check, as do True and False, which Python treats as integers.
"""

import sys

LARGEST_COUNT = 2**53
"""Largest integer up to which float64, and hence every JSON parser, represents all integers exactly."""


class PrivacyError(ValueError):
    """Base class of all errors about a guarantee."""


class DomainError(PrivacyError):
    """A number is outside the range of the theorem."""


class PreconditionError(PrivacyError):
    """A hypothesis of the theorem is not established; `name` identifies the hypothesis."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(name, detail)
        self.name = name
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}"


class InfeasibleError(PrivacyError):
    """No value of the free parameter reaches the target."""


def require_finite(**values: float) -> None:
    """Check that each value is a finite number and not a bool."""
    for name, value in values.items():
        # Comparing with the largest float also refuses integers that overflow a float, where math.isfinite would raise.
        if isinstance(value, bool) or not abs(value) <= sys.float_info.max:
            raise DomainError(f"Expected {name}={value} finite")


def require_positive(**values: float) -> None:
    """Check that each value is in (0, inf).

    >>> require_positive(step_size=-0.1)
    Traceback (most recent call last):
    lethe.proof.errors.DomainError: Expected step_size=-0.1 > 0
    """
    require_finite(**values)
    for name, value in values.items():
        if not value > 0:
            raise DomainError(f"Expected {name}={value} > 0")


def require_nonnegative(**values: float) -> None:
    """Check that each value is in [0, inf)."""
    require_finite(**values)
    for name, value in values.items():
        if not value >= 0:
            raise DomainError(f"Expected {name}={value} >= 0")


def require_fraction(**values: float) -> None:
    """Check that each value is in the open interval (0, 1)."""
    require_finite(**values)
    for name, value in values.items():
        if not 0 < value < 1:
            raise DomainError(f"Expected 0 < {name}={value} < 1")


def require_count(at_least: int, **values: int) -> None:
    """Check that each value is an int in [at_least, 2^53]. Floats such as 3.0 and bools are refused."""
    for name, value in values.items():
        if type(value) is not int or not at_least <= value <= LARGEST_COUNT:
            raise DomainError(f"Expected integer {name}={value} in [{at_least}, 2^53]")
