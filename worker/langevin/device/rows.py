"""A run's rows, resident on one device."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lethe.encoding.weights import as_factors
from worker.audit.lanes import Push
from worker.langevin.device import passes
from worker.langevin.device.keystream import DeviceNoise, FillsNoise
from worker.langevin.device.walk import Walk
from worker.langevin.losses import LOGISTIC, Loss
from worker.langevin.schedule import Schedule
from worker.langevin.step import State

_ALIGNED = 16  # columns: rows then start at multiples of 64 bytes, and every thread reads 16 at once
_UPLOAD_BYTES = 2**26
_SECONDS_PER_CHUNK = 0.25
_GROWTH = 8


class DeviceRows:
    """Rows in float32 on `device`, copied there block by block, those of some slots alone; the caller's are only read.

    A context: on leaving it the copy is overwritten and its memory given back. Raises MemoryError if the device has no
    room for the rows.
    """

    def __init__(
        self,
        features: NDArray[np.float32],  # (n, d)
        labels: NDArray[np.int32],  # (n,)
        weights: NDArray[np.int32] | None = None,  # (n,), in units of 2^-23, where rows have them
        *,
        num_classes: int,
        loss: Loss = LOGISTIC,
        device: torch.device,
        slots: Sequence[slice] | None = None,
    ) -> None:
        """`slots`: disjoint ranges, the rows that are there; None for all."""
        self._device, self._width = device, features.shape[1]
        self._source, self._num_classes, self._loss = (features, labels), num_classes, loss
        self._row_weights = weights
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._open((slice(0, len(features)),) if slots is None else tuple(slots))

    def look(self, slots: Sequence[slice]) -> None:
        """Overwrite the copy, and copy the rows of these slots."""
        self._clear()
        self._open(tuple(slots))

    def gradient(self, parameters: Tensor, here: slice = slice(None)) -> Tensor:
        """Sum over the rows `here` of the gradient of their loss at `parameters`  # (1, d) or (C, d) float64, on the
        CPU"""
        with self._computing():
            try:
                self._pass.weights[:, : self._width].copy_(parameters)
                self._pass.run(self._place(here))
                return self._pass.total[:, : self._width].to("cpu", copy=True)
            finally:
                self._pass.clear()

    def advance(
        self,
        state: State,
        *,
        steps: int,
        schedule: Schedule,
        l2: float,
        step_size: float,
        noise_scale: float,
        radius: float,
        on_progress: Callable[[int], None],
        push: Push | None = None,
        noise: FillsNoise | None = None,
    ) -> State:
        """Take the next `steps` noisy projected steps of the `schedule` on the device from `state`, which stays as it
        is; where they end, on the CPU. `push`: of the lanes.

        `noise` is a new `DeviceNoise` unless a source is given. `on_progress(steps_done)` is called a few times a
        second and stops the steps by raising. Raises FloatingPointError, which quotes no number, if a step is not
        finite.
        """
        with ExitStack() as stack:
            stack.enter_context(self._computing())
            source = noise if noise is not None else stack.enter_context(DeviceNoise(self._device))
            settings = {"l2": l2, "step_size": step_size, "noise_scale": noise_scale, "radius": radius}
            walk = stack.enter_context(
                Walk(self._pass, state, noise=source, schedule=schedule, place=self._place, push=push, **settings)
            )
            done, chunk = 0, 1
            while done < steps:
                count, started = min(chunk, steps - done), time.perf_counter()
                walk.take(count)
                affordable = int(count * _SECONDS_PER_CHUNK / (time.perf_counter() - started))
                chunk = max(1, min(_GROWTH * count, affordable, walk.longest_chunk))
                done += count
                on_progress(state.steps_done + done)
            return walk.state(steps_done=state.steps_done + done)

    def close(self) -> None:
        """Overwrite the rows and give their memory back. The object is of no use afterwards."""
        self._clear()
        if self._stream is not None:
            self._stream.synchronize()
            torch.cuda.empty_cache()

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """On the rows' device and stream (graphs ask for one of their own), in full precision, without autograd."""
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(passes.full_precision())
            if self._stream is not None:
                stack.enter_context(torch.cuda.device(self._device))
                stack.enter_context(torch.cuda.stream(self._stream))
            yield

    def _open(self, slots: tuple[slice, ...]) -> None:
        self._slots = slots
        num_rows = sum(one.stop - one.start for one in slots)
        columns = -(-self._width // _ALIGNED) * _ALIGNED
        with self._computing():
            try:
                self._rows = torch.empty(num_rows, columns, dtype=torch.float32, device=self._device)
                self._labels = torch.empty(num_rows, dtype=torch.int32, device=self._device)
                self._factors = None if self._row_weights is None else self._rows.new_empty(num_rows)
                self._pass = passes.over(self._rows, self._labels, self._num_classes, self._loss, self._factors)
            except torch.OutOfMemoryError as error:
                raise MemoryError(
                    f"{num_rows} rows of {columns} float32 columns do not fit on {self._device}: choose a device with "
                    "more free memory, a smaller batch_size, or compute on the CPU"
                ) from error
            features, labels = self._source
            for one in slots:
                there = self._place(one)
                self._upload(features[one], labels[one], self._rows[there], self._labels[there])
                if self._factors is not None and self._row_weights is not None:
                    self._factors[there].copy_(torch.from_numpy(as_factors(self._row_weights[one])))

    def _place(self, here: slice) -> slice:
        """The range of the copy that holds the rows of these slots."""
        if self._slots == (slice(0, len(self._source[0])),):
            return here
        first = 0
        for one in self._slots:
            if one.start <= here.start and here.stop <= one.stop:
                return slice(first + here.start - one.start, first + here.stop - one.start)
            first += one.stop - one.start
        raise IndexError(f"Expected slots {here.start} to {here.stop} to be on the device")

    def _clear(self) -> None:
        with self._computing():
            self._pass.clear()
            for buffer in (self._rows, self._labels, self._factors):
                if buffer is not None:
                    buffer.zero_()
        del self._pass, self._rows, self._labels, self._factors

    def _upload(
        self, features: NDArray[np.float32], labels: NDArray[np.int32], rows_there: Tensor, labels_there: Tensor
    ) -> None:
        """Copy the rows through one buffer, padded by zero columns, which is overwritten afterwards."""
        num_rows, columns = rows_there.shape
        block_rows = min(num_rows, max(1, _UPLOAD_BYTES // (4 * columns)))
        buffer = torch.zeros(block_rows, columns, pin_memory=self._device.type == "cuda")
        for start in range(0, num_rows, block_rows):
            block = slice(start, min(start + block_rows, num_rows))
            padded = buffer[: block.stop - start]
            padded.numpy()[:, : self._width] = features[block]
            rows_there[block].copy_(padded)
            labels_there[block].copy_(torch.from_numpy(np.array(labels[block])))
        buffer.zero_()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
