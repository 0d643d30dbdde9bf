"""Sum of the gradients of all records in a batch, in one pass over its rows.

Two classes have a logistic loss (one weight vector), more classes softmax cross-entropy. With probabilities p and the
one-hot label y, the gradient of a record x is (p - y) x, of norm at most ||x|| for two classes and sqrt(2) ||x|| for
more. Each of several labels has its own logistic loss. Every other loss depends on a single score, and its gradient is
the slope of the loss at the score times x. Class weights and row weights scale a record's gradient. The gradient of the
null row is exactly 0, whatever its label. No gradient is ever clipped.

Compiled loops (`kernels.py`) read the rows once, in place, eight at a time, in as many threads as is worthwhile. Rows
are divided into shares whose number depends only on sizes. Each share has its own sum, and the sums are added in the
order of the rows, so that the result is bitwise the same for any number of threads.

Products and sums of 256 rows are in single precision, further sums in double precision. The guarantee is stated for
exact arithmetic and does not cover rounding, which moves the gradient of 32,561 rows with 105 columns by 0.00004 of the
maximum contribution of one record, and the gradient of a million rows by 0.001.
"""

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lethe.encoding.rows import as_factors
from lethe.proof.losses import Objective
from worker.langevin import kernels, losses

# Maximum number of batches whose labels and last rows are retained until they are read again.
_MAX_PARTS = 1024
_MAX_SHARES = 64
# Bytes times weight rows: 20 microseconds of work, below which another thread does not pay off.
_SHARE_BYTES = 2**20
# Rows of this size stay in the last-level cache between two passes, where prefetching only costs time.
_CACHE_BYTES = 2**24
# Rows to prefetch: together with the current block they fit in the first-level cache.
_AHEAD_BYTES = 12 * 2**10


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows for the kernels: whole blocks divided into shares, followed by other numbers that the kernels may read."""

    features: NDArray[np.float32]  # (rows * d + LANES - 1 or more,)
    labels: NDArray[np.int32]  # (rows,)
    factors: NDArray[np.float32]  # (rows,), or (0,) if all losses have factor 1
    bounds: NDArray[np.int64]  # (shares + 1,)
    ahead: int
    totals: NDArray[np.float64]  # (shares, weight rows * d)


class HostRows:
    """A run's rows, prepared for repeated passes.

    A context manager: on exit, it overwrites every buffer and stops its threads. The caller's rows are only read, and
    must not change until then."""

    def __init__(
        self,
        features: NDArray[np.float32],  # (n, d), each row of norm at most 1
        labels: NDArray[np.int32],  # (n,)
        weights: NDArray[np.int32] | None = None,  # (n,), in units of 2^-23
        *,
        num_classes: int,
        loss: losses.Loss = losses.LOGISTIC,
        threads: int | None = None,
    ) -> None:
        """Prepare the rows for at most `threads` threads; None allows all that this process may use.

        Raises ValueError if the rows cannot be read in place.
        """
        features, labels = np.asarray(features), np.asarray(labels)
        _require(features, labels, threads)
        self._loss, self._kernel = loss, _kernel(loss)
        self._factors = np.array(loss.class_weights or (), dtype=np.float32)
        self._num_classes, self._shape = num_classes, (loss.weight_rows(num_classes), features.shape[1])
        self._features, self._labels, self._row_weights = features, labels, weights
        self._parts: dict[tuple[int | None, int | None], tuple[_Part, _Part]] = {}
        self._threads = threads = max(1, min(threads or num_cpus(), _num_shares(len(labels), *self._shape)))

        weight_rows, width = self._shape
        even = weight_rows if weight_rows == 1 else weight_rows + weight_rows % 2
        self._weights = _zeros(even * width)
        self._sums = [_zeros(even * _padded(width)) for _ in range(threads)]
        self._scores = [_zeros(kernels.ROWS * (1 if weight_rows == 1 else _padded(even))) for _ in range(threads)]
        self._pool = ThreadPoolExecutor(max(1, threads - 1), "gradient")

    @property
    def threads(self) -> int:
        return self._threads

    def gradient(self, parameters: Tensor, block: slice = slice(None)) -> Tensor:
        """Return the sum of the loss gradients over the rows `block` at `parameters`  # (1, d) or (C, d) float64

        Raises ValueError if any of these rows has a label that the loss does not allow.
        """
        if parameters.shape != self._shape:
            raise ValueError(f"Expected parameters of shape {self._shape}")
        body, tail = self._of(block)
        try:
            self._weights[: parameters.numel()] = parameters.detach().numpy().ravel()
            threads = max(1, min(self._threads, len(body.totals)))
            others = [self._pool.submit(self._add, body, number, threads) for number in range(1, threads)]
            self._add(body, 0, threads)
            self._run(tail, 0, 0, len(tail.totals))
            for other in others:
                other.result()
            total = body.totals.sum(axis=0) + tail.totals.sum(axis=0)
            return torch.from_numpy(total.reshape(self._shape))
        finally:
            # These buffers hold an iterate and the gradients of rows.
            _overwrite(self._weights, body.totals, tail.totals)

    def look(self, slots: Sequence[slice]) -> None:
        """Overwrite and discard everything copied from rows, because rows outside `slots` leave memory."""
        for body, tail in self._parts.values():
            _overwrite(body.labels, body.factors, body.totals, tail.totals, tail.features, tail.labels, tail.factors)
        self._parts.clear()

    def close(self) -> None:
        """Overwrite every buffer and stop the threads. The object cannot be used afterwards."""
        self._pool.shutdown()
        _overwrite(self._weights, *self._sums, *self._scores)
        self.look(())

    def _of(self, block: slice) -> tuple[_Part, _Part]:
        """Return a batch's rows in two parts: a view without the last few rows, and a padded copy of those."""
        parts = self._parts.get((block.start, block.stop))
        if parts is None:
            if len(self._parts) >= _MAX_PARTS:
                self.look(())
            # A private copy, because the kernels use labels as indices without checking them.
            labels = np.array(self._labels[block])
            self._loss.require_labels(labels, self._num_classes)
            factors = np.zeros(0, np.float32) if self._row_weights is None else as_factors(self._row_weights[block])
            rows = self._features[block], labels, factors, self._shape[0]
            parts = self._parts[block.start, block.stop] = _body(*rows), _tail(*rows)
        return parts

    def _add(self, part: _Part, number: int, threads: int) -> None:
        shares = len(part.totals)
        self._run(part, number, shares * number // threads, shares * (number + 1) // threads)

    def _run(self, part: _Part, number: int, first: int, last: int) -> None:
        """Add each share from `first` up to but excluding `last` to its total, using the buffers of thread `number`."""
        rows = part.features, part.labels, part.factors, part.bounds, first, last, self._shape[1], part.ahead
        scores, sums = self._scores[number], self._sums[number]
        if self._shape[0] == 1:
            kernels.one_score(*rows, *self._kernel, self._factors, self._weights, scores, sums, part.totals)
        else:
            grid = scores.reshape(kernels.ROWS, -1)
            kernel = self._kernel[0], self._num_classes, self._factors
            kernels.many_scores(*rows, *kernel, self._weights, grid, sums, part.totals)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _kernel(loss: losses.Loss) -> tuple[int, float]:
    """Return the kernels' code for the loss, and the loss's width."""
    width = math.inf if loss.width is None else loss.width
    match loss.objective:
        case Objective.LOGISTIC_REGRESSION:
            return kernels.LOGISTIC, width
        case Objective.MULTILABEL_LOGISTIC_REGRESSION:
            return kernels.LABELS, width
        case Objective.SMOOTHED_HINGE:
            return kernels.HINGE, width
        case Objective.HUBER_REGRESSION | Objective.LEAST_SQUARES:
            return kernels.RESIDUAL, width
        case Objective.POISSON_REGRESSION:
            return kernels.RATE, width


def _require(features: NDArray[np.float32], labels: NDArray[np.int32], threads: int | None) -> None:
    if features.dtype != np.float32 or features.ndim != 2 or not features.flags.c_contiguous or not features.size:
        raise ValueError("Expected features to be a float32 matrix, one row after the other and not empty")
    if labels.dtype != np.int32 or labels.shape != features.shape[:1]:
        raise ValueError("Expected labels to be int32, one for each row of features")
    if threads is not None and threads < 1:
        raise ValueError(f"Expected {threads=} >= 1")


def _body(
    features: NDArray[np.float32], labels: NDArray[np.int32], factors: NDArray[np.float32], weight_rows: int
) -> _Part:
    """Return a view of all rows before those copied by `_tail`."""
    num_rows, width = _num_in_body(len(features)), features.shape[1]
    shares = _num_shares(len(features), weight_rows, width)
    return _Part(
        features=features.reshape(-1),
        labels=labels[:num_rows],
        factors=factors[:num_rows],
        bounds=kernels.ROWS * (num_rows // kernels.ROWS * np.arange(shares + 1) // max(shares, 1)),
        ahead=max(1, _AHEAD_BYTES // (4 * width)) if features.nbytes > _CACHE_BYTES else 0,
        totals=np.zeros((shares, weight_rows * width)),
    )


def _num_shares(num_rows: int, weight_rows: int, width: int) -> int:
    """Return the number of shares into which a batch of `num_rows` rows is divided for the threads."""
    num_rows = _num_in_body(num_rows)
    shares = min(
        _MAX_SHARES, num_rows * width * 4 * weight_rows // _SHARE_BYTES, num_rows // (kernels.ROWS * weight_rows)
    )
    return max(shares, min(num_rows, 1))


def _tail(
    features: NDArray[np.float32], labels: NDArray[np.int32], factors: NDArray[np.float32], weight_rows: int
) -> _Part:
    """Return a copy of the last few rows, padded with null rows to whole blocks."""
    rest, width = slice(_num_in_body(len(features)), None), features.shape[1]
    num_rows = kernels.ROWS * -(-len(labels[rest]) // kernels.ROWS)
    tail = _Part(
        features=np.zeros(num_rows * width + kernels.LANES - 1, np.float32),
        labels=np.zeros(num_rows, np.int32),
        factors=np.zeros(num_rows if len(factors) else 0, np.float32),
        bounds=np.array([0, num_rows]),
        ahead=0,
        totals=np.zeros((1, weight_rows * width)),
    )
    tail.features[: features[rest].size] = features[rest].reshape(-1)
    tail.labels[: len(labels[rest])] = labels[rest]
    tail.factors[: len(factors[rest])] = factors[rest]
    return tail


def _num_in_body(num_rows: int) -> int:
    """Return the number of rows in the whole blocks that leave at least LANES - 1 numbers after them, whatever the
    rows' width."""
    return max(0, num_rows - kernels.LANES + 1) // kernels.ROWS * kernels.ROWS


def _padded(size: int) -> int:
    return -(-size // kernels.LANES) * kernels.LANES


def _zeros(size: int) -> NDArray[np.float32]:
    """Return a buffer aligned to a cache line, because vectors that cross cache lines take twice as long to load."""
    line = 4 * kernels.LANES
    memory = np.zeros(4 * size + line, np.uint8)
    start = -memory.ctypes.data % line
    return memory[start : start + 4 * size].view(np.float32)


def _overwrite(*buffers: NDArray[Any]) -> None:
    for buffer in buffers:
        buffer.fill(0)


def num_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "process_cpu_count"):
        return os.process_cpu_count() or 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
