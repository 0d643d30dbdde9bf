"""How accurate models that forget are, on public tables that come in packages, beside models that do not forget.

    ./dev bench accuracy --data DIR      # DIR holds mnist.npz; without it, and with --quick, to build/evidence
    ./dev bench accuracy --data DIR --ours    # Lethe alone: the rivals' numbers are those that are stored

A tenth of each table plays a public sample, from which the schema is inferred, as `lethe dataset infer` does; of the
rest three quarters are learned and a quarter is measured on. Lethe is as shipped, at (epsilon, 1/n^1.1). The rivals are
scikit-learn's and XGBoost, on the same features, tuned where said: they forget by learning again.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.datasets as econometric
from numpy.typing import NDArray
from palmerpenguins import load_penguins
from rich.progress import track
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from xgboost import XGBClassifier

from benchmarks import data, page
from benchmarks.origin import origin
from lethe.encoding.rows import unit_rows
from lethe.encoding.schema import parse_schema
from lethe.features.tables.inferring import columns_of, infer
from lethe.proof import accountant, calibration
from lethe.proof.accountant import Run
from lethe.proof.mechanism import Mechanism
from worker.langevin import chain
from worker.langevin.evaluate import of_classes
from worker.langevin.noise import SystemNoise

EPSILONS = (1.0, 4.0)
PARITY_EPSILONS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
PARITY_SHARES = (1.0, 0.5, 0.25, 0.1)
"""Shares of the default l2 that are tried at each epsilon, the default first."""
PARITY = 0.01
"""A model whose mean accuracy is no more than this below that of the tuned logistic regression has reached it."""
LARGE = 8_000
"""Rows from which a table is cut once, where only the noise is new, and iterative fits are given fewer rounds."""
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Features before each row is scaled, and their labels, learned and measured on."""

    train: NDArray[np.float64]
    train_labels: NDArray[np.int32]
    test: NDArray[np.float64]
    test_labels: NDArray[np.int32]
    num_classes: int


