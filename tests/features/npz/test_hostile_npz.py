"""Hostile npz files, through the real endpoint: archives and arrays with false claims."""

import io
import stat
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
from fastapi.testclient import TestClient

from tests.app.rows.uploaded import PEOPLE, npz, rows_sent
from tests.tables import each


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
    """Return an npz file with raw members, appending `more` after the three valid ones."""
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
    """Return the archive with some bytes of a member's central directory entry overwritten."""
    entry = content.index(b"PK\x01\x02")
    while content[entry + 46 : entry + 46 + len(name)] != name:
        entry = content.index(b"PK\x01\x02", entry + 4)
    return content[: entry + offset] + packed + content[entry + offset + len(packed) :]


def twice(name: str) -> bytes:
    other = "z" + name[1:]
    return archive(more=[(other, array(np.zeros((2, 2))))]).replace(other.encode(), name.encode())


def short_of_its_size() -> bytes:
    """Return an archive in which both the archive and the array header declare x to be longer than the data that
    unpacks."""
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
    """Return an archive in which a zip64 field declares x to be 2**62 bytes long."""
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
    """An npz file is refused unless its archive contains exactly the three expected arrays, as regular unencrypted
    members that match their headers."""
    content, code = ARCHIVES[case]
    refused(code, content, "rows.npz")


X = np.array([[1.0, 2.0], [3.0, 4.0]])
NPYS: dict[str, tuple[dict[str, bytes], str]] = {
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
    "a label beyond all": ({"y.npy": array(np.array([0, 2**62]))}, "line 2, column y"),
    "a subject of absurd length": ({"subject.npy": array(np.array(["7319" * 5000, "b"]))}, "subject"),
    "half of a character": (
        {"subject.npy": array(np.array([97, 0xD800], np.uint32).view("U1"))},
        "line 2, column subject",
    ),
}


@each("case", NPYS)
def test_a_hostile_array_is_refused(refused: Callable[..., list[str]], case: str) -> None:
    """Nothing in an npz file is unpickled or evaluated, and the error names the invalid array."""
    members, place = NPYS[case]
    code = "row_invalid" if place.startswith("line") else "input_invalid"
    assert refused(code, archive(members), "rows.npz") == ([place] if place else [])


def test_the_layout_of_an_array_does_not_matter(send: Callable[..., httpx.Response], client: TestClient) -> None:
    """Arrays give the same rows whether they are stored in row-major or column-major order, in either byte order, or
    deflated."""
    plain = rows_sent(client, send(npz(), "rows.npz"))
    swapped = npz(x=np.asfortranarray(X.astype(">f4")), y=np.array([0, 1], ">i2"), subject=np.array(PEOPLE, ">U8"))
    assert {rows_sent(client, send(content, "rows.npz")) for content in (swapped, DEFLATED)} == {plain}
