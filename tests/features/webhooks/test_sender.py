"""Sending of deliveries: addresses, statuses, slow or malformed answers, and TLS."""

import contextlib
import datetime
import email.utils
import inspect
import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Sequence

import pytest
import trustme

from app.features.webhooks import dispatcher, receiver
from app.features.webhooks.dispatcher import DeliveryVerdict, SendResult
from lethe.features.webhooks import signatures as signature
from tests import servers
from tests.features.webhooks.deliveries import ALLOWED, BODY, NAME, failed, post, send
from tests.servers import Server, serving


def test_a_delivery_arrives_unchanged() -> None:
    """The receiver gets one POST with exactly the signed body and headers, and can verify the signature."""
    secret = signature.secret_from(bytes(32))
    now = datetime.datetime.now(datetime.UTC)
    headers = signature.sign(BODY, message_id="whd_1", sent_at=now, secrets=[secret])
    with serving(servers.status(200)) as server:
        url = f"http://127.0.0.1:{server.port}/hook?key=%20a"
        outcome = dispatcher.send(url, BODY, headers, allowed=ALLOWED, timeout_seconds=10)
    assert outcome == SendResult(verdict=DeliveryVerdict.DELIVERED, status=200)
    (call,) = server.calls
    assert (call.line, call.body) == ("POST /hook?key=%20a HTTP/1.1", BODY)
    assert signature.verify(secret, call.headers, call.body, now=now) == "whd_1"
    assert {name: value for name, value in call.headers.items() if not name.startswith("webhook-")} == {
        "host": f"127.0.0.1:{server.port}",
        "user-agent": "lethe-webhooks",
        "content-type": "application/json",
        "content-length": str(len(BODY)),
        "connection": "close",
    }


@pytest.mark.parametrize("code", [200, 201, 202, 204, 299])
def test_any_2xx_status_is_a_success(code: int) -> None:
    """Any response with a 2xx status counts as a successful delivery."""
    with serving(servers.status(code)) as server:
        assert post(server) == SendResult(verdict=DeliveryVerdict.DELIVERED, status=code)


@pytest.mark.parametrize("code", [400, 404, 429, 500, 502, 504, 599])
def test_any_other_status_is_a_failure(code: int) -> None:
    """A response with any other status is a failure, and the error code contains the status."""
    with serving(servers.status(code)) as server:
        assert post(server) == failed(f"http_{code}", code)


def test_status_410_has_its_own_result() -> None:
    """Status 410 is reported with the verdict GONE, so that the caller can end all later deliveries."""
    with serving(servers.status(410)) as server:
        assert post(server) == SendResult(verdict=DeliveryVerdict.GONE, error_code="http_410", status=410)


@pytest.mark.parametrize("code", [300, 301, 302, 303, 304, 307, 308])
def test_redirects_are_not_followed(code: int) -> None:
    """A redirect counts as a failure, and its target is not called."""
    with serving(servers.status(200)) as inner:
        location = f"Location: http://127.0.0.1:{inner.port}/admin"
        with serving(servers.status(code, location)) as server:
            assert post(server) == failed("redirected", code)
        assert len(server.calls) == 1
    assert not inner.connections


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        ("0", 0),
        ("999999999", 86_400),
        ("9" * 5000, 86_400),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("Sun, 06 Nov 1994 08:49:37 +9999", 0),
        ("Sun Nov  6 08:49:37 1994", 0),
        ("soon", None),
        ("-1", None),
        ("1.5", None),
    ],
)
def test_retry_after_is_reported(value: str, seconds: int | None) -> None:
    """If a delivery fails, a Retry-After header in seconds or as a date is reported, up to one day. Any other form is
    ignored."""
    with serving(servers.status(503, f"Retry-After: {value}")) as server:
        outcome = post(server)
    assert outcome.error_code == "http_503"
    assert outcome.retry_after == (None if seconds is None else datetime.timedelta(seconds=seconds))


def test_retry_after_as_a_date_is_converted_to_a_duration() -> None:
    """A date in Retry-After, in any time zone, is converted to the time remaining until that date."""
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=5)
    berlin = at.astimezone(datetime.timezone(datetime.timedelta(hours=1)))
    for text in (email.utils.format_datetime(at, usegmt=True), email.utils.format_datetime(berlin)):
        with serving(servers.status(503, f"Retry-After: {text}")) as server:
            pause = post(server).retry_after
        assert pause is not None
        assert datetime.timedelta(hours=4) < pause <= datetime.timedelta(hours=5)