RIVALS: dict[str, Callable[[bool], Any]] = {
    "logistic regression": lambda large: GridSearchCV(
        LogisticRegression(max_iter=100 if large else 5000), {"C": [0.1, 1] if large else [0.01, 0.1, 1, 10]}, cv=3
    ),
    "random forest": lambda large: RandomForestClassifier(300, random_state=0, n_jobs=-1),
    "gradient boosting": lambda large: HistGradientBoostingClassifier(random_state=0),
    "XGBoost": lambda large: XGBClassifier(random_state=0),
    "neural network": lambda large: MLPClassifier((100,), max_iter=20 if large else 1000, random_state=0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with mnist.npz")
    parser.add_argument("--quick", action="store_true", help="the smallest tables only")
    parser.add_argument("--ours", action="store_true", help="Lethe alone, beside the stored numbers of the rivals")
    asked = parser.parse_args()
    stored = {row["name"]: row["accuracy"] for row in page.read("accuracy")["tables"]} if asked.ours else {}
    warnings.filterwarnings("ignore", module="sklearn")
    results: Row = {"machine": page.machine(), "tables": []}
    for name, problem in tables(asked.data, quick=asked.quick):
        results["tables"].append(measured(name, problem, stored.get(name, {})))
    page.write("accuracy", results, page.RESULTS if asked.data and not asked.quick else page.SCRATCH)
    for title, text in printed(results).items():
        print(f"\n{title}\n\n{text}")


def tables(folder: Path | None, *, quick: bool) -> Iterator[tuple[str, Callable[[int], Problem]]]:
    """A name, and the problem of each repeat."""
    small = {
        "iris": load_iris(as_frame=True).frame.rename(columns={"target": "label"}),
        "wine": load_wine(as_frame=True).frame.rename(columns={"target": "label"}),
        "penguins": load_penguins().rename(columns={"species": "label"}).drop(columns="year"),
        "breast cancer": load_breast_cancer(as_frame=True).frame.rename(columns={"target": "label"}),
        "vote, ANES 1996": econometric.anes96.load_pandas().data.rename(columns={"vote": "label"}),
    }
    for name, frame in small.items():
        yield name, lambda seed, frame=frame: of_frame(frame, seed)
    if quick:
        return
    images, labels = load_digits(return_X_y=True)
    yield "digits", lambda seed: of_rows(images / 16, labels.astype(np.int32), seed)
    affairs = econometric.fair.load_pandas().data
    affairs = affairs.assign(label=(affairs["affairs"] > 0).astype(int)).drop(columns="affairs")
    yield "affairs, Fair 1978", lambda seed: of_frame(affairs, seed)
    visits = econometric.randhie.load_pandas().data
    visits = visits.assign(label=(visits["mdvis"] > 0).astype(int)).drop(columns="mdvis")
    yield "doctor visits, RAND 1982", lambda seed: of_frame(visits, seed)
    yield "Adult", lambda seed: adult()
    if folder is not None:
        yield "MNIST, 3 and 8", lambda seed: mnist(folder, (3, 8))
        yield "MNIST", lambda seed: mnist(folder, tuple(range(10)))


def of_frame(frame: pd.DataFrame, seed: int) -> Problem:
    """With a schema from a tenth of the rows, which are in neither part."""
    order = np.random.default_rng(seed).permutation(len(frame))
    cut = max(20, len(frame) // 10)
    label = {"role": "label", "values": sorted(map(str, frame["label"].unique()))}
    frame = frame.assign(label=frame["label"].astype(str))
    columns = infer(frame.iloc[order[:cut]], label="label")["columns"]
    gaps = {name: {"unknown": "null"} for name in columns if frame[name].isna().any()}
    schema = parse_schema(
        {"columns": {name: spec | gaps.get(name, {}) for name, spec in columns.items()} | {"label": label}}
    )
    rest = frame.iloc[order[cut:]].reset_index(drop=True)
    there = columns_of(rest)
    found = schema.encode_labelled(there, range(1, len(rest) + 1))
    return _cut(found.raw, found.labels, len(schema.classes))


def of_rows(features: NDArray[np.float64], labels: NDArray[np.int32], seed: int) -> Problem:
    order = np.random.default_rng(seed).permutation(len(labels))
    return _cut(features[order], labels[order], int(labels.max()) + 1)


def adult() -> Problem:
    schema = parse_schema(json.loads((data.ADULT / "schema.json").read_text()))
    parts = []
    for part in ("train", "test"):
        columns = columns_of(data.ADULT / f"{part}.csv")
        found = schema.encode_labelled(columns, range(1, len(columns[schema.label]) + 1))
        parts += [found.raw, found.labels]
    return Problem(train=parts[0], train_labels=parts[1], test=parts[2], test_labels=parts[3], num_classes=2)


def mnist(folder: Path, kept: tuple[int, ...]) -> Problem:
    parts = []
    for part in ("train", "test"):
        pixels, digits = data.mnist(folder, part, kept)
        parts += [pixels, np.searchsorted(kept, digits).astype(np.int32)]
    return Problem(train=parts[0], train_labels=parts[1], test=parts[2], test_labels=parts[3], num_classes=len(kept))


def measured(name: str, problem: Callable[[int], Problem], stored: Row) -> Row:
    """Accuracy of each, mean and deviation over the repeats, and what learning and one request take. Rivals whose
    accuracy is `stored` are not fitted again: they learn the same rows, whatever the service's defaults."""
    first = problem(0)
    large = len(first.train) > LARGE
    found: dict[str, list[float]] = {}
    seconds: list[tuple[float, float]] = []
    for seed in track(range(2 if large else 5), description=name):
        one = problem(seed)
        for epsilon in EPSILONS:
            right, taken = learned(one, epsilon)
            found.setdefault(f"epsilon {epsilon:g}", []).append(right)
            seconds += [taken] if epsilon == EPSILONS[0] else []
        for rival, make in RIVALS.items() if seed == 0 or not large else ():
            if rival in stored:
                continue
            model = make(large).fit(one.train, one.train_labels)
            found.setdefault(rival, []).append(float(model.score(one.test, one.test_labels)))
    planned = made(num_slots=len(first.train), num_classes=first.num_classes, epsilon=EPSILONS[0])
    steps = request_steps(planned, EPSILONS[0])
    accuracy = {who: [float(np.mean(right)), float(np.std(right))] for who, right in found.items()}
    accuracy |= {rival: stored[rival] for rival in RIVALS if rival in stored}
    goal = accuracy["logistic regression"][0] - PARITY
    return {
        "name": name,
        "rows": len(first.train),
        "features": first.train.shape[1],
        "classes": first.num_classes,
        "learn_passes": planned.learn_steps / planned.num_batches,
        "request_passes": steps / planned.num_batches,
        "learn_seconds": float(np.median([learning for learning, _ in seconds])),
        "request_seconds": float(np.median([request for _, request in seconds])),
        "accuracy": accuracy,
        "parity": parity(problem, goal=goal, repeats=2 if large else 5),
    }


def parity(problem: Callable[[int], Problem], *, goal: float, repeats: int) -> Row | None:
    """The first of `PARITY_EPSILONS`, and of `PARITY_SHARES` at it, whose mean accuracy reaches the goal, or none."""
    repeated = [problem(seed) for seed in range(repeats)]
    settings = {"num_slots": len(repeated[0].train), "num_classes": repeated[0].num_classes}
    for epsilon, share in product(PARITY_EPSILONS, PARITY_SHARES):
        right = np.mean([learned(one, epsilon, share_of_l2=share)[0] for one in repeated])
        if right >= goal:
            mechanism = made(**settings, epsilon=epsilon, share_of_l2=share)
            passes = request_steps(mechanism, epsilon) / mechanism.num_batches
            return {"epsilon": epsilon, "share_of_l2": share, "accuracy": float(right), "request_passes": passes}
    return None


def made(*, num_slots: int, num_classes: int, epsilon: float, share_of_l2: float = 1.0) -> Mechanism:
    """The service's mechanism for a target, with a share of the default l2."""
    return calibration.mechanism_for(
        calibration.ModelSettings(
            epsilon=epsilon, delta=num_slots**-1.1, l2=share_of_l2 * calibration.default_l2(num_slots, epsilon)
        ),
        num_slots=num_slots,
        num_classes=num_classes,
    )


def request_steps(mechanism: Mechanism, epsilon: float) -> int:
    """The steps of the first request."""
    now = accountant.replay(mechanism, [Run(steps=mechanism.learn_steps)])
    delta = mechanism.num_slots**-1.1
    return calibration.least_steps(now, records=1, epsilon=epsilon, delta=delta, at_most=10**7)


def learned(problem: Problem, epsilon: float, share_of_l2: float = 1.0) -> tuple[float, tuple[float, float]]:
    """The accuracy of a model that has just learned, and the seconds that its steps took, and those of one request."""
    settings = {"num_slots": len(problem.train), "num_classes": problem.num_classes}
    mechanism = made(**settings, epsilon=epsilon, share_of_l2=share_of_l2)
    rows, test = unit_rows(problem.train), unit_rows(problem.test)
    start = origin(num_classes=problem.num_classes, num_features=rows.shape[1])
    began = time.perf_counter()
    parameters = _run(mechanism, rows, problem.train_labels, start, mechanism.learn_steps)
    learning = time.perf_counter() - began
    began = time.perf_counter()
    _run(mechanism, rows, problem.train_labels, parameters, request_steps(mechanism, epsilon))
    request = time.perf_counter() - began
    right = of_classes(parameters, [(test, problem.test_labels)], problem.num_classes)["accuracy"]
    return float(right), (learning, request)


def _run(mechanism: Mechanism, rows: Any, labels: Any, start: Any, steps: int) -> Any:
    return chain.run(
        mechanism=mechanism,
        features=rows,
        labels=labels,
        initial=start,
        steps=steps,
        noise=SystemNoise(),
        on_progress=lambda steps_done: None,
    ).parameters


def _cut(features: NDArray[np.float64], labels: NDArray[np.int32], num_classes: int) -> Problem:
    cut = len(labels) // 4
    return Problem(
        train=features[cut:],
        train_labels=labels[cut:],
        test=features[:cut],
        test_labels=labels[:cut],
        num_classes=num_classes,
    )


def printed(results: Row) -> dict[str, str]:
    """Tables of the page."""
    whose = [f"epsilon {epsilon:g}" for epsilon in EPSILONS] + list(RIVALS)
    accuracy = (
        (row["name"], row["rows"], row["features"], row["classes"], *(_right(row["accuracy"][one]) for one in whose))
        for row in results["tables"]
    )
    costs = (
        (
            row["name"],
            f"{row['learn_passes']:.3g}",
            f"{row['learn_seconds']:.2f}",
            f"{row['request_passes']:.2g}",
            f"{row['request_seconds']:.3f}",
        )
        for row in results["tables"]
    )
    parities = ((row["name"], *_parity(row)) for row in results["tables"])
    heads = ("", "rows", "features", "classes", *(f"Lethe, {one}" for one in whose[: len(EPSILONS)]), *RIVALS)
    return {
        "accuracy": page.table(heads, accuracy),
        "parity": page.table(
            ("", "goal", "epsilon", "share of the default l2", "passes of a request", "accuracy"), parities
        ),
        "costs": page.table(("", "passes to learn", "seconds", "passes of a request", "seconds"), costs),
    }


def _parity(row: Row) -> tuple[str, ...]:
    goal = f"{100 * (row['accuracy']['logistic regression'][0] - PARITY):.1f}"
    if row["parity"] is None:
        return goal, f"above {PARITY_EPSILONS[-1]:g}", "", "", ""
    found = row["parity"]
    passes, right = f"{found['request_passes']:.2g}", f"{100 * found['accuracy']:.1f}"
    return goal, f"{found['epsilon']:g}", f"{found['share_of_l2']:g}", passes, right


def _right(found: list[float]) -> str:
    return f"{100 * found[0]:.1f}" + (f" ± {100 * found[1]:.1f}" if found[1] else "")


if __name__ == "__main__":
    main()
