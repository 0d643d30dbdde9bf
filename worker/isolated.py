"""A run's chain in a process of its own, which is forked for it and ends with it.

What that process is told comes through its pipe: the mechanism, the shape of the rows, the iterate to start from. The
rows are in memory that both processes map (`app/vault/memory.py`), as far as the next steps read them: when it needs
others it asks for them. What it says goes through the pipe too: how many steps are done, in a rehearsal the iterates at
its checkpoints, at the end what ran and the last iterate, or the name of what went wrong. Noise is drawn in that
process alone, where its key is made and dies.
"""

import contextlib
import json
import mmap
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from app.errors import RunDiffersFromPlan
from app.rows.blocks import mapped
from app.rows.manifest import BLOCK_ROWS
from app.rows.opened import OpenedRows
from lethe.contract.problems import Problem
from lethe.proof.audit import AuditPlan, Observed
from lethe.proof.mechanism import Mechanism
from worker import windows
from worker.audit import lanes
from worker.langevin import chain
from worker.langevin.device import choose
from worker.langevin.noise import SystemNoise
from worker.langevin.schedule import Schedule
from worker.langevin.window import Window
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
    """The result of a run, as the process that ran it says."""

    parameters: NDArray[np.float64]  # (1, d) or (C, d)
    first_step: int
    steps: int
    mechanism: Mechanism
    records: int  # rows that are not null, of those that it was shown
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
    rows: OpenedRows,
    initial: NDArray[np.float64],  # (1, d) or (C, d)
    first_step: int = 0,
    steps: int,
    device: str = "cpu",
    threads: int | None = None,
    audit: AuditPlan | None = None,
    on_progress: Callable[[int], None],
    on_opened: Callable[[], None] = lambda: None,
    network: bytes | None = None,
    checkpoints: Sequence[int] = (),
    on_checkpoint: Callable[[int, NDArray[np.float64]], None] = lambda steps_done, parameters: None,
) -> Ran:
    """Take `steps` noisy steps from `initial`, to which `first_step` others of its chain have led. With an `audit` its
    lanes take part in the run. `network`: the file of the one that a tangent model's mechanism names.

    `threads`: CPU threads at most; None for all that this process may use. `on_progress` is told the count, about
    twenty times a second; until it returns the run stands still, and it ends the run by raising, as does `on_opened`,
    which is called after each block of rows that was opened for the next steps. `checkpoints` and `on_checkpoint` are
    those of `chain.run`. When this returns or raises, the run's process is gone. Raises `ChainFailed`;
    `DatasetTooLarge` where what a step reads may be more than there is room for; `RunDiffersFromPlan` where the process
    has not counted the rows that it was to read.
    """
    if mechanism.num_slots != rows.shape.num_slots:
        raise RunDiffersFromPlan("The dataset has another number of slots than the model's mechanism says.")
    schedule = Schedule.of(mechanism, first_step=first_step, steps=steps)
    rows.require_room(windows.bytes_of_a_step(schedule, rows.shape))
    there: dict[int, int] = {}  # from blocks that the process sees to how many of their rows are not null
    records = 0

    def show(steps_done: int) -> dict[str, Any]:
        nonlocal there, records
        found = windows.next_blocks(schedule, rows.shape, steps_done=steps_done, most_bytes=rows.most_bytes)
        before, there = there, rows.show(found.numbers, on_opened=on_opened)
        records += sum(count for number, count in there.items() if number not in before)
        most = rows.shape.num_slots
        slots = [(one.start * BLOCK_ROWS, min(one.stop * BLOCK_ROWS, most)) for one in found.numbers]
        return {"until": found.until, "slots": slots}

    told = {
        "mechanism": mechanism.to_json(),
        "rows": [rows.shape.num_slots, rows.shape.num_columns, rows.shape.has_weights],
        "shape": initial.shape,
        "first_step": first_step,
        "steps": steps,
        "device": device,
        "audit": audit and asdict(audit),
        "threads": threads,
        "checkpoints": list(checkpoints),
    }
    with _FORKER.start(rows.descriptor) as child:
        with contextlib.suppress(OSError):  # it has ended, which is heard next
            child.connection.send_bytes(json.dumps(told).encode())
            child.connection.send_bytes(np.ascontiguousarray(initial).data)
            child.connection.send_bytes(network or b"")
        answer = _answer(child.connection, on_progress, show, on_checkpoint, initial.shape)
        content = _received(child.connection)
    if answer["records"] != records:
        raise RunDiffersFromPlan("The run read other rows than those that it was shown.")
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
        network = connection.recv_bytes()
        mechanism = Mechanism.from_json(told["mechanism"])
        ran = _run(told, mechanism, initial, rows, network, connection)
        answer = {
            "first_step": ran.first_step,
            "steps": ran.steps,
            "mechanism": ran.mechanism.to_json(),
            "records": ran.records,
            "observed": ran.observed and ran.observed.counted(),
        }
        connection.send_bytes(json.dumps(answer).encode())
        connection.send_bytes(ran.parameters.data)
    except BaseException as error:  # noqa: BLE001  of what went wrong only its name may leave
        code = error.code if isinstance(error, Problem) else type(error).__name__
        with contextlib.suppress(OSError):
            connection.send_bytes(json.dumps({"failed": code}).encode())


