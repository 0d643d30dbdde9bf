"""Reader for the arrays in an npz file, in batches of rows. No array is ever whole in memory or in plaintext on disk.

A damaged file may raise an exception of any class, so callers must refuse the file on every exception.
"""

import io
import math
import stat
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from app.rows import formats, ingest
from app.vault import store
from lethe.contract.fields import expected
from lethe.contract.problems import FieldError, InputInvalid
from lethe.encoding import rows as encoding, spread, targets
from lethe.encoding.columns import MAX_NAME_LENGTH, MAX_TEXT_LENGTH, Faults, Vector, is_name, refuse
from lethe.encoding.rows import MAX_FEATURES, Schema

_PIECE = 2**20
"""Maximum number of bytes per read."""
_HEADER = 1024
"""Maximum size in bytes of an array's header; a plain array's header takes 128."""
_TURNED_VALUES = 2**23
"""Maximum number of values in memory while an array stored in column order is read by rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Array as declared in a member's header. `start`: offset of its values. `by_columns`: True if in column order."""

    member: zipfile.ZipInfo
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool
    start: int


class ShortReads(io.BufferedReader):
    """File that refuses reads longer than `_PIECE`, because a zip file may declare a false length for its directory."""

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(_PIECE + 1 if size is None or size < 0 else min(size, _PIECE + 1))
        if len(piece) > _PIECE:
            raise zipfile.BadZipFile
        return piece


def is_plain(member: zipfile.ZipInfo) -> bool:
    """Return True if the member is not a link, not encrypted, and can be unpacked piece by piece."""
    linked = stat.S_ISLNK(member.external_attr >> 16)
    return (
        not linked and not member.flag_bits & 1 and member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    )


