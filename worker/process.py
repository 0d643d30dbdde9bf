"""Processes that end with what they did: children of which nothing is left.

Children are forked by a server that has imported what they need and has never held a record, so starting one takes
milliseconds. Each hangs by a leash, a socket whose other end its owner holds: when the owner lets go or dies, the
server kills the child. What a child has in memory goes back to the operating system, whatever happened.

What `multiprocessing`'s fork server does not do, and this must: be forked from a worker that has imported everything
already, kill the children of a dead owner, and leave no file behind (`docs/decisions/0005-one-process-per-run.md`).
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import NoReturn, Self

from lethe import hardening

_GONE_WITHIN = 10.0
"""Seconds to wait for a killed child to be gone, and for the server to say so."""
_MOST_DESCRIPTORS = 128


class Child:
    """A child process: what it says comes by `connection`, which ends when the child has ended.

    Leaving the block ends it, if it has not ended by itself, and waits until it is gone, its memory with it.
    """

    def __init__(self, connection: Connection, leash: socket.socket) -> None:
        self.connection = connection
        self._leash = leash

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.connection, self._leash:
            with contextlib.suppress(OSError):  # the server is dead, which was the end of the child
                self._leash.shutdown(socket.SHUT_WR)
            for one in (self.connection, self._leash):  # the child has ended; the server has waited for it
                closed = select.poll()
                closed.register(one, 0)  # a hang-up is always told, whatever has not been read
                closed.poll(_GONE_WITHIN * 1000)


class Forker:
    """Forks children that run `main(connection, *descriptors)` of a module, from a server process of its own."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._server: int | None = None  # its process id

    def prepare(self) -> None:
        """Fork the server from this process, which has the module in memory already.

        For a worker that has opened and started nothing yet. Without this call the server is a new interpreter, which
        takes a second to import what is here already.
        """
        with self._lock:
            if self._control is None:
                with self._new_control() as theirs:
                    self._server = os.fork()
                    if self._server == 0:
                        _be_the_server(theirs.fileno(), self._module)

    def start(self, *descriptors: int) -> Child:
        """A child with copies of these descriptors; one that cannot run is a child that has ended."""
        mine, theirs = socket.socketpair()
        leash, held = socket.socketpair()
        try:
            with theirs, held, self._lock:
                try:
                    self._ask(theirs.fileno(), held.fileno(), *descriptors)
                except (BrokenPipeError, ConnectionResetError):  # there is no server yet, or it was killed
                    self._launch()
                    self._ask(theirs.fileno(), held.fileno(), *descriptors)
        except BaseException:
            mine.close()
            leash.close()
            raise
        return Child(Connection(mine.detach()), leash)

    def _ask(self, *descriptors: int) -> None:
        if self._control is None:
            raise BrokenPipeError
        socket.send_fds(self._control, [b"!"], descriptors)

    def _launch(self) -> None:
        with self._new_control() as theirs:
            program = f"from worker import process; process._be_the_server(0, {self._module!r})"
            server = subprocess.Popen([sys.executable, "-c", program], stdin=theirs.fileno())  # noqa: S603  our own interpreter
        self._server, server.returncode = server.pid, 0  # so that nothing complains that it outlives this object

    def _new_control(self) -> socket.socket:
        """The server's end of a new connection to it."""
        if self._control and self._server:
            self._control.close()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._server, 0)
        self._control, theirs = socket.socketpair()
        atexit.register(self._control.close)
        return theirs


def _be_the_server(control: int, module: str) -> NoReturn:
    """Run `module.main` in a child for each message of `control`; end, and all children, when `control` does."""
    try:
        control = _alone_with(control)
        hardening.harden()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # they are for the worker, which then finishes its run
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        main = importlib.import_module(module).main
        gc.freeze()
        _serve(socket.socket(fileno=control), main)
    except BaseException:  # noqa: BLE001  it ends here; no record is in it, so all may be said
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def _serve(control: socket.socket, main: Callable[..., None]) -> None:
    children: dict[int, int] = {}  # from leash to process id
    events = select.poll()
    events.register(control, select.POLLIN)
    while True:
        for descriptor, _ in events.poll():
            if descriptor != control.fileno():
                events.unregister(descriptor)
                _kill(children.pop(descriptor))
                os.close(descriptor)
            elif (message := socket.recv_fds(control, 1, _MOST_DESCRIPTORS))[0]:
                given = message[1]
                if len(given) < 2:  # there was no room for them: a child that cannot run
                    for mine in given:
                        os.close(mine)
                    continue
                connection, leash, *others = given
                with contextlib.suppress(OSError):  # no memory, or no process, is left
                    children[leash] = _forked(main, connection, others, not_for_it=[control.fileno(), leash, *children])
                    events.register(leash, select.POLLIN)
                for mine in (connection, *others) if leash in children else given:
                    os.close(mine)
            else:
                for child in children.values():
                    _kill(child)
                return


def _forked(main: Callable[..., None], connection: int, others: Sequence[int], *, not_for_it: Sequence[int]) -> int:
    """The process id of a new child."""
    server = os.getpid()
    if child := os.fork():
        return child
    try:
        _prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() == server:  # it may have died before it could be asked for
            hardening.harden()
            for descriptor in not_for_it:
                os.close(descriptor)
            main(Connection(connection), *others)
    finally:
        os._exit(0)


def _kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)  # it is there, if only as what nobody has waited for
    os.waitpid(child, 0)


def _alone_with(descriptor: int) -> int:
    """Close what a process has inherited but this descriptor and its output; the descriptor's new number."""
    kept, nothing = os.dup(descriptor), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for inherited in os.listdir("/dev/fd"):
        if int(inherited) > 2 and int(inherited) != kept:
            with contextlib.suppress(OSError):
                os.close(int(inherited))
    return kept


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)
