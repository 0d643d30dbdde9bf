"""Deliveries over TLS: to whom they are sent, and how long that may take."""

import contextlib
import datetime
import socket
import ssl
import threading
import time

import pytest
import trustme

from app.webhooks import sender
from app.webhooks.sender import SendResult, Verdict
from tests.app.webhooks import servers
from tests.app.webhooks.deliveries import ALLOWED, BODY, NAME, failed, post, send
from tests.app.webhooks.servers import Server, serving


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """What checks certificates, for somebody who trusts the throw-away authority and no other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    return context


def certified(authority: trustme.CA, *names: str, until: datetime.datetime | None = None) -> ssl.SSLContext:
    """What a receiver shows: a certificate of `authority` for `names`."""
    since = until and until - datetime.timedelta(days=1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, not_before=since, not_after=until).configure_cert(context)
    return context


def secure(server: Server, trusting: ssl.SSLContext, *, name: str = NAME, seconds: float = 10) -> SendResult:
    url = f"https://{name}:{server.port}/hook"
    return sender.send(
        url, BODY, {}, allowed=ALLOWED, timeout_seconds=seconds, resolve=lambda _: ["127.0.0.1"], tls=trusting
    )


def test_tls_is_to_the_name_and_the_connection_to_the_address(authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    """The receiver is asked for by its name, shows a certificate for it, and is called at the checked address."""
    with serving(servers.status(202), tls=certified(authority, NAME)) as server:
        assert secure(server, trusting) == SendResult(verdict=Verdict.DELIVERED, status=202)
    assert server.connections == [f"127.0.0.1 {NAME}"]
    assert server.calls[0].headers["host"] == f"{NAME}:{server.port}"
    assert server.calls[0].body == BODY


def test_an_address_can_have_a_certificate(authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    """An address literal is checked against the addresses in the certificate."""
    for names, expected in ((["127.0.0.1"], None), (["127.0.0.2", NAME], "tls_failed")):
        with serving(servers.status(200), tls=certified(authority, *names)) as server:
            assert secure(server, trusting, name="127.0.0.1").error_code == expected


def test_a_wrong_certificate_is_refused(authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    """Nothing is sent to a receiver whose certificate is for another name, by another authority, or over."""
    over = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    for context in (
        certified(authority, "other.test"),
        certified(trustme.CA(), NAME),
        certified(authority, NAME, until=over),
    ):
        with serving(servers.status(200), tls=context) as server:
            assert secure(server, trusting) == failed("tls_failed")
        assert not server.calls


def test_throw_away_authorities_are_not_trusted_by_default(authority: trustme.CA) -> None:
    """Unless it is told otherwise, the sender trusts the public authorities only."""
    with serving(servers.status(200), tls=certified(authority, "127.0.0.1")) as server:
        assert send(f"https://127.0.0.1:{server.port}/") == failed("tls_failed")
    assert not server.calls


def test_missing_authorities_are_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation that cannot read its authorities fails loudly, instead of blaming every receiver."""
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere")
    with serving(servers.status(200)) as server, pytest.raises(OSError, match="No such file"):
        post(server)
    assert not server.connections


def test_a_receiver_without_tls_gets_nothing(trusting: ssl.SSLContext) -> None:
    """A receiver that answers https with plain text is not spoken to in plain text."""
    received = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                with contextlib.suppress(ConnectionResetError):  # an answer was left unread
                    while data := connection.recv(4096):
                        received.append(data)

        thread = threading.Thread(target=answer)
        thread.start()
        assert secure(Server(port=listener.getsockname()[1]), trusting) == failed("tls_failed")
        thread.join()
    assert received
    assert b"deletion_request" not in b"".join(received)


def test_a_slow_handshake_does_not_stretch_the_time(trusting: ssl.SSLContext) -> None:
    """A receiver that accepts and never greets is cut off when the time is over."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        begun = time.monotonic()
        assert secure(Server(port=listener.getsockname()[1]), trusting, seconds=0.3) == failed("timeout")
        assert time.monotonic() - begun < 20


def test_dripping_over_tls_does_not_stretch_the_time(
    authority: trustme.CA, trusting: ssl.SSLContext, stop: threading.Event
) -> None:
    """The whole time is limited under TLS too, where one read takes several of the connection below."""
    answer = servers.dripping(b"HTTP/1.1 200 OK\r\nX-Slow: ", stop=stop)
    with serving(answer, tls=certified(authority, NAME)) as server:
        begun = time.monotonic()
        assert secure(server, trusting, seconds=0.3) == failed("timeout")
        assert time.monotonic() - begun < 20
        stop.set()
