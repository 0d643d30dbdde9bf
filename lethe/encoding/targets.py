"""Targets: numbers in a range that the schema states, stored where the label of a class would be.

y = 2 (value - low) / (high - low) - 1 is between -1 and 1, whatever the data. What is stored is y in units of 2^-23,
which single precision holds exactly.

Counts are targets too: whole numbers from 0 to a bound that the schema states.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lethe.proof.losses import Objective

UNIT = 2**23
"""The label of y = 1."""
MOST_COUNTED = 1_000_000
"""The largest bound of counts: below it the labels of any two of them differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The public range of a target, and what becomes of a value `outside` of it. `counts`: whole numbers from 0 on,
    of which a larger one than `high` may be clipped; any other number is wrong."""

    low: float
    high: float
    outside: Literal["error", "clip"] = "error"
    counts: bool = False

    @property
    def expected(self) -> str:
        if self.counts:
            clipped = ", or more, which is clipped" if self.outside == "clip" else ""
            return f"expected a whole number from 0 to {self.high:.0f}{clipped}"
        return f"expected a number from {self.low:g} to {self.high:g}"

    def wrong(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Mark the numbers that cannot be stored: missing, infinite, or outside of the range where that is an error."""
        beyond = (numbers < self.low) | (numbers > self.high)
        wrong = ~np.isfinite(numbers) | (beyond & (self.outside == "error"))
        return wrong | (numbers < 0) | (numbers != np.rint(numbers)) if self.counts else wrong

    def labels(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        """The labels of numbers that are not `wrong`  # (b,)"""
        share = (np.clip(numbers, self.low, self.high) - self.low) / (self.high - self.low)
        return np.rint((2 * share - 1) * UNIT).astype("<i4")

    def values(self, y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Numbers in the units of the target, of y between -1 and 1; a y beyond is taken for the nearest."""
        return self.low + (np.clip(y, -1, 1) + 1) / 2 * (self.high - self.low)

    def to_json(self) -> dict[str, Any]:
        counts = {"counts": True} if self.counts else {}
        return {"min": self.low, "max": self.high, "outside": self.outside} | counts

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Target":
        counts = document.get("counts", False)
        return cls(low=document["min"], high=document["max"], outside=document["outside"], counts=counts)


def y_of_scores(
    scores: npt.NDArray[np.float64], *, objective: str, loss_width: float | None
) -> npt.NDArray[np.float64]:
    """y as a regression says it by its scores: the scores themselves, or the rates whose logarithms they are."""
    if objective == Objective.POISSON_REGRESSION and loss_width is not None:
        return y_of_rates(scores, loss_width)
    return scores


def y_of_rates(scores: npt.NDArray[np.float64], bend: float) -> npt.NDArray[np.float64]:
    """y of rates by their logarithms: the rate is the bound from a score of `bend` on, and y is 1 there."""
    return np.asarray(2 * np.exp(np.minimum(scores - bend, 0)) - 1)
