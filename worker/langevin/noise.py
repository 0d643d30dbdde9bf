"""Gaussian noise that can be neither predicted nor replayed.

The guarantee requires noise that is fresh, independent of the data and secret: an attacker who can replay it can
subtract it and read the state that it should hide. Library generators do not promise this (torch's CPU generator keeps
32 bits of its seed), so every source draws its own 256-bit key from the operating system and never reveals it.
"""

import os
import struct
from collections.abc import Iterator
from typing import NoReturn, Protocol

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor

from worker.langevin import exact

_KEY_BYTES = 32
_WORD_BYTES = 8
_CELLS = 2**52
_WORDS_AT_ONCE = 512
_NORMALS_AHEAD = 8192


class Noise(Protocol):
    """Source of independent standard normal numbers, fresh at every call."""

    def normal(self, size: int) -> Tensor: ...  # (size,) float64

    def rounded_normal(self, size: int, spread: float) -> Tensor: ...  # (size,) float64, integral


class SystemNoise:
    """Production noise source: an AES-256-CTR keystream, converted to normal numbers in two ways.

    `normal` is fast. A uniform is an odd multiple of 2^-53, and therefore strictly inside (0, 1) and symmetric about
    1/2. Its normal quantile, computed in float64, takes 2^52 values up to 8.21. An exact normal number exceeds 8.21
    with probability 2.2e-16, the mass that the truncated tails lose per number. The guarantee does not cover rounding
    to this grid, nor the rounding of the step. Small requests are served from one large draw: each number is returned
    once, in place, so that the caller can overwrite it after use.

    `rounded_normal` is exact: each integer is the nearest to an independent draw from N(0, spread^2) (`exact.py`).

    Each source has its own key, so sources are independent. A source belongs to the process that created it: it cannot
    be copied or pickled, and raises after a fork, where parent and child would draw the same noise."""

    __slots__ = ("_ahead", "_keystream", "_process")

    def __init__(self) -> None:
        self._keystream = Cipher(algorithms.AES(os.urandom(_KEY_BYTES)), modes.CTR(bytes(16))).encryptor()
        self._process = os.getpid()
        self._ahead = torch.zeros(0, dtype=torch.float64)

    def normal(self, size: int) -> Tensor:
        if size < 1:
            raise ValueError(f"Expected {size=} >= 1")
        self._require_own_process()
        if size > _NORMALS_AHEAD // 4:
            return self._normal(size)
        if size > len(self._ahead):
            self._ahead = self._normal(_NORMALS_AHEAD)
        normals, self._ahead = self._ahead[:size], self._ahead[size:]
        return normals

    def _normal(self, size: int) -> Tensor:
        words = torch.frombuffer(bytearray(self._bytes(size * _WORD_BYTES)), dtype=torch.int64)
        cells = words.bitwise_and_(_CELLS - 1).to(torch.float64)  # (size,) uniform on 0 .. 2^52 - 1
        normal: Tensor = torch.special.ndtri(cells.add_(0.5).div_(_CELLS))
        return normal

    def rounded_normal(self, size: int, spread: float) -> Tensor:
        if size < 1 or not 0 < spread < 2**50:
            raise ValueError(f"Expected {size=} >= 1 and 0 < {spread=} < 2^50")
        return torch.tensor(list(exact.rounded_normals(self._words().__next__, spread, size)), dtype=torch.float64)

    def _words(self) -> Iterator[int]:
        while True:
            yield from struct.unpack(f"<{_WORDS_AT_ONCE}Q", self._bytes(_WORDS_AT_ONCE * _WORD_BYTES))

    def _bytes(self, size: int) -> bytes:
        self._require_own_process()
        return self._keystream.update(bytes(size))

    def _require_own_process(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("A noise source cannot be used after a fork: make a new one in the child process")

    def __reduce__(self) -> NoReturn:
        raise TypeError("A noise source cannot be copied or pickled: its key must stay where it was drawn")
