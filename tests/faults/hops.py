"""Hops of the walk at which one worker can be made to die or to stop.

All are in the worker's own process except `mid-chain`, which is in the process of the run. Canary tests have no such
process."""

import contextlib
import functools
import importlib
import mmap
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from app.db import Database
from app.journal import journal, verification
from app.operations import periodic_jobs
from app.rows.row_store import RowStore
from app.unlearning import queue, service as unlearning
from app.vault.sealing import SealedStore, WeightStore
from lethe.proof.mechanism import Mechanism
from worker import chain_process, learning, lease, runner
from worker.langevin import chain

Act = Callable[[int], None]
"""An action on the worker, given its process id."""
Hop = Callable[[], None]
_turns = multiprocessing.get_context("fork").RLock
_writing = _turns()
"""Lock held by a thread of this worker, if it has a hop, while it writes to the database, rewrites the database's file,
has the tombstones to itself, or checks rows; its runs may wait for it too."""


def die(worker: int) -> None:
    os.kill(worker, signal.SIGKILL)


def stop(worker: int) -> None:
    """Stop the worker, but not while a heartbeat or a periodic job is writing, because that would block all other
    writers."""
    with _writing:
        os.kill(worker, signal.SIGSTOP)


def halt(worker: int) -> None:
    """Stop only the process that reaches the hop. If this is a run's process, its worker continues."""
    os.kill(os.getpid(), signal.SIGSTOP)


def linger(worker: int) -> None:
    """Log a line and then wait longer than any other process."""
    os.write(1, b'"hops.lingers"\n')
    time.sleep(600)


def _after(owner: Any, name: str, act: Hop) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*given: Any, **named: Any) -> Any:
        answer = original(*given, **named)
        act()
        return answer

    setattr(owner, name, wrapped)


def _before(owner: Any, name: str, act: Hop) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*given: Any, **named: Any) -> Any:
        act()
        return original(*given, **named)

    setattr(owner, name, wrapped)


def _inside_publish(act: Hop) -> None:
    original = unlearning.publish

    def wrapped(session: Any, *given: Any, **named: Any) -> Any:
        version = original(session, *given, **named)
        session.flush()
        act()
        return version

    unlearning.publish = wrapped


def _mid_chain(act: Hop) -> None:
    runners = chain_process._runners()
    original = runners[Mechanism.method]

    def wrapped(*, steps: int, on_progress: Callable[[int], None], **named: Any) -> Any:
        assert steps >= 2

        def progressed(done: int) -> None:
            on_progress(done)
            if done == steps // 2:
                act()

        return original(steps=steps, on_progress=progressed, **named)

    runners[Mechanism.method] = wrapped
    chain.run = wrapped  # canary tests take their steps in the worker's process


def _inside_destroy(act: Hop) -> None:
    _before(WeightStore, "destroy", lambda: _before(Path, "unlink", act))


def _before_destroying(act: Hop) -> None:
    """Apply `act` from the second call on, because the worker makes the first call when it starts."""
    calls = iter([lambda: None])
    _before(periodic_jobs, "destroy_orphans", lambda: next(calls, act)())


def _one_writes_at_a_time() -> None:
    global _writing
    _writing = _turns()  # separate for each worker that is forked from the same process
    original = Database.writing

    @contextlib.contextmanager
    def wrapped(self: Database, **named: Any) -> Iterator[Any]:
        with _writing, original(self, **named) as session:
            yield session

    Database.writing = wrapped

    scrub = Database.scrub

    def scrubbed(self: Database) -> None:
        with _writing:
            scrub(self)

    Database.scrub = scrubbed

    for owner in (journal, verification):
        owner.locked = _with_writing(owner.locked)
    periodic_jobs._with_root = _holding(periodic_jobs._with_root)


def _holding(work: Callable[..., None]) -> Callable[..., None]:
    def wrapped(*given: Any, **named: Any) -> None:
        with _writing:
            work(*given, **named)

    return wrapped


def _with_writing(locked: Callable[..., Any]) -> Callable[..., Any]:
    @contextlib.contextmanager
    def wrapped(*given: Any, **named: Any) -> Iterator[Any]:
        with _writing, locked(*given, **named) as held:
            yield held

    return wrapped