def test_no_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies from the environment are ignored, because they would connect to addresses that were not checked."""
    with serving(servers.status(500)) as proxy, serving(servers.status(200)) as server:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert post(server).verdict == DeliveryVerdict.DELIVERED
    assert not proxy.connections


def test_no_cookies_are_kept() -> None:
    """A cookie set by a receiver is not sent back."""
    with serving(servers.status(200, "Set-Cookie: session=1; Path=/")) as server:
        assert [post(server).status, post(server).status] == [200, 200]
    assert [call.headers.get("cookie") for call in server.calls] == [None, None]
    assert len(server.connections) == 2


def test_dns_rebinding_is_prevented() -> None:
    """If a name's address changes after the check (DNS rebinding), only the checked address is called."""
    answers = iter([["127.0.0.1"], ["127.0.0.2"]])
    asked = []

    def rebinding(host: str) -> Sequence[str]:
        asked.append(host)
        return next(answers)

    with (
        serving(servers.status(200)) as server,
        serving(servers.status(200), host="127.0.0.2", port=server.port) as inner,
    ):
        url = f"http://{NAME}:{server.port}/"
        outcome = dispatcher.send(url, BODY, {}, allowed=ALLOWED[:1], timeout_seconds=10, resolve=rebinding)
        assert outcome.verdict == DeliveryVerdict.DELIVERED
    assert asked == [NAME]
    assert server.connections == ["127.0.0.1 None"]
    assert server.calls[0].headers["host"] == f"{NAME}:{server.port}"
    assert not inner.connections


def test_a_name_of_this_machine_is_refused() -> None:
    """A name that this machine's resolver maps to 127.0.0.1 is not called."""
    with serving(servers.status(200)) as server:
        for url in (f"https://localhost:{server.port}/", f"https://127.0.0.1:{server.port}/"):
            assert send(url, allowed=[]) == failed("refused_address")
            assert send(url, allowed=["10.0.0.0/8"]) == failed("refused_address")
    assert not server.connections


def test_an_invalid_url_is_not_called() -> None:
    """A delivery applies the same URL rules as the submission. Only permitted networks can be called without TLS."""
    for url in ("ftp://127.0.0.1/", "http://user@127.0.0.1/", "http://127.0.0.1:22/", "not a url", ""):
        assert send(url) == failed("url_invalid")
    assert send("http://hooks.example.com/", allowed=[]) == failed("url_invalid")
    assert send("http://8.8.8.8/") == failed("refused_address")


def test_an_unknown_name_has_its_own_code() -> None:
    """If a name cannot be resolved, the attempt ends with a specific error code."""

    def unknown(host: str) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, f"{host} is unknown")

    outcome = dispatcher.send("https://receiver.test/", BODY, {}, allowed=[], timeout_seconds=5, resolve=unknown)
    assert outcome == failed("not_resolved")


def test_the_next_address_is_tried() -> None:
    """If one address of a name does not answer, the next address is tried. If none answers, the delivery fails."""
    answers = iter([["127.0.0.1", "127.0.0.2"], ["127.0.0.1", "127.0.0.3"]])
    with serving(servers.status(200), host="127.0.0.2") as server:
        url = f"http://{NAME}:{server.port}/"
        outcomes = [
            dispatcher.send(url, BODY, {}, allowed=ALLOWED, timeout_seconds=5, resolve=lambda _: next(answers))
            for _ in range(2)
        ]
    assert outcomes == [SendResult(verdict=DeliveryVerdict.DELIVERED, status=200), failed("not_connected")]


@pytest.mark.slow
def test_a_silent_address_leaves_time_for_the_next() -> None:
    """Each address of a host name gets a share of the time limit, so that a silent address leaves time for the next
    one."""
    with (
        serving(servers.status(200), host="127.0.0.2") as server,
        socket.create_server(("127.0.0.3", server.port), backlog=0),
        contextlib.ExitStack() as stack,
    ):
        # Fill the queue of pending connections.
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.3", server.port))
        answers = iter([["127.0.0.3", "127.0.0.2"], ["127.0.0.3"]])
        url = f"http://{NAME}:{server.port}/"
        outcomes = [
            dispatcher.send(url, BODY, {}, allowed=ALLOWED, timeout_seconds=seconds, resolve=lambda _: next(answers))
            for seconds in (8, 0.3)
        ]
    assert outcomes == [SendResult(verdict=DeliveryVerdict.DELIVERED, status=200), failed("timeout")]


