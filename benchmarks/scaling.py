"""Passes, seconds and memory of forgetting against rows: `./dev bench scaling`.

Planned, by the service's planner with its default mechanism: steps, and passes over the rows. Measured: what a request
takes from its POST until it is certified and published, through the service in this process, against a refit of the
same rows by scikit-learn, both in processor time and in the same run. 100 columns, two classes, on generated rows.

    ./dev bench scaling --rows 1000 1000000      # other sizes, to build/evidence

Prints the tables of docs/evidence/scaling.md, writes benchmarks/results/scaling.json and the figure of the page;
`--quick` measures small sizes only and writes to build/evidence. Ten million rows need some 20 GB of memory and disk.
"""

import argparse
import functools
import shutil
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from fastapi.testclient import TestClient
from rich.console import Console
from rich.progress import track
from sklearn.linear_model import LogisticRegression

from app import installations
from app.access.service import DEFAULT_TENANT
from app.catalogue import datasets
from app.config import Settings
from app.db import Actor
from app.main import create_app
from app.rows.uploads import RowUpload, Suppressed
from app.unlearning import planner
from app.vault import store
from benchmarks import page
from lethe.proof import accountant, calibration, conversion, methods
from lethe.proof.accountant import Chain, Run
from worker import isolated, runner

COLUMNS = 100
SIZES = tuple(10**power for power in range(3, 10))
"""All that are planned for."""
IN_SERVICE = tuple(size for size in SIZES if size <= 10**7)
QUICK = (10**3, 10**4)
BLOCK = 2**16
"""Rows generated at once."""
EPSILON = 1.0
RECORDS = (1, 10, 100, 1000)
REQUESTS = 100
PEOPLE = 8
"""Who are forgotten one by one where it is measured; one more while memory is watched."""
DAY = 86_400
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--rows", type=int, nargs="+", help="sizes to measure instead")
    parser.add_argument("--seed", type=int, default=0, help="of the generated rows; never of noise")
    asked = parser.parse_args()
    isolated.prepare(device="cpu")
    sizes = asked.rows or (QUICK if asked.quick else IN_SERVICE)
    quoted = not (asked.rows or asked.quick)
    results: Row = {"machine": page.machine(), "seed": asked.seed, "columns": COLUMNS}
    results["plans"] = plans()
    results["requests"] = requests()
    results["measured"] = [measured(size, asked.seed) for size in track(sizes, "requests to the service")]
    page.write("scaling", results, page.RESULTS if quoted else page.SCRATCH)
    page.save(draw(results), "scaling", page.EVIDENCE if quoted else page.SCRATCH)
    for name, table in tables(results).items():
        Console(width=200, soft_wrap=True).print(f"\n{name}\n\n{table}", markup=False, highlight=False)


# --- planned ---------------------------------------------------------------------------------------------------------


def learned(num_rows: int) -> Chain:
    """The service's default model, which has learned."""
    made = calibration.mechanism_for(
        calibration.ModelSettings(epsilon=EPSILON, delta=delta(num_rows)),
        num_slots=num_rows,
        num_classes=2,
        num_parameters=COLUMNS,
    )
    return accountant.replay(made, [Run(steps=made.learn_steps)])


def delta(num_rows: int) -> float:
    """The service's default."""
    return float(num_rows**-1.1)


def plans() -> list[Row]:
    """Steps of learning, and of one run for so many records at once."""
    rows = []
    for size in SIZES:
        chain = learned(size)
        made, at = chain.mechanism, {"epsilon": EPSILON, "delta": delta(size)}
        steps = {str(most): planner.forget(chain, records=most, **at).steps for most in RECORDS if most < size}
        settings = {"batch_size": made.batch_size, "num_batches": made.num_batches, "cool_down": made.cool_down}
        rows.append({"rows": size, "l2": made.l2, "learn_steps": made.learn_steps, "steps": steps} | settings)
    return rows


def requests() -> list[Row]:
    """Steps of request after request, and the epsilon of a person who stays, of all versions together."""
    rows = []
    for size in SIZES:
        chain, at, counts = learned(size), {"epsilon": EPSILON, "delta": delta(size)}, []
        made = chain.mechanism
        for _ in range(REQUESTS if size > REQUESTS * 10 else 20):
            plan = planner.forget(chain, records=1, **at)
            chain = planner.after(chain, plan, records=1)
            counts.append(plan.steps)
        exposure = accountant.exposed(made, Counter([made.learn_steps, *counts]), records=1)
        adaptive = conversion.gdp_epsilon(mu=methods.adaptive_mu([exposure]), delta=delta(size))
        passes = [steps / made.num_batches for steps in counts]
        rows.append({"rows": size, "requests": len(counts), "passes": passes, "adaptive_epsilon": adaptive})
    return rows


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


