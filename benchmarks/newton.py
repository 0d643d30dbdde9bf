"""One noisy Newton step beside the chain and plain refits: what a request costs, and how near the step comes.

    ./dev bench newton --data DIR     # DIR holds mnist.npz; without it the digits and the census, to build/evidence

Problems, harness and the other rivals are those of `./dev bench rivals`, which has the Newton step among its rivals
too; here it is measured in one run with those that it is compared with. `benchmarks/rivals/newton.py` has the method.
"""

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks import page
from benchmarks.rivals import chains, refits, tables
from benchmarks.rivals.everyone import newton_steps
from benchmarks.rivals.measuring import measure
from benchmarks.rivals.newton import Kept, NoisyNewton, distance_in_advance
from benchmarks.rivals.problems import Problem, problems
from benchmarks.rivals.removal import CertifiedRemoval
from benchmarks.rivals.rival import Rival

SECONDS = 3.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of splits and requests; noise has none")
    parser.add_argument("--quick", action="store_true", help="the digits and three requests, to build/evidence")
    parser.add_argument("--data", type=Path, help="a folder with mnist.npz")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        results = run(problems(asked.data, seed=asked.seed, quick=asked.quick), seed=asked.seed)
    page.write("newton", results, page.RESULTS if asked.data and not asked.quick else page.SCRATCH)
    print(*printed(results).values(), sep="\n\n")


def run(measured: list[Problem], *, seed: int) -> dict[str, Any]:
    """All numbers of the section."""
    settings = {"epsilon": 1.0, "delta": "1/n", "seed": seed, "limit_seconds": SECONDS, "threads": 1}
    return {"settings": settings, "machine": page.machine(), "problems": [_measured(problem) for problem in measured]}


def _measured(problem: Problem) -> dict[str, Any]:
    steps = newton_steps(problem.setting)
    rows = [asdict(measure(rival, problem, limit_seconds=SECONDS)) for rival in [*_others(problem), *steps]]
    return {
        "name": problem.name,
        "rows": len(problem.train),
        "delta": problem.setting.delta,
        "rivals": rows,
        "distances": [_distances(rival, problem) for rival in steps],
    }


def _others(problem: Problem) -> list[Rival]:
    setting, shipped = problem.setting, chains.as_shipped(problem.setting)
    removal = CertifiedRemoval(setting, problem.train)
    shared = [chains.ours(setting), refits.lbfgs(setting), refits.warm(setting), removal]
    return [*shared, shipped, *refits.at_our_l2(shipped.l2)]


def _distances(rival: NoisyNewton, problem: Problem) -> dict[str, Any]:
    """How far from the minimiser the requests ended, at most, and what is known of that before looking."""
    rows, farthest, steps = problem.train.copy(), 0.0, 0
    state = rival.learn(rows)
    for slot in problem.forgotten:
        state = rival.forget(state, rows, rows.take(int(slot)))
        kept: Kept = state.kept
        farthest = max(farthest, float(np.linalg.norm(kept.gradient)) / (rival.l2 * len(rows)))
        steps = max(steps, kept.steps)
    stepped, alone = distance_in_advance(replace(problem.setting, l2=rival.l2))
    return {
        "rival": rival.name,
        "l2": rival.l2,
        "noise_std": rival.noise_std,
        "mu": rival.mu,
        "allowed": rival.distance,
        "measured": farthest,
        "most_steps": steps,
        "in_advance": stepped,
        "without_a_step": alone,
    }


def printed(results: dict[str, Any]) -> dict[str, str]:
    """The tables of the page by name: one of costs for each problem, and `distances`."""
    found = {problem["name"]: tables.costs(problem) for problem in results["problems"]}
    heads = (
        "",
        "l2",
        "noise tau",
        "allowed",
        "measured, at most",
        "bound in advance",
        "bound without a step",
    )
    lines = (
        (problem["name"], *(f"{row[name]:.2g}" for name in _COLUMNS))
        for problem in results["problems"]
        for row in problem["distances"]
    )
    return found | {"distances": page.table(heads, lines)}


_COLUMNS = ("l2", "noise_std", "allowed", "measured", "in_advance", "without_a_step")

if __name__ == "__main__":
    main()