def test_a_receiver_on_ipv6_is_called() -> None:
    """A receiver whose URL contains an IPv6 literal is called, and the Host header has the address in brackets."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with serving(servers.status(200), host="::1") as server:
        assert send(f"http://[::1]:{server.port}/").verdict == DeliveryVerdict.DELIVERED
    assert server.calls[0].headers["host"] == f"[::1]:{server.port}"


def test_results_and_logs_do_not_contain_the_url(caplog: pytest.LogCaptureFixture) -> None:
    """Neither results nor log lines, including those of libraries, contain the URL."""
    secret = "s3cr3t-of-the-receiver"
    caplog.set_level(logging.INFO)
    outcomes = []
    with serving(servers.status(302, f"Location: /{secret}")) as server:
        outcomes.append(send(f"http://127.0.0.1:{server.port}/{secret}"))
    for url in (
        f"http://127.0.0.1:{server.port}/{secret}",
        f"https://{secret}.test/",
        f"https://10.0.0.1/{secret}",
        f"https://u:{secret}@a.test/",
    ):
        outcomes.append(
            dispatcher.send(url, BODY, {}, allowed=ALLOWED, timeout_seconds=5, resolve=lambda host: [f"{host}?"])
        )
    assert [outcome.error_code for outcome in outcomes] == [
        "redirected",
        "not_connected",
        "refused_address",
        "refused_address",
        "url_invalid",
    ]
    assert secret not in repr(outcomes) + caplog.text


def test_every_code_is_documented() -> None:
    """The docstring of `SendResult` lists every error code with which an attempt can end."""
    source = inspect.getsource(dispatcher) + inspect.getsource(receiver)
    used = set(re.findall(r'(?:_Broken|_failed|ReceiverRefused)\("(\w+)"', source)) | {"redirected", "http_<status>"}
    documented = set(re.findall(r"`([\w<>]+)`", inspect.getdoc(SendResult) or "")) - {"error_code"}
    assert documented == used
    assert len(used) == 11


@pytest.mark.parametrize(
    "start",
    [b"", b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\nX-Slow: "],
    ids=["nothing", "status", "headers"],
)
def test_a_dripping_receiver_is_cut_off(start: bytes, stop: threading.Event) -> None:
    """A receiver that answers byte by byte is disconnected at the deadline."""
    with serving(servers.dripping(start, stop=stop)) as server:
        begun = time.monotonic()
        outcome = post(server, seconds=0.3)
        took = time.monotonic() - begun
        stop.set()
    assert outcome == failed("timeout")
    assert took < 100


@pytest.mark.slow
def test_a_silent_receiver_times_out(stop: threading.Event) -> None:
    """A call to a receiver that accepts the connection but never answers ends at the time limit."""
    with serving(servers.silent(stop)) as server:
        begun = time.monotonic()
        assert post(server, seconds=2) == failed("timeout")
        assert 2 <= time.monotonic() - begun < 100
        stop.set()
    assert server.calls[0].body == BODY


def test_a_receiver_that_does_not_read_times_out() -> None:
    """Sending a large body to a receiver that does not read it ends at the deadline."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        begun = time.monotonic()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        assert send(url, seconds=0.3, body=bytes(64 << 20)) == failed("timeout")
        assert time.monotonic() - begun < 100


def test_name_resolution_counts_towards_the_deadline(stop: threading.Event) -> None:
    """If name resolution takes longer than a delivery's time limit, the delivery fails with a timeout."""

    def slow(_host: str) -> Sequence[str]:
        stop.wait(300)
        return ["127.0.0.1"]

    begun = time.monotonic()
    outcome = dispatcher.send("https://receiver.test/", BODY, {}, allowed=ALLOWED, timeout_seconds=0.3, resolve=slow)
    assert outcome == failed("timeout")
    assert time.monotonic() - begun < 100


@pytest.mark.slow
def test_a_2xx_status_is_final(stop: threading.Event) -> None:
    """A 2xx status counts as success even if the rest of the response is slow or is cut off."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"
    with serving(servers.dripping(head, stop=stop)) as dripping:
        begun = time.monotonic()
        assert post(dripping, seconds=3) == SendResult(verdict=DeliveryVerdict.DELIVERED, status=200)
        assert time.monotonic() - begun < 100
        stop.set()
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    for rest in (head, head + b"x", chunked):
        with serving(servers.saying(rest)) as broken:
            assert post(broken) == SendResult(verdict=DeliveryVerdict.DELIVERED, status=200)


def test_large_responses_are_truncated() -> None:
    """Only about 64 KiB of an endless response are read before the connection is closed."""
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
    # Buffers of the operating system contain further bytes.
    assert sum(sent) < 16 << 20


def test_endless_headers_are_refused() -> None:
    """A response with more than 64 KiB of headers, or with endless interim responses, is refused as too large."""
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
def test_a_malformed_response_is_a_failure(answer: bytes) -> None:
    """A delivery fails if the receiver closes the connection or does not speak HTTP."""
    with serving(servers.saying(answer)) as server:
        assert post(server) == failed("answer_malformed")


def test_a_broken_connection_is_a_failure() -> None:
    """A delivery fails if the receiver resets the connection."""

    def reset(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with serving(reset) as server:
        assert post(server) == failed("connection_lost")


def test_an_early_refusal_is_read() -> None:
    """If a receiver responds and closes the connection before it has read all of a large body, the status is still
    reported."""
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


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """Return a TLS client context that trusts only this throw-away authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    return context


