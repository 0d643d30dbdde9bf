"""Uploads become batches: csv, parquet and npz files are read piece by piece, and a bad row is named by its place.

A file is hostile until read. Whatever is wrong with it ends in a named condition whose text never repeats a value, and
what it declares about its size is checked before memory is given to it. A line is a line of the csv file; parquet and
npz have none, there it is the number of the row, from 1.
"""

import csv
import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from app.rows import arrays, encoding, pages
from app.rows.arrays import Declared
from app.rows.encoding import MAX_FEATURES, Features, Labelled, Labels, Schema
from app.rows.faults import MAX_FAULTS, Faults, refuse
from app.rows.values import LONGEST_NAME, is_name, is_subject
from app.spelling import expected, nearest
from lethe.contract.problems import (
    DatasetUnusable,
    FieldError,
    InputInvalid,
    Problem,
    RowInvalid,
    SchemaInvalid,
    UploadTooLarge,
)

Kind: TypeAlias = Literal["csv", "parquet", "npz"]

BATCH_ROWS = 8192
BATCH_VALUES = 2**21  # features, or fields of a csv file; fewer rows make a batch when they are wide
BATCH_CHARS = 4 * 2**20  # of a csv file
LONGEST_RECORD = 4 * 2**20  # characters of a csv file
MAX_BYTES = 4 * 2**30  # that a file unpacks to; and that its rows take, encoded
_ARRAYS = {
    "x": f"(n, d) floats, d from 1 to {MAX_FEATURES}",
    "y": "(n,) integers, each the place of its class in classes",
    "subject": f"(n,) strings of at most {LONGEST_NAME} characters",
}
SUBJECT_BYTES = 128  # what whose a row is takes, wherever that is
_PIECE = 2**20  # bytes of a file that are read at once
_UNDECLARED = "is not declared in the schema"
_LONGEST_SHOWN = 60  # characters of a column's name
_NOT_UTF8 = re.compile("[\ud800-\udfff]")  # how the bytes that are none are read


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Encoded rows, their labels and whose they are. `num_unknown`: in how many of them each feature column of the
    schema is missing or unknown."""

    features: Features  # (b, d + 1)
    labels: Labels  # (b,)
    subjects: list[str | None]
    num_unknown: npt.NDArray[np.int64] | None = None


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
    folder: Path,
    max_bytes: int = MAX_BYTES,
) -> Iterator[Batch]:
    """Batches of at most 8192 rows; the file is closed after the last. Only what was read without an error to the very
    end may be kept. `classes`: what the labels of an npz file stand for, 0 for the first; `folder`: where an array that
    is stored column by column is spooled.

    Raises `UploadTooLarge` when the file unpacks to more than `max_bytes`, or its encoded rows would take more.
    """
    if kind == "npz":
        if schema is not None:
            raise SchemaInvalid("An npz file takes no schema.", [FieldError("schema", "expected none for npz")])
        return _bounded(_read_npz(file, folder, max_bytes, len(classes)), max_bytes)
    if schema is None:
        raise SchemaInvalid(f"A {kind} file needs a schema.", [FieldError("schema", f"expected one for {kind}")])
    return _bounded(_read_csv(file, schema) if kind == "csv" else _read_parquet(file, schema, max_bytes), max_bytes)


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
        _check_size(_encoded_bytes(num_rows, batch.features.shape[1] - 1), max_bytes)
        yield batch


def _encoded_bytes(num_rows: int, num_features: int) -> int:
    return num_rows * (4 * (num_features + 1) + 4 + SUBJECT_BYTES)


def _batch_rows(num_values: int) -> int:
    """The rows of a batch when each has so many values."""
    return max(1, min(BATCH_ROWS, BATCH_VALUES // num_values))


def _of_schema(rows: Labelled) -> Batch:
    return Batch(features=rows.features, labels=rows.labels, subjects=rows.subjects, num_unknown=rows.num_unknown)


@contextmanager
def _damage_refused(kind: Kind) -> Iterator[None]:
    """Around a parser alone: whatever it raises, the file cannot be read. The cause is dropped: it may quote data."""
    try:
        yield
    except Problem:
        raise
    except Exception:  # noqa: BLE001 - nobody lists what three parsers raise on every hostile file
        raise InputInvalid(
            f"The file is damaged or is not a {kind} file.", [FieldError("file", f"expected a whole {kind} file")]
        ) from None


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
    if not is_name(name) or len(name) > _LONGEST_SHOWN:
        return _UNDECLARED
    meant = nearest(name, missing)
    advice = f"did you mean {meant}?" if meant else 'declare it, with {"role": "ignored"} if nobody should read it'
    return f"{name!r} {_UNDECLARED}; {advice}"


# --- csv -------------------------------------------------------------------------------------------------------------


def _read_csv(file: io.RawIOBase, schema: Schema) -> Iterator[Batch]:
    pieces = io.BufferedReader(file, _PIECE)
    with io.TextIOWrapper(pieces, encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        lines_read = _Lines(stream)
        records = _records(lines_read)
        line, header = next(records, (1, []))
        _check_columns(header, schema, f"line {line}, ")
        most = _batch_rows(len(header) + schema.num_features)
        while rows := _some(records, lines_read, most):
            lines = [line for line, _ in rows]
            faults = Faults.in_file(lines)
            faults.mark("", [len(fields) != len(header) for _, fields in rows], f"expected {len(header)} fields")
            faults.refuse()
            columns = dict(zip(header, zip(*(fields for _, fields in rows), strict=True), strict=True))
            yield _of_schema(schema.encode_labelled(columns, lines))


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
        with _damage_refused("parquet"):
            opened = pq.ParquetFile(
                stream, metadata=metadata, read_dictionary=texts, pre_buffer=False, buffer_size=_PIECE
            )
        most = _batch_rows(len(schema.used) + schema.num_features)
        batches = opened.iter_batches(batch_size=most, columns=list(schema.used), use_threads=False)
        line = 1
        while True:
            with _damage_refused("parquet"):
                batch = next(batches, None)
                if batch is None:
                    break
                batch.validate(full=True)
                columns = {name: batch.column(name) for name in schema.used}
            lines = range(line, line + batch.num_rows)
            yield _of_schema(schema.encode_labelled(columns, lines))
            line += batch.num_rows


def _checked_metadata(stream: IO[bytes], schema: Schema, max_bytes: int) -> tuple[Any, Any]:
    """Read the file's metadata and columns, which must be what it says of itself and fit the schema."""
    with _damage_refused("parquet"):
        footer = pages.footer(stream)
        if footer is None:
            raise InputInvalid("The parquet file is encrypted.", [FieldError("file", "expected plain parquet")])
        opened = pq.ParquetFile(stream)
        metadata, arrow = opened.metadata, opened.schema_arrow
    _check_size(_encoded_bytes(metadata.num_rows, schema.num_features), max_bytes)
    _check_columns(arrow.names, schema)
    strange = [name for name in schema.used if not _is_scalar(arrow.field(name).type)]
    refuse(SchemaInvalid, [FieldError(f"column {name}", "expected text or numbers") for name in strange])
    with _damage_refused("parquet"):
        chosen = _chosen_columns(metadata, schema)
        num_bytes = pages.unpacked_bytes(stream, footer, chosen)
    _check_size(num_bytes, max_bytes)
    return metadata, arrow


