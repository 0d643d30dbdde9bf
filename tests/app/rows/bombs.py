"""Files that unpack to far more than their size, and a process that reads one: `python -m ... NAME PATH`.

The process may use one gibibyte more than it has. It prints the code of the refusal, or `read`."""

import io
import resource
import shutil
import struct
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.rows import formats, ingest
from app.vault import store
from lethe.contract.problems import Problem
from lethe.encoding.schema import parse_schema

WORK = {"kind": "categorical", "values": ["state", "private"]}
SCHEMA: dict[str, Any] = {
    "columns": {
        "work": WORK,
        "income": {"role": "label", "values": ["low", "high"]},
        "person": {"role": "subject"},
        "note": {"role": "ignored"},
    }
}
HEADER = b"person,work,income,note\n"
ROW = b"ann,state,low,"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bomb:
    """A hostile file, with how to write it, how it is read, and the expected error."""

    write: Callable[[Path], None]
    kind: formats.Kind
    code: str
    values: int = 2  # number of values that the schema lists for `work`
    max_bytes: int = formats.MAX_BYTES

    def schema(self) -> dict[str, Any]:
        work = WORK | {"values": ["state", *map(str, range(1, self.values))]}
        return {"columns": SCHEMA["columns"] | {"work": work}}


# --- csv and npz -----------------------------------------------------------------------------------------------------


def _csv(part: bytes, times: int, *, start: bytes = b"") -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(HEADER + start + part * times)

    return write


def _npz(*, method: int = zipfile.ZIP_DEFLATED, **members: tuple[bytes, int]) -> Callable[[Path], None]:
    """Write npz members that start with the given bytes, followed by the given number of zeros."""

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", method, compresslevel=1) as archive:
            for name, (start, zeros) in members.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    member.write(start)
                    for left in range(zeros, 0, -(2**24)):
                        member.write(bytes(min(left, 2**24)))

    return write


def _header(descr: str, shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def _many_members(path: Path) -> None:
    """Write a zip file with two million empty members."""
    entry = b"PK\x01\x02" + bytes(24) + struct.pack("<H", 1) + bytes(16) + b"x"
    content = entry * 2_000_000
    path.write_bytes(content + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65535, 65535, len(content), 0, 0))


# --- parquet ---------------------------------------------------------------------------------------------------------


def varint(number: int, *, length: int = 1) -> bytes:
    """Return a zigzag varint in Thrift's compact protocol, padded to `length` bytes."""
    left = (number << 1) ^ (number >> 63)
    digits = []
    while left or len(digits) < length:
        digits.append(left & 127 | 128)
        left >>= 7
    return bytes([*digits[:-1], digits[-1] & 127])


