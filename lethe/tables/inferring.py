"""A schema, proposed from a public sample: a file to look through and edit, never to be used as it is.

A schema is public and outlives everybody it was read from. So the sample must be of nobody who may ever ask to be
forgotten: published statistics, a synthetic table, records of the makers themselves.
"""

import datetime
import math
from collections.abc import Mapping
from decimal import Decimal
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
_IGNORED = {"role": "ignored"}
_SHOWN = 20
"""Columns that a refusal names."""
_PER_SCALE = 1.349
"""Interquartile range of a normal column, in standard deviations."""


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
    """A schema for tables like this public sample, as a document to edit.

    Exactly one column is learned: a `label`, several `labels` with the `separator` between them, a `target`, whose
    range is that of the sample, or `counts`, from 0 to the most of the sample. Numbers are standardized by their median
    and a scale from their quartiles, both to two digits; whole numbers and texts of few different values are listed;
    prose becomes n-grams, other texts are hashed. Columns with one value only, or of a type that no schema takes, are
    ignored. The bound of a column of weights, `weight_bound`, is stated beside it and never read.

    `stated`: columns as a schema has them, of which nothing is read. Not `public`: of the table only the names of its
    columns are read, and each must be stated. Raises `InputInvalid` for a column that is none, or not stated.
    """
    columns = columns_of(table)
    roles = {"label": label, "labels": labels, "target": target, "counts": counts}
    learned = {role: name for role, name in roles.items() if name}
    if len(learned) != 1:
        raise InputInvalid(
            "A model learns one column.", [FieldError("label", "expected one of label, labels, target and counts")]
        )
    [(role, name)] = learned.items()
    said = {one: dict(spec) for one, spec in (stated or {}).items()}
    if name in said:
        more = {"separator": separator} if labels else {"counts": True} if counts else {}
        said[name] = {"role": "target" if counts else role} | said[name] | more
    if subject is not None:
        said[subject] = {"role": "subject"}
    if (weight is None) != (weight_bound is None):
        raise InputInvalid(
            "A column of weights has a bound.", [FieldError("weight_bound", "expected it and weight, or neither")]
        )
    if weight is not None:
        said[weight] = {"role": "weight", "max": weight_bound}
    for place, one in ((role, name), ("subject", subject), ("weight", weight), *(("stated", one) for one in said)):
        if one is not None and one not in columns:
            raise InputInvalid(
                f"There is no column for the {place}.", [FieldError(place, expected(columns, found=one))]
            )
    unsaid = [one for one in columns if one not in said]
    if unsaid and not public:
        raise InputInvalid(
            "A schema stays when people are forgotten: confirm that nobody in this file may ask to be, or state each "
            f"column: {', '.join(unsaid[:_SHOWN])}.",
            [FieldError("public", "expected a confirmation, or a statement of each column")],
        )
    found = {one: _learned(columns[one], role, separator) if one == name else _kind(columns[one]) for one in unsaid}
    return {"columns": found | said}


def _learned(column: Any, role: str, separator: str) -> dict[str, Any]:
    if role == "target":
        numbers = values.numbers(column)
        known = numbers[np.isfinite(numbers)]
        if len(known) < len(numbers) or np.ptp(known) == 0:
            raise InputInvalid("The target is not a number in each row.", [FieldError("target", "expected numbers")])
        low, high = float(known.min()), float(known.max())
        place = 10.0 ** (math.floor(math.log10(high - low)) - 1)
        ends = {"min": _rounded(math.floor(low / place) * place, 10 * place)}
        return {"role": role} | ends | {"max": _rounded(math.ceil(high / place) * place, 10 * place), "outside": "clip"}
    if role == "counts":
        numbers = values.numbers(column)
        most = float(numbers.max(initial=0))
        if not (0 < most < math.inf and (numbers >= 0).all() and (numbers == np.rint(numbers)).all()):
            raise InputInvalid("The counts are not whole numbers.", [FieldError("counts", "expected 0, 1, 2, ...")])
        place = 10 ** max(0, math.floor(math.log10(most)) - 1)
        bound = math.ceil(most / place) * place
        return {"role": "target", "min": 0, "max": bound, "counts": True, "outside": "clip"}
    names = _distinct(column)
    if role == "labels":
        names = {one.strip() for text in names for one in text.split(separator)} - {""}
    if not names:
        raise InputInvalid(f"The {role} has no names.", [FieldError(role, "expected texts, booleans or whole numbers")])
    return {"role": role, "values": sorted(names)} | ({"separator": separator} if role == "labels" else {})


def _kind(column: Any) -> dict[str, Any]:
    listed = values.listed(column)
    present = [value for value in listed if value is not None and value != "" and value == value]  # NaN differs from it
    gap = {"unknown": "null"} if len(present) < len(listed) else {}
    if isinstance(column, np.ndarray) and column.ndim == 2:
        return _vector(column.astype(np.float64))
    if lists := [value for value in present if isinstance(value, list)]:
        return _vector_of(lists)
    if present and all(isinstance(value, datetime.date) for value in present):  # a datetime is one
        return _moments(values.seconds(present)) | gap if len(set(present)) > 1 or gap else _IGNORED
    texts = _distinct(column)
    if not texts or (len(texts) < 2 and not gap):
        return _IGNORED
    numbers = values.numbers(column)
    known = numbers[~np.isnan(numbers)]
    if len(known) and np.isfinite(known).all():
        if len(texts) <= _FEW and (known == np.round(known)).all():
            return {"kind": "categorical", "values": sorted(texts, key=float), "unknown": "null"}
        return {"kind": "standard", **_scaling(known)} | gap
    moments = values.seconds(column)
    if np.isfinite(moments[~np.isnan(moments)]).all() and not np.isnan(moments).all():
        return _moments(moments) | gap
    if len(texts) <= _LISTED:
        return {"kind": "categorical", "values": sorted(texts), "unknown": "null"}
    prose = [text for text in values.prose(column) if text]
    if prose and np.mean([len(text.split()) for text in prose]) >= _WORDS:
        return {"kind": "text", "features": 16 * _PLACES, "words": [1, 2]} | gap
    return {"kind": "hashed", "features": _PLACES, "unknown": "null"}


def _moments(moments: Any) -> dict[str, Any]:
    first, last = np.nanmin(moments), np.nanmax(moments)
    return {"kind": "datetime", "min": _day(first), "max": _day(last + 86_400), "outside": "clip"}


def _vector_of(lists: list[list[Any]]) -> dict[str, Any]:
    """Describe lists of one length. A schema takes no missing vector: an upload with one is refused by its line."""
    vectors = values.vectors(lists, len(lists[0]))
    return _vector(vectors) if vectors.size and np.isfinite(vectors).all() else _IGNORED


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
    """A value as a schema lists it: a whole number that became a float, or a decimal, is a whole number."""
    if isinstance(value, float | Decimal):
        if not math.isfinite(value):
            return None
        return str(int(value)) if value == int(value) else str(value)
    return values.text(value)
