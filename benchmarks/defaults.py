"""What batches, cool-down, noise and regularisation to use when nobody says: what each costs and buys, around them.

    ./dev bench defaults --data DIR      # DIR holds mnist.npz; without it, and with --quick, to build/evidence
    ./dev bench defaults --plans         # half a minute: batches and cool-downs against rows, planned and not run

From 200 rows to ten million, two classes and ten. Every mechanism aims at (epsilon = 1, delta = 1 / n^1.1); it is the
default, or the default with one setting changed. Each repeat is another random part of the data in another order, with
other noise. `noiseless` is the minimiser of the same objective, by scikit-learn. Up to the size of the census the rows
are of people and digits; beyond it they are generated, and of a repeat only the noise is new.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track
from sklearn.linear_model import LogisticRegression

from benchmarks import data, page
from benchmarks.origin import origin
from benchmarks.vectors import encode_vectors
from lethe.encoding.rows import Features, Labels
from lethe.proof import accountant, calibration, conversion
from lethe.proof.accountant import Run
from lethe.proof.mechanism import MAX_COOL_DOWN, Adjacency, Mechanism
from worker.langevin import chain
from worker.langevin.evaluate import of_classes
from worker.langevin.noise import SystemNoise

EPSILON = 1.0
OF_ADULT = (200, 1_000, 3_000, 10_000, 32_561)
GENERATED = ((10**6, 2), (10**6, 10), (10**7, 2))
PLANNED = (1_000, 10_000, 32_561, 100_000, 300_000, 10**6, 10**7)
COLUMNS = 20
REPEATS = 5
REQUESTS = 8
MAX_REPEATED_ROWS, MAX_FITTED_ROWS = 40_000, 100_000
"""Rows up to which each setting is run so often, and up to which scikit-learn says what no noise would give."""
MAX_ENTRIES_READ = 3 * 10**10
"""Numbers that learning reads, beyond which a setting is planned and not run."""

Row = dict[str, Any]
Rows = tuple[Features, Labels]

CHANGED: dict[str, Callable[[Mechanism], Row]] = {
    "default": lambda made: {},
    "a quarter of the batch": lambda made: {"batch_size": max(1, made.batch_size // 4)},
    "four times the batch": lambda made: {"batch_size": min(made.num_slots, 4 * made.batch_size)},
    "all rows": lambda made: {"batch_size": made.num_slots},
    "no cool-down": lambda made: {"cool_down": 1},
    "half the noise": lambda made: {"noise_scale": made.noise_scale / 2},
    "twice the noise": lambda made: {"noise_scale": 2 * made.noise_scale},
    "a third of l2": lambda made: {"l2": made.l2 / 3},
    "three times l2": lambda made: {"l2": 3 * made.l2},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with mnist.npz")
    parser.add_argument("--quick", action="store_true", help="the two smallest sizes only")
    parser.add_argument("--plans", action="store_true", help="batches and cool-downs, planned and not run")
    asked = parser.parse_args()
    if asked.plans:
        print(plans())
        return
    results: Row = {"epsilon": EPSILON, "machine": page.machine(), "problems": []}
    for problem in problems(asked.data, quick=asked.quick):
        results["problems"].append(measured(*problem))
        print(f"\n{titled(results['problems'][-1])}\n\n{table(results['problems'][-1])}", flush=True)
    page.write("defaults", results, page.RESULTS if asked.data and not asked.quick else page.SCRATCH)


def problems(folder: Path | None, *, quick: bool) -> Iterator[tuple[str, int, Rows, Rows]]:
    """A name, how many rows each repeat takes of the first, and those that tell how right it is."""
    people, others = data.adult("train"), data.adult("test")
    for size in OF_ADULT[:2] if quick else OF_ADULT:
        yield f"Adult, {size:,}", size, people, others
    if quick:
        return
    if folder is not None:
        for kept in ((3, 8), range(10)):
            train, test = (_digits(folder, part, kept) for part in ("train", "test"))
            yield f"MNIST, {len(kept)} classes", len(train[0]), train, test
    for size, classes in GENERATED:
        features, labels = generated(size + MAX_FITTED_ROWS, classes)
        test = features[size:], labels[size:]
        yield f"generated, {size:,}, {classes} classes", size, (features, labels), test


def measured(name: str, size: int, train: Rows, test: Rows) -> Row:
    """A row of results for each setting."""
    classes = int(test[1].max()) + 1
    repeats = REPEATS if size <= MAX_REPEATED_ROWS else 2 if size <= MAX_FITTED_ROWS else 1
    default, settings, tried = made(size, classes), [], list[Mechanism]()
    for changed, change in track(CHANGED.items(), description=name):
        mechanism = made(size, classes, **change(default))
        if mechanism in tried:
            continue
        tried.append(mechanism)
        found: Row = {"changed": changed, **planned(mechanism)}
        if mechanism.learn_steps * mechanism.batch_size * train[0].shape[1] <= MAX_ENTRIES_READ:
            began = time.perf_counter()
            right = [learned(mechanism, train, test, seed) for seed in range(repeats)]
            seconds = (time.perf_counter() - began) / repeats
            found |= {"accuracy": float(np.mean(right)), "deviation": float(np.std(right)), "seconds": seconds}
        settings.append(found)
    noiseless = [fitted(default, train, test, seed) for seed in range(2)] if size <= MAX_FITTED_ROWS else [math.nan]
    result: Row = {"name": name, "rows": size, "columns": train[0].shape[1], "classes": classes, "settings": settings}
    return result | {"noiseless": float(np.mean(noiseless)) if size <= MAX_FITTED_ROWS else None}


def plans() -> str:
    """The default beside twice its batch with half its cool-down, and beside a cool-down without its limit."""
    rows = []
    for size in track(PLANNED, description="planned"):
        default = made(size, 2)
        twice = made(size, 2, batch_size=min(size, 2 * default.batch_size))
        cool_downs = {
            "default": (default, default.cool_down),
            "twice the batch, one pass": (twice, min(twice.num_batches, 256)),
            "two passes, without a limit": (default, min(2 * default.num_batches, MAX_COOL_DOWN)),
        }
        for name, (mechanism, cool_down) in cool_downs.items():
            if name.endswith("limit") and cool_down == default.cool_down:
                continue
            plan = planned(made(size, 2, batch_size=mechanism.batch_size, cool_down=cool_down))
            read = min(size, plan["request_steps"][-1] * mechanism.batch_size)
            rows.append((f"{size:,}" if name == "default" else "", name, read, *_printed(plan | {"changed": ""})[1:-1]))
    heads = ("rows", "", "rows read by request 8", "batch", "cool-down", "l2", "noise of a logit", "learning")
    return page.table((*heads, "requests 1, 8", "100 at once", "adaptive", "release, then"), rows)


def made(num_slots: int, num_classes: int, **settings: Any) -> Mechanism:
    """The service's mechanism, with some settings that are not its defaults; what is not said follows from them."""
    asked = calibration.ModelSettings(epsilon=EPSILON, delta=num_slots**-1.1, **settings)
    return calibration.mechanism_for(asked, num_slots=num_slots, num_classes=num_classes)


