"""The Triton kernel's arithmetic: interpreted on the CPU where Triton is installed, and compiled on a GPU."""

import importlib.util
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

SHAPES = [(1, 16), (5, 16), (1000, 512), (300, 800), (700, 112), (40, 2048)]

INTERPRETED = """
import torch
from tests.features.gpu.test_device_kernel import SHAPES, error_of_the_kernel
print(max(error_of_the_kernel(*shape, device="cpu", programs=7) for shape in SHAPES))
"""


def random_data(num_rows: int, width: int, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(num_rows)
    rows = torch.nn.functional.normalize(torch.randn(num_rows, width, generator=generator))
    labels = (torch.rand(num_rows, generator=generator) < 0.3).to(torch.int32)
    return rows.to(device), labels.to(device), torch.randn(1, width, generator=generator).to(device) * 3


def error_of_the_kernel(num_rows: int, width: int, *, device: str, programs: int) -> float:
    """Return the norm of the difference between the kernel's gradient and the formula's in float64, divided by the
    number of rows."""
    from worker.features.gpu.passes import Fused

    rows, labels, weights = random_data(num_rows, width, device)
    fused = Fused(rows, labels, programs=programs)
    fused.weights.copy_(weights)
    # An entry that the kernel does not write stays NaN.
    fused._partials.fill_(torch.nan)
    fused.run()
    residuals = torch.sigmoid(rows.double() @ weights.double().t()) - labels.unsqueeze(1)
    return float(torch.linalg.vector_norm(fused.total - residuals.t() @ rows.double())) / num_rows


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton comes with torch's CUDA builds")
def test_interpreted_kernel_computes_the_formula(request: Any) -> None:
    """The kernel, interpreted on the CPU, agrees with the gradient formula to 1e-7 per row. This holds for any number
    of rows, for rows whose width is not a power of two, and if some kernel programs get no rows."""
    answered = subprocess.run(
        [sys.executable, "-c", INTERPRETED],
        cwd=request.config.rootpath,
        # Triton reads this variable when it is imported.
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answered.returncode == 0, answered.stderr
    assert float(answered.stdout) < 1e-7


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [*SHAPES, (3000, 4096), (1_000_003, 512)])
def test_compiled_kernel_computes_the_formula(shape: tuple[int, int]) -> None:
    """The compiled kernel agrees with the gradient formula to 1e-7 per row."""
    from worker.features.gpu.kernel import num_programs

    assert error_of_the_kernel(*shape, device="cuda", programs=num_programs(torch.device("cuda"))) < 1e-7
