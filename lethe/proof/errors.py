"""The errors of the mathematics, by kind, and the checks that raise them.

A bound computed from a number outside its theorem is not a bound, so no input is clamped: the checks raise, and the
message shows the expression that failed, `Expected step_size=-0.1 > 0`. NaN fails every check; infinity passes only
`require_divergence`. True and False are not numbers here, though Python thinks so.
"""

import sys

LARGEST_COUNT = 2**53
"""Beyond it neither floats nor other readers of JSON tell one integer from the next."""


class PrivacyError(ValueError):
    """Something about a guarantee is refused."""


class DomainError(PrivacyError):
    """A number lies outside the range of the theorem."""


class PreconditionError(PrivacyError):
    """A hypothesis of the theorem is not established; `name` says which."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(name, detail)
        self.name = name
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}"


class InfeasibleError(PrivacyError):
    """No choice of the free parameter reaches the target."""


class WorkExceeded(PrivacyError):
    """An evaluation would take more work than it was given."""


class NotionError(PrivacyError):
    """Guarantees of different meaning were combined."""


def require_finite(**values: float) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not abs(value) <= sys.float_info.max:  # so written, huge ints are refused too
            raise DomainError(f"Expected {name}={value} finite")


def require_positive(**values: float) -> None:
    """Each in (0, inf).

    >>> require_positive(step_size=-0.1)
    Traceback (most recent call last):
    lethe.proof.errors.DomainError: Expected step_size=-0.1 > 0
    """
    require_finite(**values)
    for name, value in values.items():
        if not value > 0:
            raise DomainError(f"Expected {name}={value} > 0")


def require_nonnegative(**values: float) -> None:
    """Each in [0, inf)."""
    require_finite(**values)
    for name, value in values.items():
        if not value >= 0:
            raise DomainError(f"Expected {name}={value} >= 0")


def require_fraction(**values: float) -> None:
    """Each in (0, 1), both ends excluded."""
    require_finite(**values)
    for name, value in values.items():
        if not 0 < value < 1:
            raise DomainError(f"Expected 0 < {name}={value} < 1")


def require_count(at_least: int, **values: int) -> None:
    """Each an integer in [at_least, 2^53]; 3.0 is not one, nor is True."""
    for name, value in values.items():
        if type(value) is not int or not at_least <= value <= LARGEST_COUNT:
            raise DomainError(f"Expected integer {name}={value} in [{at_least}, 2^53]")


def require_order(**values: float) -> None:
    """Each in (1, inf): the orders of Renyi divergences used here."""
    require_finite(**values)
    for name, value in values.items():
        if not value > 1:
            raise DomainError(f"Expected {name}={value} > 1")


def require_divergence(**values: float) -> None:
    """Each in [0, inf]: a divergence is infinite where no bound is known."""
    for name, value in values.items():
        if not value >= 0:
            raise DomainError(f"Expected {name}={value} >= 0")
