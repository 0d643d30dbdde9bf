"""Multipart forms, which the service parses like the framework except that it spools files differently."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st
from starlette.datastructures import UploadFile

from app.access.service import DEFAULT_TENANT
from app.api import forms
from app.config import Settings
from app.turns import Turns
from app.vault.store import Spool
from tests.app.api.test_uploads import open_files
from tests.conftest import FORM, npz
from tests.faults.processes import wait_until
from tests.tables import each
from tests.threads import num_waiting

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\'), min_size=1, max_size=8)
FIELDS = st.lists(st.tuples(NAMES, st.text(st.characters(exclude_categories=["Cs"]), max_size=40)), max_size=8)
FILES = st.lists(st.tuples(NAMES, st.tuples(NAMES, st.binary(max_size=300))), min_size=1, max_size=8)
MANY = [("a", "b")] * 9


@pytest.fixture
def readers(gateway: TestClient) -> tuple[TestClient, TestClient]:
    """Start two endpoints that return the contents of a form: the first parses it with our reader, the second with the
    framework's."""
    found = []
    for route in (forms.SpooledRoute, None):
        router = APIRouter(route_class=route) if route else APIRouter()

        @router.post("/")
        async def say(request: Request) -> dict[str, Any]:
            form = await request.form()
            files = [(name, one) for name, one in form.multi_items() if isinstance(one, UploadFile)]
            assert all(isinstance(one.file, Spool) for _, one in files) == (request.app.state.spools and bool(files))
            said = {
                "fields": [(name, one) for name, one in form.multi_items() if isinstance(one, str)],
                "files": [(name, one.filename, one.size, (await one.read()).hex()) for name, one in files],
            }
            await form.close()
            return said

        app = FastAPI()
        app.state.installation, app.state.spools = gateway.app.state.installation, route is not None  # type: ignore[attr-defined]
        app.include_router(router)
        found.append(TestClient(app))
    return found[0], found[1]


def pieces(content: bytes, length: int) -> Iterator[bytes]:
    for start in range(0, len(content), length):
        yield content[start : start + length]


@hypothesis_settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(fields=FIELDS, files=FILES, length=st.integers(1, 400))
def test_forms_are_parsed_like_the_framework_does(
    readers: tuple[TestClient, TestClient],
    fields: list[tuple[str, str]],
    files: list[tuple[str, tuple[str, bytes]]],
    length: int,
) -> None:
    """However a form is split into pieces, its field values and its files' names, sizes and contents are the same as if
    the framework had parsed it."""
    given_fields: dict[str, Any] = {}
    for name, value in fields:
        given_fields.setdefault(name, []).append(value)
    sent = httpx.Request("POST", "http://here/", data=given_fields, files=files)
    content, headers = sent.read(), {"content-type": sent.headers["content-type"]}
    ours, theirs = (one.post("/", content=pieces(content, length), headers=headers) for one in readers)
    assert (ours.status_code, ours.json()) == (200, theirs.json())


@each(
    ("content_type", "content", "detail"),
    [
        ("multipart/form-data", b"--x--\r\n", "Missing boundary in multipart."),
        ("multipart/form-data; boundary=x", b"no boundary", "Invalid multipart data."),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; filename="f"\r\n\r\n1\r\n--x--\r\n',
            'The Content-Disposition header field "name" must be provided.',
        ),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n1\r\n' * 11 + b"--x--\r\n",
            "Too many files. Maximum number of files is 10.",
        ),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="f"\r\n\r\n1\r\n' * 11 + b"--x--\r\n",
            "Too many fields. Maximum number of fields is 10.",
        ),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="f"\r\n\r\n' + b"1" * (2**20 + 1) + b"\r\n--x--\r\n",
            "Part exceeded maximum size of 1024KB.",
        ),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n1\r\n--x?',
            "Invalid multipart data.",
        ),
    ],
)
def test_a_malformed_form_is_refused(
    readers: tuple[TestClient, TestClient],
    settings: Settings,
    content_type: str,
    content: bytes,
    detail: str,
) -> None:
    """A malformed form returns 400 with a description of the fault, and all its files are closed."""
    answer = readers[0].post("/", content=content, headers={"content-type": content_type})
    assert (answer.status_code, answer.json()) == (400, {"detail": detail})
    assert open_files(forms.folder(settings)) == []


def sent(gateway: TestClient, disposition: str) -> httpx.Response:
    """POST an npz file as a dataset, ending its Content-Disposition header with the given text."""
    fields = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in FORM.items()
    )
    head = f'{fields}--b\r\nContent-Disposition: form-data; name="file"{disposition}\r\n\r\n'
    content = head.encode() + npz() + b"\r\n--b--\r\n"
    answer: httpx.Response = gateway.post(
        "/v1/datasets", content=content, headers={"Content-Type": "multipart/form-data; boundary=b"}
    )
    return answer


@each(
    "disposition",
    [
        "; filename*=UTF-8''caf%C3%A9.npz",
        "; filename=\"=?utf-8?B?Y2Fmw6kubnB6?=\"; filename*=utf-8'en'caf%C3%A9.npz",
        "; filename=\"rows.npz\"; filename*=UTF-8''rows.exe",
        '; filename="ROWS.NPZ"',
    ],
)
def test_extended_file_names_are_understood(gateway: TestClient, disposition: str) -> None:
    """The extended file name is used if the plain file name is missing or is an encoded word, and file suffixes are
    case-insensitive."""
    assert sent(gateway, disposition).status_code == 201


def test_a_file_without_a_name_is_refused_with_advice(gateway: TestClient) -> None:
    """A file part without a file name is treated as a field and refused; the error explains how to send a file."""
    answer = sent(gateway, "")
    assert answer.status_code == 422
    expected = "expected a file with a file name (curl -F file=@rows.csv)"
    assert answer.json()["errors"] == [{"path": "file", "message": expected}]


def test_one_tenants_forms_do_not_delay_others(gateway: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a tenant is already storing as many files as it may at a time, its other uploads wait without occupying a
    thread. They delay neither other calls nor the files of other tenants."""
    turns = Turns(2, of_one=1)
    monkeypatch.setattr(forms, "_TURNS", turns)
    key = gateway.post("/v1/tenants", json={"name": "quiet"}).json()["admin_key"]

    def send(**headers: str) -> int:
        files = {"file": ("people.npz", npz())}
        return gateway.post("/v1/datasets", data=FORM, files=files, headers=headers).status_code

    with ThreadPoolExecutor(14) as threads:
        with turns.taken(DEFAULT_TENANT):
            sent = [threads.submit(send) for _ in range(14)]
            wait_until(lambda: num_waiting(turns) == len(sent))
            assert gateway.get("/v1/datasets").json()["items"] == []
            assert send(Authorization=f"Bearer {key}") == 201
            assert num_waiting(turns) == len(sent)
        assert {future.result() for future in sent} == {201}
    begun = [turns.ask(DEFAULT_TENANT), turns.ask("other")]
    assert all(turn.done() for turn in begun)
    assert num_waiting(turns) == 0