def planned(mechanism: Mechanism) -> Row:
    """Passes of learning and of one request after another, and what it all tells, by the service's accountant."""
    delta, batches = mechanism.num_slots**-1.1, mechanism.num_batches
    first = now = accountant.replay(mechanism, [Run(steps=mechanism.learn_steps)])
    steps = []
    for _ in range(REQUESTS):
        steps.append(calibration.least_steps(now, records=1, epsilon=EPSILON, delta=delta, at_most=10**7))
        now = accountant.advance(now, Run(steps=steps[-1], records=1))
    hundred = calibration.least_steps(
        first, records=min(100, mechanism.num_slots // 2), epsilon=EPSILON, delta=delta, at_most=10**7
    )

    def told(steps: int, adjacency: Adjacency) -> float:
        mu = accountant.release_mu(mechanism, steps=steps, adjacency=adjacency)
        return conversion.gdp_epsilon(mu=mu, delta=delta)

    return {
        "batch_size": mechanism.batch_size,
        "cool_down": mechanism.cool_down,
        "l2": mechanism.l2,
        "noise_scale": mechanism.noise_scale,
        "logit_noise": math.sqrt(mechanism.step_variance / (1 - mechanism.contraction**2)),
        "learn_steps": mechanism.learn_steps,
        "learn_passes": mechanism.learn_steps / batches,
        "request_steps": steps,
        "first_passes": steps[0] / batches,
        "later_passes": steps[-1] / batches,
        "hundred_passes": hundred / batches,
        "adaptive_epsilon": told(mechanism.learn_steps, Adjacency.ZERO_OUT),
        "release_epsilon": told(mechanism.learn_steps, Adjacency.REPLACE),
        "later_release_epsilon": told(steps[-1], Adjacency.REPLACE),
    }


def learned(mechanism: Mechanism, train: Rows, test: Rows, seed: int) -> float:
    """The test accuracy of a model that has just learned."""
    features, labels = _part(train, mechanism.num_slots, seed)
    parameters = chain.run(
        features=features,
        labels=labels,
        mechanism=mechanism,
        initial=origin(num_classes=mechanism.num_classes, num_features=features.shape[1]),
        steps=mechanism.learn_steps,
        noise=SystemNoise(),
        on_progress=lambda steps_done: None,
    ).parameters
    return float(of_classes(parameters, [test], mechanism.num_classes)["accuracy"])


def fitted(mechanism: Mechanism, train: Rows, test: Rows, seed: int) -> float:
    """The test accuracy of the minimiser of the same objective."""
    same = LogisticRegression(C=1 / (mechanism.l2 * mechanism.num_slots), fit_intercept=False, max_iter=10_000)
    return float(same.fit(*_part(train, mechanism.num_slots, seed)).score(*test))


def generated(num_rows: int, num_classes: int) -> Rows:
    """Rows of norm just below 1, with labels drawn by a linear model that is right about nine times in ten."""
    generator = np.random.default_rng(0)
    truth = 10 * generator.standard_normal((COLUMNS, num_classes)).astype(np.float32)
    features, labels = np.empty((num_rows, COLUMNS), np.float32), np.empty(num_rows, np.int32)
    for start in range(0, num_rows, 2**16):
        block = generator.standard_normal((min(2**16, num_rows - start), COLUMNS), np.float32)
        block /= np.linalg.norm(block, axis=1, keepdims=True) * np.float32(1 + 1e-5)
        scores = block @ truth + generator.gumbel(size=(len(block), num_classes))
        features[start : start + 2**16], labels[start : start + 2**16] = block, scores.argmax(axis=1)
    return features, labels


def titled(problem: Row) -> str:
    right = problem["noiseless"]
    return f"{problem['name']} of {problem['columns']} columns" + (f"; noiseless {100 * right:.2f} %" if right else "")


def table(problem: Row) -> str:
    heads = ("", "batch", "cool-down", "l2", "noise of a logit", "learning", "requests 1, 8", "100 at once")
    more = ("adaptive", "release, then", "accuracy, %")
    return page.table((*heads, *more), (_printed(row) for row in problem["settings"]))


def _printed(row: Row) -> tuple[Any, ...]:
    right = f"{100 * row['accuracy']:.2f} ± {100 * row['deviation']:.2f}" if "accuracy" in row else None
    return (
        row["changed"],
        row["batch_size"],
        row["cool_down"],
        f"{row['l2']:.2g}",
        f"{row['logit_noise']:.2f}",
        f"{row['learn_passes']:.3g}",
        f"{row['first_passes']:.2g}, {row['later_passes']:.2g}",
        f"{row['hundred_passes']:.2g}",
        f"{row['adaptive_epsilon']:.2f}",
        f"{row['release_epsilon']:.2f}, {row['later_release_epsilon']:.2f}",
        right,
    )


def _part(rows: Rows, size: int, seed: int) -> Rows:
    """`size` of them in an order of their own; of what was generated, as it is, the first."""
    if size > MAX_FITTED_ROWS:
        return rows[0][:size], rows[1][:size]
    chosen = np.random.default_rng(seed).permutation(len(rows[0]))[:size]
    return np.ascontiguousarray(rows[0][chosen]), rows[1][chosen]


def _digits(folder: Path, part: str, kept: Sequence[int]) -> Rows:
    images, labels = data.mnist(folder, part, kept)
    return np.ascontiguousarray(encode_vectors(images)), np.searchsorted(np.array(kept), labels).astype(np.int32)


if __name__ == "__main__":
    main()
