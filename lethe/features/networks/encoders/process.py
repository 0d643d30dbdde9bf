"""Starting and querying the process in which a public network is examined and run (`encoders.child`)."""

import contextlib
import hashlib
import json
import math
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe import hardening
from lethe.contract.problems import FieldError, NetworkFailed, NetworkInvalid, Sentence, UploadTooLarge
from lethe.features.networks.encoders.limits import Limits
from lethe.features.networks.encoding import NO_TELEMETRY

_START_SECONDS = 60.0
"""Seconds allowed for starting a process, in addition to the time limit of its network."""
_MEMORY_BYTES, _MEMORY_PER_BYTE = 2**30, 16
"""Memory of a process, within its limit: a fixed amount, plus an amount per byte of the network's file."""
_BATCH_ROWS = 32
_MAX_MESSAGE_BYTES = 2**26
"""Maximum size of a message from the process, excluding features."""
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", NO_TELEMETRY: "1"}
_ARCHIVES = (b"PK", b"\x80")
"""First bytes of a zip file and of a pickle."""
_ONNX = b"\x08"
"""First byte of an ONNX file: the tag of the IR version, which is field 1 and comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedNetwork:
    """Network file that passed examination in `encoders.child`, with the facts established there."""

    content: bytes
    sha256: str
    facts: dict[str, Any]


class ProcessPipe:
    """Connection to a network's process. The process is killed if it does not reply in time."""

    def __init__(self, mine: socket.socket, child: "subprocess.Popen[bytes]", limits: Limits) -> None:
        self.limits = limits
        self._mine, self._child = mine, child
        self._is_late = threading.Event()
        self._connection = Connection(os.dup(mine.fileno()))

    @contextmanager
    def exchange(self, seconds: float) -> Iterator[None]:
        """Limit the time for all messages in the `with` block to `seconds`.

        Raises:
            NetworkFailed: if the block takes longer, or the process exits or sends an unknown message.
        """
        watchdog = threading.Timer(seconds, self._kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            yield
        except (EOFError, OSError, ValueError):
            # The watchdog may fire just after the answer; the next exchange then reports the delay.
            if self._is_late.is_set():
                template = "The network took longer than {seconds:g} seconds for a batch"
                raise NetworkFailed(why=Sentence(template, seconds=self.limits.seconds)) from None
            raise self._death() from None
        finally:
            watchdog.cancel()

    def _kill(self) -> None:
        self._is_late.set()
        self._child.kill()
        # Closing alone would leave the end that a process forked by the child may hold.
        with contextlib.suppress(OSError):
            self._mine.shutdown(socket.SHUT_RDWR)

    def send(self, content: bytes) -> None:
        """Send a message. If the process has exited, the next call to `answer` reports that."""
        with contextlib.suppress(OSError):
            self._connection.send_bytes(content)

    def answer(self) -> dict[str, Any]:
        """Receive a message. Raises `NetworkInvalid` or `NetworkFailed` if the message reports a refusal or failure."""
        message = json.loads(self._connection.recv_bytes(_MAX_MESSAGE_BYTES))
        if not isinstance(message, dict):
            raise ValueError("Expected a message of a network's process")
        if "not_sandboxed" in message:
            raise NetworkFailed(
                "A network is run only in a sandbox, which this system does not provide: {why}",
                why=message["not_sandboxed"],
            )
        if "refused" in message:
            raise NetworkInvalid(message["refused"], [FieldError("file", "expected an ONNX network that can be run")])
        if "failed" in message:
            raise self._death()
        return message

    def features(self, num_rows: int, num_columns: int) -> NDArray[np.float32]:
        """Receive a batch's features (num_rows, num_columns). Raises `NetworkFailed` if they have another shape."""
        num_bytes = 4 * num_rows * num_columns
        if self.answer().get("rows") == num_rows:
            content = self._connection.recv_bytes(num_bytes)
            if len(content) == num_bytes:
                return np.frombuffer(content, np.float32).reshape(num_rows, num_columns)
        raise NetworkFailed("The network gave another number of features than when it was examined; export it again.")

    def _death(self) -> NetworkFailed:
        template = "The network's process ended: it may need more memory than {max_bytes} bytes"
        return NetworkFailed(why=Sentence(template, max_bytes=self.limits.memory_bytes))

    def close(self) -> None:
        self._connection.close()


class Encoder:
    """Running network. `facts` holds what its process reported about it on start-up."""

    def __init__(self, line: ProcessPipe, *, input_size: int, output_size: int, facts: dict[str, Any]) -> None:
        self.facts = facts
        self._line = line
        self._input_size, self._output_size = input_size, output_size

    def encode(
        self, rows: NDArray[np.floating[Any]], *, progress: Callable[[int], object] = lambda num_rows: None
    ) -> NDArray[np.float32]:
        """Return the features (n, k) that the network computes for rows (n, input_size). Features can be NaN.

        `progress` is called with the number of encoded rows after each batch.

        Raises:
            NetworkFailed: if the network uses too much time or memory, or its process exits.
        """
        if rows.ndim != 2 or rows.shape[1] != self._input_size:
            raise ValueError(f"Expected rows (n, {self._input_size}), got {rows.shape}")
        features = []
        for start in range(0, len(rows), _BATCH_ROWS):
            batch = np.ascontiguousarray(rows[start : start + _BATCH_ROWS], dtype=np.float32)
            with self._line.exchange(self._line.limits.seconds):
                self._line.send(batch.tobytes())
                features.append(self._line.features(len(batch), self._output_size))
            progress(start + len(batch))
        return np.concatenate(features) if features else np.empty((0, 0), np.float32)


def examine(content: bytes, limits: Limits) -> ExaminedNetwork:
    """Examine a network's file by running the network twice in a separate process.

    Raises:
        NetworkInvalid: if the file is not an ONNX file, or its network cannot be run deterministically.
        NetworkFailed: if the network uses too much time or memory.
        UploadTooLarge: if the file has more than `limits.file_bytes` bytes.
    """
    if len(content) > limits.file_bytes:
        raise UploadTooLarge.network(max_bytes=limits.file_bytes)
    fault = FieldError("file", "expected an ONNX file")
    if content.startswith(_ARCHIVES):
        raise NetworkInvalid(
            "The file is a pickle or a zip (.pt, .pth, .pkl), which may hold code that runs when it is opened; export"
            " the network to ONNX (torch.onnx.export).",
            [fault],
        )
    if not content.startswith(_ONNX):
        raise NetworkInvalid("The file is not a whole ONNX file; export the network to ONNX again.", [fault])
    with examined(content, limits) as encoder:
        return ExaminedNetwork(content=content, sha256=hashlib.sha256(content).hexdigest(), facts=encoder.facts)


@contextmanager
def examined(content: bytes, limits: Limits) -> Iterator[Encoder]:
    """Run a network that has not been examined before. The encoder's `facts` describe it.

    Raises:
        NetworkInvalid: or `NetworkFailed`, under the same conditions as `examine`.
    """
    with _opened(content, limits, examines=True) as (line, facts):
        input_size = int(np.prod(facts["input_shape"]))
        yield Encoder(line, input_size=input_size, output_size=facts["output_size"], facts=facts)


@contextmanager
def started(content: bytes, *, input_size: int, output_size: int, limits: Limits) -> Iterator[Encoder]:
    """Run a network that has already been examined, until the `with` block ends. Raises `NetworkFailed`."""
    with _opened(content, limits, examines=False) as (line, facts):
        yield Encoder(line, input_size=input_size, output_size=output_size, facts=facts)


def _bare_environment() -> dict[str, str]:
    """Return the environment for a process that runs untrusted code: only allocator settings and search paths, because
    other variables may hold passwords."""
    names = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", *hardening.OVERWRITING)
    return {name: os.environ[name] for name in names if name in os.environ}


@contextmanager
def _opened(content: bytes, limits: Limits, *, examines: bool) -> Iterator[tuple[ProcessPipe, dict[str, Any]]]:
    limits = replace(limits, memory_bytes=min(limits.memory_bytes, _MEMORY_BYTES + _MEMORY_PER_BYTE * len(content)))
    mine, theirs = socket.socketpair()
    arguments = theirs.fileno(), limits.memory_bytes, math.ceil(limits.seconds) if examines else None
    with theirs:
        # The program is our own interpreter.
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-c", f"from {__package__} import child; child.main{arguments}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=_bare_environment() | _ENVIRONMENT,
        )
    try:
        with mine, contextlib.closing(ProcessPipe(mine, process, limits)) as line:
            with line.exchange(_START_SECONDS):
                facts = line.answer()
            # A registered file has passed its examination: it may take longer to open than a stranger's.
            with line.exchange(limits.seconds if examines else _START_SECONDS + limits.seconds):
                line.send(content)
                facts |= line.answer()
            yield line, facts
    finally:
        process.kill()
        process.wait()
