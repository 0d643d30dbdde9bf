"""The pass over the rows, and a step of the chain, against the memory they read: `./dev bench engine`.

The floor is the time it takes to read the rows once: the faster of torch's sum and of a compiled sum in as many threads
as the engine has. A matrix of this size may stay in the last cache: what its bytes take from memory (the same two, over
400 MB) stands beside it.

Rivals in the same run, in bursts, one after the other in every round: the per-sample gradients of the papers' public
code (a gradient per row, its norm, clipped, averaged; n x d numbers each), per-sample gradients by torch.func as DP
libraries take them, and the two products of numpy. What claims to be the sum is checked against double precision.

`--data FILE.npz` is MNIST (x_train, y_train): rows of norm 1, 3 against 8 (11,982 of them), and as many of all ten
digits. Without it the rows are random, of the same size and as many zeros. They lie in a file that is mapped, as a
worker's do.

A step of 512 rows of 105 columns, as a run on the census takes thousands, has a floor of its own: reading its rows from
the cache, and drawing its noise.

`--large` adds a mapped file of 10,000,000 x 128 (5 GB; `--rows` for another number), over which a model learns and
unlearns a few steps, and what memory the process has taken meanwhile that is not a file's.

Prints tables, writes benchmarks/results/engine.json, and engine-large.json with `--large`.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ |= {
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
}  # torch's idle threads must leave others their cores

import numpy as np
import torch
from numba import float32, njit, uintp
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import mapped_rows
from benchmarks.stepping import L2, steps
from worker.langevin.gradient import HostRows
from worker.langevin.noise import SystemNoise

RESULTS = Path(__file__).parent / "results"
NUM_ROWS, WIDTH = 11_982, 784
SHARE_OF_ZEROS = 0.81
DRAM_BYTES = 400 * 10**6
SLOW = ("per-sample, as published", "per-sample, torch.func")
"""Rivals measured in every eighth round only, and once in it."""
BURST = 30
"""Times that others are measured in a round, after one that does not count."""
BATCHES, BATCH_ROWS, BATCH_WIDTH = 20, 512, 105
SETTLED = 0.02
"""Seconds before a burst, for the threads of the one before to end."""
Pass = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="MNIST as an .npz file of x_train and y_train")
    parser.add_argument("--rounds", type=int, default=40, help="bursts of each pass")
    parser.add_argument("--large", action="store_true", help="also learn and unlearn over a file of 5 GB")
    parser.add_argument("--rows", type=int, default=mapped_rows.NUM_ROWS, help="rows of that file")
    asked = parser.parse_args()
    machine = {"processor": _processor(), "threads": _threads(), "load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as folder:
        dram = read_bandwidth(asked.rounds)
        measured = {}
        for classes in (2, 10):
            features, labels = digits(asked.data, classes) if asked.data else made_up(classes)
            rows = mapped(Path(folder) / f"{classes}.rows", features)
            measured[classes] = measure(rows, labels, classes, asked.rounds)
    report(
        machine,
        dram,
        measured,
        batch_step(asked.rounds),
        source="MNIST" if asked.data else "random rows, as sparse as MNIST",
    )
    if asked.large:
        with tempfile.TemporaryDirectory() as folder:
            _write("engine-large.json", {"machine": machine} | mapped_rows.measured(Path(folder), asked.rows))


# --- rows ------------------------------------------------------------------------------------------------------------


def digits(path: Path, classes: int) -> tuple[Any, Any]:
    """MNIST's threes and eights, or as many of its first rows."""
    with np.load(path) as archive:
        images, digit = archive["x_train"], archive["y_train"]
    chosen = np.flatnonzero((digit == 3) | (digit == 8)) if classes == 2 else np.arange(NUM_ROWS)
    labels = digit[chosen] == 8 if classes == 2 else digit[chosen]
    return unit_rows(images[chosen].reshape(len(chosen), -1)), labels.astype(np.int32)


