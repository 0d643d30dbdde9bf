"""Labels, targets and weights of parquet files equal those of the same records in csv."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lethe.encoding.rows import labels_in, weights_in
from lethe.encoding.targets import UNIT
from tests.lethe.encoding.test_targets import CLIPPED, SEVERAL, labels_of
from tests.lethe.encoding.test_weights import read


def test_labels_of_a_cell_are_a_set(tmp_path: Path) -> None:
    """A cell's labels are read as a set. An empty or null cell has no labels, and integer labels are read as text."""
    cells = ["a", "7|a", "a | b c|a", None, "b c", "7"]
    pq.write_table(pa.table({"age": [1] * 6, "tags": cells}), tmp_path / "a.parquet")
    assert labels_of(tmp_path / "a.parquet", schema=SEVERAL) == [1, 5, 3, 0, 2, 4]
    pq.write_table(pa.table({"age": [1, 2], "tags": [7, 7]}), tmp_path / "b.parquet")
    assert labels_of(tmp_path / "b.parquet", schema=SEVERAL) == [4, 4]


def test_targets_are_read(tmp_path: Path) -> None:
    """Target values are read unchanged, or clipped to the range if the schema permits it."""
    table = {"age": [1, 2, 3, 4, 5], "cost": [0.0, 150.0, 100.0, 250.0, -1.0]}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    assert labels_of(tmp_path / "a.parquet", schema=CLIPPED) == [-UNIT, UNIT // 2, 0, UNIT, -UNIT]


def test_weights_are_read(tmp_path: Path) -> None:
    """Rows are read with the labels and weights of the table."""
    table = {"age": [1, 2, 3], "ill": ["no", "yes", "yes"], "w": [0.0, 8.0, 2.5]}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    rows = read(tmp_path / "a.parquet")
    assert labels_in(rows).tolist() == [0, 1, 1]
    weights = weights_in(rows)
    assert weights is not None
    assert weights.tolist() == [0, UNIT, 2.5 / 8 * UNIT]
