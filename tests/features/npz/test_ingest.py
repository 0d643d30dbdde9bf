"""Rows of npz files, and each fault at its place."""

import io
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from app.rows import ingest
from app.rows.formats import BATCH_ROWS
from lethe.contract.problems import InputInvalid, Problem, RowInvalid, UploadTooLarge
from tests.app.rows.test_ingest import damaged, in_one_folder
from tests.app.rows.written import SCHEMA, everything, npz_file, read, refused


def test_the_file_name_determines_the_kind() -> None:
    """A file whose name ends in .npz, in upper or lower case, is read as an npz file."""
    assert ingest.kind_of("C.NPZ") == "npz"


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 4), (1, 5), (5, 1), (0, 2), (9000, 3), (40, 60_000)])
def test_arrays_may_have_either_memory_order(tmp_path: Path, shape: tuple[int, int]) -> None:
    """Arrays in either memory order and any byte order, stored or deflated, give the same rows."""
    x = np.random.default_rng(shape[0]).normal(size=shape).astype("<f4")
    others = {"y": np.arange(shape[0]) % 2, "subject": np.array([f"p{row}" for row in range(shape[0])], "<U8")}
    read_from = {}
    for order in ("C", "F"):
        for kind, save in (("<f4", np.savez), (">f4", np.savez_compressed)):
            save(tmp_path / "rows.npz", x=np.asarray(x, kind, order=order), **others)  # type: ignore[arg-type]
            batches = list(read(tmp_path / "rows.npz", "npz", None))
            read_from[order, kind] = [
                (batch.features.tobytes(), batch.labels.tobytes(), batch.subjects) for batch in batches
            ]
    assert sum(len(subjects) for _, _, subjects in read_from["C", "<f4"]) == shape[0]
    assert all(found == read_from["C", "<f4"] for found in read_from.values())
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npz"]


def test_files_are_read_in_batches(tmp_path: Path) -> None:
    """A file with more rows than fit in a batch is read in several batches, in order."""
    count = 2 * BATCH_ROWS + 5
    names = [f"p{number}" for number in range(count)]
    npz = npz_file(tmp_path, x=np.ones((count, 1)), y=np.zeros(count, int), subject=np.array(names))
    assert everything(npz, "npz", None)[2] == names


@pytest.mark.parametrize("name", ["4.86E+17", "4711.0"])
def test_ids_rewritten_as_numbers_are_refused(tmp_path: Path, name: str) -> None:
    """A file is refused if a data frame has converted an id to a number, and the error names the row."""
    wrong = "expected an id as text: a spreadsheet or data frame wrote this one as a number"
    with pytest.raises(RowInvalid, match=f"^line 2, column subject: {wrong}") as refusal:
        list(read(npz_file(tmp_path, subject=np.array(["4711", name])), "npz", None))
    assert len(refusal.value.errors) == 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_subject_column_of_floats_is_refused(tmp_path: Path, dtype: type[np.floating[Any]]) -> None:
    """A subject column of floats is refused with advice on how to fix it. A subject column of integers is accepted as
    ids."""

    def file_of(*person: int, dtype: type[np.number[Any]]) -> Path:
        columns: dict[str, Any] = {"person": np.array(person, dtype)}
        columns |= {"age": np.array([25, 31]), "work": np.array(["some", "none"]), "note": np.zeros(2)}
        np.savez(tmp_path / "rows.npz", allow_pickle=True, **columns, income=np.array(["low", "high"]))
        return tmp_path / "rows.npz"

    with pytest.raises(RowInvalid, match="format the column as text at its source") as refusal:
        list(read(file_of(4711, 4712, dtype=dtype), "npz"))
    assert [fault.path for fault in refusal.value.errors] == ["line 1, column person", "line 2, column person"]
    names = everything(file_of(4711, 2**53 + 1, dtype=np.int64), "npz")[2]
    assert names == ["4711", "9007199254740993"]


