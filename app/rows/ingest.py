"""Uploads become batches: csv, parquet and npz files are read piece by piece, and a bad row is named by its place.

A file is hostile until read. Whatever is wrong with it ends in a named condition whose text never repeats a value, and
what it declares about its size is checked before memory is given to it. A line is a line of the csv file; parquet and
npz have none, there it is the number of the row, from 1.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from app.rows import npz, pages
from app.rows.batches import (
    LONGEST_SHOWN,
    MAX_BYTES,
    Batch,
    Kind,
    batch_rows,
    check_size,
    damage_refused,
    encoded_bytes,
    of_schema,
)
from lethe.contract.problems import (
    DatasetUnusable,
    FieldError,
    InputInvalid,
    RowInvalid,
    SchemaInvalid,
)
from lethe.contract.spelling import nearest
from lethe.encoding.columns import Vector
from lethe.encoding.faults import MAX_FAULTS, Faults, refuse
from lethe.encoding.rows import Schema
from lethe.encoding.targets import Target
from lethe.encoding.values import is_name

BATCH_CHARS = 4 * 2**20  # of a csv file
LONGEST_RECORD = 4 * 2**20  # characters of a csv file
_PIECE = 2**20  # bytes of a file that are read at once
_UNDECLARED = "is not declared in the schema"
_NOT_UTF8 = re.compile("[\ud800-\udfff]")  # how the bytes that are none are read


def kind_of(filename: str) -> Kind:
    match Path(filename).suffix.lower():
        case ".csv":
            return "csv"
        case ".parquet":
            return "parquet"
        case ".npz":
            return "npz"
        case _:
            raise InputInvalid(
                "The file name must end in .csv, .parquet or .npz.",
                [FieldError("file", "expected a name that ends in .csv, .parquet or .npz")],
            )


def read(
    file: io.RawIOBase,
    *,
    kind: Kind,
    schema: Schema | None,
    classes: Sequence[str] = (),
    target: Target | None = None,
    folder: Path,
    max_bytes: int = MAX_BYTES,
    counted: bool = False,
) -> Iterator[Batch]:
    """Batches of at most 8192 rows; the file is closed after the last. Only what was read without an error to the very
    end may be kept. `classes`: what the labels of an npz file without a schema stand for, 0 for the first; `target`: of
    one whose y are numbers; `folder`: where an array that is stored column by column is spooled; `counted`: read a csv
    file twice, to know how many rows it has before the first batch.

    Raises `UploadTooLarge` when the file unpacks to more than `max_bytes`, or its encoded rows would take more.
    """
    if schema is None:
        if kind != "npz":
            raise SchemaInvalid(f"A {kind} file needs a schema.", [FieldError("schema", f"expected one for {kind}")])
        return _bounded(npz.read_vectors(file, folder, max_bytes, target or len(classes)), max_bytes)
    match kind:
        case "csv":
            return _bounded(_read_csv(file, schema, counted=counted), max_bytes)
        case "parquet":
            return _bounded(_read_parquet(file, schema, max_bytes), max_bytes)
        case "npz":
            return _bounded(npz.read_table(file, schema, folder, max_bytes), max_bytes)


def check_learnable(class_counts: Sequence[int], classes: Sequence[object]) -> None:
    """Refuse rows that teach no classifier: none at all, all of one class, or a class that never occurs."""
    absent = [name for count, name in zip(class_counts, classes, strict=True) if count == 0]
    if len(absent) == len(classes):
        raise DatasetUnusable("There are no rows.")
    if len(classes) - len(absent) < 2:
        raise DatasetUnusable("All rows have the same label; two classes or more are needed.")
    refuse(DatasetUnusable, [FieldError(f"class {name}", "never occurs") for name in absent])


def _bounded(batches: Iterator[Batch], max_bytes: int) -> Iterator[Batch]:
    num_rows = 0
    for batch in batches:
        num_rows += len(batch.labels)
        check_size(encoded_bytes(num_rows, batch.features.shape[1] - 1), max_bytes)
        yield batch


def _check_columns(names: Sequence[str], schema: Schema, place: str = "") -> None:
    """The file has the columns of the schema. Others are named by position, and by name in what is a header beyond
    doubt: what stands first may be a record."""
    found = set(names)
    missing = [name for name in schema.declared if name not in found]
    faults = [FieldError(f"{place}column {name}", "is missing") for name in missing]
    declared, seen = set(schema.declared), set[str]()
    is_header = 2 * len(missing) < len(declared)
    for position, name in enumerate(names, start=1):
        if name not in declared:
            faults.append(
                FieldError(f"{place}column {position}", _undeclared(name, missing) if is_header else _UNDECLARED)
            )
        elif name in seen:
            faults.append(FieldError(f"{place}column {position}", "has the name of an earlier column"))
        seen.add(name)
        if len(faults) >= MAX_FAULTS:
            break
    refuse(SchemaInvalid, faults)


def _undeclared(name: str, missing: Sequence[str]) -> str:
    if not is_name(name) or len(name) > LONGEST_SHOWN:
        return _UNDECLARED
    meant = nearest(name, missing)
    advice = f"did you mean {meant}?" if meant else 'declare it, with {"role": "ignored"} if nobody should read it'
    return f"{name!r} {_UNDECLARED}; {advice}"


# --- csv -------------------------------------------------------------------------------------------------------------


def _count_csv(file: io.RawIOBase) -> int:
    """The records of a csv file, which is at its beginning again. Raises `RowInvalid`."""
    pieces = io.BufferedReader(file, _PIECE)
    stream = io.TextIOWrapper(pieces, encoding="utf-8-sig", errors="surrogateescape", newline="")
    num_records = sum(1 for _ in _records(_Lines(stream)))
    stream.detach()
    pieces.detach()
    file.seek(0)
    return num_records


def _read_csv(file: io.RawIOBase, schema: Schema, *, counted: bool) -> Iterator[Batch]:
    num_rows = _count_csv(file) - 1 if counted else None
    pieces = io.BufferedReader(file, _PIECE)
    with io.TextIOWrapper(pieces, encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        lines_read = _Lines(stream)
        records = _records(lines_read)
        line, header = next(records, (1, []))
        _check_columns(header, schema, f"line {line}, ")
        most = batch_rows(len(header) + schema.num_held)
        while rows := _some(records, lines_read, most):
            lines = [line for line, _ in rows]
            faults = Faults.in_file(lines)
            faults.mark("", [len(fields) != len(header) for _, fields in rows], f"expected {len(header)} fields")
            faults.refuse()
            columns = dict(zip(header, zip(*(fields for _, fields in rows), strict=True), strict=True))
            yield of_schema(schema.encode_labelled(columns, lines), lines, num_in_file=num_rows)


def _some(records: Iterator[tuple[int, list[str]]], lines: "_Lines", most: int) -> list[tuple[int, list[str]]]:
    """The next records, as many as make a batch."""
    rows: list[tuple[int, list[str]]] = []
    enough = lines.num_chars + BATCH_CHARS
    while len(rows) < most and lines.num_chars < enough and (record := next(records, None)):
        rows.append(record)
    return rows


def _records(lines: "_Lines") -> Iterator[tuple[int, list[str]]]:
    """The records of a csv file, each with the line on which it starts; blank lines are none."""
    reader = csv.reader(lines, strict=True)
    line = 1
    try:
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1
            lines.room = LONGEST_RECORD
    except csv.Error:
        refuse(RowInvalid, [FieldError(f"line {line}", "expected well-quoted fields of moderate length")])
    except UnicodeError:
        refuse(RowInvalid, [FieldError(f"line {line}", "expected UTF-8 text")])


class _Lines:
    """The lines of a csv file, as long as those of one record fit into the room for it; `num_chars`: of all so far."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.room = LONGEST_RECORD  # characters
        self.num_chars = 0

    def __iter__(self) -> Iterator[str]:
        while line := self._stream.readline(self.room):
            self.room -= len(line)
            self.num_chars += len(line)
            if self.room == 0:
                raise csv.Error
            if not line.isascii() and _NOT_UTF8.search(line):
                raise UnicodeError
            yield line


