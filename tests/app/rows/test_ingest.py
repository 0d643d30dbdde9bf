import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from app.rows import ingest
from app.rows.formats import BATCH_ROWS
from lethe.contract.problems import DatasetUnusable, InputInvalid, Problem, RowInvalid, SchemaInvalid
from lethe.encoding.schema import parse_schema
from tests.app.rows.written import HEADER, csv_file, everything, read, refused

ADULT = Path(__file__).parents[3] / "examples" / "adult"
CSV = HEADER + "ann,25,some,,low\nbob,,none,a note,high\n"
in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


# --- accepted files --------------------------------------------------------------------------------------------------


def test_the_file_suffix_determines_the_type() -> None:
    """The file suffix, in upper or lower case, determines the file type; names with any other suffix are refused."""
    assert [ingest.kind_of(name) for name in ("a.csv", "b.v2.Csv")] == ["csv", "csv"]
    for name in ("a", "a.csv.gz", ".csv", "a.pkl", ""):
        with pytest.raises(InputInvalid):
            ingest.kind_of(name)


def test_files_are_read_in_batches(tmp_path: Path) -> None:
    """A file with more rows than fit in one batch is read in several batches, in order."""
    count = 2 * BATCH_ROWS + 5
    names = [f"p{number}" for number in range(count)]
    text = HEADER + "".join(f"{name},1,some,,low\n" for name in names)
    assert everything(csv_file(tmp_path, text), "csv")[2] == names


def test_csv_accepts_quotes_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    """A CSV file can contain quoted fields, Windows line endings, blank lines, a byte order mark, and columns in any
    order."""
    text = '\ufeffage,person,income,work,note\r\n25,"a, ""n"" n",low,some,"two\r\nlines"\r\n\r\n,bob,high,none,'
    features, labels, subjects = everything(csv_file(tmp_path, text), "csv")
    np.testing.assert_array_equal(features, everything(csv_file(tmp_path, CSV), "csv")[0])
    assert (labels, subjects) == ([0, 1], ['a, "n" n', "bob"])


@pytest.mark.slow
def test_the_adult_example_is_read() -> None:
    """The two files of the Adult example contain the number of rows, labels and people stated in its README."""
    schema = parse_schema(json.loads((ADULT / "schema.json").read_text()))
    for name, counts in (("train", [24_720, 7_841]), ("test", [12_435, 3_846])):
        features, labels, subjects = everything(ADULT / f"{name}.csv", "csv", schema)
        assert features.shape == (sum(counts), 105)
        assert [Counter(labels)[label] for label in (0, 1)] == counts
        assert len(set(subjects)) == sum(counts)
        ingest.check_learnable(counts, schema.classes)


# --- refused files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ("cid,x,some,,low", "line 6, column age"),
        ("cid,101,some,,low", "line 6, column age"),
        ("cid,1,else,,low", "line 6, column work"),
        ("cid,1,,,low", "line 6, column work"),
        ("cid,1,some,,middle", "line 6, column income"),
        ("cid,1,some,,", "line 6, column income"),
        (",1,some,,low", "line 6, column person"),
        ("c\0d,1,some,,low", "line 6, column person"),
        ("cid,1,some,low", "line 6"),
        ("cid,1,some,,low,", "line 6"),
        ('cid,1,some,"x"y,low', "line 6"),
        ('cid,1,some,"x', "line 6"),
        (f"cid,1,some,{'x' * 200_000},low", "line 6"),
    ],
)
def test_a_bad_csv_row_is_reported_by_its_line(tmp_path: Path, row: str, place: str) -> None:
    """A bad row is reported by the number of its first line; blank lines and lines within quotes are counted."""
    text = HEADER + 'ann,25,some,"two\nlines",low\n\nbob,,none,,high\n' + row + "\n"
    assert refused(csv_file(tmp_path, text), "csv", RowInvalid) == [place]


@pytest.mark.parametrize("name", ["4.86E+17", "4,86E+17", "4.86e+17", "4E+17", "-1.5E+16", "4711.0", "\u200b4711.00 "])
def test_ids_rewritten_as_numbers_are_refused(tmp_path: Path, name: str) -> None:
    """A file with an id that a spreadsheet or data frame has rewritten as a number is refused, and the error names the
    row."""
    wrong = "expected an id as text: a spreadsheet or data frame wrote this one as a number"
    csv = csv_file(tmp_path, f'{HEADER}4711,25,some,,low\n"{name}",25,some,,high\n')
    with pytest.raises(RowInvalid, match=f"^line 3, column person: {wrong}") as refusal:
        list(read(csv, "csv"))
    assert len(refusal.value.errors) == 1


