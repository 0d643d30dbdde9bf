"""Steps, seconds and epsilon against rows, records at once and requests: `./dev bench scaling`.

Measured: seconds of a step of the production chain on generated rows in memory (100 columns, two classes, float32), and
what a run of the worker takes besides its steps, through the service in this process. Planned: steps, by the service's
planner with its default mechanism. From both: the requests a day that one worker sustains, by rows, target and batch.

Sizes whose rows were not in memory are on paper: their step takes as long for each row as the largest one's measured.

Prints the tables of docs/evidence/scaling.md, writes benchmarks/results/scaling.json and the figures of the page;
`--quick` measures small sizes only and writes to build/evidence.
"""

import argparse
import io
import math
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from fastapi.testclient import TestClient
from rich.console import Console
from rich.progress import track

from app import installation
from app.config import Settings
from app.main import create_app
from app.privacy import accountant, calibration, conversion
from app.privacy.accountant import Chain, Exposure, Run
from app.unlearning import planner
from benchmarks import page
from benchmarks.engine import steps as seconds_per_step
from worker import runner

COLUMNS = 100
SIZES = tuple(10**power for power in range(3, 10))
"""All that are planned for."""
IN_MEMORY = tuple(size for size in SIZES if size <= 10**7)
IN_SERVICE = tuple(size for size in SIZES if size <= 10**6)
QUICK = (10**3, 10**4)
BLOCK = 2**16
"""Rows generated at once."""
TARGETS = (0.1, 0.5, 1.0, 2.0)
NOISE_FOR = 1.0
"""The epsilon that the default noise is chosen for, also where the target is another."""
RECORDS = (1, 10, 100, 1000)
BATCHES = (1, 10, 100, 500)
SETTLED = 10
"""Requests, or batches of them, after which steps have settled, and over which they are then averaged."""
MEASUREMENTS, PEOPLE = 7, 5
DAY = 86_400
Row = dict[str, Any]
_FORM = {"name": "people", "classes": '["0", "1"]'}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--seed", type=int, default=0, help="of the generated rows; never of noise")
    asked = parser.parse_args()
    sizes, in_service = (QUICK, QUICK) if asked.quick else (IN_MEMORY, IN_SERVICE)
    results: Row = {"machine": page.machine(), "seed": asked.seed, "columns": COLUMNS}
    results["steps_by_records"] = steps_by_records()
    results["epsilon"] = epsilon_by_rows()
    results["requests"] = steps_by_requests()
    results["runs"] = [run_seconds(size, asked.seed) for size in track(in_service, "runs of the service")]
    results["seconds"] = [step_seconds(size, asked.seed) for size in track(sizes, "steps of the chain")]
    results["capacity"] = list(capacity(results["seconds"], results["runs"]))
    page.write("scaling", results, page.SCRATCH if asked.quick else page.RESULTS)
    draw(results, page.SCRATCH if asked.quick else page.EVIDENCE)
    for name, table in tables(results).items():
        Console(width=200, soft_wrap=True).print(f"\n{name}\n\n{table}", markup=False, highlight=False)


# --- planned ---------------------------------------------------------------------------------------------------------


def learned(num_rows: int, *, noise_for: float = NOISE_FOR) -> Chain:
    """The service's default model, which has learned."""
    made = calibration.mechanism_for(
        num_slots=num_rows, num_classes=2, num_parameters=COLUMNS, epsilon=noise_for, delta=delta(num_rows)
    )
    return accountant.replay(made, [Run(steps=made.learn_steps)])


def delta(num_rows: int) -> float:
    """The service's default."""
    return num_rows**-1.1


def steps_by_records() -> list[Row]:
    """Steps of one run, by rows and records at once; learning from scratch; the noise that is published."""
    rows = []
    for size in SIZES:
        chain = learned(size)
        at = {"epsilon": NOISE_FOR, "delta": delta(size)}
        counts = {str(most): planner.forget(chain, records=most, **at).steps for most in RECORDS if most < size}
        rows.append(
            {
                "rows": size,
                "l2": chain.mechanism.l2,
                "learn_steps": chain.mechanism.learn_steps,
                "noise_std": math.sqrt(chain.variance),
                "steps": counts,
            }
        )
    return rows