def with_footer(content: bytes, old: bytes, new: bytes) -> bytes:
    """Return the Parquet file with every occurrence of `old` in its footer replaced."""
    length = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - length : -8]
    assert old in footer
    footer = footer.replace(old, new)
    return content[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1"


def with_num_rows(content: bytes, num_rows: int) -> bytes:
    """Return the Parquet file, whose two rows are in one group, with a different row count in its footer."""
    return with_footer(content, b"\x16" + varint(2) + b"\x19\x1c", b"\x16" + varint(num_rows) + b"\x19\x1c")


def _table(path: Path, options: dict[str, Any], **replaced: Any) -> None:
    count = len(next(iter(replaced.values())))
    plain = {"person": ["ann"] * count, "work": ["state"] * count, "income": ["low"] * count, "note": [""] * count}
    pq.write_table(pa.table(plain | replaced), path, compression="zstd", write_statistics=False, **options)


def _one_text_for_all(path: Path) -> None:
    """Write sixteen thousand rows that all share one text of a megabyte."""
    shared = pa.DictionaryArray.from_arrays(np.zeros(16_384, "<i4"), ["x" * 2**20])
    _table(path, {"dictionary_pagesize_limit": 2**22}, work=shared)


def _prefixes(path: Path) -> None:
    """Write texts of one megabyte each, encoded as prefixes of the preceding text."""
    options = {"use_dictionary": False, "column_encoding": {"work": "DELTA_BYTE_ARRAY"}}
    _table(path, options, work=["x" * 2**20] * 1200)


def _lying_footer(path: Path) -> None:
    """Write a gigabyte of pages with a footer that claims they are small."""
    _table(path, {"use_dictionary": False}, work=["x" * 2**29] * 2)
    group = pq.read_metadata(path).row_group(0)
    content = path.read_bytes()
    for size in {group.total_byte_size, group.column(1).total_uncompressed_size}:
        old = varint(size)
        content = with_footer(content, old, varint(100, length=len(old)))
    path.write_bytes(content)


def _claimed_chunks(path: Path) -> None:
    """Write a footer that lists a million column chunks in three bytes each."""
    name = b"\x18\x01a"
    schema = b"\x2c\x48\x01r\x15" + varint(1) + b"\x00" + b"\x15" + varint(1) + b"\x25\x00" + name + b"\x00"
    chunks = b"\x19\xfc\xc0\x84\x3d" + b"\x26\x00\x00" * 1_000_000  # 1,000,000 as a varint
    group = chunks + b"\x16\x00\x16\x00\x00"
    footer = b"\x15" + varint(1) + b"\x19" + schema + b"\x16\x00\x19\x1c" + group + b"\x00"
    path.write_bytes(b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1")


MIB = 2**20
BOMBS: dict[str, Bomb] = {
    "a field of 100 MB": Bomb(write=_csv(b"x", 100_000_000, start=ROW), kind="csv", code="row_invalid"),
    "a record of 100 million fields": Bomb(write=_csv(b",", 100_000_000), kind="csv", code="row_invalid"),
    "a record of 20 million lines": Bomb(write=_csv(b'"\n",', 20_000_000), kind="csv", code="row_invalid"),
    "long notes of wide characters": Bomb(
        write=_csv(ROW + "\U0001f600".encode() + b"x" * 100_000 + b"\n", 1000), kind="csv", code="read"
    ),
    "rows that become wide": Bomb(
        write=_csv(ROW + b"\n", 20_000), kind="csv", code="upload_too_large", values=60_000, max_bytes=128 * MIB
    ),
    "rows without end": Bomb(
        write=_csv(ROW + b"\n", 2_000_000), kind="csv", code="upload_too_large", max_bytes=128 * MIB
    ),
    "a gigabyte of zeros": Bomb(
        write=_npz(
            x=(_header("<f8", (160_000, 1024)), 160_000 * 8192),
            y=(_header("<i8", (160_000,)), 160_000 * 8),
            subject=(_header("<U1", (160_000,)), 160_000 * 4),
        ),
        kind="npz",
        code="row_invalid",  # after unpacking, because the subjects are empty
    ),
    "zeros that are compressed better": Bomb(
        write=_npz(method=zipfile.ZIP_BZIP2, x=(b"", 1_300_000_000), y=(b"", 1), subject=(b"", 1)),
        kind="npz",
        code="input_invalid",
    ),
    "an array header of a gigabyte": Bomb(
        write=_npz(x=(b"\x93NUMPY\x02\x00\x00\x00\x00\x40", 2**30), y=(b"", 1), subject=(b"", 1)),
        kind="npz",
        code="input_invalid",
    ),
    "forty million people": Bomb(
        write=_npz(
            x=(_header("<f2", (40_000_000, 1)), 80_000_000),
            y=(_header("|i1", (40_000_000,)), 40_000_000),
            subject=(_header("<U1", (40_000_000,)), 160_000_000),
        ),
        kind="npz",
        code="upload_too_large",
    ),
    "two million members": Bomb(write=_many_members, kind="npz", code="input_invalid"),
    "one text for all rows": Bomb(write=_one_text_for_all, kind="parquet", code="row_invalid"),
    "texts that share their beginning": Bomb(write=_prefixes, kind="parquet", code="input_invalid"),
    "pages that the footer belies": Bomb(
        write=_lying_footer, kind="parquet", code="upload_too_large", max_bytes=512 * MIB
    ),
    "a million chunks": Bomb(write=_claimed_chunks, kind="parquet", code="input_invalid"),
}


def _read(bomb: Bomb, path: Path) -> str:
    schema = None if bomb.kind == "npz" else parse_schema(bomb.schema())
    taken = int(Path("/proc/self/status").read_text().split("VmData:")[1].split()[0]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (taken + 2**30, taken + 2**30))
    try:
        with path.open("rb") as file, store.create(path.parent) as spooled:
            shutil.copyfileobj(file, spooled)
            spooled.seek(0)
            limits: dict[str, Any] = {"folder": path.parent, "max_bytes": bomb.max_bytes}
            for _ in ingest.read(spooled, kind=bomb.kind, schema=schema, classes=["low", "high"], **limits):
                pass
    except Problem as error:
        return "out of memory" if isinstance(error.__context__, MemoryError) else error.code
    return "read"


if __name__ == "__main__":
    print(_read(BOMBS[sys.argv[1]], Path(sys.argv[2])))
