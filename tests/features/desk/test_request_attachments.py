"""Attachments over HTTP: added, listed, saved and deleted by users who decide, and hidden from all others."""

import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api import forms
from app.features.desk.file_kinds import MEDIA_TYPES
from app.installations import Installation
from app.main import create_app
from lethe.features.desk.contract import AttachmentKind
from tests.app.api.test_uploads import form
from tests.features.desk.attached import FILES, NAME, PDF
from tests.tables import each

PLACE = "/v1/deletion-requests"
Get = Callable[[str], Any]
Make = Callable[..., dict[str, Any]]
Refused = Callable[..., dict[str, Any]]


def attach(gateway: TestClient, path: str, name: str = NAME, content: bytes = PDF, **more: Any) -> Any:
    return gateway.post(path, files={"file": (name, content)}, **more)


@pytest.fixture
def path(forget: Make) -> str:
    """Return the path of a request's attachments."""
    return f"{PLACE}/{forget('p1', identity_verified=False, external_id='case-7')['id']}/attachments"


@pytest.fixture
def small(installation: Installation, gateway: TestClient) -> Iterator[TestClient]:
    """Return the gateway with low limits."""
    settings = installation.settings.model_copy(update={"max_attachment_bytes": len(PDF), "max_attachments": 2})
    with TestClient(create_app(settings), headers=gateway.headers) as client:
        yield client


def test_a_file_is_attached_saved_and_deleted(gateway: TestClient, path: str, get: Get) -> None:
    """A file is attached, listed with its author and size, and downloaded byte for byte. Once it is deleted, its URL
    returns 404. The file can be found only under its own request."""
    answer = attach(gateway, path)
    made = answer.json()
    key = get("/api-keys")["items"][0]
    assert (answer.status_code, answer.headers["location"]) == (201, f"{path}/{made['id']}")
    assert made == made | {"author": key["id"], "author_name": key["name"], "kind": "pdf", "size": len(PDF)}
    assert made["name"] == NAME
    other = attach(gateway, path, "note.txt", b"second").json()
    assert gateway.get(path).json() == {"items": [made, other], "next_cursor": None}
    first = gateway.get(f"{path}?limit=1").json()
    assert first["items"] == [made]
    assert gateway.get(f"{path}?limit=1&cursor={first['next_cursor']}").json()["items"] == [other]
    assert gateway.get(f"{path}/{made['id']}").content == PDF
    elsewhere = gateway.post(PLACE, json={"subject_id": "p2"}).json()["id"]
    for method in ("GET", "DELETE"):
        astray = gateway.request(method, f"{PLACE}/{elsewhere}/attachments/{made['id']}")
        assert (astray.status_code, astray.json()["code"]) == (404, "attachment_unknown")
    assert gateway.delete(f"{path}/{made['id']}").status_code == 204
    for method in ("GET", "DELETE"):
        gone = gateway.request(method, f"{path}/{made['id']}")
        assert (gone.status_code, gone.json()["code"]) == (404, "attachment_unknown")
    assert gateway.get(path).json()["items"] == [other]


@each("said", AttachmentKind)
def test_a_file_is_never_displayed(gateway: TestClient, path: str, said: AttachmentKind) -> None:
    """A file is downloaded with one of five content types, whatever type its sender declared. The response is a
    sandboxed attachment that must not be cached."""
    files = {"file": (f"a b.{said}", FILES[said], "text/html")}
    made = gateway.post(path, files=files).json()
    headers = gateway.get(f"{path}/{made['id']}").headers
    assert headers["content-type"] == MEDIA_TYPES[said]
    assert headers["x-content-type-options"] == "nosniff"
    disposition = f"attachment; filename=\"{made['id']}.{said}\"; filename*=UTF-8''a%20b.{said}"
    assert headers["content-disposition"] == disposition
    assert headers["content-security-policy"].endswith("sandbox")
    assert headers["cache-control"] == "no-store"


