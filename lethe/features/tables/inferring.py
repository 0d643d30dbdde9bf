"""Schemas proposed from a public sample: a file, or a frame from pandas, polars or Arrow. Review them before use.

A schema is public and is kept after people are forgotten. The sample must therefore contain no rows of people who might
ask to be forgotten: use published statistics, a synthetic table, or records of the people who make the sample.
"""

import csv
import datetime
import io
import math
import zipfile
import zlib
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from lethe.client.files import Frame, arrow
from lethe.contract.fields import expected
from lethe.contract.problems import FieldError, InputInvalid
from lethe.encoding import columns as values
from lethe.encoding.columns import check_csv


def columns_of(table: str | Path | Frame) -> dict[str, Any]:
    """Return a table's columns, keyed by name, in the form that `lethe.encoding` reads. Raises `InputInvalid` if the
    file is damaged or of an unknown type, without quoting its content."""
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


_MAX_CATEGORIES = 12
"""Maximum number of distinct whole numbers that are treated as categories."""
_MAX_LISTED = 50
"""Maximum number of distinct texts that are listed as categories."""
_HASHED_FEATURES = 256
"""Number of features of a hashed column; n-grams get sixteen times as many."""
_MIN_PROSE_WORDS = 3.0
"""Minimum mean number of words for texts to be treated as prose."""
_IGNORED = {"role": "ignored"}
_MAX_NAMED = 20
"""Maximum number of columns named in an error."""
_PER_SCALE = 1.349
"""Interquartile range of a normal distribution, in standard deviations."""


def infer(
    table: str | Path | Frame,
    *,
    label: str | None = None,
    labels: str | None = None,
    target: str | None = None,
    counts: str | None = None,
    separator: str = ";",
    subject: str | None = None,
    weight: str | None = None,
    weight_bound: float | None = None,
    stated: Mapping[str, Mapping[str, Any]] | None = None,
    public: bool = True,
) -> dict[str, Any]:
    """Return a schema for tables like a public sample, as a document to edit.

    Exactly one column is predicted: a `label`, several `labels` joined by `separator`, a `target` whose range is taken
    from the sample, or `counts` from 0 to the sample's maximum. Numbers are standardized by their median and a scale
    derived from their quartiles, both to two digits; whole numbers and texts with few distinct values are listed; prose
    becomes n-grams, and other texts are hashed. Columns with a single value or an unsupported type are ignored.
    `weight_bound`, the bound on the column `weight`, is never read from the sample.

    `stated` describes columns in schema form; their values are not read. Unless `public`, only column names are read,
    and every column must be stated. Raises `InputInvalid` for a column that is unknown or must be stated but is not.
    """
    columns = columns_of(table)
    roles = {"label": label, "labels": labels, "target": target, "counts": counts}
    learned = {role: name for role, name in roles.items() if name}
    if len(learned) != 1:
        raise InputInvalid(
            "A model learns one column.", [FieldError("label", "expected one of label, labels, target and counts")]
        )
    [(role, name)] = learned.items()
    specs = {column: dict(spec) for column, spec in (stated or {}).items()}
    if name in specs:
        more = {"separator": separator} if labels else {"counts": True} if counts else {}
        specs[name] = {"role": "target" if counts else role} | specs[name] | more
    if subject is not None:
        specs[subject] = {"role": "subject"}
    if (weight is None) != (weight_bound is None):
        raise InputInvalid(
            "A column of weights has a bound.", [FieldError("weight_bound", "expected it and weight, or neither")]
        )
    if weight is not None:
        specs[weight] = {"role": "weight", "max": weight_bound}
    stated_names = [("stated", column) for column in specs]
    for argument, column in ((role, name), ("subject", subject), ("weight", weight), *stated_names):
        if column is not None and column not in columns:
            fault = FieldError(argument, expected(columns, found=column))
            raise InputInvalid(f"There is no column for the {argument}.", [fault])
    unstated = [column for column in columns if column not in specs]
    if unstated and not public:
        raise InputInvalid(
            "A schema is kept after people are forgotten: confirm that nobody in this file may ask to be forgotten, or "
            f"state each column: {', '.join(unstated[:_MAX_NAMED])}.",
            [FieldError("public", "expected a confirmation, or a statement of each column")],
        )
    inferred = {
        column: _infer_learned(columns[column], role, separator) if column == name else _infer_kind(columns[column])
        for column in unstated
    }
    return {"columns": inferred | specs}


def parse_range(text: str) -> dict[str, Any] | None:
    """Return a numeric or date column's settings for a range such as "17..90", or None for any other text."""
    ends = [end.strip() for end in text.split("..")]
    for kind, read in (("numeric", values.numbers), ("datetime", values.seconds)):
        numbers = read(ends).tolist()
        if len(numbers) == 2 and all(map(math.isfinite, numbers)) and numbers[0] < numbers[1]:
            low, high = numbers if kind == "numeric" else ends
            return {"kind": kind, "min": low, "max": high, "outside": "clip"}
    return None


