"""What forgetting costs by the book and by this accountant, and what accounting itself costs: `./dev bench accounting`.

Steps: 100 deletions in batches, MNIST 3 against 8 with the constants of Chien, Wang, Chen and Li ("Langevin
unlearning", 2024, Figure 3b): n = n0 = 11982, M = 1, l2 = 1e-6 n, L = 1/4 + l2, sigma = 0.03, target (1, 1/n). Rivals
in the same run, all from the product's own calculator:

- Corollary 3.4 with Algorithm 6, their bound for sequences. The paper prints 26530, 11756 and 6806 for batches of 5, 10
  and 20; the search over orders ends a little later here, which saves one step of 26530.
- Descent-to-Delete (Neel, Roth, Sharifi-Malvajerdi 2021) without a secret state: one record at a time whatever the
  batch, with noise of its own instead of sigma, and neighbours that differ by removal, as in `zero_out`. Published as
  12472 to 12476: it is 12476 in 784 dimensions, the pixels, and 12474 in 724; the dimension enters by its logarithm.
- Chourasia and Shah 2023, Theorem G.15: the weaker question whether this person's record could have been another in the
  same history. It does not add up over requests, which is why its steps for one record are few.

Ours count against learning from scratch, all earlier deletions included. `replace` has the step size of the paper,
1/L; `zero_out` is what the service does, with 2/(L + l2).

Times: a plan, the comparison of options, a replay of a ledger of 100,000 entries, a what-if over HTTP.
Prints tables, writes benchmarks/results/accounting.json and, where matplotlib is installed, accounting.svg.
"""

import gc
import io
import json
import math
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fastapi.testclient import TestClient
from rich.console import Console
from rich.progress import track
from rich.table import Table

from app import installations
from app.config import Settings
from app.db.tables import LedgerEntry, Version
from app.features.insight import costs
from app.main import create_app
from app.unlearning import planner
from benchmarks import schedules
from lethe.features.theorems import evaluate
from lethe.proof import accountant, guarantees
from lethe.proof.accountant import Chain, Run
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism
from lethe.verification.chains import GENESIS, canonical, link_hash
from lethe.verification.ledgers import FORMAT, chain_numbers, verify
from worker import runner

RESULTS = Path(__file__).parent / "results"
N = 11982
L2 = 1e-6 * N
SMOOTHNESS = 0.25 + L2
SIGMA = 0.03
DIMENSION = 784
DELETIONS = 100
EPSILON = 1.0
DELTA = 1 / N
BATCHES = (1, 5, 10, 20, 100)
PRINTED = {5: 26530, 10: 11756, 20: 6806}
ENTRIES = 100_000

COLUMNS = {
    "langevin": "Cor. 3.4 / Alg. 6",
    "langevin_printed": "as printed",
    "d2d": "Descent-to-Delete",
    "data_deletion": "G.15 (weaker notion)",
    "replace": "ours, replace",
    "zero_out": "ours, zero_out",
}
_FORM = {"name": "people", "classes": '["0", "1"]'}


def main() -> None:
    steps = [of_batch(batch) for batch in BATCHES]
    chain = learned(step_size=2 / (SMOOTHNESS + L2))
    replayed, verified = replay_milliseconds()
    times = [
        Time(
            "a plan for 20 records",
            milliseconds(lambda: planner.forget(chain, records=20, epsilon=EPSILON, delta=DELTA)),
            1,
        ),
        Time(
            "the options for ten requests",
            milliseconds(lambda: costs.options(chain, records=1, epsilon=EPSILON, delta=DELTA, expected_requests=9)),
            20,
        ),
        Time(f"replay {ENTRIES:,} ledger entries", replayed, 2000),
        Time("and verify their hashes and guarantees too", verified, None),
        Time("a what-if over HTTP", what_if_milliseconds(), 20),
    ]
    report(steps, times)


@dataclass(frozen=True, slots=True)
class Time:
    what: str
    milliseconds: float
    bar: float | None


# --- steps -----------------------------------------------------------------------------------------------------------


def of_batch(batch: int) -> dict[str, Any]:
    """All steps for the deletions in batches of so many, by each accountant, and the milliseconds each took."""
    computed: dict[str, Callable[[], int]] = {
        "langevin": lambda: langevin(batch),
        "d2d": descent_to_delete,
        "data_deletion": lambda: DELETIONS // batch * data_deletion(batch),
        "replace": lambda: ours(
            learned(step_size=1 / SMOOTHNESS), 2 * batch, batch
        ),  # a record replaced moves twice as far
        "zero_out": lambda: ours(learned(step_size=2 / (SMOOTHNESS + L2)), batch, batch),
    }
    row: dict[str, Any] = {"batch": batch, "langevin_printed": PRINTED.get(batch), "milliseconds": {}}
    for name, compute in computed.items():
        started = time.perf_counter()
        row[name] = compute()
        row["milliseconds"][name] = 1e3 * (time.perf_counter() - started)
    return row


