"""Commands of the children of `test_process.py`. Imports little, so that their server starts soon."""

import ctypes
import os
import resource
import signal
import socket
from multiprocessing.connection import Connection

WARMED = []
"""An item for each call of `warm`."""


def warm() -> None:
    WARMED.append(os.getpid())


def main(connection: Connection, *descriptors: int) -> None:
    match connection.recv():
        case "say who you are":
            core, dumpable = resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
            opened = sorted(int(descriptor) for descriptor in os.listdir("/dev/fd"))[:-1]
            connection.send((os.getpid(), os.getppid(), core, dumpable, len(opened)))
        case "who warmed you":
            connection.send(WARMED)
        case "read":
            with socket.socket(fileno=descriptors[0]) as given:
                connection.send(given.recv(100))
        case "say much":
            connection.send(bytes(10_000_000))
        case "work without end":
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(os.getpid(), number)
            connection.send((os.getpid(), os.getppid()))
            sum(iter(int, 1))  # holds the interpreter forever
