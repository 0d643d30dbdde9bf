"""A table of six numbers, whose classes are those of the features of `nets.linear()`."""

from typing import Any

import numpy as np
import pandas as pd

from tests.features.networks import nets

X = np.random.default_rng(11).uniform(-1, 1, size=(120, nets.WIDTH))
NUMBERS = {f"c{place}": {"kind": "standard", "center": 0, "scale": 1} for place in range(nets.WIDTH)}
SCHEMA: dict[str, Any] = {
    "columns": NUMBERS | {"y": {"role": "label", "values": ["no", "yes"]}, "who": {"role": "subject"}}
}


def table(x: Any = X) -> pd.DataFrame:
    labels = np.where(np.maximum(x @ nets.WEIGHTS, 0).sum(axis=1) > 2.5, "yes", "no")
    people = [f"p{place}" for place in range(len(x))]
    return pd.DataFrame(x, columns=[*NUMBERS]).assign(y=labels, who=people)
