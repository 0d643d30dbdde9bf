"""Broken and hostile uploads, through the real endpoint: each is refused by name, and nothing of it stays anywhere."""

import io
import json
import os
import shutil
import sqlite3
import stat
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.parquet import encryption

from app.config import Settings
from app.main import create_app
from tests.app.rows import bombs
from tests.conftest import CLASSES
from tests.stored import rows_of, slots_of
from tests.tables import each

SCHEMA = {
    "columns": {
        "age": {"kind": "numeric", "min": 0, "max": 100},
        "work": {"kind": "categorical", "values": ["state", "private"]},
        "income": {"role": "label", "values": ["low", "high"]},
        "person": {"role": "subject"},
        "note": {"role": "ignored"},
    }
}
HEADER = "person,age,work,income,note\n"
CSV = HEADER + "ann-7319,31,state,low,secret-4242\nbob-7319,42,private,high,secret-4242\n"
PRIVATE = ("7319", "4242")  # in every record, and never in an answer
PEOPLE = ["ann-7319", "bob-7319"]
MAX_BYTES = 1_000_000


@pytest.fixture(scope="module")
def data_dir(set_up_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "data"
    shutil.copytree(set_up_once, folder)
    return folder


@pytest.fixture(scope="module")
def client(data_dir: Path) -> Iterator[TestClient]:
    """A gateway that accepts a million bytes."""
    chosen = Settings(data_dir=data_dir, max_upload_bytes=MAX_BYTES)
    with TestClient(create_app(chosen), raise_server_exceptions=False) as client:
        client.headers["Authorization"] = f"Bearer {chosen.resolved_admin_key_file().read_text().strip()}"
        yield client


@pytest.fixture(scope="module")
def send(client: TestClient) -> Callable[..., httpx.Response]:
    """POST a file as a dataset; its name tells its kind."""

    def post(content: bytes, filename: str, schema: str | None = None) -> httpx.Response:
        form = {"classes": CLASSES} if filename.endswith(".npz") else {"schema": json.dumps(SCHEMA)}
        form |= {} if schema is None else {"schema": schema}
        return client.post("/v1/datasets", data={"name": "people"} | form, files={"file": (filename, content)})

    return post


@pytest.fixture(scope="module")
def held(data_dir: Path) -> Callable[[], tuple[int, list[str]]]:
    """How many datasets there are, and the files that hold rows or uploads."""

    def look() -> tuple[int, list[str]]:
        with closing(sqlite3.connect(data_dir / "lethe.db")) as database:
            (count,) = database.execute("SELECT count(*) FROM datasets").fetchone()
        files = [path for name in ("blocks", "tmp") for path in (data_dir / name).rglob("*") if path.is_file()]
        return count, sorted(map(str, files))

    return look


@pytest.fixture
def refused(send: Callable[..., httpx.Response], held: Callable[[], tuple[int, list[str]]]) -> Callable[..., list[str]]:
    """Assert that a file is refused with this code, by a text without any value of a record, and that nothing of it
    is kept; returns the places at fault."""

    def check(code: str, content: bytes, filename: str, schema: str | None = None) -> list[str]:
        before = held()
        answer = send(content, filename, schema)
        assert answer.status_code == (413 if code == "upload_too_large" else 422), answer.text
        assert answer.json()["code"] == code, answer.text
        assert not any(value in answer.text for value in PRIVATE)
        assert len(answer.content) < 10_000
        assert held() == before
        return [fault["path"] for fault in answer.json().get("errors", [])]

    return check


# --- files of every kind ---------------------------------------------------------------------------------------------


def npz(**replaced: Any) -> bytes:
    arrays: dict[str, Any] = {"x": np.array([[1.0, 2.0], [3.0, 4.0]]), "y": np.array([0, 1]), "subject": PEOPLE}
    buffer = io.BytesIO()
    np.savez(buffer, **(arrays | replaced))
    return buffer.getvalue()


def parquet(options: dict[str, Any] | None = None, **replaced: Any) -> bytes:
    columns: dict[str, Any] = {"person": PEOPLE, "age": [31, 42], "work": ["state", "private"]}
    columns |= {"income": ["low", "high"], "note": ["secret-4242"] * 2}
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns | replaced), buffer, **(options or {}))
    return buffer.getvalue()


