"""Answers that are slow, long, broken or early: no receiver takes more than its time and its share of memory."""

import socket
import threading
import time
from collections.abc import Sequence

import pytest

from app.webhooks import sender
from app.webhooks.sender import SendResult, Verdict
from tests.app.webhooks import servers
from tests.app.webhooks.deliveries import ALLOWED, BODY, failed, post, send
from tests.app.webhooks.servers import serving


@pytest.mark.parametrize(
    "start",
    [b"", b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\nX-Slow: "],
    ids=["nothing", "status", "headers"],
)
def test_dripping_bytes_do_not_stretch_the_time(start: bytes, stop: threading.Event) -> None:
    """A receiver that answers a byte at a time is cut off when the whole time is over."""
    with serving(servers.dripping(start, stop=stop)) as server:
        begun = time.monotonic()
        outcome = post(server, seconds=0.3)
        took = time.monotonic() - begun
        stop.set()
    assert outcome == failed("timeout")
    assert took < 20


def test_a_silent_receiver_is_not_waited_for(stop: threading.Event) -> None:
    """A receiver that takes the call and answers nothing costs no more than the time that was given."""
    with serving(servers.silent(stop)) as server:
        begun = time.monotonic()
        assert post(server, seconds=2) == failed("timeout")
        assert 2 <= time.monotonic() - begun < 20
        stop.set()
    assert server.calls[0].body == BODY


def test_a_receiver_that_does_not_read_is_not_waited_for() -> None:
    """A large body to a receiver that takes none of it ends when the time is over."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        begun = time.monotonic()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        assert send(url, seconds=0.3, body=bytes(64 << 20)) == failed("timeout")
        assert time.monotonic() - begun < 20


def test_a_slow_resolver_counts(stop: threading.Event) -> None:
    """The time for the name is part of the time for the delivery."""

    def slow(_host: str) -> Sequence[str]:
        stop.wait(30)
        return ["127.0.0.1"]

    begun = time.monotonic()
    outcome = sender.send("https://receiver.test/", BODY, {}, allowed=ALLOWED, timeout_seconds=0.3, resolve=slow)
    assert outcome == failed("timeout")
    assert time.monotonic() - begun < 20


def test_the_status_decides_whatever_follows(stop: threading.Event) -> None:
    """Once a receiver has said 2xx it has the delivery, even if the rest of its answer drips or breaks."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"
    with serving(servers.dripping(head, stop=stop)) as dripping:
        begun = time.monotonic()
        assert post(dripping, seconds=3) == SendResult(verdict=Verdict.DELIVERED, status=200)
        assert time.monotonic() - begun < 20
        stop.set()
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    for rest in (head, head + b"x", chunked):
        with serving(servers.saying(rest)) as broken:
            assert post(broken) == SendResult(verdict=Verdict.DELIVERED, status=200)


def test_large_answers_are_not_read() -> None:
    """Of an answer without end some 64 KiB are taken, and the receiver is hung up on."""
    sent = []

    def endless(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connection.sendall(b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"1000\r\n" + bytes(4096) + b"\r\n")
            sent.append(4096)

    with serving(endless) as server:
        begun = time.monotonic()
        assert post(server, seconds=60) == failed("http_500", 500)
        assert time.monotonic() - begun < 30
    assert sum(sent) < 16 << 20  # what buffers of the system hold besides


def test_endless_headers_are_not_read() -> None:
    """An answer whose headers do not end within 64 KiB is none; nor are interim answers without end."""
    for line in (b"X-Filler: " + b"x" * 1000 + b"\r\n", b"\r\nHTTP/1.1 102 Processing\r\n"):
        with serving(servers.saying(b"HTTP/1.1 103 Early Hints\r\n" + line * 3000)) as server:
            assert post(server, seconds=30) == failed("answer_too_large")

    def in_two_parts(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Filler: " + b"x" * 40_000)
        time.sleep(0.1)
        connection.sendall(b"x" * 30_000 + b"\r\n\r\n")

    with serving(in_two_parts) as server:
        assert post(server, seconds=30) == failed("answer_too_large")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ],
)
def test_what_is_no_answer_is_a_failure(answer: bytes) -> None:
    """A receiver that hangs up, or does not speak HTTP, has not taken the delivery."""
    with serving(servers.saying(answer)) as server:
        assert post(server) == failed("answer_malformed")


def test_a_broken_connection_is_a_failure() -> None:
    """A receiver that resets the connection has not taken the delivery."""

    def reset(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with serving(reset) as server:
        assert post(server) == failed("connection_lost")


def test_an_early_answer_is_heard() -> None:
    """A receiver may refuse a large body, and close, before it has read it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"HTTP/1.1 413 X\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        outcome = send(f"http://127.0.0.1:{listener.getsockname()[1]}/", body=bytes(64 << 20))
        thread.join()
    assert outcome == failed("http_413", 413)
