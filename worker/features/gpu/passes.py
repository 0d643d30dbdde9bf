"""Sum of the records' gradients on one device, in preallocated buffers so that a CUDA graph can capture it.

The mathematics is that of `worker/langevin/gradient.py`. Products are in float32 (never TF32), and sums over blocks of
rows in float64.
"""

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from lethe.encoding.targets import UNIT
from lethe.proof.losses import Objective
from worker.langevin.losses import LOGISTIC, Loss

# The sum of a block is in float32.
_MAX_BLOCK_ROWS = 2**17
# Numbers in a block of rows: on the CPU it stays in cache, on a GPU it is worth six kernel launches.
_BLOCK_NUMBERS = {"cpu": 2**19, "cuda": 2**24}

_ALL = slice(None)


class Pass(Protocol):
    """Pass over rows that computes `total` from `weights` on the current stream, without waiting for the device."""

    weights: Tensor  # (1, width) or (C, width) float32
    total: Tensor  # (1, width) or (C, width) float64

    def run(self, row_range: slice = _ALL) -> None:
        """Compute `total` over the rows of `row_range`."""

    def clear(self) -> None:
        """Overwrite every buffer."""


def over(rows: Tensor, labels: Tensor, num_classes: int, loss: Loss = LOGISTIC, factors: Tensor | None = None) -> Pass:
    """Return the fastest pass over these rows: fused for two-class logistic loss on a GPU with Triton, otherwise in
    blocks. If `factors` (n,) are given, they scale the rows' losses."""
    if rows.is_cuda and num_classes == 2 and loss == LOGISTIC and factors is None and _triton_works():
        # Imported late, because it imports Triton, which comes only with torch's CUDA builds.
        from worker.features.gpu import kernel

        if rows.shape[1] <= kernel.MAX_WIDTH:
            return Fused(rows, labels, programs=kernel.num_programs(rows.device))
    return Blocked(rows, labels, num_classes, loss, factors)


class Fused:
    """Two-class pass that reads rows once: tiles stay in registers for scores, residuals and gradient."""

    def __init__(self, rows: Tensor, labels: Tensor, *, programs: int) -> None:
        from worker.features.gpu import kernel

        self._sum_of_gradients = kernel.sum_of_gradients
        self._rows, self._labels = rows, labels
        self.weights = rows.new_zeros(1, rows.shape[1])
        self.total = torch.zeros_like(self.weights, dtype=torch.float64)
        self._partials = self.total.new_zeros(programs, rows.shape[1])

    def run(self, row_range: slice = _ALL) -> None:
        self._sum_of_gradients(self._rows[row_range], self._labels[row_range], self.weights, self._partials)
        torch.sum(self._partials, 0, keepdim=True, out=self.total)

    def clear(self) -> None:
        for buffer in (self.weights, self.total, self._partials):
            buffer.zero_()


class Blocked:
    """Pass that uses matrix products over blocks of rows. A block larger than the device's cache is read twice."""

    def __init__(
        self, rows: Tensor, labels: Tensor, num_classes: int, loss: Loss = LOGISTIC, factors: Tensor | None = None
    ) -> None:
        self._loss, self._of_rows = loss, factors
        self._rows, self._labels = rows, labels.unsqueeze(1)
        num_rows, width = rows.shape
        self._block_rows = min(num_rows, _MAX_BLOCK_ROWS, max(1, _BLOCK_NUMBERS[rows.device.type] // width))
        self._classes = torch.arange(num_classes, dtype=torch.int32, device=rows.device)
        self.weights = rows.new_zeros(loss.weight_rows(num_classes), width)
        self.total = torch.zeros_like(self.weights, dtype=torch.float64)
        self._share = torch.zeros_like(self.weights)
        self._scores, self._residuals = rows.new_zeros(2, self._block_rows, len(self.weights))
        self._hits = torch.zeros(self._block_rows, num_classes, dtype=torch.bool, device=rows.device)
        self._factors = rows.new_tensor(loss.class_weights or ())
        self._factor = rows.new_zeros(self._block_rows if loss.class_weights else 0)
        has_labels = loss.objective is Objective.MULTILABEL_LOGISTIC_REGRESSION
        self._masked = self._classes.new_zeros(self._block_rows if has_labels else 0, num_classes)

    def run(self, row_range: slice = _ALL) -> None:
        self.total.zero_()
        rows, labels = self._rows[row_range], self._labels[row_range]
        factors = None if self._of_rows is None else self._of_rows[row_range]
        for start in range(0, len(rows), self._block_rows):
            block = rows[start : start + self._block_rows]  # (b, width)
            scores = torch.mm(block, self.weights.t(), out=self._scores[: len(block)])  # (b, 1) or (b, C)
            residuals = self._slopes(scores, labels[start : start + self._block_rows])
            if len(self._factors):
                of_rows = labels[start : start + self._block_rows, 0]
                residuals.mul_(torch.index_select(self._factors, 0, of_rows, out=self._factor[: len(block)])[:, None])
            if factors is not None:
                residuals.mul_(factors[start : start + self._block_rows, None])
            self.total.add_(torch.mm(residuals.t(), block, out=self._share))

    def clear(self) -> None:
        of_rows = (self._scores, self._residuals, self._hits, self._masked, self._factor)
        for buffer in (self.weights, self.total, self._share, *of_rows):
            buffer.zero_()

    def _slopes(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the losses' slopes; for cross-entropy, probabilities less the one-hot label  # (b, 1) or (b, C)"""
        residuals: Tensor = self._residuals[: len(scores)]
        hits = self._hits[: len(scores)]
        if self._loss.objective is Objective.POISSON_REGRESSION and self._loss.width is not None:
            torch.sub(scores, self._loss.width, out=residuals).clamp_(max=0).exp_()
            residuals.sub_(labels, alpha=0.5 / UNIT).sub_(0.5)
        elif self._loss.objective.is_regression:
            torch.sub(scores, labels, alpha=1 / UNIT, out=residuals)
            if self._loss.width is not None:
                residuals.clamp_(-self._loss.width, self._loss.width)
        elif self._loss.width is not None:
            # -y
            torch.mul(labels, -2, out=residuals).add_(1)
            scores.mul_(residuals).add_(1).div_(self._loss.width).clamp_(0, 1)
            residuals.mul_(scores)
        elif len(self.weights) == 1:
            torch.sigmoid(scores, out=residuals)
            residuals.sub_(labels)
        elif self._loss.objective is Objective.MULTILABEL_LOGISTIC_REGRESSION:
            torch.sigmoid(scores, out=residuals)
            masked = torch.bitwise_and(labels, 1 << self._classes, out=self._masked[: len(scores)])
            torch.ne(masked, 0, out=hits)
            residuals.add_(hits, alpha=-1)
        else:
            torch.softmax(scores, 1, out=residuals)
            torch.eq(labels, self._classes, out=hits)
            residuals.add_(hits, alpha=-1)
        return residuals


def _triton_works() -> bool:
    """Return True if Triton and the C compiler that builds its launchers are installed."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    return compiler is not None and importlib.util.find_spec("triton") is not None


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute float32 matrix products in full float32, regardless of torch's precision setting."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
