"""Random features: cosines of random sums of a row's features, by which a linear model follows curves.

z_j = sqrt(2/D) cos(w_j.x + b_j), j = 1..D, where w_j is nearly N(0, scale^2 I) and b_j uniform: a linear model of z
comes near one of the Gaussian kernel exp(-scale^2 |x - x'|^2 / 2) (Rahimi and Recht 2007). w and b follow from the
seed, which is public and states them for good: the words of Philox-4x64-10 of that key, in their order, whose stream
numpy keeps in every version. All sums are of whole numbers below 2^53, so exact whatever adds them up.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MOST_FEATURES = 16_384
MOST_INPUTS = 4_096
MOST_WEIGHTS = 2**23
MOST_SEED = 2**53
REACH = 64.0
"""Features are clipped to so much on either side, and rounded to 2^-16."""
_UNITS = 2.0**16
_PARTS = 16
_SHIFT = 4
_SPREAD = math.sqrt(_PARTS * (2**32 - 1) / 12) / 2**_SHIFT
"""Standard deviation of a weight before it is scaled: a sum of 16 uniform 16-bit numbers, a 16th of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomFeatures:
    """`features` D in place of those of the columns; `scale` > 0 of the random weights; `seed`, 0 <= seed < 2^53."""

    features: int
    seed: int
    scale: float

    def of(self, rows: Floats) -> Floats:
        """The random features of each row by itself  # (b, d) -> (b, D)"""
        weights, phases = _drawn(self.seed, self.features, rows.shape[1])
        whole = np.rint(np.clip(rows, -REACH, REACH) * _UNITS)
        sums = whole @ weights  # of whole numbers: |x| <= 2^22, |w| <= 2^15, d <= 2^12
        angles = sums * (self.scale / (_UNITS * _SPREAD)) + phases
        return np.asarray(math.sqrt(2 / self.features) * np.cos(angles))

    def to_json(self) -> dict[str, object]:
        return {"features": self.features, "seed": self.seed, "scale": self.scale}


@lru_cache(maxsize=4)
def _drawn(seed: int, features: int, inputs: int) -> tuple[Floats, Floats]:
    """The weights, whole numbers  # (d, D), and the phases  # (D,): of one feature after the other, its weights and
    then its phase, each weight from 4 words, of which each has 4 of its parts, and a phase from one."""
    words = np.random.Philox(key=seed).random_raw(features * (4 * inputs + 1)).reshape(features, 4 * inputs + 1)
    parts = words[:, :-1].astype("<u8").view("<u2").reshape(features, inputs, _PARTS)
    sums = parts.sum(axis=2, dtype=np.int64) - _PARTS * (2**16 - 1) // 2
    phases = (words[:, -1] >> np.uint64(11)).astype(np.float64) * (2 * math.pi / 2**53)
    return np.ascontiguousarray((sums >> _SHIFT).astype(np.float64).T), phases
