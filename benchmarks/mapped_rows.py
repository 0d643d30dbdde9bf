"""A chain over rows that memory need not hold, for `./dev bench engine --large`."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.stepping import steps

NUM_ROWS, WIDTH = 10_000_000, 128


def measured(folder: Path, num_rows: int) -> dict[str, Any]:
    """Learn and unlearn over a mapped file, as the worker does; the most anonymous memory that this process took."""
    path = folder / "rows"
    labels = _written(path, num_rows)
    features = np.asarray(np.memmap(path, dtype="<f4", mode="r", shape=(num_rows, WIDTH)))
    parameters = np.zeros((1, WIDTH))
    before = _anonymous_bytes()
    with _Peak() as peak:
        started = time.perf_counter()
        learned = steps(features, labels, 2, 8, parameters)
        learning = time.perf_counter() - started
        writable = np.memmap(path, dtype="<f4", mode="r+", shape=(num_rows, WIDTH))
        writable[num_rows // 2] = 0
        started = time.perf_counter()
        unlearned = steps(features, labels, 2, 5, parameters)
        unlearning = time.perf_counter() - started
    size = path.stat().st_size
    found = {
        "rows": num_rows,
        "columns": WIDTH,
        "bytes": size,
        "seconds_per_step": {"learning": learned, "unlearning": unlearned},
        "seconds": {"learning, 8 steps": learning, "unlearning, 5 steps": unlearning},
        "bytes_per_second": size / min(learned, unlearned),
        "anonymous_bytes_before": before,
        "anonymous_bytes_peak": peak.bytes,
        "anonymous_bytes_grown": peak.bytes - before,
    }
    _print(found)
    return found


def _written(path: Path, num_rows: int) -> Any:
    generator = np.random.default_rng(0)
    truth = generator.standard_normal(WIDTH).astype(np.float32)
    labels = np.empty(num_rows, np.int32)
    with path.open("wb") as file:
        for start in track(range(0, num_rows, 2**16), "writing rows"):
            block = generator.random((min(2**16, num_rows - start), WIDTH), np.float32) - np.float32(0.5)
            block /= np.linalg.norm(block, axis=1, keepdims=True) * np.float32(1 + 1e-5)
            labels[start : start + len(block)] = block @ truth > 0
            block.tofile(file)
    return labels


class _Peak:
    """The most anonymous memory while the block runs, looked at every 10 ms."""

    def __enter__(self) -> "_Peak":
        self.bytes, self._over = _anonymous_bytes(), threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()
        return self

    def _look(self) -> None:
        while not self._over.wait(0.01):
            self.bytes = max(self.bytes, _anonymous_bytes())

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()


def _anonymous_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("RssAnon:")[1].split()[0])


def _print(found: dict[str, Any]) -> None:
    table = Table(f"{found['rows']:,} x {found['columns']}, {found['bytes'] / 1e9:.2f} GB mapped", "")
    for what, took in found["seconds_per_step"].items():
        table.add_row(f"{what}, s per step", f"{took:.3f}")
    for what, took in found["seconds"].items():
        table.add_row(f"{what} and the check of the rows before, s", f"{took:.2f}")
    table.add_row("read, GB/s", f"{found['bytes_per_second'] / 1e9:.1f}")
    table.add_row("anonymous memory before, MB", f"{found['anonymous_bytes_before'] / 1e6:.0f}")
    table.add_row("and at most, MB", f"{found['anonymous_bytes_peak'] / 1e6:.0f}")
    Console().print(table)