def made_up(classes: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(classes)
    features = generator.random((NUM_ROWS, WIDTH)) * (generator.random((NUM_ROWS, WIDTH)) > SHARE_OF_ZEROS)
    return unit_rows(features), generator.integers(0, classes, NUM_ROWS).astype(np.int32)


def unit_rows(features: Any) -> Any:
    norms = np.linalg.norm(features.astype(np.float64), axis=1, keepdims=True)
    return (features / (norms * (1 + 1e-6))).astype(np.float32)


def mapped(path: Path, features: Any) -> Any:
    features.tofile(path)
    return np.asarray(np.memmap(path, dtype="<f4", mode="r+", shape=features.shape))  # torch asks for writable ones


# --- passes ----------------------------------------------------------------------------------------------------------


@njit(float32(float32[::1], uintp, uintp), nogil=True, fastmath=True)
def _sum(numbers: Any, start: Any, stop: Any) -> Any:
    total = np.float32(0)
    for index in range(start, stop):
        total += numbers[index]
    return total


def reading(numbers: Any) -> dict[str, Pass]:
    """Ways of reading every number once."""
    threads = _threads()
    pool = ThreadPoolExecutor(threads)
    cuts = [len(numbers) * one // threads for one in range(threads + 1)]

    def compiled() -> None:
        others = [pool.submit(_sum, numbers, cuts[one], cuts[one + 1]) for one in range(1, threads)]
        _sum(numbers, cuts[0], cuts[1])
        for other in others:
            other.result()

    return {"read once, compiled": compiled, "read once, torch": torch.from_numpy(numbers).sum}


def rivals(features: Any, labels: Any, parameters: Any, classes: int) -> dict[str, Pass]:
    """Gradients of the summed loss, except that the published one is averaged, and regularised before it is clipped."""
    rows, at = torch.from_numpy(features), torch.from_numpy(parameters).float()
    targets = torch.from_numpy(labels).long()
    signs = (2 * targets - 1).float()
    weights = parameters.astype(np.float32)

    def published() -> Any:
        if classes == 2:
            pulls = (torch.sigmoid(signs * (rows @ at[0])) - 1) * signs
            each = pulls[:, None] * rows + L2 * at
        else:
            pulls = torch.softmax(rows @ at.T, dim=1) - torch.nn.functional.one_hot(targets, classes)
            each = (pulls[:, :, None] * rows[:, None, :] + L2 * at).flatten(1)
        bound = 1.0 if classes == 2 else 2.0
        return (each * (bound / each.norm(dim=1).clamp(min=bound))[:, None]).mean(dim=0).view_as(at)

    def loss(one: Any, row: Any, target: Any) -> Any:
        scores = one @ row
        if classes == 2:
            return torch.nn.functional.softplus(scores[0]) - target * scores[0]
        return torch.logsumexp(scores, 0) - scores.gather(0, target.view(1))[0]

    every = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))

    def two_products() -> Any:
        scores = features @ weights.T
        if classes == 2:
            pulls = 1 / (1 + np.exp(-scores))
            pulls[:, 0] -= labels
        else:
            pulls = np.exp(scores - scores.max(axis=1, keepdims=True))
            pulls /= pulls.sum(axis=1, keepdims=True)
            pulls[np.arange(len(labels)), labels] -= 1
        return pulls.T @ features

    return {
        "per-sample, as published": published,
        "per-sample, torch.func": lambda: every(at, rows, targets).sum(dim=0),
        "two products, numpy": two_products,
    }


