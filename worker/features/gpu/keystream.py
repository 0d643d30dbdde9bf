"""Noise generated on the device: a ChaCha20 keystream from integer tensor operations, turned into normal numbers.

`worker/langevin/noise.py` gives the reasons. ChaCha20 (RFC 8439) requires only 32-bit additions, exclusive ors and
rotations, which are exact and the same on every device.
"""

import os
from typing import NoReturn, Protocol, Self

import torch
from torch import Tensor

# "expand 32-byte k"
CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
_KEY_BYTES = 32
_WORDS_PER_BLOCK = 16
_NUMBERS_PER_BLOCK = 8
_NUMBERS_AT_ONCE = 2**20
_BLOCKS = 2**62
_CELLS = 2**52
_DOUBLE_ROUNDS = 10
_TO_DIAGONALS = (0, 1, 2, 3, 5, 6, 7, 4, 10, 11, 8, 9, 15, 12, 13, 14)
_TO_COLUMNS = (0, 1, 2, 3, 7, 4, 5, 6, 10, 11, 8, 9, 13, 14, 15, 12)


class FillsNoise(Protocol):
    """Source of independent standard normal numbers, fresh at every call."""

    def fill(self, out: Tensor) -> None: ...  # (k, d) float64, contiguous, on the source's device


class DeviceNoise:
    """Production noise source on a device, which expands a fresh 256-bit key from the operating system.

    Block i of the keystream is ChaCha20 (20 rounds) at the 64-bit counter i, nonce 0: words 12 and 13 of the state are
    the counter, low half first, as in Bernstein's original; below 2^32 blocks this is RFC 8439 with nonce 0. Each
    counter is used once, and each key for at most 2^62 blocks. Each number is the normal quantile, in float64, of an
    odd multiple of 2^-53 formed from the low 52 bits of 8 bytes of keystream: 2^52 values up to 8.21, so the truncated
    tails lose a mass of 2.2e-16 per number, as in `SystemNoise`.

    A source belongs to the process that created it: it cannot be copied or pickled, and raises after a fork. The key
    stays on the device; closing overwrites it.
    """

    __slots__ = ("_initial", "_next_block", "_process")

    def __init__(self, device: torch.device) -> None:
        key = bytearray(os.urandom(_KEY_BYTES))
        # Constants, key, counter and nonce.
        initial = torch.zeros(_WORDS_PER_BLOCK, 1, dtype=torch.int32, device=device)
        initial[:4, 0] = torch.tensor(CONSTANTS, dtype=torch.int32)
        initial[4:12, 0] = torch.frombuffer(key, dtype=torch.int32)
        key[:] = bytes(_KEY_BYTES)
        self._initial: Tensor | None = initial
        self._next_block = 0
        self._process = os.getpid()

    def fill(self, out: Tensor) -> None:
        """Overwrite `out`, float64 and contiguous, with independent standard normal numbers."""
        if out.numel() < 1 or out.dtype != torch.float64 or not out.is_contiguous():
            raise ValueError("Expected room for at least one number, contiguous and in float64")
        flat = out.view(-1)
        for start in range(0, len(flat), _NUMBERS_AT_ONCE):
            numbers = flat[start : start + _NUMBERS_AT_ONCE]
            words = self._words(-(-len(numbers) // _NUMBERS_PER_BLOCK))
            quantiles(words[: len(numbers)], out=numbers)
            words.zero_()

    def close(self) -> None:
        if self._initial is not None:
            self._initial.zero_()
            self._initial = None

    def _words(self, num_blocks: int) -> Tensor:
        """Return the next blocks of the keystream as little-endian 8-byte integers  # (8 num_blocks,) int64"""
        if os.getpid() != self._process:
            raise RuntimeError("A noise source cannot be used after a fork: make a new one in the child process")
        if self._initial is None:
            raise RuntimeError("This noise source is closed: make a new one")
        first, self._next_block = self._next_block, self._next_block + num_blocks
        if self._next_block > _BLOCKS:
            raise RuntimeError("This noise source has used up its counter: make a new one")
        counters = torch.arange(first, first + num_blocks, dtype=torch.int64, device=self._initial.device)
        states = self._initial.repeat(1, num_blocks)  # (16, num_blocks)
        states[12:14] = counters.view(torch.int32).view(num_blocks, 2).t()
        chacha20_(states)
        blocks = torch.empty(num_blocks, _WORDS_PER_BLOCK, dtype=torch.int32, device=states.device).copy_(states.t())
        states.zero_()
        return blocks.view(torch.int64).view(-1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("A noise source cannot be copied or pickled: its key must stay where it was drawn")


def quantiles(words: Tensor, *, out: Tensor) -> None:
    """Write to `out`, (n,) float64, the normal quantile of the cell (of 2^52) given by each word's low 52 bits.

    Only these bits remain in `words`, (n,) int64.
    """
    out.copy_(words.bitwise_and_(_CELLS - 1))
    torch.special.ndtri(out.add_(0.5).div_(_CELLS), out=out)


def chacha20_(states: Tensor) -> None:
    """Replace each column with its keystream block: the block function of RFC 8439, section 2.3  # (16, n) int32

    Each row of the RFC's square is stored as four consecutive rows, so one operation handles all four columns of all
    blocks in parallel. Intermediate values, which would reveal the key, are overwritten.
    """
    to_diagonals, to_columns = (torch.tensor(order, device=states.device) for order in (_TO_DIAGONALS, _TO_COLUMNS))
    work, turned, spare = states.clone(), torch.empty_like(states), torch.empty_like(states[:4])
    for _ in range(_DOUBLE_ROUNDS):
        for order in (to_diagonals, to_columns):
            _quarter_rounds_(work, spare)
            torch.index_select(work, 0, order, out=turned)
            work, turned = turned, work
    states.add_(work)
    for scratch in (work, turned, spare):
        scratch.zero_()


def _quarter_rounds_(square: Tensor, spare: Tensor) -> None:
    """Apply the quarter round of RFC 8439, section 2.1, to all columns of the square at once."""
    a, b, c, d = (square[start : start + 4] for start in (0, 4, 8, 12))
    for total, addend, mixed, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        total.add_(addend)
        mixed.bitwise_xor_(total)
        torch.bitwise_left_shift(mixed, bits, out=spare)
        # >> copies the sign bit, which the mask removes.
        mixed.bitwise_right_shift_(32 - bits).bitwise_and_((1 << bits) - 1)
        mixed.bitwise_or_(spare)
