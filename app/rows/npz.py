"""npz files: three arrays of vectors without a schema, or one array for each column of a schema."""

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.rows import arrays
from app.rows.arrays import Declared
from app.rows.batches import (
    LONGEST_SHOWN,
    Batch,
    batch_rows,
    check_size,
    damage_refused,
    encoded_bytes,
    of_schema,
)
from lethe.contract.problems import FieldError, InputInvalid
from lethe.contract.spelling import expected
from lethe.encoding import rows as encoding
from lethe.encoding.columns import LONGEST_TEXT, Vector
from lethe.encoding.faults import Faults, refuse
from lethe.encoding.rows import MAX_FEATURES, Schema
from lethe.encoding.spread import Spread
from lethe.encoding.targets import Target
from lethe.encoding.values import LONGEST_NAME, is_name, is_subject

_ARRAYS = {
    "x": f"(n, d) floats, d from 1 to {MAX_FEATURES}",
    "y": "(n,) integers, each the place of its class in classes, or (n,) numbers in the range of the target",
    "subject": f"(n,) strings of at most {LONGEST_NAME} characters",
}
_WEIGHTS = ("weight", "weights", "sample_weight")
_NEEDS_A_SCHEMA = 'is an array of weights, whose bound a schema states: send one, with {"role": "weight", "max": 10}'


def read_vectors(file: io.RawIOBase, folder: Path, max_bytes: int, learned: Target | int) -> Iterator[Batch]:
    """Vectors, the places of their classes or their targets, and whose they are; `learned`: a target, or one of so many
    classes."""
    with _arrays(file, _ARRAYS, max_bytes) as (archive, found):
        x, y, subject = (found[name] for name in _ARRAYS)
        _check_arrays(x, y, subject, kinds_of_y="iuf" if isinstance(learned, Target) else "iu")
        num_rows, num_features = x.shape
        check_size(encoded_bytes(num_rows, num_features), max_bytes)
        for first_line, (features, labels, names) in _pieces(archive, (x, y, subject), folder, num_features):
            subjects: list[str | None] = [str(name) for name in names]
            batch = _encoded(features, labels, subjects, first_line=first_line, learned=learned)
            yield replace(batch, num_in_file=num_rows)


def read_table(file: io.RawIOBase, schema: Schema, folder: Path, max_bytes: int) -> Iterator[Batch]:
    """A table whose columns are arrays of their names: (n, length) for a vector, (n,) for all others."""
    vectors = {column.name: column for column in schema.features if isinstance(column, Vector)}
    what = {name: _of_array(vectors.get(name)) for name in schema.declared}
    with _arrays(file, what, max_bytes) as (archive, found):
        num_rows = next(iter(found[name] for name in schema.used)).shape[:1]
        for name in schema.used:
            array, vector = found[name], vectors.get(name)
            shape = (*num_rows, vector.length) if vector else num_rows
            moderate = array.dtype.kind == "U" and array.dtype.itemsize <= 4 * LONGEST_TEXT and not vector
            _expect(name, array, what[name], (moderate or array.dtype.kind in "iufb") and array.shape == shape)
        check_size(encoded_bytes(num_rows[0], schema.num_features), max_bytes)
        used = [found[name] for name in schema.used]
        for first_line, values in _pieces(archive, used, folder, len(used) + schema.num_held):
            columns = dict(zip(schema.used, values, strict=True))
            lines = range(first_line, first_line + len(values[0]))
            yield of_schema(schema.encode_labelled(columns, lines), lines, num_in_file=num_rows[0])


def _of_array(vector: Vector | None) -> str:
    return f"(n, {vector.length}) numbers" if vector else "(n,) numbers, booleans or strings"


