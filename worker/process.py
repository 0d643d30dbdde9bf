"""Child processes that leave no memory behind when they end.

A server that has never held a record forks them. It imports their modules when the first child is requested, so that a
worker without work needs neither torch nor torch's memory; every later child starts within milliseconds. Each child has
a lifeline, a socket whose other end belongs to its owner: when the owner closes it or dies, the server kills the child.
In any case, all of the child's memory is returned to the operating system.

Unlike `multiprocessing`'s fork server, this server is forked from its worker, kills the children of a dead owner, and
leaves no file behind (`docs/decisions/0005-one-process-per-run.md`).
"""

import atexit
import contextlib
import ctypes
import functools
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
from pathlib import Path
from typing import NoReturn, Self

from lethe import hardening

_GONE_WITHIN = 10.0
"""Seconds to wait until a killed child has ended and the server reports it."""
_MAX_DESCRIPTORS = 128
_COLD, _WARM = b"!", b"w"
"""Messages that request a child; with the second, the server first calls the module's `warm`."""
_MADV_COLLAPSE = 25
_ENDED_BEFORE_LARGE_PAGES = 20
"""Number of children after which a server moves to large pages, which takes it up to two seconds."""
_NICENESS = 10
"""Niceness of children, which leaves them a tenth of a core that other processes use fully."""


class Child:
    """Child process that sends messages through `connection`, which is closed when the child ends. Leaving the block
    kills the child if it is still running, and waits until the process and its memory are gone."""

    def __init__(self, connection: Connection, lifeline: socket.socket) -> None:
        self.connection = connection
        self._lifeline = lifeline

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        with self.connection, self._lifeline:
            # An error means that the server is dead, and so is the child.
            with contextlib.suppress(OSError):
                self._lifeline.shutdown(socket.SHUT_WR)
            # Both ends hang up once the server has waited for the child. poll() reports that even with unread messages.
            for socket_end in (self.connection, self._lifeline):
                closed = select.poll()
                closed.register(socket_end, 0)
                closed.poll(_GONE_WITHIN * 1000)


class Forker:
    """Forker of children from a separate server process; each runs `main(connection, *descriptors)` of a module. If the
    module has a function `warm`, the server calls it once, before the first child started with `warm`."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._server: int | None = None

    def prepare(self) -> None:
        """Fork the server from this process, before the worker opens or starts anything else. Without this call, the
        server is a new interpreter that must import even modules already loaded here."""
        with self._lock:
            if self._control is None:
                with self._new_control() as theirs:
                    self._server = os.fork()
                    if self._server == 0:
                        _be_the_server(theirs.fileno(), self._module)

    def start(self, *descriptors: int, warm: bool = False) -> Child:
        """Start a child with copies of these descriptors. A child that cannot run is treated as ended."""
        mine, theirs = socket.socketpair()
        lifeline, lifeline_end = socket.socketpair()
        try:
            with theirs, lifeline_end, self._lock:
                try:
                    self._ask(theirs.fileno(), lifeline_end.fileno(), *descriptors, warm=warm)
                # The server does not exist yet, or was killed.
                except (BrokenPipeError, ConnectionResetError):
                    self._launch()
                    self._ask(theirs.fileno(), lifeline_end.fileno(), *descriptors, warm=warm)
        except BaseException:
            mine.close()
            lifeline.close()
            raise
        return Child(Connection(mine.detach()), lifeline)

    def _ask(self, *descriptors: int, warm: bool) -> None:
        if self._control is None:
            raise BrokenPipeError
        socket.send_fds(self._control, [_WARM if warm else _COLD], descriptors)

    def _launch(self) -> None:
        with self._new_control() as theirs:
            program = f"from worker import process; process._be_the_server(0, {self._module!r})"
            server = subprocess.Popen([sys.executable, "-c", program], stdin=theirs.fileno())  # noqa: S603  our own interpreter
        # With a return code, Popen does not warn that the server outlives this object.
        self._server, server.returncode = server.pid, 0

    def _new_control(self) -> socket.socket:
        """Open a connection for a new server and return the server's end of it."""
        if self._control and self._server:
            self._control.close()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._server, 0)
        self._control, theirs = socket.socketpair()
        atexit.register(self._control.close)
        return theirs