def langevin(batch: int) -> int:
    asked = {"eps_target": EPSILON, "delta": DELTA, "sigma": SIGMA, "total": DELETIONS, "batch": batch}
    total: int = evaluate("alg6_K_list", asked | {"Mlip": 1, "m": L2, "L": SMOOTHNESS, "n": N})["total"]
    return total


def descent_to_delete() -> int:
    asked = {"Mlip": 1, "m": L2, "L": SMOOTHNESS, "n": N, "d": DIMENSION, "eps": EPSILON, "delta": DELTA}
    return sum(evaluate("n2_d2d", asked | {"i": i})["iters"] for i in range(1, DELETIONS + 1))


def data_deletion(batch: int) -> int:
    """Per request, at least one step, at the Renyi order that is best for (1, 1/n) with Mironov's conversion."""
    deviation = math.sqrt(2 * math.log(N))
    mu = math.sqrt(deviation**2 + 2) - deviation  # mu^2/2 + mu deviation = 1
    order = 1 + deviation / mu
    asked = {"q": order, "eps_dd": order * mu**2 / 2, "L": 1, "lam": L2, "sigma": SIGMA, "n": N}
    steps: int = evaluate("g15_K", asked | {"eta": 1 / SMOOTHNESS, "S": batch})["K"]
    return max(1, steps)


