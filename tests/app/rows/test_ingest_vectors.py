import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lethe.contract.problems import InputInvalid, RowInvalid, SchemaInvalid
from lethe.encoding.schema import parse_schema
from tests.app.rows.written import csv_file, everything, read, refused
from tests.tables import each

EMBEDDED = parse_schema(
    {
        "columns": {
            "e": {"kind": "vector", "length": 2, "center": 1, "scale": 2},
            "since": {"kind": "datetime", "min": "2000-01-01", "max": "2000-01-05"},
            "income": {"role": "label", "values": ["0", "1"]},
            "person": {"role": "subject"},
        }
    }
)
VECTORS = [[1.0, 2.0], [3.0, 4.0]]
DATES = ["2000-01-02", "2000-01-03"]


def embedded(folder: Path, **columns: object) -> Path:
    dates = [datetime.date.fromisoformat(day) for day in DATES]
    rows: dict[str, object] = {"e": VECTORS, "since": dates, "income": [0, 1], "person": ["ann", "bob"]}
    pq.write_table(pa.table(rows | columns), folder / "rows.parquet")
    return folder / "rows.parquet"


def test_vectors_and_times_agree_in_all_formats(tmp_path: Path) -> None:
    """Embeddings and dates give the same rows from parquet, csv and npz."""
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
def test_lists_that_are_no_vectors_are_refused(tmp_path: Path, columns: Any, error: type[InputInvalid]) -> None:
    """A list of another length, with a gap, of texts or of lists, and what is no list, is refused."""
    with pytest.raises(error):
        list(read(embedded(tmp_path, **columns), "parquet", EMBEDDED))


@each(
    "arrays",
    [
        {"e": np.ones((2, 3))},
        {"e": np.ones(2)},
        {"e": np.array([["a", "b"]] * 2)},
        {"since": np.ones((2, 1))},
        {"income": np.array([0, 1, 1])},
        {"person": np.array([1 + 2j, 1])},
    ],
)
def test_arrays_of_another_shape_are_refused(tmp_path: Path, arrays: Any) -> None:
    """An array of an npz table that has another shape or type than its column is refused by its name."""
    rows = {
        "e": np.array(VECTORS),
        "since": np.array(DATES),
        "income": np.array([0, 1]),
        "person": np.array(["a", "b"]),
    }
    np.savez(tmp_path / "rows.npz", **(rows | arrays))
    assert refused(tmp_path / "rows.npz", "npz", InputInvalid, EMBEDDED)[0] in EMBEDDED.declared
