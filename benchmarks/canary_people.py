"""Whether canary people find pipelines that keep the forgotten, and leave honest ones alone.

    ./dev bench canary_people            # --quick: two runs of each on the small table, to build/evidence

Pipelines of gradient-boosted trees (XGBoost) and random forests (scikit-learn), each at its defaults but the number of
threads and, for forests, 50 trees. A run plants canaries in a table and trains; plants others, forgets the first and
trains again; and judges the second artefact:

- honest: the second training reads the second table alone;
- kept feature cache: encoded rows are cached by the first training, and the second adds the new ones to the cache;
- warm start: the second training starts from the first model and adds as many trees;
- forgotten join: the share of positive labels of people with the same values, computed in the first training, is joined
  to each row as a feature.

Tables: rows of Adult drawn at random, with its whole test set, and an invented one. The seed draws everything.
"""

import argparse
import concurrent.futures
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from xgboost import XGBClassifier

from app.features.canary_people.plants import ROWS_PER_CANARY
from benchmarks import page
from benchmarks.data import ADULT
from lethe.features.canary_people import drawing, judging

PLANTED = 150
ADULT_ROWS, INVENTED_ROWS = 5000, 1000
CAUGHT_RUNS, HONEST_RUNS = 20, 200
KINDS = ("honest", "kept feature cache", "warm start", "forgotten join")
MODELS = ("XGBoost", "random forest")
TREES = {"XGBoost": 100, "random forest": 50}
JOINED_BY = {"Adult": ("age", "education", "occupation"), "invented": ("a", "b", "f")}
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A table to learn, a test table, the label, and the columns by which the forgotten join joins."""

    train: pa.Table
    test: pa.Table
    label: str
    joined_by: tuple[str, ...]


def adult(seed: int) -> Problem:
    """Rows of Adult drawn at random, without ids and sampling weights."""
    train, test = (
        pyarrow.csv.read_csv(ADULT / f"{part}.csv").drop_columns(["person", "fnlwgt"]) for part in ("train", "test")
    )
    chosen = np.random.default_rng(seed).permutation(train.num_rows)[:ADULT_ROWS]
    return Problem(train=train.take(pa.array(chosen)), test=test, label="income", joined_by=JOINED_BY["Adult"])


def invented(seed: int) -> Problem:
    """Ten columns of one to forty values, and a label that two of them decide, wrong in one row of seven."""
    rng = np.random.default_rng(seed)

    def table(num_rows: int) -> pa.Table:
        columns = {name: rng.binomial(40, 0.5, size=num_rows) for name in "abcde"}
        columns |= {name: rng.integers(5, size=num_rows) for name in "fghij"}
        is_positive = (columns["a"] + 3 * columns["f"] > 26) ^ (rng.random(num_rows) < 1 / 7)
        return pa.table(columns | {"label": np.where(is_positive, "yes", "no")})

    return Problem(train=table(INVENTED_ROWS), test=table(4000), label="label", joined_by=JOINED_BY["invented"])


class Encoder:
    """Numbers as they are, other values by their place in the first table."""

    def __init__(self, table: pa.Table, label: str) -> None:
        self._label = label
        self._places = {
            name: {
                value: float(place) for place, value in enumerate(sorted(table[name].unique().drop_null().to_pylist()))
            }
            for name in table.column_names
            if not pa.types.is_integer(table[name].type)
        }

    def __call__(self, table: pa.Table) -> tuple[Floats, NDArray[np.int64]]:
        columns = {
            name: [self._places[name].get(value, -1.0) for value in table[name].to_pylist()]
            if name in self._places
            else table[name].to_numpy()
            for name in table.column_names
        }
        labels = np.asarray(columns.pop(self._label), dtype=np.int64)
        return np.column_stack(list(columns.values())).astype(np.float64), labels


def new_model(name: str, seed: int) -> Any:
    if name == "XGBoost":
        return XGBClassifier(n_estimators=TREES[name], n_jobs=1, random_state=seed)
    return RandomForestClassifier(TREES[name], n_jobs=1, random_state=seed)


def losses(model: Any, features: Floats, labels: NDArray[np.int64]) -> Floats:
    """Minus the logarithm of the probability of each row's own label."""
    shares = model.predict_proba(features)[np.arange(len(labels)), labels]
    with np.errstate(divide="ignore"):
        return -np.log(shares.astype(np.float64))


def shares_of(table: pa.Table, problem: Problem, positive: NDArray[np.int64]) -> dict[Any, float]:
    """The share of positive labels of each combination of values."""
    sums: dict[Any, list[int]] = {}
    for key, label in zip(keys(table, problem), positive, strict=True):
        sums.setdefault(key, []).append(int(label))
    return {key: float(np.mean(labels)) for key, labels in sums.items()}


def keys(table: pa.Table, problem: Problem) -> list[Any]:
    return list(zip(*(table[name].to_pylist() for name in problem.joined_by), strict=True))


