"""Connections that are held open, trickle or never end, over real sockets, without a key."""

import contextlib
import json
import re
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import psutil
import pytest
import uvicorn

from app.api import connections
from app.api.connections import Limits
from app.config import Settings
from app.main import create_app
from tests.faults.processes import wait_until

Address = tuple[str, int]
Served = Callable[[Limits], Address]
HEAD = b"Host: lethe\r\nContent-Type: application/json\r\n"


@pytest.fixture
def served(settings: Settings) -> Iterator[Served]:
    """A gateway in a thread, on connections with these limits."""
    with contextlib.ExitStack() as stack:

        def start(limits: Limits) -> Address:
            connections.allow_many()
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=2048))
            config = uvicorn.Config(
                create_app(settings), log_config=None, loop="asyncio", ws="none", http=connections.protocol(limits)
            )
            server = uvicorn.Server(config)
            thread = threading.Thread(target=server.run, args=([listener],))
            thread.start()

            def stop() -> None:
                server.should_exit = True
                thread.join()

            stack.callback(stop)
            wait_until(lambda: server.started)
            address: Address = listener.getsockname()
            return address

        yield start


@pytest.fixture
def call(admin_key: str) -> Callable[[Address], httpx.Response]:
    """A call with a key, as somebody else makes it meanwhile."""

    def made(address: Address) -> httpx.Response:
        headers = {"Authorization": f"Bearer {admin_key}"}
        return httpx.get(f"http://{address[0]}:{address[1]}/v1/models", headers=headers, timeout=60)

    return made


def _said(connection: socket.socket) -> bytes:
    """Everything until the connection is closed."""
    connection.settimeout(60)
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(65536):
            said += more
    return said


def _problem(said: bytes) -> tuple[int, str]:
    head, _, body = said.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["code"]


def test_slow_bodies_without_a_key_take_no_place(served: Served, call: Callable[[Address], httpx.Response]) -> None:
    """205 connections that send one byte of a body and no key are refused at once, or wait for a place of their own;
    others are served, and the service is ready."""
    address = served(Limits())
    with contextlib.ExitStack() as stack:
        for path in [b"/v1/deletion-requests"] * 205 + [b"/admin/login"] * 205:
            slow = stack.enter_context(socket.create_connection(address))
            slow.sendall(b"POST " + path + b" HTTP/1.1\r\n" + HEAD + b"Content-Length: 100\r\n\r\n{")
        assert call(address).status_code == 200
        assert httpx.get(f"http://{address[0]}:{address[1]}/readyz", timeout=60).json()["status"] == "ready"


def test_a_key_is_asked_for_before_the_body(served: Served) -> None:
    """Who has no key is told so before any of the body has come."""
    with socket.create_connection(served(Limits())) as slow:
        slow.sendall(b"POST /v1/deletion-requests HTTP/1.1\r\n" + HEAD + b"Content-Length: 100\r\n\r\n")
        slow.settimeout(60)
        assert slow.recv(65536).startswith(b"HTTP/1.1 401")


def test_a_head_that_never_ends_is_refused(served: Served, call: Callable[[Address], httpx.Response]) -> None:
    """A head that goes on and on is refused with 431 before it takes memory; nobody else notices."""
    address = served(Limits())
    assert call(address).status_code == 200
    before = psutil.Process().memory_info().rss
    with socket.create_connection(address) as endless:
        endless.sendall(b"GET /healthz HTTP/1.1\r\n" + HEAD + b"X: ")
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for _ in range(80):
                endless.sendall(b"a" * 2**20)
        said = b""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            said = _said(endless)
    assert not said or _problem(said) == (431, "headers_too_large")
    assert psutil.Process().memory_info().rss - before < 30 * 2**20
    assert call(address).status_code == 200


@pytest.mark.parametrize(
    "head", [b"X: " + b"a" * 40_000, b"\r\n".join(b"X%d: a" % number for number in range(200))], ids=["long", "many"]
)
def test_too_large_a_head_is_told_so(served: Served, head: bytes) -> None:
    """A head with too many bytes or fields, whole or not, gets a problem with 431, and the connection is closed."""
    address = served(Limits())
    for end in (b"", b"\r\n\r\n"):
        with socket.create_connection(address) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\n" + HEAD + head + end)
            if end or len(head) > 32 * 1024:
                assert _problem(_said(connection)) == (431, "headers_too_large")


def test_half_sent_heads_are_closed_in_time(served: Served, call: Callable[[Address], httpx.Response]) -> None:
    """1,500 heads that stop in the middle are closed, most of them at once, the rest when their time is over; others
    are served meanwhile."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4096:
        pytest.skip("This system lets nobody have so many connections")
    address = served(Limits(head_seconds=5))
    with contextlib.ExitStack() as stack:
        half = [stack.enter_context(socket.create_connection(address)) for _ in range(1500)]
        for connection in half:
            with contextlib.suppress(OSError):
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: le")
        assert call(address).status_code == 200
        said = [_said(connection) for connection in half]
        assert all(not one or _problem(one) == (408, "request_timed_out") for one in said)
        assert sum(map(bool, said)) >= 1


def test_an_idle_connection_is_closed(served: Served) -> None:
    """Who connects and says nothing is let go without a word; so is who says nothing after an answer to half a body."""
    address = served(Limits(head_seconds=0.3))
    with socket.create_connection(address) as silent:
        assert _said(silent) == b""
    with socket.create_connection(address) as early:
        early.sendall(b"POST /v1/models HTTP/1.1\r\n" + HEAD + b"Content-Length: 4\r\n\r\n{")
        assert early.recv(65536).startswith(b"HTTP/1.1 401")
        early.sendall(b'"a"')
        _said(early)


def test_a_body_that_trickles_is_told_so(served: Served, admin_key: str) -> None:
    """A body with a key that stops in the middle gets 408, and one that comes steadily is waited for."""
    address = served(Limits(body_seconds=0.5, body_bytes=10))
    head = b"POST /v1/lineage HTTP/1.1\r\nAuthorization: Bearer " + admin_key.encode() + b"\r\n" + HEAD
    with socket.create_connection(address) as slow:
        slow.sendall(head + b"Content-Length: 100\r\n\r\n{")
        assert _problem(_said(slow)) == (408, "request_timed_out")
    with socket.create_connection(address) as steady:
        steady.sendall(head + b"Connection: close\r\nContent-Length: 600\r\n\r\n")
        for _ in range(30):
            steady.sendall(b" " * 20)
            time.sleep(0.05)
        assert re.match(rb"HTTP/1.1 422", _said(steady))


def test_who_does_not_read_is_let_go(served: Served) -> None:
    """Who asks for much and reads nothing of it is cut off."""
    address = served(Limits(answer_seconds=0.3))
    with socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(address)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for _ in range(200):
                lazy.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: lethe\r\n\r\n")
                time.sleep(0.02)
            pytest.fail("It was served for ever")