def epsilon_by_rows() -> list[Row]:
    """Epsilon of one record after 0, 1, 100 and 1,000 steps without it, if every size has the noise of 100,000 rows."""
    fixed, rows = learned(10**5).mechanism.noise_scale, []
    for size in SIZES[1:]:
        made = calibration.mechanism_for(
            num_slots=size, num_classes=2, epsilon=NOISE_FOR, delta=delta(size), noise_scale=fixed
        )
        chain = accountant.replay(made, [Run(steps=made.learn_steps)])
        epsilon = {
            str(steps): calibration.least_epsilon(chain, records=1, steps=steps, delta=delta(size))
            for steps in (0, 1, 100, 1000)
        }
        rows.append({"rows": size, "noise_scale": fixed, "epsilon": epsilon})
    return rows


def steps_by_requests() -> list[Row]:
    """Steps of request after request, and the epsilon of a person who stays, of all versions together."""
    rows = []
    for size in SIZES:
        chain, at, counts = learned(size), {"epsilon": NOISE_FOR, "delta": delta(size)}, []
        for _ in range(100 if size > 1000 else 20):
            plan = planner.forget(chain, records=1, **at)
            chain = planner.after(chain, plan, records=1)
            counts.append(plan.steps)
        first = learned(size).mechanism
        exposure = Exposure(mechanism=first, records=1, releases=accountant.tally([first.learn_steps, *counts]))
        adaptive = conversion.gdp_epsilon(mu=accountant.adaptive_mu([exposure]), delta=delta(size))
        rows.append({"rows": size, "requests": len(counts), "steps": counts, "adaptive_epsilon": adaptive})
    return rows


def settled(num_rows: int, batch: int, epsilon: float) -> Row | None:
    """Steps for each run, and the share of runs that learn again, once batch after batch has come."""
    if 2 * SETTLED * batch > num_rows // 2:
        return None
    at: Row = {"batch": batch, "epsilon": epsilon, "delta": delta(num_rows)}
    warm = planner.in_batches(learned(num_rows), records=SETTLED * batch, **at)
    then = planner.in_batches(warm.chain, records=SETTLED * batch, **at)
    return {"steps": then.steps / then.runs, "relearned": then.relearned / then.runs}


# --- measured --------------------------------------------------------------------------------------------------------


def generated(num_rows: int, seed: int) -> tuple[Any, Any]:
    """Rows of norm just below 1, cut in two by a plane."""
    generator = np.random.default_rng(seed)
    truth = generator.standard_normal(COLUMNS, np.float32)
    features, labels = np.empty((num_rows, COLUMNS), np.float32), np.empty(num_rows, np.int32)
    for start in range(0, num_rows, BLOCK):
        block = generator.random((min(BLOCK, num_rows - start), COLUMNS), np.float32) - np.float32(0.5)
        block /= np.linalg.norm(block, axis=1, keepdims=True) * np.float32(1 + 1e-5)
        features[start : start + BLOCK], labels[start : start + BLOCK] = block, block @ truth > 0
    return features, labels


