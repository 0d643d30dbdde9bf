"""A run's chain, in processes that are forked for it and end with it: one, or one for each of its ranks.

What such a process is told comes through its pipe: the mechanism, the shape of the rows, the iterate to start from. The
rows are in memory that all of them map (`app/registry/memory.py`). What it says goes through the pipe too: how many
steps are done, at the end the last iterate and what ran, or the name of what went wrong. Noise is drawn in the process
of rank 0, where its key is made and dies.
"""

import contextlib
import hashlib
import json
import mmap
import socket
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
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
from worker.langevin.gradient import num_cpus
from worker.langevin.noise import SystemNoise
from worker.langevin.ranks import ALONE, LinkedRanks, RankLost, Ranks, links, num_blocks
from worker.process import Forker

DIED = "run_process_died"
"""The code of a run whose process was killed, or could not be started."""
DIFFER = "ranks_differ"
"""The code of a run whose ranks did not end with the same iterate."""

_SECONDS_BETWEEN_NEWS = 0.05
_FORKER = Forker(__name__)


class ChainFailed(Exception):
    """A run's process ended without an iterate. `code` says why, and nothing that was computed from data."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What ran, as the processes that ran it say."""

    parameters: NDArray[np.float64]  # (1, d) or (C, d)
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
    steps: int,
    ranks: int = 1,
    device: str = "cpu",
    threads: int | None = None,
    audit: AuditPlan | None = None,
    on_progress: Callable[[int], None],
) -> Ran:
    """Take `steps` noisy steps from `initial`; `ranks` processes share the rows, but each has a block of 4096 at least.

    With an `audit` its lanes take part in the run.
    `threads`: CPU threads of all processes together; None for all that this process may use. `on_progress` is told the
    count, about twenty times a second; until it returns the processes stand still, and it ends the run by raising. When
    this returns or raises, they are gone. Raises `ChainFailed`.
    """
    ranks = min(ranks, num_blocks(rows.num_slots))
    with contextlib.ExitStack() as stack:
        told = {
            "mechanism": mechanism.to_json(),
            "rows": [rows.num_slots, rows.num_columns],
            "shape": initial.shape,
            "steps": steps,
            "ranks": ranks,
            "device": device,
            "audit": audit and asdict(audit),
            "threads": threads if ranks == 1 else max(1, (threads or num_cpus()) // ranks),
        }
        connections = []
        ends = _ends(ranks, stack)
        for rank in range(ranks):
            child = _FORKER.start(rows.descriptor, *(end.fileno() for end in ends[rank]))
            connection = stack.enter_context(child).connection
            connections.append(connection)
            for end in ends[rank]:
                end.close()  # theirs now: when one rank ends, the others are to see it
            with contextlib.suppress(OSError):  # it has ended: `_answers` finds out
                connection.send_bytes(json.dumps(told | {"rank": rank}).encode())
                connection.send_bytes(np.ascontiguousarray(initial).data)
        first, *others = _answers(connections, on_progress)
        try:
            content = connections[0].recv_bytes()
        except (EOFError, OSError):
            raise ChainFailed(DIED) from None
    if any(answer["digest"] != _digest(content) for answer in (first, *others)):
        raise ChainFailed(DIFFER)
    return Ran(
        parameters=np.frombuffer(content).reshape(initial.shape),
        steps=first["steps"],
        mechanism=Mechanism.from_json(first["mechanism"]),
        records=sum(answer["records"] for answer in (first, *others)),
        observed=first["observed"] and Observed.from_json(first["observed"]),
    )


def main(connection: Connection, rows: int, *links: int) -> None:
    """Be one of the processes of `run`: `rows`, `links`: descriptors of the memory that holds them, and to the other
    ranks."""
    try:
        told = json.loads(connection.recv_bytes())
        initial = np.frombuffer(bytearray(connection.recv_bytes())).reshape(told["shape"])
        mechanism = Mechanism.from_json(told["mechanism"])
        ran = _run(told, mechanism, initial, rows, _joined(told, *links), _news(connection))
        content = ran.parameters.tobytes()
        answer = {
            "steps": ran.steps,
            "mechanism": mechanism.to_json(),
            "records": ran.records,
            "observed": ran.observed and ran.observed.counted(),
            "digest": _digest(content),
        }
        connection.send_bytes(json.dumps(answer).encode())
        if told["rank"] == 0:
            connection.send_bytes(content)
    except BaseException as error:  # noqa: BLE001  of what went wrong only its name may leave
        code = error.code if isinstance(error, LetheError) else type(error).__name__
        with contextlib.suppress(OSError):
            connection.send_bytes(json.dumps({"failed": code}).encode())


def _run(
    told: dict[str, Any],
    mechanism: Mechanism,
    initial: NDArray[np.float64],
    rows: int,
    ranks: Ranks,
    on_progress: Callable[[int], None],
) -> chain.Ran:
    if initial.size != mechanism.num_parameters:
        raise RunDiffersFromPlan("The model has another number of parameters than its mechanism says.")
    num_slots, num_columns = told["rows"]
    shard = ranks.shard(num_slots)
    if told["threads"]:
        torch.set_num_threads(told["threads"])
    x, y = mapped(memoryview(mmap.mmap(rows, 0, prot=mmap.PROT_READ)), num_slots, num_columns)
    return chain.run(
        features=x[shard],
        labels=y[shard],
        **chain.settings_of(mechanism),
        initial=initial,
        steps=told["steps"],
        noise=SystemNoise() if ranks.rank == 0 else None,
        on_progress=on_progress if ranks.rank == 0 else lambda steps_done: None,
        ranks=ranks,
        device=_device_of(ranks, told["device"]),
        threads=told["threads"],
        lanes=lanes.of(mechanism, AuditPlan(**told["audit"])) if told["audit"] else None,
    )


def _ends(ranks: int, stack: contextlib.ExitStack) -> list[list[socket.socket]]:
    """The ends of the links between the ranks, for each rank; closed by `stack` at the latest."""
    hub, others = links(ranks)
    for end in (*hub, *others):
        stack.enter_context(end)
    return [hub, *([end] for end in others)]


def _joined(told: dict[str, Any], *descriptors: int) -> Ranks:
    if told["ranks"] == 1:
        return ALONE
    ends = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    return LinkedRanks(rank=told["rank"], size=told["ranks"], links=ends)


def _device_of(ranks: Ranks, device: str) -> str:
    """Ranks that may choose their device take the GPUs in turn."""
    several = ranks.size > 1 and device == "auto" and torch.cuda.is_available()
    return f"cuda:{ranks.rank % torch.cuda.device_count()}" if several else device


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


def _answers(connections: Sequence[Connection], on_progress: Callable[[int], None]) -> list[dict[str, Any]]:
    """What each process said when it had an iterate. Raises `ChainFailed` as soon as one of them has failed."""
    answers: dict[Connection, dict[str, Any]] = {}
    failures: list[str] = []
    steps_done = 0
    waiting: list[Connection] = []

    def hear(ready: Container[object]) -> None:
        nonlocal steps_done
        for connection in connections:
            while connection in ready and connection not in answers and connection.poll():
                said = _heard(connection)
                if isinstance(said, int):
                    steps_done = said
                    waiting.append(connection)
                    continue
                answers[connection] = said
                if "failed" in said:
                    failures.append(said["failed"])

    while len(answers) < len(connections):
        hear(wait([one for one in connections if one not in answers], timeout=_SECONDS_BETWEEN_NEWS))
        if failures:
            hear(connections)  # whoever made another rank fail was first to say so, or to end
            raise ChainFailed(next((code for code in failures if code != RankLost.__name__), DIED))
        on_progress(steps_done)
        while waiting:
            with contextlib.suppress(OSError):  # it has ended, which is heard next
                waiting.pop().send_bytes(b"")
    return [answers[connection] for connection in connections]


def _heard(connection: Connection) -> Any:
    try:
        return json.loads(connection.recv_bytes())
    except (EOFError, OSError):
        return {"failed": DIED}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
