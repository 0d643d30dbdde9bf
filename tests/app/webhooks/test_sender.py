"""Deliveries as they are sent: to which addresses, and what comes of each status."""

import contextlib
import datetime
import inspect
import logging
import re
import socket
from collections.abc import Sequence

import pytest

from app.webhooks import receiver, sender
from app.webhooks.sender import SendResult, Verdict
from lethe.proof import webhooks as signature
from tests.app.webhooks import servers
from tests.app.webhooks.deliveries import ALLOWED, BODY, NAME, failed, post, send
from tests.app.webhooks.servers import serving


def test_a_delivery_arrives_as_it_was_signed() -> None:
    """The receiver gets one POST with the very body and headers, which it can verify."""
    secret = signature.secret_from(bytes(32))
    now = datetime.datetime.now(datetime.UTC)
    headers = signature.sign(BODY, message_id="whd_1", sent_at=now, secrets=[secret])
    with serving(servers.status(200)) as server:
        url = f"http://127.0.0.1:{server.port}/hook?key=%20a"
        outcome = sender.send(url, BODY, headers, allowed=ALLOWED, timeout_seconds=10)
    assert outcome == SendResult(verdict=Verdict.DELIVERED, status=200)
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
def test_any_success_is_a_delivery(code: int) -> None:
    """Whatever 2xx a receiver answers, the delivery has arrived."""
    with serving(servers.status(code)) as server:
        assert post(server) == SendResult(verdict=Verdict.DELIVERED, status=code)


@pytest.mark.parametrize("code", [400, 404, 429, 500, 502, 504, 599])
def test_everything_else_is_a_failure(code: int) -> None:
    """Any other status is a failure that is named after it."""
    with serving(servers.status(code)) as server:
        assert post(server) == failed(f"http_{code}", code)


def test_a_receiver_can_say_that_it_wants_no_more() -> None:
    """410 is an outcome of its own."""
    with serving(servers.status(410)) as server:
        assert post(server) == SendResult(verdict=Verdict.GONE, error_code="http_410", status=410)


@pytest.mark.parametrize("code", [300, 301, 302, 303, 304, 307, 308])
def test_redirects_are_not_followed(code: int) -> None:
    """A receiver that points elsewhere has failed, and elsewhere nobody is called."""
    with serving(servers.status(200)) as inner:
        location = f"Location: http://127.0.0.1:{inner.port}/admin"
        with serving(servers.status(code, location)) as server:
            assert post(server) == failed("redirected", code)
        assert len(server.calls) == 1
    assert not inner.connections


@pytest.mark.parametrize(
    ("value", "seconds"), [("120", 120), ("0", 0), ("999999999", 86_400), ("soon", None), ("-1", None), ("1.5", None)]
)
def test_a_receiver_can_ask_for_a_pause(value: str, seconds: int | None) -> None:
    """Retry-After in seconds is part of a failure, up to a day; in any other form it is not understood."""
    with serving(servers.status(503, f"Retry-After: {value}")) as server:
        outcome = post(server)
    assert outcome.error_code == "http_503"
    assert outcome.retry_after == (None if seconds is None else datetime.timedelta(seconds=seconds))


def test_no_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies that the environment names are not asked: they would connect to what was not checked."""
    with serving(servers.status(500)) as proxy, serving(servers.status(200)) as server:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert post(server).verdict == Verdict.DELIVERED
    assert not proxy.connections


def test_no_cookies_are_kept() -> None:
    """A cookie that a receiver sets is not sent back to it."""
    with serving(servers.status(200, "Set-Cookie: session=1; Path=/")) as server:
        assert [post(server).status, post(server).status] == [200, 200]
    assert [call.headers.get("cookie") for call in server.calls] == [None, None]
    assert len(server.connections) == 2


def test_a_name_is_resolved_once_and_called_where_it_was_checked() -> None:
    """A name that changes its address after the check (DNS rebinding) leads nowhere else."""
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
        outcome = sender.send(url, BODY, {}, allowed=ALLOWED[:1], timeout_seconds=10, resolve=rebinding)
        assert outcome.verdict == Verdict.DELIVERED
    assert asked == [NAME]
    assert server.connections == ["127.0.0.1 None"]
    assert server.calls[0].headers["host"] == f"{NAME}:{server.port}"
    assert not inner.connections


def test_a_name_for_this_machine_is_refused() -> None:
    """A name that resolves to 127.0.0.1, as this machine's own resolver has it, is not called."""
    with serving(servers.status(200)) as server:
        for url in (f"https://localhost:{server.port}/", f"https://127.0.0.1:{server.port}/"):
            assert send(url, allowed=[]) == failed("refused_address")
            assert send(url, allowed=["10.0.0.0/8"]) == failed("refused_address")
    assert not server.connections


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("2130706433", "url_invalid"),
        ("0x7f000001", "url_invalid"),
        ("0177.0.0.1", "url_invalid"),
        ("127.1", "url_invalid"),
        ("[::ffff:127.0.0.1]", "refused_address"),
        ("[::ffff:7f00:1]", "refused_address"),
    ],
)
def test_an_address_in_disguise_is_not_called(host: str, code: str) -> None:
    """Other spellings of an address are refused even where the address itself is allowed."""
    with serving(servers.status(200)) as server:
        for scheme in ("http", "https"):
            assert send(f"{scheme}://{host}:{server.port}/") == failed(code)
        assert post(server).verdict == Verdict.DELIVERED
    assert len(server.connections) == 1


