"""A schema, proposed from a public sample: a file to look through and edit, never to be used as it is.

A schema is public and outlives everybody it was read from. So the sample must be of nobody who may ever ask to be
forgotten: published statistics, a synthetic table, records of the makers themselves.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from lethe.contract.problems import FieldError, InputInvalid
from lethe.contract.spelling import expected
from lethe.encoding import values
from lethe.frames import Frame
from lethe.tables.reading import columns_of

_FEW = 12
"""Distinct whole numbers up to which they are taken for names of categories."""
_LISTED = 50
"""Distinct texts up to which they are listed."""
_PLACES = 256
"""Features of a hashed column; of n-grams, sixteen times as many."""
_WORDS = 3.0
"""Mean number of words from which a text is prose."""
_PER_SCALE = 1.349
"""Interquartile range of a normal column, in standard deviations."""


def infer(table: str | Path | Frame, *, label: str, subject: str | None = None) -> dict[str, Any]:
    """A schema for tables like this public sample, as a document to edit.

    Numbers are standardized by their median and a scale from their quartiles, both to two digits; whole numbers and
    texts of few different values are listed; prose becomes n-grams, other texts are hashed. Columns with one value only
    are ignored. Raises `InputInvalid` for a label or subject that is no column.
    """
    columns = columns_of(table)
    for name, role in ((label, "label"), (subject, "subject")):
        if name is not None and name not in columns:
            raise InputInvalid(f"There is no column for the {role}.", [FieldError(role, expected(columns, found=name))])
    found: dict[str, Any] = {name: _kind(column) for name, column in columns.items() if name not in (label, subject)}
    found[label] = {"role": "label", "values": sorted(_distinct(columns[label]))}
    if subject is not None:
        found[subject] = {"role": "subject"}
    return {"columns": found}


def _kind(column: Any) -> dict[str, Any]:
    listed = values.listed(column)
    gap = {"unknown": "null"} if any(value is None or value == "" for value in listed) else {}
    if isinstance(column, np.ndarray) and column.ndim == 2:
        return _vector(column.astype(np.float64))
    if all(isinstance(value, list) for value in listed):
        return _vector(np.array(listed, dtype=np.float64))
    texts = _distinct(column)
    if len(texts) < 2 and not gap:
        return {"role": "ignored"}
    numbers = values.numbers(column)
    known = numbers[~np.isnan(numbers)]
    if len(known) and np.isfinite(known).all():
        if len(texts) <= _FEW and (known == np.round(known)).all():
            return {"kind": "categorical", "values": sorted(texts, key=float), "unknown": "null"}
        return {"kind": "standard", **_scaling(known)} | gap
    moments = values.seconds(column)
    if np.isfinite(moments[~np.isnan(moments)]).all() and not np.isnan(moments).all():
        first, last = np.nanmin(moments), np.nanmax(moments)
        return {"kind": "datetime", "min": _day(first), "max": _day(last + 86_400), "outside": "clip"} | gap
    if len(texts) <= _LISTED:
        return {"kind": "categorical", "values": sorted(texts), "unknown": "null"}
    prose = [text for text in values.prose(column) if text]
    if prose and np.mean([len(text.split()) for text in prose]) >= _WORDS:
        return {"kind": "text", "features": 16 * _PLACES, "words": [1, 2]} | gap
    return {"kind": "hashed", "features": _PLACES, "unknown": "null"}


def _vector(vectors: Any) -> dict[str, Any]:
    return {"kind": "vector", "length": vectors.shape[1], **_scaling(vectors.ravel()), "clip": 3}


def _scaling(known: Any) -> dict[str, float]:
    low, center, high = np.quantile(known, [0.25, 0.5, 0.75])
    scale = (high - low) / _PER_SCALE or float(known.std()) or 1.0
    return {"center": _rounded(float(center), scale), "scale": _rounded(scale, scale)}


def _rounded(number: float, scale: float) -> float:
    """To two digits of the scale."""
    digits = 1 - math.floor(math.log10(scale))
    return round(number, digits)


def _day(second: float) -> str:
    return str(np.datetime64(int(second), "s").astype("datetime64[D]"))


def _distinct(column: Any) -> set[str]:
    return {text for text in map(_name, values.listed(column)) if text is not None}


def _name(value: object) -> str | None:
    """A value as a schema lists it: a whole number that became a float is a whole number."""
    if isinstance(value, float):
        return (str(int(value)) if value.is_integer() else repr(value)) if math.isfinite(value) else None
    return values.text(value)
