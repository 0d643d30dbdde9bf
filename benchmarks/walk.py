"""From an HTTP request to a certified, published version, on the embedded default: `./dev bench walk`.

Rivals in the same run: relearning by the same chain (through the same service), and scikit-learn's LogisticRegression
refitted without the person (no noise, no certificate). Prints seconds and ratios, writes benchmarks/results/walk.json.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from app.config import Settings
from examples.adult.demo import HERE as ADULT, learn, refit, seconds, service
from lethe import Client
from lethe.reading import to_json

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20, help="people forgotten, one after the other")
    requests = parser.parse_args().requests
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), port=0)
        with service(settings, leave_running=False) as address:
            key = settings.resolved_admin_key_file().read_text().strip()
            with Client(address, key) as client:
                measured = measure(client, requests)
    refits = [refit(measured["l2"]) for _ in range(5)]
    report(measured | {"refit_seconds": [one.seconds for one in refits], "refit_passes": refits[0].passes})


def measure(client: Client, requests: int) -> dict[str, Any]:
    people = client.datasets.upload(ADULT / "train.csv", name="adult", schema=ADULT / "schema.json")
    model = learn(client, client.models.create(name="income", dataset_id=people.id).id)
    walks = [walk(client, f"train-{index:05d}") for index in track(range(1, requests + 1), "forgetting")]
    client.models.relearn(model.id)
    time.sleep(0.5)  # the run that relearns is claimed
    learn(client, model.id)
    runs = list(client.runs.list(model_id=model.id))
    return {
        "l2": model.mechanism.l2,
        "num_slots": model.mechanism.num_slots,
        "num_batches": model.mechanism.num_batches,
        "target": to_json(model.target),
        "walk_seconds": walks,
        "unlearn": [{"steps": run.steps_total, "seconds": seconds(run)} for run in runs if run.kind == "unlearn"],
        "relearn": [{"steps": run.steps_total, "seconds": seconds(run)} for run in runs if run.kind != "unlearn"],
    }


def walk(client: Client, person: str) -> float:
    """Seconds from the POST to a completed request, as a client sees them."""
    started = time.perf_counter()
    request = client.deletion_requests.create(subject_id=person)
    while client.deletion_requests.get(request.id).status != "completed":
        time.sleep(0.025)  # looking more often would take the cores from the worker
    return time.perf_counter() - started


def report(measured: dict[str, Any]) -> None:
    """The first person, whose model has just learned; and the median of all, each of whom pays for those before too."""
    [first, *_], relearn = sorted(measured["unlearn"], key=lambda run: run["steps"]), measured["relearn"]
    every = {name: statistics.median(run[name] for run in measured["unlearn"]) for name in ("steps", "seconds")}
    again = {name: statistics.median(run[name] for run in relearn) for name in ("steps", "seconds")}
    refitted = statistics.median(measured["refit_seconds"])
    table = Table(f"Adult, n = {measured['num_slots']:,}", "first person", f"median of {len(measured['unlearn'])}")
    walks = measured["walk_seconds"]
    table.add_row("request to published, s", f"{walks[0]:.3f}", f"{statistics.median(walks):.3f}")
    table.add_row("unlearning run, steps", f"{first['steps']}", f"{every['steps']:.0f}")
    table.add_row("unlearning run, s", f"{first['seconds']:.3f}", f"{every['seconds']:.3f}")
    ratios = {}
    for rival, seconds_taken in (("relearning, same chain", again["seconds"]), ("scikit-learn refit", refitted)):
        ratios[rival] = [seconds_taken / run["seconds"] for run in (first, every)]
        table.add_row(f"{rival}: {seconds_taken:.3f} s; ratio", *(f"{ratio:.1f}" for ratio in ratios[rival]))
    read = {"relearning": again["steps"] / measured["num_batches"], "scikit-learn refit": measured["refit_passes"]}
    table.add_row(
        "unlearning run, passes", *(f"{run['steps'] / measured['num_batches']:.2f}" for run in (first, every))
    )
    for rival, passes in read.items():
        name = f"{rival}, passes"
        ratios[name] = [passes * measured["num_batches"] / run["steps"] for run in (first, every)]
        table.add_row(f"{rival}: {passes:.0f} passes; ratio", *(f"{ratio:.1f}" for ratio in ratios[name]))
    Console().print(table)
    Console().print("scikit-learn solves the problem without noise: nothing is certified about its result.")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "walk.json").write_text(json.dumps(measured | {"ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