@contextmanager
def _arrays(
    file: io.RawIOBase, what: Mapping[str, str], max_bytes: int
) -> Iterator[tuple[zipfile.ZipFile, dict[str, Declared]]]:
    """The arrays of the file by name, as each is declared: these and no others."""
    with arrays.ShortReads(file) as stream:
        with damage_refused("npz"):
            archive = zipfile.ZipFile(stream)
            members = {member.orig_filename: member for member in archive.infolist()}
        _check_members([member.orig_filename for member in archive.infolist()], what)
        if not all(map(arrays.is_plain, members.values())):
            raise InputInvalid("The members of an npz file are plain files, stored or deflated, and not encrypted.")
        check_size(sum(member.file_size for member in members.values()), max_bytes)
        with damage_refused("npz"):
            found = {name: arrays.declared(archive, members[f"{name}.npy"]) for name in what}
        yield archive, found


def _pieces(
    archive: zipfile.ZipFile, found: Sequence[Declared], folder: Path, num_values: int
) -> Iterator[tuple[int, list[npt.NDArray[Any]]]]:
    """So many rows of each array at a time as make a batch, and the number of the first of them."""
    most = batch_rows(num_values)
    pieces = [arrays.rows(archive, array, most, folder) for array in found]
    for start in range(0, found[0].shape[0], most):
        with damage_refused("npz"):  # four bytes of a string need not be a character
            values = [next(piece) for piece in pieces]
            for strings in values:
                if strings.dtype.kind == "U":
                    strings.tolist()
        yield start + 1, values


def _encoded(
    x: npt.NDArray[Any], y: npt.NDArray[Any], subjects: list[str | None], *, first_line: int, learned: Target | int
) -> Batch:
    vectors = encoding.checked_vectors(x, first_line=first_line)
    faults = Faults.in_file(range(first_line, first_line + len(vectors)))
    if isinstance(learned, Target):
        y = y.astype(np.float64)
        faults.mark("y", learned.wrong(y), learned.expected)
    else:
        faults.mark("y", (y < 0) | (y >= learned), f"expected a place in classes, from 0 to {learned - 1}")
    faults.mark("subject", [not is_subject(name) for name in subjects], encoding.EXPECTED_SUBJECT)
    faults.refuse()
    return Batch(
        features=encoding.unit_rows(vectors),
        labels=learned.labels(y) if isinstance(learned, Target) else y.astype("<i4"),
        subjects=subjects,
        spread=Spread.of(vectors),
        raw=vectors,
        lines=range(first_line, first_line + len(vectors)),
    )


def _check_members(names: Sequence[str], what: Mapping[str, str]) -> None:
    """The file has these arrays and nothing else."""
    found = [name.removesuffix(".npy") for name in names]
    faults = [FieldError(name, f"is missing: {said}") for name, said in what.items() if name not in found]
    missing = [name for name in what if name not in found]
    for name in found:
        if name not in what:
            shown = is_name(name) and len(name) <= LONGEST_SHOWN
            said = f"is no array of an npz file of rows: {expected(missing or what, found=name)}"
            if what is _ARRAYS and name in _WEIGHTS:
                said = _NEEDS_A_SCHEMA
            faults.append(FieldError(name if shown else "file", said))
    if not faults and sorted(names) != sorted(f"{name}.npy" for name in what):
        faults = [FieldError("file", f"expected each of the arrays {', '.join(what)} once")]
    refuse(InputInvalid, faults)


def _check_arrays(x: Declared, y: Declared, subject: Declared, *, kinds_of_y: str) -> None:
    floats = x.dtype.kind == "f" and x.dtype.itemsize <= 8
    fits = len(x.shape) == 2 and 0 < x.shape[-1] <= MAX_FEATURES
    _expect("x", x, _ARRAYS["x"], floats and fits)
    _expect("y", y, _ARRAYS["y"], y.dtype.kind in kinds_of_y and y.dtype.itemsize <= 8 and y.shape == x.shape[:1])
    moderate = subject.dtype.kind == "U" and subject.dtype.itemsize <= 4 * LONGEST_NAME
    _expect("subject", subject, _ARRAYS["subject"], moderate and subject.shape == x.shape[:1])


def _expect(name: str, array: Declared, what: str, holds: bool) -> None:
    if not holds:
        found = f"found {array.shape} {array.dtype.name}"
        refuse(InputInvalid, [FieldError(name, f"expected {what}, n being the rows; {found}")])
