"""The defaults of counts: what Poisson regression buys over a line, and what its setting buys, on numbers of people.

    ./dev bench counts

Visits to a doctor in a year, of the 20,190 person-years of the RAND Health Insurance Experiment that statsmodels
brings, from a plan's terms and the state of health. Every mechanism aims at (epsilon = 1, delta = 1 / n^1.1); it is the
default with one setting changed. Each repeat is another random part of the rows, with other noise. `explained`: the
share of the Poisson deviance of the mean, on rows that were not learned from; `noiseless`: that of the minimiser.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import statsmodels.datasets as econometric
from numpy.typing import NDArray
from rich.progress import track
from scipy.optimize import minimize
from sklearn.metrics import d2_tweedie_score, r2_score

from benchmarks import page
from benchmarks.targets import Rows, learn
from lethe.encoding.schema import parse_schema
from lethe.encoding.targets import UNIT, TargetColumn, y_of_scores
from lethe.features.tables.fitting import Learned
from lethe.proof import accountant, calibration
from lethe.proof.accountant import Run
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism

REPEATS = 5
SIZES = (1_000, 3_000, 15_000)
MEASURED_ON = 5_000
BOUND = 30
MIN_RATE = 0.01
"""What a line says below it is taken for it: the deviance of a rate of 0 is infinite."""
COLUMNS: dict[str, dict[str, Any]] = {
    "lncoins": {"kind": "standard", "center": 2, "scale": 1},
    "idp": {"kind": "numeric", "min": 0, "max": 1},
    "lpi": {"kind": "standard", "center": 5, "scale": 1.5},
    "fmde": {"kind": "standard", "center": 4, "scale": 2},
    "physlm": {"kind": "numeric", "min": 0, "max": 1},
    "disea": {"kind": "standard", "center": 10, "scale": 5},
    **{name: {"kind": "numeric", "min": 0, "max": 1} for name in ("hlthg", "hlthf", "hlthp")},
}
POISSON = Objective.POISSON_REGRESSION
CHANGED: dict[str, dict[str, Any]] = {
    "default": {},
    "width 1": {"loss_width": 1.0},
    "width 3": {"loss_width": 3.0},
    "half of l2": {"l2": 0.5},
    "huber_regression": {"objective": Objective.HUBER_REGRESSION},
}


def main() -> None:
    heads = ("rows", "", "noise of a score", "learning", "first request", "explained", "noiseless", "R²")
    print(page.table(heads, (row for size in SIZES for row in measured(size))))


def measured(size: int) -> Iterator[tuple[Any, ...]]:
    """A row of results for each setting."""
    schema = parse_schema(
        {"columns": COLUMNS | {"mdvis": {"role": "target", "min": 0, "max": BOUND, "outside": "clip", "counts": True}}}
    )
    frame = econometric.randhie.load_pandas().data
    rows = schema.encode_labelled({name: frame[name].to_numpy() for name in schema.used}, range(len(frame)))
    target, parts = schema.target, []
    assert target is not None
    for seed in range(REPEATS):
        order = np.random.default_rng(seed).permutation(len(frame))
        chosen = order[MEASURED_ON:][:size], order[:MEASURED_ON]
        parts.append([(np.ascontiguousarray(rows.features[one]), rows.labels[one]) for one in chosen])
    for changed, settings in track(CHANGED.items(), description=f"{size:,} rows"):
        chosen = dict(settings)
        objective = chosen.pop("objective", POISSON)
        if "l2" in chosen:
            chosen["l2"] *= calibration.default_l2(size, 1.0, POISSON)
        of_all = calibration.ModelSettings(epsilon=1.0, delta=size**-1.1, **chosen)
        mechanism = calibration.mechanism_for(of_all, objective=objective, num_slots=size, num_classes=1)
        learned = accountant.replay(mechanism, [Run(steps=mechanism.learn_steps)])
        steps = calibration.least_steps(learned, records=1, epsilon=1.0, delta=size**-1.1, at_most=10**7)
        ours = [close(mechanism, learn(mechanism, train), test, target) for train, test in parts]
        exact = [close(mechanism, fit(mechanism, train), test, target) for train, test in parts]
        explained, squares = np.transpose(ours)
        yield (
            f"{size:,}",
            changed,
            f"{math.sqrt(mechanism.step_variance / (1 - mechanism.contraction**2)):.2f}",
            f"{mechanism.learn_steps / mechanism.num_batches:.3g}",
            f"{steps / mechanism.num_batches:.2g}",
            f"{explained.mean():.3f} ± {explained.std():.3f}",
            f"{np.mean([one for one, _ in exact]):.3f}",
            f"{squares.mean():.3f} ± {squares.std():.3f}",
        )


def fit(mechanism: Mechanism, rows: Rows) -> NDArray[np.float64]:
    """The minimiser of the mechanism's objective, without noise  # (1, d)"""
    features, labels = rows
    x, learned = features.astype(float), Learned.of(mechanism.objective, labels, 1)
    width = mechanism.loss_width or math.inf

    def value(w: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scores = x @ w[:, np.newaxis]
        slope = (learned.pull(scores, width).T @ x)[0] / len(x)
        return learned.loss(scores, width) + mechanism.l2 / 2 * float(w @ w), slope + mechanism.l2 * w

    return np.asarray(minimize(value, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x)[np.newaxis]


def close(
    mechanism: Mechanism, parameters: NDArray[np.float64], test: Rows, target: TargetColumn
) -> tuple[float, float]:
    """The share of the deviance that is explained, and that of the squares."""
    features, labels = test
    counts = np.rint(target.values(labels / UNIT))
    y = y_of_scores(
        features.astype(float) @ parameters[0], objective=mechanism.objective, loss_width=mechanism.loss_width
    )
    rates = np.maximum(target.values(y), MIN_RATE)
    return float(d2_tweedie_score(counts, rates, power=1)), float(r2_score(counts, rates))


if __name__ == "__main__":
    main()
