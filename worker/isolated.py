"""A run's chain in a process of its own, which is forked for it and ends with it.

What that process is told comes through its pipe: the mechanism, the shape of the rows, the iterate to start from. The
rows are in memory that both processes map (`app/registry/memory.py`). What it says goes through the pipe too: how many
steps are done, at the end what ran and the last iterate, or the name of what went wrong. Noise is drawn in that process
alone, where its key is made and dies.
"""

import contextlib
import json
import mmap
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from app.errors import LetheError, RunDiffersFromPlan
from app.privacy.audit import AuditPlan, Observed
from app.privacy.mechanism import Mechanism
from app.registry.blocks import mapped
from app.registry.rows import Rows
from worker.audit import lanes
from worker.langevin import chain
from worker.langevin.device import choose
from worker.langevin.noise import SystemNoise
from worker.process import Forker

DIED = "run_process_died"
"""The code of a run whose process was killed, or could not be started."""

_SECONDS_BETWEEN_NEWS = 0.05
_FORKER = Forker(__name__)


class ChainFailed(Exception):
    """A run's process ended without an iterate. `code` says why, and nothing that was computed from data."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What ran, as the process that ran it says."""

    parameters: NDArray[np.float64]  # (1, d) or (C, d)
    first_step: int
    steps: int
    mechanism: Mechanism
    records: int  # rows that are not null, counted before the first step
    observed: Observed | None  # what the lanes showed


def prepare(*, device: str) -> None:
    """For a worker that has opened and started nothing yet: from then on a run's process starts in no time.

    Ends the worker, in one line, if it is to compute on a device that is not there.
    """
    _FORKER.prepare()
    if device != "auto":
        try:
            choose(device)  # not before: a process that has asked for its GPUs cannot be forked
        except ValueError as error:
            raise SystemExit(f"settings_invalid: LETHE_DEVICE {error}") from None


def run(
    mechanism: Mechanism,
    *,
    rows: Rows,
    initial: NDArray[np.float64],  # (1, d) or (C, d)
    first_step: int = 0,
    steps: int,
    device: str = "cpu",
    threads: int | None = None,
    audit: AuditPlan | None = None,
    on_progress: Callable[[int], None],
) -> Ran:
    """Take `steps` noisy steps from `initial`, to which `first_step` others of its chain have led. With an `audit` its
    lanes take part in the run.

    `threads`: CPU threads at most; None for all that this process may use. `on_progress` is told the count, about
    twenty times a second; until it returns the run stands still, and it ends the run by raising. When this returns or
    raises, the run's process is gone. Raises `ChainFailed`.
    """
    told = {
        "mechanism": mechanism.to_json(),
        "rows": [rows.num_slots, rows.num_columns],
        "shape": initial.shape,
        "first_step": first_step,
        "steps": steps,
        "device": device,
        "audit": audit and asdict(audit),
        "threads": threads,
    }
    with _FORKER.start(rows.descriptor) as child:
        with contextlib.suppress(OSError):  # it has ended, which is heard next
            child.connection.send_bytes(json.dumps(told).encode())
            child.connection.send_bytes(np.ascontiguousarray(initial).data)
        answer = _answer(child.connection, on_progress)
        content = _received(child.connection)
    return Ran(
        parameters=np.frombuffer(content).reshape(initial.shape),
        first_step=answer["first_step"],
        steps=answer["steps"],
        mechanism=Mechanism.from_json(answer["mechanism"]),
        records=answer["records"],
        observed=answer["observed"] and Observed.from_json(answer["observed"]),
    )


def main(connection: Connection, rows: int) -> None:
    """Be the process of a `run`. `rows`: the descriptor of the memory that holds them."""
    try:
        told = json.loads(connection.recv_bytes())
        initial = np.frombuffer(bytearray(connection.recv_bytes())).reshape(told["shape"])
        mechanism = Mechanism.from_json(told["mechanism"])
        ran = _run(told, mechanism, initial, rows, on_progress=_news(connection))
        answer = {
            "first_step": ran.first_step,
            "steps": ran.steps,
            "mechanism": mechanism.to_json(),
            "records": ran.records,
            "observed": ran.observed and ran.observed.counted(),
        }
        connection.send_bytes(json.dumps(answer).encode())
        connection.send_bytes(ran.parameters.data)
    except BaseException as error:  # noqa: BLE001  of what went wrong only its name may leave
        code = error.code if isinstance(error, LetheError) else type(error).__name__
        with contextlib.suppress(OSError):
            connection.send_bytes(json.dumps({"failed": code}).encode())


def _run(
    told: dict[str, Any],
    mechanism: Mechanism,
    initial: NDArray[np.float64],
    rows: int,
    *,
    on_progress: Callable[[int], None],
) -> chain.Ran:
    if initial.size != mechanism.num_parameters:
        raise RunDiffersFromPlan("The model has another number of parameters than its mechanism says.")
    if told["threads"]:
        torch.set_num_threads(told["threads"])
    features, labels = mapped(memoryview(mmap.mmap(rows, 0, prot=mmap.PROT_READ)), *told["rows"])
    return chain.run(
        features=features,
        labels=labels,
        **chain.settings_of(mechanism),
        initial=initial,
        first_step=told["first_step"],
        steps=told["steps"],
        noise=SystemNoise(),
        on_progress=on_progress,
        device=told["device"],
        threads=told["threads"],
        lanes=lanes.of(mechanism, AuditPlan(**told["audit"])) if told["audit"] else None,
    )


def _news(connection: Connection, *, seconds_between: float = _SECONDS_BETWEEN_NEWS) -> Callable[[int], None]:
    """Tells the count of steps, not more often than somebody wants to read it, and waits until that is done."""
    told = time.monotonic()

    def progressed(steps_done: int) -> None:
        nonlocal told
        if time.monotonic() - told >= seconds_between:
            connection.send_bytes(json.dumps(steps_done).encode())
            connection.recv_bytes()
            told = time.monotonic()

    return progressed


def _answer(connection: Connection, on_progress: Callable[[int], None]) -> dict[str, Any]:
    """What the run's process says when it has an iterate. Raises `ChainFailed` as soon as it has failed."""
    steps_done = 0
    while True:
        said = json.loads(_received(connection)) if connection.poll(_SECONDS_BETWEEN_NEWS) else None
        match said:
            case {"failed": str(code)}:
                raise ChainFailed(code)
            case int():
                steps_done = said
        on_progress(steps_done)
        match said:
            case dict():
                return said
            case int():
                with contextlib.suppress(OSError):  # it has ended, which is heard next
                    connection.send_bytes(b"")


def _received(connection: Connection) -> bytes:
    try:
        return connection.recv_bytes()
    except (EOFError, OSError):
        raise ChainFailed(DIED) from None
