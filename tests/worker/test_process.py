"""Child processes never outlive the task for which they were forked."""

import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest

from tests.faults.processes import wait_until
from worker import process
from worker.process import Child, Forker

OWNER = """
import sys
from worker.process import Forker
forker = Forker("tests.worker.child")
if sys.argv[1] == "forked":
    forker.prepare()
child = forker.start()
child.connection.send("work without end")
print(*child.connection.recv(), flush=True)
input()
"""


@pytest.fixture(scope="module")
def forker() -> Forker:
    return Forker("tests.worker.child")


def _asked(child: Child, what: str) -> Any:
    child.connection.send(what)
    return child.connection.recv()


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_child_is_hardened_and_isolated(forker: Forker) -> None:
    """A child process is hardened and has no open descriptors except its connection."""
    with forker.start() as one, forker.start() as other:
        pid, server, core, dumpable, opened = _asked(one, "say who you are")
        assert (core, dumpable, opened) == ((0, 0), 0, 4)
        assert _asked(other, "say who you are")[1] == server
        assert server != os.getpid()
        wait_until(lambda: _gone(pid), seconds=60)


def test_a_child_gets_the_descriptors_that_are_passed(forker: Forker) -> None:
    """A child process can read from an open descriptor that was passed to it."""
    mine, theirs = socket.socketpair()
    with mine, theirs, forker.start(theirs.fileno()) as child:
        mine.send(b"hello")
        assert _asked(child, "read") == b"hello"


def test_the_server_imports_libraries_once_for_all_children() -> None:
    """Modules that only some children need are imported by the fork server, once, when the first of these children
    starts."""
    forker = Forker("tests.worker.child")
    warmed = []
    for warm in (False, True, True):
        with forker.start(warm=warm) as child:
            server = _asked(child, "say who you are")[1]
        with forker.start() as child:
            warmed.append(_asked(child, "who warmed you"))
    assert warmed == [[], [server], [server]]


def test_children_start_as_before_once_the_server_has_large_pages() -> None:
    """Children that start before and after their server moves its memory to large pages come from the same server and
    are hardened alike."""
    forker = Forker("tests.worker.child")
    answers = []
    for _ in range(process._ENDED_BEFORE_LARGE_PAGES + 2):
        with forker.start() as child:
            answers.append(_asked(child, "say who you are")[1:])
    assert answers == answers[:1] * len(answers)


def test_a_child_is_dead_when_its_with_block_ends(forker: Forker) -> None:
    """A child process in an infinite loop that ignores SIGTERM and SIGINT is dead as soon as its `with` block has
    ended."""
    with forker.start() as child:
        pid, _ = _asked(child, "work without end")
        assert not _gone(pid)
        started = time.monotonic()
    assert _gone(pid)
    assert time.monotonic() - started < 10


def test_leaving_the_with_block_does_not_wait_for_unread_data(forker: Forker) -> None:
    """A child process's `with` block ends without waiting for data that the child is still sending."""
    with forker.start() as child:
        child.connection.send("say much")
        assert child.connection.poll(120)
        started = time.monotonic()
    assert time.monotonic() - started < 10


def test_a_killed_child_ends_its_connection(forker: Forker) -> None:
    """If a child process is killed, a caller that is waiting for data from it is notified immediately."""
    with forker.start() as child:
        pid, _ = _asked(child, "work without end")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises((EOFError, OSError)):
            child.connection.recv()


def test_a_killed_server_ends_its_children_and_is_replaced(forker: Forker) -> None:
    """If a fork server is killed, none of its children survive, and the next child comes from a new server."""
    with forker.start() as child:
        pid, server = _asked(child, "work without end")
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: _gone(pid), seconds=60)
    with forker.start() as another:
        assert _asked(another, "say who you are")[1] != server


@pytest.mark.parametrize("how", ["forked", "new"])
def test_no_child_outlives_a_killed_worker(how: str) -> None:
    """If a worker is killed with SIGKILL, its fork server and a child in an infinite loop end within a second."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout
        processes = [int(pid) for pid in owner.stdout.readline().split()]
        assert len(processes) == 2
        owner.kill()
        wait_until(lambda: all(_gone(pid) for pid in processes), seconds=60)
