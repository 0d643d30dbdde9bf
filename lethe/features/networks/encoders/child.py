"""Process that runs a network: it receives a file and rows, and returns features or the reason for a refusal.

The process is started for one network and exchanges all messages over one end of a socket pair. A file that has not
been seen before is examined (`_examined`): the network must compute the same features twice from the same rows. The
network sees one row at a time, so that no row's features can depend on another row.
"""

import json
import os
import re
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

# Imported here because the sandbox opens no file.
import onnxruntime  # noqa: F401
from numpy.typing import NDArray

from lethe import hardening
from lethe.features.isolation import sandbox
from lethe.features.networks.encoders import graph
from lethe.features.networks.encoding import new_session

_PUBLIC_ROWS = 32
"""Number of rows on which a file is examined."""


class RunningNetwork:
    """Network that onnxruntime runs on one row at a time."""

    def __init__(self, content: bytes, network_graph: graph.NetworkGraph) -> None:
        self.graph = network_graph
        try:
            self._session = new_session(content, keeps_memory=False)
        except Exception as error:  # noqa: BLE001
            why = "The runtime (onnxruntime) cannot load the network."
            if versions := re.search(r"IR version: (\d+), max supported IR version: (\d+)", str(error)):
                why = (
                    f"The file is of IR version {versions[1]}, and onnxruntime reads {versions[2]} at most; export the"
                    " network with an older release of its exporter, or set its ir_version by the onnx package."
                )
            raise _refusal(error, why) from None

    def encode(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return features (n, k) of n >= 1 rows (n, *input_shape). Raises `NetworkRefused` for a wrong output shape."""
        return np.concatenate([self._run(row) for row in rows[:, None]])

    def _run(self, row: NDArray[np.float32]) -> NDArray[np.float32]:
        (output,) = self._session.run([self.graph.output_name], {self.graph.input_name: row})
        if output.ndim != 2 or output.shape[0] != 1 or not 1 <= output.shape[1] <= graph.MAX_OUTPUTS:
            raise graph.NetworkRefused(
                f"Expected an output (batch, features) of 1 to {graph.MAX_OUTPUTS} features; flatten it in the file."
            )
        return np.ascontiguousarray(output, dtype=np.float32)


def main(descriptor: int, memory_bytes: int, cpu_seconds: int | None) -> None:
    """Serve one `Encoder` over the socket `descriptor` until it closes, at a lower priority than the gateway.

    If `cpu_seconds` is given, the file is examined, and must take no more processor time than that.
    """
    connection = Connection(descriptor)
    try:
        os.nice(10)
        sandbox.drop_root()
        hardening.harden()
        sandbox.enter(memory_bytes=memory_bytes, cpu_seconds=cpu_seconds)
        _send(connection, {"shut_in": True})
        content = connection.recv_bytes()
        network_graph = graph.parse(content)
        if cpu_seconds is not None:
            graph.check_sizes(content)
        network = RunningNetwork(content, network_graph)
        _send(connection, {} if cpu_seconds is None else _examined(content, network))
        while True:
            rows = np.frombuffer(connection.recv_bytes(), np.float32).reshape(-1, *network.graph.input_shape)
            features = network.encode(rows)
            _send(connection, {"rows": len(features)})
            connection.send_bytes(features.data)
    except EOFError:
        return
    except sandbox.NotSandboxed as error:
        _send(connection, {"not_sandboxed": str(error)})
    except graph.NetworkRefused as refusal:
        _send(connection, {"refused": str(refusal)})
    # The message of any other error may quote rows, so only its type is sent.
    except BaseException as error:  # noqa: BLE001
        _send(connection, {"failed": type(error).__name__})


def _send(connection: Connection, message: dict[str, Any]) -> None:
    connection.send_bytes(json.dumps(message).encode())


def _refusal(error: Exception, why: str) -> Exception:
    """Return MemoryError if the runtime apparently ran out of memory (its errors are undocumented), else a refusal."""
    out_of_memory = isinstance(error, MemoryError) or "alloc" in str(error)
    return MemoryError() if out_of_memory else graph.NetworkRefused(why)


def _examined(content: bytes, network: RunningNetwork) -> dict[str, Any]:
    """Run the network on public rows and return facts about it. Raises `NetworkRefused` if it is not deterministic."""
    rows = _public_rows(network.graph.input_shape)
    try:
        first = network.encode(rows)
        again = RunningNetwork(content, network.graph).encode(rows)
    except graph.NetworkRefused:
        raise
    except Exception as error:  # noqa: BLE001
        raise _refusal(
            error, "The runtime (onnxruntime) cannot run the network on one row; export it with a dynamic batch axis."
        ) from None
    if not np.isfinite(first).all():
        raise graph.NetworkRefused("The output on small public numbers is not finite.")
    if not np.array_equal(first, again) or not np.array_equal(first, network.encode(rows)):
        raise graph.NetworkRefused(
            "The output changed between two runs on the same rows; only deterministic networks are run."
        )
    return {
        "opset": network.graph.opset,
        "input_shape": network.graph.input_shape,
        "output_size": first.shape[1],
        "num_parameters": network.graph.num_parameters,
        "operators": network.graph.operators,
        "parameters": [{"name": name, "shape": shape} for name, shape in network.graph.parameters],
    }


def _public_rows(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return rows of numbers from -1 to 1 that do not depend on any data: the sines of multiples of their indices."""
    count = _PUBLIC_ROWS * int(np.prod(shape))
    return np.asarray(np.sin(0.7 * np.arange(count)), np.float32).reshape(_PUBLIC_ROWS, *shape)
