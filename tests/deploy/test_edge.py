"""The Caddyfiles, read by a real Caddy in front of a real gateway: limits, compression, addresses and HTTPS."""

import contextlib
import gzip
import json
import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from app.config import Settings
from tests.faults import processes
from tests.ports import free_port

pytestmark = pytest.mark.service

DEPLOY = Path(__file__).parents[2] / "deploy"
LONG = "a" * 2000
HEAD = b"Host: lethe\r\nContent-Type: application/json\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A running Caddy. `log` is everything that it has written."""

    port: int
    log: Path
    certificates: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self, *, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60, source_address=(source, 0))

    def get(self, path: str, *, source: str = "127.0.0.1", **headers: str) -> httpx.Response:
        return get(f"{self.url}{path}", source=source, **headers)


Start = Callable[..., Edge]


def get(url: str, *, source: str, **headers: str) -> httpx.Response:
    """Call `url` from the local address `source`."""
    with httpx.Client(transport=httpx.HTTPTransport(local_address=source), headers=headers, timeout=60) as client:
        return client.get(url)


def caddy() -> str:
    program = shutil.which("caddy")
    assert program, "These tests need a Caddy: apt-get install --no-install-recommends caddy"
    return program


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts Caddy in front of `gateway`, with parts of its configuration replaced and variables
    set."""
    with contextlib.ExitStack() as stack:

        def start(
            gateway: str, replaced: dict[str, str] | None = None, *, name: str = "Caddyfile", **variables: str
        ) -> Edge:
            text = (DEPLOY / "Caddyfile").read_text()
            for piece, other in (replaced or {}).items():
                assert piece in text
                text = text.replace(piece, other)
            (tmp_path / "Caddyfile").write_text(text)
            shutil.copy(DEPLOY / "Caddyfile.tls", tmp_path)
            port, other = free_port(), free_port()
            given = {"PORT": str(port), "ACCOUNTING_PORT": str(other), "BIND": "127.0.0.1"}
            given |= {"GATEWAY": gateway.removeprefix("http://"), "ACCOUNTING": gateway.removeprefix("http://")}
            given |= {"XDG_DATA_HOME": str(tmp_path / "edge"), "XDG_CONFIG_HOME": str(tmp_path / "edge")}
            log = tmp_path / "edge.log"
            command = [caddy(), "run", "--adapter", "caddyfile", "--config", str(tmp_path / name)]
            written = stack.enter_context(log.open("wb"))
            environment = os.environ | given | variables
            process = stack.enter_context(
                subprocess.Popen(command, env=environment, stdout=written, stderr=subprocess.STDOUT)
            )
            stack.callback(process.kill)

            def listens() -> bool:
                assert process.poll() is None, log.read_text()
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", port)) == 0

            processes.wait_until(listens)
            return Edge(port=port, log=log, certificates=tmp_path / "edge" / "caddy")

        yield start


@pytest.fixture
def gateway(settings: Settings) -> Iterator[str]:
    """Return the address of a gateway that trusts the client addresses of a proxy on this machine."""
    trusting = settings.model_copy(update={"trusted_proxies": "127.0.0.1", "failed_calls_per_minute": 5})
    with processes.gateway(trusting) as (_, address):
        yield address


@pytest.fixture
def key(admin_key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {admin_key}"}


def everything(connection: socket.socket) -> bytes:
    """Return all bytes received until the server closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(65536):
            received += more
    return received


@pytest.mark.parametrize("name", ["Caddyfile", "Caddyfile.tls"])
def test_the_files_are_formatted(name: str) -> None:
    """`caddy fmt` changes nothing but the white space that Caddy 2.6 adds after an import."""
    formatted = subprocess.run([caddy(), "fmt", str(DEPLOY / name)], capture_output=True, text=True, check=False)
    assert [line.rstrip() for line in formatted.stdout.split("\n")] == (DEPLOY / name).read_text().split("\n")


def test_no_two_servers_share_a_port() -> None:
    """Each port has only one server, so that no connection reaches a server that does not know its site."""
    adapt = [caddy(), "adapt", "--adapter", "caddyfile", "--config", str(DEPLOY / "Caddyfile.tls")]
    environment = os.environ | {"DOMAIN": "lethe.example.com"}
    adapted = subprocess.run(adapt, env=environment, capture_output=True, text=True, check=True)
    servers = json.loads(adapted.stdout)["apps"]["http"]["servers"].values()
    assert sorted(server["listen"] for server in servers) == [["0.0.0.0:8000"], ["0.0.0.0:8001"], [":443"]]