def measured(num_rows: int, seed: int) -> Row:
    """One model that learns, and people who ask it one after the other; and the refit of the same rows."""
    features, labels = generated(num_rows, seed)
    found: Row = {"rows": num_rows} | refit(features, labels)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder) / "data", rows_memory_bytes=2**31)
        installations.set_up(settings)
        key = settings.resolved_admin_key_file().read_text().strip()
        with installations.opened(settings) as installation, TestClient(create_app(settings)) as client:
            client.headers["Authorization"] = f"Bearer {key}"
            dataset_id = registered(installation, features, labels)
            del features, labels
            made = client.post("/v1/models", json={"name": "model", "dataset_id": dataset_id})
            made.raise_for_status()
            found["learn_seconds"], _ = taken(lambda: drain(installation))
            asked = [taken(functools.partial(forgotten, installation, client, person)) for person in range(PEOPLE)]
            with watched() as memory:
                forgotten(installation, client, PEOPLE)
                found["memory_bytes"] = memory()
            runs = client.get("/v1/runs").json()["items"]
    steps = [run["steps_total"] for run in reversed(runs) if run["kind"] == "unlearn"][:PEOPLE]
    batches = learned(num_rows).mechanism.num_batches
    seconds, processor = zip(*asked, strict=True)
    return found | {
        "steps": steps,
        "passes": [count / batches for count in steps],
        "seconds": list(seconds),
        "processor_seconds": list(processor),
    }


def refit(features: Any, labels: Any) -> Row:
    """What scikit-learn takes for the same rows, at the same l2."""
    l2 = learned(len(labels)).mechanism.l2
    model = LogisticRegression(C=1 / (l2 * len(labels)), fit_intercept=False, max_iter=1000)
    began = time.process_time()  # of this process, to the nanosecond: of few rows it takes less than a clock tick
    model.fit(features, labels)
    passes = int(model.n_iter_.max())
    return {"refit_processor_seconds": time.process_time() - began, "refit_passes": passes}


def registered(at: installations.Installation, features: Any, labels: Any) -> str:
    """A dataset of these rows, as the gateway makes one of a file."""
    actor = Actor(tenant_id=DEFAULT_TENANT, name="benchmark")
    with store.create(at.settings.data_dir) as file:
        with tempfile.TemporaryFile(dir=at.settings.data_dir) as plain:
            np.savez(plain, x=features, y=labels, subject=np.char.add("p", np.arange(len(labels)).astype(str)))
            plain.seek(0)
            shutil.copyfileobj(plain, file, 2**20)
        file.seek(0)
        upload = RowUpload(
            file=file,
            folder=at.settings.data_dir,
            kind="npz",
            schema=None,
            classes=("0", "1"),
            max_bytes=2**40,
            subject_refs=functools.partial(at.keys.subject_refs, DEFAULT_TENANT),
        )
        encoded = datasets.encode(at.rows, upload, suppressed=Suppressed(among=lambda references: set(), skip=False))
    with at.database.writing(by=actor) as session:
        return datasets.register(session, name="people", encoded=encoded).id


def forgotten(at: installations.Installation, client: TestClient, person: int) -> None:
    """From the request until it is completed."""
    asked = client.post("/v1/deletion-requests", json={"subject_id": f"p{person}"})
    asked.raise_for_status()
    drain(at)
    done = client.get(f"/v1/deletion-requests/{asked.json()['id']}").json()
    assert done["status"] == "completed", done["status"]


def drain(at: installations.Installation) -> None:
    while runner.run_next(at, worker="benchmark"):
        pass


def taken(do: Callable[[], None]) -> tuple[float, float]:
    """Seconds, and seconds of processors, of all processes."""
    busy, began = processor_time(), time.perf_counter()
    do()
    return time.perf_counter() - began, processor_time() - busy


def processor_time() -> float:
    """Of this process, and of all that it has started, those too that have ended."""
    times = [process.cpu_times() for process in family()]
    return sum(one.user + one.system + one.children_user + one.children_system for one in times)


def family() -> list[psutil.Process]:
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


