"""Rows of parquet files equal those of the same records in csv and npz, and each fault is reported at its place."""

import datetime
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from app.rows import ingest
from app.rows.formats import BATCH_ROWS
from lethe import sockets
from lethe.contract.problems import InputInvalid, Problem, RowInvalid, SchemaInvalid, UploadTooLarge
from lethe.encoding.schema import parse_schema
from tests.app.rows.test_ingest import CSV
from tests.app.rows.written import SCHEMA, csv_file, everything, npz_file, read, refused
from tests.features.npz.test_vectors import DATES, EMBEDDED, VECTORS
from tests.tables import each


def parquet_file(folder: Path, **columns: object) -> Path:
    rows: dict[str, object] = {
        "person": ["ann", "bob"],
        "age": [25, None],
        "work": ["some", "none"],
        "note": [[1], [2, 3]],
        "income": ["low", "high"],
    }
    pq.write_table(pa.table({**rows, **columns}), folder / "rows.parquet")
    return folder / "rows.parquet"


def test_the_suffix_may_be_in_any_case() -> None:
    """A known suffix determines a file's kind, whether in upper or lower case."""
    assert ingest.kind_of("b.v2.Parquet") == "parquet"


def test_csv_and_parquet_agree(tmp_path: Path) -> None:
    """The same records give the same rows, labels and subjects from CSV and from Parquet."""
    features, labels, subjects = everything(csv_file(tmp_path, CSV), "csv")
    np.testing.assert_array_equal(features, everything(parquet_file(tmp_path), "parquet")[0])
    np.testing.assert_array_equal(features, SCHEMA.encode({"age": [25, None], "work": ["some", "none"]}))
    assert (labels, subjects) == ([0, 1], ["ann", "bob"])
    assert everything(parquet_file(tmp_path), "parquet")[1:] == (labels, subjects)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(0, 1), st.integers(1)), min_size=1, max_size=20)
)
def test_all_formats_agree(tmp_path: Path, records: list[tuple[float, float, int, int]]) -> None:
    """Numbers in [0, 1] give the same rows, labels and subjects from CSV, Parquet and npz."""
    unit = {"kind": "numeric", "min": 0, "max": 1}
    label = {"role": "label", "values": ["0", "1"]}
    schema = parse_schema({"columns": {"a": unit, "b": unit, "y": label, "who": {"role": "subject"}}})
    a, b, y, who = (list(column) for column in zip(*records, strict=True))
    csv = csv_file(tmp_path, "a,b,y,who\n" + "".join(",".join(map(repr, record)) + "\n" for record in records))
    pq.write_table(pa.table({"who": list(map(str, who)), "y": y, "b": b, "a": a}), tmp_path / "rows.parquet")
    npz = npz_file(tmp_path, x=np.array([a, b]).T, y=np.array(y), subject=np.array(list(map(str, who))))
    features, labels, subjects = everything(csv, "csv", schema)
    for path, kind, its_schema in ((tmp_path / "rows.parquet", "parquet", schema), (npz, "npz", None)):
        other = everything(path, kind, its_schema)  # type: ignore[arg-type]
        np.testing.assert_array_equal(features, other[0])
        assert (labels, subjects) == other[1:]


@pytest.mark.parametrize(
    ("columns", "error", "place"),
    [
        ({"age": [1, 101]}, RowInvalid, "line 2, column age"),
        ({"age": ["1", "x"]}, RowInvalid, "line 2, column age"),
        ({"work": ["some", None]}, RowInvalid, "line 2, column work"),
        ({"income": [0.5, 1.5]}, RowInvalid, "line 1, column income"),
        ({"person": ["ann", ""]}, RowInvalid, "line 2, column person"),
        ({"person": ["ann", None]}, RowInvalid, "line 2, column person"),
        ({"age": [[1], [2]]}, SchemaInvalid, "column age"),
        ({"work": [b"some", b"none"]}, SchemaInvalid, "column work"),
        ({"more": [1, 2]}, SchemaInvalid, "column 6"),
    ],
)
def test_the_error_for_an_invalid_parquet_file_names_line_and_column(
    tmp_path: Path, columns: dict[str, object], error: type[InputInvalid], place: str
) -> None:
    """A value, type or column that the schema does not permit is refused, and the error names the column and, for a
    value, the line."""
    assert place in refused(parquet_file(tmp_path, **columns), "parquet", error)


def test_text_that_is_not_utf8_in_parquet_is_refused(tmp_path: Path) -> None:
    """A string column whose bytes are not UTF-8 is refused as damaged."""
    ill = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 1], "<i4")), pa.py_buffer(b"\xff"))
    one = {"age": [1], "work": ["some"], "note": [0], "income": ["low"]}
    refused(parquet_file(tmp_path, person=ill, **one), "parquet", InputInvalid)


def test_files_are_read_in_batches(tmp_path: Path) -> None:
    """A file with more rows than fit in a batch is read in several batches, in order."""
    count = 2 * BATCH_ROWS + 5
    names = [f"p{number}" for number in range(count)]
    columns = {"age": [1] * count, "work": ["some"] * count, "note": [0] * count, "income": ["low"] * count}
    assert everything(parquet_file(tmp_path, person=names, **columns), "parquet")[2] == names


