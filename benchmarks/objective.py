"""How accurate objective perturbation is, at a stated `adaptive` epsilon, beside the chain at its defaults.

    ./dev bench objective                # all tables but MNIST; --quick the small ones, to build/evidence
    ./dev bench objective --rule         # the table by which the default Lambda was chosen, on training rows alone

Tables, splits and features are those of `benchmarks/accuracy.py`. Lambda and noise are those of `calibration.choose`:
functions of the numbers of rows, columns and classes and of the target.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import accuracy, page
from benchmarks.accuracy import LARGE, Problem
from lethe.encoding.rows import unit_rows
from lethe.features.objective import accountant, calibration
from lethe.features.objective.accountant import Releases
from lethe.proof import conversion, methods
from lethe.proof.accountant import Exposure
from lethe.proof.mechanism import Adjacency
from worker.features.objective.solver import minimise
from worker.langevin.evaluate import of_classes
from worker.langevin.noise import SystemNoise

TARGETS = (1.45, 2.2)
VERSIONS = (1, 4, 9, 30)
SMALL_ADULT = 3000
STRENGTHS = (0.125, 0.25, 0.5, 1.0, 2.0)
"""Lambda over noise_scale of the rule's table."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the smallest tables only")
    parser.add_argument("--rule", action="store_true", help="compare values of Lambda on parts of the training rows")
    asked = parser.parse_args()
    if asked.rule:
        for name, problem in tables(quick=asked.quick):
            print(name, "  ".join(f"{share:g}: {100 * right:.1f}" for share, right in ruled(problem)), flush=True)
        return
    rows = []
    for name, problem in tables(quick=asked.quick):
        rows.append(measured(name, problem))
        print(rows[-1], flush=True)
    results = {"machine": page.machine(), "tables": rows}
    page.write("objective", results, page.SCRATCH if asked.quick else page.RESULTS)
    print(printed(results)["accuracy"])


def tables(*, quick: bool) -> Iterator[tuple[str, Callable[[int], Problem]]]:
    """The tables of the page on accuracy, and three thousand rows of Adult."""
    for name, problem in accuracy.tables(None, quick=quick):
        yield name, problem
        if name == "Adult":
            yield "Adult, 3,000 rows", lambda seed, problem=problem: part(problem(seed), SMALL_ADULT, seed)


def part(problem: Problem, count: int, seed: int) -> Problem:
    """The same test set, and `count` rows to learn, drawn at random."""
    kept = np.random.default_rng(seed).permutation(len(problem.train))[:count]
    return Problem(
        train=problem.train[kept],
        train_labels=problem.train_labels[kept],
        test=problem.test,
        test_labels=problem.test_labels,
        num_classes=problem.num_classes,
    )


def measured(name: str, problem: Callable[[int], Problem]) -> dict[str, Any]:
    """Accuracy at each target, each with its `release` and the `adaptive` of more versions."""
    first = problem(0)
    repeats = 2 if len(first.train) > LARGE else 5
    result: dict[str, Any] = {"name": name, "rows": len(first.train), "classes": first.num_classes, "targets": []}
    for epsilon in TARGETS:
        found = [learned(problem(seed), epsilon, seed) for seed in range(repeats)]
        mechanism, delta = found[0][0], len(first.train) ** -1.1
        rights = [right for _, right, _ in found]
        result["targets"].append(
            {
                "epsilon": epsilon,
                "accuracy": [float(np.mean(rights)), float(np.std(rights))],
                "noise_scale": mechanism.noise_scale,
                "regularisation": mechanism.regularisation,
                "release": accountant.epsilon(mechanism, delta=delta, adjacency=Adjacency.REPLACE),
                "adaptive": [
                    accountant.adaptive_epsilon([Releases(mechanism=mechanism, versions=count)], delta=delta)
                    for count in VERSIONS
                ],
                "seconds": float(np.mean([seconds for *_, seconds in found])),
            }
        )
    chain = accuracy.made(num_slots=len(first.train), num_classes=first.num_classes, epsilon=1.0)
    released = Exposure(mechanism=chain, records=1, releases=((chain.learn_steps, 1),))
    result["chain_adaptive"] = conversion.gdp_epsilon(
        mu=methods.adaptive_mu([released]), delta=len(first.train) ** -1.1
    )
    result["chain"] = float(np.mean([accuracy.learned(problem(seed), 1.0)[0] for seed in range(repeats)]))
    return result


def learned(problem: Problem, epsilon: float, seed: int, strength: float | None = None) -> tuple[Any, float, float]:
    """The mechanism, the accuracy of one version on the test set, and the seconds that it took."""
    rows, test = unit_rows(problem.train), unit_rows(problem.test)
    settings: dict[str, Any] = {
        "num_slots": len(rows),
        "num_columns": rows.shape[1],
        "num_classes": problem.num_classes,
        "epsilon": epsilon,
        "delta": len(rows) ** -1.1,
    }
    mechanism = calibration.choose(**settings)
    if strength is not None:
        mechanism = calibration.choose(**settings, regularisation=strength * mechanism.noise_scale)
    began = time.perf_counter()
    version = minimise(
        mechanism=mechanism,
        features=np.ascontiguousarray(rows),
        labels=problem.train_labels,
        noise=SystemNoise(),
        on_progress=lambda iterations: None,
    )
    seconds = time.perf_counter() - began
    right = of_classes(version.parameters, [(test, problem.test_labels)], problem.num_classes)["accuracy"]
    return mechanism, float(right), seconds


def ruled(problem: Callable[[int], Problem]) -> Iterator[tuple[float, float]]:
    """The accuracy at each strength on a quarter of the training rows, of models of the others."""
    for strength in STRENGTHS:
        rights = []
        for seed in range(4):
            whole = problem(seed)
            order: NDArray[np.int64] = np.random.default_rng(seed).permutation(len(whole.train))
            held, kept = np.array_split(order, [len(order) // 4])
            inner = Problem(
                train=whole.train[kept],
                train_labels=whole.train_labels[kept],
                test=whole.train[held],
                test_labels=whole.train_labels[held],
                num_classes=whole.num_classes,
            )
            rights.append(learned(inner, TARGETS[1], seed, strength)[1])
        yield strength, float(np.mean(rights))


def printed(results: dict[str, Any]) -> dict[str, str]:
    """Tables of the page."""
    heads = ["", "rows", "classes"]
    for epsilon in TARGETS:
        heads += [f"adaptive {epsilon:g}", "its release", "adaptive after 4 / 9 / 30"]
    rows = []
    for row in results["tables"]:
        cells = [row["name"], row["rows"], row["classes"]]
        for target in row["targets"]:
            mean, spread = target["accuracy"]
            cells += [
                f"{100 * mean:.1f} ± {100 * spread:.1f}",
                f"{target['release']:.2f}",
                " / ".join(f"{after:.1f}" for after in target["adaptive"][1:]),
            ]
        rows.append([*cells, f"{100 * row['chain']:.1f} ({row['chain_adaptive']:.2f})"])
    return {"accuracy": page.table([*heads, "the chain (its adaptive)"], rows)}


if __name__ == "__main__":
    main()
