"""A run's chain in a separate process that is forked for the run and ends with it (`worker/chain_process.py`).

The process receives its request through a pipe: the mechanism, the shape of the rows and the initial iterate. The rows
that the next steps read are in memory mapped by both processes (`app/vault/memory.py`); the process requests other rows
when it needs them. It also replies through the pipe: with the number of steps done, in a rehearsal with the iterates at
checkpoints, and finally with the result and the last iterate, or with the error's name.
"""

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.errors import RunDiffersFromPlan
from app.rows.blocks import BLOCK_ROWS
from app.rows.row_store import OpenedRows
from lethe.proof import canary_test, methods
from lethe.proof.mechanism import Mechanism
from worker import process, windows
from worker.langevin.schedule import Schedule
from worker.langevin.window import Checkpoints

DIED = "run_process_died"
"""Error code for a run whose process was killed or could not be started."""

_SECONDS_BETWEEN_SIGNS = 0.05
"""Maximum seconds between reports to the run's holder that the run is continuing, even without progress."""

_FORKER = process.Forker("worker.chain_process")


class ChainFailed(Exception):
    """A run's process ended without an iterate. `code` names the reason and contains nothing computed from data."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolatedResult:
    """Result of a run, as reported by its process. `records` counts the non-null rows given to the process, and
    `observed` contains the lanes' statistics."""

    parameters: NDArray[np.float64]  # (1, d) or (C, d)
    first_step: int
    steps: int
    mechanism: Mechanism
    records: int
    observed: canary_test.Observed | None


def prepare(*, device: str) -> None:
    """Prepare to start run processes without delay. Must be called before the worker opens or starts anything else.

    Exit with a one-line message if `device` is not available.
    """
    _FORKER.prepare()
    if device != "auto":
        try:
            # After the fork, because a process that has initialised its GPUs cannot be forked. Only this check needs
            # torch here.
            from worker.langevin import engines

            engines.choose(device)
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
    audit: canary_test.CanaryPlan | None = None,
    on_progress: Callable[[int], None],
    on_opened: Callable[[], None] = lambda: None,
    network: bytes | None = None,
    checkpoints: Checkpoints | None = None,
) -> IsolatedResult:
    """Take `steps` noisy steps from `initial`, the chain's iterate after `first_step` earlier steps. The lanes of
    `audit`, if given, take the same steps. `network` is the content of the file that a tangent model's mechanism names.

    At most `threads` CPU threads are used; None allows all. `on_progress` receives the number of steps taken about
    twenty times a second; `on_opened` is called whenever a block of rows has been opened for the next steps. Both block
    the run, and can stop it by raising. The run's process has ended when this function returns or raises. Raises
    `ChainFailed`, `DatasetTooLarge` if a step's rows may exceed the memory limit, and `RunDiffersFromPlan` if the
    process's count of non-null rows is not the number given to it.
    """
    if mechanism.num_slots != rows.shape.num_slots:
        raise RunDiffersFromPlan("The dataset has another number of slots than the model's mechanism says.")
    schedule = Schedule.of(mechanism, first_step=first_step, steps=steps)
    rows.require_room(windows.bytes_of_a_step(schedule, rows.shape))
    # Number of non-null rows of each block that the process sees.
    counts: dict[int, int] = {}
    records = 0

    def show(steps_done: int) -> dict[str, Any]:
        nonlocal counts, records
        blocks = windows.next_blocks(schedule, rows.shape, steps_done=steps_done, most_bytes=rows.most_bytes)
        before, counts = counts, rows.show(blocks.numbers, on_opened=on_opened)
        records += sum(count for number, count in counts.items() if number not in before)
        num_slots = rows.shape.num_slots
        slots = [(numbers.start * BLOCK_ROWS, min(numbers.stop * BLOCK_ROWS, num_slots)) for numbers in blocks.numbers]
        return {"until": blocks.until, "slots": slots}

    request = {
        "mechanism": mechanism.to_json(),
        "rows": [rows.shape.num_slots, rows.shape.num_columns, rows.shape.has_weights],
        "shape": initial.shape,
        "first_step": first_step,
        "steps": steps,
        "device": device,
        "audit": audit and asdict(audit),
        "threads": threads,
        "checkpoints": list(checkpoints.steps) if checkpoints else [],
    }
    with _FORKER.start(rows.descriptor, warm=network is not None) as child:
        for content in (json.dumps(request).encode(), np.ascontiguousarray(initial).data, network or b""):
            _tell(child.connection, content)
        answer = _answer(child.connection, on_progress, show, checkpoints, initial.shape)
        parameters = _received(child.connection)
    if answer["records"] != records:
        raise RunDiffersFromPlan("The run read other rows than those that it was shown.")
    return IsolatedResult(
        parameters=np.frombuffer(parameters).reshape(initial.shape),
        first_step=answer["first_step"],
        steps=answer["steps"],
        mechanism=methods.read(answer["mechanism"]),
        records=answer["records"],
        observed=answer["observed"] and canary_test.Observed.from_json(answer["observed"]),
    )


def _answer(
    connection: Connection,
    on_progress: Callable[[int], None],
    show: Callable[[int], dict[str, Any]],
    checkpoints: Checkpoints | None,
    shape: tuple[int, ...],
) -> dict[str, Any]:
    """Return the final message from the run's process, loading the rows that it requests until then. Raises
    `ChainFailed` as soon as the process fails."""
    steps_done = 0
    while True:
        message = json.loads(_received(connection)) if connection.poll(_SECONDS_BETWEEN_SIGNS) else None
        match message:
            case {"failed": str(code)}:
                raise ChainFailed(code)
            case int():
                steps_done = message
        on_progress(steps_done)
        match message:
            case {"show": int(steps_before)}:
                _tell(connection, json.dumps(show(steps_before)).encode())
            case {"checkpoint": int(reached)} if checkpoints:
                checkpoints.reached(reached, _received_into(connection, shape))
            case dict():
                return message
            case int():
                _tell(connection, b"")


def _received_into(connection: Connection, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Receive an iterate from the run's process. The caller may overwrite the iterate."""
    iterate = np.empty(shape)
    try:
        connection.recv_bytes_into(iterate.data.cast("B"))
    except (EOFError, OSError):
        raise ChainFailed(DIED) from None
    return iterate


def _tell(connection: Connection, content: bytes | memoryview) -> None:
    # A process that has ended is reported by the next read.
    with contextlib.suppress(OSError):
        connection.send_bytes(content)


def _received(connection: Connection) -> bytes:
    try:
        return connection.recv_bytes()
    except (EOFError, OSError):
        raise ChainFailed(DIED) from None
