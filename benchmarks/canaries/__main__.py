"""What the audit of a run finds, what it proves and what it costs: `./dev bench canaries`.

Found: how often planted faults are, by the law of lanes (docs/mathematics/lanes.md) for 64 to 4,096 lanes, by the code
that audits runs, and once more in the chain that runs. False alarms: at the error in use none is to be expected, so
they are counted at one in a hundred as well. Proved: the reported lower bound over what is certified, exactly. Cost:
CPU time of the chain with and without its audit, in turns, on rows of three shapes, and of whole runs of a worker.

The mechanisms are the service's at epsilon = 1, of which each step reads all rows, or one batch, as it is by default.
`--seed` is for rows; noise has no seed.

Prints the tables of docs/evidence/canaries.md, writes benchmarks/results/canaries.json and the figure of the page;
`--quick` writes to build/evidence.
"""

import argparse
import os
from dataclasses import asdict

os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}

import torch
from rich.console import Console

from benchmarks import page
from benchmarks.canaries.costing import asked_for, cost, in_service
from benchmarks.canaries.finding import alarms, found, in_the_chain, proved
from benchmarks.canaries.plans import BATCHES, SHAPES, Row, planned
from benchmarks.canaries.tables import draw, tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few audits")
    parser.add_argument("--seed", type=int, default=0, help="of the rows; never of noise")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    results = {"machine": page.machine(), "quick": asked.quick, "seed": asked.seed} | experiment(
        asked.quick, asked.seed
    )
    folder = page.SCRATCH if asked.quick else page.RESULTS
    page.write("canaries", results, folder)
    draw(results, page.SCRATCH if asked.quick else page.EVIDENCE)
    console = Console(width=200)
    for name, text in tables(results).items():
        console.print(f"\n{name}\n{text}")


def experiment(quick: bool, seed: int) -> Row:
    audits = 40 if quick else 500
    both = [planned(*SHAPES["Adult"]), planned(*SHAPES["Adult"], **BATCHES["Adult"])]
    chains: list[tuple[str, dict[str, int]]] = [*((name, {}) for name in SHAPES), ("Adult", BATCHES["Adult"])]
    return {
        "settings": [
            {"mechanism": mechanism.to_json(), "plans": {name: asdict(plan) for name, plan in plans.items()}}
            for mechanism, plans in both
        ],
        "audits": audits,
        "found": [row for one in both for row in found(*one, audits)],
        "alarms": [row for one in both for row in alarms(*one, 20 * audits)],
        "in_the_chain": list(in_the_chain(5 if quick else 50)),
        "proved": [row for one in both for row in proved(*one)],
        "chain": [
            cost(name, rounds=3 if quick else 15, seed=seed, **batches) for name, batches in chains[: 1 if quick else 4]
        ],
        "run": in_service(rounds=3 if quick else 60, seed=seed),
        "asked": [asked_for(name) for name in (list(SHAPES)[:1] if quick else list(SHAPES)[:2])],
    }


if __name__ == "__main__":
    main()
