"""Columns of a table: a csv, parquet or npz file, or a frame of pandas, polars or Arrow."""

import csv
import io
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lethe.client.files import Frame, arrow
from lethe.contract.problems import FieldError, InputInvalid
from lethe.encoding.columns import check_csv


def columns_of(table: str | Path | Frame) -> dict[str, Any]:
    """Return the columns by name, in the form that `lethe.encoding` reads. Raises `InputInvalid` for a damaged file and
    one of another kind, without quoting its content."""
    if isinstance(table, Frame):
        columns = arrow(table)
        return {name: columns.column(name).combine_chunks() for name in columns.column_names}
    path = Path(table)
    kind = path.suffix.lower()
    if kind not in _READERS:
        raise InputInvalid(
            "The file name must end in .csv, .parquet or .npz.",
            [FieldError("table", "expected a name that ends in .csv, .parquet or .npz, or a frame")],
        )
    try:
        return _READERS[kind](path)
    except (ValueError, EOFError, csv.Error, zipfile.BadZipFile, zlib.error):
        raise InputInvalid(
            f"The file is damaged or is not a {kind} file.", [FieldError("table", f"expected a whole {kind} file")]
        ) from None


def _csv(path: Path) -> dict[str, Any]:
    with path.open("rb") as pieces:
        check_csv(pieces.peek(), "table")
        file = io.TextIOWrapper(pieces, encoding="utf-8-sig", newline="")
        header, *rows = (fields for fields in csv.reader(file, strict=True) if fields)
    if any(len(fields) != len(header) for fields in rows):
        raise ValueError("Expected as many fields in each row as in the header")
    return {name: [fields[place] for fields in rows] for place, name in enumerate(header)}


def _parquet(path: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    return columns_of(pq.read_table(path))


def _npz(path: Path) -> dict[str, Any]:
    import numpy as np

    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


_READERS: dict[str, Callable[[Path], dict[str, Any]]] = {".csv": _csv, ".parquet": _parquet, ".npz": _npz}
