"""A network at work: a process that was started for it (`lethe.encoders.child`), asked for features batch by batch."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe import hardening
from lethe.contract.problems import FieldError, NetworkFailed, NetworkInvalid
from lethe.encoders.limits import Limits

_STARTS_WITHIN = 60.0  # seconds, before the time of the network begins
_BATCH_ROWS = 32
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Encoder:
    """A network that makes features of rows. `facts`: what it is, where it was examined."""

    def __init__(self, connection: Connection, limits: Limits, *, input_size: int, facts: dict[str, Any]) -> None:
        self.facts = facts
        self._connection = connection
        self._limits = limits
        self._input_size = input_size

    def encode(
        self, rows: NDArray[np.floating[Any]], *, told: Callable[[int], object] = lambda num_rows: None
    ) -> NDArray[np.float32]:
        """The features (n, k) of rows (n, input_size), as the network computes them: they may be NaN. `told`: after
        each batch, how many of them there are.

        Raises `NetworkFailed` where it takes too long or too much memory, and ends.
        """
        if rows.ndim != 2 or rows.shape[1] != self._input_size:
            raise ValueError(f"Expected rows (n, {self._input_size}), got {rows.shape}")
        found = []
        for start in range(0, len(rows), _BATCH_ROWS):
            batch = np.ascontiguousarray(rows[start : start + _BATCH_ROWS], dtype=np.float32)
            _send(self._connection, batch.tobytes())
            _answer(self._connection, self._limits.seconds, self._limits)
            found.append(np.frombuffer(_received(self._connection, self._limits), np.float32).reshape(len(batch), -1))
            told(start + len(batch))
        return np.concatenate(found) if found else np.empty((0, 0), np.float32)


@contextmanager
def examined(content: bytes, limits: Limits) -> Iterator[Encoder]:
    """A network that comes for the first time, with what it is in `facts`. Raises `NetworkInvalid`, `NetworkFailed`."""
    with _process(limits) as connection:
        facts = _opened(connection, content, None, limits)
        yield Encoder(connection, limits, input_size=int(np.prod(facts["input_shape"])), facts=facts)


@contextmanager
def started(content: bytes, *, input_size: int, batch_size: int, limits: Limits) -> Iterator[Encoder]:
    """A network that was examined before, at work until the block ends. Raises `NetworkFailed`."""
    with _process(limits) as connection:
        facts = _opened(connection, content, batch_size, limits)
        yield Encoder(connection, limits, input_size=input_size, facts=facts)


@contextmanager
def _process(limits: Limits) -> Iterator[Connection]:
    mine, theirs = socket.socketpair()
    program = f"from lethe.encoders import child; child.main({theirs.fileno()}, {limits.memory_bytes})"
    with theirs:
        process = subprocess.Popen(  # noqa: S603  our own interpreter
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=hardening.bare_environment() | _ONE_THREAD,
        )
    try:
        with Connection(mine.detach()) as connection:
            yield connection
    finally:
        process.kill()
        process.wait()


def _opened(connection: Connection, content: bytes, batch_size: int | None, limits: Limits) -> dict[str, Any]:
    _send(connection, json.dumps(batch_size).encode())
    _send(connection, content)
    return _answer(connection, _STARTS_WITHIN + limits.seconds, limits)


def _send(connection: Connection, content: bytes) -> None:
    try:
        connection.send_bytes(content)
    except OSError:  # it has ended, which is heard next
        return


def _answer(connection: Connection, seconds: float, limits: Limits) -> dict[str, Any]:
    if not connection.poll(seconds):
        raise _failed(f"The network took longer than {limits.seconds:g} seconds for a batch")
    said: dict[str, Any] = json.loads(_received(connection, limits))
    if "refused" in said:
        raise NetworkInvalid(said["refused"], [FieldError("file", "expected an ONNX network that can be run")])
    if "failed" in said:
        raise _ended(limits)
    return said


def _received(connection: Connection, limits: Limits) -> bytes:
    try:
        return connection.recv_bytes()
    except (EOFError, OSError):
        raise _ended(limits) from None


def _ended(limits: Limits) -> NetworkFailed:
    return _failed(f"The network's process ended: it may need more memory than {limits.memory_bytes} bytes")


def _failed(why: str) -> NetworkFailed:
    return NetworkFailed(
        f"{why}; send a smaller network, or raise LETHE_NETWORK_MEMORY_BYTES or LETHE_NETWORK_SECONDS."
    )
