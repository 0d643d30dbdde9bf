"""From an HTTP request to boosted trees that were trained again without the person, in the sandbox, on Adult.

    ./dev bench retraining            # --requests 5: people forgotten, one after the other

The service is the embedded default, and the trainer that of examples/trainers/adult_xgboost, on all rows of the
training set. Prints seconds on the clock and of the processor (of gateway, worker and sandbox together; on a busy
machine only the latter tell what a request costs), writes benchmarks/results/retraining.json.
"""

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from app.config import Settings
from benchmarks import page
from benchmarks.data import ADULT
from examples.adult.demo import service
from lethe import Client

TRAINER = ADULT.parent / "trainers" / "adult_xgboost"
POLL_SECONDS = 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=5, help="people forgotten, one after the other")
    requests = parser.parse_args().requests
    machine = page.machine()
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), port=0)
        with service(settings, leave_running=False) as address:
            key = settings.resolved_admin_key_file().read_text().strip()
            results = measure(Client(address, key), requests)
    results |= {"machine": machine, "load_after": psutil.getloadavg()[0]}
    page.write("retraining", results, page.RESULTS)
    table = Table("", "first", "median", "slowest", title=f"Adult, {results['num_rows']:,} rows, boosted trees")
    for name, values in results["seconds"].items():
        table.add_row(name, *(f"{one:.2f}" for one in (values[0], statistics.median(values), max(values))))
    Console().print(table)


def measure(client: Client, requests: int) -> dict[str, Any]:
    """Seconds of each request: on the clock, of the training alone, and of the processor."""
    rows = client.training_tables.upload(ADULT / "train.csv", name="adult", subject_column="person")
    trainer = client.trainers.create(
        name="income",
        table_id=rows.id,
        command=["python", "train.py"],
        files={"train.py": (TRAINER / "train.py").read_text()},
        lock=(TRAINER / "lock.txt").read_text(),
        artefacts=["model.json", "categories.json"],
        metrics=["accuracy"],
        # None is run a second time, which would double the seconds of one in so many.
        repeat_one_in=1000,
    )
    while client.trainers.get(trainer.id).live_training_id is None:
        time.sleep(0.1)
    clock, processor = [], []
    for index in range(1, requests + 1):
        began = time.perf_counter()
        with Processor() as used:
            request = client.deletion_requests.create(subject_id=f"train-{index:05d}")
            while client.deletion_requests.get(request.id).status != "completed":
                time.sleep(0.2)  # looking more often would take the cores from the trainer
            clock.append(time.perf_counter() - began)
        processor.append(used.seconds)
    trainings = [one for one in client.trainers.trainings(trainer.id) if one.revision > 0]
    training = [(one.ended_at - one.started_at).total_seconds() for one in reversed(trainings) if one.ended_at]
    return {
        "num_rows": rows.num_rows,
        "accuracy": trainings[0].metrics["accuracy"],
        "repeated": [one.repeated for one in reversed(trainings)],
        "seconds": {"request to completed": clock, "of it, the training": training, "processor": processor},
    }


class Processor:
    """Seconds of the processor that children of this process, and theirs, use while this context is open. They are read
    while each lives, because the sandbox ends without waiting for its own."""

    def __init__(self) -> None:
        self._used: dict[psutil.Process, float] = {}
        self._before: dict[psutil.Process, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Processor":
        self._look()
        self._before = dict(self._used)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    @property
    def seconds(self) -> float:
        return sum(self._used.values()) - sum(self._before.values())

    def _watch(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            self._look()

    def _look(self) -> None:
        for process in psutil.Process().children(recursive=True):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            self._used[process] = times.user + times.system


if __name__ == "__main__":
    main()
