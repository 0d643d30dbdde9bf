"""Compression: which answers are shorter on the wire, and which never are."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.testclient import TestClient

from app.api.compression import Compression

Make = Callable[..., dict[str, Any]]
ROWS = [{"n": n, "text": "as often as not"} for n in range(100)]


def raw(client: TestClient, path: str, accepted: str = "gzip") -> tuple[dict[str, str], bytes]:
    """Headers and body as they came."""
    with client.stream("GET", path, headers={"Accept-Encoding": accepted}) as answer:
        return dict(answer.headers), b"".join(answer.iter_raw())


@pytest.fixture
def client() -> TestClient:
    app = FastAPI()
    app.add_middleware(Compression)
    app.get("/long")(lambda: JSONResponse(ROWS))
    app.get("/longer")(lambda: JSONResponse(ROWS * 50))
    app.get("/short")(lambda: JSONResponse(ROWS[:3]))
    app.get("/parts")(lambda: StreamingResponse(iter([b"a" * 5000, b"b"]), media_type="application/json"))
    app.get("/done")(lambda: JSONResponse(ROWS, headers={"Content-Encoding": "identity"}))
    return TestClient(app)


@pytest.mark.parametrize(("path", "rows"), [("/long", ROWS), ("/longer", ROWS * 50)])
@pytest.mark.parametrize("accepted", ["gzip", "br, GZIP;q=0.5"])
def test_long_json_is_compressed(client: TestClient, path: str, rows: list[Any], accepted: str) -> None:
    """What is answered as a whole and long enough is, with the length that it then has."""
    headers, body = raw(client, path, accepted)
    assert (headers["content-encoding"], headers["vary"]) == ("gzip", "Accept-Encoding")
    assert int(headers["content-length"]) == len(body) < len(json.dumps(rows)) / 5
    assert json.loads(gzip.decompress(body)) == rows


@pytest.mark.parametrize("accepted", ["", "br", "gzip;q=0", "gzip; q=0.0", "xgzip"])
def test_who_takes_no_gzip_gets_none(client: TestClient, accepted: str) -> None:
    """A caller who does not take it gets the answer as it is, which no cache gives to others."""
    headers, body = raw(client, "/long", accepted)
    assert "content-encoding" not in headers
    assert headers["vary"] == "Accept-Encoding"
    assert json.loads(body) == ROWS


@pytest.mark.parametrize("path", ["/short", "/parts", "/done"])
def test_what_is_left_as_it_is(client: TestClient, path: str) -> None:
    """Short answers, those in parts, and those that have an encoding are not touched."""
    headers, body = raw(client, path)
    assert headers.get("content-encoding", "identity") == "identity"
    assert "vary" not in headers
    assert body[:1] in (b"[", b"a")


def test_lists_are_and_exports_are_not(gateway: TestClient, forget: Make) -> None:
    """A list of the gateway is compressed; an export, which is sent in parts, is not."""
    for n in range(5):
        forget(f"q{n}")
    headers, body = raw(gateway, "/v1/deletion-requests")
    assert headers["content-encoding"] == "gzip"
    assert len(json.loads(gzip.decompress(body))["items"]) == 5
    assert "content-encoding" not in raw(gateway, "/v1/deletion-requests.csv")[0]
