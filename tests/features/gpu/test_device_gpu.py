"""Tests that need a GPU. `test_device.py` runs the same engine on both devices."""

import copy
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from worker.features.gpu.engines import STEPS_PER_GRAPH, DeviceRows, Walk
from worker.features.gpu.keystream import DeviceNoise
from worker.features.gpu.passes import Blocked, Fused, over
from worker.langevin.engines import choose
from worker.langevin.schedule import Schedule
from worker.langevin.step import State

pytestmark = pytest.mark.gpu

Rows = Callable[..., tuple[Any, Any]]
HOST = {"num_slots": 5000, "l2": 0.05, "step_size": 1.5, "noise_scale": 0.2, "radius": 20.0}
SETTINGS = {
    "schedule": Schedule(num_slots=5000, steps=10**9),
    "l2": 0.05,
    "step_size": 1.5,
    "noise_scale": 0.2,
    "radius": 20.0,
}


class Replayed:
    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def fill(self, out: torch.Tensor) -> None:
        out.copy_(torch.from_numpy(self._generator.standard_normal(tuple(out.shape))))


@pytest.mark.parametrize("num_classes", [2, 3])
def test_captured_steps_equal_eager_ones(num_classes: int, random_rows: Rows) -> None:
    """Steps replayed from CUDA graphs give bit-for-bit the same result as single steps, even if the last steps do not
    fill a graph."""
    features, labels = random_rows(5000, 33, num_classes)
    here = torch.zeros(1 if num_classes == 2 else num_classes, 33, dtype=torch.float64)
    ends = []
    with DeviceRows(features, labels, num_classes=num_classes, device=choose("cuda")) as rows, rows._computing():
        for in_graphs in (True, False):
            with Walk(rows._pass, State(parameters=here, steps_done=0), noise=Replayed(3), **SETTINGS) as walk:
                for count in (1, 2 * STEPS_PER_GRAPH + 5, STEPS_PER_GRAPH):
                    walk.take(count, in_graphs=in_graphs)
                assert (walk._graph is not None) == in_graphs
                ends.append(walk.state(steps_done=0).parameters)
    assert torch.equal(*ends)


def test_results_are_deterministic(random_rows: Rows) -> None:
    """Repeating a run gives bit-identical results, in whatever order the GPU's thread blocks finish."""
    features, labels = random_rows(5000, 33)
    start = State(parameters=torch.zeros(1, 33, dtype=torch.float64), steps_done=0)
    with DeviceRows(features, labels, num_classes=2, device=choose("cuda")) as rows:
        ends = [
            rows.advance(start, steps=500, noise=Replayed(3), on_progress=lambda done: None, **SETTINGS).parameters
            for _ in range(3)
        ]
    assert all(torch.equal(*pair) for pair in pairwise(ends))


def test_two_classes_use_the_fused_kernel(random_rows: Rows) -> None:
    """Rows of two classes, up to the fused kernel's maximum width, are read in one pass by that kernel. Wider rows and
    rows of more classes are read in blocks."""
    labels = torch.zeros(4, dtype=torch.int32, device="cuda")
    assert isinstance(over(torch.zeros(4, 4096, device="cuda"), labels, 2), Fused)
    assert isinstance(over(torch.zeros(4, 4112, device="cuda"), labels, 2), Blocked)
    assert isinstance(over(torch.zeros(4, 4096, device="cuda"), labels, 3), Blocked)


def test_two_classes_are_processed_in_blocks_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """If Triton finds no C compiler, rows of two classes are still processed, but more slowly, in blocks."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    labels = torch.zeros(4, dtype=torch.int32, device="cuda")
    assert isinstance(over(torch.zeros(4, 64, device="cuda"), labels, 2), Blocked)


def test_memory_is_released(random_rows: Rows) -> None:
    """Closing the rows releases all GPU memory that they used."""
    features, labels = random_rows(5000, 33)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(2):
        with DeviceRows(features, labels, num_classes=2, device=choose("cuda")) as rows:
            start = State(parameters=torch.zeros(1, 33, dtype=torch.float64), steps_done=0)
            rows.advance(start, steps=200, on_progress=lambda done: None, **SETTINGS)
            assert torch.cuda.memory_allocated() > before
        assert torch.cuda.memory_allocated() == before


def test_rows_that_exceed_the_memory_are_refused() -> None:
    """Rows that do not fit on the GPU raise our own error with advice instead of torch's error."""
    there = np.broadcast_to(np.float32(0), (2**32, 4096))
    with pytest.raises(MemoryError, match="choose a device with more free memory"):
        DeviceRows(there, np.zeros(1, np.int32), num_classes=2, device=choose("cuda"))


def test_source_cannot_be_copied() -> None:
    """Copying a noise source on a GPU is refused."""
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copy.deepcopy(DeviceNoise(choose("cuda")))


def test_benchmark_runs() -> None:
    """The benchmark runs at a small size and reports the fraction of the copy bandwidth that a step reaches."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--rows", "200000", "--width", "64", "--dry"]
    answered = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "of the copy" in answered.stdout