def certified(authority: trustme.CA, *names: str, until: datetime.datetime | None = None) -> ssl.SSLContext:
    """Return a TLS server context with a certificate of `authority` for `names`."""
    since = until and until - datetime.timedelta(days=1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, not_before=since, not_after=until).configure_cert(context)
    return context


def secure(server: Server, trusting: ssl.SSLContext, *, name: str = NAME, seconds: float = 10) -> SendResult:
    url = f"https://{name}:{server.port}/hook"
    return dispatcher.send(
        url, BODY, {}, allowed=ALLOWED, timeout_seconds=seconds, resolve=lambda _: ["127.0.0.1"], tls=trusting
    )


def test_tls_verifies_the_name_at_the_checked_address(authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    """The sender connects to the checked address, and TLS checks the certificate against the name."""
    with serving(servers.status(202), tls=certified(authority, NAME)) as server:
        assert secure(server, trusting) == SendResult(verdict=DeliveryVerdict.DELIVERED, status=202)
    assert server.connections == [f"127.0.0.1 {NAME}"]
    assert server.calls[0].headers["host"] == f"{NAME}:{server.port}"
    assert server.calls[0].body == BODY


def test_an_ip_literal_is_verified_against_the_certificate(authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    """If the URL's host is an IP address, TLS checks it against the addresses in the certificate."""
    for names, expected in ((["127.0.0.1"], None), (["127.0.0.2", NAME], "tls_failed")):
        with serving(servers.status(200), tls=certified(authority, *names)) as server:
            assert secure(server, trusting, name="127.0.0.1").error_code == expected


def test_a_wrong_certificate_is_refused(authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    """Nothing is sent to a receiver whose certificate has expired, names another host or was issued by an untrusted
    authority."""
    over = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    for context in (
        certified(authority, "other.test"),
        certified(trustme.CA(), NAME),
        certified(authority, NAME, until=over),
    ):
        with serving(servers.status(200), tls=context) as server:
            assert secure(server, trusting) == failed("tls_failed")
        assert not server.calls


def test_private_authorities_are_not_trusted_by_default(authority: trustme.CA) -> None:
    """By default, the sender trusts only public certificate authorities."""
    with serving(servers.status(200), tls=certified(authority, "127.0.0.1")) as server:
        assert send(f"https://127.0.0.1:{server.port}/") == failed("tls_failed")
    assert not server.calls


def test_missing_authorities_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the certificate authorities cannot be read, an error is raised instead of a failure being reported for every
    receiver."""
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere")
    with serving(servers.status(200)) as server, pytest.raises(OSError, match="No such file"):
        post(server)
    assert not server.connections


def test_a_receiver_without_tls_gets_nothing(trusting: ssl.SSLContext) -> None:
    """If the receiver at an https URL does not use TLS, nothing is sent to it in plain text."""
    received = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                # The sender may close the connection without reading the response.
                with contextlib.suppress(ConnectionResetError):
                    while data := connection.recv(4096):
                        received.append(data)

        thread = threading.Thread(target=answer)
        thread.start()
        assert secure(Server(port=listener.getsockname()[1]), trusting) == failed("tls_failed")
        thread.join()
    assert received
    assert b"deletion_request" not in b"".join(received)


def test_a_slow_handshake_times_out(trusting: ssl.SSLContext) -> None:
    """A receiver that accepts the connection but never completes the TLS handshake is disconnected at the deadline."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        begun = time.monotonic()
        assert secure(Server(port=listener.getsockname()[1]), trusting, seconds=0.3) == failed("timeout")
        assert time.monotonic() - begun < 100


def test_a_dripping_receiver_over_tls_is_cut_off(
    authority: trustme.CA, trusting: ssl.SSLContext, stop: threading.Event
) -> None:
    """The deadline also applies under TLS, where one read can require several reads from the socket."""
    answer = servers.dripping(b"HTTP/1.1 200 OK\r\nX-Slow: ", stop=stop)
    with serving(answer, tls=certified(authority, NAME)) as server:
        begun = time.monotonic()
        assert secure(server, trusting, seconds=0.3) == failed("timeout")
        assert time.monotonic() - begun < 100
        stop.set()
