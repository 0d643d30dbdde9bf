"""Reader for parquet files. It reads the footer and page headers itself before Arrow unpacks anything.

Every file is treated as hostile, and declared sizes are checked before memory is allocated.
"""

import io
import struct
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from app.rows import formats, ingest
from lethe.contract.problems import FieldError, InputInvalid, RowInvalid, SchemaInvalid, UploadTooLarge
from lethe.encoding.columns import Vector, refuse
from lethe.encoding.rows import Schema

_PIECE = 2**20
"""Maximum number of bytes per read."""


def read_parquet(file: io.RawIOBase, schema: Schema, _folder: Path, max_bytes: int) -> Iterator[formats.Batch]:
    with io.BufferedReader(file, _PIECE) as stream:
        metadata, arrow = _checked_metadata(stream, schema, max_bytes)
        # Dictionaries store repeated texts once: if they were expanded, a small file could exhaust the memory.
        texts = [name for name in schema.used if _is_text(arrow.field(name).type)]
        with formats.damage_refused("parquet"):
            parquet = pq.ParquetFile(
                stream, metadata=metadata, read_dictionary=texts, pre_buffer=False, buffer_size=_PIECE
            )
        most = formats.batch_rows(len(schema.used) + schema.num_held)
        batches = parquet.iter_batches(batch_size=most, columns=list(schema.used), use_threads=False)
        line = 1
        while True:
            with formats.damage_refused("parquet"):
                batch = next(batches, None)
                if batch is None:
                    break
                batch.validate(full=True)
                columns = {name: batch.column(name) for name in schema.used}
            lines = range(line, line + batch.num_rows)
            encoded = schema.encode_labelled(columns, lines)
            yield formats.of_schema(encoded, lines, num_in_file=metadata.num_rows)
            line += batch.num_rows


def _checked_metadata(stream: IO[bytes], schema: Schema, max_bytes: int) -> tuple[Any, Any]:
    """Return the metadata and the Arrow schema of a parquet file, checked against its pages and `schema`."""
    with formats.damage_refused("parquet"):
        directory = footer(stream)
        if directory is None:
            raise InputInvalid("The parquet file is encrypted.", [FieldError("file", "expected plain parquet")])
        parquet = pq.ParquetFile(stream)
        metadata, arrow = parquet.metadata, parquet.schema_arrow
    formats.check_size(formats.encoded_bytes(metadata.num_rows, schema.num_features), max_bytes)
    ingest.check_columns(arrow.names, schema)
    vectors = {column.name: column for column in schema.features if isinstance(column, Vector)}
    faults = (_type_fault(name, arrow.field(name).type, schema, vectors) for name in schema.used)
    refuse(SchemaInvalid, [fault for fault in faults if fault])
    with formats.damage_refused("parquet"):
        chosen = _chosen_columns(metadata, schema)
        lengths = {place: vectors[name].length if name in vectors else 1 for place, name in chosen.items()}
        num_bytes = unpacked_bytes(stream, directory, lengths)
    formats.check_size(num_bytes, max_bytes)
    return metadata, arrow


def _chosen_columns(metadata: Any, schema: Schema) -> dict[int, str]:
    """Return the columns that Arrow will read, keyed by position. Arrow also reads `a.b` if `a` is requested."""
    used = {name: {name} for name in schema.used} | {
        column.name: {f"{column.name}.list.{item}" for item in ("element", "item")}
        for column in schema.features
        if isinstance(column, Vector)
    }
    paths = [metadata.schema.column(position).path for position in range(metadata.num_columns)]
    chosen = {}
    unexpected = []
    for position, path in enumerate(paths):
        for name in used.keys() & set(accumulate(path.split("."), "{}.{}".format)):
            chosen[position] = name
            if path not in used[name]:
                unexpected.append(FieldError(f"column {position + 1}", "expected no dot"))
    refuse(SchemaInvalid, unexpected)
    if len(chosen) != len(used):
        raise InputInvalid("The parquet file has two columns of one name.")
    return chosen