def declared(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Declared:
    """Return the declaration in a member's header, or raise `InputInvalid` if it does not match the member's size."""
    with archive.open(member) as stream:
        header = io.BytesIO(stream.read(_HEADER))
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[np.lib.format.read_magic(header)]
    shape, by_columns, dtype = read_header(header)
    num_bytes = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or min(shape, default=0) < 0 or header.tell() + num_bytes != member.file_size:
        raise InputInvalid("The arrays of an npz file hold plain numbers and strings, as many as they declare.")
    return Declared(member=member, shape=shape, dtype=dtype, by_columns=by_columns, start=header.tell())


def rows(archive: zipfile.ZipFile, array: Declared, most: int, folder: Path) -> Iterator[npt.NDArray[Any]]:
    """Yield the rows of an array, at most `most` at a time. An array in column order is spooled to `folder`."""
    if array.by_columns and len(array.shape) > 1:
        return _rows_by_columns(archive, array, most, folder)
    return _rows_in_order(archive, array, most)


def _rows_in_order(archive: zipfile.ZipFile, array: Declared, most: int) -> Iterator[npt.NDArray[Any]]:
    num_rows, *inner = array.shape
    with archive.open(array.member) as stream:
        _exactly(stream, array.start)
        for start in range(0, num_rows, most):
            shape = (min(most, num_rows - start), *inner)
            yield np.ndarray(shape, array.dtype, _exactly(stream, math.prod(shape) * array.dtype.itemsize))


def _rows_by_columns(archive: zipfile.ZipFile, array: Declared, most: int, folder: Path) -> Iterator[npt.NDArray[Any]]:
    num_rows, num_columns = array.shape
    at_once = most * max(1, _TURNED_VALUES // (most * num_columns))
    with store.create(folder) as unpacked:
        with archive.open(array.member) as stream:
            for start in range(0, array.member.file_size, _PIECE):
                unpacked.write(_exactly(stream, min(_PIECE, array.member.file_size - start)))
        for start in range(0, num_rows, at_once):
            block = np.empty((min(at_once, num_rows - start), num_columns), array.dtype, order="F")
            for column in range(num_columns):
                unpacked.seek(array.start + (column * num_rows + start) * array.dtype.itemsize)
                unpacked.readinto(block[:, column].view(np.uint8).data)
            for first in range(0, len(block), most):
                yield block[first : first + most]


def _exactly(stream: IO[bytes], num_bytes: int) -> bytearray:
    """Read exactly `num_bytes` bytes, and unpack no more."""
    content = bytearray()
    while len(content) < num_bytes:
        piece = stream.read(min(_PIECE, num_bytes - len(content)))
        if not piece:
            raise zipfile.BadZipFile
        content += piece
    return content


_ARRAYS = {
    "x": f"(n, d) floats, d from 1 to {MAX_FEATURES}",
    "y": "(n,) integers, each the place of its class in classes, or (n,) numbers in the range of the target",
    "subject": f"(n,) strings of at most {MAX_NAME_LENGTH} characters",
}
_WEIGHTS = ("weight", "weights", "sample_weight")
_NEEDS_A_SCHEMA = 'is an array of weights, whose bound a schema states: send one, with {"role": "weight", "max": 10}'


def read_vectors(
    file: io.RawIOBase, folder: Path, max_bytes: int, learned: targets.TargetColumn | int
) -> Iterator[formats.Batch]:
    """Yield batches of vectors with their class indices or targets, and their subjects. `learned` is the target column
    or the number of classes."""
    with _arrays(file, _ARRAYS, max_bytes) as (archive, arrays):
        x, y, subject = (arrays[name] for name in _ARRAYS)
        _check_arrays(x, y, subject, kinds_of_y="iuf" if isinstance(learned, targets.TargetColumn) else "iu")
        num_rows, num_features = x.shape
        formats.check_size(formats.encoded_bytes(num_rows, num_features), max_bytes)
        for first_line, (features, labels, names) in _pieces(archive, (x, y, subject), folder, num_features):
            subjects: list[str | None] = [str(name) for name in names]
            batch = _encoded(features, labels, subjects, first_line=first_line, learned=learned)
            yield replace(batch, num_in_file=num_rows)


def read_table(file: io.RawIOBase, schema: Schema, folder: Path, max_bytes: int) -> Iterator[formats.Batch]:
    """Yield batches of a table with one named array per column, of shape (n, length) for vectors and (n,) otherwise."""
    vectors = {column.name: column for column in schema.features if isinstance(column, Vector)}
    descriptions = {name: _describe_array(vectors.get(name)) for name in schema.declared}
    with _arrays(file, descriptions, max_bytes) as (archive, arrays):
        num_rows = next(iter(arrays[name] for name in schema.used)).shape[:1]
        for name in schema.used:
            array, vector = arrays[name], vectors.get(name)
            shape = (*num_rows, vector.length) if vector else num_rows
            is_text = array.dtype.kind == "U" and array.dtype.itemsize <= 4 * MAX_TEXT_LENGTH and not vector
            _expect(name, array, descriptions[name], (is_text or array.dtype.kind in "iufb") and array.shape == shape)
        formats.check_size(formats.encoded_bytes(num_rows[0], schema.num_features), max_bytes)
        used = [arrays[name] for name in schema.used]
        for first_line, values in _pieces(archive, used, folder, len(used) + schema.num_held):
            columns = dict(zip(schema.used, values, strict=True))
            lines = range(first_line, first_line + len(values[0]))
            yield formats.of_schema(schema.encode_labelled(columns, lines), lines, num_in_file=num_rows[0])


def _describe_array(vector: Vector | None) -> str:
    return f"(n, {vector.length}) numbers" if vector else "(n,) numbers, booleans or strings"


@contextmanager
def _arrays(
    file: io.RawIOBase, descriptions: Mapping[str, str], max_bytes: int
) -> Iterator[tuple[zipfile.ZipFile, dict[str, Declared]]]:
    """Yield the opened archive and its array declarations, keyed by name. The names must match `descriptions`."""
    with ShortReads(file) as stream:
        with formats.damage_refused("npz"):
            archive = zipfile.ZipFile(stream)
            members = {member.orig_filename: member for member in archive.infolist()}
        _check_members([member.orig_filename for member in archive.infolist()], descriptions)
        if not all(map(is_plain, members.values())):
            raise InputInvalid("The members of an npz file are plain files, stored or deflated, and not encrypted.")
        formats.check_size(sum(member.file_size for member in members.values()), max_bytes)
        with formats.damage_refused("npz"):
            arrays = {name: declared(archive, members[f"{name}.npy"]) for name in descriptions}
        yield archive, arrays


def _pieces(
    archive: zipfile.ZipFile, arrays: Sequence[Declared], folder: Path, num_values: int
) -> Iterator[tuple[int, list[npt.NDArray[Any]]]]:
    """Yield the rows of all arrays in batches, each with the number of its first row, counted from 1."""
    most = formats.batch_rows(num_values)
    pieces = [rows(archive, array, most, folder) for array in arrays]
    for start in range(0, arrays[0].shape[0], most):
        # `tolist` raises if four bytes of a string are not a character.
        with formats.damage_refused("npz"):
            values = [next(piece) for piece in pieces]
            for strings in values:
                if strings.dtype.kind == "U":
                    strings.tolist()
        yield start + 1, values


def _encoded(
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
    subjects: list[str | None],
    *,
    first_line: int,
    learned: targets.TargetColumn | int,
) -> formats.Batch:
    vectors = encoding.checked_vectors(x, first_line=first_line)
    faults = Faults.in_file(range(first_line, first_line + len(vectors)))
    if isinstance(learned, targets.TargetColumn):
        y = y.astype(np.float64)
        faults.mark("y", learned.wrong(y), learned.expected)
    else:
        faults.mark("y", (y < 0) | (y >= learned), f"expected a place in classes, from 0 to {learned - 1}")
    encoding.read_subjects(subjects, "subject", faults)
    faults.refuse()
    return formats.Batch(
        features=encoding.unit_rows(vectors),
        labels=learned.labels(y) if isinstance(learned, targets.TargetColumn) else y.astype("<i4"),
        subjects=subjects,
        spread=spread.Spread.of(vectors),
        raw=vectors,
        lines=range(first_line, first_line + len(vectors)),
    )


def _check_members(names: Sequence[str], descriptions: Mapping[str, str]) -> None:
    """Raise `InputInvalid` unless the file contains exactly the arrays named in `descriptions`."""
    arrays = [name.removesuffix(".npy") for name in names]
    faults = [FieldError(name, f"is missing: {text}") for name, text in descriptions.items() if name not in arrays]
    missing = [name for name in descriptions if name not in arrays]
    for name in arrays:
        if name not in descriptions:
            is_printable = is_name(name) and len(name) <= formats.MAX_SHOWN_LENGTH
            fault = f"is no array of an npz file of rows: {expected(missing or descriptions, found=name)}"
            if descriptions is _ARRAYS and name in _WEIGHTS:
                fault = _NEEDS_A_SCHEMA
            faults.append(FieldError(name if is_printable else "file", fault))
    if not faults and sorted(names) != sorted(f"{name}.npy" for name in descriptions):
        faults = [FieldError("file", f"expected each of the arrays {', '.join(descriptions)} once")]
    refuse(InputInvalid, faults)


def _check_arrays(x: Declared, y: Declared, subject: Declared, *, kinds_of_y: str) -> None:
    floats = x.dtype.kind == "f" and x.dtype.itemsize <= 8
    fits = len(x.shape) == 2 and 0 < x.shape[-1] <= MAX_FEATURES
    _expect("x", x, _ARRAYS["x"], floats and fits)
    _expect("y", y, _ARRAYS["y"], y.dtype.kind in kinds_of_y and y.dtype.itemsize <= 8 and y.shape == x.shape[:1])
    is_text = subject.dtype.kind == "U" and subject.dtype.itemsize <= 4 * MAX_NAME_LENGTH
    _expect("subject", subject, _ARRAYS["subject"], is_text and subject.shape == x.shape[:1])


def _expect(name: str, array: Declared, description: str, holds: bool) -> None:
    if not holds:
        actual = f"found {array.shape} {array.dtype.name}"
        refuse(InputInvalid, [FieldError(name, f"expected {description}, n being the rows; {actual}")])


READERS: tuple[tuple[str, ingest.FileReader], ...] = (
    ("npz", ingest.FileReader(table=read_table, vectors=read_vectors)),
)
