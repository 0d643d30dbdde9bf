"""Ports for servers that are told where to listen, and that may go away and come back."""

import contextlib
import secrets
import socket

_given: set[int] = set()


def free_port() -> int:
    """Below those that the system gives away by itself: nobody else is given it while its server is not there."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port
