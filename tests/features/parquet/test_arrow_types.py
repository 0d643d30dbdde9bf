"""Arrow types in a parquet file: each is read as its value, or refused by column and type."""

import datetime
import io
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lethe.encoding.columns import seconds

COLUMNS: dict[str, Any] = {
    "age": {"kind": "numeric", "min": 0, "max": 100},
    "work": {"kind": "categorical", "values": ["state", "private"]},
    "since": {"kind": "datetime", "min": "2000-01-01", "max": "2030-01-01", "outside": "clip"},
    "points": {"kind": "vector", "length": 2},
    "income": {"role": "label", "values": ["low", "high"]},
    "person": {"role": "subject"},
}
ROWS: dict[str, Any] = {
    "age": [31.5, 42.0],
    "work": ["state", "private"],
    "since": ["2010-01-02", "2011-01-02"],
    "points": [[1.0, 2.0], [3.0, 4.0]],
    "income": ["low", "high"],
    "person": ["ann", "bob"],
}
DAYS = [datetime.datetime.fromisoformat(day) for day in ("2010-01-02", "2011-01-02")]


@pytest.fixture
def send(gateway: Any) -> Callable[..., httpx.Response]:
    """Return a function that uploads `ROWS` as Parquet, with some columns replaced."""

    def of(writing: dict[str, Any] | None = None, **replaced: Any) -> httpx.Response:
        buffer = io.BytesIO()
        pq.write_table(pa.table(ROWS | replaced), buffer, **(writing or {}))
        data = {"name": "people", "schema": json.dumps({"columns": COLUMNS})}
        answer: httpx.Response = gateway.post(
            "/v1/datasets", data=data, files={"file": ("r.PARQUET", buffer.getvalue())}
        )
        return answer

    return of


READ: dict[str, dict[str, Any]] = {
    "half floats": {"age": pa.array(np.array([31.5, 42.0], np.float16))},
    "decimals": {"age": pa.array([Decimal("31.50"), Decimal("42.00")], pa.decimal128(9, 2))},
    "views of texts": {name: pa.array(ROWS[name], pa.string_view()) for name in ("work", "income", "person")},
    "dictionaries": {name: pa.array(ROWS[name]).dictionary_encode() for name in ("age", "work", "since", "income")},
    "lists of fixed size": {"points": pa.array(ROWS["points"], pa.list_(pa.float32(), 2))},
    "lists of half floats": {"points": pa.array([np.array(row, np.float16) for row in ROWS["points"]])},
    "texts with nine digits of a second": {"since": ["2010-01-02T00:00:00.000000000", "2011-01-02T00:00:00.0000000"]},
    "times in nanoseconds": {"since": pa.array(DAYS, pa.timestamp("ns"))},
    "dictionaries of times": {"since": pa.array(DAYS).dictionary_encode()},
    "times of a zone that only the file knows": {"since": pa.array(DAYS, pa.timestamp("us", "US/Pacific-New"))},
    "dates": {"since": pa.array([day.date() for day in DAYS], pa.date32())},
}


@pytest.mark.parametrize("kind", READ)
def test_columns_of_supported_types_are_read(send: Callable[..., httpx.Response], kind: str) -> None:
    """Columns of each supported type are accepted and read like plain numbers, strings and lists."""
    answer = send(**READ[kind])
    assert answer.status_code == 201, answer.text
    assert answer.json()["num_records"] == 2


def test_times_are_seconds_in_utc() -> None:
    """Times are read as seconds since 1970 in UTC, whatever their unit, time zone and year. Missing times are read as
    NaN."""
    plain = seconds(["2010-01-02T03:04:05.123456", None])
    ticks = [1262401445123456, None]
    for zone in (None, "Europe/Berlin", "US/Pacific-New", "+02:00"):
        for unit, factor in (("us", 1), ("ns", 1000)):
            values = pa.array([tick and tick * factor for tick in ticks], pa.timestamp(unit, zone))
            for form in (values, values.dictionary_encode(), pa.chunked_array([values])):
                np.testing.assert_array_equal(seconds(form), plain)
    np.testing.assert_array_equal(seconds(pa.array([2**40], pa.timestamp("s"))), [2.0**40])
    np.testing.assert_array_equal(seconds(pa.array([2**31 - 1], pa.date32())), [(2**31 - 1) * 86400.0])
    np.testing.assert_array_equal(seconds(pa.array([86_400_000], pa.date64())), [86400.0])


def test_a_time_after_the_year_9999_is_clipped(send: Callable[..., httpx.Response]) -> None:
    """A time after the year 9999, which Python cannot represent, is clipped like any other out-of-range time."""
    assert send(since=pa.array([2**62, 0], pa.timestamp("us"))).status_code == 201


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "bytes": (
        {"work": [b"state", b"private"]},
        "schema_invalid",
        "column work: expected text or numbers; found binary",
    ),
    "a struct": ({"age": [{"a": 1}, {"a": 2}]}, "schema_invalid", "column age: expected text or numbers; found struct"),
    "numbers as dates": (
        {"since": [1, 2]},
        "schema_invalid",
        "column since: expected dates, times or text; found int64",
    ),
    "texts in lists": ({"points": [["1"], ["2"]]}, "schema_invalid", "column points: expected lists of numbers; found"),
    "a list too short": ({"points": [[1.0, 2.0], [3.0]]}, "row_invalid", "column 4: expected 2 values in each row"),
    "a missing list": (
        {"points": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2))},
        "row_invalid",
        "column 4: expected 2 values in each row, none of them missing",
    ),
    "a delta encoding": (
        {"writing": {"use_dictionary": False, "column_encoding": {"person": "DELTA_BYTE_ARRAY"}}},
        "input_invalid",
        "write it with plain or dictionary encoding",
    ),
    "pandas' index": (
        {"__index_level_0__": [5, 6]},
        "schema_invalid",
        "'__index_level_0__' is not declared in the schema; declare it",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_the_error_for_an_unsupported_type_names_the_column(send: Callable[..., httpx.Response], kind: str) -> None:
    """The error for an unsupported type names the column and its type, and does not call the file damaged."""
    sent, code, fault = REFUSED[kind]
    problem = send(**sent).json()
    assert problem["code"] == code
    assert fault in problem["detail"]
