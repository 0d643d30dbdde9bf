"""Ranks: the processes that share one run, each with its own part of the rows."""

import datetime
import socket
from typing import Any, Protocol

from torch import Tensor, distributed

from worker.langevin.gradient import BLOCK_ROWS

_TORCH: Any = distributed  # has no types for what is made by hand here, so that it stays on the loopback interface
_LOOPBACK = "127.0.0.1"
_PATIENCE = datetime.timedelta(minutes=10)
"""How long a rank waits for the others in one step, if none of them ends."""


class Ranks(Protocol):
    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def total(self, tensor: Tensor) -> None:
        """Replace the tensor by its sum over the ranks, the same bits on all of them  # any shape, float64, CPU"""

    def shard(self, num_rows: int) -> slice:
        """The rows of this rank."""


class _Alone:
    rank = 0
    size = 1

    def total(self, tensor: Tensor) -> None:
        return

    def shard(self, num_rows: int) -> slice:
        return slice(0, num_rows)


ALONE: Ranks = _Alone()


class RankLost(RuntimeError):
    """Another rank has ended, or has not answered for ten minutes: this one cannot go on."""


class LoopbackRanks:
    """Ranks of one machine, joined by gloo over its loopback interface; no other interface is listened on.

    Rank 0 has `meeting`, a listening socket on that interface; the others know its port.

    gloo sums in a ring: each part of the tensor is summed by one rank, which hands it to the others, so all have the
    same bits. They differ in rounding from those of one process, whose gradient pass groups the rows otherwise.
    """

    def __init__(self, *, rank: int, size: int, meeting: socket.socket | int) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"Expected 0 <= {rank=} < {size=}")
        self.rank = rank
        self.size = size
        if isinstance(meeting, socket.socket):
            port = meeting.getsockname()[1]
            store = _TORCH.TCPStore(_LOOPBACK, port, size, is_master=True, master_listen_fd=meeting.detach())
        else:
            store = _TORCH.TCPStore(_LOOPBACK, meeting, size, is_master=False)
        gloo = _TORCH.ProcessGroupGloo
        options = gloo._Options()
        options._timeout = _PATIENCE
        options._devices = [gloo.create_device(hostname=_LOOPBACK)]
        self._group = gloo(store, rank, size, options)

    def total(self, tensor: Tensor) -> None:
        """Raises `RankLost`, which leaves the tensor undefined."""
        try:
            self._group.allreduce([tensor], _TORCH.AllreduceOptions()).wait()  # a sum, unless told otherwise
        except RuntimeError as error:
            raise RankLost("Another rank of this run has ended.") from error

    def shard(self, num_rows: int) -> slice:
        blocks = num_blocks(num_rows)
        start, stop = (blocks * rank // self.size for rank in (self.rank, self.rank + 1))
        return slice(start * BLOCK_ROWS, min(stop * BLOCK_ROWS, num_rows))


def listening() -> socket.socket:
    """Where the ranks of a run meet: a port of the loopback interface that was free."""
    return socket.create_server((_LOOPBACK, 0), backlog=64)


def num_blocks(num_rows: int) -> int:
    """Blocks of rows, of which a rank has at least one: there cannot be more ranks."""
    return -(-num_rows // BLOCK_ROWS)