def ours(chain: Chain, records: int, batch: int) -> int:
    batches = [records] * (DELETIONS // batch)
    return sum(
        schedules.schedule(chain, batches=batches, epsilon=EPSILON, delta=DELTA, at_most=chain.mechanism.learn_steps)
    )


def learned(*, step_size: float) -> Chain:
    """A model that has converged."""
    mechanism = Mechanism(
        objective=Objective.LOGISTIC_REGRESSION,
        num_slots=N,
        num_classes=2,
        l2=L2,
        step_size=step_size,
        noise_scale=SIGMA,
        radius=1 / L2,
        learn_steps=10_000,
    )
    return accountant.replay(mechanism, [Run(steps=mechanism.learn_steps)])


# --- times -----------------------------------------------------------------------------------------------------------


def milliseconds(action: Callable[[], object], *, repeats: int = 200) -> float:
    """The median of `repeats`, after one that does not count."""
    action()
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        taken.append(time.perf_counter() - started)
    return 1e3 * statistics.median(taken)


def replay_milliseconds() -> tuple[float, float]:
    """Of a ledger of ten models with the same story, each record forgotten by a run of its own: to read the entries and
    follow the chains, and to verify everything."""
    entries: list[LedgerEntry] = []
    versions: list[Version] = []
    bodies = story(ENTRIES // 10)
    for number in range(10):
        model_id, previous = f"mdl_{number}", GENESIS
        for sequence, template in enumerate(bodies, start=1):
            body = template.replace('"mdl_x"', f'"{model_id}"')
            entry = LedgerEntry(model_id=model_id, sequence=sequence, body=body, previous_hash=previous)
            entry.hash = previous = link_hash(previous, body)
            entries.append(entry)
            versions.append(Version(model_id=model_id, number=sequence, weights_sha256=f"{sequence:064x}"))
    gc.collect()
    gc.freeze()  # a database hands entries out a thousand at a time: what lies here is not the verifier's to collect
    started = time.perf_counter()
    for start in range(0, ENTRIES, ENTRIES // 10):
        replay(entries[start : start + ENTRIES // 10])
    replayed = time.perf_counter() - started
    started = time.perf_counter()
    verified = verify(entries, versions)
    taken = time.perf_counter() - started
    gc.unfreeze()
    assert verified.entries == ENTRIES
    return 1e3 * replayed, 1e3 * taken


def replay(entries: list[LedgerEntry]) -> Chain:
    """Where a model stands after its entries."""
    bodies = (json.loads(entry.body) for entry in entries)
    runs = (Run(steps=body["steps"], records=body["records"]) for body in bodies)
    return accountant.replay(Mechanism.from_json(json.loads(entries[0].body)["mechanism"]), runs)


def story(entries: int) -> list[str]:
    """The ledger bodies of a model that learns and forgets one record after the other."""
    chain = learned(step_size=2 / (SMOOTHNESS + L2))
    run = Run(steps=chain.steps)
    bodies = []
    for sequence in track(range(1, entries + 1), "writing a ledger"):
        if sequence > 1:
            run = Run(steps=planner.forget(chain, records=1, epsilon=EPSILON, delta=DELTA).steps, records=1)
            chain = accountant.advance(chain, run)
        found = guarantees.of_chain(chain, last_run=run, delta=DELTA)
        bodies.append(
            canonical(
                {
                    "format": FORMAT,
                    "model_id": "mdl_x",
                    "sequence": sequence,
                    "kind": "unlearn" if sequence > 1 else "learn",
                    "version": sequence,
                    "run_id": f"run_{sequence:024d}",
                    "dataset_id": "ds_000000000000000000000000",
                    "revision": sequence - 1,
                    "mechanism": chain.mechanism.to_json(),
                    "first_step": chain.steps - run.steps,
                    "steps": run.steps,
                    "records": run.records,
                    "requests": [{"id": f"dr_{sequence:024d}", "records": run.records}],
                    "weights_sha256": f"{sequence:064x}",
                    "chain": chain_numbers(chain),
                    "guarantees": [guarantee.to_json() for guarantee in found],
                    "theorem": accountant.THEOREM,
                    "recorded_at": "2026-01-01T00:00:00+00:00",
                }
            )
        )
    return bodies


def what_if_milliseconds() -> float:
    """Of POST /v1/accounting/preview with its options, in this process, for a model that has forgotten once."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder))
        installations.set_up(settings)
        key = settings.resolved_admin_key_file().read_text().strip()
        with installations.opened(settings) as installation, TestClient(create_app(settings)) as client:
            client.headers["Authorization"] = f"Bearer {key}"
            upload = {"file": ("people.npz", people())}
            dataset = client.post("/v1/datasets", data=_FORM, files=upload).json()
            asked = {"name": "model", "dataset_id": dataset["id"], "l2": 0.05}
            model = client.post("/v1/models", json=asked).json()
            while runner.run_next(installation, worker="benchmark"):
                pass
            client.post("/v1/deletion-requests", json={"subject_id": "p1"}).raise_for_status()
            while runner.run_next(installation, worker="benchmark"):
                pass
            what_if = {"model_id": model["id"], "num_records": 2}
            return milliseconds(lambda: client.post("/v1/accounting/preview", json=what_if).raise_for_status())


def people(rows: int = 1000) -> bytes:
    x = np.random.default_rng(0).normal(size=(rows, 5))
    subject = np.array([f"p{row}" for row in range(rows)])
    buffer = io.BytesIO()
    np.savez(buffer, x=x, y=(x[:, 0] > 0).astype(int), subject=subject)
    return buffer.getvalue()


# --- what comes out --------------------------------------------------------------------------------------------------


def report(steps: list[dict[str, Any]], times: list[Time]) -> None:
    console = Console(width=120)
    console.print(table_of(f"steps for {DELETIONS} deletions at (1, 1/n), MNIST, sigma = {SIGMA}", steps, "{:,}"))
    plans = [row["milliseconds"] | {"batch": row["batch"]} for row in steps]
    console.print(table_of("milliseconds to compute them", plans, "{:.1f}"))
    timed = Table("time", "ms", "bar", "met")
    for found in times:
        bar, met = "", ""
        if found.bar is not None:
            bar, met = f"< {found.bar:,.0f}", "yes" if found.milliseconds < found.bar else "no"
        timed.add_row(found.what, f"{found.milliseconds:,.2f}", bar, met)
    console.print(timed)
    RESULTS.mkdir(exist_ok=True)
    machine = {"cores": os.cpu_count(), "processor": platform.machine(), "python": platform.python_version()}
    results = {"steps": steps, "times": [asdict(found) for found in times], "machine": machine}
    (RESULTS / "accounting.json").write_text(json.dumps(results, indent=2) + "\n")
    plot(steps, RESULTS / "accounting.svg")


def table_of(title: str, rows: list[dict[str, Any]], shown: str) -> Table:
    names = [name for name in COLUMNS if any(name in row for row in rows)]
    table = Table("batch", *(COLUMNS[name] for name in names), title=title)
    for row in rows:
        cells = ("" if row[name] is None else shown.format(row[name]) for name in names)
        table.add_row(str(row["batch"]), *cells)
    return table


def plot(steps: list[dict[str, Any]], path: Path) -> None:
    """Steps by batch, both on logarithmic scales, if matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for name in ("langevin", "d2d", "data_deletion", "replace", "zero_out"):
        style = "o-" if name in ("replace", "zero_out") else "s--"
        axes.loglog(BATCHES, [row[name] for row in steps], style, label=COLUMNS[name])
    axes.set_xticks(BATCHES, labels=map(str, BATCHES))
    axes.minorticks_off()
    axes.set(xlabel="deletions per batch", ylabel=f"steps for {DELETIONS} deletions")
    axes.legend(frameon=False, fontsize="small")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