def _type_fault(name: str, kind: Any, schema: Schema, vectors: Mapping[str, Vector]) -> FieldError | None:
    """Return the error in a column's type; None if the type is valid."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    # The names of fields in a nested type are left out.
    actual = f"; found {str(kind).partition('<')[0]}"
    if name in vectors:
        lists = ("list", "large_list", "fixed_size_list")
        is_list = any(getattr(pa.types, f"is_{test}")(kind) for test in lists)
        if not is_list or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
            return FieldError(f"column {name}", f"expected lists of numbers{actual}")
    elif name in schema.times:
        if not (_is_text(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            return FieldError(f"column {name}", f"expected dates, times or text{actual}")
    elif not _is_scalar(kind):
        return FieldError(f"column {name}", f"expected text or numbers{actual}")
    return None


def _is_scalar(kind: Any) -> bool:
    tests = ("integer", "floating", "decimal", "boolean", "null")
    return _is_text(kind) or any(getattr(pa.types, f"is_{test}")(kind) for test in tests)


def _is_text(kind: Any) -> bool:
    return any(getattr(pa.types, f"is_{test}")(kind) for test in ("string", "large_string", "string_view"))


MAX_FOOTER_BYTES = 4 * 2**20
# A page header may contain the minimum and maximum values.
MAX_HEADER_BYTES = 64 * 1024
# A page takes as long to read as hundreds of values, so beyond MAX_SMALL_PAGES each must hold as many.
MAX_PAGES = 200_000
MAX_SMALL_PAGES = 10_000
_PAGE = 256
# Limit per footer, because a struct of three bytes takes hundreds of bytes in memory.
MAX_STRUCTS = 500_000
# Bytes of the footer's length and the magic number.
_TAIL = 8
_MAX_DEPTH = 8
# Physical type of values whose length is in the schema.
_FIXED = 7
# Plain, dictionary, run-length, bit-packed, delta of integers, split floats. The two delta encodings of text are
# excluded, because their pages may represent far more than they unpack to.
_ENCODINGS = {0, 2, 3, 4, 5, 8, 9}

Value: TypeAlias = "int | list[Value] | Struct"
Struct: TypeAlias = "dict[int, Value]"


def footer(file: IO[bytes]) -> "Struct | None":
    """Return the footer of a parquet file; None if it is encrypted. Raises `UploadTooLarge` if it is too long."""
    if (size := file.seek(0, io.SEEK_END)) < _TAIL:
        raise EOFError
    file.seek(size - _TAIL)
    length, magic = struct.unpack("<I4s", file.read(_TAIL))
    if magic == b"PARE":
        return None
    if magic != b"PAR1" or length + _TAIL > size:
        raise ValueError("Expected a footer")
    if length > MAX_FOOTER_BYTES:
        raise UploadTooLarge.footer(length=length, max_bytes=MAX_FOOTER_BYTES)
    file.seek(size - _TAIL - length)
    fields = _Reader(file.read(length), MAX_STRUCTS).struct()
    # Field 8 is the encryption algorithm of a file with encrypted columns.
    return None if 8 in fields else fields


def unpacked_bytes(file: IO[bytes], footer: Struct, columns: Mapping[int, int]) -> int:
    """Return the total unpacked size of the pages of `columns`, and check the pages against the footer. `columns` maps
    the position of each column to its number of values per row."""
    total = stored = rows = num_pages = num_values = 0
    size = file.seek(0, io.SEEK_END)
    for group in _list(footer[4]):
        rows += (num_rows := _int(group, 3))
        chunks = _list(_struct(group)[1])
        for column, length in columns.items():
            chunk = _struct(chunks[column])
            metadata = _struct(chunk[3])
            stored += _int(metadata, 7)
            if length > 1 and _int(metadata, 5) != num_rows * length:
                expected = f"expected {length} values in each row, none of them missing"
                refuse(RowInvalid, [FieldError(f"column {column + 1}", expected)])
            if chunk.get(1) or _int(metadata, 5) != num_rows * length or stored > size:
                raise ValueError("Expected chunks of this file, as many values for each row, none of them shared")
            num_values += _int(metadata, 5)
            for num_bytes in _pages(file, metadata):
                total += num_bytes
                num_pages += 1
                max_pages = min(MAX_SMALL_PAGES + (total + num_values) // _PAGE, MAX_PAGES)
                if num_pages > max_pages:
                    fault = FieldError("file", f"expected pages of {_PAGE} values and more")
                    raise InputInvalid.parquet_pages([fault], max_pages=max_pages)
    if rows != _int(footer, 3):
        raise ValueError("Expected as many rows as the row groups have")
    return total


def _pages(file: IO[bytes], chunk: Struct) -> Iterator[int]:
    """Yield the unpacked size of each page of a column chunk."""
    start = _int(chunk, 9)
    if dictionary := chunk.get(11) and _int(chunk, 11):
        start = min(start, dictionary)
    end = start + _int(chunk, 7)
    # Minimum number of bytes of a value in a dictionary.
    min_bytes = 1 if _int(chunk, 1) == _FIXED else 4
    num_values = 0
    while start < end:
        file.seek(start)
        reader = _Reader(file.read(MAX_HEADER_BYTES), 100)
        page = reader.struct()
        num_bytes = _int32(page, 2)
        start += reader.position + _int32(page, 3)
        match _int(page, 1):
            case 0:
                num_values += _values(page[5], encoding=2)
            case 2 if min_bytes * _int(page[7], 1) > num_bytes:
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
        fault = FieldError("file", "expected plain or dictionary encoding, and no delta encoding of text")
        raise InputInvalid.parquet_encoding([fault])
    return _int32(header, 1)


def _int(value: Value, field: int) -> int:
    number = _struct(value)[field]
    if not isinstance(number, int) or not 0 <= number < 2**63:
        raise ValueError("Expected a number that is not negative")
    return number


def _int32(value: Value, field: int) -> int:
    if (number := _int(value, field)) >= 2**31:
        raise ValueError("Expected a 32-bit number")
    return number


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
    """Reader of consecutive structs; text values are represented by their length only."""

    def __init__(self, data: bytes, max_structs: int) -> None:
        self._data = data
        self._structs_left = max_structs
        self.position = 0

    def struct(self, depth: int = 0) -> Struct:
        """Return a struct's values, keyed by field. A repeated field is an error, because readers disagree on its
        meaning."""
        self._structs_left -= 1
        if self._structs_left < 0 or depth > _MAX_DEPTH:
            raise ValueError("Expected fewer structs")
        fields: Struct = {}
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._zigzag()
            if field in fields:
                raise ValueError("Expected each field once")
            kind = head & 15
            # True and false are encoded as kinds 1 and 2.
            fields[field] = kind if kind in (1, 2) else self._value(kind, depth)
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


READERS: tuple[tuple[str, ingest.FileReader], ...] = (("parquet", ingest.FileReader(table=read_parquet)),)
