"""The sum of the records' gradients, over all rows of a batch, in one pass.

Logistic loss for two classes (one weight vector), softmax cross-entropy for more. With probabilities p and the one-hot
label y, the gradient of one record x is (p - y) x: its norm is at most ||x|| for two classes, sqrt(2) ||x|| for more.
Of labels each has its own logistic loss. Any other loss is one of a single score, and its gradient is the loss's slope
there, times x. Where classes have weights, a record's is that of its class times as much, and where rows
have weights, that of the record. The null row's is exactly 0,
whatever its label. Nothing is ever clipped.

The rows are read where they lie, once, eight at a time, by compiled loops (`kernels.py`), in as many threads as pay.
They are cut into shares, whose number depends on their size alone; each share has a sum of its own, and these are added
in the order of the rows. So the result is the same, to the bit, with any number of threads.

Products are in single precision, and so are the sums of 256 rows; from there sums are in double. The guarantee is one
of exact arithmetic, so rounding is outside it: it moves the gradient of 32,561 rows of 105 columns by 0.00004 of what
one record may contribute, of a million rows by 0.001.
"""

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lethe.encoding.weights import as_factors
from lethe.proof.losses import Objective
from worker.langevin import kernels
from worker.langevin.kernels import LANES, ROWS
from worker.langevin.losses import LOGISTIC, Loss

BLOCK_ROWS = 4096

_MOST_PARTS = 1024  # batches whose labels and last rows are kept, for when they are read again
_MOST_SHARES = 64
_SHARE_BYTES = 2**20  # times weight rows: 20 microseconds of work, below which another thread does not pay
_CACHE_BYTES = 2**24  # of rows that stay in the last cache between two passes, where prefetching only costs
_AHEAD_BYTES = 12 * 2**10  # of rows prefetched: with the block in work they fit in the first cache


