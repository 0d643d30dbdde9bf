"""Measure all rivals on all problems, audit them on the small one, and write table, JSON and figures."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from rich.progress import track
from threadpoolctl import threadpool_limits

from benchmarks import page
from benchmarks.rivals import chains, figures, margins, tables
from benchmarks.rivals.auditing import BOUNDS_PER_RIVAL, FAMILY_ERROR, audit
from benchmarks.rivals.everyone import rivals_of
from benchmarks.rivals.measuring import measure
from benchmarks.rivals.problems import Problem, digits, planted, problems

VERSIONS = {"numpy": np.__version__, "torch": torch.__version__, "scikit-learn": sklearn.__version__}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="digits only, three requests, fewer runs")
    parser.add_argument("--seed", type=int, default=0, help="of splits and requests; noise has none")
    parser.add_argument("--data", type=Path, help="a folder with mnist.npz")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        results = run(arguments.data, seed=arguments.seed, quick=arguments.quick)
    print(tables.all_of(results))
    quoted = arguments.data is not None and not arguments.quick
    page.write("rivals", results, page.RESULTS if quoted else page.SCRATCH)
    figures.draw(results, page.EVIDENCE if quoted else page.SCRATCH)


def run(data: Path | None, *, seed: int, quick: bool) -> dict[str, Any]:
    """Everything, as it is written; numbers that are infinite are the text "inf"."""
    limit = 1.0 if quick else 3.0
    choosing, counting = (100, 200) if quick else (300, 1200)
    models = 12 if quick else 100
    measured = [measured_problem(problem, limit) for problem in problems(data, seed=seed, quick=quick)]
    small, row = planted(seed)
    found: dict[str, Any] = {
        "settings": {"epsilon": 1.0, "delta": "1/n", "seed": seed, "limit_seconds": limit, "threads": 1},
        "machine": page.machine() | VERSIONS,
        "problems": measured,
        "audit": audited_problem(small, row, choosing, counting),
        "margins": compared_problem(margins.grouped(digits(seed, (3, 8), 1)), models),
    }
    return found


def measured_problem(problem: Problem, limit: float) -> dict[str, Any]:
    rivals = rivals_of(problem)
    found = [measure(rival, problem, limit_seconds=limit) for rival in track(rivals, problem.name)]
    setting = problem.setting
    papers, ours = chains.papers_mechanism(setting), chains.ours_at(setting)
    return {
        "name": problem.name,
        "rows": len(problem.train),
        "columns": setting.num_features,
        "classes": setting.num_classes,
        "test_rows": len(problem.test),
        "l2": problem.l2,
        "delta": setting.delta,
        "requests": setting.requests,
        "repeats": problem.repeats,
        "papers": {
            "noise_scale": papers.noise_scale,
            "learn_steps": papers.learn_steps,
            "steps": chains.papers_steps(setting, papers.noise_scale),
            "steps_against_null": chains.papers_steps(setting, papers.noise_scale, sensitivity=0.5),
            "steps_at_our_noise": chains.papers_steps(setting, ours.noise_scale),
        },
        "ours": {"noise_scale": ours.noise_scale, "learn_steps": ours.learn_steps},
        "noise_std": {rival.name: rival.noise_std for rival in rivals if hasattr(rival, "noise_std")},
        "claims": {rival.name: asdict(rival.claim) for rival in rivals},
        "rivals": [asdict(each) for each in found],
    }


def audited_problem(problem: Problem, row: int, choosing: int, counting: int) -> dict[str, Any]:
    rivals = rivals_of(problem, own_regularisation=False)
    error = FAMILY_ERROR / (BOUNDS_PER_RIVAL * len(rivals))
    found = [audit(rival, problem, row, choosing=choosing, counting=counting, error=error) for rival in rivals]
    return {
        "name": problem.name,
        "rows": len(problem.train),
        "columns": problem.setting.num_features,
        "l2": problem.l2,
        "delta": problem.setting.delta,
        "choosing": choosing,
        "counting": counting,
        "family_error": FAMILY_ERROR,
        "error_of_each_bound": error,
        "rivals": [finite(asdict(each)) for each in found],
    }


def compared_problem(problem: Problem, models: int) -> dict[str, Any]:
    found = margins.compare(problem, margins.rivals_of(problem), models=models)
    return {
        "name": problem.name,
        "rows": len(problem.train),
        "group": len(problem.forgotten),
        "l2": problem.l2,
        "models": models,
        "family_error": margins.FAMILY_ERROR,
        "rivals": [finite(asdict(each)) for each in found],
    }


def finite(found: Any) -> Any:
    """As JSON has it."""
    if isinstance(found, dict):
        return {name: finite(value) for name, value in found.items()}
    return "inf" if found == float("inf") else found


if __name__ == "__main__":
    main()
