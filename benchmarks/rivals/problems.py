"""The data: rows of norm <= 1 with a bias, as the service encodes them, and what is deleted from them."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import data
from benchmarks.rivals.rival import Rows, Setting
from benchmarks.vectors import encode_vectors

PLANTED_L2 = 0.1
L2 = {"digits": 0.02, "MNIST 3 vs 8": 0.002, "MNIST ten classes": 0.005, "Adult": 0.001}
"""The same for all rivals: as little as lets the slowest of them learn within seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    name: str
    train: Rows
    test: Rows
    forgotten: NDArray[np.int64]  # slots, in the order of the requests
    l2: float
    repeats: int

    @property
    def setting(self) -> Setting:
        return Setting(
            num_slots=len(self.train),
            num_classes=self.train.num_classes,
            num_features=self.train.features.shape[1],
            l2=self.l2,
            requests=len(self.forgotten),
        )


def problems(folder: Path | None, *, seed: int, quick: bool) -> list[Problem]:
    """All that this run measures; `quick` leaves out what takes minutes."""
    requests = 3 if quick else 10
    found = [digits(seed, (3, 8), requests), digits(seed, range(10), requests)]
    if not quick:
        found.append(adult(seed, requests))
    if folder is not None and not quick:
        found += [mnist(folder, seed, kept, requests) for kept in ((3, 8), range(10))]
    return found


def digits(seed: int, kept: range | tuple[int, ...], requests: int) -> Problem:
    images, labels = data.digits()
    chosen = np.random.default_rng(seed).permutation(np.flatnonzero(np.isin(labels, kept)))
    parts = np.split(chosen, [int(0.7 * len(chosen))])
    train, test = (_rows(images[part], labels[part], kept) for part in parts)
    return _problem(_named("digits", kept), train, test, seed, requests, l2=L2["digits"], repeats=5)


def mnist(folder: Path, seed: int, kept: range | tuple[int, ...], requests: int) -> Problem:
    train, test = (_rows(*data.mnist(folder, part, kept), kept) for part in ("train", "test"))
    name = _named("MNIST", kept)
    return _problem(name, train, test, seed, requests, l2=L2[name], repeats=1)


def adult(seed: int, requests: int) -> Problem:
    read = (data.adult(part) for part in ("train", "test"))
    train, test = (Rows(features=features, labels=labels, num_classes=2) for features, labels in read)
    return _problem("Adult", train, test, seed, requests, l2=L2["Adult"], repeats=1)


def planted(seed: int) -> tuple[Problem, int]:
    """Digits 3 against 8, at 4 x 4 pixels, and the slot of one record made to be as visible as can be.

    Part of it lies in a column that nobody else has, where nothing but the regulariser pulls it back, part where the
    model without it is surest, with the wrong label: so its gradient stays long. The mixture is the best of a grid.
    """
    images, labels = data.digits()
    chosen = np.random.default_rng(seed).permutation(np.flatnonzero(np.isin(labels, (3, 8))))
    coarse = images[chosen].reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
    rows = _rows(coarse, labels[chosen], (3, 8))
    features = np.pad(rows.features, ((0, 0), (0, 1)))
    direction = _surest_direction(features, rows.labels)
    norm = float(np.linalg.norm(direction))
    shares = np.linspace(0, 0.95, 96)
    share = float(shares[np.argmax(np.sqrt(1 - shares**2) / (1 + np.exp(-shares * norm)))])
    features[0] = 0.9999 * share * direction / norm
    features[0, -1] = 0.9999 * np.sqrt(1 - share**2)
    made = Rows(features=features, labels=rows.labels.copy(), num_classes=2)
    made.labels[0] = 0
    return Problem(
        name="digits 3 vs 8, planted", train=made, test=made, forgotten=np.array([0]), l2=PLANTED_L2, repeats=1
    ), 0


def _surest_direction(features: NDArray[np.float32], labels: NDArray[np.int32]) -> NDArray[np.float64]:
    """The weights of the regularised fit without noise: along them the model says class 1."""
    weights = np.zeros(features.shape[1])
    step_size = 2 / (0.25 + 2 * PLANTED_L2)
    for _ in range(200):
        error = 1 / (1 + np.exp(-features @ weights)) - labels
        weights -= step_size * (features.T @ error / len(labels) + PLANTED_L2 * weights)
    return weights


def _problem(name: str, train: Rows, test: Rows, seed: int, requests: int, *, l2: float, repeats: int) -> Problem:
    """The rows in an order of chance, as the service gives them their slots: a batch is a range of them."""
    generator = np.random.default_rng(seed)
    order, forgotten = generator.permutation(len(train)), generator.choice(len(train), requests, replace=False)
    train = replace(train, features=train.features[order], labels=train.labels[order])
    return Problem(name=name, train=train, test=test, forgotten=forgotten, l2=l2, repeats=repeats)


def _rows(images: NDArray[np.floating], labels: NDArray[np.integer], kept: range | tuple[int, ...]) -> Rows:
    codes = np.searchsorted(np.array(kept), labels).astype(np.int32)
    return Rows(features=np.ascontiguousarray(encode_vectors(images)), labels=codes, num_classes=len(kept))


def _named(source: str, kept: range | tuple[int, ...]) -> str:
    return f"{source} ten classes" if len(kept) == 10 else f"{source} {kept[0]} vs {kept[1]}"