WHOLE = {"rows.csv": CSV.encode(), "rows.parquet": parquet(), "rows.npz": npz()}


def test_the_whole_files_are_accepted(send: Callable[..., httpx.Response]) -> None:
    """What the other tests break is a dataset while it is whole."""
    assert {send(content, name).status_code for name, content in WHOLE.items()} == {201}


@pytest.mark.parametrize("name", ["rows.parquet", "rows.npz"])
def test_a_file_that_ends_too_early_is_refused(refused: Callable[..., list[str]], name: str) -> None:
    """Cut anywhere, a parquet or npz file is no such file any more."""
    whole = WHOLE[name]
    for end in {*range(0, len(whole), len(whole) // 16), 1, 4, 8, 12, len(whole) - 8, len(whole) - 4, len(whole) - 1}:
        assert refused("input_invalid", whole[:end], name) == ["file"]


@each("name", WHOLE)
@each("other", WHOLE)
def test_the_name_does_not_make_the_file(refused: Callable[..., list[str]], name: str, other: str) -> None:
    """A file under the name of another kind is refused, and so is one whose name is of no kind."""
    codes = {("rows.csv", "rows.parquet"): "schema_invalid", ("rows.csv", "rows.npz"): "row_invalid"}
    if name != other:
        refused(codes.get((name, other), "input_invalid"), WHOLE[other], name)
    refused("input_invalid", WHOLE[other], "rows.xls")
    refused("schema_invalid" if name == "rows.csv" else "input_invalid", b"", name)


@settings(max_examples=25)
@given(st.data())
@pytest.mark.parametrize("name", WHOLE)
def test_any_bytes_are_a_dataset_or_refused(
    send: Callable[..., httpx.Response], held: Callable[[], tuple[int, list[str]]], name: str, data: st.DataObject
) -> None:
    """Random bytes, cut files, flipped bits and overwritten pieces get 201, 413 or 422, and only a 201 leaves rows."""
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
        named = sent.partition(b"\n")[0].decode(errors="replace")  # in a header, columns that nobody declared are named
        assert not any(value in answer.text for value in PRIVATE if value not in named)


# --- csv -------------------------------------------------------------------------------------------------------------

CSVS: dict[str, tuple[bytes, str, list[str]]] = {
    "a field as long as the upload": (CSV.encode() + b"c" * 200_000, "row_invalid", ["line 4"]),
    "a row of a hundred thousand fields": (CSV.encode() + b"7319," * 50_000, "row_invalid", ["line 4"]),
    "a header of fifty thousand columns": (b"7319," * 50_000, "schema_invalid", ["line 1, column age"]),
    "one name fifty thousand times": (b"age," * 50_000, "schema_invalid", ["line 1, column work"]),
    "no name at all": (b"," * 200_000, "schema_invalid", ["line 1, column age"]),
    "a doubled column": (CSV.replace("note", "age").encode(), "schema_invalid", ["line 1, column note"]),
    "NUL in a subject": (CSV.replace("bob", "b\0b").encode(), "row_invalid", ["line 3, column person"]),
    "NUL in a number": (CSV.replace("42,p", "4\x002,p").encode(), "row_invalid", ["line 3, column age"]),
    "nothing but NUL": (bytes(200_000), "row_invalid", ["line 1"]),
    "UTF-16": (CSV.encode("utf-16"), "row_invalid", ["line 1"]),
    "UTF-16 without a mark": (CSV.encode("utf-16-be"), "schema_invalid", ["line 1, column age"]),
    "UTF-32": (CSV.encode("utf-32"), "row_invalid", ["line 1"]),
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
    """Absurd shapes, wrong encodings and broken quotes are refused at their line, without repeating it."""
    content, code, places = CSVS[case]
    assert refused(code, content, "rows.csv")[: len(places)] == places


def test_whoever_is_uploaded_can_be_forgotten(
    client: TestClient, send: Callable[..., httpx.Response], refused: Callable[..., list[str]]
) -> None:
    """The longest subject of an upload is the longest that a deletion request may name, and no longer one is taken."""
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
    """Line feeds, carriage returns and both, after a byte order mark, in one file, are line ends."""
    lines = CSV.splitlines()
    mixed = f"\ufeff{lines[0]}\r{lines[1]}\r\n\n\r{lines[2]}\n"
    assert send(mixed.encode(), "rows.csv").json()["num_records"] == 2


# --- npz -------------------------------------------------------------------------------------------------------------


def npy(header: bytes | str, data: bytes = b"", *, version: int = 1) -> bytes:
    text = header.encode() if isinstance(header, str) else header
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def described(descr: str, shape: str, data: bytes = b"") -> bytes:
    return npy(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n", data)


def array(values: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def archive(
    replaced: dict[str, bytes] | None = None, *, more: list[tuple[str, bytes]] | None = None, method: int = 0
) -> bytes:
    """An npz file of raw members, `more` behind the three that belong there."""
    members = {"x.npy": array(np.array([[1.0, 2.0], [3.0, 4.0]])), "y.npy": array(np.array([0, 1]))}
    members |= {"subject.npy": array(np.array(PEOPLE))} | (replaced or {})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as target:
        for name, content in members.items():
            target.writestr(name, content)
        for name, content in more or []:
            target.writestr(name, content)
    return buffer.getvalue()


def with_entry(content: bytes, offset: int, packed: bytes, *, name: bytes = b"x.npy") -> bytes:
    """The archive with some bytes of a member's central entry overwritten."""
    entry = content.index(b"PK\x01\x02")
    while content[entry + 46 : entry + 46 + len(name)] != name:
        entry = content.index(b"PK\x01\x02", entry + 4)
    return content[: entry + offset] + packed + content[entry + offset + len(packed) :]


def twice(name: str) -> bytes:
    other = "z" + name[1:]
    return archive(more=[(other, array(np.zeros((2, 2))))]).replace(other.encode(), name.encode())


def short_of_its_size() -> bytes:
    """An archive whose x is declared longer, in the archive and in the array, than what unpacks from it."""
    rows, there = 1000, 10
    whole = array(np.ones((rows, 2)))
    content = archive(
        {
            "x.npy": whole[: -16 * (rows - there)],
            "y.npy": array(np.arange(rows) % 2),
            "subject.npy": array(np.array([f"p{row}" for row in range(rows)])),
        },
        method=zipfile.ZIP_DEFLATED,
    )
    return with_entry(content, 24, struct.pack("<I", len(whole)))


def zip64_lie() -> bytes:
    """An archive whose x says, in a zip64 field, that it has 2**62 bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        for name in ("x", "y", "subject"):
            entry = zipfile.ZipInfo(f"{name}.npy")
            entry.extra = struct.pack("<HHQ", 1, 8, 2**62)
            target.writestr(entry, array(np.zeros((2, 2))))
    return with_entry(buffer.getvalue(), 24, b"\xff" * 4)


DEFLATED = archive(method=zipfile.ZIP_DEFLATED)
ARCHIVES: dict[str, tuple[bytes, str]] = {
    "a path that climbs": (archive(more=[("../../x.npy", b"")]), "input_invalid"),
    "an absolute path": (archive(more=[("/etc/x.npy", b"")]), "input_invalid"),
    "a folder": (archive(more=[("x.npy/", b"")]), "input_invalid"),
    "a member twice": (twice("x.npy"), "input_invalid"),
    "a NUL in a name": (
        archive(more=[("y.npyAx", b"")]).replace(b"y.npyAx", b"y.npy\0x"),
        "input_invalid",
    ),
    "a link": (with_entry(archive(), 38, struct.pack("<I", (stat.S_IFLNK | 0o777) << 16)), "input_invalid"),
    "an encrypted member": (with_entry(archive(), 8, struct.pack("<H", 1)), "input_invalid"),
    "bzip2": (archive(method=zipfile.ZIP_BZIP2), "input_invalid"),
    "lzma": (archive(method=zipfile.ZIP_LZMA), "input_invalid"),
    "an unknown method": (with_entry(archive(), 10, struct.pack("<H", 77)), "input_invalid"),
    "a longer size": (with_entry(archive(), 24, struct.pack("<I", 100_000)), "input_invalid"),
    "a shorter size": (with_entry(DEFLATED, 24, struct.pack("<I", 100)), "input_invalid"),
    "a size of four gigabytes": (with_entry(DEFLATED, 24, b"\xfe\xff\xff\xff"), "upload_too_large"),
    "a size of exabytes": (zip64_lie(), "upload_too_large"),
    "an end before its size": (short_of_its_size(), "input_invalid"),
    "a place outside": (with_entry(archive(), 42, b"\xfe\xff\xff\x7f"), "input_invalid"),
    "the place of another": (with_entry(archive(), 42, b"\0" * 4, name=b"y.npy"), "input_invalid"),
    "a wrong checksum": (with_entry(archive(), 16, b"1234"), "input_invalid"),
    "five thousand members": (
        archive(more=[(f"{number}", b"") for number in range(2500)]),
        "input_invalid",
    ),
}


@each("case", ARCHIVES)
def test_a_hostile_archive_is_refused(refused: Callable[..., list[str]], case: str) -> None:
    """An npz file has three plain members that are what they say, whatever else a zip file could hold."""
    content, code = ARCHIVES[case]
    refused(code, content, "rows.npz")


X = np.array([[1.0, 2.0], [3.0, 4.0]])
NPYS: dict[str, tuple[dict[str, bytes], str]] = {
    "a pickle": ({"subject.npy": array(np.array(["ann-7319", None], object))}, ""),
    "a pickle in a field": ({"x.npy": described("[('a', '|O')]", "(2, 2)", bytes(32))}, ""),
    "more numbers than atoms": ({"x.npy": described("'<f8'", f"({10**80}, 2)")}, ""),
    "a shape whose product is small": ({"x.npy": described("'<f8'", f"({10**12}, 0)")}, "x"),
    "a negative shape": ({"x.npy": described("'<f8'", "(-2, -2)", bytes(32))}, ""),
    "a shape of text": ({"x.npy": described("'<f8'", "('2', 2)", bytes(32))}, "file"),
    "no shape": ({"x.npy": npy("{'descr': '<f8', 'fortran_order': False}", bytes(32))}, "file"),
    "a type of two gigabytes": ({"subject.npy": described(f"'<U{2**29 - 1}'", "(0,)")}, "subject"),
    "a type that is code": ({"x.npy": described("__import__('os').system('true')", "(2, 2)", bytes(32))}, "file"),
    "a deep header": ({"x.npy": npy("(" * 900, bytes(32))}, "file"),
    "a header of minus signs": ({"x.npy": npy("-" * 900 + "1", bytes(32))}, "file"),
    "a long header": ({"x.npy": described("'<f8'", "(2, 2)" + " " * 5000, bytes(32))}, "file"),
    "a header of four gigabytes": ({"x.npy": b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(32)}, "file"),
    "a version of its own": ({"x.npy": b"\x93NUMPY\x09\x00" + array(X)[8:]}, "file"),
    "bytes behind the array": ({"x.npy": array(X) + b"7319"}, ""),
    "bytes missing": ({"x.npy": array(X)[:-1]}, ""),
    "complex numbers": ({"x.npy": array(X.astype(complex))}, "x"),
    "fields": ({"x.npy": array(np.zeros((2, 2), [("a", "<f8")]))}, "x"),
    "arrays within": ({"x.npy": described("('<f8', (2,))", "(2, 2)", bytes(64))}, "x"),
    "dates": ({"x.npy": array(np.zeros((2, 2), "M8[s]"))}, "x"),
    "raw bytes": ({"x.npy": array(np.zeros((2, 2), "V8"))}, "x"),
    "seventy thousand features": ({"x.npy": array(np.zeros((2, 70_000), np.float16))}, "x"),
    "NaN": ({"x.npy": array(np.array([[1, 2], [np.nan, 1]]))}, "line 2, column x[0]"),
    "infinity": ({"x.npy": array(np.array([[1, -np.inf], [1, 1]]))}, "line 1, column x[1]"),
    "fewer labels": ({"y.npy": array(np.zeros(1, int))}, "y"),
    "labels of two dimensions": ({"y.npy": array(np.zeros((2, 1), int))}, "y"),
    "a label beyond all": ({"y.npy": array(np.array([0, 2**62]))}, "line 2, column y"),
    "more subjects": ({"subject.npy": array(np.array([*PEOPLE, "cid-7319"]))}, "subject"),
    "a subject of absurd length": ({"subject.npy": array(np.array(["7319" * 5000, "b"]))}, "subject"),
    "no character": ({"subject.npy": array(np.array([97, 2**31], np.uint32).view("U1"))}, "file"),
    "half of a character": (
        {"subject.npy": array(np.array([97, 0xD800], np.uint32).view("U1"))},
        "line 2, column subject",
    ),
}


@each("case", NPYS)
def test_a_hostile_array_is_refused(refused: Callable[..., list[str]], case: str) -> None:
    """Nothing is unpickled or evaluated, and an array that is not what it should be is refused by its name."""
    members, place = NPYS[case]
    code = "row_invalid" if place.startswith("line") else "input_invalid"
    assert refused(code, archive(members), "rows.npz") == ([place] if place else [])


def test_the_layout_of_an_array_does_not_matter(send: Callable[..., httpx.Response], client: TestClient) -> None:
    """Column order, either byte order, and deflated members make the same rows."""
    plain = _rows(client, send(npz(), "rows.npz"))
    swapped = npz(x=np.asfortranarray(X.astype(">f4")), y=np.array([0, 1], ">i2"), subject=np.array(PEOPLE, ">U8"))
    assert {_rows(client, send(content, "rows.npz")) for content in (swapped, DEFLATED)} == {plain}


def _rows(client: TestClient, sent: httpx.Response) -> bytes:
    """Of each person, one after the other, whatever their slots."""
    at, dataset_id = client.app.state.installation, sent.json()["id"]
    rows, slots = rows_of(at, dataset_id), slots_of(at, dataset_id, *PEOPLE)
    return rows.features[slots].tobytes() + rows.labels[slots].tobytes()


# --- parquet ---------------------------------------------------------------------------------------------------------


def encrypted() -> bytes:
    """A parquet file whose footer is encrypted."""

    class Plain(encryption.KmsClient):  # type: ignore[misc]
        def wrap_key(self, key: bytes, _master: str) -> str:
            return key.hex()

    factory = encryption.CryptoFactory(lambda _config: Plain())
    chosen = encryption.EncryptionConfiguration(footer_key="k", column_keys={"k": ["age"]}, plaintext_footer=False)
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), chosen)
    return parquet({"encryption_properties": properties})


def nested(depth: int) -> Any:
    kind = pa.int32()
    for _ in range(depth):
        kind = pa.struct([("a", kind)])
    return pa.nulls(2, kind)


PARQUETS: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "an encrypted file": (encrypted, "input_invalid", "file"),
    "a footer of four gigabytes": (lambda: parquet()[:-8] + b"\xff\xff\xff\xffPAR1", "input_invalid", "file"),
    "a footer that reaches too far": (lambda: parquet()[:-8] + b"\xff\xff\x00\x00PAR1", "input_invalid", "file"),
    "a trillion rows": (lambda: bombs.with_num_rows(parquet(), 10**12), "upload_too_large", ""),
    "fewer rows than there are": (lambda: bombs.with_num_rows(parquet(), 1), "input_invalid", "file"),
    "a negative number of rows": (lambda: bombs.with_num_rows(parquet(), -1), "input_invalid", "file"),
    "counts of levels that there are not": (  # asked about such a chunk, pyarrow ends the process
        lambda: bombs.with_footer(parquet(), b"\x25\x02\x18", b"\x25\x00\x18"),
        "input_invalid",
        "file",
    ),
    "a thousand levels": (lambda: parquet(note=nested(1000)), "input_invalid", "file"),
    "a column in a column": (lambda: parquet(age=nested(3)), "schema_invalid", "column age"),
    "lists": (lambda: parquet(work=[["state"], ["private"]]), "schema_invalid", "column work"),
    "times": (lambda: parquet(age=pa.array([1, 2], pa.timestamp("us"))), "schema_invalid", "column age"),
    "dates as subjects": (lambda: parquet(person=pa.array([1, 2], pa.date32())), "schema_invalid", "column person"),
    "bytes": (lambda: parquet(person=[b"ann-7319", b"bob-7319"]), "schema_invalid", "column person"),
    "text for a number": (lambda: parquet(age=["31", "x7319"]), "row_invalid", "line 2, column age"),
    "no value": (lambda: parquet(age=[31, None]), "row_invalid", "line 2, column age"),
    "nothing but nulls": (lambda: parquet(person=pa.nulls(2)), "row_invalid", "line 1, column person"),
    "NaN": (lambda: parquet(age=[31, float("nan")]), "row_invalid", "line 2, column age"),
    "infinity": (lambda: parquet(age=[float("-inf"), 1.0]), "row_invalid", "line 1, column age"),
    "a subject of absurd length": (
        lambda: parquet(person=["7319" * 9000, "b"]),
        "row_invalid",
        "line 1, column person",
    ),
    "a column that is there twice": (
        lambda: bombs.with_footer(parquet(), b"note", b"work"),
        "schema_invalid",
        "column note",
    ),
    "text that stands for more": (
        lambda: parquet({"use_dictionary": False, "column_encoding": {"person": "DELTA_BYTE_ARRAY"}}),
        "input_invalid",
        "file",
    ),
}


@each("case", PARQUETS)
def test_a_hostile_parquet_file_is_refused(refused: Callable[..., list[str]], case: str) -> None:
    """Claims that the pages do not keep, types that are neither text nor numbers, and missing values are refused."""
    make, code, place = PARQUETS[case]
    assert refused(code, make(), "rows.parquet")[:1] == ([place] if place else [])


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
def test_what_writers_write_is_read(
    send: Callable[..., httpx.Response], client: TestClient, version: str, codec: str
) -> None:
    """Pages of both versions, every compression, dictionaries and split floats make the same rows."""
    options = {"data_page_version": version, "compression": codec, "write_page_checksum": True, "row_group_size": 1}
    plain = _rows(client, send(CSV.encode(), "rows.csv"))
    split = {"use_dictionary": False, "column_encoding": {"age": "BYTE_STREAM_SPLIT"}}
    for content in (parquet(options), parquet(options | split, age=[31.0, 42.0])):
        assert _rows(client, send(content, "rows.parquet")) == plain


def test_a_read_column_and_its_dotted_neighbour_are_told_apart(refused: Callable[..., list[str]]) -> None:
    """Arrow would read `age.x` with `age`, unasked and unbounded: a column that is not used may not be called so."""
    schema = {"columns": SCHEMA["columns"] | {"age.x": {"role": "ignored"}}}
    content = parquet(**{"age.x": ["secret-4242", ""]})
    assert refused("schema_invalid", content, "rows.parquet", json.dumps(schema)) == ["column 6"]


# --- schemas ---------------------------------------------------------------------------------------------------------

WIDE: dict[str, Any] = {"kind": "categorical", "values": [f"{number}" for number in range(33_000)]}
SCHEMAS: dict[str, tuple[str, str]] = {
    "a schema so deep that it cannot be read": ("[" * 100_000, "schema"),
    "more features than a row may have": (json.dumps({"columns": {"a": WIDE, "b": WIDE}}), "columns"),
    "a name of absurd length": (json.dumps({"columns": {"a" * 100_000: WIDE}}), "columns"),
}


@pytest.mark.parametrize("case", SCHEMAS)
def test_a_hostile_schema_is_refused(refused: Callable[..., list[str]], case: str) -> None:
    """A schema is refused before a row is read by it."""
    schema, place = SCHEMAS[case]
    assert place in refused("schema_invalid", CSV.encode(), "rows.csv", schema)


# --- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bomb", bombs.BOMBS)
@pytest.mark.soak
def test_a_bomb_is_read_in_little_memory(tmp_path: Path, bomb: str) -> None:
    """A process that may take one gibibyte more than it has refuses, or reads, what unpacks to more than that."""
    path = tmp_path / "bomb"
    bombs.BOMBS[bomb].write(path)
    result = subprocess.run(
        [sys.executable, "-m", "tests.app.rows.bombs", bomb, path],
        env=os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"},  # the other pools reserve gigabytes ahead
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=360,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.strip() == bombs.BOMBS[bomb].code
