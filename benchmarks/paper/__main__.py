"""The experiments of "Langevin unlearning" (Chien, Wang, Chen, Li; NeurIPS 2024) again: `./dev bench paper --data DIR`.

Tables 2 and 3 and the steps of Figures 3b, 3c, 4 and 5: printed or stored by the authors, recomputed with their
theorems by the product's calculator, and by the product's own accountant. The accuracy of Figures 3a to 5: of models
that the production chain learns and unlearns, on scikit-learn's digits and, with `--data`, on the MNIST of DIR
(mnist.npz), as the paper does.

Prints the tables of docs/evidence/paper.md. With `--data` and without `--quick` it writes benchmarks/results/paper.json
and the figures of the page, otherwise both to build/evidence.
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

from rich.console import Console
from rich.progress import track

from benchmarks import page
from benchmarks.paper import accuracy, figures, steps, tables
from benchmarks.paper.accuracy import Bench, Data
from benchmarks.paper.printed import (
    EPSILONS,
    FIGURE_4,
    FIGURE_5,
    MNIST,
    NOISE_MISTAKES,
    RECORDED_ACCURACY,
    SIGMAS,
    START_MEAN,
)

REPEATS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with mnist.npz")
    parser.add_argument("--quick", action="store_true", help="fewer settings and repeats")
    parser.add_argument("--seed", type=int, default=0, help="of the split and of who is removed; never of noise")
    asked = parser.parse_args()
    machine = page.machine()
    data = {"digits": accuracy.digits(asked.seed)} | ({"MNIST": accuracy.mnist(asked.data)} if asked.data else {})
    results = {"machine": machine, "seed": asked.seed, "quick": asked.quick} | recomputed()
    results["accuracy"] = measured(data, quick=asked.quick, seed=asked.seed)
    quoted = asked.data and not asked.quick
    page.write("paper", results, page.RESULTS if quoted else page.SCRATCH)
    figures.draw(results, list(data)[-1], page.EVIDENCE if quoted else page.SCRATCH)
    for name, table in tables.all_of(results).items():
        Console(width=200, soft_wrap=True).print(f"\n{name}\n\n{table}", markup=False, highlight=False)


def recomputed() -> dict[str, Any]:
    """All that takes no data."""
    return {
        "table_2": steps.table_2(),
        "table_3": steps.table_3(),
        "figure_3b": steps.figure_3b(),
        "figure_3c": steps.figure_3c(),
        "figure_4": steps.figure_4(),
        "figure_5": steps.figure_5(),
        "tightenings": steps.tightenings(),
        "noise_mistakes": [
            {"steps": count, "epsilon": epsilon, "sigma": sigma, "needs": steps.paper_steps(MNIST, sigma, 1, epsilon)}
            for (count, epsilon), sigma in NOISE_MISTAKES.items()
        ],
        "walk_in_steps": int(START_MEAN * MNIST.num_features**0.5 * MNIST.smoothness),
        "recorded_accuracy": RECORDED_ACCURACY,
    }


def measured(data: dict[str, Data], *, quick: bool, seed: int) -> dict[str, Any]:
    """The accuracy of each figure on each dataset, and what it took."""
    repeats = 2 if quick else REPEATS
    benches = {name: Bench(rows, seed=seed, repeats=repeats) for name, rows in data.items()}
    jobs = [(name, figure) for name in data for figure in ("3a", "3b", "3c", "4", "5")]
    found: dict[str, Any] = {
        name: {
            "rows": bench.data.problem.num_rows,
            "repeats": repeats,
            "largest_eigenvalue": bench.data.measured,
            "noiseless": bench.share(bench.noiseless.coef_),
        }
        for name, bench in benches.items()
    }
    for name, figure in track(jobs, "learning and unlearning"):
        found[name][f"figure_{figure}"] = experiment(benches[name], figure, quick=quick)
        found[name]["steps"] = benches[name].steps
    return found


def experiment(bench: Bench, figure: str, *, quick: bool) -> list[dict[str, Any]]:
    most = bench.data.problem.num_rows // 10
    removed = [records for records in FIGURE_5["removed"] if records <= most]
    experiments: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "3a": lambda: accuracy.figure_3a(bench, (0.1, 1.0) if quick else EPSILONS),
        "3b": lambda: accuracy.figure_3b(bench),
        "3c": lambda: accuracy.figure_3c(bench, (0.05, 1.0) if quick else SIGMAS),
        "4": lambda: accuracy.figure_4(bench, *((1, 50), (1.0, 5.0)) if quick else (FIGURE_4["removed"], DRAWN)),
        "5": lambda: accuracy.figure_5(bench, *((10, 50), (1.0,)) if quick else (removed, FIGURE_5["epsilons"])),
    }
    return experiments[figure]()


DRAWN = FIGURE_4["epsilons"][1:]
"""The targets that Figure 4 shows."""

if __name__ == "__main__":
    main()
