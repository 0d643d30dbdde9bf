"""Engine of the `gpu` feature: a run's rows reside on one device, and the steps are taken there."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lethe.encoding.rows import as_factors
from lethe.proof.mechanism import Mechanism
from worker.evidence import Push
from worker.features.gpu import keystream, passes
from worker.langevin import engines, losses
from worker.langevin.schedule import Schedule, Step
from worker.langevin.step import State

STEPS_PER_GRAPH = 16
_NOISE_AT_ONCE = 2**20


class Walk:
    """Sequence of steps x <- Proj_R((1 - step_size * l2) x - (step_size / slots) G(x) + nu xi), equivalent to
    `step.projected_noisy_step`, with the batches and step sizes of a `schedule`.

    `rows_pass` computes G. `noise` fills a buffer with xi for the next steps, from which a cursor on the device
    selects, so that every step is the same sequence of device operations. On a GPU, `STEPS_PER_GRAPH` steps are
    captured as one graph, with bitwise identical results. `place` maps slots to rows of `rows_pass`.

    A context manager: on exit every buffer that held an iterate, its gradient or noise is overwritten.
    """

    def __init__(
        self,
        rows_pass: passes.Pass,
        state: State,
        *,
        noise: keystream.FillsNoise,
        schedule: Schedule,
        l2: float,
        step_size: float,
        noise_scale: float,
        radius: float,
        push: Push | None = None,
        place: Callable[[slice], slice] = lambda slots: slots,
    ) -> None:
        device, (size, width) = rows_pass.total.device, (state.parameters.numel(), state.parameters.shape[1])
        self._pass, self._noise = rows_pass, noise
        self._schedule, self._place, self._done = schedule, place, state.steps_done
        self._step_size, self._l2, self._noise_scale = step_size, l2, noise_scale
        self._weights, self._gradient = rows_pass.weights[:, :width], rows_pass.total[:, :width]
        self._iterate = torch.cat((state.parameters.reshape(-1), state.lanes)).to(device)
        self._parameters, self._lanes = self._iterate[:size].view_as(state.parameters), self._iterate[size:]
        self._push = push and push.to(device)
        self.longest_chunk = max(1, _NOISE_AT_ONCE // len(self._iterate))
        # Noise of the next steps.
        self._ahead = self._iterate.new_zeros(self.longest_chunk, len(self._iterate))
        self._drawn = self._iterate.new_zeros(1, len(self._iterate))
        self._norm, self._scale, self._norms = self._iterate.new_zeros(3).unbind()
        self._radius = torch.full_like(self._norm, radius)
        self._cursor = torch.zeros(1, dtype=torch.int64, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None

    def state(self, *, steps_done: int) -> State:
        """Return a copy of the current state, on the CPU."""
        parameters, lanes = (part.to("cpu", copy=True) for part in (self._parameters, self._lanes))
        return State(parameters=parameters, steps_done=steps_done, lanes=lanes)

    def take(self, count: int, *, in_graphs: bool = True) -> None:
        """Take `count` steps, 1 <= count <= `longest_chunk`, and wait for them to finish. Raises FloatingPointError,
        without quoting a value, if a step's result is not finite."""
        self._noise.fill(self._ahead[:count])
        self._cursor.zero_()
        alike = min(count, max(0, self._schedule.num_alike - self._done))
        graphs = alike // STEPS_PER_GRAPH if in_graphs and self._iterate.is_cuda else 0
        if graphs and self._graph is None:
            self._graph = self._captured()
        for _ in range(graphs):
            assert self._graph is not None
            self._graph.replay()
        for done in range(graphs * STEPS_PER_GRAPH, count):
            self._step(self._schedule.step(self._done + done))
        self._done += count
        if not math.isfinite(float(self._norms)):
            raise FloatingPointError("The parameters are no longer finite numbers")

    def _step(self, step: Step) -> None:
        step_size = self._step_size * step.share
        self._weights.copy_(self._parameters)
        self._pass.run(self._place(step.rows))
        torch.index_select(self._ahead, 0, self._cursor, out=self._drawn)
        self._cursor.add_(1)
        self._iterate.mul_(1 - step_size * self._l2)
        self._parameters.add_(self._gradient, alpha=-step_size / (step.rows.stop - step.rows.start))
        if self._push:
            self._lanes.add_(self._push.of(step.batch), alpha=step.share)
        self._iterate.add_(self._drawn.view(-1), alpha=math.sqrt(2 * step_size) * self._noise_scale)
        torch.linalg.vector_norm(self._parameters, out=self._norm)
        # This is finite as long as every norm is finite.
        self._norms.add_(self._norm)
        torch.div(self._radius, self._norm, out=self._scale)
        # Inside the ball, the factor is exactly 1.
        self._parameters.mul_(self._scale.clamp_(max=1))

    def _captured(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for _ in range(STEPS_PER_GRAPH):
                # All of these steps are identical, so any of them will do.
                self._step(self._schedule.step(0))
        return graph

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._graph = None
        self._pass.clear()
        for buffer in (self._iterate, self._ahead, self._drawn, self._norm, self._scale, self._norms, self._cursor):
            buffer.zero_()


# Columns per multiple: rows start at multiples of 64 bytes, and every thread reads 16 bytes at once.
_ALIGNED = 16
_UPLOAD_BYTES = 2**26
_SECONDS_PER_CHUNK = 0.25
_GROWTH = 8


class DeviceRows:
    """Rows of the given slots in float32 on `device`, copied block by block. The caller's rows are only read.

    A context manager: on exit the copy is overwritten and its memory released. Raises MemoryError if the rows do not
    fit on the device.
    """

    def __init__(
        self,
        features: NDArray[np.float32],  # (n, d)
        labels: NDArray[np.int32],  # (n,)
        weights: NDArray[np.int32] | None = None,  # (n,), in units of 2^-23
        *,
        num_classes: int,
        loss: losses.Loss = losses.LOGISTIC,
        device: torch.device,
        slots: Sequence[slice] | None = None,
    ) -> None:
        """Copy the rows of `slots`, which are disjoint ranges; None copies all rows."""
        self._device, self._width = device, features.shape[1]
        self._source, self._num_classes, self._loss = (features, labels), num_classes, loss
        self._row_weights = weights
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._open((slice(0, len(features)),) if slots is None else tuple(slots))

    def look(self, slots: Sequence[slice]) -> None:
        """Overwrite the copy, then copy the rows of these slots."""
        self._clear()
        self._open(tuple(slots))

    def gradient(self, parameters: Tensor, block: slice = slice(None)) -> Tensor:
        """Return the sum of the loss gradients over the rows `block`  # (1, d) or (C, d) float64, on the CPU"""
        with self._computing():
            try:
                self._pass.weights[:, : self._width].copy_(parameters)
                self._pass.run(self._place(block))
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
        noise: keystream.FillsNoise | None = None,
    ) -> State:
        """Take the next `steps` noisy projected steps of the `schedule` on the device and return the new state, on the
        CPU. `state` does not change. `push` is the displacement of the lanes.

        `noise` defaults to a new `DeviceNoise`. `on_progress(steps_done)` is called a few times a second and may raise
        to stop the steps. Raises FloatingPointError, without quoting a value, if a step's result is not finite.
        """
        with ExitStack() as stack:
            stack.enter_context(self._computing())
            source = noise if noise is not None else stack.enter_context(keystream.DeviceNoise(self._device))
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
        """Overwrite the rows and release their memory. The object cannot be used afterwards."""
        self._clear()
        if self._stream is not None:
            self._stream.synchronize()
            torch.cuda.empty_cache()

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Enter the rows' device and stream (graphs need a separate stream), in full precision without autograd."""
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(passes.full_precision())
            if self._stream is not None:
                stack.enter_context(torch.cuda.device(self._device))
                stack.enter_context(torch.cuda.stream(self._stream))
            yield

    def _open(self, slots: tuple[slice, ...]) -> None:
        self._slots = slots
        num_rows = sum(part.stop - part.start for part in slots)
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
            for part in slots:
                place = self._place(part)
                self._upload(features[part], labels[part], self._rows[place], self._labels[place])
                if self._factors is not None and self._row_weights is not None:
                    self._factors[place].copy_(torch.from_numpy(as_factors(self._row_weights[part])))

    def _place(self, row_range: slice) -> slice:
        """Return the range of the copy that contains these slots' rows."""
        if self._slots == (slice(0, len(self._source[0])),):
            return row_range
        first = 0
        for part in self._slots:
            if part.start <= row_range.start and row_range.stop <= part.stop:
                return slice(first + row_range.start - part.start, first + row_range.stop - part.start)
            first += part.stop - part.start
        raise IndexError(f"Expected slots {row_range.start} to {row_range.stop} to be on the device")

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
        """Copy the rows through one buffer padded with zero columns, then overwrite the buffer."""
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

    def __exit__(self, *_error: object) -> None:
        self.close()


def open_rows(
    mechanism: Mechanism,
    features: NDArray[np.float32],
    labels: NDArray[np.int32],
    weights: NDArray[np.int32] | None,
    _: engines.Backend,
    slots: Sequence[slice],
    *,
    device: torch.device,
) -> DeviceRows | None:
    """Copy a linear model's rows to a GPU (`worker.langevin.engines.Engine`)."""
    if device.type == "cpu" or mechanism.is_tangent:
        return None
    num_classes, loss = mechanism.num_classes, losses.Loss.of(mechanism)
    return DeviceRows(features, labels, weights, num_classes=num_classes, loss=loss, device=device, slots=slots)


ENGINES = (open_rows,)