def trickle(connection: socket.socket) -> None:
    """Send the rest of a request head slowly, over a minute."""
    for _ in range(240):
        connection.sendall(b"t")
        time.sleep(0.25)


def test_connections_with_incomplete_heads_are_closed(gateway: str, edge: Start, key: dict[str, str]) -> None:
    """If a request head arrives very slowly or stops arriving, its connection is closed after a timeout. Other calls
    are served in the meantime."""
    proxy = edge(gateway, {"read_header 10s": "read_header 2s"})
    with contextlib.ExitStack() as stack:
        half = [stack.enter_context(proxy.connect()) for _ in range(300)]
        for connection in half:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: le")
        assert proxy.get("/v1/models", **key).status_code == 200
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            trickle(half[0])
        assert all(b"200 OK" not in everything(connection) for connection in half[1:])


def test_uploads_that_never_end_are_cut_off(gateway: str, edge: Start, key: dict[str, str]) -> None:
    """An upload that never ends is cut off, and does not occupy a place that another call needs."""
    proxy = edge(gateway, {"read_body 30m": "read_body 3s"})
    head = f"POST /v1/datasets HTTP/1.1\r\nAuthorization: {key['Authorization']}\r\nHost: lethe\r\n".encode()
    head += b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000000\r\n\r\n--b"
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(proxy.connect()) for _ in range(40)]
        for connection in slow:
            connection.sendall(head)
        assert proxy.get("/v1/models", **key).status_code == 200
        assert proxy.get("/readyz").json()["status"] in {"ready", "full"}
        assert all(b" 201 " not in everything(connection) for connection in slow)
    assert processes.wait_until(lambda: proxy.get("/readyz").json()["status"] == "ready")


def test_slow_bodies_without_a_key_take_no_place(gateway: str, edge: Start, key: dict[str, str]) -> None:
    """If a client without a key stops sending in the middle of a body, it is refused at once or at least does not block
    other calls."""
    proxy = edge(gateway)
    with contextlib.ExitStack() as stack:
        for path in [b"/v1/deletion-requests"] * 100 + [b"/admin/login"] * 100:
            slow = stack.enter_context(proxy.connect())
            slow.sendall(b"POST " + path + b" HTTP/1.1\r\n" + HEAD + b"Content-Length: 100\r\n\r\n{")
        assert proxy.get("/v1/models", **key).status_code == 200
        assert proxy.get("/readyz").json()["status"] == "ready"
        assert proxy.get("/docs").status_code == 200


def test_the_head_is_bounded(gateway: str, edge: Start) -> None:
    """A request head of 32 KiB is passed on, and a longer one is refused with 431."""
    proxy = edge(gateway)
    assert proxy.get("/healthz", **{"X-Long": "a" * 30_000}).status_code == 200
    with proxy.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: lethe\r\nX-Long: " + b"a" * 100_000 + b"\r\n\r\n")
        assert everything(connection).startswith(b"HTTP/1.1 431")


def test_the_body_is_bounded(gateway: str, edge: Start, key: dict[str, str]) -> None:
    """A body larger than the edge accepts is refused with the same problem document that the gateway would return."""
    proxy = edge(gateway, MAX_BODY="100KB")
    answer = httpx.post(f"{proxy.url}/v1/deletion-requests:batch", headers=key, content=b" " * 200_000, timeout=60)
    assert (answer.status_code, answer.json()["code"]) == (413, "upload_too_large")
    assert answer.headers["content-type"] == "application/problem+json"


def test_json_is_compressed_and_pages_are_not(gateway: str, edge: Start, key: dict[str, str]) -> None:
    """API responses are compressed. Pages that combine a form's token with text that an attacker could choose are never
    compressed."""
    proxy = edge(gateway)

    def raw(path: str, accepted: str = "gzip") -> tuple[str | None, bytes]:
        with httpx.stream("GET", proxy.url + path, headers=key | {"Accept-Encoding": accepted}, timeout=60) as answer:
            assert answer.status_code == 200
            return answer.headers.get("content-encoding"), b"".join(answer.iter_raw())

    coding, body = raw("/openapi.json")
    assert coding == "gzip"
    assert json.loads(gzip.decompress(body)) == json.loads(raw("/openapi.json", "identity")[1])
    coding, body = raw("/admin/login")
    assert coding is None
    assert len(body) > 1024
    assert raw("/v1/models")[0] is None
    assert raw("/v1/deletion-requests.csv")[0] is None


