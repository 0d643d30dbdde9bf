"""A step on a GPU against the bandwidth of its memory: `./dev bench gpu`.

The ceiling is a device-to-device copy, measured in the same run, counting the bytes read and the bytes written. A step
has to read the rows once; the fraction is those bytes by its time, over the copy's. Rivals in the same run: the same
step written in torch, eagerly (two reads of the rows, noise of torch's generator), and this engine on the CPU. Prints
a table, writes benchmarks/results/gpu.json. Needs a GPU; `--dry` writes nothing.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from worker.features.gpu.engines import DeviceRows
from worker.langevin.engines import choose
from worker.langevin.gradient import HostRows
from worker.langevin.noise import SystemNoise
from worker.langevin.schedule import Schedule
from worker.langevin.step import State, projected_noisy_step

RESULTS = Path(__file__).parent / "results"
MAX_ROWS = 10_000_000
COMMON_ROWS = 200_000
CLASSES = (2, 10)
SETTINGS: dict[str, Any] = {"l2": 1e-3, "step_size": 2.0, "noise_scale": 0.01, "radius": 100.0}


class Repeated:
    """`num_rows` random rows of norm just below 1, of which only a block is in memory."""

    def __init__(self, num_rows: int, width: int) -> None:
        block = np.random.default_rng(0).standard_normal((min(num_rows, 2**17), width), np.float32)
        block /= np.linalg.norm(block, axis=1, keepdims=True) * (1 + 1e-6)
        self._block, self.shape = block, (num_rows, width)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Any:
        return np.take(self._block, np.arange(rows.start, rows.stop), axis=0, mode="wrap")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, help=f"rows, by default as many as fit, {MAX_ROWS:,} at most")
    parser.add_argument("--width", type=int, default=512, help="features of a row")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each engine is measured")
    parser.add_argument("--dry", action="store_true", help="write no results")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("No GPU: torch sees none on this machine, so there is nothing to measure")
    device = choose("cuda:0")
    num_rows = asked.rows or min(MAX_ROWS, int(0.8 * torch.cuda.mem_get_info(device)[0]) // (4 * asked.width + 4))
    copy = copy_bandwidth(device)
    measured: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(device),
        "torch": torch.__version__,
        "copy_bytes_per_second": copy,
        "sizes": [],
    }
    for num_classes in CLASSES:
        for size in sorted({num_rows, min(num_rows, COMMON_ROWS)}, reverse=True):
            measured["sizes"].append(measure(size, asked.width, num_classes, device, asked.seconds))
    report(measured)
    if not asked.dry:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "gpu.json").write_text(json.dumps(measured, indent=2) + "\n")


def copy_bandwidth(device: torch.device) -> float:
    """Bytes per second, read and written, of a copy on the device that its caches cannot hold."""
    source = torch.empty(min(2**32, torch.cuda.mem_get_info(device)[0] // 4), dtype=torch.uint8, device=device)
    source.random_()
    target = torch.empty_like(source)
    times = [timed(lambda: target.copy_(source)) for _ in range(25)]
    return 2 * source.numel() / statistics.median(times[5:])


def timed(work: Callable[[], Any]) -> float:
    """Seconds between two events around the work."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    work()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1000


def measure(num_rows: int, width: int, num_classes: int, device: torch.device, seconds: float) -> dict[str, Any]:
    features, labels = Repeated(num_rows, width), np.arange(num_rows, dtype=np.int32) % num_classes
    initial = torch.zeros(1 if num_classes == 2 else num_classes, width, dtype=torch.float64)
    times = {}
    with DeviceRows(features, labels, num_classes=num_classes, device=device) as rows:  # type: ignore[arg-type]
        times["engine"] = engine(rows, initial, num_rows, seconds)
        resident = rows._rows
        times["torch, eager"] = eager(resident, rows._labels, num_classes, seconds)
        bytes_read = resident.numel() * resident.element_size() + labels.nbytes
        del resident
    if num_rows <= COMMON_ROWS:
        times["engine, CPU"] = on_the_cpu(features[slice(0, num_rows)], labels, num_classes, initial, seconds)
    return {
        "rows": num_rows,
        "width": width,
        "classes": num_classes,
        "bytes_per_read": bytes_read,
        "seconds_per_step": times,
    }


