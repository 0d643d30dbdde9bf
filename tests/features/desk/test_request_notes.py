"""Internal notes over HTTP: written and read by users who decide, and hidden from all others."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.installations import Installation
from lethe.features.desk import contract

PLACE = "/v1/deletion-requests"
Get = Callable[[str], Any]
Make = Callable[..., dict[str, Any]]
Refused = Callable[..., dict[str, Any]]
SECRET = "Called back: Jane Roe <b>is</b> at home, é 😀\nand will write."


@pytest.fixture
def noted(gateway: TestClient, forget: Make) -> str:
    """Return the path of the notes of a request, which has one."""
    path = f"{PLACE}/{forget('p1', identity_verified=False, external_id='case-7')['id']}/notes"
    assert gateway.post(path, json={"text": SECRET}).status_code == 201
    return path


def test_notes_are_listed_oldest_first(gateway: TestClient, noted: str, get: Get) -> None:
    """Notes are paginated and listed oldest first. Each has its author's id and name, its time and its text."""
    answer = gateway.post(noted, json={"text": "second"})
    key = get("/api-keys")["items"][0]
    assert answer.headers["location"] == noted
    assert answer.json() == answer.json() | {"author": key["id"], "author_name": key["name"], "text": "second"}
    found = gateway.get(noted).json()
    assert [one["text"] for one in found["items"]] == [SECRET, "second"]
    assert found["items"][1] == answer.json()
    first = gateway.get(f"{noted}?limit=1").json()
    rest = gateway.get(f"{noted}?limit=1&cursor={first['next_cursor']}").json()
    assert first["items"] + rest["items"] == found["items"]
    assert rest["next_cursor"] is None


def test_the_audit_log_names_authors_but_no_text(gateway: TestClient, noted: str, get: Get) -> None:
    """The audit log names the author, the request and the note. No word of the note's text appears in the audit log,
    events, responses, lists, exports or deliveries."""
    request_id, [note] = noted.split("/")[3], gateway.get(noted).json()["items"]
    [entry] = get(f"/audit-log?object_id={request_id}&action=deletion_request.note_added")["items"]
    assert (entry["actor"], entry["detail"]) == (note["author"], {"note": note["id"]})
    elsewhere = (f"/{request_id}", f"/{request_id}/events", "", f"/{request_id}/certificate", ".csv")
    for path in (*(PLACE + one for one in elsewhere), "/v1/audit-log", "/v1/webhook-deliveries"):
        answer = gateway.get(path)
        assert answer.is_success, path
        assert "Jane" not in answer.text, path


def test_notes_are_limited(gateway: TestClient, noted: str, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note has 1 to 4,000 characters and contains neither NUL nor half of a surrogate pair. The number of notes per
    request is limited."""
    monkeypatch.setattr(contract, "MAX_NOTES", 3)
    for text in ("", "x" * (contract.MAX_NOTE_LENGTH + 1), "a\0b", "\ud800"):
        content = json.dumps({"text": text})
        headers = {"Content-Type": "application/json"}
        refused(gateway.post(noted, content=content, headers=headers), 422, "input_invalid")
    for _ in range(2):
        assert gateway.post(noted, json={"text": "x" * contract.MAX_NOTE_LENGTH}).status_code == 201
    assert "Jane" not in str(refused(gateway.post(noted, json={"text": "Jane"}), 409, "notes_full"))


def test_notes_are_sealed(gateway: TestClient, noted: str, installation: Installation) -> None:
    """No file in the data folder contains a word of a note."""
    files = b"".join(path.read_bytes() for path in installation.settings.data_dir.rglob("*") if path.is_file())
    assert b"Jane" not in files
    assert b"request_notes" in files