def test_problems_are_compressed(edge: Start) -> None:
    """A response is compressed if its media type is JSON, whatever its status; pages are never compressed."""
    answers = {"application/json": "gzip", "application/problem+json; a=b": "gzip", "text/html": None, "text/csv": None}
    for media_type, coding in answers.items():
        pages = f'respond "{LONG}" 200\n\theader Content-Type "{media_type}"\n'
        proxy = edge("127.0.0.1:1", {"reverse_proxy {$GATEWAY:gateway:8000} {\n\t\timport behind\n\t}": pages})
        assert proxy.get("/v1/models").headers.get("content-encoding") == coding
        assert "content-encoding" not in proxy.get("/admin/login").headers


def statuses_within_a_minute(url: str) -> list[int]:
    """Return the statuses of six calls with a wrong key that one address makes within a minute of the clock. Each call
    claims to come from another address."""
    for number in range(2, 250):
        minute = time.time() // 60
        statuses = [
            get(
                url,
                source=f"127.0.0.{number}",
                **{"Authorization": "Bearer no", "X-Forwarded-For": f"10.0.0.{claimed}"},
            ).status_code
            for claimed in range(6)
        ]
        if time.time() // 60 == minute:
            return statuses
    raise TimeoutError("Six calls took a minute")


def test_the_address_of_a_client_is_passed_on(gateway: str, edge: Start) -> None:
    """A call with a wrong key counts against the address that it is sent from, whatever address the client claims to
    have."""
    proxy = edge(gateway)
    assert statuses_within_a_minute(f"{proxy.url}/v1/models") == [401] * 5 + [429]
    assert proxy.get("/v1/models", source="127.0.1.1", Authorization="Bearer no").status_code == 401


def test_untrusted_proxies_are_ignored(settings: Settings) -> None:
    """A gateway without trusted proxies counts calls with wrong keys by the connection's address, even on the loopback
    interface."""
    with processes.gateway(settings.model_copy(update={"failed_calls_per_minute": 5})) as (_, address):
        assert statuses_within_a_minute(f"{address}/v1/models") == [401] * 5 + [429]


def test_an_unreachable_gateway_returns_a_problem(edge: Start) -> None:
    """If the gateway is unreachable, the response is a problem that asks the client to repeat the call, and the edge's
    log contains no subject id even at debug level."""
    proxy = edge(f"127.0.0.1:{free_port()}", {"\tlog {\n": "\tdebug\n\tlog {\n"})
    for path in ("/v1/deletion-requests?subject_id=somebody@example.com", "/v1/datasets/ds_1/subjects/somebody-else"):
        answer = proxy.get(path, **{"Idempotency-Key": "somebody-again"})
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert answer.headers["retry-after"] == "2"
        assert answer.headers["content-type"] == "application/problem+json"
    log = proxy.log.read_text()
    assert "/v1/datasets/ds_1" in log
    assert "somebody" not in log


def test_https_is_served_if_a_domain_is_set(gateway: str, edge: Start) -> None:
    """If DOMAIN is set, the edge serves HTTPS and the gateway recognizes it; monitoring stays on the loopback
    interface."""
    port = free_port()
    # No certificate of this test enters the trust store of this machine, and port 80 stays free.
    options = {"\tadmin off\n": "\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n"}
    proxy = edge(gateway, options, name="Caddyfile.tls", DOMAIN=f"https://localhost:{port}")
    root = proxy.certificates / "pki" / "authorities" / "local" / "root.crt"
    processes.wait_until(root.exists)
    context = ssl.create_default_context(cafile=str(root))

    def get(path: str) -> httpx.Response | None:
        with contextlib.suppress(httpx.ConnectError):
            return httpx.get(f"https://localhost:{port}{path}", verify=context, timeout=60)
        return None

    answer = processes.wait_until(lambda: get("/healthz"))
    assert (answer.status_code, answer.headers["strict-transport-security"]) == (200, "max-age=31536000")
    for path in ("/readyz", "/metrics"):
        found = get(path)
        assert found is not None
        assert found.status_code == 404
        assert proxy.get(path).status_code in {200, 401}
