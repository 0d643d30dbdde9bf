"""Upload readers, which read files piece by piece into batches; errors name a row's position.

Every file is treated as hostile. A fault raises a problem whose text never repeats a value from the file, and declared
sizes are checked before memory is allocated. "Line" means a line of a CSV file or, for other formats, the number of a
row, counted from 1.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from app.rows import formats
from lethe import sockets
from lethe.contract.fields import nearest
from lethe.contract.problems import DatasetUnusable, FieldError, InputInvalid, RowInvalid, SchemaInvalid
from lethe.encoding.columns import AS_CSV, MAX_FAULTS, Faults, check_csv, is_name, refuse
from lethe.encoding.rows import Schema
from lethe.encoding.targets import TargetColumn

BATCH_CHARS = MAX_RECORD_LENGTH = 4 * 2**20  # characters
_PIECE = 2**20  # bytes
_UNDECLARED = "is not declared in the schema"
# The error handler `surrogateescape` decodes invalid bytes to lone surrogates.
_NOT_UTF8 = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReader:
    """Reader of one kind of file. `table` reads tables whose columns a schema declares; `vectors`, if not None, reads
    vectors with a target or a number of classes. Both may spool to a folder, and limit the bytes they unpack."""

    table: Callable[[io.RawIOBase, Schema, Path, int], Iterator[formats.Batch]]
    vectors: Callable[[io.RawIOBase, Path, int, TargetColumn | int], Iterator[formats.Batch]] | None = None


def _readers() -> dict[str, FileReader]:
    """Return the file readers that features provide (extension socket `READERS`), keyed by kind of file."""
    return dict(sockets.plugs("app.features", "readers", "READERS"))


def kind_of(filename: str) -> formats.Kind:
    kind = Path(filename).suffix.lower().removeprefix(".")
    if kind not in {"csv", *_readers()}:
        raise InputInvalid.file_name([FieldError("file", "expected a name that ends in .csv, .parquet or .npz")])
    return cast("formats.Kind", kind)


def read(
    file: io.RawIOBase,
    *,
    kind: formats.Kind,
    schema: Schema | None,
    classes: Sequence[str] = (),
    target: TargetColumn | None = None,
    folder: Path,
    max_bytes: int = formats.MAX_BYTES,
    count_rows: bool = False,
) -> Iterator[formats.Batch]:
    """Yield batches of at most 8192 rows, and close the file after the last batch. If this raises, discard the batches.

    An npz file without a schema needs the `classes` of its integer labels or its `target`. An array in column order is
    spooled in `folder`. With `count_rows`, a csv file is read twice, so that its number of rows is known before the
    first batch.

    Raises `UploadTooLarge` if the unpacked file or its encoded rows exceed `max_bytes`.
    """
    if schema is None:
        reader = _readers().get(kind)
        if reader is None or reader.vectors is None:
            raise SchemaInvalid.missing([FieldError("schema", f"expected one for {kind}")], kind=kind)
        return _bounded(reader.vectors(file, folder, max_bytes, target or len(classes)), max_bytes)
    if kind == "csv":
        return _bounded(_read_csv(file, schema, count_rows=count_rows), max_bytes)
    return _bounded(_readers()[kind].table(file, schema, folder, max_bytes), max_bytes)


def check_learnable(class_counts: Sequence[int], classes: Sequence[object]) -> None:
    """Raise `DatasetUnusable` unless there are two or more classes and each occurs in a row of nonzero weight."""
    absent = [name for count, name in zip(class_counts, classes, strict=True) if count == 0]
    if len(absent) == len(classes):
        raise DatasetUnusable("There are no rows, or all have the weight 0.")
    if len(classes) - len(absent) < 2:
        raise DatasetUnusable("All rows of weight above 0 have the same label; two classes or more are needed.")
    refuse(DatasetUnusable, [FieldError(f"class {name}", "never occurs in a row of weight above 0") for name in absent])


def _bounded(batches: Iterator[formats.Batch], max_bytes: int) -> Iterator[formats.Batch]:
    num_rows = 0
    for batch in batches:
        num_rows += len(batch.labels)
        formats.check_size(formats.encoded_bytes(num_rows, batch.features.shape[1] - 1), max_bytes)
        yield batch


def check_columns(names: Sequence[str], schema: Schema, place: str = "") -> None:
    """Raise `SchemaInvalid` unless the file has exactly the columns of the schema.

    Undeclared columns are named by position, and by name only if the first line is certainly a header: any other line
    may be a record with personal data.
    """
    present = set(names)
    missing = [name for name in schema.declared if name not in present]
    faults = [FieldError(f"{place}column {name}", "is missing") for name in missing]
    declared, earlier = set(schema.declared), set[str]()
    is_header = 2 * len(missing) < len(declared)
    for position, name in enumerate(names, start=1):
        if name not in declared:
            faults.append(
                FieldError(f"{place}column {position}", _undeclared(name, missing) if is_header else _UNDECLARED)
            )
        elif name in earlier:
            faults.append(FieldError(f"{place}column {position}", "has the name of an earlier column"))
        earlier.add(name)
        if len(faults) >= MAX_FAULTS:
            break
    refuse(SchemaInvalid, faults)


def _undeclared(name: str, missing: Sequence[str]) -> str:
    if not is_name(name) or len(name) > formats.MAX_SHOWN_LENGTH:
        return _UNDECLARED
    similar = nearest(name, missing)
    advice = f"did you mean {similar}?" if similar else 'declare it, with {"role": "ignored"} if nobody should read it'
    return f"{name!r} {_UNDECLARED}; {advice}"


# --- csv -------------------------------------------------------------------------------------------------------------


def _count_csv(file: io.RawIOBase) -> int:
    """Return the number of records of a csv file including the header, and rewind the file. Raises `RowInvalid`."""
    stream = _opened_csv(file)
    num_records = sum(1 for _ in _records(_Lines(stream)))
    cast("io.BufferedReader", stream.detach()).detach()
    file.seek(0)
    return num_records


def _opened_csv(file: io.RawIOBase) -> io.TextIOWrapper:
    """Open a csv file, decoding invalid bytes to lone surrogates. Raises `InputInvalid` for other kinds of files."""
    pieces = io.BufferedReader(file, _PIECE)
    check_csv(pieces.peek(), "file")
    return io.TextIOWrapper(pieces, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _read_csv(file: io.RawIOBase, schema: Schema, *, count_rows: bool) -> Iterator[formats.Batch]:
    num_rows = _count_csv(file) - 1 if count_rows else None
    with _opened_csv(file) as stream:
        lines_read = _Lines(stream)
        records = _records(lines_read)
        line, header = next(records, (1, []))
        check_columns(header, schema, f"line {line}, ")
        most = formats.batch_rows(len(header) + schema.num_held)
        while rows := _next_records(records, lines_read, most):
            lines = [line for line, _ in rows]
            faults = Faults.in_file(lines)
            faults.mark("", [len(fields) != len(header) for _, fields in rows], f"expected {len(header)} fields")
            faults.refuse()
            columns = dict(zip(header, zip(*(fields for _, fields in rows), strict=True), strict=True))
            yield formats.of_schema(schema.encode_labelled(columns, lines), lines, num_in_file=num_rows)


def _next_records(records: Iterator[tuple[int, list[str]]], lines: "_Lines", most: int) -> list[tuple[int, list[str]]]:
    """Return the next batch: at most `most` records, totalling about BATCH_CHARS characters."""
    rows: list[tuple[int, list[str]]] = []
    max_chars = lines.num_chars + BATCH_CHARS
    while len(rows) < most and lines.num_chars < max_chars and (record := next(records, None)):
        rows.append(record)
    return rows


def _records(lines: "_Lines") -> Iterator[tuple[int, list[str]]]:
    """Yield the records of a csv file, each with the line on which it starts. Blank lines are skipped."""
    reader = csv.reader(lines, strict=True)
    line = 1
    try:
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1
            lines.room = MAX_RECORD_LENGTH
    except csv.Error:
        refuse(RowInvalid, [FieldError(f"line {line}", "expected well-quoted fields of moderate length")])
    except UnicodeError:
        refuse(RowInvalid, [FieldError(f"line {line}", f"expected UTF-8 text; {AS_CSV}")])


class _Lines:
    """Lines of a csv file. `room` is the number of characters left for the current record, `num_chars` the number read
    so far. Raises `csv.Error` if a record is too long, `UnicodeError` if a line is not UTF-8."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.room = MAX_RECORD_LENGTH
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