def blocks(num_rows: int) -> Iterator[slice]:
    """Consecutive slices that cover the rows, each small enough for the cache."""
    return (slice(start, min(start + BLOCK_ROWS, num_rows)) for start in range(0, num_rows, BLOCK_ROWS))


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows for the kernels: whole blocks, cut into shares, and what lies behind them, which they may touch."""

    features: NDArray[np.float32]  # (rows * d + LANES - 1 or more,)
    labels: NDArray[np.int32]  # (rows,)
    factors: NDArray[np.float32]  # (rows,) of their losses, or (0,) where all are 1
    bounds: NDArray[np.int64]  # (shares + 1,)
    ahead: int
    totals: NDArray[np.float64]  # (shares, weight rows * d)


class HostRows:
    """The rows of a run, as the passes over them need them.

    A context: on leaving it, every buffer is overwritten and the threads end. The caller's rows are only read, and must
    stay as they are until then.
    """

    def __init__(
        self,
        features: NDArray[np.float32],  # (n, d), each row of norm at most 1
        labels: NDArray[np.int32],  # (n,), those that the loss takes
        weights: NDArray[np.int32] | None = None,  # (n,), in units of 2^-23, where rows have them
        *,
        num_classes: int,
        loss: Loss = LOGISTIC,
        threads: int | None = None,
    ) -> None:
        """`threads` is an upper limit: None for as many as this process may use.

        Raises ValueError if the rows cannot be read in place.
        """
        features, labels = np.asarray(features), np.asarray(labels)
        _require(features, labels, threads)
        self._loss, self._kernel = loss, _kernel(loss)
        self._factors = np.array(loss.class_weights or (), dtype=np.float32)
        self._num_classes, self._shape = num_classes, (loss.weight_rows(num_classes), features.shape[1])
        self._features, self._labels, self._row_weights = features, labels, weights
        self._parts: dict[tuple[int | None, int | None], tuple[_Part, _Part]] = {}  # of batches that were read
        self._threads = threads = max(1, min(threads or num_cpus(), _num_shares(len(labels), *self._shape)))

        weight_rows, width = self._shape
        even = weight_rows if weight_rows == 1 else weight_rows + weight_rows % 2
        self._weights = _zeros(even * width)
        self._sums = [_zeros(even * _padded(width)) for _ in range(threads)]
        self._scores = [_zeros(ROWS * (1 if weight_rows == 1 else _padded(even))) for _ in range(threads)]
        self._pool = ThreadPoolExecutor(max(1, threads - 1), "gradient")

    @property
    def threads(self) -> int:
        return self._threads

    def gradient(self, parameters: Tensor, here: slice = slice(None)) -> Tensor:
        """Sum over the rows `here` of the gradient of their loss at `parameters`  # (1, d) or (C, d) float64, as they
        are

        Raises ValueError for labels of these rows that are none.
        """
        if parameters.shape != self._shape:
            raise ValueError(f"Expected parameters of shape {self._shape}")
        body, tail = self._of(here)
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
            _overwrite(self._weights, body.totals, tail.totals)  # an iterate, and how the rows pull at it

    def look(self, slots: Sequence[slice]) -> None:
        """Keep nothing of rows that were there before: from now on those of `slots` are."""
        for body, tail in self._parts.values():
            _overwrite(body.labels, body.factors, body.totals, tail.totals, tail.features, tail.labels, tail.factors)
        self._parts.clear()

    def close(self) -> None:
        """Overwrite every buffer and end the threads. The object is of no use afterwards."""
        self._pool.shutdown()
        _overwrite(self._weights, *self._sums, *self._scores)
        self.look(())

    def _of(self, here: slice) -> tuple[_Part, _Part]:
        """All rows of a batch but the last few, and these."""
        found = self._parts.get((here.start, here.stop))
        if found is None:
            if len(self._parts) >= _MOST_PARTS:
                self.look(())
            labels = np.array(self._labels[here])  # kernels trust the labels, by which they find their place
            self._loss.require_labels(labels, self._num_classes)
            factors = np.zeros(0, np.float32) if self._row_weights is None else as_factors(self._row_weights[here])
            rows = self._features[here], labels, factors, self._shape[0]
            found = self._parts[here.start, here.stop] = _body(*rows), _tail(*rows)
        return found

    def _add(self, part: _Part, number: int, threads: int) -> None:
        shares = len(part.totals)
        self._run(part, number, shares * number // threads, shares * (number + 1) // threads)

    def _run(self, part: _Part, number: int, first: int, last: int) -> None:
        """Add the shares `first` to before `last` to their totals, in the buffers of thread `number`."""
        rows = part.features, part.labels, part.factors, part.bounds, first, last, self._shape[1], part.ahead
        scores, sums = self._scores[number], self._sums[number]
        if self._shape[0] == 1:
            kernels.one_score(*rows, *self._kernel, self._factors, self._weights, scores, sums, part.totals)
        else:
            grid = scores.reshape(ROWS, -1)
            kernel = self._kernel[0], self._num_classes, self._factors
            kernels.many_scores(*rows, *kernel, self._weights, grid, sums, part.totals)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _kernel(loss: Loss) -> tuple[int, float]:
    """The kernel's name for the loss, and its width."""
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
    """All rows but the last few, where they are."""
    num_rows, width = _num_in_body(len(features)), features.shape[1]
    shares = _num_shares(len(features), weight_rows, width)
    return _Part(
        features=features.reshape(-1),
        labels=labels[:num_rows],
        factors=factors[:num_rows],
        bounds=ROWS * (num_rows // ROWS * np.arange(shares + 1) // max(shares, 1)),
        ahead=max(1, _AHEAD_BYTES // (4 * width)) if features.nbytes > _CACHE_BYTES else 0,
        totals=np.zeros((shares, weight_rows * width)),
    )


def _num_shares(num_rows: int, weight_rows: int, width: int) -> int:
    """Into how many shares so many rows are cut."""
    num_rows = _num_in_body(num_rows)
    shares = min(_MOST_SHARES, num_rows * width * 4 * weight_rows // _SHARE_BYTES, num_rows // (ROWS * weight_rows))
    return max(shares, min(num_rows, 1))


def _tail(
    features: NDArray[np.float32], labels: NDArray[np.int32], factors: NDArray[np.float32], weight_rows: int
) -> _Part:
    """A copy of the last few rows, filled up by null rows to whole blocks."""
    rest, width = slice(_num_in_body(len(features)), None), features.shape[1]
    num_rows = ROWS * -(-len(labels[rest]) // ROWS)
    tail = _Part(
        features=np.zeros(num_rows * width + LANES - 1, np.float32),
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
    """Rows in whole blocks such that LANES - 1 numbers follow, however short a row is."""
    return max(0, num_rows - LANES + 1) // ROWS * ROWS


def _padded(size: int) -> int:
    return -(-size // LANES) * LANES


def _zeros(size: int) -> NDArray[np.float32]:
    """A buffer that starts where a cache line does: vectors that cross lines take twice as long to load."""
    line = 4 * LANES
    memory = np.zeros(4 * size + line, np.uint8)
    start = -memory.ctypes.data % line
    return memory[start : start + 4 * size].view(np.float32)


def _overwrite(*buffers: NDArray[Any]) -> None:
    for buffer in buffers:
        buffer.fill(0)


def num_cpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "process_cpu_count"):
        return os.process_cpu_count() or 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