def _run(
    told: dict[str, Any],
    mechanism: Mechanism,
    initial: NDArray[np.float64],
    rows: int,
    network: bytes,
    connection: Connection,
) -> chain.Ran:
    if initial.size != mechanism.num_parameters:
        raise RunDiffersFromPlan("The model has another number of parameters than its mechanism says.")
    if told["threads"]:
        torch.set_num_threads(told["threads"])
    features, labels = mapped(memoryview(mmap.mmap(rows, 0, prot=mmap.PROT_READ)), *told["rows"])
    return chain.run(
        mechanism=mechanism,
        features=features,
        labels=labels,
        initial=initial,
        first_step=told["first_step"],
        steps=told["steps"],
        noise=SystemNoise(),
        on_progress=_news(connection),
        device=told["device"],
        threads=told["threads"],
        lanes=lanes.of(mechanism, AuditPlan(**told["audit"])) if told["audit"] else None,
        show=_asking(connection),
        network=network,
        checkpoints=told["checkpoints"],
        on_checkpoint=_sending(connection),
    )


def _sending(connection: Connection) -> Callable[[int, NDArray[np.float64]], None]:
    """Sends the iterate of a checkpoint, and overwrites it here."""

    def reached(steps_done: int, parameters: NDArray[np.float64]) -> None:
        connection.send_bytes(json.dumps({"checkpoint": steps_done}).encode())
        connection.send_bytes(parameters.data)
        parameters.fill(0)

    return reached


def _asking(connection: Connection) -> Callable[[int], Window]:
    """Asks for the rows of the next steps, and waits until they are in memory."""

    def show(steps_done: int) -> Window:
        connection.send_bytes(json.dumps({"show": steps_done}).encode())
        shown = json.loads(connection.recv_bytes())
        return Window(until=shown["until"], slots=tuple(slice(*one) for one in shown["slots"]))

    return show


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


def _answer(
    connection: Connection,
    on_progress: Callable[[int], None],
    show: Callable[[int], dict[str, Any]],
    on_checkpoint: Callable[[int, NDArray[np.float64]], None],
    shape: tuple[int, ...],
) -> dict[str, Any]:
    """Wait for the iterate that the run's process sends; until then show the process what it asks for. Raises
    `ChainFailed` as soon as it has failed."""
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
            case {"show": int(asked_at)}:
                _tell(connection, json.dumps(show(asked_at)).encode())
            case {"checkpoint": int(reached)}:
                on_checkpoint(reached, _received_into(connection, shape))
            case dict():
                return said
            case int():
                _tell(connection, b"")


def _received_into(connection: Connection, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """An iterate that the run's process sends, which the receiver may overwrite."""
    found = np.empty(shape)
    try:
        connection.recv_bytes_into(found.data.cast("B"))
    except (EOFError, OSError):
        raise ChainFailed(DIED) from None
    return found


def _tell(connection: Connection, content: bytes) -> None:
    with contextlib.suppress(OSError):  # it has ended, which is heard next
        connection.send_bytes(content)


def _received(connection: Connection) -> bytes:
    try:
        return connection.recv_bytes()
    except (EOFError, OSError):
        raise ChainFailed(DIED) from None