def _be_the_server(control: int, module: str) -> NoReturn:
    """Run `module.main` in a child for each message on `control`. When `control` closes, kill all children and exit."""
    try:
        control = _alone_with(control)
        hardening.harden()
        for number in (signal.SIGINT, signal.SIGTERM):
            # These signals are for the worker, which then finishes its run.
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _serve(socket.socket(fileno=control), functools.cache(functools.partial(_main_of, module)))
    # The server holds no record, so the traceback may be printed.
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def _main_of(module: str, message: bytes) -> Callable[..., None]:
    """Import `module` and return its `main`. Its objects are never garbage-collected, so children share them."""
    loaded = importlib.import_module(module)
    if message == _WARM:
        loaded.warm()
    gc.freeze()
    main: Callable[..., None] = loaded.main
    return main


def _serve(control: socket.socket, main: Callable[[bytes], Callable[..., None]]) -> None:
    # Process id by lifeline.
    children: dict[int, int] = {}
    ended = 0
    events = select.poll()
    events.register(control, select.POLLIN)
    while True:
        for descriptor, _ in events.poll():
            if descriptor != control.fileno():
                events.unregister(descriptor)
                _kill(children.pop(descriptor))
                os.close(descriptor)
                ended += 1
                if ended == _ENDED_BEFORE_LARGE_PAGES:
                    _use_large_pages()
            elif (message := socket.recv_fds(control, 1, _MAX_DESCRIPTORS))[0]:
                descriptors = message[1]
                # A child cannot run if descriptors, memory or processes are exhausted.
                if len(descriptors) < 2:
                    for mine in descriptors:
                        os.close(mine)
                    continue
                connection, lifeline, *others = descriptors
                with contextlib.suppress(OSError):
                    children[lifeline] = _forked(
                        main(message[0]), connection, others, not_for_it=[control.fileno(), lifeline, *children]
                    )
                    events.register(lifeline, select.POLLIN)
                for mine in (connection, *others) if lifeline in children else descriptors:
                    os.close(mine)
            else:
                for child in children.values():
                    _kill(child)
                return


def _use_large_pages() -> None:
    """Move this process's memory to pages of 2 MB, if Linux can, because each page delays a child's start and end."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/maps").read_bytes().splitlines():
            addresses, access, _, _, inode, *_ = line.split()
            if access == b"rw-p" and inode == b"0":
                start, end = (int(address, 16) for address in addresses.split(b"-"))
                ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_COLLAPSE)


def _forked(main: Callable[..., None], connection: int, others: Sequence[int], *, not_for_it: Sequence[int]) -> int:
    """Fork a child and return its process id."""
    server = os.getpid()
    if child := os.fork():
        return child
    try:
        # PR_SET_PDEATHSIG has no effect if the server died before the call.
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() == server:
            # The gateway must answer as fast during a run as without one.
            os.nice(_NICENESS)
            hardening.harden()
            for descriptor in not_for_it:
                os.close(descriptor)
            main(Connection(connection), *others)
    finally:
        os._exit(0)


def _kill(child: int) -> None:
    # The process exists, at least as a zombie.
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _alone_with(descriptor: int) -> int:
    """Close all inherited descriptors except `descriptor`, stdout and stderr. Return the new number of `descriptor`."""
    copy, nothing = os.dup(descriptor), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for inherited in os.listdir("/dev/fd"):
        if int(inherited) > 2 and int(inherited) != copy:
            with contextlib.suppress(OSError):
                os.close(int(inherited))
    return copy