@contextmanager
def watched() -> Iterator[Callable[[], int]]:
    """Every few milliseconds, what memory all processes have that is no file's: their own, and what rows are opened
    into. Gives the most found beyond what each had at first: one that gives memory back meanwhile hides
    nothing of what others take."""
    before, most, done = held(), 0, threading.Event()

    def look() -> None:
        nonlocal most
        while not done.wait(0.005):
            most = max(most, sum(max(0, size - before.get(process, 0)) for process, size in held().items()))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield lambda: most
    finally:
        done.set()
        thread.join()


def held() -> dict[int, int]:
    """Bytes, by the process."""
    found: dict[int, int] = {}
    for process in family():
        with suppress(psutil.Error, OSError):
            for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
                name, _, size = line.partition(":")
                if name in ("Pss_Anon", "Pss_Shmem"):  # what is shared once, whoever maps it
                    found[process.pid] = found.get(process.pid, 0) + 1024 * int(size.split()[0])
    return found


# --- what comes out --------------------------------------------------------------------------------------------------


def tables(results: Row) -> dict[str, str]:
    """Those of docs/evidence/scaling.md, word for word."""
    return {
        "plans": page.table(
            ("rows", "batch", "cool-down", "learning", *(f"{most:,} at once" for most in RECORDS)),
            (
                (
                    *(
                        row["rows"],
                        row["batch_size"],
                        row["cool_down"],
                        passes(row["learn_steps"] / row["num_batches"]),
                    ),
                    *(passes(row["steps"].get(str(most)), row["num_batches"]) for most in RECORDS),
                )
                for row in results["plans"]
            ),
        ),
        "requests": page.table(
            ("rows", "first", "second", "tenth", "last", "of", "passes in all", "ε of who stays"),
            (
                (
                    *(row["rows"], *(passes(row["passes"][number]) for number in (0, 1, 9, -1)), row["requests"]),
                    *(passes(sum(row["passes"])), f"{row['adaptive_epsilon']:.2f}"),
                )
                for row in results["requests"]
            ),
        ),
        "measured": page.table(
            (
                *("rows", "steps", "passes", "s, median", "s, longest", "processor s", "refit, passes"),
                *("refit, processor s", "ratio", "MB", "requests a day"),
            ),
            (of_measured(row) for row in results["measured"]),
        ),
    }


def passes(count: float | None, batches: int = 1) -> str | None:
    return None if count is None else f"{count / batches:,.3g}"


def of_measured(row: Row) -> tuple[Any, ...]:
    """A line; the ratio is of processor seconds, the refit's to those of the median request."""
    busy = statistics.median(row["processor_seconds"])
    median = statistics.median(row["seconds"])
    return (
        row["rows"],
        f"{min(row['steps'])} to {max(row['steps'])}",
        f"{min(row['passes']):.2g} to {max(row['passes']):.2g}",
        f"{median:.2f}",
        f"{max(row['seconds']):.2f}",
        f"{busy:.2f}",
        row["refit_passes"],
        f"{row['refit_processor_seconds']:.2f}",
        f"{row['refit_processor_seconds'] / busy:.2g}",
        f"{row['memory_bytes'] / 1e6:,.0f}",
        int(DAY / median),
    )


def draw(results: Row) -> Any:
    """Left: passes, planned. Right: processor seconds, measured, and those of the refit."""
    drawn = page.figure(7.5, 3.2)
    left, right = drawn.subplots(1, 2)
    plans, rows = results["plans"], [row["rows"] for row in results["plans"]]
    left.loglog(rows, [row["learn_steps"] / row["num_batches"] for row in plans], "k-.", label="learning")
    for most in (1, 100):
        mine = [row for row in plans if str(most) in row["steps"]]
        shares = [row["steps"][str(most)] / row["num_batches"] for row in mine]
        left.loglog([row["rows"] for row in mine], shares, "o-", markersize=3, label=f"{most} at once, first")
    settled = [row["passes"][-1] for row in results["requests"]]
    left.loglog([row["rows"] for row in results["requests"]], settled, "s--", markersize=3, label="one, later")
    left.axhline(1, color="grey", linewidth=0.5)
    left.set(xlabel="rows", ylabel="passes over the rows, ε = 1")
    left.legend(frameon=False, fontsize=6.5)
    found, rows = results["measured"], [row["rows"] for row in results["measured"]]
    right.loglog(rows, [row["refit_processor_seconds"] for row in found], "^-", label="refit, scikit-learn")
    busy = [statistics.median(row["processor_seconds"]) for row in found]
    right.loglog(rows, busy, "o-", label="a request, POST to certified")
    right.set(xlabel="rows of 100 columns", ylabel="processor seconds")
    right.legend(frameon=False, fontsize=6.5)
    return drawn


if __name__ == "__main__":
    main()
