"""Signs that rows lose what they say when each is scaled to norm 1, seen in a file as a whole, for its sender."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

_PARALLEL = 0.98
"""Mean cosine between two rows above which little is left to tell them apart."""
_LONG = 100.0
"""Ratio of the longest row to the shortest above which their lengths said something that scaling takes away."""
_MOST_NAMED = 10
_ROWS = 20
"""Fewer show nothing."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Extremes of so many rows before each is scaled: the least and the greatest value of each feature, the shortest
    and the longest row, both with the bias, and the sum of the rows when each has length 1."""

    num_rows: int
    low: Floats  # (d,)
    high: Floats  # (d,)
    shortest: float
    longest: float
    total: Floats  # (d + 1,)

    @classmethod
    def of(cls, features: Floats) -> Self:
        """The spread of some rows  # (b, d), b >= 1"""
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
        """The spread of the rows of both."""
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
        """Mean cosine between two rows, each with the bias."""
        return float(np.square(self.total / self.num_rows).sum())

    def warnings(self, places: Mapping[str, slice]) -> list[str]:
        """Advice to the sender, in sentences: `places` names the columns, and which features each became."""
        if self.num_rows < _ROWS:
            return []
        found = []
        constant = [name for name, place in places.items() if (self.low[place] == self.high[place]).all()]
        if constant:
            more = f" and {len(constant) - _MOST_NAMED} more" if len(constant) > _MOST_NAMED else ""
            found.append(
                f"The same in every row: {', '.join(constant[:_MOST_NAMED])}{more}. Leave out what tells nothing."
            )
        remedy = "Standardize its columns: state center and scale (kind standard, or vector)."
        if self.mean_cosine > _PARALLEL:
            found.append(
                f"All rows are nearly parallel once each is scaled to norm 1 (mean cosine above {_PARALLEL:g})"
                f"{self._because(places)}: a model can hardly tell them apart. {remedy}"
            )
        elif self.longest > _LONG * self.shortest:
            found.append(
                f"The longest row is more than {_LONG:g} times as long as the shortest, and each is scaled to norm 1"
                f"{self._because(places)}: how large its numbers are is lost. {remedy}"
            )
        return found

    def _because(self, places: Mapping[str, slice]) -> str:
        """The column that dominates the rows, if one does."""
        shares = {name: float(np.square(self.total[place]).sum()) for name, place in places.items()}
        largest = max(shares, key=lambda name: shares[name])
        all_of_it = float(np.square(self.total).sum())
        return f", as {largest} outweighs the rest" if len(places) > 1 and shares[largest] > 0.5 * all_of_it else ""
