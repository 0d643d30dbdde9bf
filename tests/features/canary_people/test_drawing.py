"""Invented people: ordinary values, independent columns, and ids like any other."""

import datetime
import math

import numpy as np
import pyarrow as pa
import pytest

from lethe.features.canary_people import drawing
from lethe.proof.errors import DomainError, InfeasibleError


def table() -> pa.Table:
    moments = [datetime.datetime(2026, 1, day, tzinfo=datetime.UTC) for day in range(1, 11)]
    return pa.table(
        {
            "id": [f"cus_{number}" for number in range(10_000, 10_010)],
            "a": pa.array([1, 2, 3, 4, None] * 2, pa.int8()),
            "b": [0.5, math.nan, None, 1.5, 2.5] * 2,
            "c": pa.array(["x", "y", "x", "x", "x"] * 2).dictionary_encode(),
            "seen": moments,
            "empty": pa.nulls(10, pa.string()),
            "copy": pa.array([1, 2, 3, 4, None] * 2, pa.int8()),
        }
    )


def test_canaries_have_the_values_and_types_of_the_table() -> None:
    """Each value of a canary occurs in its column, has the column's type, and is never null or NaN. Values that are
    rare in the table are as frequent among the canaries as common values."""
    rows = table().drop_columns(["id"])
    drawn = drawing.draw(rows, number=100, rng=np.random.default_rng(1))
    assert (drawn.planted.num_rows, drawn.never.num_rows) == (100, drawing.NUM_NEVER)
    for group in (drawn.planted, drawn.never):
        assert group.schema == rows.schema
        for name in set(rows.column_names) - {"empty"}:
            values = group.column(name).to_pylist()
            assert set(values) <= set(rows.column(name).to_pylist())
            assert not any(value is None or value != value for value in values)
    assert 400 < drawn.never.column("c").to_pylist().count("y") < 600


def test_columns_are_independent() -> None:
    """If a column of the table is a copy of another, the two columns are still independent in the canaries."""
    drawn = drawing.draw(table(), number=20, rng=np.random.default_rng(2)).never
    pairs = set(zip(drawn.column("a").to_pylist(), drawn.column("copy").to_pylist(), strict=True))
    assert len(pairs) == 16


def test_canary_ids_are_new_and_resemble_existing_ids() -> None:
    """Canary ids are new and distinct. They have the same format as the existing ids: the same prefixes, lengths, UUID
    versions and number range."""
    rng = np.random.default_rng(3)
    uuids = [f"{number:08x}-0000-4000-8000-{number * 7919:012x}" for number in range(2**20, 2**20 + 600)]
    made = drawing.ids_like(uuids, 300, rng)
    assert len({*made, *uuids}) == 900
    assert all(len(name) == 36 and name[14] == "4" and name.count("-") == 4 for name in made)
    numbers = pa.table({"id": pa.array(range(1000, 3000, 2), pa.int32()), "a": [1] * 1000})
    drawn = drawing.draw(numbers, number=50, rng=rng, id_column="id")
    found = drawn.planted.column("id").to_pylist() + drawn.never.column("id").to_pylist()
    assert len({*found, *range(1000, 3000, 2)}) == len(found) + 1000
    assert min(found) >= 1000
    assert max(found) < 10_000


def test_too_few_unused_ids_are_refused() -> None:
    """If there are too few unused ids in the table's format, an error is raised instead of using ids in another
    format."""
    with pytest.raises(InfeasibleError, match="unused ids"):
        drawing.ids_like(["p1", "p2"], 1, np.random.default_rng(4))


@pytest.mark.parametrize("number", [19, 201])
def test_group_sizes_without_an_exact_test_are_refused(number: int) -> None:
    """Groups that are too small to detect anything or too large to judge exactly are refused."""
    with pytest.raises(DomainError):
        drawing.draw(table(), number=number, rng=np.random.default_rng(5))


def test_planted_rows_are_spread_over_the_table() -> None:
    """Canary rows are spread over the whole training table."""
    rows, planted = pa.table({"a": [0] * 900}), pa.table({"a": [1] * 100})
    mixed = drawing.mixed(rows, planted, np.random.default_rng(6)).column("a").to_numpy()
    assert mixed.sum() == 100
    assert all(0 < part.sum() < 60 for part in np.split(mixed, 4))