def step_seconds(num_rows: int, seed: int) -> Row:
    """Of several runs of the chain: the median and the fastest."""
    features, labels = generated(num_rows, seed)
    count = max(5, min(400, 10**8 // features.size))
    taken = [seconds_per_step(features, labels, 2, count) for _ in range(MEASUREMENTS)]
    return {"rows": num_rows, "bytes": features.nbytes, "median": statistics.median(taken), "fastest": min(taken)}


def run_seconds(num_rows: int, seed: int) -> Row:
    """What a run takes that forgets one person in a few steps: claim, check, erase, steps, seal, certify, publish."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder))
        installation.set_up(settings)
        key = settings.resolved_admin_key_file().read_text().strip()
        with installation.opened(settings) as at, TestClient(create_app(settings)) as client:
            client.headers["Authorization"] = f"Bearer {key}"
            learn_one(client, num_rows, seed)
            drain(at)
            taken = []
            for person in range(PEOPLE):
                asked = client.post("/v1/deletion-requests", json={"subject_id": f"p{person}"})
                asked.raise_for_status()
                taken.append(drain(at))
                done = client.get(f"/v1/deletion-requests/{asked.json()['id']}").json()
                assert done["status"] == "completed", done["status"]
            steps = [run["steps_total"] for run in client.get("/v1/runs").json()["items"] if run["kind"] == "unlearn"]
    return {"rows": num_rows, "seconds": statistics.median(taken), "fastest": min(taken), "steps": max(steps)}


def learn_one(client: TestClient, num_rows: int, seed: int) -> None:
    """A model that is held together so strongly that it forgets in a few steps."""
    features, labels = generated(num_rows, seed)
    buffer = io.BytesIO()
    np.savez(buffer, x=features, y=labels, subject=np.char.add("p", np.arange(num_rows).astype(str)))
    buffer.seek(0)
    dataset = client.post("/v1/datasets", data=_FORM, files={"file": ("people.npz", buffer)}).json()
    asked = {"name": "model", "dataset_id": dataset["id"], "l2": 0.1, "audit": {"lanes": 0}}
    client.post("/v1/models", json=asked).raise_for_status()


def drain(at: installation.Installation) -> float:
    started = time.perf_counter()
    while runner.run_next(at, worker="benchmark"):
        pass
    return time.perf_counter() - started


# --- what one worker sustains ----------------------------------------------------------------------------------------


def capacity(seconds: list[Row], runs: list[Row]) -> Iterator[Row]:
    """Requests a day: a day over the seconds of a run that has settled, times the requests that share it. The fastest
    measured count, those of a machine that has nothing else to do."""
    a_step = {row["rows"]: row["fastest"] for row in seconds}
    largest = max(a_step)
    fixed, by_row = overhead(runs)
    for size in SIZES:
        step = a_step.get(size, a_step[largest] * size / largest)
        for epsilon in TARGETS:
            for batch in BATCHES:
                if (run := settled(size, batch, epsilon)) is not None:
                    took = fixed + by_row * size + run["steps"] * step
                    yield {
                        "rows": size,
                        "measured": size in a_step,
                        "epsilon": epsilon,
                        "batch": batch,
                        **run,
                        "run_seconds": took,
                        "requests_per_day": DAY * batch / took,
                    }


def overhead(runs: list[Row]) -> tuple[float, float]:
    """Seconds of a run besides its steps, at no rows and for each row: the smallest run measured, and the largest."""
    smallest, largest = runs[0], runs[-1]
    by_row = (largest["fastest"] - smallest["fastest"]) / (largest["rows"] - smallest["rows"])
    return smallest["fastest"], max(by_row, 0.0)


# --- what comes out --------------------------------------------------------------------------------------------------


def tables(results: Row) -> dict[str, str]:
    """Those of docs/evidence/scaling.md, word for word."""
    return {
        "steps by records": page.table(
            ("rows", "l2", "learning", *(f"{most:,} at once" for most in RECORDS), "published noise"),
            [
                (
                    *(row["rows"], f"{row['l2']:g}", row["learn_steps"]),
                    *(row["steps"].get(str(most)) for most in RECORDS),
                    f"{row['noise_std']:.2g}",
                )
                for row in results["steps_by_records"]
            ],
        ),
        "epsilon": page.table(
            ("rows", "no step", "1 step", "100 steps", "1,000 steps"),
            [(row["rows"], *(f"{epsilon:.3g}" for epsilon in row["epsilon"].values())) for row in results["epsilon"]],
        ),
        "requests": page.table(
            ("rows", "first request", "second", "tenth", "last", "of", "steps in all", "ε of who stays"),
            [
                (
                    *(row["rows"], *(row["steps"][number] for number in (0, 1, 9, -1)), row["requests"]),
                    *(sum(row["steps"]), f"{row['adaptive_epsilon']:.1f}"),
                )
                for row in results["requests"]
            ],
        ),
        "seconds": page.table(
            ("rows", "MB", "ms a step, fastest", "median", "GB/s", "ms a run besides its steps"),
            [seconds_of(row, results["runs"]) for row in results["seconds"]],
        ),
        "requests a day by batch": page.table(
            ("rows", *(f"batches of {batch}" for batch in BATCHES)), by_size(results, "batch", BATCHES, "epsilon", 1.0)
        ),
        "requests a day by target": page.table(
            ("rows", *(f"ε = {target:g}" for target in TARGETS)), by_size(results, "epsilon", TARGETS, "batch", 1)
        ),
    }


def seconds_of(row: Row, runs: list[Row]) -> tuple[Any, ...]:
    besides = {run["rows"]: f"{1e3 * run['fastest']:,.0f}" for run in runs}
    times = (f"{1e3 * row['fastest']:.2f}", f"{1e3 * row['median']:.2f}", f"{row['bytes'] / row['fastest'] / 1e9:.0f}")
    return (row["rows"], f"{row['bytes'] / 1e6:,g}", *times, besides.get(row["rows"]))


def by_size(results: Row, across: str, values: tuple[Any, ...], fixed: str, at: float) -> Iterator[tuple[Any, ...]]:
    """Requests a day: a line for each size."""
    found = {(row["rows"], row[across]): row for row in results["capacity"] if row[fixed] == at}
    for size in SIZES:
        mine = [found.get((size, value)) for value in values]
        paper = "" if all(row["measured"] for row in mine if row) else ", on paper"
        yield (f"{size:,}{paper}", *(row and round_down(row["requests_per_day"]) for row in mine))


def round_down(value: float) -> int:
    """To three digits."""
    unit = 10 ** max(0, math.floor(math.log10(value)) - 2)
    return int(value // unit * unit)


def draw(results: Row, folder: Path) -> None:
    page.save(draw_capacity(results["capacity"]), "scaling-requests", folder)
    page.save(draw_steps(results), "scaling-steps", folder)


def draw_capacity(rows: list[Row]) -> Any:
    """One curve for each target, solid one by one and dashed in batches of a hundred; hollow: on paper."""
    drawn = page.figure(6.0, 3.8)
    axes = drawn.subplots()
    for target, colour in zip(TARGETS, page.COLOURS, strict=False):
        for batch, dashes in ((1, "-"), (100, "--")):
            mine = [row for row in rows if row["epsilon"] == target and row["batch"] == batch]
            label = f"ε = {target:g}" if batch == 1 else None
            days = [row["requests_per_day"] for row in mine]
            axes.loglog([row["rows"] for row in mine], days, dashes, color=colour, label=label)
            for row in mine:
                fill = colour if row["measured"] else "white"
                axes.plot(row["rows"], row["requests_per_day"], "o", color=colour, markerfacecolor=fill, markersize=4)
    axes.plot([], [], "-", color="grey", label="one by one")
    axes.plot([], [], "--", color="grey", label="in batches of 100")
    axes.plot([], [], "o", color="grey", label="seconds measured")
    axes.plot([], [], "o", color="grey", markerfacecolor="white", label="on paper")
    axes.set(xlabel="rows", ylabel="requests a day, one worker")
    axes.legend(frameon=False, ncols=2)
    return drawn


def draw_steps(results: Row) -> Any:
    drawn = page.figure(7.5, 3.2)
    steps, seconds = drawn.subplots(1, 2)
    for colour, most in zip(page.COLOURS, RECORDS, strict=False):
        mine = [row for row in results["steps_by_records"] if str(most) in row["steps"]]
        steps.loglog([row["rows"] for row in mine], [row["steps"][str(most)] for row in mine], "o-", markersize=3)
        steps.lines[-1].set(color=colour, label=f"{most:,} at once")
    everybody = results["steps_by_records"]
    steps.loglog([row["rows"] for row in everybody], [row["learn_steps"] for row in everybody], "k-.", label="learning")
    steps.set(xlabel="rows", ylabel="steps, ε = 1")
    steps.legend(frameon=False, fontsize=6.5)
    sizes = [row["rows"] for row in results["seconds"]]
    seconds.loglog(sizes, [row["fastest"] for row in results["seconds"]], "o-", label="a step, fastest")
    seconds.loglog(sizes, [row["median"] for row in results["seconds"]], "s:", label="a step, median")
    runs = results["runs"]
    seconds.loglog(
        [row["rows"] for row in runs], [row["fastest"] for row in runs], "^--", label="a run besides its steps"
    )
    seconds.set(xlabel="rows of 100 columns", ylabel="seconds")
    seconds.legend(frameon=False, fontsize=6.5)
    return drawn


if __name__ == "__main__":
    main()