def measure(features: Any, labels: Any, classes: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of each pass, and of a step of the chain."""
    width = features.shape[1]
    parameters = np.random.default_rng(1).standard_normal((1 if classes == 2 else classes, width))
    exact = in_double(features, labels, parameters, classes)
    at = torch.from_numpy(parameters)
    with HostRows(features, labels, num_classes=classes) as rows:
        passes = {"ours": lambda: rows.gradient(at)} | rivals(features, labels, parameters, classes)
        for name, one in passes.items():
            if name != "per-sample, as published":  # it is regularised
                assert np.abs(np.asarray(one()) - exact).max() < 1e-5 * len(labels), name
        passes |= reading(features.reshape(-1))
        taken = interleaved(passes, rounds)
        error = float(np.linalg.norm(rows.gradient(at).numpy() - exact))
    taken["a step of the chain"] = [steps(features, labels, classes, 50) for _ in range(max(rounds // 8, 3))]
    return {
        "rows": len(labels),
        "columns": width,
        "milliseconds": {name: 1e3 * statistics.median(each) for name, each in taken.items()},
        "fastest_milliseconds": {name: 1e3 * min(each) for name, each in taken.items()},
        "error_in_records": error,
    }


def interleaved(passes: dict[str, Pass], rounds: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in passes}
    for number in track(range(rounds), "passes"):
        for name, one in passes.items():
            if name in SLOW and number % 8:
                continue
            time.sleep(SETTLED)
            one()
            for _ in range(1 if name in SLOW else BURST):
                started = time.perf_counter()
                one()
                taken[name].append(time.perf_counter() - started)
    return taken


def in_double(features: Any, labels: Any, parameters: Any, classes: int) -> Any:
    at = torch.from_numpy(parameters).requires_grad_()
    scores = torch.from_numpy(features).double() @ at.T
    if classes == 2:
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            scores[:, 0], torch.from_numpy(labels).double(), reduction="sum"
        )
    else:
        loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels).long(), reduction="sum")
    return torch.autograd.grad(loss, at)[0].numpy()


def batch_step(rounds: int) -> dict[str, float]:
    """Microseconds of a step that reads one batch, and of what it cannot do without."""
    generator, noise = np.random.default_rng(0), SystemNoise()
    features = unit_rows(generator.random((BATCHES * BATCH_ROWS, BATCH_WIDTH)))
    labels = generator.integers(0, 2, len(features)).astype(np.int32)
    batches = np.split(features.reshape(-1), BATCHES)
    parts: dict[str, Pass] = {
        "reading its rows": lambda: [_sum(batch, 0, len(batch)) for batch in batches],
        "drawing its noise": lambda: [noise.normal(BATCH_WIDTH) for _ in batches],
    }
    taken = {name: [each / BATCHES for each in found] for name, found in interleaved(parts, rounds).items()}
    taken["the step"] = [steps(features, labels, 2, 50 * BATCHES, num_batches=BATCHES) for _ in range(rounds)]
    microseconds = {name: 1e6 * statistics.median(each) for name, each in taken.items()}
    return microseconds | {"ratio": microseconds["the step"] / sum(microseconds[name] for name in parts)}


def read_bandwidth(rounds: int) -> float:
    """Bytes per second from a matrix that no cache holds."""
    numbers = np.ones(DRAM_BYTES // 4, np.float32)
    taken = interleaved(reading(numbers), max(rounds // 10, 3))
    return DRAM_BYTES / min(statistics.median(each) for each in taken.values())


# --- results ---------------------------------------------------------------------------------------------------------


def report(
    machine: dict[str, Any],
    dram: float,
    measured: dict[int, dict[str, Any]],
    batch: dict[str, float],
    *,
    source: str,
) -> None:
    results: dict[str, Any] = {"source": source, "machine": machine, "dram_bytes_per_second": dram, "passes": {}}
    results["batch_step"] = batch
    for classes, found in measured.items():
        median, fastest = found["milliseconds"], found["fastest_milliseconds"]
        read = {kind: min(v for k, v in times.items() if "read" in k) for kind, times in _both(found).items()}
        memory = 4e3 * found["rows"] * found["columns"] / dram
        title = f"{source}: {found['rows']:,} x {found['columns']}, {classes} classes"
        table = Table(title, "median, ms", "fastest, ms", "by reading once", "by ours")
        for name, took in sorted(median.items(), key=lambda item: item[1]):
            ratios = (f"{took / read['median']:.2f}", f"{took / median['ours']:.2f}")
            table.add_row(name, f"{took:.3f}", f"{fastest[name]:.3f}", *ratios)
        table.add_row("its bytes, from memory", f"{memory:.3f}", "", f"{memory / read['median']:.2f}", "")
        Console().print(table)
        ratio = {
            kind: {
                "ours / read once": times["ours"] / read[kind],
                "ours / its bytes, from memory": times["ours"] / memory,
                "published / ours": times["per-sample, as published"] / times["ours"],
                "torch.func / ours": times["per-sample, torch.func"] / times["ours"],
                "numpy / ours": times["two products, numpy"] / times["ours"],
            }
            for kind, times in _both(found).items()
        }
        results["passes"][str(classes)] = found | {"ratios": ratio}
        Console().print(f"Rounding moves this gradient by {found['error_in_records']:.1e} records.")
    table = Table(f"A step of {BATCH_ROWS} x {BATCH_WIDTH}", "microseconds")
    for name in ("reading its rows", "drawing its noise", "the step"):
        table.add_row(name, f"{batch[name]:.1f}")
    table.add_row("the step, by both", f"{batch['ratio']:.2f}")
    Console().print(table)
    Console().print(
        f"Memory beyond the caches is read at {dram / 1e9:.0f} GB/s; load before: {machine['load_before']:.1f}."
    )
    _write("engine.json", results)


def _both(found: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {"median": found["milliseconds"], "fastest": found["fastest_milliseconds"]}


def _write(name: str, results: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / name).write_text(json.dumps(results, indent=2) + "\n")


def _threads() -> int:
    return len(os.sched_getaffinity(0))


def _processor() -> str:
    about = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.split(":")[1].strip() for line in about.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    main()
