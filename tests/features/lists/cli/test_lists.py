"""`lethe request import` and `export`: lists of people in, results out, and no identifier in either output."""

import csv
import hashlib
import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Ended, Lethe, refused
from tests.tables import each

PEOPLE = [f"p{number}" for number in range(5)]
HASHES = [hashlib.sha256(person.encode()).hexdigest() for person in PEOPLE]


def results(file: Path) -> list[dict[str, Any]]:
    return list(csv.DictReader(file.read_text().splitlines()))


def statuses(live: Lethe, out: Path, *options: str) -> list[dict[str, Any]]:
    assert live("request", "export", "--out", out, *options).code == 0
    return results(out)


def says_nobody(ended: Ended, *people: str) -> bool:
    return not any(person in ended.out + ended.err for person in people)


def test_a_list_of_hashes_is_imported(live: Lethe, people: Path, tmp_path: Path) -> None:
    """Each hash in a file becomes a request. People whose data is held are forgotten and suppressed; for everyone else,
    the outcome is that nothing was held."""
    live("dataset", "create", people, "--classes", "0,1")
    file, out = tmp_path / "drop.txt", tmp_path / "results.csv"
    stranger = hashlib.sha256(b"stranger@example.org").hexdigest()
    file.write_text("\n".join([HASHES[0].upper(), "", HASHES[1], stranger]) + "\n")
    done = live("request", "import", file, "--source", "drop 2026-11", "--regulation", "ccpa", "--out", out)
    assert (done.code, done.out, done.err) == (0, "3 accepted, 0 refused\n", "")
    rows = results(out)
    assert [(row["line"], row["status"], row["code"]) for row in rows] == [
        ("1", "202", ""),
        ("3", "202", ""),
        ("4", "202", ""),
    ]
    ended = [live("request", "wait", row["id"]).json for row in rows]
    assert [one["outcome"] for one in ended] == ["forgotten", "forgotten", "nothing_held"]
    assert {(one["regulation"], one["source"]) for one in ended} == {("ccpa", "drop 2026-11")}
    exported = statuses(live, tmp_path / "statuses.csv", "--source", "drop 2026-11")
    assert {row["id"]: row["outcome"] for row in exported} == {one["id"]: one["outcome"] for one in ended}
    held = live("dataset", "create", people, "--classes", "0,1")
    refused(held, "subject_suppressed")
    assert says_nobody(held, *PEOPLE)


def test_importing_a_list_again_creates_nothing(live: Lethe, tmp_path: Path) -> None:
    """Importing a file again from the same source creates no requests, even with another regulation. Importing the file
    from another source, or after changing it, does create new requests."""
    file, out, again = tmp_path / "drop.txt", tmp_path / "results.csv", tmp_path / "again.csv"
    file.write_text("\n".join(HASHES))
    assert live("request", "import", file, "--source", "a", "--out", out).code == 0
    assert live("request", "import", file, "--source", "a", "--out", again).code == 0
    assert results(again) == results(out)
    ended = live("request", "import", file, "--source", "a", "--regulation", "ccpa")
    refused(ended, "idempotency_conflict")
    assert "--source" in ended.err
    assert len(statuses(live, tmp_path / "s.csv")) == 5
    assert live("request", "import", file, "--source", "b").code == 0
    assert len(statuses(live, tmp_path / "s.csv")) == 10
    assert len(statuses(live, tmp_path / "s.csv", "--source", "b")) == 5
    file.write_text("\n".join(HASHES[:1]))
    assert live("request", "import", file, "--source", "a").code == 0
    assert len(statuses(live, tmp_path / "s.csv", "--status", "completed", "--regulation", "gdpr")) == 11


