"""A network at work: a process that was started for it (`lethe.encoders.child`), asked for features batch by batch."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
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
_MOST_SAID = 2**26  # bytes of what the process says beside features
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Line:
    """The line to a network's process, which is ended where it does not answer in time."""

    def __init__(self, mine: socket.socket, child: "subprocess.Popen[bytes]", limits: Limits) -> None:
        self.limits = limits
        self._mine, self._child = mine, child
        self._connection = Connection(os.dup(mine.fileno()))

    @contextmanager
    def exchange(self, seconds: float) -> Iterator[None]:
        """All that is sent and answered within the block. Raises `NetworkFailed` where that takes longer, or the
        process ends, or says what it does not say by itself."""
        late = threading.Event()
        watchdog = threading.Timer(seconds, self._end, [late])
        watchdog.daemon = True
        watchdog.start()
        try:
            yield
        except (EOFError, OSError, ValueError):
            if late.is_set():
                raise _failed(f"The network took longer than {self.limits.seconds:g} seconds for a batch") from None
            raise self._ended() from None
        finally:
            watchdog.cancel()

    def _end(self, late: threading.Event) -> None:
        late.set()
        self._child.kill()
        with contextlib.suppress(OSError):
            self._mine.shutdown(socket.SHUT_RDWR)  # another process may hold the other end

    def send(self, content: bytes) -> None:
        with contextlib.suppress(OSError):  # it has ended, which is heard next
            self._connection.send_bytes(content)

    def answer(self) -> dict[str, Any]:
        said = json.loads(self._connection.recv_bytes(_MOST_SAID))
        if not isinstance(said, dict):
            raise ValueError("Expected what a network's process says")
        if "refused" in said:
            raise NetworkInvalid(said["refused"], [FieldError("file", "expected an ONNX network that can be run")])
        if "failed" in said:
            raise self._ended()
        return said

    def features(self, num_rows: int, num_columns: int) -> NDArray[np.float32]:
        """The features (n, k) of so many rows. Raises `NetworkFailed` where what comes is not of that shape."""
        num_bytes = 4 * num_rows * num_columns
        if self.answer().get("rows") == num_rows:
            found = self._connection.recv_bytes(num_bytes)
            if len(found) == num_bytes:
                return np.frombuffer(found, np.float32).reshape(num_rows, num_columns)
        raise NetworkFailed("The network gave another number of features than when it was examined; export it anew.")

    def _ended(self) -> NetworkFailed:
        return _failed(f"The network's process ended: it may need more memory than {self.limits.memory_bytes} bytes")

    def close(self) -> None:
        self._connection.close()


class Encoder:
    """A network that makes features of rows. `facts`: what it is, where it was examined."""

    def __init__(self, line: Line, *, input_size: int, output_size: int, facts: dict[str, Any]) -> None:
        self.facts = facts
        self._line = line
        self._input_size, self._output_size = input_size, output_size

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
            with self._line.exchange(self._line.limits.seconds):
                self._line.send(batch.tobytes())
                found.append(self._line.features(len(batch), self._output_size))
            told(start + len(batch))
        return np.concatenate(found) if found else np.empty((0, 0), np.float32)


@contextmanager
def examined(content: bytes, limits: Limits) -> Iterator[Encoder]:
    """A network that comes for the first time, with what it is in `facts`. Raises `NetworkInvalid`, `NetworkFailed`."""
    with _process(limits) as line:
        facts = _opened(line, content, None)
        input_size = int(np.prod(facts["input_shape"]))
        yield Encoder(line, input_size=input_size, output_size=facts["output_size"], facts=facts)


@contextmanager
def started(content: bytes, *, input_size: int, output_size: int, batch_size: int, limits: Limits) -> Iterator[Encoder]:
    """A network that was examined before, at work until the block ends. Raises `NetworkFailed`."""
    with _process(limits) as line:
        facts = _opened(line, content, batch_size)
        yield Encoder(line, input_size=input_size, output_size=output_size, facts=facts)


@contextmanager
def _process(limits: Limits) -> Iterator[Line]:
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
        with mine, contextlib.closing(Line(mine, process, limits)) as line:
            yield line
    finally:
        process.kill()
        process.wait()


def _opened(line: Line, content: bytes, batch_size: int | None) -> dict[str, Any]:
    with line.exchange(_STARTS_WITHIN + line.limits.seconds):
        line.send(json.dumps(batch_size).encode())
        line.send(content)
        return line.answer()


def _failed(why: str) -> NetworkFailed:
    return NetworkFailed(
        f"{why}; send a smaller network, or raise LETHE_NETWORK_MEMORY_BYTES or LETHE_NETWORK_SECONDS."
    )
