"""Commands about cases: their assignment and notes."""

import io
import json
from pathlib import Path

import pytest

from tests.command_line import Lethe


def test_notes_and_assignees_are_set(live: Lethe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note is given as an argument or read from standard input. Notes are listed as text, or as JSON with --json. A
    case can be assigned and unassigned."""
    request = live("request", "submit", "p1", "--no-wait").json["id"]
    added = live("request", "add-note", request, "called back").json
    assert added["text"] == "called back"
    assert "called back" in live("request", "notes", request).out
    assert json.loads(live("request", "notes", request, "--json").out) == added
    monkeypatch.setattr("sys.stdin", io.StringIO("two\nlines\n"))
    assert live("request", "add-note", request, "-").json["text"] == "two\nlines"
    person = live("user", "create", "Maria", "m@example.com", "--role", "officer").json["id"]
    assert person in live("request", "assignees").out
    assert live("request", "assign", request, person).json["assignee_name"] == "Maria"
    assert live("request", "list", "--assignee", person).out.split()[0] == request
    assert live("request", "assign", request, "nobody").json["assignee"] is None


def test_attachments_are_added_saved_and_deleted(live: Lethe, tmp_path: Path) -> None:
    """An attachment can be added, listed as text, saved to a given path and deleted."""
    request = live("request", "submit", "p1", "--no-wait").json["id"]
    letter = tmp_path / "letter.txt"
    letter.write_text("Forget me.")
    made = live("request", "attach", request, str(letter)).json
    assert made["name"] in live("request", "attachments", request).out
    assert json.loads(live("request", "attachments", request, "--json").out) == made
    copy = tmp_path / "copy.txt"
    live("request", "attachment", request, made["id"], str(copy))
    assert copy.read_text() == "Forget me."
    live("request", "delete-attachment", request, made["id"])
    assert live("request", "attachments", request).out == ""


def test_replies_are_written_to_a_file(live: Lethe, tmp_path: Path) -> None:
    """The reply to a person is written to a file in the person's language, as text or as a PDF."""
    request = live("request", "submit", "p1", "--no-wait").json["id"]
    text, pdf = tmp_path / "reply.txt", tmp_path / "reply.pdf"
    live("request", "reply", request, str(text), "--language", "de")
    assert "Ihr Antrag auf Löschung" in text.read_text()
    live("request", "reply", request, str(pdf), "--language", "de", "--format", "pdf")
    assert pdf.read_bytes().startswith(b"%PDF-")
