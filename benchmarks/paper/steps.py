"""The paper's tables and step counts, recomputed by the product's calculator, beside the product's own.

Three columns throughout. `paper`: the paper's theorems at the constants it states. `ours_replace`: this product's
accountant at the paper's step size, 1/L, for a record replaced by another, which is the paper's adjacency (and moves
a step twice as far as a record that becomes null). `ours`: what the service does, a record becomes null, step size
2/(L + l2).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from benchmarks import schedules
from benchmarks.paper import noise
from benchmarks.paper.printed import (
    BATCHES,
    CIFAR_TEN,
    EPSILONS,
    FIGURE_3B,
    FIGURE_3B_D2D,
    FIGURE_3C_EPSILON_0,
    FIGURE_4,
    FIGURE_4_STORED,
    FIGURE_5,
    GRID,
    MNIST,
    PROBLEMS,
    REMOVED,
    SIGMA,
    SIGMAS,
    TABLE_2,
    TABLE_3,
    TABLE_3_STORED,
    Problem,
)
from lethe.features.insight import margins
from lethe.features.theorems import evaluate
from lethe.proof import accountant, calibration
from lethe.proof.accountant import Chain, Run
from lethe.proof.losses import Objective, smoothness
from lethe.proof.mechanism import Mechanism

RADIUS = 1000.0
"""The paper does not project; a ball this large is never left. No guarantee depends on it."""
START_LEFT = 3e-11
"""Of the distance to the minimiser that learning begins at."""
MAX_STEPS = 10**6
WAYS = {"ours_replace": 2, "ours": 1}
"""How many times a record that becomes null the edit of one record is."""

Row = dict[str, Any]


def mechanism(problem: Problem, way: str, sigma: float) -> Mechanism:
    """The product's mechanism for the problem, run until the start is forgotten; each step reads all rows, as there."""
    rule = smoothness(Objective.LOGISTIC_REGRESSION, problem.num_classes, problem.l2)
    made = calibration.mechanism_for(
        calibration.ModelSettings(
            batch_size=problem.num_rows,
            epsilon=1.0,
            delta=problem.delta,
            l2=problem.l2,
            step_size=1 / rule if way == "ours_replace" else None,
            noise_scale=sigma,
            radius=RADIUS,
        ),
        num_slots=problem.num_rows,
        num_classes=problem.num_classes,
    )
    return replace(made, learn_steps=math.ceil(math.log(START_LEFT) / math.log(made.contraction)))


def learned(problem: Problem, way: str, sigma: float) -> Chain:
    made = mechanism(problem, way, sigma)
    return accountant.replay(made, [Run(steps=made.learn_steps)])


def least(problem: Problem, way: str, sigma: float, removed: int, epsilon: float) -> int:
    """Steps of this product for so many records at once."""
    chain = learned(problem, way, sigma)
    target = {"epsilon": epsilon, "delta": problem.delta, "at_most": MAX_STEPS}
    return calibration.least_steps(chain, records=WAYS[way] * removed, **target)


def paper_steps(problem: Problem, sigma: float, removed: int, epsilon: float, *, measured: bool = False) -> int:
    """Algorithm 5, with its count corrected."""
    asked = problem.asked(measured=measured, eps_target=epsilon, sigma=sigma, S=removed)
    steps: int = evaluate("alg5_K", asked)["K"]
    return steps


def on_grid(steps: int) -> int:
    """Where the search of the authors' code stops: the first of 1, 11, 21, ... that is enough."""
    return 1 + GRID * math.ceil((steps - 1) / GRID)


# --- Table 2 ---------------------------------------------------------------------------------------------------------


def table_2() -> list[Row]:
    """Noise that is published by Descent-to-Delete (which keeps a secret state), and by ours after as many steps."""
    rows = []
    for problem in PROBLEMS:
        for steps in (1, 2, 5):
            for epsilon in EPSILONS:
                row = {
                    "problem": problem.name,
                    "steps": steps,
                    "epsilon": epsilon,
                    "printed": TABLE_2.get((steps, epsilon)) if problem is MNIST else None,
                    "recomputed": d2d_noise(problem, steps, epsilon, measured=True),
                    "stated_smoothness": d2d_noise(problem, steps, epsilon),
                }
                rows.append(row | {way: published_noise(problem, way, steps, epsilon) for way in WAYS})
    return rows


