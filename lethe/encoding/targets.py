"""Targets: numbers in a range that the schema states, stored where the label of a class would be.

y = 2 (value - low) / (high - low) - 1 is between -1 and 1, whatever the data. What is stored is y in units of 2^-23,
which single precision holds exactly.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

UNIT = 2**23
"""The label of y = 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The public range of a target, and what becomes of a value `outside` of it."""

    low: float
    high: float
    outside: Literal["error", "clip"] = "error"

    @property
    def expected(self) -> str:
        return f"expected a number from {self.low:g} to {self.high:g}"

    def wrong(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Mark the numbers that cannot be stored: missing, infinite, or outside of the range where that is an error."""
        beyond = (numbers < self.low) | (numbers > self.high)
        return ~np.isfinite(numbers) | (beyond & (self.outside == "error"))

    def labels(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        """The labels of numbers that are not `wrong`  # (b,)"""
        share = (np.clip(numbers, self.low, self.high) - self.low) / (self.high - self.low)
        return np.rint((2 * share - 1) * UNIT).astype("<i4")

    def values(self, y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Numbers in the units of the target, of y between -1 and 1; a y beyond is taken for the nearest."""
        return self.low + (np.clip(y, -1, 1) + 1) / 2 * (self.high - self.low)

    def to_json(self) -> dict[str, Any]:
        return {"min": self.low, "max": self.high, "outside": self.outside}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Target":
        return cls(low=document["min"], high=document["max"], outside=document["outside"])