@pytest.mark.parametrize(
    ("arrays", "place"),
    [
        ({"x": np.array([[1.0, 2.0], [3.0, np.nan]])}, "line 2, column x[1]"),
        ({"x": np.array([[np.inf, 2.0], [3.0, 4.0]])}, "line 1, column x[0]"),
        ({"x": np.ones((2, 2), int)}, "x"),
        ({"x": np.ones((2, 2), np.longdouble)}, "x"),
        ({"x": np.ones((2, 0))}, "x"),
        ({"x": np.ones(2)}, "x"),
        ({"x": np.ones((3, 2))}, "y"),
        ({"y": np.array([0.0, 1.0])}, "y"),
        ({"y": np.array([[0], [1]])}, "y"),
        ({"y": np.array([0, -1])}, "line 2, column y"),
        ({"y": np.array([0, 2**63], np.uint64)}, "line 2, column y"),
        ({"subject": np.array(["ann"])}, "subject"),
        ({"subject": np.array([b"ann", b"bob"])}, "subject"),
        ({"subject": np.array(["ann", ""])}, "line 2, column subject"),
        ({"subject": np.array([0x61, 0xD800], np.uint32).view("U1")}, "line 2, column subject"),
    ],
)
def test_the_error_for_an_invalid_npz_file_names_the_place(tmp_path: Path, arrays: dict[str, Any], place: str) -> None:
    """A file is refused if an array has the wrong type or shape, or if a value is not a valid feature, class or
    subject. The error names the array or row."""
    assert refused(npz_file(tmp_path, **arrays), "npz", InputInvalid, None) == [place]


def test_an_npz_with_pickles_or_other_arrays_is_refused(tmp_path: Path) -> None:
    """Object arrays are never unpickled. Invalid Unicode characters and undeclared arrays are refused."""
    refused(npz_file(tmp_path, subject=np.array(["ann", None], object)), "npz", InputInvalid, None)
    refused(npz_file(tmp_path, subject=np.array([1, 2**31], np.uint32).view("U1")), "npz", InputInvalid, None)
    refused(npz_file(tmp_path, more=np.ones(2)), "npz", InputInvalid, None)


@pytest.mark.parametrize("name", ["weight", "sample_weight"])
def test_weights_without_a_schema_are_refused(tmp_path: Path, name: str) -> None:
    """An npz file with row weights but without a schema is refused with advice on how to declare a bound on the
    weights."""
    with pytest.raises(InputInvalid) as weighted:
        [*read(npz_file(tmp_path, **{name: np.ones(2)}), "npz", None)]
    [fault] = weighted.value.errors
    assert (fault.path, '{"role": "weight", "max": 10}' in fault.message) == (name, True)


def test_declared_sizes_are_checked_before_allocation(tmp_path: Path) -> None:
    """A file that would unpack to more than the limit is refused because of its declared sizes. A file that declares
    false sizes is refused too."""
    bomb = npz_file(tmp_path, x=np.zeros((2, 500_000)))
    assert bomb.stat().st_size < 100_000
    with pytest.raises(UploadTooLarge):
        list(read(bomb, "npz", None, max_bytes=1_000_000))
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 10)})
    with zipfile.ZipFile(tmp_path / "liar.npz", "w") as archive:
        for name in ("x", "y", "subject"):
            archive.writestr(f"{name}.npy", header.getvalue())
    refused(tmp_path / "liar.npz", "npz", InputInvalid, None)


def test_the_arrays_of_a_table_are_its_columns(tmp_path: Path) -> None:
    """If an npz file is uploaded with a schema, its arrays must be the schema's columns."""
    assert refused(npz_file(tmp_path), "npz", InputInvalid, SCHEMA)[0] in SCHEMA.declared


@in_one_folder
@given(st.data())
def test_a_corrupt_file_raises_only_documented_errors(tmp_path: Path, data: st.DataObject) -> None:
    """Random bytes, truncated files and partly overwritten files raise only the documented errors."""
    path = npz_file(tmp_path)
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    with suppress(Problem):
        for batch in read(path, "npz", None):
            assert np.isfinite(batch.features).all()
