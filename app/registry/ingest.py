"""Uploads become batches: csv, parquet and npz files are read piece by piece, and a bad row is named by its place.

A file is hostile until read. Whatever is wrong with it ends in a named condition whose text never repeats a value, and
what it declares about its size is checked before memory is given to it. A line is a line of the csv file; parquet and
npz have none, there it is the number of the row, from 1.
"""

import csv
import math
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from app.errors import DatasetUnusable, FieldError, InputInvalid, LetheError, RowInvalid, SchemaInvalid, UploadTooLarge
from app.registry import encoding
from app.registry.encoding import Features, Labels, Schema

Kind: TypeAlias = Literal["csv", "parquet", "npz"]

BATCH_ROWS = 8192
MAX_BYTES = 4 * 2**30
MAX_CLASSES = 65_536  # of an npz file, whose classes are 0..max(y)
LONGEST_LINE = 16 * 2**20  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Encoded rows, their labels and whose they are."""

    features: Features  # (b, d + 1)
    labels: Labels  # (b,)
    subjects: list[str | None]


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


def read(path: Path, *, kind: Kind, schema: Schema | None, max_bytes: int = MAX_BYTES) -> Iterator[Batch]:
    """Batches of at most 8192 rows. Only what was read without an error to the very end may be kept."""
    if kind == "npz":
        if schema is not None:
            raise SchemaInvalid("An npz file takes no schema.", [FieldError("schema", "expected none for npz")])
        return _read_npz(path, max_bytes)
    if schema is None:
        raise SchemaInvalid(f"A {kind} file needs a schema.", [FieldError("schema", f"expected one for {kind}")])
    return _read_csv(path, schema) if kind == "csv" else _read_parquet(path, schema, max_bytes)


def check_learnable(class_counts: Sequence[int], classes: Sequence[object]) -> None:
    """Refuse rows that teach no classifier: none at all, all of one class, or a class that never occurs."""
    absent = [name for count, name in zip(class_counts, classes, strict=True) if count == 0]
    if len(absent) == len(classes):
        raise DatasetUnusable("There are no rows.")
    if len(classes) - len(absent) < 2:
        raise DatasetUnusable("All rows have the same label; two classes or more are needed.")
    encoding.refuse(DatasetUnusable, [FieldError(f"class {name}", "never occurs") for name in absent])


@contextmanager
def _damage_refused(kind: Kind) -> Iterator[None]:
    """Around a parser alone: whatever it raises, the file cannot be read. The cause is dropped: it may quote data."""
    try:
        yield
    except LetheError:
        raise
    except Exception:  # noqa: BLE001 - nobody lists what three parsers raise on every hostile file
        raise InputInvalid(
            f"The file is damaged or is not a {kind} file.", [FieldError("file", f"expected a whole {kind} file")]
        ) from None


def _check_columns(names: Sequence[str], schema: Schema, place: str = "") -> None:
    """The file has the columns of the schema. Others are named by position: what stands first may be a record."""
    declared = set(schema.declared)
    faults = [FieldError(f"{place}column {name}", "is missing") for name in schema.declared if name not in names]
    for position, name in enumerate(names, start=1):
        if name not in declared:
            faults.append(FieldError(f"{place}column {position}", "is not declared in the schema"))
        elif name in names[: position - 1]:
            faults.append(FieldError(f"{place}column {position}", "has the name of an earlier column"))
    encoding.refuse(SchemaInvalid, faults)


# --- csv -------------------------------------------------------------------------------------------------------------


def _read_csv(path: Path, schema: Schema) -> Iterator[Batch]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        records = _records(stream)
        line, header = next(records, (1, []))
        _check_columns(header, schema, f"line {line}, ")
        while rows := list(islice(records, BATCH_ROWS)):
            lines = [line for line, _ in rows]
            faults = encoding.Faults.in_file(lines)
            faults.mark("", [len(fields) != len(header) for _, fields in rows], f"expected {len(header)} fields")
            faults.refuse()
            columns = dict(zip(header, zip(*(fields for _, fields in rows), strict=True), strict=True))
            features, labels, subjects = schema.encode_labelled(columns, lines)
            yield Batch(features=features, labels=labels, subjects=subjects)


def _records(stream: IO[str]) -> Iterator[tuple[int, list[str]]]:
    """The records of a csv file, each with the line on which it starts; blank lines are none."""
    reader = csv.reader(_bounded_lines(stream), strict=True)
    line = 1
    try:
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1
    except csv.Error:
        encoding.refuse(RowInvalid, [FieldError(f"line {line}", "expected well-quoted fields of moderate length")])
    except UnicodeDecodeError:
        raise InputInvalid("The csv file is not UTF-8 text.", [FieldError("file", "expected UTF-8 text")]) from None


def _bounded_lines(stream: IO[str]) -> Iterator[str]:
    while line := stream.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise csv.Error
        yield line


# --- parquet ---------------------------------------------------------------------------------------------------------


def _read_parquet(path: Path, schema: Schema, max_bytes: int) -> Iterator[Batch]:
    with _damage_refused("parquet"):
        file = pq.ParquetFile(path)
    with file:
        with _damage_refused("parquet"):
            arrow = file.schema_arrow
            sizes = [file.metadata.row_group(group).total_byte_size for group in range(file.num_row_groups)]
            num_bytes = sum(sizes) + file.metadata.num_rows * (schema.num_features + 1) * 4
        _check_size(num_bytes, max_bytes)
        _check_columns(arrow.names, schema)
        strange = [name for name in schema.used if not _is_scalar(arrow.field(name).type)]
        encoding.refuse(SchemaInvalid, [FieldError(f"column {name}", "expected text or numbers") for name in strange])
        batches = file.iter_batches(batch_size=BATCH_ROWS, columns=list(schema.used))
        line = 1
        while True:
            with _damage_refused("parquet"):
                batch = next(batches, None)
                if batch is None:
                    return
                batch.validate(full=True)
                columns = {name: batch.column(name) for name in schema.used}
            lines = range(line, line + batch.num_rows)
            features, labels, subjects = schema.encode_labelled(columns, lines)
            yield Batch(features=features, labels=labels, subjects=subjects)
            line += batch.num_rows


def _is_scalar(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_scalar(kind.value_type)
    tests = ("string", "large_string", "string_view", "integer", "floating", "decimal", "boolean", "null")
    return any(getattr(pa.types, f"is_{test}")(kind) for test in tests)


# --- npz -------------------------------------------------------------------------------------------------------------


def _read_npz(path: Path, max_bytes: int) -> Iterator[Batch]:
    with _damage_refused("npz"), zipfile.ZipFile(path) as archive:
        members = {member.filename: member for member in archive.infolist()}
        if sorted(members) != ["subject.npy", "x.npy", "y.npy"]:
            raise InputInvalid("An npz file holds exactly the arrays x, y and subject.")
        _check_size(sum(member.file_size for member in members.values()), max_bytes)
        x, y, subject = (_array(archive, members[f"{name}.npy"]) for name in ("x", "y", "subject"))
    _expect("x", x.dtype.kind == "f" and x.dtype.itemsize <= 8 and x.ndim == 2 and x.shape[-1] > 0, "(n, d) floats")
    _expect("y", y.dtype.kind in "iu" and y.shape == x.shape[:1], "(n,) integers")
    _expect("subject", subject.dtype.kind == "U" and subject.shape == x.shape[:1], "(n,) strings")
    for start in range(0, len(x), BATCH_ROWS):
        rows = slice(start, start + BATCH_ROWS)
        features = encoding.encode_vectors(x[rows], first_line=start + 1)
        faults = encoding.Faults.in_file(range(start + 1, start + 1 + len(features)))
        faults.mark("y", (y[rows] < 0) | (y[rows] >= MAX_CLASSES), f"expected a class from 0 to {MAX_CLASSES - 1}")
        with _damage_refused("npz"):  # four bytes of a string need not be a character
            subjects: list[str | None] = [str(name) for name in subject[rows]]
        faults.mark("subject", [not encoding.is_name(name) for name in subjects], "expected a subject")
        faults.refuse()
        yield Batch(features=features, labels=y[rows].astype("<i4"), subjects=subjects)


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """The array in this member, once its header asks for no more bytes than the member declares."""
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, _, dtype = read_header(stream)
        if dtype.hasobject or math.prod(shape) * dtype.itemsize > member.file_size:
            raise InputInvalid("The arrays of an npz file hold plain numbers and strings, as many as they declare.")
    with archive.open(member) as stream:
        array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        return array


def _expect(name: str, holds: bool, what: str) -> None:
    if not holds:
        encoding.refuse(InputInvalid, [FieldError(name, f"expected {what}, n being the rows of x")])


def _check_size(num_bytes: int, max_bytes: int) -> None:
    if num_bytes > max_bytes:
        raise UploadTooLarge(f"The file unpacks to {num_bytes} bytes; at most {max_bytes} are accepted.")
