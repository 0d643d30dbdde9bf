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

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.linear_model import LogisticRegression

from app.client import Client
from app.config import Settings
from app.registry import ingest
from app.registry.encoding import parse_schema
from examples.adult.demo import HERE as ADULT
from examples.adult.demo import learn, seconds, service

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
    report(measured | {"refit_seconds": refits})


def measure(client: Client, requests: int) -> dict[str, Any]:
    schema = (ADULT / "schema.json").read_text()
    people = client.upload(ADULT / "train.csv", name="adult", schema=schema)
    model = learn(client, client.post("/v1/models", {"name": "income", "dataset_id": people["id"]})["id"])
    walks = [walk(client, f"train-{index:05d}") for index in track(range(1, requests + 1), "forgetting")]
    client.post(f"/v1/models/{model['id']}/relearn")
    time.sleep(0.5)  # the run that relearns is claimed
    learn(client, model["id"])
    runs = list(client.pages("/v1/runs", model_id=model["id"]))
    return {
        "l2": model["mechanism"]["l2"],
        "num_slots": model["mechanism"]["num_slots"],
        "target": model["target"],
        "walk_seconds": walks,
        "unlearn": [{"steps": run["steps_total"], "seconds": seconds(run)} for run in runs if run["kind"] == "unlearn"],
        "relearn": [{"steps": run["steps_total"], "seconds": seconds(run)} for run in runs if run["kind"] != "unlearn"],
    }


def walk(client: Client, person: str) -> float:
    """Seconds from the POST to a completed request, as a client sees them."""
    started = time.perf_counter()
    request = client.post("/v1/deletion-requests", {"subject_id": person})
    while client.get(f"/v1/deletion-requests/{request['id']}")["status"] != "completed":
        time.sleep(0.005)
    return time.perf_counter() - started


def refit(l2: float) -> float:
    """Seconds that scikit-learn takes to fit the same objective to the rows of everybody else."""
    schema = parse_schema(json.loads((ADULT / "schema.json").read_text()))
    batches = list(ingest.read(ADULT / "train.csv", kind="csv", schema=schema))
    features = np.concatenate([batch.features for batch in batches])[1:]
    labels = np.concatenate([batch.labels for batch in batches])[1:]
    started = time.perf_counter()
    LogisticRegression(C=1 / (l2 * len(features)), fit_intercept=False, max_iter=1000).fit(features, labels)
    return time.perf_counter() - started


def report(measured: dict[str, Any]) -> None:
    median = {name: statistics.median(run["seconds"] for run in measured[name]) for name in ("unlearn", "relearn")}
    steps = {name: statistics.median(run["steps"] for run in measured[name]) for name in ("unlearn", "relearn")}
    walked, refitted = statistics.median(measured["walk_seconds"]), statistics.median(measured["refit_seconds"])
    table = Table("one person, Adult (n = 32,561)", "steps", "median s", "unlearning is cheaper by")
    table.add_row("request to published, over HTTP", "", f"{walked:.3f}", "")
    table.add_row("unlearning run", f"{steps['unlearn']:.0f}", f"{median['unlearn']:.3f}", "1")
    ratio = median["relearn"] / median["unlearn"]
    table.add_row("relearning run, same chain", f"{steps['relearn']:.0f}", f"{median['relearn']:.3f}", f"{ratio:.1f}")
    table.add_row("scikit-learn refit (no certificate)", "", f"{refitted:.3f}", f"{refitted / median['unlearn']:.1f}")
    Console().print(table)
    ratios = {
        "steps": steps["relearn"] / steps["unlearn"],
        "relearn_over_unlearn": ratio,
        "refit_over_unlearn": refitted / median["unlearn"],
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "walk.json").write_text(json.dumps(measured | {"ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
