"""Real rows as they come, for experiments: scikit-learn's digits, MNIST from a file, the census of examples/adult."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.csv
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from lethe.encoding.rows import Features, Labels
from lethe.encoding.schema import parse_schema

ADULT = Path(__file__).parent.parent / "examples" / "adult"

Pixels = NDArray[np.float64]  # (n, d), from 0 to 1
Digits = NDArray[np.integer]  # (n,)


def digits() -> tuple[Pixels, Digits]:
    """All 1,797, of 8 x 8 pixels."""
    images, labels = load_digits(return_X_y=True)
    return images / 16, labels


def mnist(folder: Path, part: str, kept: Sequence[int]) -> tuple[Pixels, Digits]:
    """Of folder/mnist.npz (x_train, y_train, x_test, y_test) the digits that are `kept`; `part`: train or test."""
    with np.load(folder / "mnist.npz", allow_pickle=False) as arrays:
        images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
    chosen = np.isin(labels, kept)
    return images[chosen].reshape(-1, 784) / 255, labels[chosen]


def adult(part: str) -> tuple[Features, Labels]:
    """As the service encodes them; `part`: train or test."""
    schema = parse_schema(json.loads((ADULT / "schema.json").read_text()))
    table = pyarrow.csv.read_csv(ADULT / f"{part}.csv")
    rows = schema.encode_labelled({name: table[name] for name in schema.used}, range(len(table)))
    features, labels = rows.features, rows.labels
    return features, labels