# --- parquet ---------------------------------------------------------------------------------------------------------


def _read_parquet(file: io.RawIOBase, schema: Schema, max_bytes: int) -> Iterator[Batch]:
    with io.BufferedReader(file, _PIECE) as stream:
        metadata, arrow = _checked_metadata(stream, schema, max_bytes)
        # A text that occurs often is there once: written out for every row, a small file would fill any memory.
        texts = [name for name in schema.used if _is_text(arrow.field(name).type)]
        with damage_refused("parquet"):
            opened = pq.ParquetFile(
                stream, metadata=metadata, read_dictionary=texts, pre_buffer=False, buffer_size=_PIECE
            )
        most = batch_rows(len(schema.used) + schema.num_held)
        batches = opened.iter_batches(batch_size=most, columns=list(schema.used), use_threads=False)
        line = 1
        while True:
            with damage_refused("parquet"):
                batch = next(batches, None)
                if batch is None:
                    break
                batch.validate(full=True)
                columns = {name: batch.column(name) for name in schema.used}
            lines = range(line, line + batch.num_rows)
            encoded = schema.encode_labelled(columns, lines)
            yield of_schema(encoded, lines, num_in_file=metadata.num_rows)
            line += batch.num_rows


def _checked_metadata(stream: IO[bytes], schema: Schema, max_bytes: int) -> tuple[Any, Any]:
    """Read the file's metadata and columns, which must be what it says of itself and fit the schema."""
    with damage_refused("parquet"):
        footer = pages.footer(stream)
        if footer is None:
            raise InputInvalid("The parquet file is encrypted.", [FieldError("file", "expected plain parquet")])
        opened = pq.ParquetFile(stream)
        metadata, arrow = opened.metadata, opened.schema_arrow
    check_size(encoded_bytes(metadata.num_rows, schema.num_features), max_bytes)
    _check_columns(arrow.names, schema)
    vectors = {column.name: column for column in schema.features if isinstance(column, Vector)}
    found = (_of_type(name, arrow.field(name).type, schema, vectors) for name in schema.used)
    refuse(SchemaInvalid, [fault for fault in found if fault])
    with damage_refused("parquet"):
        chosen = _chosen_columns(metadata, schema)
        lengths = {place: vectors[name].length if name in vectors else 1 for place, name in chosen.items()}
        num_bytes = pages.unpacked_bytes(stream, footer, lengths)
    check_size(num_bytes, max_bytes)
    return metadata, arrow


def _chosen_columns(metadata: Any, schema: Schema) -> dict[int, str]:
    """The positions of the columns that are read. Arrow takes `a` for the columns `a` and `a.b`."""
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


def _of_type(name: str, kind: Any, schema: Schema, vectors: Mapping[str, Vector]) -> FieldError | None:
    """The fault in the type of a column, if there is one."""
    if name in vectors:
        lists = ("list", "large_list", "fixed_size_list")
        is_list = any(getattr(pa.types, f"is_{test}")(kind) for test in lists)
        if not is_list or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
            return FieldError(f"column {name}", "expected lists of numbers")
    elif name in schema.times:
        if not (_is_text(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            return FieldError(f"column {name}", "expected dates, times or text")
    elif not _is_scalar(kind):
        return FieldError(f"column {name}", "expected text or numbers")
    return None


def _is_scalar(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_scalar(kind.value_type)
    tests = ("integer", "floating", "decimal", "boolean", "null")
    return _is_text(kind) or any(getattr(pa.types, f"is_{test}")(kind) for test in tests)


def _is_text(kind: Any) -> bool:
    return any(getattr(pa.types, f"is_{test}")(kind) for test in ("string", "large_string", "string_view"))
