"""Signs that scaling rows to norm 1 loses information, detected over a whole file so that the sender can be warned."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

_PARALLEL = 0.98
"""Mean cosine between two rows above which rows can hardly be distinguished."""
_LONG = 100.0
"""Ratio of the longest row to the shortest above which scaling discards information that is in the lengths."""
_MAX_COLUMNS = 10
_ROWS = 20
"""Minimum number of rows for a warning."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Extremes of `num_rows` rows before scaling: minimum and maximum of each feature, and the norms of the shortest
    and the longest row, including the bias. `total` is the sum of the rows after scaling to norm 1."""

    num_rows: int
    low: Floats  # (d,)
    high: Floats  # (d,)
    shortest: float
    longest: float
    total: Floats  # (d + 1,)

    @classmethod
    def of(cls, features: Floats) -> Self:
        """Return the spread of b >= 1 rows with these features  # (b, d)"""
        with np.errstate(over="ignore"):
            lengths = np.hypot(np.linalg.norm(features, axis=1), 1.0)
            with_bias = np.column_stack((features, np.ones(len(features)))) / lengths[:, np.newaxis]
        return cls(
            num_rows=len(features),
            low=features.min(axis=0),
            high=features.max(axis=0),
            shortest=float(lengths.min()),
            longest=float(lengths.max()),
            total=with_bias.sum(axis=0),
        )

    def with_rows(self, other: Self) -> Self:
        """Return the spread of both sets of rows together."""
        return type(self)(
            num_rows=self.num_rows + other.num_rows,
            low=np.minimum(self.low, other.low),
            high=np.maximum(self.high, other.high),
            shortest=min(self.shortest, other.shortest),
            longest=max(self.longest, other.longest),
            total=self.total + other.total,
        )

    @property
    def mean_cosine(self) -> float:
        """Mean cosine between two rows, including the bias."""
        return float(np.square(self.total / self.num_rows).sum())

    def warnings(self, places: Mapping[str, slice]) -> list[str]:
        """Return warnings for the sender, as sentences. `places` maps each column to its features."""
        if self.num_rows < _ROWS:
            return []
        warnings = []
        constant = [name for name, place in places.items() if (self.low[place] == self.high[place]).all()]
        if constant:
            more = f" and {len(constant) - _MAX_COLUMNS} more" if len(constant) > _MAX_COLUMNS else ""
            warnings.append(
                f"The same in every row: {', '.join(constant[:_MAX_COLUMNS])}{more}. Leave out what tells nothing."
            )
        remedy = "Standardize its columns: state center and scale (kind standard, or vector)."
        if self.mean_cosine > _PARALLEL:
            warnings.append(
                f"All rows are nearly parallel once each is scaled to norm 1 (mean cosine above {_PARALLEL:g})"
                f"{self._because(places)}: a model can hardly tell them apart. {remedy}"
            )
        elif self.longest > _LONG * self.shortest:
            warnings.append(
                f"The longest row is more than {_LONG:g} times as long as the shortest, and each is scaled to norm 1"
                f"{self._because(places)}: how large its numbers are is lost. {remedy}"
            )
        return warnings

    def _because(self, places: Mapping[str, slice]) -> str:
        """Return a clause naming the column that dominates the rows, or an empty string."""
        shares = {name: float(np.square(self.total[place]).sum()) for name, place in places.items()}
        largest = max(shares, key=lambda name: shares[name])
        all_of_it = float(np.square(self.total).sum())
        return f", as {largest} outweighs the rest" if len(places) > 1 and shares[largest] > 0.5 * all_of_it else ""
