"""Steps of the chain taken on the device, many without a word from the host."""

import math
from collections.abc import Callable
from types import TracebackType
from typing import Self

import torch

from worker.audit.lanes import Push
from worker.langevin.device.keystream import FillsNoise
from worker.langevin.device.passes import Pass
from worker.langevin.schedule import Schedule, Step
from worker.langevin.step import State

STEPS_PER_GRAPH = 16
_NUMBERS_AT_ONCE = 2**20


class Walk:
    """x <- Proj_R((1 - step_size * l2) x - (step_size / slots) G(x) + nu xi), as `step.projected_noisy_step` does, on
    the batches and with the step sizes of a `schedule`.

    The pass computes G, `noise` fills a buffer with the xi of the next steps, of which a cursor on the device picks
    one, so that every step is the same sequence of device operations. On a GPU, `STEPS_PER_GRAPH` of them are captured
    as one graph, which gives the same bits as taking them one by one. `place`: where slots are among the pass's rows.

    A context: on leaving it, every buffer that held an iterate, its gradient or noise is overwritten.
    """

    def __init__(
        self,
        rows_pass: Pass,
        state: State,
        *,
        noise: FillsNoise,
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
        self._here = torch.cat((state.parameters.reshape(-1), state.lanes)).to(device)
        self._parameters, self._lanes = self._here[:size].view_as(state.parameters), self._here[size:]
        self._push = push and push.to(device)
        self.longest_chunk = max(1, _NUMBERS_AT_ONCE // len(self._here))
        self._ahead = self._here.new_zeros(self.longest_chunk, len(self._here))  # noise of the next steps
        self._drawn = self._here.new_zeros(1, len(self._here))
        self._norm, self._scale, self._norms = self._here.new_zeros(3).unbind()
        self._radius = torch.full_like(self._norm, radius)
        self._cursor = torch.zeros(1, dtype=torch.int64, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None

    def state(self, *, steps_done: int) -> State:
        """A copy, on the CPU, of where the walk is."""
        parameters, lanes = (there.to("cpu", copy=True) for there in (self._parameters, self._lanes))
        return State(parameters=parameters, steps_done=steps_done, lanes=lanes)

    def take(self, count: int, *, in_graphs: bool = True) -> None:
        """Take `count` steps, 1 <= count <= `longest_chunk`, and wait for them.

        Raises FloatingPointError, which quotes no number, if one of them was not finite.
        """
        self._noise.fill(self._ahead[:count])
        self._cursor.zero_()
        alike = min(count, max(0, self._schedule.num_alike - self._done))
        graphs = alike // STEPS_PER_GRAPH if in_graphs and self._here.is_cuda else 0
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
        self._here.mul_(1 - step_size * self._l2)
        self._parameters.add_(self._gradient, alpha=-step_size / (step.rows.stop - step.rows.start))
        if self._push:
            self._lanes.add_(self._push.of(step.batch), alpha=step.share)
        self._here.add_(self._drawn.view(-1), alpha=math.sqrt(2 * step_size) * self._noise_scale)
        torch.linalg.vector_norm(self._parameters, out=self._norm)
        self._norms.add_(self._norm)  # stays finite as long as every norm is
        torch.div(self._radius, self._norm, out=self._scale)
        self._parameters.mul_(self._scale.clamp_(max=1))  # by exactly 1 inside the ball

    def _captured(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        here = torch.cuda.current_stream()
        with torch.cuda.graph(graph, stream=here, capture_error_mode="thread_local"):
            for _ in range(STEPS_PER_GRAPH):
                self._step(self._schedule.step(0))  # one of those that are alike
        return graph

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._graph = None
        self._pass.clear()
        for buffer in (self._here, self._ahead, self._drawn, self._norm, self._scale, self._norms, self._cursor):
            buffer.zero_()
