"""Targets: numbers in a range declared by the schema, stored in place of a class label.

y = 2 (value - low) / (high - low) - 1 is between -1 and 1, whatever the data. It is stored as a multiple of 2^-23,
which is exact in single precision.

Counts are targets too: integers from 0 to a bound declared by the schema.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lethe.proof.losses import Objective

UNIT = 2**23
"""Label of y = 1."""
MAX_COUNT = 1_000_000
"""Maximum bound on counts. Up to this bound, different counts get different labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetColumn:
    """A target's public range, and what happens to values `outside` it. With `counts`, only integers >= 0 are valid;
    those above `high` may be clipped."""

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
        """Return True for each number that cannot be stored: missing, infinite, or out of range and not clipped."""
        beyond = (numbers < self.low) | (numbers > self.high)
        wrong = ~np.isfinite(numbers) | (beyond & (self.outside == "error"))
        return wrong | (numbers < 0) | (numbers != np.rint(numbers)) if self.counts else wrong

    def labels(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        """Return the stored labels for numbers that are not `wrong`  # (b,)"""
        share = (np.clip(numbers, self.low, self.high) - self.low) / (self.high - self.low)
        return np.rint((2 * share - 1) * UNIT).astype("<i4")

    def values(self, y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the target values for y, which is first clipped to [-1, 1]."""
        return self.low + (np.clip(y, -1, 1) + 1) / 2 * (self.high - self.low)

    def to_json(self) -> dict[str, Any]:
        counts = {"counts": True} if self.counts else {}
        return {"min": self.low, "max": self.high, "outside": self.outside} | counts

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "TargetColumn":
        counts = document.get("counts", False)
        return cls(low=document["min"], high=document["max"], outside=document["outside"], counts=counts)


def y_of_scores(
    scores: npt.NDArray[np.float64], *, objective: str, loss_width: float | None
) -> npt.NDArray[np.float64]:
    """Return the y predicted by regression scores, which are either y itself or the logarithms of rates."""
    if objective == Objective.POISSON_REGRESSION and loss_width is not None:
        return y_of_rates(scores, loss_width)
    return scores


def y_of_rates(scores: npt.NDArray[np.float64], bend: float) -> npt.NDArray[np.float64]:
    """Return the y of rates whose logarithms are `scores`. A score of `bend` or more gives the bound, y = 1."""
    return np.asarray(2 * np.exp(np.minimum(scores - bend, 0)) - 1)
