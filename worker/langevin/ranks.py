"""Ranks: the processes that share one run, each with its own part of the rows."""

import socket
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from worker.langevin.gradient import BLOCK_ROWS


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
    """Another rank has ended: this one cannot go on."""


class LinkedRanks:
    """Ranks of one machine, each joined to rank 0 by a pair of sockets that nobody else can open or listen to.

    `links`: of rank 0 one for each other rank, in order; of the others one, to rank 0. What goes over them are
    gradients without noise, and the noise: that is why it is no network, not even a local one.

    Rank 0 adds in the order of the ranks and hands out the sum, so all have the same bits. They may differ in rounding
    from one process's sum, which groups the rows otherwise.
    """

    def __init__(self, *, rank: int, size: int, links: Sequence[socket.socket]) -> None:
        if not 0 <= rank < size or len(links) != (1 if rank else size - 1):
            raise ValueError(f"Expected 0 <= {rank=} < {size=} and a link to each rank that is talked to")
        self.rank = rank
        self.size = size
        self._links = links

    def total(self, tensor: Tensor) -> None:
        """Raises `RankLost`, which leaves the tensor undefined."""
        mine = _bytes(tensor)
        try:
            if self.rank:
                self._links[0].sendall(mine)
                _receive(self._links[0], mine)
                return
            share = torch.empty_like(tensor)
            for link in self._links:
                _receive(link, _bytes(share))
                tensor += share
            share.zero_()
            for link in self._links:
                link.sendall(mine)
        except OSError as error:
            raise RankLost("Another rank of this run has ended.") from error

    def shard(self, num_rows: int) -> slice:
        blocks = num_blocks(num_rows)
        start, stop = (blocks * rank // self.size for rank in (self.rank, self.rank + 1))
        return slice(start * BLOCK_ROWS, min(stop * BLOCK_ROWS, num_rows))


def links(size: int) -> tuple[list[socket.socket], list[socket.socket]]:
    """The ends of rank 0, and the ends of the other ranks, in order; whoever made them closes them."""
    pairs = [socket.socketpair() for _ in range(size - 1)]
    return [one for one, _ in pairs], [other for _, other in pairs]


def num_blocks(num_rows: int) -> int:
    """Blocks of rows, of which a rank has at least one: there cannot be more ranks."""
    return -(-num_rows // BLOCK_ROWS)


def _bytes(tensor: Tensor) -> memoryview:
    """The tensor's memory."""
    numbers: Any = tensor.numpy()
    return memoryview(numbers).cast("B")


def _receive(link: socket.socket, into: memoryview) -> None:
    while into:
        received = link.recv_into(into)
        if not received:
            raise ConnectionResetError
        into = into[received:]
