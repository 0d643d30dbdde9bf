"""Ports for servers that get their port from a test and can be restarted."""

import contextlib
import secrets
import socket

_given: set[int] = set()


def free_port() -> int:
    """Return a free port below the range from which the system assigns ports, so that no other process gets it while
    its server is down."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port