def test_faulty_lines_are_reported(live: Lethe, tmp_path: Path) -> None:
    """Invalid lines are reported by line number, all other lines are accepted, and the command exits with status 1."""
    file, out = tmp_path / "list.csv", tmp_path / "results.csv"
    file.write_text(
        "Record,E-Mail,regulation\r\n"
        "r1,anna@example.org,ccpa\r\n"
        "r2,,ccpa\r\n"
        "r3,bert@example.org,No Such Law\r\n"
        "r4\r\n"
        '"r\r\n5",carl@example.org,\r\n'
        'r6,"dora\r\n@example.org",\r\n'
    )
    asked = ("--column", "subject_id=E-Mail", "--column", "external_id=Record", "--out", out)
    done = live("request", "import", file, *asked)
    assert (done.code, done.out) == (1, "2 accepted, 4 refused\n")
    assert done.err.splitlines() == [f"line {line}: input_invalid" for line in (3, 4, 5, 9)]
    assert [(row["line"], row["status"]) for row in results(out)] == [
        ("2", "202"),
        ("3", "422"),
        ("4", "422"),
        ("5", "422"),
        ("7", "202"),
        ("9", "422"),
    ]
    assert says_nobody(done, "anna", "bert", "carl", "dora")
    assert not any(name in out.read_text() for name in ("anna", "bert", "carl", "dora"))
    exported = statuses(live, tmp_path / "s.csv", "--regulation", "ccpa")
    assert [(row["external_id"], row["regulation"]) for row in exported] == [("r1", "ccpa")]
    file.write_text("subject_sha256\n" + "no hash\n" * 12)
    done = live("request", "import", file)
    assert (done.code, done.out) == (1, "0 accepted, 12 refused\n")
    assert done.err.splitlines() == [f"line {line}: batch_refused" for line in range(2, 12)] + ["and 2 more"]


def test_a_dry_run_sends_nothing(lethe: Lethe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run sends nothing and reports every error that can be found without a gateway."""
    monkeypatch.setenv("LETHE_URL", "http://127.0.0.1:1")
    file = tmp_path / "list.csv"
    file.write_text("hash\n" + "\n".join(HASHES) + "\n")
    asked = ("request", "import", file, "--dry-run", "--column", "subject_sha256=hash")
    done = lethe(*asked)
    assert (done.code, done.out, done.err) == (0, "5 requests in 1 batches; nothing was sent\n", "")
    file.write_text("hash\nno hash\n" + HASHES[0] + "\n")
    done = lethe(*asked)
    assert (done.code, done.err) == (1, "line 2: expected 64 hexadecimal digits\n")
    file.write_text("subject_id,subject_sha256\n" + "a" * 501 + f",\nanna,{HASHES[0]}\n,\n")
    done = lethe("request", "import", file, "--dry-run")
    assert done.err.splitlines() == [
        "line 2: expected at most 500 characters",
        "line 3: expected either subject_id or subject_sha256",
    ]


@each(
    ("content", "columns"),
    [
        (b"", ()),
        (b"\n\n", ()),
        (b"subject_id\n", ()),
        (b"anna@example.org\nbert@example.org\n", ()),
        (b"anna@example.org,x\n", ("subject_id=email",)),
        (b"email\nanna@example.org\n", ("name=email",)),
        (b"subject_id,subject_id\nanna@example.org,x\n", ()),
        (b"subject_id\nanna\xff@example.org\n", ()),
        (b'subject_id\n"anna@example.org\n', ()),
    ],
)
def test_a_file_without_subjects_is_refused(
    lethe: Lethe, tmp_path: Path, content: bytes, columns: tuple[str, ...]
) -> None:
    """A file without a readable subject column is refused with a one-line error that quotes nothing from the file, and
    nothing is sent."""
    file = tmp_path / "list.csv"
    file.write_bytes(content)
    options = itertools.chain.from_iterable(("--column", column) for column in columns)
    ended = lethe("request", "import", file, *options, "--key", "k", "--url", "http://127.0.0.1:1")
    refused(ended, "input_invalid")
    assert says_nobody(ended, "anna", "bert")