def test_a_file_name_cannot_break_a_header(gateway: TestClient, path: str) -> None:
    """Quotes, semicolons and line breaks in a file name cannot break out of the header. Decoding the encoded name in
    the header returns the original name."""
    name = "a\"; filename=x.html; 'é😀.pdf"
    made = attach(gateway, path, name).json()
    disposition = gateway.get(f"{path}/{made['id']}").headers["content-disposition"]
    encoded = disposition.partition("filename*=UTF-8''")[2]
    assert urllib.parse.unquote(encoded) == made["name"]
    assert not set(encoded) & set("\"; '")


@each(
    ("content", "code"),
    [(b"", "attachment_invalid"), (b"GIF89a", "attachment_invalid"), (PDF + b"\n", "upload_too_large")],
)
def test_a_refused_file_is_not_stored(small: TestClient, path: str, content: bytes, code: str) -> None:
    """Files that are empty, too large or of the wrong kind are refused with a specific error. No part of a refused file
    is quoted or stored."""
    answer = attach(small, path, "Jane.pdf", content)
    assert answer.json()["code"] == code
    assert "Jane" not in answer.text
    assert small.get(path).json()["items"] == []
    assert list(forms.folder(small.app.state.installation.settings).iterdir()) == []  # type: ignore[attr-defined]


def test_the_number_of_files_is_limited(small: TestClient, path: str, refused: Refused) -> None:
    """A request cannot have more files than the setting permits. Deleting a file makes room for another."""
    made = [attach(small, path).json()["id"] for _ in range(2)]
    assert "LETHE_MAX_ATTACHMENTS" in refused(attach(small, path), 409, "attachments_full")["detail"]
    small.delete(f"{path}/{made[0]}")
    assert attach(small, path).status_code == 201


def test_a_malformed_form_stores_nothing(gateway: TestClient, path: str, refused: Refused) -> None:
    """No attachment is stored if the form is truncated, has no file or has an additional field."""
    headers = {"Content-Type": "multipart/form-data; boundary=once"}
    whole = b"".join(form("Jane.pdf", PDF))
    refused(gateway.post(path, content=whole[:-12], headers=headers), 422, "input_invalid")
    refused(
        gateway.post(path, content=b"".join(form("Jane.pdf", PDF, more="1")), headers=headers), 422, "input_invalid"
    )
    refused(gateway.post(path, data={"file": "Jane"}), 422, "input_invalid")
    refused(gateway.post(path, json={"file": "Jane"}), 422, "input_invalid")
    assert gateway.get(path).json()["items"] == []
    assert gateway.post(path, content=whole, headers=headers).status_code == 201


def test_the_audit_log_names_users_but_no_content(
    gateway: TestClient, path: str, get: Get, capfd: pytest.CaptureFixture[str]
) -> None:
    """The audit log names the users who attached, downloaded and deleted each file. No part of a file's name or content
    appears in the audit log, events, responses, lists, exports, deliveries or the gateway's log."""
    made = attach(gateway, path).json()["id"]
    gateway.get(f"{path}/{made}")
    gateway.delete(f"{path}/{made}")
    request_id = path.split("/")[3]
    found = [
        (one["action"], one["detail"])
        for one in get(f"/audit-log?object_id={request_id}")["items"]
        if one["action"].startswith("deletion_request.attachment")
    ]
    deeds = ["attachment_added", "attachment_read", "attachment_deleted"]
    assert sorted(found) == sorted((f"deletion_request.{one}", {"attachment": made}) for one in deeds)
    attach(gateway, path)
    elsewhere = (f"/{request_id}", f"/{request_id}/events", "", f"/{request_id}/certificate", ".csv")
    for place in (*(PLACE + one for one in elsewhere), "/v1/audit-log", "/v1/webhook-deliveries"):
        assert "Jane" not in gateway.get(place).text, place
    said = "".join(capfd.readouterr())
    assert "Jane" not in said
    assert "Letter" not in said


def test_attachments_are_sealed(gateway: TestClient, path: str, installation: Installation) -> None:
    """No file in the data folder contains a word of an attachment's name or content, either in plain text or in
    base64."""
    attach(gateway, path)
    files = b"".join(one.read_bytes() for one in installation.settings.data_dir.rglob("*") if one.is_file())
    assert b"request_attachments" in files
    for secret in (b"Jane", b"PDF-1.7", b"JVBERi0x"):
        assert secret not in files