def d2d_noise(problem: Problem, steps: int, epsilon: float, *, measured: bool = False) -> float:
    """Of Descent-to-Delete with a secret state, after so many steps."""
    sigma: float = evaluate("n1_sigma", problem.asked(measured=measured, I=steps, eps=epsilon))["sigma"]
    return sigma


def published_noise(problem: Problem, way: str, steps: int, epsilon: float) -> float:
    """Standard deviation, per coordinate in the flattest direction, of what is published after one record left."""
    sigma = least_noise(problem, way, steps, epsilon)
    return math.sqrt(learned(problem, way, sigma).variance)


# --- Table 3, and the noise of Figure 3a -----------------------------------------------------------------------------


def table_3() -> list[Row]:
    """The least noise for one record in one step."""
    rows = []
    for problem in PROBLEMS:
        for printed, epsilon in zip(TABLE_3[problem.name], EPSILONS, strict=True):
            row = {
                "problem": problem.name,
                "epsilon": epsilon,
                "printed": printed,
                "stored": TABLE_3_STORED.get((problem.name, epsilon), printed),
                "recomputed": paper_noise(problem, 1, epsilon),
                "steps_at_printed": paper_steps(problem, printed, 1, epsilon),
            }
            rows.append(row | {way: least_noise(problem, way, 1, epsilon) for way in WAYS})
    return rows


def paper_noise(problem: Problem, steps: int, epsilon: float) -> float:
    """Algorithm 4, with its return value corrected."""
    sigma: float = evaluate("alg4_sigma", problem.asked(eps_target=epsilon, K=steps, S=1))["sigma"]
    return sigma


def least_noise(problem: Problem, way: str, steps: int, epsilon: float) -> float:
    """The least noise of this product for one record in so many steps."""
    made = mechanism(problem, way, 1.0)
    return noise.least_noise(made, records=WAYS[way], steps=steps, epsilon=epsilon, delta=problem.delta)


# --- Figure 3b -------------------------------------------------------------------------------------------------------


def figure_3b() -> list[Row]:
    """A hundred removals, in batches one after the other, sigma = 0.03, epsilon = 1: steps of each request."""
    rows: list[Row] = []
    for problem in PROBLEMS:
        stored = FIGURE_3B[problem.name] or (None,) * len(BATCHES)
        for batch, total in zip(BATCHES, stored, strict=True):
            row: Row = {"problem": problem.name, "batch": batch, "stored_total": total}
            row["paper"] = sequence(problem, batch)
            row["paper_measured_total"] = sum(sequence(problem, batch, measured=True))
            row |= {way: ours_in_sequence(problem, way, batch) for way in WAYS}
            rows.append(row | {f"{name}_total": sum(row[name]) for name in ("paper", *WAYS)})
        rows.append({"problem": problem.name, "batch": 1, "stored_total": FIGURE_3B_D2D[problem.name]} | d2d(problem))
    return rows


def sequence(problem: Problem, batch: int, *, measured: bool = False) -> list[int]:
    """Algorithms 6 to 8 (Corollary 3.4), with their count corrected."""
    asked = problem.asked(measured=measured, eps_target=1.0, sigma=SIGMA, total=REMOVED, batch=batch)
    steps: list[int] = evaluate("alg6_K_list", asked)["K"]
    return steps


