"""Accuracy where the paper's figures show it, of models that the production chain learns and unlearns.

Noise is the operating system's and never seeded: the numbers differ from run to run by their standard deviation. The
seed decides which records leave, and the noise of Descent-to-Delete, which is a rival's. Removed records become null,
also where the paper's step counts are run: the paper puts random rows in their place, newly drawn at each request.
"""

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks import data
from benchmarks.origin import origin
from benchmarks.paper import steps
from benchmarks.paper.printed import BATCHES, EPSILONS, MNIST, REMOVED, SIGMA, Problem
from lethe.proof.mechanism import Mechanism
from worker.langevin import chain, engines
from worker.langevin.evaluate import of_classes
from worker.langevin.noise import SystemNoise

FORGOTTEN = 0.03
"""One learned model is continued on the same rows until so little of it is left, for the next of the repeats."""
FEW = 2
"""Repeats of the paper's steps in Figure 4."""
Row = dict[str, Any]
Rows = tuple[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Rows of norm just below 1, two classes, and the problem that the paper would make of them."""

    problem: Problem
    train: Rows
    test: Rows
    measured: float  # the largest eigenvalue of X'X/n


def mnist(folder: Path) -> Data:
    """Threes against eights."""
    parts = (data.mnist(folder, part, (3, 8)) for part in ("train", "test"))
    train, test = ((_unit(pixels), (digit == 8).astype(np.int32)) for pixels, digit in parts)
    return _data(MNIST, train, test)


def digits(seed: int) -> Data:
    """The even against the odd of scikit-learn's 1,797 digits, four fifths to learn from, l2 that of MNIST."""
    pixels, digit = data.digits()
    order = np.random.default_rng(seed).permutation(len(digit))
    features, labels = _unit(pixels[order]), (digit[order] % 2).astype(np.int32)
    cut = 4 * len(labels) // 5
    problem = replace(
        MNIST, name="digits, even against odd", num_rows=cut, num_features=64, l2_by_row=MNIST.l2 / cut, measured=None
    )
    return _data(problem, (features[:cut], labels[:cut]), (features[cut:], labels[cut:]))


def _unit(pixels: Any) -> Any:
    """As the authors' code has it: a half is subtracted from every pixel, then each row is scaled to norm 1."""
    centred = pixels - 0.5
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    return (centred / (norms * (1 + 1e-6))).astype(np.float32)


def _data(problem: Problem, train: Rows, test: Rows) -> Data:
    features = train[0].astype(np.float64)
    largest = float(np.linalg.eigvalsh(features.T @ features / len(features))[-1])
    return Data(problem=problem, train=train, test=test, measured=largest)


# --- one experiment: learn, let some go, unlearn ---------------------------------------------------------------------


class Bench:
    """Runs of the chain over one dataset, and what they took."""

    def __init__(self, data: Data, *, seed: int, repeats: int) -> None:
        self.data, self.repeats, self.steps = data, repeats, 0
        self.noiseless = LogisticRegression(
            C=1 / (data.problem.l2 * data.problem.num_rows), fit_intercept=False, max_iter=1000
        ).fit(*data.train)
        self.random = np.random.default_rng(seed)

    def run(self, made: Mechanism, rows: Rows, count: int, initial: Any = None) -> Any:
        start = origin(num_classes=2, num_features=rows[0].shape[1]) if initial is None else initial
        ran = chain.run(
            features=rows[0],
            labels=rows[1],
            mechanism=made,
            initial=start,
            steps=count,
            noise=SystemNoise(),
            on_progress=lambda steps_done: None,
            backend=engines.Backend(threads=1),
        )
        self.steps += ran.steps
        return ran.parameters

    def learned(self, made: Mechanism, rows: Rows, repeats: int | None = None) -> Iterator[Any]:
        """Models of the law of learning, nearly independent: each continues the one before until it is forgotten."""
        model = self.run(made, rows, made.learn_steps)
        apart = math.ceil(math.log(FORGOTTEN) / math.log(made.contraction))
        for number in range(repeats or self.repeats):
            model = self.run(made, rows, apart, model) if number else model
            yield model

    def without(self, removed: int) -> Rows:
        """The rows after so many, chosen at random, became null."""
        features = self.data.train[0].copy()
        features[self.random.permutation(len(features))[:removed]] = 0
        return features, self.data.train[1]

    def share(self, model: Any) -> float:
        return float(of_classes(model, [self.data.test], 2)["accuracy"])

    def of(self, models: Iterable[Any]) -> Row:
        """Mean and standard deviation of their accuracy."""
        shares = [self.share(model) for model in models]
        return {"accuracy": statistics.fmean(shares), "std": statistics.stdev(shares) if len(shares) > 1 else 0.0}

    def forgotten(
        self, made: Mechanism, removed: int, counts: dict[str, int], repeats: int | None = None
    ) -> dict[str, Row]:
        """Learn, then unlearn `removed` records in each of several numbers of steps; before and after."""
        rows = self.without(removed)
        models = list(self.learned(made, self.data.train, repeats))
        return {"learned": self.of(models)} | {
            name: self.of(self.run(made, rows, count, model) for model in models) for name, count in counts.items()
        }


# --- the figures -----------------------------------------------------------------------------------------------------


def figure_3a(bench: Bench, epsilons: Iterable[float] = EPSILONS) -> list[Row]:
    """One record, 1, 2 and 5 steps, each bound's least noise; Descent-to-Delete at the exact minimiser."""
    problem, found = bench.data.problem, []
    for epsilon in epsilons:
        for count in (1, 2, 5):
            row: Row = {"epsilon": epsilon, "steps": count}
            for way, noise in (
                ("paper", steps.paper_noise(problem, count, epsilon)),
                ("ours", steps.least_noise(problem, "ours", count, epsilon)),
            ):
                made = steps.mechanism(problem, "ours_replace" if way == "paper" else "ours", noise)
                row[way] = bench.forgotten(made, 1, {"unlearned": count})["unlearned"] | {"sigma": noise}
            row["d2d"] = d2d(bench, count, epsilon)
            found.append(row)
    return found


def d2d(bench: Bench, count: int, epsilon: float) -> Row:
    """With the smoothness measured on the data, as published: less noise than the stated one would take."""
    problem = bench.data.problem
    noise = steps.d2d_noise(problem, count, epsilon, measured=True)
    shape = (100, *bench.noiseless.coef_.shape)
    draws = bench.noiseless.coef_ + noise * bench.random.standard_normal(shape)
    return bench.of(draws) | {"sigma": noise}


def figure_3b(bench: Bench) -> list[Row]:
    """Accuracy before and after a hundred removals, in batches, with our steps."""
    problem, found = bench.data.problem, []
    made = steps.mechanism(problem, "ours", SIGMA)
    for batch in BATCHES:
        plan = steps.ours_in_sequence(problem, "ours", batch)
        models = list(bench.learned(made, bench.data.train))
        gone = bench.random.permutation(problem.num_rows)[:REMOVED]
        row = {"batch": batch, "steps": sum(plan), "before": bench.of(models)}
        for request, count in enumerate(plan, start=1):
            features = bench.data.train[0].copy()
            features[gone[: request * batch]] = 0
            models = [bench.run(made, (features, bench.data.train[1]), count, model) for model in models]
        found.append(row | {"after": bench.of(models)})
    return found


def figure_3c(bench: Bench, sigmas: Iterable[float]) -> list[Row]:
    """A hundred records at once: learned, learned again without them, unlearned."""
    problem, found = bench.data.problem, []
    for sigma in sigmas:
        made = steps.mechanism(problem, "ours", sigma)
        counts = {"ours": steps.least(problem, "ours", sigma, REMOVED, 1.0)}
        row = {"sigma": sigma} | bench.forgotten(made, REMOVED, counts)
        found.append(row | {"relearned": bench.of(bench.learned(made, bench.without(REMOVED)))})
    return found


def figure_4(bench: Bench, removed: Iterable[int], epsilons: Iterable[float]) -> list[Row]:
    """By target: after the paper's steps at its step size (few repeats, they are long), and after ours at ours."""
    problem, found = bench.data.problem, []
    planned = {"paper": steps.paper_steps, "ours": lambda *asked: steps.least(asked[0], "ours", *asked[1:])}
    for records in removed:
        for way, plan in planned.items():
            made = steps.mechanism(problem, "ours_replace" if way == "paper" else "ours", SIGMA)
            counts = {f"{epsilon:g}": plan(problem, SIGMA, records, epsilon) for epsilon in epsilons}
            few = min(bench.repeats, FEW) if way == "paper" else bench.repeats
            after = bench.forgotten(made, records, counts, repeats=few)
            found += [
                {"removed": records, "epsilon": epsilon, "way": way, "steps": counts[f"{epsilon:g}"], "repeats": few}
                | after[f"{epsilon:g}"]
                for epsilon in epsilons
            ]
    return found


def figure_5(bench: Bench, removed: Iterable[int], epsilons: Iterable[float]) -> list[Row]:
    """By records at once: learned again without them, and unlearned to each target."""
    problem, found = bench.data.problem, []
    made = steps.mechanism(problem, "ours", SIGMA)
    for records in removed:
        counts = {f"{epsilon:g}": steps.least(problem, "ours", SIGMA, records, epsilon) for epsilon in epsilons}
        row = {"removed": records, "steps": counts, "unlearned": bench.forgotten(made, records, counts)}
        found.append(row | {"relearned": bench.of(bench.learned(made, bench.without(records)))})
    return found
