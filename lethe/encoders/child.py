"""The process apart in which a network runs: it gets a file and rows, and says features, or what is wrong.

It is started for one network, with one end of a socket pair and nothing else; what it says comes through that. A file
that comes for the first time is examined (`_examined`): it must compute the same from the same rows, twice, and from
each row the same whatever else is in its batch. Every batch has the same size, padded with zeros, so that the features
of a row are bit by bit those of the row alone.
"""

import json
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from lethe import hardening
from lethe.encoders import graph, sandbox
from lethe.encoders.graph import Graph, Refused

BATCH_ROWS = 32
"""Rows of a batch, where the runtime computes each of them bit by bit as if it were alone; else 1."""
_SAME = 1e-4  # by so much, relative to the largest feature, may a row differ with its neighbours before it is refused
_CPU = ["CPUExecutionProvider"]


class Network:
    """A network that runs, in batches of one size."""

    def __init__(self, content: bytes, found: Graph) -> None:
        self.graph = found
        self._session = _session(content)

    def run(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The output (b, k) for a batch (b, *input_shape)."""
        (output,) = self._session.run([self.graph.output_name], {self.graph.input_name: rows})
        if output.ndim != 2 or output.shape[0] != len(rows) or not 1 <= output.shape[1] <= graph.MOST_OUTPUTS:
            raise Refused(
                f"Expected an output (batch, features) of 1 to {graph.MOST_OUTPUTS} features; flatten it in the file."
            )
        return np.ascontiguousarray(output, dtype=np.float32)

    def encode(self, rows: NDArray[np.float32], batch_size: int) -> NDArray[np.float32]:
        """The features (n, k) of n >= 1 rows, each batch padded to `batch_size`."""
        return np.concatenate([self.run(batch)[:count] for batch, count in _batches(rows, batch_size)])


def main(descriptor: int, memory_bytes: int) -> None:
    """Be the process of an `Encoder`."""
    hardening.harden()
    connection = Connection(descriptor)
    shut_in = sandbox.enter(memory_bytes=memory_bytes)
    try:
        batch_size: int | None = json.loads(connection.recv_bytes())
        content = connection.recv_bytes()
        network = Network(content, graph.parse(content))
        facts = _examined(content, network) if batch_size is None else {}
        batch_size = batch_size or int(facts["batch_size"])
        _say(connection, facts | {"shut_in": shut_in})
        while True:
            rows = np.frombuffer(connection.recv_bytes(), np.float32).reshape(-1, *network.graph.input_shape)
            features = network.encode(rows, batch_size)
            _say(connection, {"rows": len(features)})
            connection.send_bytes(features.data)
    except EOFError:  # nobody asks any more
        return
    except Refused as refusal:
        _say(connection, {"refused": str(refusal)})
    except BaseException as error:  # noqa: BLE001  its text may quote rows
        _say(connection, {"failed": type(error).__name__})


def _say(connection: Connection, said: dict[str, Any]) -> None:
    connection.send_bytes(json.dumps(said).encode())


def _session(content: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(content, options, providers=_CPU)
    except Exception as error:  # noqa: BLE001  nobody lists what the runtime raises
        raise _refusal(error, "The runtime (onnxruntime) cannot load the network.") from None


def _refusal(error: Exception, why: str) -> Exception:
    """The refusal for an error of the runtime, unless that is a lack of memory."""
    out_of_memory = isinstance(error, MemoryError) or "alloc" in str(error)
    return MemoryError() if out_of_memory else Refused(why)


def _batches(rows: NDArray[np.float32], batch_size: int) -> Iterator[tuple[NDArray[np.float32], int]]:
    for start in range(0, len(rows), batch_size):
        some = rows[start : start + batch_size]
        batch = np.zeros((batch_size, *rows.shape[1:]), np.float32)
        batch[: len(some)] = some
        yield batch, len(some)


def _examined(content: bytes, network: Network) -> dict[str, Any]:
    """The facts about the network, once it has computed the same twice from public rows. Raises `Refused`."""
    rows = _public_rows(network.graph.input_shape)
    try:
        first = network.run(rows)
        again = Network(content, network.graph).run(rows)
        alone = np.concatenate([network.run(row[None]) for row in rows])
        as_one = network.run(np.repeat(rows[:1], BATCH_ROWS, axis=0))
        among_zeros = network.run(np.concatenate([rows[:1], np.zeros_like(rows[1:])]))
    except Refused:
        raise
    except Exception as error:  # noqa: BLE001  nobody lists what the runtime raises
        raise _refusal(error, "The runtime (onnxruntime) cannot run the network on a batch of rows.") from None
    if not all(np.isfinite(one).all() for one in (first, alone, as_one, among_zeros)):
        raise Refused("The output on small public numbers is not finite.")
    if not np.array_equal(first, again) or not np.array_equal(first, network.run(rows)):
        raise Refused("The output changed between two runs on the same rows; only deterministic networks are run.")
    most = max(1e-30, float(np.abs(alone).max()))
    if np.abs(first - alone).max() > _SAME * most or np.abs(among_zeros[0] - alone[0]).max() > _SAME * most:
        raise Refused("The output for a row changes with the other rows of its batch; a network encodes one row.")
    is_exact = (
        np.array_equal(first[0], among_zeros[0])
        and all(np.array_equal(row, as_one[0]) for row in as_one)
        and np.array_equal(first[0], as_one[0])
    )
    return {
        "opset": network.graph.opset,
        "input_shape": network.graph.input_shape,
        "output_size": first.shape[1],
        "num_parameters": network.graph.num_parameters,
        "operators": network.graph.operators,
        "parameters": [{"name": name, "shape": shape} for name, shape in network.graph.parameters],
        "batch_size": BATCH_ROWS if is_exact else 1,
    }


def _public_rows(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Numbers from -1 to 1 that everybody knows: sines of places."""
    count = BATCH_ROWS * int(np.prod(shape))
    return np.asarray(np.sin(0.7 * np.arange(count)), np.float32).reshape(BATCH_ROWS, *shape)
