"""The search finds all planted content in any place and form; otherwise an empty result would prove nothing."""

import base64
import gzip
import hashlib
import io
import json
import os
import secrets
import sys
import tempfile
import urllib.parse
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.forensics import forms, person, search
from tests.forensics.containers import unpacked
from tests.forensics.finder import Finder

SOMEBODY = person.new()
SURROUNDINGS = os.urandom(5000), b"<p>so it goes</p>" * 500, bytes(5000)


def _found(tmp_path: Path, content: bytes, patterns: forms.Patterns) -> set[str]:
    """Return the names of the patterns in a file with this content."""
    (tmp_path / "file").write_bytes(content)
    residue = search.folders([tmp_path], Finder(patterns))
    return {name for found in residue.values() for name in found}


WRITTEN: dict[str, Callable[[str], bytes]] = {
    "as it is": lambda text: text.encode(),
    "UTF-16, little-endian": lambda text: text.encode("utf-16-le"),
    "UTF-16, big-endian": lambda text: text.encode("utf-16-be"),
    "UTF-32, as numpy does": lambda text: np.array([text]).tobytes(),
    "base64": lambda text: base64.b64encode(text.encode()),
    "base64, after one byte": lambda text: base64.b64encode(b"x" + text.encode()),
    "base64, after two bytes": lambda text: base64.b64encode(b"xy" + text.encode() + b"z"),
    "urlsafe base64": lambda text: base64.urlsafe_b64encode(text.encode()),
    "hex": lambda text: text.encode().hex().encode(),
    "HEX": lambda text: text.encode().hex().upper().encode(),
    "an address": lambda text: urllib.parse.quote(text, safe="").encode(),
    "a path": lambda text: urllib.parse.quote(text).encode(),
    "a form": lambda text: urllib.parse.urlencode({"subject": text}).encode(),
    "JSON": lambda text: json.dumps({"subject": text}).encode(),
    "JSON with the letters themselves": lambda text: json.dumps({"subject": text}, ensure_ascii=False).encode(),
    "JSON in JSON": lambda text: json.dumps(json.dumps({"subject": text})).encode(),
    "upper case": lambda text: text.upper().encode(),
    "lower case": lambda text: text.lower().encode(),
    "cut off in the middle": lambda text: text.encode()[: len(text.encode()) // 2 + 13],
    "gzip": lambda text: gzip.compress(text.encode()),
    "zlib": lambda text: zlib.compress(text.encode()),
    "gzip, cut off": lambda text: gzip.compress(text.encode() + os.urandom(100))[:-60],
    "gzip in gzip": lambda text: gzip.compress(b"x" + gzip.compress(text.encode())),
    "zip": lambda text: _zipped(text.encode()),
    "a base64 of JSON": lambda text: base64.b64encode(json.dumps([[], {"subject": text}]).encode()),
}


def _zipped(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("member", content)
    return buffer.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("way", WRITTEN)
def test_text_is_found_in_any_encoding(tmp_path: Path, way: str) -> None:
    """Every text about the person is found in any encoding, even in the middle of other content."""
    before, *after = SURROUNDINGS
    for name, text in SOMEBODY.texts().items():
        content = before + WRITTEN[way](text) + b"".join(after)
        assert _found(tmp_path, content, forms.of_text(name, text)), name


IN_MEMORY = {
    way: WRITTEN[way]
    for way in ("as it is", "UTF-32, as numpy does", "JSON", "JSON with the letters themselves", "a base64 of JSON")
} | {"as Python keeps it": lambda text: _kept_by_python(text)}


def _kept_by_python(text: str) -> bytes:
    """Encode the text as Python stores it: with one, two or four bytes per character, depending on its widest
    character."""
    widest = max(map(ord, text))
    return text.encode("latin-1" if widest < 2**8 else "utf-16-le" if widest < 2**16 else "utf-32-le")


@pytest.mark.parametrize("way", IN_MEMORY)
def test_text_is_found_without_unpacking(way: str) -> None:
    """In memory, which is searched without unpacking, every text about the person is found in each encoding that occurs
    there."""
    for name, text in SOMEBODY.texts().items():
        content = SURROUNDINGS[0] + IN_MEMORY[way](text) + SURROUNDINGS[2]
        assert Finder(forms.of_text(name, text)).found(content), name


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["<f8", ">f8", "<f4", ">f4"])
@pytest.mark.parametrize("offset", range(4))
def test_rows_are_found(tmp_path: Path, kind: str, offset: int) -> None:
    """Each row of the person, as uploaded or as encoded, is found in float64 and float32, in either byte order
    and at any offset."""
    for rows in (SOMEBODY.rows, SOMEBODY.added, SOMEBODY.encoded()):
        content = SURROUNDINGS[0][: 1000 + offset] + rows.astype(kind).tobytes() + SURROUNDINGS[2]
        assert _found(tmp_path, content, SOMEBODY.patterns_of_rows())


@pytest.mark.parametrize("way", ["hex", "base64"])
def test_encoded_numbers_are_found(tmp_path: Path, way: str) -> None:
    """One of the person's rows is found if it is written in hex or base64 within a text."""
    for kind in ("<f8", "<f4"):
        row = SOMEBODY.encoded()[3].astype(kind).tobytes()
        content = row.hex().encode() if way == "hex" else base64.b64encode(b"{" + row)
        assert _found(tmp_path, b"features: " + content, SOMEBODY.patterns_of_rows())


def test_column_is_found(tmp_path: Path) -> None:
    """A single number from the person's rows is found among other people's numbers. This matters because columnar
    formats do not keep rows together."""
    column = np.random.default_rng(0).uniform(size=99)
    column[40] = SOMEBODY.rows[2, 2]
    assert _found(tmp_path, column.tobytes(), SOMEBODY.patterns_of_rows())


def test_digits_are_found(tmp_path: Path) -> None:
    """A number from the person's rows is found if it is written out in decimal digits."""
    assert _found(tmp_path, b'{"age": %r}' % float(SOMEBODY.rows[0, 0]), SOMEBODY.patterns_of_rows())


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_label_pattern_is_found(tmp_path: Path, kind: type) -> None:
    """The sequence of the person's labels is found among other people's labels, and is not found if only other
    people's labels are searched."""
    labels = person.among_others(SOMEBODY).labels.astype(kind)
    others = np.delete(labels, slice(150, 158))
    patterns = {name: one for name, one in SOMEBODY.patterns_of_rows().items() if name.startswith("labels")}
    assert _found(tmp_path, labels.tobytes(), patterns)
    assert not _found(tmp_path, others.tobytes(), patterns)


@pytest.mark.parametrize("hashed", ["sha256", "sha1", "md5"])
def test_an_unkeyed_hash_is_found(tmp_path: Path, hashed: str) -> None:
    """An unkeyed hash, which would confirm a guess of the id, is found as bytes, hex and base64."""
    digest = hashlib.new(hashed, SOMEBODY.subject_id.encode()).digest()
    for written in (digest, digest.hex().encode(), base64.b64encode(digest)):
        assert _found(tmp_path, b"ref=" + written, forms.of_guess("subject id", SOMEBODY.subject_id))


UPLOADS: dict[str, Callable[[person.Table], bytes]] = {
    "csv": lambda table: table.csv(),
    "npz": lambda table: table.npz(),
    **{
        f"parquet, {codec}": (lambda table, codec=codec: table.parquet(codec))
        for codec in ("zstd", "snappy", "gzip", "lz4", "none")
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", UPLOADS)
def test_upload_is_found(tmp_path: Path, kind: str) -> None:
    """The person's id and rows are found in a stored upload or in a part of it, but not in an upload without
    the person."""
    table = person.among_others(SOMEBODY)
    content = UPLOADS[kind](table)
    patterns = forms.of_text("id", SOMEBODY.subject_id) | SOMEBODY.patterns_of_rows()
    patterns = {name: one for name, one in patterns.items() if not name.startswith("labels")}  # all people share these
    found = _found(tmp_path, b"--boundary\r\n\r\n" + content + b"\r\n--boundary--\r\n", patterns)
    assert any(name.startswith("id") for name in found)
    assert any(name.startswith("row") for name in found)
    assert not _found(tmp_path, UPLOADS[kind](person.among_others(person.new())), patterns)


def test_file_names_are_searched(tmp_path: Path) -> None:
    """The person's id is found in the name of a file."""
    (tmp_path / SOMEBODY.note).touch()
    assert search.folders([tmp_path], Finder(forms.of_text("note", SOMEBODY.note)))


@pytest.mark.skipif(sys.platform != "linux", reason="what is open is found by /proc")
def test_deleted_open_files_are_searched(tmp_path: Path) -> None:
    """Content is found in a file that a process has deleted but still holds open."""
    finder = Finder(forms.of_text("note", SOMEBODY.note))
    with tempfile.TemporaryFile(dir=tmp_path) as file:
        file.write(SOMEBODY.note.encode())
        file.flush()
        assert not search.folders([tmp_path], finder)
        assert search.held_open(os.getpid(), finder)


def test_compressed_redis_text_is_found(tmp_path: Path) -> None:
    """A text that a compressed string in a Redis dump contains only as back references is found once the string is
    unpacked."""
    packed = bytes.fromhex("02414243e00300")  # ABC, then 12 bytes of what was three... before
    dump = b"REDIS0009\xfa" + b"\xc3" + bytes([len(packed) + 0]) + bytes([15]) + packed + b"\xff"
    assert (b"ABC" + b"CCCCCCCCCCCC") in [inside for _, inside in unpacked(dump)]


def test_unrelated_data_has_no_findings(tmp_path: Path) -> None:
    """The search has no findings in other people's data, in noise or in similar data."""
    finder = Finder(SOMEBODY.patterns())
    for content in (os.urandom(2**22), person.among_others(person.new()).csv(), bytes(2**20), *SURROUNDINGS):
        (tmp_path / "file").write_bytes(content)
        assert search.folders([tmp_path], finder) == {}


def test_short_patterns_are_refused() -> None:
    """Patterns so short that they would be found anywhere are refused."""
    with pytest.raises(ValueError, match="7 bytes or more"):
        Finder({"short": b"abc"})


def test_every_position_is_searched() -> None:
    """A pattern is found at every position, even at or across the edges of the searched blocks."""
    pattern = secrets.token_bytes(16)
    for at in (0, 1, 2**22 - 17, 2**22 - 8, 2**22 - 2, 2**22 - 1, 2**22, 2**22 + 3):
        content = bytes(at) + pattern + bytes(11)
        assert list(Finder({"it": pattern}).places(content)) == [("it", at)]
    assert Finder({"it": pattern}).found(pattern * 3) == {"it": 3}


def test_a_missing_folder_is_not_clean(tmp_path: Path) -> None:
    """Searching a folder that does not exist raises an error instead of finding nothing in it."""
    with pytest.raises(AssertionError, match="moved"):
        search.folders([tmp_path / "moved"], Finder(SOMEBODY.patterns()))