INSTALL: dict[str, Callable[[Hop], None]] = {
    "heard": functools.partial(_before, periodic_jobs, "destroy_orphans"),
    "claim not committed": functools.partial(_after, queue, "claim"),
    "claimed": functools.partial(_before, lease.Lease, "__enter__"),
    "key of a new block put": functools.partial(_after, SealedStore, "_put_key"),
    "new block put": functools.partial(_after, RowStore, "_put"),
    "rows written beside": functools.partial(_after, RowStore, "edit"),
    "rows not committed": functools.partial(_after, unlearning, "commit_rows"),
    "about to destroy the old rows": functools.partial(_before, RowStore, "destroy_replaced"),
    "a key of the old rows zeroed": functools.partial(_after, SealedStore, "_wipe_key"),
    "old rows destroyed": functools.partial(_after, RowStore, "destroy_replaced"),
    "confirmation not committed": functools.partial(_after, unlearning, "confirm_edited"),
    "confirmed": functools.partial(_before, learning, "run_chain"),
    "mid-chain": _mid_chain,
    "key of the weights put": lambda act: _before(WeightStore, "put", lambda: _after(SealedStore, "_put_key", act)),
    "weights put": functools.partial(_after, WeightStore, "put"),
    "publication not committed": _inside_publish,
    "published": functools.partial(_after, runner, "_work"),
    "about to destroy": _before_destroying,
    "old key zeroed": _inside_destroy,
    "old weights gone": functools.partial(_after, WeightStore, "destroy"),
}
OF_LEARNING = (
    "claim not committed",
    "claimed",
    "mid-chain",
    "key of the weights put",
    "weights put",
    "publication not committed",
    "published",
    "about to destroy",
)
"""Hops of the first run of a model, which has nothing to erase and nothing to destroy."""


OF_ADDING: dict[str, Callable[[Hop], None]] = {
    "claim not committed": INSTALL["claim not committed"],
    "claimed": INSTALL["claimed"],
    "about to edit": functools.partial(_before, RowStore, "edit"),
    "new block put": INSTALL["new block put"],
    "rows written beside": INSTALL["rows written beside"],
    "rows not committed": INSTALL["rows not committed"],
    "old rows destroyed": INSTALL["old rows destroyed"],
    "about to destroy the batch": functools.partial(_before, RowStore, "delete"),
    "batch destroyed": functools.partial(_after, RowStore, "delete"),
    "confirmation not committed": INSTALL["confirmation not committed"],
    "confirmed": INSTALL["confirmed"],
    "mid-chain": INSTALL["mid-chain"],
    "publication not committed": INSTALL["publication not committed"],
}
"""Hops of a run that writes rows added to a dataset and erases a person among them."""


def _of_function(hop: str) -> Callable[[Hop], None]:
    """Install a hop `MODULE.NAME, not committed` after the function has returned, or a hop `MODULE.NAME, committed`
    after its transaction has also been committed."""
    path, _, when = hop.partition(", ")
    module, _, name = path.rpartition(".")
    owner = importlib.import_module(module)
    if when == "not committed":
        return functools.partial(_after, owner, name)
    assert when == "committed", hop
    return functools.partial(_after_commit, owner, name)


def _after_commit(owner: Any, name: str, act: Hop) -> None:
    called = threading.local()
    _after(owner, name, lambda: setattr(called, "is_set", True))
    original = Database.writing

    @contextlib.contextmanager
    def wrapped(self: Database, **named: Any) -> Iterator[Any]:
        with original(self, **named) as session:
            yield session
        if getattr(called, "is_set", False):
            act()

    Database.writing = wrapped


def install(hop: str, act: Act) -> None:
    """Make this worker apply `act` when the worker or one of its runs first reaches `hop`. The hop is one of those
    named above or one for a function (see `_of_function`)."""
    worker, done = os.getpid(), mmap.mmap(-1, 1)  # shared with the processes that are forked from this one

    def happen() -> None:
        if not done[0]:
            done[0] = 1
            act(worker)

    _one_writes_at_a_time()
    named = INSTALL | OF_ADDING
    (named[hop] if hop in named else _of_function(hop))(happen)