@pytest.mark.parametrize("name", ["4711", "486000000000000000", "12e5", "4.86E", "1.2.0", "v4.0", "0.5", "4E+x"])
def test_codes_that_resemble_numbers_are_ids(tmp_path: Path, name: str) -> None:
    """Whole numbers, codes that contain an e but no sign, and numbers with dots are accepted as ids."""
    assert everything(csv_file(tmp_path, f"{HEADER}{name},25,some,,low\nbob,25,some,,high\n"), "csv")[2][0] == name


def test_twenty_faults_are_collected(tmp_path: Path) -> None:
    """A file with many faults is refused, and the error lists the first twenty."""
    assert len(refused(csv_file(tmp_path, HEADER + "ann,x,some,,low\n" * 50), "csv", RowInvalid)) == 20


@pytest.mark.parametrize(
    ("header", "places"),
    [
        ("person,age,work,note,income,more", ["line 1, column 6"]),
        ("person,age,work,note,age,income", ["line 1, column 5"]),
        ("person,age,work,note", ["line 1, column income"]),
        ("person,years,work,note,income", ["line 1, column age", "line 1, column 2"]),
    ],
)
def test_csv_columns_must_match_the_schema(tmp_path: Path, header: str, places: list[str]) -> None:
    """The error names a missing column, and states only the position of an undeclared or repeated column."""
    assert refused(csv_file(tmp_path, header + "\n"), "csv", SchemaInvalid) == places


def test_a_csv_without_a_header_reveals_no_record(tmp_path: Path) -> None:
    """If a CSV file begins with a record instead of a header, the error does not quote it."""
    with pytest.raises(SchemaInvalid) as refusal:
        list(read(csv_file(tmp_path, "ann,25,some,secret,low\n"), "csv"))
    told = refusal.value.detail + str(refusal.value.errors)
    assert not any(value in told for value in ("ann", "25", "some", "secret", "low"))


@pytest.mark.parametrize("data", [b"", b"\n\n", CSV.encode("utf-16"), HEADER.encode() + b"\xff,1,some,,low\n"])
def test_a_file_that_is_not_csv_text_is_refused(tmp_path: Path, data: bytes) -> None:
    """An empty file and a file that is not UTF-8 are each refused with a specific message."""
    refused(csv_file(tmp_path, data), "csv", InputInvalid)


def test_a_csv_file_needs_a_schema(tmp_path: Path) -> None:
    """A CSV file without a schema is refused."""
    assert refused(csv_file(tmp_path, CSV), "csv", SchemaInvalid, None) == ["schema"]


def damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    """Return random bytes, a truncated file, or a file in which some bytes are overwritten."""
    cut = st.integers(0, len(whole)).map(lambda end: whole[:end])
    place = st.integers(0, len(whole) - 1)
    hit = st.tuples(place, st.binary(min_size=1, max_size=4)).map(
        lambda blow: whole[: blow[0]] + blow[1] + whole[blow[0] + len(blow[1]) :]
    )
    return st.binary() | cut | hit


@in_one_folder
@given(st.data())
def test_a_corrupt_file_raises_only_named_conditions(tmp_path: Path, data: st.DataObject) -> None:
    """Reading random bytes, truncated files and files with overwritten bytes raises no exceptions other than
    `Problem`."""
    path = csv_file(tmp_path, CSV)
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    with suppress(Problem):
        for batch in read(path, "csv"):
            assert np.isfinite(batch.features).all()


# --- learnable rows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "classes", "sentence"),
    [
        ([], (), "There are no rows, or all have the weight 0."),
        ([0, 0], ("low", "high"), "There are no rows, or all have the weight 0."),
        ([5], (0,), "All rows of weight above 0 have the same label; two classes or more are needed."),
        ([0, 5], ("low", "high"), "All rows of weight above 0 have the same label; two classes or more are needed."),
        ([3, 0, 4], ("low", "middle", "high"), "class middle: never occurs in a row of weight above 0."),
        ([3, 4, 0, 1], range(4), "class 2: never occurs in a row of weight above 0."),
    ],
)
def test_rows_unusable_for_training_are_refused(counts: list[int], classes: Any, sentence: str) -> None:
    """An upload without rows, with rows of only one class, or with a class that has no rows is refused, and the error
    names the class."""
    with pytest.raises(DatasetUnusable) as refusal:
        ingest.check_learnable(counts, classes)
    assert refusal.value.detail == sentence


def test_rows_of_every_class_are_sufficient() -> None:
    """A dataset with rows of every class can be used for training."""
    ingest.check_learnable([1, 1, 1], ("low", "middle", "high"))
