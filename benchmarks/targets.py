"""The defaults of regressions: what the width of the Huber loss and the regularisation buy, on numbers of people.

    ./dev bench targets

Hours of work of the people of Adult, from what else is known of them, and the diabetes data of scikit-learn. Every
mechanism aims at (epsilon = 1, delta = 1 / n^1.1); it is the default with one setting changed. Each repeat is another
random part of the rows, with other noise; `ridge` is the minimiser of least squares without noise, at the same l2.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray
from rich.progress import track
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

from benchmarks import data, page
from benchmarks.origin import origin
from examples.diabetes.regression import COLUMNS, HELD_OUT, HERE
from lethe.encoding.rows import Features, Labels, Schema
from lethe.encoding.schema import parse_schema
from lethe.encoding.targets import UNIT, TargetColumn
from lethe.proof import accountant, calibration
from lethe.proof.accountant import Run
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism
from worker.langevin import chain
from worker.langevin.evaluate import of_target
from worker.langevin.noise import SystemNoise

REPEATS = 5
OF_ADULT = (1_000, 3_000, 10_000, 32_561)
CHANGED: dict[str, dict[str, float]] = {
    "default": {},
    "half the width": {"loss_width": 0.1},
    "twice the width": {"loss_width": 0.4},
}
Rows = tuple[Features, Labels]


def main() -> None:
    heads = ("data", "", "noise of y", "learning", "first request", "R²", "ridge")
    print(page.table(heads, (row for problem in problems() for row in measured(*problem))))


def problems() -> Iterator[tuple[str, int, TargetColumn, Rows, Rows]]:
    """A name, how many rows each repeat takes of the first, the range, and the rows that tell how close it is."""
    x, y = load_diabetes(return_X_y=True, scaled=False)
    names = (*COLUMNS, "progression")
    table = pa.table(dict(zip(names, [*x.T[:1], x.T[1].astype(int), *x.T[2:], y], strict=True)))
    held_out = np.arange(len(y)) % HELD_OUT == HELD_OUT - 1
    schema = _schema((HERE / "schema.json").read_text(), person={"role": "ignored"})
    parts = [encoded(schema, table.filter(pa.array(chosen))) for chosen in (~held_out, held_out)]
    yield "diabetes, 332", len(parts[0][0]), schema.target, *parts

    of_hours = {"role": "target", "min": 0, "max": 100}
    income = {"kind": "categorical", "values": ["<=50K", ">50K"]}
    schema = _schema((data.ADULT / "schema.json").read_text(), hours_per_week=of_hours, income=income)
    parts = [encoded(schema, pyarrow.csv.read_csv(data.ADULT / f"{part}.csv")) for part in ("train", "test")]
    for size in OF_ADULT:
        yield f"hours of work, {size:,}", size, schema.target, *parts


def encoded(schema: Schema, table: Any) -> Rows:
    columns = {name: table[name] for name in schema.used if name in table.column_names}
    rows = schema.encode_labelled(columns, range(len(table)))
    return rows.features, rows.labels


def _schema(document: str, **changed: Any) -> Schema:
    """A public schema with some columns meant otherwise."""
    columns = json.loads(document)["columns"] | changed
    return parse_schema({"columns": columns})


def measured(name: str, size: int, target: TargetColumn, train: Rows, test: Rows) -> Iterator[tuple[Any, ...]]:
    """A row of results for each setting."""
    for changed, settings in track(CHANGED.items(), description=name):
        mechanism = calibration.mechanism_for(
            calibration.ModelSettings(epsilon=1.0, delta=size**-1.1, **settings),
            objective=Objective.HUBER_REGRESSION,
            num_slots=size,
            num_classes=1,
        )
        learned = accountant.replay(mechanism, [Run(steps=mechanism.learn_steps)])
        steps = calibration.least_steps(learned, records=1, epsilon=1.0, delta=size**-1.1, at_most=10**7)
        parts = [_part(train, size, seed) for seed in range(REPEATS)]
        ours = [close(learn(mechanism, part), test, target) for part in parts]
        ridge = [close(fit(mechanism, part), test, target) for part in parts]
        noise = math.sqrt(mechanism.step_variance / (1 - mechanism.contraction**2))
        yield (
            name,
            changed,
            f"{noise:.2f}",
            f"{mechanism.learn_steps / mechanism.num_batches:.3g}",
            f"{steps / mechanism.num_batches:.2g}",
            f"{np.mean(ours):.3f} ± {np.std(ours):.3f}",
            f"{np.mean(ridge):.3f}",
        )


def learn(mechanism: Mechanism, rows: Rows) -> NDArray[np.float64]:
    features, labels = rows
    return chain.run(
        features=features,
        labels=labels,
        mechanism=mechanism,
        initial=origin(num_classes=1, num_features=features.shape[1]),
        steps=mechanism.learn_steps,
        noise=SystemNoise(),
        on_progress=lambda steps_done: None,
    ).parameters


def fit(mechanism: Mechanism, rows: Rows) -> NDArray[np.float64]:
    """The minimiser of least squares with the same regularisation  # (1, d)"""
    features, labels = rows
    fitted = Ridge(alpha=mechanism.l2 * len(labels), fit_intercept=False).fit(features.astype(float), labels / UNIT)
    return np.asarray(fitted.coef_)[np.newaxis]


def close(parameters: NDArray[np.float64], test: Rows, target: TargetColumn) -> float:
    return float(of_target(parameters, [test], target)["r_squared"])


def _part(rows: Rows, size: int, seed: int) -> Rows:
    chosen = np.random.default_rng(seed).permutation(len(rows[0]))[:size]
    return np.ascontiguousarray(rows[0][chosen]), rows[1][chosen]


if __name__ == "__main__":
    main()
