"""Servers on a local port that respond to a delivery in the ways that real receivers do."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Answer = Callable[[socket.socket], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that a receiver has received."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    port: int
    calls: list[Call] = field(default_factory=list)
    connections: list[str] = field(default_factory=list)
    """Addresses at which the server was reached, with the TLS name: `127.0.0.1 receiver.test`."""


def status(code: int, *headers: str, body: bytes = b"") -> Answer:
    """Return an `Answer` with this status code."""
    lines = [f"HTTP/1.1 {code} X", f"Content-Length: {len(body)}", *headers]
    return saying("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def saying(data: bytes) -> Answer:
    """Return an `Answer` that sends these bytes."""
    return lambda connection: connection.sendall(data)


def dripping(start: bytes, *, stop: threading.Event) -> Answer:
    """Return an `Answer` that sends `start` and then one byte at a time until `stop` is set."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(start)
        while not stop.wait(0.02):
            connection.sendall(b"x")

    return answer


def silent(stop: threading.Event) -> Answer:
    """Return an `Answer` that sends nothing until `stop` is set, or for a limited time if a test fails before that."""
    return lambda connection: (stop.wait(240), None)[1]


@contextlib.contextmanager
def serving(
    answer: Answer, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[Server]:
    """Start a server that gives the same answer to every call until the block ends."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listener:
        server = Server(port=listener.getsockname()[1])
        threads: list[threading.Thread] = []

        def accept() -> None:
            with contextlib.suppress(OSError):  # the listener was shut down
                while True:
                    connection, _ = listener.accept()
                    threads.append(threading.Thread(target=_serve, args=(connection, answer, server, tls)))
                    threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join()


def _serve(connection: socket.socket, answer: Answer, server: Server, tls: ssl.SSLContext | None) -> None:
    names: list[str | None] = [None]
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(OSError))  # the caller has disconnected
        stack.callback(connection.close)
        address = connection.getsockname()[0]
        if tls is not None:
            tls.sni_callback = lambda _socket, name, _context: names.append(name)
            connection = stack.enter_context(tls.wrap_socket(connection, server_side=True))
        server.connections.append(f"{address} {names[-1]}")
        call = _read(connection)
        if call is not None:
            server.calls.append(call)
            answer(connection)


def _read(connection: socket.socket) -> Call | None:
    """Read and return a call, or None if the caller disconnected before the call was complete."""
    with connection.makefile("rb") as stream:
        line = stream.readline().decode("latin-1").strip()
        headers = {}
        while header := (written := stream.readline()).decode("latin-1").strip():
            name, _, value = header.partition(":")
            headers[name.lower()] = value.strip()
        length = int(headers.get("content-length", 0))
        body = stream.read(length)
    return Call(line=line, headers=headers, body=body) if written and len(body) == length else None
