"""Steps of the chain taken on the device, many without a word from the host."""

import math
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from worker.langevin.device.keystream import FillsNoise
from worker.langevin.device.passes import Pass
from worker.langevin.step import State

STEPS_PER_GRAPH = 16
_NUMBERS_AT_ONCE = 2**20


class Walk:
    """x <- Proj_R((1 - step_size * l2) x - (step_size / num_slots) G(x) + nu xi), as `step.projected_noisy_step` does.

    The pass computes G, `noise` fills a buffer with the xi of the next steps, of which a cursor on the device picks
    one, so that every step is the same sequence of device operations. On a GPU, `STEPS_PER_GRAPH` of them are captured
    as one graph, which gives the same bits as taking them one by one.

    A context: on leaving it, every buffer that held an iterate, its gradient or noise is overwritten.
    """

    def __init__(
        self,
        rows_pass: Pass,
        state: State,
        *,
        noise: FillsNoise,
        num_slots: int,
        l2: float,
        step_size: float,
        noise_scale: float,
        radius: float,
        push: Tensor | None = None,
    ) -> None:
        device, (size, width) = rows_pass.total.device, (state.parameters.numel(), state.parameters.shape[1])
        self._pass, self._noise = rows_pass, noise
        self._keep, self._downhill = 1 - step_size * l2, -step_size / num_slots
        self._noise_std = math.sqrt(2 * step_size) * noise_scale
        self._weights, self._gradient = rows_pass.weights[:, :width], rows_pass.total[:, :width]
        self._here = torch.cat((state.parameters.reshape(-1), state.lanes)).to(device)
        self._parameters, self._lanes = self._here[:size].view_as(state.parameters), self._here[size:]
        self._push = torch.zeros_like(self._lanes) if push is None else push.to(device)
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
        graphs = count // STEPS_PER_GRAPH if in_graphs and self._here.is_cuda else 0
        if graphs and self._graph is None:
            self._graph = self._captured()
        for _ in range(graphs):
            assert self._graph is not None
            self._graph.replay()
        for _ in range(count - graphs * STEPS_PER_GRAPH):
            self._step()
        if not math.isfinite(float(self._norms)):
            raise FloatingPointError("The parameters are no longer finite numbers")

    def _step(self) -> None:
        self._weights.copy_(self._parameters)
        self._pass.run()
        torch.index_select(self._ahead, 0, self._cursor, out=self._drawn)
        self._cursor.add_(1)
        self._here.mul_(self._keep)
        self._parameters.add_(self._gradient, alpha=self._downhill)
        self._lanes.add_(self._push)
        self._here.add_(self._drawn.view(-1), alpha=self._noise_std)
        torch.linalg.vector_norm(self._parameters, out=self._norm)
        self._norms.add_(self._norm)  # stays finite as long as every norm is
        torch.div(self._radius, self._norm, out=self._scale)
        self._parameters.mul_(self._scale.clamp_(max=1))  # by exactly 1 inside the ball

    def _captured(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        here = torch.cuda.current_stream()
        with torch.cuda.graph(graph, stream=here, capture_error_mode="thread_local"):
            for _ in range(STEPS_PER_GRAPH):
                self._step()
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