def test_a_url_that_was_never_valid_is_not_called() -> None:
    """The rules for URLs hold at delivery as at submission, without TLS to anywhere but allowed networks."""
    for url in ("ftp://127.0.0.1/", "http://user@127.0.0.1/", "http://127.0.0.1:22/", "not a url", ""):
        assert send(url) == failed("url_invalid")
    assert send("http://hooks.example.com/", allowed=[]) == failed("url_invalid")
    assert send("http://8.8.8.8/") == failed("refused_address")


def test_an_unknown_name_is_an_outcome() -> None:
    """A name that nobody has ends the attempt with a name of its own."""

    def unknown(host: str) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, f"{host} is unknown")

    outcome = sender.send("https://receiver.test/", BODY, {}, allowed=[], timeout_seconds=5, resolve=unknown)
    assert outcome == failed("not_resolved")


def test_the_next_address_is_tried() -> None:
    """Where one address of a name does not answer the next one may; where none does, nothing was delivered."""
    answers = iter([["127.0.0.1", "127.0.0.2"], ["127.0.0.1", "127.0.0.3"]])
    with serving(servers.status(200), host="127.0.0.2") as server:
        url = f"http://{NAME}:{server.port}/"
        outcomes = [
            sender.send(url, BODY, {}, allowed=ALLOWED, timeout_seconds=5, resolve=lambda _: next(answers))
            for _ in range(2)
        ]
    assert outcomes == [SendResult(verdict=Verdict.DELIVERED, status=200), failed("not_connected")]


def test_an_address_that_is_silent_does_not_use_up_the_time() -> None:
    """Each address of a name has its share of the time, so that one that never answers leaves some to the next."""
    with (
        serving(servers.status(200), host="127.0.0.2") as server,
        socket.create_server(("127.0.0.3", server.port), backlog=0),
        contextlib.ExitStack() as stack,
    ):
        for _ in range(4):  # the queue of those who wait is full
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.3", server.port))
        answers = iter([["127.0.0.3", "127.0.0.2"], ["127.0.0.3"]])
        url = f"http://{NAME}:{server.port}/"
        outcomes = [
            sender.send(url, BODY, {}, allowed=ALLOWED, timeout_seconds=seconds, resolve=lambda _: next(answers))
            for seconds in (8, 0.3)
        ]
    assert outcomes == [SendResult(verdict=Verdict.DELIVERED, status=200), failed("timeout")]


def test_a_receiver_on_ipv6_is_called() -> None:
    """An IPv6 literal is connected to, and named in brackets in the header Host."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with serving(servers.status(200), host="::1") as server:
        assert send(f"http://[::1]:{server.port}/").verdict == Verdict.DELIVERED
    assert server.calls[0].headers["host"] == f"[::1]:{server.port}"


def test_no_outcome_or_log_line_holds_the_url(caplog: pytest.LogCaptureFixture) -> None:
    """Neither what is returned nor what is logged, by libraries too, says who was called."""
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
            sender.send(url, BODY, {}, allowed=ALLOWED, timeout_seconds=5, resolve=lambda host: [f"{host}?"])
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
    """The codes that an attempt can end with are those that the outcome lists."""
    source = inspect.getsource(sender) + inspect.getsource(receiver)
    used = set(re.findall(r'(?:_Broken|_failed|ReceiverRefused)\("(\w+)"', source)) | {"redirected", "http_<status>"}
    documented = set(re.findall(r"`([\w<>]+)`", inspect.getdoc(SendResult) or "")) - {"error_code"}
    assert documented == used
    assert len(used) == 11