def _infer_learned(column: Any, role: str, separator: str) -> dict[str, Any]:
    if role == "target":
        numbers = values.numbers(column)
        finite = numbers[np.isfinite(numbers)]
        if len(finite) < len(numbers) or np.ptp(finite) == 0:
            raise InputInvalid("The target is not a number in each row.", [FieldError("target", "expected numbers")])
        low, high = float(finite.min()), float(finite.max())
        place = 10.0 ** (math.floor(math.log10(high - low)) - 1)
        ends = {"min": _rounded(math.floor(low / place) * place, 10 * place)}
        return {"role": role} | ends | {"max": _rounded(math.ceil(high / place) * place, 10 * place), "outside": "clip"}
    if role == "counts":
        numbers = values.numbers(column)
        largest = float(numbers.max(initial=0))
        if not (0 < largest < math.inf and (numbers >= 0).all() and (numbers == np.rint(numbers)).all()):
            raise InputInvalid("The counts are not whole numbers.", [FieldError("counts", "expected 0, 1, 2, ...")])
        place = 10 ** max(0, math.floor(math.log10(largest)) - 1)
        bound = math.ceil(largest / place) * place
        return {"role": "target", "min": 0, "max": bound, "counts": True, "outside": "clip"}
    names = _distinct(column)
    if role == "labels":
        names = {name.strip() for text in names for name in text.split(separator)} - {""}
    if not names:
        raise InputInvalid(f"The {role} has no names.", [FieldError(role, "expected texts, booleans or whole numbers")])
    return {"role": role, "values": sorted(names)} | ({"separator": separator} if role == "labels" else {})


def _infer_kind(column: Any) -> dict[str, Any]:
    listed = values.listed(column)
    # NaN differs from itself.
    present = [value for value in listed if value is not None and value != "" and value == value]
    gap = {"unknown": "null"} if len(present) < len(listed) else {}
    if isinstance(column, np.ndarray) and column.ndim == 2:
        return _vector(column.astype(np.float64))
    if lists := [value for value in present if isinstance(value, list)]:
        return _vector_of(lists)
    if present and all(isinstance(value, datetime.date) for value in present):
        return _moments(values.seconds(present)) | gap if len(set(present)) > 1 or gap else _IGNORED
    texts = _distinct(column)
    if not texts or (len(texts) < 2 and not gap):
        return _IGNORED
    numbers = values.numbers(column)
    filled = numbers[~np.isnan(numbers)]
    if len(filled) and np.isfinite(filled).all():
        if len(texts) <= _MAX_CATEGORIES and (filled == np.round(filled)).all():
            return {"kind": "categorical", "values": sorted(texts, key=float), "unknown": "null"}
        return {"kind": "standard", **_scaling(filled)} | gap
    moments = values.seconds(column)
    if np.isfinite(moments[~np.isnan(moments)]).all() and not np.isnan(moments).all():
        return _moments(moments) | gap
    if len(texts) <= _MAX_LISTED:
        return {"kind": "categorical", "values": sorted(texts), "unknown": "null"}
    prose = [text for text in values.prose(column) if text]
    if prose and np.mean([len(text.split()) for text in prose]) >= _MIN_PROSE_WORDS:
        return {"kind": "text", "features": 16 * _HASHED_FEATURES, "words": [1, 2]} | gap
    return {"kind": "hashed", "features": _HASHED_FEATURES, "unknown": "null"}


def _moments(moments: Any) -> dict[str, Any]:
    first, last = np.nanmin(moments), np.nanmax(moments)
    return {"kind": "datetime", "min": _day(first), "max": _day(last + 86_400), "outside": "clip"}


def _vector_of(lists: list[list[Any]]) -> dict[str, Any]:
    """Describe a column of vectors. No schema accepts a missing vector: an upload with one fails, naming its line."""
    vectors = values.vectors(lists, len(lists[0]))
    return _vector(vectors) if vectors.size and np.isfinite(vectors).all() else _IGNORED


def _vector(vectors: Any) -> dict[str, Any]:
    return {"kind": "vector", "length": vectors.shape[1], **_scaling(vectors.ravel()), "clip": 3}


def _scaling(values: Any) -> dict[str, float]:
    low, center, high = np.quantile(values, [0.25, 0.5, 0.75])
    scale = (high - low) / _PER_SCALE or float(values.std()) or 1.0
    return {"center": _rounded(float(center), scale), "scale": _rounded(scale, scale)}


def _rounded(number: float, scale: float) -> float:
    """Round a number to the decimal place of the scale's second significant digit."""
    digits = 1 - math.floor(math.log10(scale))
    return round(number, digits)


def _day(second: float) -> str:
    return str(np.datetime64(int(second), "s").astype("datetime64[D]"))


def _distinct(column: Any) -> set[str]:
    return {text for text in map(_name, values.listed(column)) if text is not None}


def _name(value: object) -> str | None:
    """Return a value as written in a schema; floats and decimals that are whole numbers have no decimal point."""
    if isinstance(value, float | Decimal):
        if not math.isfinite(value):
            return None
        return str(int(value)) if value == int(value) else str(value)
    return values.text(value)
