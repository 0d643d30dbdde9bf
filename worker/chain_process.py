"""Process for a single run. It takes the steps, and no other process needs torch or the compiled loops.

Noise is drawn only here, and the noise key never leaves the process. `worker/isolated.py` starts and controls it.
"""

import contextlib
import functools
import importlib
import json
import mmap
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from app.errors import RunDiffersFromPlan
from app.rows.blocks import mapped
from lethe import sockets
from lethe.contract.problems import Problem
from lethe.proof import canary_test, methods
from lethe.proof.mechanism import Mechanism
from worker import evidence
from worker.langevin import chain, engines, noise
from worker.langevin.window import Checkpoints, Window

_SECONDS_BETWEEN_NEWS = 0.05


@functools.cache
def _runners() -> dict[str, Callable[..., chain.Ran]]:
    """Map each method to the function that takes its runs' steps, with the arguments and result of `chain.run`.
    Features list pairs of method name and function as `METHODS` in their module `methods`."""
    return {Mechanism.method: chain.run, **dict(sockets.plugs("worker.features", "methods", "METHODS"))}


# Import these here, in the server that forks the processes of runs, so that no run has to.
engines.installed()
_runners()


def warm() -> None:
    """Import the module that torch would import at a network's first derivative, which takes one second per process."""
    importlib.import_module("torch._dynamo")


def main(connection: Connection, rows: int) -> None:
    """Carry out a run in its own process. `rows` is the file descriptor of the memory that contains the rows."""
    try:
        request = json.loads(connection.recv_bytes())
        initial = np.frombuffer(bytearray(connection.recv_bytes())).reshape(request["shape"])
        network = connection.recv_bytes()
        mechanism = methods.read(request["mechanism"])
        result = _run(request, mechanism, initial, rows, network, connection)
        answer = {
            "first_step": result.first_step,
            "steps": result.steps,
            "mechanism": result.mechanism.to_json(),
            "records": result.records,
            "observed": result.observed and result.observed.counted(),
        }
        connection.send_bytes(json.dumps(answer).encode())
        connection.send_bytes(result.parameters.data)
    # Only the name of an error may leave the process.
    except BaseException as error:  # noqa: BLE001
        code = error.code if isinstance(error, Problem) else type(error).__name__
        with contextlib.suppress(OSError):
            connection.send_bytes(json.dumps({"failed": code}).encode())


def _run(
    request: dict[str, Any],
    mechanism: Mechanism,
    initial: NDArray[np.float64],
    rows: int,
    network: bytes,
    connection: Connection,
) -> chain.Ran:
    if initial.size != mechanism.num_parameters:
        raise RunDiffersFromPlan("The model has another number of parameters than its mechanism says.")
    if request["threads"]:
        torch.set_num_threads(request["threads"])
    features, labels = mapped(memoryview(mmap.mmap(rows, 0, prot=mmap.PROT_READ)), *request["rows"])
    return _runners()[mechanism.method](
        mechanism=mechanism,
        features=features,
        labels=labels,
        initial=initial,
        first_step=request["first_step"],
        steps=request["steps"],
        noise=noise.SystemNoise(),
        on_progress=_news(connection),
        backend=engines.Backend(device=request["device"], threads=request["threads"], network=network),
        lanes=evidence.of(mechanism, canary_test.CanaryPlan(**request["audit"])) if request["audit"] else None,
        show=_asking(connection),
        checkpoints=Checkpoints(steps=request["checkpoints"], reached=_sending(connection)),
    )


def _sending(connection: Connection) -> Callable[[int, NDArray[np.float64]], None]:
    """Return a callback that sends a checkpoint's iterate and then overwrites it."""

    def reached(steps_done: int, parameters: NDArray[np.float64]) -> None:
        connection.send_bytes(json.dumps({"checkpoint": steps_done}).encode())
        connection.send_bytes(parameters.data)
        parameters.fill(0)

    return reached


def _asking(connection: Connection) -> Callable[[int], Window]:
    """Return a callback that requests the rows of the next steps and waits until they are in memory."""

    def show(steps_done: int) -> Window:
        connection.send_bytes(json.dumps({"show": steps_done}).encode())
        window = json.loads(connection.recv_bytes())
        return Window(until=window["until"], slots=tuple(slice(*bounds) for bounds in window["slots"]))

    return show


def _news(connection: Connection, *, seconds_between: float = _SECONDS_BETWEEN_NEWS) -> Callable[[int], None]:
    """Return a callback that reports the step count, at most once every `seconds_between` s, and awaits the reply."""
    reported_at = time.monotonic()

    def progressed(steps_done: int) -> None:
        nonlocal reported_at
        if time.monotonic() - reported_at >= seconds_between:
            connection.send_bytes(json.dumps(steps_done).encode())
            connection.recv_bytes()
            reported_at = time.monotonic()

    return progressed
