"""Broken and hostile uploads through the real endpoint: each is refused with a specific error and leaves
nothing behind."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings, strategies as st

from tests.app.rows import bombs
from tests.app.rows.uploaded import CSV, PRIVATE, npz, parquet
from tests.tables import each

WHOLE = {"rows.csv": CSV.encode(), "rows.parquet": parquet(), "rows.npz": npz()}


def test_undamaged_files_are_accepted(send: Callable[..., httpx.Response]) -> None:
    """The files used by the other tests are accepted as long as they are undamaged."""
    assert {send(content, name).status_code for name, content in WHOLE.items()} == {201}


@pytest.mark.parametrize("name", ["rows.parquet", "rows.npz"])
def test_a_file_that_ends_too_early_is_refused(refused: Callable[..., list[str]], name: str) -> None:
    """A Parquet or npz file is refused no matter where it is cut off."""
    whole = WHOLE[name]
    for end in {*range(0, len(whole), len(whole) // 16), 1, 4, 8, 12, len(whole) - 8, len(whole) - 4, len(whole) - 1}:
        assert refused("input_invalid", whole[:end], name) == ["file"]


@each("name", WHOLE)
@each("other", WHOLE)
def test_a_wrong_suffix_is_refused(refused: Callable[..., list[str]], name: str, other: str) -> None:
    """A file with an unknown suffix, or with the suffix of another file type, is refused."""
    if name != other:
        refused("input_invalid", WHOLE[other], name)
    refused("input_invalid", WHOLE[other], "rows.xls")
    refused("schema_invalid" if name == "rows.csv" else "input_invalid", b"", name)


@settings(max_examples=25)
@given(st.data())
@pytest.mark.parametrize("name", WHOLE)
def test_arbitrary_bytes_are_accepted_or_refused(
    send: Callable[..., httpx.Response], held: Callable[[], tuple[int, list[str]]], name: str, data: st.DataObject
) -> None:
    """An upload of random bytes or of a corrupted file returns 201, 413 or 422, and leaves rows behind only if it
    returns 201."""
    whole = WHOLE[name]
    place = st.integers(0, len(whole) - 1)
    flipped = st.tuples(place, st.integers(0, 7)).map(
        lambda hit: whole[: hit[0]] + bytes([whole[hit[0]] ^ 1 << hit[1]]) + whole[hit[0] + 1 :]
    )
    overwritten = st.tuples(place, st.binary(min_size=1, max_size=8)).map(
        lambda hit: whole[: hit[0]] + hit[1] + whole[hit[0] + len(hit[1]) :]
    )
    doubled = st.tuples(place, place).map(lambda cut: whole[: max(cut)] + whole[min(cut) :])
    before = held()
    sent = data.draw(st.binary(max_size=200) | place.map(lambda end: whole[:end]) | flipped | overwritten | doubled)
    answer = send(sent, name)
    assert answer.status_code in {201, 413, 422}, answer.text
    if answer.status_code != 201:
        assert held() == before
        named = sent.partition(b"\n")[0].decode(errors="replace")  # the refusal of a header names undeclared columns
        assert not any(value in answer.text for value in PRIVATE if value not in named)


CSVS: dict[str, tuple[bytes, str, list[str]]] = {
    "a field as long as the upload": (CSV.encode() + b"c" * 200_000, "row_invalid", ["line 4"]),
    "a row of a hundred thousand fields": (CSV.encode() + b"7319," * 50_000, "row_invalid", ["line 4"]),
    "a header of fifty thousand columns": (b"7319," * 50_000, "schema_invalid", ["line 1, column age"]),
    "one name fifty thousand times": (b"age," * 50_000, "schema_invalid", ["line 1, column work"]),
    "no name at all": (b"," * 200_000, "schema_invalid", ["line 1, column age"]),
    "a doubled column": (CSV.replace("note", "age").encode(), "schema_invalid", ["line 1, column note"]),
    "NUL in a subject": (CSV.replace("bob", "b\0b").encode(), "row_invalid", ["line 3, column person"]),
    "NUL in a number": (CSV.replace("42,p", "4\x002,p").encode(), "row_invalid", ["line 3, column age"]),
    "nothing but NUL": (bytes(200_000), "input_invalid", ["file"]),
    "UTF-16": (CSV.encode("utf-16"), "input_invalid", ["file"]),
    "UTF-16 without a mark": (CSV.encode("utf-16-be"), "input_invalid", ["file"]),
    "UTF-32": (CSV.encode("utf-32"), "input_invalid", ["file"]),
    "Latin-1": (CSV.replace("bob", "böb").encode("latin-1"), "row_invalid", ["line 3"]),
    "half of a character": (CSV.encode() + "é".encode()[:1], "row_invalid", ["line 4"]),
    "a surrogate": (CSV.encode().replace(b"bob", b"\xed\xa0\x80"), "row_invalid", ["line 3"]),
    "a second byte order mark": (
        b"\xef\xbb\xbf\xef\xbb\xbf" + CSV.encode(),
        "schema_invalid",
        ["line 1, column person"],
    ),
    "a quote that never ends": (CSV.encode() + b'"cid-7319,1,state\n' * 3, "row_invalid", ["line 4"]),
    "a quote that runs to the end": (CSV.encode() + b'"' + b"7319\n" * 50_000, "row_invalid", ["line 4"]),
    "text after a quote": (CSV.encode() + b'"cid-7319"x,1,state,low,\n', "row_invalid", ["line 4"]),
    "a subject nobody could ask for": (
        CSV.replace("bob", "b" * 500).encode(),
        "row_invalid",
        ["line 3, column person"],
    ),
    "an infinite number": (CSV.replace("42,p", "1e999,p").encode(), "row_invalid", ["line 3, column age"]),
    "a number of a hundred thousand digits": (
        CSV.replace("42,p", "9" * 100_000 + ",p").encode(),
        "row_invalid",
        ["line 3, column age"],
    ),
    "digits of another script": (CSV.replace("42,p", "४२,p").encode(), "row_invalid", ["line 3, column age"]),
}


@each("case", CSVS)
def test_a_hostile_csv_is_refused(refused: Callable[..., list[str]], case: str) -> None:
    """A file with an absurd shape, a wrong encoding or broken quotes is refused; the error contains the line number but
    not the line itself."""
    content, code, places = CSVS[case]
    assert refused(code, content, "rows.csv")[: len(places)] == places


def test_every_uploaded_subject_can_be_forgotten(
    client: TestClient, send: Callable[..., httpx.Response], refused: Callable[..., list[str]]
) -> None:
    """The longest subject id accepted in an upload is also the longest accepted in a deletion request; longer ids are
    refused in both."""
    longest = "ö" * 500
    assert send(CSV.replace("bob-7319", longest).encode(), "rows.csv").status_code == 201
    assert client.post("/v1/deletion-requests", json={"subject_id": longest}).status_code == 202
    assert client.post("/v1/deletion-requests", json={"subject_id": longest + "ö"}).status_code == 422
    content = CSV.replace("bob-7319", longest + "ö").encode()
    assert refused("row_invalid", content, "rows.csv") == ["line 3, column person"]
    content = parquet(person=["ann-7319", longest + "ö"])
    assert refused("row_invalid", content, "rows.parquet") == ["line 2, column person"]
    assert refused("input_invalid", npz(subject=np.array(["ann-7319", longest + "ö"])), "rows.npz") == ["subject"]


def test_line_ends_may_be_mixed(send: Callable[..., httpx.Response]) -> None:
    """A CSV file that begins with a byte order mark can mix LF, CR and CRLF line endings."""
    lines = CSV.splitlines()
    mixed = f"\ufeff{lines[0]}\r{lines[1]}\r\n\n\r{lines[2]}\n"
    assert send(mixed.encode(), "rows.csv").json()["num_records"] == 2


WIDE: dict[str, Any] = {"kind": "categorical", "values": [f"{number}" for number in range(33_000)]}
SCHEMAS: dict[str, tuple[str, str]] = {
    "more features than a row may have": (json.dumps({"columns": {"a": WIDE, "b": WIDE}}), "columns"),
    "a name of absurd length": (json.dumps({"columns": {"a" * 100_000: WIDE}}), "columns"),
}


@pytest.mark.parametrize("case", SCHEMAS)
def test_a_hostile_schema_is_refused(refused: Callable[..., list[str]], case: str) -> None:
    """A hostile schema is refused before any row is read."""
    schema, place = SCHEMAS[case]
    assert place in refused("schema_invalid", CSV.encode(), "rows.csv", schema)


@pytest.mark.parametrize("bomb", bombs.BOMBS)
@pytest.mark.soak
def test_a_decompression_bomb_takes_little_memory(tmp_path: Path, bomb: str) -> None:
    """A file that unpacks to more than a gibibyte is either refused or read using less than a gibibyte of additional
    memory."""
    path = tmp_path / "bomb"
    bombs.BOMBS[bomb].write(path)
    result = subprocess.run(
        [sys.executable, "-m", "tests.app.rows.bombs", bomb, path],
        env=os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"},  # the other pools reserve gigabytes in advance
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=360,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.strip() == bombs.BOMBS[bomb].code