def _chosen_columns(metadata: Any, schema: Schema) -> list[int]:
    """The positions of the columns that are read. Arrow takes `a` for the columns `a` and `a.b`."""
    used = set(schema.used)
    paths = [metadata.schema.column(position).path for position in range(metadata.num_columns)]
    chosen = [
        position
        for position, path in enumerate(paths)
        if used.intersection(accumulate(path.split("."), "{}.{}".format))
    ]
    unexpected = [
        FieldError(f"column {position + 1}", "expected no dot") for position in chosen if paths[position] not in used
    ]
    refuse(SchemaInvalid, unexpected)
    if len(chosen) != len(used):
        raise InputInvalid("The parquet file has two columns of one name.")
    return chosen


def _is_scalar(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_scalar(kind.value_type)
    tests = ("integer", "floating", "decimal", "boolean", "null")
    return _is_text(kind) or any(getattr(pa.types, f"is_{test}")(kind) for test in tests)


def _is_text(kind: Any) -> bool:
    return any(getattr(pa.types, f"is_{test}")(kind) for test in ("string", "large_string", "string_view"))


# --- npz -------------------------------------------------------------------------------------------------------------


def _read_npz(file: io.RawIOBase, folder: Path, max_bytes: int, num_classes: int) -> Iterator[Batch]:
    with arrays.ShortReads(file) as stream:
        with _damage_refused("npz"):
            archive = zipfile.ZipFile(stream)
            members = {member.orig_filename: member for member in archive.infolist()}
        _check_members([member.orig_filename for member in archive.infolist()])
        if not all(map(arrays.is_plain, members.values())):
            raise InputInvalid("The members of an npz file are plain files, stored or deflated, and not encrypted.")
        _check_size(sum(member.file_size for member in members.values()), max_bytes)
        with _damage_refused("npz"):
            x, y, subject = (arrays.declared(archive, members[f"{name}.npy"]) for name in ("x", "y", "subject"))
        _check_arrays(x, y, subject)
        num_rows, num_features = x.shape
        _check_size(_encoded_bytes(num_rows, num_features), max_bytes)
        most = _batch_rows(num_features)
        pieces = [arrays.rows(archive, array, most, folder) for array in (x, y, subject)]
        for start in range(0, num_rows, most):
            with _damage_refused("npz"):  # four bytes of a string need not be a character
                features, labels, names = (next(piece) for piece in pieces)
                subjects: list[str | None] = [str(name) for name in names]
            yield _encoded(features, labels, subjects, first_line=start + 1, num_classes=num_classes)


def _encoded(
    x: npt.NDArray[Any], y: npt.NDArray[Any], subjects: list[str | None], *, first_line: int, num_classes: int
) -> Batch:
    features = encoding.encode_vectors(x, first_line=first_line)
    faults = Faults.in_file(range(first_line, first_line + len(features)))
    faults.mark("y", (y < 0) | (y >= num_classes), f"expected a place in classes, from 0 to {num_classes - 1}")
    faults.mark("subject", [not is_subject(name) for name in subjects], encoding.EXPECTED_SUBJECT)
    faults.refuse()
    return Batch(features=features, labels=y.astype("<i4"), subjects=subjects)


def _check_members(names: Sequence[str]) -> None:
    """The file has the three arrays and nothing else."""
    found = [name.removesuffix(".npy") for name in names]
    faults = [FieldError(name, f"is missing: {what}") for name, what in _ARRAYS.items() if name not in found]
    missing = [name for name in _ARRAYS if name not in found]
    for name in found:
        if name not in _ARRAYS:
            shown = is_name(name) and len(name) <= _LONGEST_SHOWN
            said = expected(missing or _ARRAYS, found=name)
            faults.append(FieldError(name if shown else "file", f"is no array of an npz file of rows: {said}"))
    if not faults and sorted(names) != sorted(f"{name}.npy" for name in _ARRAYS):
        faults = [FieldError("file", f"expected each of the arrays {', '.join(_ARRAYS)} once")]
    refuse(InputInvalid, faults)


def _check_arrays(x: Declared, y: Declared, subject: Declared) -> None:
    floats = x.dtype.kind == "f" and x.dtype.itemsize <= 8
    fits = len(x.shape) == 2 and 0 < x.shape[-1] <= MAX_FEATURES
    _expect("x", x, floats and fits)
    _expect("y", y, y.dtype.kind in "iu" and y.shape == x.shape[:1])
    moderate = subject.dtype.kind == "U" and subject.dtype.itemsize <= 4 * LONGEST_NAME
    _expect("subject", subject, moderate and subject.shape == x.shape[:1])


def _expect(name: str, array: Declared, holds: bool) -> None:
    if not holds:
        found = f"found {array.shape} {array.dtype.name}"
        refuse(InputInvalid, [FieldError(name, f"expected {_ARRAYS[name]}, n being the rows of x; {found}")])


def _check_size(num_bytes: int, max_bytes: int) -> None:
    if num_bytes > max_bytes:
        raise UploadTooLarge(f"The file unpacks to {num_bytes} bytes; at most {max_bytes} are accepted.")