def run(problem: Problem, name: str, seed: int, kinds: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The verdict on the second training of each kind of pipeline, and its accuracy on the test table."""
    rng = np.random.default_rng(seed)
    encode = Encoder(problem.train, problem.label)
    number = min(PLANTED, problem.train.num_rows // ROWS_PER_CANARY)
    first, second = (drawing.draw(problem.train, number=number, rng=rng) for _ in range(2))
    tables = [drawing.mixed(problem.train, group.planted, rng) for group in (first, second)]
    before, after = (encode(table) for table in tables)
    history: dict[Any, float] = {}

    def fitted(rows: tuple[Floats, NDArray[np.int64]], model: Any = None, **given: Any) -> Any:
        return (model or new_model(name, seed)).fit(*rows, **given)

    def joined(table: pa.Table) -> tuple[Floats, NDArray[np.int64]]:
        features, labels = encode(table)
        column = [history.get(key, -1.0) for key in keys(table, problem)]
        return np.column_stack([features, column]), labels

    found = {}
    for kind in kinds:
        encoded: Callable[[pa.Table], tuple[Floats, NDArray[np.int64]]] = encode
        if kind == "honest":
            model = fitted(after)
        elif kind == "kept feature cache":
            planted = encode(first.planted)
            model = fitted((np.concatenate([after[0], planted[0]]), np.concatenate([after[1], planted[1]])))
        elif kind == "warm start":
            model = fitted(before)
            if name == "XGBoost":
                model = fitted(after, xgb_model=model.get_booster())
            else:
                model = fitted(after, model.set_params(warm_start=True, n_estimators=2 * TREES[name]))
        else:
            history |= shares_of(tables[0], problem, before[1])
            encoded = joined
            model = fitted(joined(tables[1]))
        scored = [losses(model, *encoded(rows)) for group in (first, second) for rows in (group.planted, group.never)]
        verdict = judging.judge(
            forgotten=[(scored[0], scored[1])], present=(scored[2], scored[3]), test=1, seed=int(rng.integers(2**63))
        )
        accuracy = float(np.mean(model.predict(encoded(problem.test)[0]) == encode(problem.test)[1]))
        found[kind] = verdict.to_json() | {"accuracy": accuracy}
    return found


def summary(
    table: str, name: str, verdicts: list[dict[str, dict[str, Any]]], plain: list[float]
) -> list[dict[str, Any]]:
    """A row for each kind of pipeline."""
    rows = []
    for kind in verdicts[0]:
        of_kind = [verdict[kind] for verdict in verdicts]
        rows.append(
            {
                "table": table,
                "model": name,
                "kind": kind,
                "runs": len(of_kind),
                **{
                    outcome.value: sum(one["outcome"] == outcome.value for one in of_kind)
                    for outcome in judging.CanaryOutcome
                },
                "p_values": sorted(one["p_value"] for one in of_kind),
                "present_p_values": sorted(one["present_p_value"] for one in of_kind),
                "min_power": min(one["power"] for one in of_kind),
                "accuracy": float(np.mean([one["accuracy"] for one in of_kind])),
                "accuracy_without": float(np.mean(plain)),
            }
        )
    return rows


def without(problem: Problem, name: str, seed: int) -> float:
    """The accuracy on the test table of a model of the table without canaries."""
    encode = Encoder(problem.train, problem.label)
    features, labels = encode(problem.test)
    return float(np.mean(new_model(name, seed).fit(*encode(problem.train)).predict(features) == labels))


def _run(task: tuple[Callable[[int], Problem], str, int, tuple[str, ...]]) -> dict[str, dict[str, Any]]:
    problem, name, seed, kinds = task
    return run(problem(seed), name, seed, kinds)


def _without(task: tuple[Callable[[int], Problem], str, int]) -> float:
    problem, name, seed = task
    return without(problem(seed), name, seed)


def measure(*, quick: bool, processes: int) -> dict[str, Any]:
    rows = []
    plans: list[tuple[str, Callable[[int], Problem], tuple[str, ...], int]] = [
        ("invented", invented, KINDS, CAUGHT_RUNS),
        ("invented", invented, ("honest",), HONEST_RUNS),
        ("Adult", adult, KINDS, CAUGHT_RUNS),
    ]
    for table, problem, kinds, runs in plans[:1] if quick else plans:
        seeds = range(2) if quick else range(runs)
        for name in MODELS:
            began = time.perf_counter()
            with concurrent.futures.ProcessPoolExecutor(processes) as pool:
                verdicts = list(pool.map(_run, [(problem, name, seed, kinds) for seed in seeds]))
                plain = list(pool.map(_without, [(problem, name, seed) for seed in seeds]))
            rows += summary(table, name, verdicts, plain)
            print(table, name, f"{time.perf_counter() - began:.0f} s", flush=True)
    return {"machine": page.machine(), "planted": PLANTED, "adult_rows": ADULT_ROWS, "rows": rows}


def printed(results: dict[str, Any]) -> str:
    """The table of the page."""
    heads = (
        "table",
        "model",
        "pipeline",
        "runs",
        "alarm",
        "no power",
        "clean",
        "p-value: median",
        "smallest",
        "largest",
    )
    heads += ("smallest power", "accuracy", "without canaries")
    lines = []
    for row in results["rows"]:
        p_values = row["p_values"]
        shown = [f"{value:.2g}" for value in (float(np.median(p_values)), p_values[0], p_values[-1])]
        counts = [row[name] for name in ("runs", "alarm", "no_power", "clean")]
        accuracies = [f"{100 * row[name]:.1f} %" for name in ("accuracy", "accuracy_without")]
        power = f"{min(row['min_power'], 0.999):.3f}"
        lines.append([row["table"], row["model"], row["kind"], *counts, *shown, power, *accuracies])
    return page.table(heads, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two runs of each on the small table")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="runs at a time")
    asked = parser.parse_args()
    quick: bool = asked.quick
    results = measure(quick=quick, processes=asked.processes)
    page.write("canary_people", results, page.SCRATCH if quick else page.RESULTS)
    print(printed(results))


if __name__ == "__main__":
    main()