def ours_in_sequence(problem: Problem, way: str, batch: int) -> list[int]:
    batches = [WAYS[way] * batch] * (REMOVED // batch)
    target = {"epsilon": 1.0, "delta": problem.delta, "at_most": MAX_STEPS}
    return schedules.schedule(learned(problem, way, SIGMA), batches=batches, **target)


def d2d(problem: Problem) -> Row:
    """Descent-to-Delete without a secret state, one record at a time. The authors' code has d = 512 for ten classes."""

    def each(width: int, *, measured: bool) -> list[int]:
        asked = problem.asked(measured=measured, d=width, eps=1.0)
        return [evaluate("n2_d2d", asked | {"i": request})["iters"] for request in range(1, REMOVED + 1)]

    width = problem.num_features
    stated = each(width * (problem.num_classes if problem is CIFAR_TEN else 1), measured=False)
    return {"d2d": stated, "d2d_total": sum(stated), "d2d_measured_total": sum(each(width, measured=True))}


# --- Figures 3c, 4 and 5 ---------------------------------------------------------------------------------------------


def counted(problem: Problem, sigma: float, removed: int, epsilon: float) -> Row:
    """Steps for so many records at once: the paper's, what its code takes of them, ours, and the epsilon before."""
    measured = paper_steps(problem, sigma, removed, epsilon, measured=True)
    stated = paper_steps(problem, sigma, removed, epsilon)
    slope = evaluate("t33_sc", _of_learning(problem, sigma, removed))["eps"] / 2
    row = {
        "sigma": sigma,
        "removed": removed,
        "epsilon": epsilon,
        "paper": stated,
        "paper_on_grid": on_grid(stated),
        "paper_measured_on_grid": on_grid(measured),
        "paper_epsilon_0": evaluate("rdp_linear_mironov", {"tau": slope, "delta": problem.delta})["eps"],
    }
    for way, times in WAYS.items():
        before = {"records": times * removed, "steps": 0, "delta": problem.delta}
        row[way] = least(problem, way, sigma, removed, epsilon)
        row[f"{way}_epsilon_0"] = margins.least_epsilon(learned(problem, way, sigma), **before)
    return row


def _of_learning(problem: Problem, sigma: float, removed: int) -> Row:
    return {
        "alpha": 2.0,
        "S": removed,
        "Mlip": problem.gradient_bound,
        "m": problem.l2,
        "sigma": sigma,
        "n": problem.num_rows,
    }


def figure_3c() -> list[Row]:
    """A hundred records at once to epsilon = 1, by noise."""
    rows = [counted(MNIST, sigma, REMOVED, 1.0) for sigma in SIGMAS]
    return [
        row
        | {"printed_epsilon_0": FIGURE_3C_EPSILON_0.get(row["sigma"]), "regulariser": regulariser(MNIST, row["sigma"])}
        for row in rows
    ]


def regulariser(problem: Problem, sigma: float) -> float:
    """How long l2 w typically is, of noise alone: their code clips what it makes of it and a row's gradient to 1."""
    return problem.l2 * math.sqrt(learned(problem, "ours_replace", sigma).variance * problem.num_features)


def figure_4() -> list[Row]:
    """Steps by target, for 1, 50 and 100 records at once."""
    rows = list(_counted_all(FIGURE_4["removed"], FIGURE_4["epsilons"]))
    return [row | {"stored": FIGURE_4_STORED.get((row["removed"], row["epsilon"]))} for row in rows]


def figure_5() -> list[Row]:
    """Steps by records at once, for three targets."""
    return list(_counted_all(FIGURE_5["removed"], FIGURE_5["epsilons"]))


def _counted_all(removed: Sequence[float], epsilons: Sequence[float]) -> Iterator[Row]:
    for records in removed:
        for epsilon in epsilons:
            yield counted(MNIST, SIGMA, int(records), epsilon)


# --- what the tables do not say --------------------------------------------------------------------------------------


def tightenings() -> list[Row]:
    """From the paper's bound to ours, one change at a time: steps for a hundred records, sigma = 0.03, epsilon = 1."""
    tau = evaluate("tau_star", {"eps": 1.0, "delta": MNIST.delta})["tau"]
    slope = evaluate("t33_sc", _of_learning(MNIST, SIGMA, REMOVED))["eps"] / 2
    rate = -2 * math.log1p(-MNIST.l2 / MNIST.smoothness)
    start = accountant.unlearning_mu(learned(MNIST, "ours_replace", SIGMA), records=2 * REMOVED)
    steps = {
        "as published": paper_steps(MNIST, SIGMA, REMOVED, 1.0),
        "the order shifted instead of a term dropped": math.ceil(math.log(slope / tau) / rate),
        "one chain instead of two theorems": math.ceil(math.log(start**2 / 2 / tau) / rate),
        "the exact conversion of a Gaussian": least(MNIST, "ours_replace", SIGMA, REMOVED, 1.0),
        "a null record instead of another one": _null_at_their_step(),
        "step size 2/(L + l2): the service": least(MNIST, "ours", SIGMA, REMOVED, 1.0),
    }
    return [{"change": change, "steps": count} for change, count in steps.items()]


def _null_at_their_step() -> int:
    target = {"epsilon": 1.0, "delta": MNIST.delta, "at_most": MAX_STEPS}
    return calibration.least_steps(learned(MNIST, "ours_replace", SIGMA), records=REMOVED, **target)
