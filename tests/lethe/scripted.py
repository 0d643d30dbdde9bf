"""A real HTTP server that follows a script, one reply per call, to test responses that no gateway gives on demand."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply of the server. `drop` closes the connection without a reply, and `cut` closes it in the middle of the
    reply."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True, kw_only=True)
class Script:
    """A script: `replies` to successive calls, the last of which is repeated, and the `calls` that were made."""

    url: str
    replies: list[Reply] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def says(self, *replies: Reply) -> None:
        self.replies = list(replies)


@contextmanager
def running() -> Iterator[Script]:
    script = Script(url="")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("Transfer-Encoding") == "chunked":
                body = _chunks(self.rfile)
            script.calls.append(Call(method=self.command, path=self.path, headers=dict(self.headers), body=body))
            reply = script.replies.pop(0) if len(script.replies) > 1 else script.replies[0]
            if reply.drop:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if reply.cut else content)
            if reply.cut:
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)

        do_POST = do_PATCH = do_DELETE = do_GET

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        script.url = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield script
        server.shutdown()


def _chunks(stream: Any) -> bytes:
    found = b""
    while size := int(stream.readline(), 16):
        found += stream.read(size)
        stream.readline()
    stream.readline()
    return found
