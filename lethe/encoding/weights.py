"""Weights of rows: how much the loss of each counts, from 0 to a bound that the schema states, stored beside its label.

What is stored is weight / bound in units of 2^-23, which single precision holds exactly. So no row ever counts more
than 1, whatever the data, and a row of the weight 0 counts as little as one that is null.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lethe.encoding.columns import Outside
from lethe.encoding.targets import UNIT

Integers = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """The column of weights and their public bound `most`. A weight above it is wrong or clipped; any other number that
    is none, or negative, is wrong."""

    column: str
    most: float
    outside: Outside = "error"

    @property
    def expected(self) -> str:
        clipped = ", or more, which is clipped" if self.outside == "clip" else ""
        return f"expected a weight, a number from 0 to {self.most:g}{clipped}"

    def wrong(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Mark the numbers that cannot be stored: missing, infinite, negative, or above the bound where that is an
        error."""
        return ~np.isfinite(numbers) | (numbers < 0) | ((numbers > self.most) & (self.outside == "error"))

    def stored(self, numbers: npt.NDArray[np.float64]) -> Integers:
        """The numbers that are kept of those that are not `wrong`  # (b,)"""
        return np.rint(np.minimum(numbers, self.most) / self.most * UNIT).astype("<i4")

    def to_json(self) -> dict[str, object]:
        return {"role": "weight", "max": self.most, "outside": self.outside}


def labels_in(stored: Integers) -> Integers:
    """The labels of rows  # (n,), of (n,) without weights or (n, 2) with them"""
    return stored[:, 0] if stored.ndim == 2 else stored


def weights_in(stored: Integers) -> Integers | None:
    """The weights of rows in units of 2^-23, where they have any  # (n,)"""
    return stored[:, 1] if stored.ndim == 2 else None


def as_factors(weights: Integers) -> npt.NDArray[np.float32]:
    """The factors of the losses, from 0 to 1  # (n,)"""
    return weights.astype(np.float32) / np.float32(UNIT)
