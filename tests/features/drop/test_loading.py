"""Files of DROP and of people, read and refused by the SDK and the command line."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lethe import Client
from lethe.contract.problems import InputInvalid
from lethe.features.drop.client import _batches
from lethe.features.drop.contract import MAX_LINES, DropUnanswered
from lethe.features.drop.standard import hash_of
from lethe.features.identities.client import csv_rows

EMAIL, REMOVED = "20260312_4821_Email.csv", "20260312_4821_Removed.csv"


def csv_of(*lines: str, header: str = "ID,Hash") -> str:
    return "\r\n".join([header, *lines, ""])


@pytest.fixture
def offline() -> Iterator[Client]:
    """Yield a client without a gateway. Input is refused before any call is made."""
    with Client("http://127.0.0.1:1", "none", retry_seconds=0) as opened:
        yield opened


def test_an_interrupted_archive_is_loaded_again(client: Client, tmp_path: Path) -> None:
    """A large file is sent in several calls. If loading is interrupted, the file has no answer until the whole archive
    has been loaded again. The list of removed lines is sent last."""
    many = [f"line{number:08},{hash_of(str(number))}" for number in range(MAX_LINES + 2)]
    archive = tmp_path / "20260312_4821_DROP.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(REMOVED, csv_of(f"{many[0]},Email", header="ID,Hash,ListType"))
        file.writestr(EMAIL, "\ufeff" + csv_of(*many))
        file.writestr(EMAIL.replace("Email", "Phone"), csv_of())
    first = [dict(zip(("id", "hash"), line.split(","), strict=True)) for line in many[:MAX_LINES]]
    client.drop.load(file=EMAIL, lines=first)
    with pytest.raises(DropUnanswered, match="loaded in part"):
        client.drop.answer(tmp_path / "answer.csv", file=EMAIL)
    for _ in range(2):
        totals = client.drop.load_file(archive)
        assert (totals.num_files, totals.num_lines) == (3, MAX_LINES + 3)
    by_name = {file.file: file for file in client.drop.get().files}
    assert by_name[EMAIL].num_loaded == by_name[EMAIL].num_lines == MAX_LINES + 2
    assert by_name[EMAIL].num_removed == 1
    with pytest.raises(InputInvalid) as raised:
        client.drop.load_people([{"customer_id": "p1", "email": ""}, {"customer_id": "\u200b", "email": ""}])
    assert raised.value.errors[0].path == "row 2"
    client.drop.answer(tmp_path / "answer.csv", file=EMAIL.replace("Email", "Phone"))
    assert (tmp_path / "answer.csv").read_bytes() == b"Id,Status\r\n"


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("people.csv", csv_of(), "people.csv"),
        (EMAIL, "Hash,ID\n", f"{EMAIL}, line 1"),
        (EMAIL, csv_of(f"aB3dE6gH9jK2,{hash_of('a')}", "aB3dE6gH9jK2,secret"), f"{EMAIL}, line 3"),
        (EMAIL, csv_of(f"aB3dE6gH9jK2,{hash_of('a')},more"), f"{EMAIL}, line 2"),
        (REMOVED, csv_of(f"aB3dE6gH9jK2,{hash_of('a')},Post", header="ID,Hash,ListType"), f"{REMOVED}, line 2"),
        ("lists.zip", "no archive", "lists.zip"),
    ],
)
def test_malformed_files_are_refused_by_line(
    offline: Client, tmp_path: Path, name: str, content: str, place: str
) -> None:
    """Names, columns, IDs, hashes and lists that violate DROP's format are refused with the line number, without
    quoting the line."""
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputInvalid) as raised:
        offline.drop.load_file(path)
    assert raised.value.errors[0].path == place
    assert "secret" not in raised.value.line


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ("4711,07/04/1985", "line 3, birth_date"),
        (",1985-07-04", "line 3"),
    ],
)
def test_malformed_people_are_refused_by_line(offline: Client, tmp_path: Path, row: str, place: str) -> None:
    """A date in which day and month cannot be told apart and a row without a customer id are refused with their line
    number."""
    path = tmp_path / "customers.csv"
    id_, birth_date = row.split(",")
    path.write_text(
        "customer_id,first_name,last_name,birth_date,zip\n"
        f"4710,Ada,Lovelace,1815-12-10,90001\n{id_},Ada,Lovelace,{birth_date},90001\n"
    )
    with pytest.raises(InputInvalid) as raised:
        offline.drop.load_people(csv_rows(path), first=2, place="line")
    assert raised.value.errors[0].path == place
    assert birth_date not in raised.value.line


def test_a_file_is_read_line_by_line(tmp_path: Path) -> None:
    """The first batch of a file is sent before the second batch is read."""
    path = tmp_path / EMAIL
    path.write_text(csv_of(*(f"line{number:08},{hash_of('a')}" for number in range(MAX_LINES)), "broken"))
    with path.open(newline="") as file:
        batches = _batches(EMAIL, file)
        assert len(next(batches)) == MAX_LINES
        with pytest.raises(InputInvalid):
            next(batches)
