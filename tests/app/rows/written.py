from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.rows import ingest
from app.rows.formats import BATCH_ROWS, Batch, Kind
from lethe.contract.problems import InputInvalid
from lethe.encoding.rows import Schema
from lethe.encoding.schema import parse_schema

SCHEMA = parse_schema(
    {
        "columns": {
            "age": {"kind": "numeric", "min": 0, "max": 100, "unknown": "null"},
            "work": {"kind": "categorical", "values": ["none", "some"]},
            "income": {"role": "label", "values": ["low", "high"]},
            "person": {"role": "subject"},
            "note": {"role": "ignored"},
        }
    }
)
CLASSES = ("low", "high")
HEADER = "person,age,work,note,income\n"


def read(path: Path, kind: Kind, schema: Schema | None = SCHEMA, **limits: int) -> Iterator[Batch]:
    with path.open("rb", buffering=0) as file:
        yield from ingest.read(file, kind=kind, schema=schema, classes=CLASSES, folder=path.parent, **limits)


def everything(path: Path, kind: Kind, schema: Schema | None = SCHEMA) -> tuple[Any, list[int], list[str | None]]:
    batches = list(read(path, kind, schema))
    assert all(len(batch.labels) <= BATCH_ROWS for batch in batches)
    return (
        np.vstack([batch.features for batch in batches]),
        [label for batch in batches for label in batch.labels.tolist()],
        [subject for batch in batches for subject in batch.subjects],
    )


def refused(path: Path, kind: Kind, error: type[InputInvalid], schema: Schema | None = SCHEMA) -> list[str]:
    """Check that the file is refused, and return the locations of its faults."""
    with pytest.raises(error) as refusal:
        list(read(path, kind, schema))
    return [fault.path for fault in refusal.value.errors]


def csv_file(folder: Path, text: str | bytes) -> Path:
    path = folder / "rows.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def npz_file(folder: Path, **arrays: Any) -> Path:
    rows = {"x": np.array([[3.0, 4.0], [0.0, 1.0]]), "y": np.array([0, 1]), "subject": np.array(["ann", "bob"])}
    np.savez_compressed(folder / "rows.npz", allow_pickle=True, **{**rows, **arrays})
    return folder / "rows.npz"
