"""Headers of all responses, and cross-origin calls."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app import accounting_main
from app.config import Settings
from app.main import create_app
from tests.tables import each

STRICT = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}


@each(
    "path",
    [
        "/healthz",
        "/metrics",
        "/openapi.json",
        "/.well-known/jwks.json",
        "/opendsr/v2/discovery",
        "/v1/models",
        "/v1/models/mdl_0",
        "/v1/nowhere",
        "/nowhere",
    ],
)
def test_every_response_has_security_headers(gateway: TestClient, path: str) -> None:
    """The headers of every response tell browsers not to guess its content type, load resources, display it in a frame,
    send a referrer, or cache it unless it is public."""
    headers = gateway.get(path).headers
    assert STRICT.items() <= dict(headers).items()
    assert headers.get("cache-control") == (None if path in ("/openapi.json", "/.well-known/jwks.json") else "no-store")
    assert "strict-transport-security" not in headers


def test_errors_have_security_headers_too(gateway: TestClient) -> None:
    """Error responses have the same security headers as successful ones."""
    gateway.app.state.known = None  # type: ignore[attr-defined]
    answer = gateway.get("/v1/models")
    assert answer.status_code == 500
    assert STRICT.items() <= dict(answer.headers).items()


def test_https_responses_have_hsts(settings: Settings) -> None:
    """A response over HTTPS has a Strict-Transport-Security header with a max-age of one year."""
    with TestClient(create_app(settings), base_url="https://lethe.example") as client:
        assert client.get("/healthz").headers["strict-transport-security"] == "max-age=31536000"


@pytest.fixture(params=[create_app, accounting_main.create_app])
def open_to_pages(request: pytest.FixtureRequest, settings: Settings, admin_key: str) -> Iterator[TestClient]:
    """Start the gateway or the accounting service with two permitted origins."""
    origins = "https://privacy.example, https://crm.example:8443"
    service = request.param(settings.model_copy(update={"cors_origins": origins}))
    with TestClient(service, headers={"Authorization": f"Bearer {admin_key}"}) as client:
        yield client


PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,idempotency-key"}


@each("origin", ["https://privacy.example", "https://crm.example:8443"])
def test_permitted_origins_may_call(open_to_pages: TestClient, origin: str) -> None:
    """A page from a permitted origin can send all documented headers and read every response with its headers,
    including error responses."""
    answer = open_to_pages.options("/v1/accounting/preview", headers={"Origin": origin} | PREFLIGHT)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == origin
    for path, status in (("/v1/accounting/bounds", 200), ("/v1/accounting/models/mdl_0", 404)):
        answer = open_to_pages.get(path, headers={"Origin": origin})
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == origin
        assert "Retry-After" in answer.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in answer.headers


@each("origin", ["https://evil.example", "http://privacy.example", "null"])
def test_other_origins_may_not_call(open_to_pages: TestClient, origin: str) -> None:
    """A page from any other origin gets no CORS headers."""
    answer = open_to_pages.options("/v1/accounting/preview", headers={"Origin": origin} | PREFLIGHT)
    assert "access-control-allow-origin" not in answer.headers
    assert "access-control-allow-origin" not in open_to_pages.get("/healthz", headers={"Origin": origin}).headers


def test_no_origin_may_call_by_default(gateway: TestClient) -> None:
    """By default, no origin is permitted to call the API."""
    headers = {"Origin": "https://privacy.example"} | PREFLIGHT
    assert "access-control-allow-origin" not in gateway.options("/v1/models", headers=headers).headers
    assert "access-control-allow-origin" not in gateway.get("/v1/models", headers=headers).headers


@pytest.mark.parametrize("wrong", ["privacy.example", "https://a.example/path", "https://a.example,,", "ftp://a", "**"])
def test_a_malformed_origin_is_refused(wrong: str) -> None:
    """The setting for permitted origins accepts only `*` or a comma-separated list of origins."""
    with pytest.raises(ValueError, match="cors_origins"):
        Settings(cors_origins=wrong)


@each("key", ["wrong", None])
@each("path", ["/v1/deletion-requests", "/v1/deletion-requests:batch", "/v1/datasets"])
def test_large_bodies_need_a_key(gateway: TestClient, key: str | None, path: str) -> None:
    """A call without a key is refused before its body costs memory or processing time. If a call has a key, its body is
    read."""
    read: list[bytes] = []

    def pieces() -> Iterator[bytes]:
        for _ in range(1000):
            read.append(b" " * 65_536)
            yield read[-1]

    async def call(headers: list[tuple[bytes, bytes]]) -> int:
        sent, answered = pieces(), []

        async def receive() -> dict[str, Any]:
            piece = next(sent, None)
            return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

        async def send(message: dict[str, Any]) -> None:
            answered.append(message.get("status"))

        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        scope |= {"headers": headers, "scheme": "http", "server": None, "client": ("10.0.0.1", 1), "root_path": ""}
        await gateway.app(scope, receive, send)  # type: ignore[arg-type]
        return int(answered[0])

    usual = [(b"transfer-encoding", b"chunked"), (b"content-type", b"application/json")]
    given = [] if key is None else [(b"authorization", f"Bearer {key}".encode())]
    assert gateway.portal is not None
    assert gateway.portal.call(call, usual + given) == 401
    assert read == []
    right = (b"authorization", gateway.headers["authorization"].encode())
    assert gateway.portal.call(call, [*usual, right]) == 413
    max_bytes = 2**20 if path == "/v1/deletion-requests" else 32 * 2**20
    assert max_bytes < sum(map(len, read)) <= max_bytes + 2**20


@each("coding", ["gzip", "br", "gzip, identity", "aws-chunked"])
@each("path", ["/v1/deletion-requests", "/v1/deletion-requests.csv", "/v1/datasets"])
def test_a_compressed_body_is_refused_with_advice(gateway: TestClient, path: str, coding: str) -> None:
    """A body with a content encoding returns 415; the error explains how to send the body."""
    answer = gateway.post(path, content=b'{"subject_id": "p1"}', headers={"Content-Encoding": coding})
    assert (answer.status_code, answer.json()["code"]) == (415, "content_encoding_unsupported")
    assert "without Content-Encoding" in answer.json()["detail"]


@each("coding", ["identity", "Identity"])
def test_a_body_without_encoding_is_read(gateway: TestClient, coding: str) -> None:
    """A body with the content encoding `identity` is read. A call without a body is accepted with any content
    encoding."""
    answer = gateway.post("/v1/deletion-requests", json={"subject_id": "p1"}, headers={"Content-Encoding": coding})
    assert answer.status_code == 202
    assert gateway.get("/v1/deletion-requests", headers={"Content-Encoding": "gzip"}).status_code == 200