@pytest.mark.parametrize("name", ["4.86E+17", "4,86E+17", "4.86e+17", "4E+17", "-1.5E+16", "4711.0", "\u200b4711.00 "])
def test_ids_rewritten_as_numbers_are_refused(tmp_path: Path, name: str) -> None:
    """A file is refused if a spreadsheet or data frame has converted an id to a number, and the error names the row."""
    wrong = "expected an id as text: a spreadsheet or data frame wrote this one as a number"
    with pytest.raises(RowInvalid, match=f"^line 2, column person: {wrong}") as refusal:
        list(read(parquet_file(tmp_path, person=["4711", name]), "parquet"))
    assert len(refusal.value.errors) == 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_subject_column_of_floats_is_refused(tmp_path: Path, dtype: type[np.floating[Any]]) -> None:
    """A subject column of floats is refused with advice on how to fix it. A subject column of integers is accepted as
    ids."""
    with pytest.raises(RowInvalid, match="format the column as text at its source") as refusal:
        list(read(parquet_file(tmp_path, person=np.array((4711, 4712), dtype)), "parquet"))
    assert [fault.path for fault in refusal.value.errors] == ["line 1, column person", "line 2, column person"]
    names = everything(parquet_file(tmp_path, person=np.array((4711, 2**53 + 1), np.int64)), "parquet")[2]
    assert names == ["4711", "9007199254740993"]


def test_declared_sizes_are_checked_before_allocation(tmp_path: Path) -> None:
    """A file that would unpack to more than the limit is refused because of its declared sizes."""
    with pytest.raises(UploadTooLarge):
        list(read(parquet_file(tmp_path), "parquet", max_bytes=100))


def test_a_file_needs_a_schema(tmp_path: Path) -> None:
    """A Parquet file without a schema is refused."""
    assert refused(parquet_file(tmp_path), "parquet", SchemaInvalid, None) == ["schema"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_corrupt_file_raises_only_documented_errors(tmp_path: Path, data: st.DataObject) -> None:
    """Random bytes, truncated files and partly overwritten files raise only the documented errors."""
    path = parquet_file(tmp_path)
    whole = path.read_bytes()
    cut = st.integers(0, len(whole)).map(lambda end: whole[:end])
    place = st.integers(0, len(whole) - 1)
    hit = st.tuples(place, st.binary(min_size=1, max_size=4)).map(
        lambda blow: whole[: blow[0]] + blow[1] + whole[blow[0] + len(blow[1]) :]
    )
    path.write_bytes(data.draw(st.binary() | cut | hit))
    with suppress(Problem):
        for batch in read(path, "parquet"):
            assert np.isfinite(batch.features).all()


def embedded(folder: Path, **columns: object) -> Path:
    dates = [datetime.date.fromisoformat(day) for day in DATES]
    rows: dict[str, object] = {"e": VECTORS, "since": dates, "income": [0, 1], "person": ["ann", "bob"]}
    pq.write_table(pa.table(rows | columns), folder / "rows.parquet")
    return folder / "rows.parquet"


def test_vectors_and_times_agree_in_all_formats(tmp_path: Path) -> None:
    """Embeddings and dates give the same rows from Parquet, CSV and npz."""
    features, labels, subjects = everything(embedded(tmp_path), "parquet", EMBEDDED)
    assert (labels, subjects) == ([0, 1], ["ann", "bob"])
    text = "e,since,income,person\n" + "".join(
        f'"{json.dumps(vector)}",{day},{place},{who}\n'
        for vector, day, place, who in zip(VECTORS, DATES, (0, 1), ("ann", "bob"), strict=True)
    )
    arrays = {"e": np.array(VECTORS), "since": np.array(DATES), "income": np.array([0, 1]), "person": subjects}
    np.savez(tmp_path / "rows.npz", **arrays)
    for kind, path in (("csv", csv_file(tmp_path, text)), ("npz", tmp_path / "rows.npz")):
        found = everything(path, kind, EMBEDDED)
        np.testing.assert_array_equal(found[0], features)
        assert found[1:] == (labels, subjects)
    for lists in (pa.large_list(pa.float32()), pa.list_(pa.float64(), 2), pa.list_(pa.int8())):
        found = everything(embedded(tmp_path, e=pa.array(VECTORS, lists)), "parquet", EMBEDDED)
        np.testing.assert_array_equal(found[0], features)


@each(
    ("columns", "error"),
    [
        ({"e": [[1.0], [2.0, 3.0]]}, InputInvalid),
        ({"e": [[1.0], [2.0, 3.0, 4.0]]}, RowInvalid),
        ({"e": [[1.0, None], [2.0, 3.0]]}, RowInvalid),
        ({"e": [None, [2.0, 3.0]]}, InputInvalid),
        ({"e": [["a", "b"], ["c", "d"]]}, SchemaInvalid),
        ({"e": [[[1.0, 2.0]], [[2.0, 3.0]]]}, SchemaInvalid),
        ({"e": [1.0, 2.0]}, SchemaInvalid),
        ({"since": [1.0, 2.0]}, SchemaInvalid),
    ],
)
def test_lists_that_are_not_vectors_are_refused(tmp_path: Path, columns: Any, error: type[InputInvalid]) -> None:
    """A vector column refuses lists of the wrong length, lists with missing values, lists of strings, nested lists, and
    values that are not lists."""
    with pytest.raises(error):
        list(read(embedded(tmp_path, **columns), "parquet", EMBEDDED))


def test_a_parquet_file_needs_its_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no installed feature reads Parquet, a Parquet file is refused on the basis of its name."""
    monkeypatch.setattr(sockets, "plugs", lambda *socket: ())
    with pytest.raises(InputInvalid):
        ingest.kind_of("a.parquet")
