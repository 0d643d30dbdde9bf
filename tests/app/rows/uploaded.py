"""Small uploads of every kind that are accepted, for tests that break them, and the rows that they produce."""

import io
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fastapi.testclient import TestClient

from tests.stored import rows_of, slots_of

SCHEMA = {
    "columns": {
        "age": {"kind": "numeric", "min": 0, "max": 100},
        "work": {"kind": "categorical", "values": ["state", "private"]},
        "income": {"role": "label", "values": ["low", "high"]},
        "person": {"role": "subject"},
        "note": {"role": "ignored"},
    }
}
HEADER = "person,age,work,income,note\n"
CSV = HEADER + "ann-7319,31,state,low,secret-4242\nbob-7319,42,private,high,secret-4242\n"
PRIVATE = ("7319", "4242")  # part of every record, and never of a response
PEOPLE = ["ann-7319", "bob-7319"]


def npz(**replaced: Any) -> bytes:
    arrays: dict[str, Any] = {"x": np.array([[1.0, 2.0], [3.0, 4.0]]), "y": np.array([0, 1]), "subject": PEOPLE}
    buffer = io.BytesIO()
    np.savez(buffer, **(arrays | replaced))
    return buffer.getvalue()


def parquet(options: dict[str, Any] | None = None, **replaced: Any) -> bytes:
    columns: dict[str, Any] = {"person": PEOPLE, "age": [31, 42], "work": ["state", "private"]}
    columns |= {"income": ["low", "high"], "note": ["secret-4242"] * 2}
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns | replaced), buffer, **(options or {}))
    return buffer.getvalue()


def rows_sent(client: TestClient, sent: httpx.Response) -> bytes:
    """Return the stored features and labels of an upload, in the order of `PEOPLE`."""
    at, dataset_id = client.app.state.installation, sent.json()["id"]
    rows, slots = rows_of(at, dataset_id), slots_of(at, dataset_id, *PEOPLE)
    return rows.features[slots].tobytes() + rows.labels[slots].tobytes()
