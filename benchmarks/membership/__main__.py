"""Who can tell that a row was in a model, and what the model still knows of it: `./dev bench membership`.

Models are learned hundreds of times with a request's rows and hundreds of times without, by the production chain with
its own noise, and then: left alone, fine-tuned without noise on what is left, or unlearned as the service does it, in
the steps that its planner takes for epsilon = 1. Each problem has three requests: one row drawn at random, the row that
is most conspicuous, and that row with the nineteen nearest of its label.

- U-LiRA (Hayes, Shumailov, Triantafillou, Khalifa, Papernot 2024): a likelihood-ratio test of real rows, fixed on
  shadow models, counted on others; bounds from below against the certificate (`likelihood.py`).
- epsilon-hat, the score of the NeurIPS 2023 unlearning competition, on half as many models of each kind as the group
  of the first problem has, and where the truth is known (`competition.py`). With 512 and 512 models of one law it
  should be 0, and is not.
- Accuracy and loss on forgotten, retained and test rows, before, after, and learned again (`remembered.py`).

The seed draws data and requests; the noise of the chain has no seed, so numbers vary a little from run to run. Adult is
in examples/; MNIST takes part if `--data DIR` has its mnist.npz. Prints the tables of docs/evidence/membership.md,
writes benchmarks/results/membership.json and docs/evidence/membership*.svg, without MNIST or with `--quick` to
build/evidence instead.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress

from benchmarks import page
from benchmarks.membership import experiment, figures, laws, problems, requests, tables
from benchmarks.membership.problems import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Models of each kind, for the group and for each single row; first of the digits, then of the other problems."""

    digits: tuple[int, int]
    others: tuple[int, int]
    repeats: int
    l2: float | None = None

    def counts(self, problem: Problem) -> dict[str, int]:
        group, single = self.digits if problem.name.startswith("digits") else self.others
        return {name: group if name == "group" else single for name in requests.NAMES}


FULL = Size(digits=(1024, 512), others=(256, 96), repeats=200)
QUICK = Size(digits=(128, 32), others=(32, 32), repeats=10, l2=0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer models, strongly regularised")
    parser.add_argument("--seed", type=int, default=0, help="of data and requests, never of noise")
    parser.add_argument("--data", type=Path, help="a folder with mnist.npz")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    size = QUICK if arguments.quick else FULL
    results = run(chosen(size, arguments.seed, arguments.data), size, seed=arguments.seed)
    for table in tables.ALL:
        print(table(results), end="\n\n")
    quoted = arguments.data is not None and not arguments.quick
    page.write("membership", results, page.RESULTS if quoted else page.SCRATCH)
    figures.draw(results, page.EVIDENCE if quoted else page.SCRATCH)


def chosen(size: Size, seed: int, data: Path | None) -> list[Problem]:
    found = [problems.digits(seed=seed, l2=size.l2), problems.adult(seed=seed, num_rows=500, l2=size.l2)]
    if data is not None:
        found.append(problems.mnist(data, seed=seed, num_rows=500, l2=size.l2))
    return found


def run(chosen: Sequence[Problem], size: Size, *, seed: int) -> dict[str, Any]:
    """Everything about these problems; the competition is held on the first."""
    bounds = len(chosen) * len(requests.NAMES) * len(laws.Method)
    started = time.perf_counter()
    answered: list[dict[str, Any]] = []
    competition: dict[str, Any] = {}
    with Progress() as progress:
        for problem in chosen:
            asked, counts = requests.drawn(problem, seed=seed), size.counts(problem)
            steps = laws.num_steps(problem, list(asked.values()), counts)
            done = partial(progress.advance, progress.add_task(problem.name, total=steps))
            found = laws.models(problem, list(asked.values()), counts, done=done)
            error = experiment.FAMILY_ERROR / bounds
            answers = {
                name: experiment.of_request(problem, asked[name], found[name], error=error) for name in requests.NAMES
            }
            answered.append(described(problem) | {"requests": answers})
            competition = competition or experiment.compete(problem, asked["group"], found["group"], seed=seed)
        done = partial(progress.advance, progress.add_task("epsilon-hat", total=len(experiment.SEPARATIONS)))
        calibration = experiment.calibrate(
            num_models=competition["retrained"]["models"],
            repeats=size.repeats,
            seed=seed,
            done=done,
        )
    return {
        "seed": seed,
        "size": asdict(size),
        "target_epsilon": problems.EPSILON,
        "family_error": experiment.FAMILY_ERROR,
        "bounds": bounds,
        "seconds": time.perf_counter() - started,
        "machine": page.machine(),
        "problems": answered,
        "competition": competition,
        "calibration": calibration,
    }


def described(problem: Problem) -> dict[str, Any]:
    return {
        "name": problem.name,
        "features": problem.rows.features.shape[1],
        "test_rows": len(problem.test.labels),
        "delta": problem.delta,
        "mechanism": problem.mechanism.to_json(),
    }


if __name__ == "__main__":
    main()
