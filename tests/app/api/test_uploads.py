"""Uploads in progress: how their forms are stored on disk, and a check that every endpoint stores them so."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import params
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from starlette.datastructures import UploadFile

from app.api import forms, uploads
from app.config import Settings
from app.main import create_app
from tests.conftest import npz
from tests.tables import each

SCHEMA = '{"columns": {"a": {"kind": "numeric", "min": 0, "max": 1}, "y": {"role": "label", "values": ["n", "p"]}}}'
CSV = "a,y\n" + "0.7319,p\n0.4242,n\n" * 75_000  # more than the framework would keep in memory
BOUNDARY = b"--once\r\n"


def form(filename: str, content: bytes, **fields: str) -> Iterator[bytes]:
    """Return the pieces of a form whose last part is a file."""
    for name, value in fields.items():
        yield BOUNDARY + f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
    yield BOUNDARY + f'Content-Disposition: form-data; name="file"; filename="{filename}"\r\n\r\n'.encode()
    for start in range(0, len(content), 100_000):
        yield content[start : start + 100_000]
    yield b"\r\n--once--\r\n"


def open_files(folder: Path) -> list[bytes]:
    """Return the contents of all files in the folder that this process has open, including deleted ones."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            if os.readlink(link).startswith(str(folder)):
                found.append(link.read_bytes())
        except FileNotFoundError:  # the descriptor that listed the folder
            continue
    return found


def test_uploads_are_never_on_disk_unencrypted(gateway: TestClient, settings: Settings) -> None:
    """At every moment of an upload, its rows are on disk only in encrypted, unnamed files, and no file remains
    afterwards."""
    seen: list[int] = []
    pieces = form("rows.csv", CSV.encode(), name="people", schema=SCHEMA)
    folder = forms.folder(settings)

    async def receive() -> dict[str, Any]:
        for content in open_files(folder):
            assert b"0.7319,p" not in content
            assert b"0.4242,n" not in content
            seen.append(len(content))
        assert list(folder.iterdir()) == []
        piece = next(pieces, None)
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

    async def call() -> int:
        answered = []

        async def send(message: dict[str, Any]) -> None:
            answered.append(message.get("status"))

        headers = [
            (b"content-type", b"multipart/form-data; boundary=once"),
            (b"authorization", gateway.headers["authorization"].encode()),
        ]
        scope = {"type": "http", "method": "POST", "path": "/v1/datasets", "raw_path": b"/v1/datasets"}
        scope |= {"headers": headers, "scheme": "http", "server": None, "client": ("10.0.0.1", 1), "root_path": ""}
        await gateway.app(scope | {"query_string": b""}, receive, send)  # type: ignore[arg-type]
        return int(answered[0])

    assert gateway.portal is not None
    assert gateway.portal.call(call) == 201
    assert max(seen) > len(CSV) - 100_000
    assert open_files(folder) == []
    assert list(folder.iterdir()) == []


@each("parts", [11, 1000])
def test_a_form_of_many_parts_is_refused(gateway: TestClient, parts: int) -> None:
    """A form can have at most ten files and ten fields; more would use too many file descriptors."""
    few = {"data": {"name": "people"}}
    many = [(f"file{number}", ("rows.npz", npz())) for number in range(parts)]
    assert gateway.post("/v1/datasets", **few, files=many).json()["code"] == "input_invalid"
    fields = {f"name{number}": "people" for number in range(parts)}
    answer: httpx.Response = gateway.post("/v1/datasets", data=fields, files={"file": ("rows.npz", npz())})
    assert answer.status_code == 422


def test_every_form_is_spooled(settings: Settings) -> None:
    """Every endpoint that accepts a form stores the form's files in an encrypted spool."""
    endpoints = [route for route in _endpoints(create_app(settings).routes) if _takes_form(route)]
    paths = ["/datasets", "/datasets/{dataset_id}/records", "/deletion-requests/{request_id}/attachments", "/networks"]
    assert sorted(route.path for route in endpoints) == [f"/v1{path}" for path in [*paths, "/training-tables"]]
    assert all(isinstance(route, forms.SpooledRoute) for route in endpoints)


def _endpoints(routes: Iterable[Any]) -> Iterator[APIRoute]:
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        elif included := getattr(route, "original_router", None):
            yield from _endpoints(included.routes)


def _takes_form(route: APIRoute) -> bool:
    return route.body_field is not None and isinstance(route.body_field.field_info, params.Form)


def test_a_file_that_was_not_spooled_is_not_read(tmp_path: Path) -> None:
    """Reading an uploaded file that is not in an encrypted spool raises an error."""
    with (tmp_path / "rows.npz").open("w+b") as file, pytest.raises(TypeError, match="SpooledRoute"):
        uploads.upload(None, file=UploadFile(file), kind="npz", schema=None, classes=())  # type: ignore[arg-type]
