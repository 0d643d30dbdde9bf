"""What regularisation and how much noise to use when nobody says: accuracy, steps and seconds over a grid of both.

    python -m benchmarks.defaults --data examples/adult

For all of a dataset and for random subsets of it, every mechanism aims at (epsilon = 1, delta = 1 / n^1.1). Noise is
stated as headroom: the stationary mu of one record over the mu of the target. A deletion then takes about
ln(headroom) / ln(1 / contraction) steps, and one step where headroom is at most 1. `noiseless` is the minimiser of the
same objective and `sklearn` scikit-learn's logistic regression as it comes. Prints a table and writes it as JSON.
"""

import argparse
import json
import math
import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow.csv
from sklearn.linear_model import LogisticRegression

from app.privacy import accountant, calibration, conversion
from app.privacy.mechanism import Mechanism
from app.registry.encoding import Features, Labels, Schema
from app.registry.schema import parse_schema
from worker.langevin import chain
from worker.langevin.evaluate import accuracy
from worker.langevin.init import origin
from worker.langevin.noise import SystemNoise

EPSILON = 1.0
SIZES = (1_000, 3_000, 10_000)  # and all rows
L2 = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
LEAST_L2 = 2.5e-4  # below it learning takes too long; see `recommended_l2`
HEADROOM = (0.5, 1.0, 2.0, 3.0)
MOST_REPEATS = 5

Rows = tuple[Features, Labels]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One setting on one size; what varies is the mean over the repeats, each a new subset with new noise."""

    num_rows: int
    repeats: int
    delta: float
    target_mu: float
    l2: float
    headroom: float
    noise_scale: float
    contraction: float
    learn_steps: int
    deletion_steps: int
    seconds: float
    accuracy: float
    accuracy_std: float
    noiseless_accuracy: float
    sklearn_accuracy: float

    def __str__(self) -> str:
        return (
            f"{self.num_rows:6d} {self.l2:8.2g} {self.headroom:9g} {self.noise_scale:9.5f} {self.learn_steps:6d} "
            f"{self.deletion_steps:9d} {self.learn_steps / self.deletion_steps:6.0f} {self.seconds:8.2f} "
            f"{self.accuracy:9.4f} {self.accuracy_std:7.4f} {self.noiseless_accuracy:10.4f} "
            f"{self.sklearn_accuracy:8.4f}"
        )


HEADING = "  rows       l2  headroom     noise  learn  deletion  ratio  seconds  accuracy    +/-   noiseless  sklearn"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with train.csv, test.csv and schema.json")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/defaults.json"))
    arguments = parser.parse_args()

    schema = parse_schema(json.loads((arguments.data / "schema.json").read_text()))
    train, test = (read(schema, arguments.data / f"{part}.csv") for part in ("train", "test"))
    print(HEADING)
    cells = []
    for num_rows in (*SIZES, len(train[0])):
        subsets = [subset(train, num_rows, seed) for seed in range(min(MOST_REPEATS, len(train[0]) // num_rows))]
        sklearn = np.mean([LogisticRegression(max_iter=10_000).fit(*rows).score(*test) for rows in subsets])
        for l2 in sorted({*L2, recommended_l2(num_rows)}):
            same = LogisticRegression(C=1 / (l2 * num_rows), fit_intercept=False, max_iter=10_000)
            noiseless = np.mean([same.fit(*rows).score(*test) for rows in subsets])
            for headroom in HEADROOM:
                mechanism = mechanism_with(num_rows, len(schema.classes), l2, headroom)
                cells.append(measure(mechanism, headroom, subsets, test, float(noiseless), float(sklearn)))
                print(cells[-1], flush=True)
    machine = {"cores": os.cpu_count(), "processor": platform.machine(), "numpy": np.__version__}
    results = {"data": arguments.data.name, "epsilon": EPSILON, "machine": machine, "cells": [asdict(c) for c in cells]}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")


def recommended_l2(num_rows: int) -> float:
    """The most accurate setting at headroom 2 is 1 / n at every size; a floor bounds the steps, of order 1 / l2."""
    return max(1 / num_rows, LEAST_L2)


def read(schema: Schema, path: Path) -> Rows:
    table = pyarrow.csv.read_csv(path)
    rows = schema.encode_labelled({name: table[name] for name in schema.used}, range(len(table)))
    features, labels = rows.features, rows.labels
    return features, labels


def subset(rows: Rows, num_rows: int, seed: int) -> Rows:
    chosen = np.random.default_rng(seed).permutation(len(rows[0]))[:num_rows]
    return rows[0][chosen], rows[1][chosen]


def mechanism_with(num_rows: int, num_classes: int, l2: float, headroom: float) -> Mechanism:
    """The service's mechanism, with the noise that makes one record's stationary mu `headroom` times the target's."""

    def with_noise(noise_scale: float) -> Mechanism:
        return calibration.mechanism_for(
            num_slots=num_rows,
            num_classes=num_classes,
            epsilon=EPSILON,
            delta=num_rows**-1.1,
            l2=l2,
            noise_scale=noise_scale,
        )

    unit = with_noise(1.0)
    gap = 1 - unit.contraction
    influence = unit.step_size * unit.gradient_bound / num_rows / gap
    spread = math.sqrt(unit.step_variance / (gap * (2 - gap)))  # in the flattest direction
    target = conversion.gdp_mu(epsilon=EPSILON, delta=num_rows**-1.1)
    return with_noise(influence / spread / (headroom * target))


def measure(
    mechanism: Mechanism, headroom: float, subsets: list[Rows], test: Rows, noiseless: float, sklearn: float
) -> Cell:
    delta = mechanism.num_slots**-1.1
    learned = accountant.advance(accountant.started(mechanism), accountant.Run(steps=mechanism.learn_steps, records=0))
    start = time.perf_counter()
    models = [learn(mechanism, *rows) for rows in subsets]
    seconds = (time.perf_counter() - start) / len(subsets)
    found = [accuracy(model, *test, mechanism.num_classes)[0] for model in models]
    return Cell(
        num_rows=mechanism.num_slots,
        repeats=len(subsets),
        delta=delta,
        target_mu=conversion.gdp_mu(epsilon=EPSILON, delta=delta),
        l2=mechanism.l2,
        headroom=headroom,
        noise_scale=mechanism.noise_scale,
        contraction=mechanism.contraction,
        learn_steps=mechanism.learn_steps,
        deletion_steps=calibration.least_steps(learned, records=1, epsilon=EPSILON, delta=delta, at_most=10**6),
        seconds=seconds,
        accuracy=float(np.mean(found)),
        accuracy_std=float(np.std(found)),
        noiseless_accuracy=noiseless,
        sklearn_accuracy=sklearn,
    )


def learn(mechanism: Mechanism, features: Features, labels: Labels) -> np.ndarray:
    return chain.run(
        features=features,
        labels=labels,
        num_slots=mechanism.num_slots,
        num_classes=mechanism.num_classes,
        l2=mechanism.l2,
        step_size=mechanism.step_size,
        noise_scale=mechanism.noise_scale,
        radius=mechanism.radius,
        initial=origin(num_classes=mechanism.num_classes, num_features=features.shape[1]),
        steps=mechanism.learn_steps,
        noise=SystemNoise(),
        on_progress=lambda steps_done: None,
    ).parameters


if __name__ == "__main__":
    main()