def engine(rows: DeviceRows, initial: torch.Tensor, num_slots: int, seconds: float) -> float:
    """Seconds per step as a run sees them, noise and progress included: the median of the full chunks."""
    told: list[tuple[int, float]] = []

    class Enough(Exception):
        pass

    def on_progress(steps_done: int) -> None:
        told.append((steps_done, time.perf_counter()))
        if told[-1][1] - told[0][1] > seconds:
            raise Enough

    try:
        start = State(parameters=initial, steps_done=0)
        rows.advance(
            start,
            steps=2**40,
            schedule=Schedule(num_slots=num_slots, steps=2**40),
            on_progress=on_progress,
            **SETTINGS,
        )
    except Enough:
        chunks = [(later[0] - earlier[0], later[1] - earlier[1]) for earlier, later in pairwise(told)]
        longest = max(count for count, _ in chunks)
        return statistics.median(took / count for count, took in chunks[1:] if count > longest / 2)
    raise AssertionError("unreachable: it runs until it is stopped")


def eager(rows: torch.Tensor, labels: torch.Tensor, num_classes: int, seconds: float) -> float:
    """Seconds per step of what one would write in torch: two products with the whole matrix."""
    classes = 1 if num_classes == 2 else num_classes
    here = torch.zeros(classes, rows.shape[1], device=rows.device)
    wanted = (labels.unsqueeze(1) if classes == 1 else torch.nn.functional.one_hot(labels.long(), classes)).float()
    eta, std = SETTINGS["step_size"], math.sqrt(2 * SETTINGS["step_size"]) * SETTINGS["noise_scale"]

    def step() -> None:
        scores = rows @ here.t()
        guesses = torch.sigmoid(scores) if classes == 1 else torch.softmax(scores, 1)
        gradient = (guesses - wanted).t() @ rows
        here.mul_(1 - eta * SETTINGS["l2"]).sub_(gradient, alpha=eta / len(rows)).add_(
            torch.randn_like(here), alpha=std
        )
        here.mul_((SETTINGS["radius"] / torch.linalg.vector_norm(here)).clamp(max=1))

    return repeated(lambda: timed(step), seconds)


def on_the_cpu(features: Any, labels: Any, num_classes: int, initial: torch.Tensor, seconds: float) -> float:
    """Seconds per step of the engine on the CPU, with all its cores."""
    noise, state = SystemNoise(), State(parameters=initial.clone(), steps_done=0)
    with HostRows(features, labels, num_classes=num_classes) as rows:

        def step() -> float:
            started = time.perf_counter()
            projected_noisy_step(noise, state, rows=rows, num_slots=len(features), **SETTINGS)
            return time.perf_counter() - started

        return repeated(step, seconds)


def repeated(step: Callable[[], float], seconds: float) -> float:
    """The median of the step's seconds, after three to warm up."""
    for _ in range(3):
        step()
    times, until = [step()], time.perf_counter() + seconds
    while time.perf_counter() < until:
        times.append(step())
    return statistics.median(times)


def report(measured: dict[str, Any]) -> None:
    copy = measured["copy_bytes_per_second"]
    table = Table(
        f"{measured['gpu']}, copy {copy / 1e12:.2f} TB/s", "ms per step", "of the copy", "engine is faster by"
    )
    for size in measured["sizes"]:
        for name, taken in size["seconds_per_step"].items():
            fraction = size["bytes_per_read"] / taken / copy
            table.add_row(
                f"{size['rows']:,} x {size['width']}, {size['classes']} classes: {name}",
                f"{1000 * taken:.3f}",
                f"{fraction:.1%}",
                f"{taken / size['seconds_per_step']['engine']:.2f}",
            )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
