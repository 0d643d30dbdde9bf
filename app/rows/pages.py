"""The unpacked size of a parquet file's pages, added up before Arrow gives memory to them.

The footer of a parquet file tells sizes, and nothing holds it to them: Arrow gives each page the memory that the page's
own header asks for. So the headers are read here first, by the format's definition (parquet.thrift, compact protocol),
and the footer too: asked about a chunk that is not right, pyarrow ends the process. What is not understood is an error,
of whatever class; the caller refuses the file for any.
"""

import io
import struct
from collections.abc import Iterator, Mapping
from typing import IO, TypeAlias

from lethe.contract.problems import UploadTooLarge

LONGEST_FOOTER = 4 * 2**20
LONGEST_HEADER = 64 * 1024  # of a page; it may hold the least and the greatest value
MAX_PAGES = 1_000_000
MAX_STRUCTS = 500_000  # in a footer: a struct of three bytes takes hundreds in memory
_TAIL = 8  # the footer's length and the magic
_DEEPEST = 8
_FIXED = 7  # the physical type of values whose length the schema tells
# Plain, dictionary, run-length, bit-packed, delta of integers, split floats. Not the two delta encodings of text: their
# pages may stand for far more than they unpack to.
_ENCODINGS = {0, 2, 3, 4, 5, 8, 9}

Value: TypeAlias = "int | list[Value] | Struct"
Struct: TypeAlias = "dict[int, Value]"


def footer(file: IO[bytes]) -> "Struct | None":
    """Read the footer; None when it is encrypted. Raises `UploadTooLarge` when it is too long."""
    if (size := file.seek(0, io.SEEK_END)) < _TAIL:
        raise EOFError
    file.seek(size - _TAIL)
    length, magic = struct.unpack("<I4s", file.read(_TAIL))
    if magic == b"PARE":
        return None
    if magic != b"PAR1" or length + _TAIL > size:
        raise ValueError("Expected a footer")
    if length > LONGEST_FOOTER:
        raise UploadTooLarge(f"The footer has {length} bytes; at most {LONGEST_FOOTER} are accepted.")
    file.seek(size - _TAIL - length)
    found = _Reader(file.read(length), MAX_STRUCTS).struct()
    return None if 8 in found else found  # some columns of it are encrypted


def unpacked_bytes(file: IO[bytes], footer: Struct, columns: Mapping[int, int]) -> int:
    """Add up what the pages of these columns unpack to, once they are what the footer says. `columns`: by position, and
    how many values each has for every row."""
    total = stored = rows = num_pages = 0
    size = file.seek(0, io.SEEK_END)
    for group in _list(footer[4]):
        rows += (num_rows := _int(group, 3))
        chunks = _list(_struct(group)[1])
        for column, length in columns.items():
            chunk = _struct(chunks[column])
            about = _struct(chunk[3])
            stored += _int(about, 7)
            if chunk.get(1) or _int(about, 5) != num_rows * length or stored > size:
                raise ValueError("Expected chunks of this file, as many values for each row, none of them shared")
            for num_bytes in _pages(file, about):
                total += num_bytes
                num_pages += 1
                if num_pages > MAX_PAGES:
                    raise ValueError(f"Expected {num_pages=} <= {MAX_PAGES}")
    if rows != _int(footer, 3):
        raise ValueError("Expected as many rows as the row groups have")
    return total


def _pages(file: IO[bytes], chunk: Struct) -> Iterator[int]:
    """The unpacked size of each page of the chunk."""
    start = _int(chunk, 9)
    if dictionary := chunk.get(11) and _int(chunk, 11):
        start = min(start, dictionary)
    end = start + _int(chunk, 7)
    shortest = 1 if _int(chunk, 1) == _FIXED else 4  # bytes of a value in a dictionary
    num_values = 0
    while start < end:
        file.seek(start)
        reader = _Reader(file.read(LONGEST_HEADER), 100)
        page = reader.struct()
        num_bytes = _int32(page, 2)
        start += reader.position + _int32(page, 3)
        match _int(page, 1):
            case 0:
                num_values += _values(page[5], encoding=2)
            case 2 if shortest * _int(page[7], 1) > num_bytes:
                raise ValueError("Expected a dictionary of as many values as it declares")
            case 2:
                pass
            case 3:
                num_values += _values(page[8], encoding=4)
            case _:
                raise ValueError("Expected pages of values")
        yield num_bytes
    if start != end or num_values != _int(chunk, 5):
        raise ValueError("Expected pages that fill the chunk and hold its values")


def _values(header: Value, *, encoding: int) -> int:
    if _int(header, encoding) not in _ENCODINGS:
        raise ValueError("Expected a plain or a dictionary encoding")
    return _int32(header, 1)


def _int(value: Value, field: int) -> int:
    found = _struct(value)[field]
    if not isinstance(found, int) or not 0 <= found < 2**63:
        raise ValueError("Expected a number that is not negative")
    return found


def _int32(value: Value, field: int) -> int:
    if (found := _int(value, field)) >= 2**31:
        raise ValueError("Expected a 32-bit number")
    return found


def _struct(value: Value) -> Struct:
    if not isinstance(value, dict):
        raise TypeError("Expected a struct")
    return value


def _list(value: Value) -> list[Value]:
    if not isinstance(value, list):
        raise TypeError("Expected a list")
    return value


# --- thrift, compact protocol ----------------------------------------------------------------------------------------


class _Reader:
    """Reads the structs in some bytes, from the first on; of texts only the length."""

    def __init__(self, data: bytes, max_structs: int) -> None:
        self._data = data
        self._structs_left = max_structs
        self.position = 0

    def struct(self, depth: int = 0) -> Struct:
        """By field. A field that is there twice might be read either way, and is an error."""
        self._structs_left -= 1
        if self._structs_left < 0 or depth > _DEEPEST:
            raise ValueError("Expected fewer structs")
        fields: Struct = {}
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._zigzag()
            if field in fields:
                raise ValueError("Expected each field once")
            kind = head & 15
            fields[field] = kind if kind in (1, 2) else self._value(kind, depth)  # true and false are kinds
        return fields

    def _value(self, kind: int, depth: int) -> Value:
        match kind:
            case 1 | 2 | 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._zigzag()
            case 7:
                return self._skipped(8)
            case 8:
                return self._skipped(self._varint())
            case 9 | 10:
                head = self._byte()
                length = head >> 4 if head >> 4 < 15 else self._varint()
                return [self._value(head & 15, depth) for _ in range(length)]
            case 12:
                return self.struct(depth + 1)
            case _:
                raise ValueError("Expected the types of parquet.thrift")

    def _byte(self) -> int:
        self.position += 1
        return self._data[self.position - 1]

    def _skipped(self, length: int) -> int:
        self.position += length
        if self.position > len(self._data):
            raise EOFError
        return length

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("Expected a 64-bit number")

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)
