"""The public encoding of a dataset: the schema alone says how a record becomes a row, never the data.

Were a range or a category learned from the records, a forgotten person would live on in everybody else's row. So the
schema is public knowledge, one row never depends on another, and every row ends in a constant bias and has norm <= 1.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from app.errors import FieldError, InputInvalid, RowInvalid, SchemaInvalid

Features: TypeAlias = npt.NDArray[np.float32]
Labels: TypeAlias = npt.NDArray[np.int32]
Values: TypeAlias = Any  # a pyarrow Array or ChunkedArray (untyped), or a sequence of JSON scalars
Unknown: TypeAlias = Literal["error", "null"]
Outside: TypeAlias = Literal["error", "clip"]

MAX_FAULTS = 20
MAX_FEATURES = 65_536  # of a row
MAX_CLASSES = 65_536
LONGEST_NAME = 500  # characters; as many as a deletion request may name a person with
# Rounding to float32 lengthens a row by a factor of at most 1 + 2**-24; sixteen times that keeps the norm <= 1 exactly.
SHRINK = 1 - 2.0**-20

EXPECTED_SUBJECT = f"expected a subject of 1 to {LONGEST_NAME} characters"

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_TOO_LONG = "\x00"  # stands for a text that is longer than any name in UTF-8; neither a name nor a number
_NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")  # what every database and every JSON writer can hold


class Faults:
    """What is wrong with a batch, by place; `refuse` raises the first twenty, in the order of the rows."""

    def __init__(self, error: type[InputInvalid], place: Callable[[int, str], str]) -> None:
        self._error = error
        self._place = place
        self._found: list[tuple[int, FieldError]] = []

    @classmethod
    def in_file(cls, lines: Sequence[int]) -> "Faults":
        return cls(RowInvalid, lambda row, column: f"line {lines[row]}" + (f", column {column}" if column else ""))

    @classmethod
    def in_records(cls) -> "Faults":
        return cls(InputInvalid, lambda row, column: f"records.{row}" + (f".{column}" if column else ""))

    def mark(self, column: str, wrong: npt.ArrayLike, message: str) -> None:
        for row in np.flatnonzero(wrong)[:MAX_FAULTS].tolist():
            self._found.append((row, FieldError(self._place(row, column), message)))

    def refuse(self) -> None:
        if self._found:
            refuse(self._error, [fault for _, fault in sorted(self._found, key=lambda found: found[0])])


def refuse(error: type[InputInvalid], faults: Sequence[FieldError]) -> None:
    """Raise `error` with the first twenty faults, the first of them as its detail; do nothing when there are none."""
    if faults:
        raise error(f"{faults[0].path}: {faults[0].message}.", faults[:MAX_FAULTS])


# --- columns ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Numeric:
    """A number scaled from [low, high] to [0, 1]; one feature."""

    name: str
    low: float
    high: float
    outside: Outside = "error"
    unknown: Unknown = "error"

    @property
    def width(self) -> int:
        return 1

    def encode(self, values: Values, faults: Faults) -> npt.NDArray[np.float64]:
        numbers = _numbers(values)
        missing = np.isnan(numbers)
        if self.unknown == "error":
            faults.mark(self.name, missing, "expected a value")
        faults.mark(self.name, np.isinf(numbers), "expected a finite number")
        if self.outside == "error":
            beyond = np.isfinite(numbers) & ((numbers < self.low) | (numbers > self.high))
            faults.mark(self.name, beyond, f"expected a number from {self.low:g} to {self.high:g}")
        scaled = (np.clip(numbers, self.low, self.high) - self.low) / (self.high - self.low)
        return np.where(missing, 0.0, scaled)[:, np.newaxis]  # (b, 1)

    def to_json(self) -> dict[str, object]:
        return {
            "kind": "numeric",
            "min": self.low,
            "max": self.high,
            "outside": self.outside,
            "unknown": self.unknown,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Categorical:
    """One of a closed list of values; one feature for each."""

    name: str
    values: tuple[str, ...]
    unknown: Unknown = "error"

    @property
    def width(self) -> int:
        return len(self.values)

    def encode(self, values: Values, faults: Faults) -> npt.NDArray[np.float64]:
        codes = _codes(values, self.values)
        if self.unknown == "error":
            faults.mark(self.name, codes < 0, "expected one of the values in the schema")
        one_hot: npt.NDArray[np.bool_] = codes[:, np.newaxis] == np.arange(self.width)  # (b, width)
        return one_hot.astype(np.float64)

    def to_json(self) -> dict[str, object]:
        return {"kind": "categorical", "values": list(self.values), "unknown": self.unknown}


# --- the schema ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """What every column means. Features come in the order of their names: a JSON object has no order of its own."""

    features: tuple[Numeric | Categorical, ...]
    label: str
    classes: tuple[str, ...]
    subject: str | None = None
    ignored: tuple[str, ...] = ()

    @property
    def num_features(self) -> int:
        """The encoded width without the bias."""
        return sum(column.width for column in self.features)

    @property
    def used(self) -> tuple[str, ...]:
        """The columns that are read."""
        subject = () if self.subject is None else (self.subject,)
        return (*(column.name for column in self.features), self.label, *subject)

    @property
    def declared(self) -> tuple[str, ...]:
        """The columns that a file has, no more and no fewer."""
        return self.used + self.ignored

    def encode(self, columns: Mapping[str, Values], first_line: int = 1) -> Features:
        """Rows (b, num_features + 1) of norm <= 1, the bias last; a value that breaks the schema is a `RowInvalid`."""
        faults = Faults.in_file(range(first_line, first_line + _num_rows(columns)))
        features = self._features(columns, faults)
        faults.refuse()
        return _unit_rows(features)

    def encode_labelled(
        self, columns: Mapping[str, Values], lines: Sequence[int]
    ) -> tuple[Features, Labels, list[str | None]]:
        """Rows, labels and subjects of the records at these lines; without a subject column the subjects are None."""
        faults = Faults.in_file(lines)
        features = self._features(columns, faults)
        labels = _codes(columns[self.label], self.classes)
        faults.mark(self.label, labels < 0, "expected one of the labels in the schema")
        subjects: list[str | None] = [None] * len(lines)
        if self.subject is not None:
            subjects = [_text(value) for value in _listed(columns[self.subject])]
            faults.mark(self.subject, [not is_name(subject) for subject in subjects], EXPECTED_SUBJECT)
        faults.refuse()
        return _unit_rows(features), labels, subjects

    def encode_records(self, records: Sequence[object]) -> Features:
        """Rows for records to predict; label, subject and ignored columns may be there and are not looked at."""
        faults = Faults.in_records()
        dicts = [record if isinstance(record, dict) else {} for record in records]
        faults.mark("", [not isinstance(record, dict) for record in records], "expected an object")
        known = set(self.declared)
        faults.mark("", [not record.keys() <= known for record in dicts], "expected only columns of the schema")
        faults.refuse()
        columns = {column.name: [record.get(column.name) for record in dicts] for column in self.features}
        features = self._features(columns, faults)
        faults.refuse()
        return _unit_rows(features)

    def to_json(self) -> dict[str, object]:
        columns: dict[str, object] = {column.name: column.to_json() for column in self.features}
        columns[self.label] = {"role": "label", "values": list(self.classes)}
        if self.subject is not None:
            columns[self.subject] = {"role": "subject"}
        return {"columns": columns | {name: {"role": "ignored"} for name in self.ignored}}

    def _features(self, columns: Mapping[str, Values], faults: Faults) -> npt.NDArray[np.float64]:
        names = [column.name for column in self.features]
        refuse(SchemaInvalid, [FieldError(f"column {name}", "is missing") for name in names if name not in columns])
        return np.hstack([column.encode(columns[column.name], faults) for column in self.features])


def encode_vectors(x: npt.ArrayLike, *, first_line: int | None = None) -> Features:
    """Rows (b, d + 1) of norm <= 1, the bias last, for (b, d) vectors that come without a schema.

    With `first_line` a fault is placed at `line 12, column x[3]` of a file, without it at `records.11.3`.
    """
    try:
        vectors = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputInvalid("Expected vectors of numbers, all of one length.") from None
    if vectors.ndim != 2 or vectors.shape[1] == 0:
        raise InputInvalid("Expected vectors of numbers, all of one length.")
    faults = Faults.in_records() if first_line is None else Faults.in_file(range(first_line, first_line + len(vectors)))
    wrong = ~np.isfinite(vectors)
    for column in np.flatnonzero(wrong.any(axis=0))[:MAX_FAULTS].tolist():
        name = f"{column}" if first_line is None else f"x[{column}]"
        faults.mark(name, wrong[:, column], "expected a finite number")
    faults.refuse()
    return _unit_rows(vectors)


def is_name(value: object) -> bool:
    """Whether this is a non-empty string of at most 500 characters, without control characters and lone surrogates."""
    return isinstance(value, str) and len(value) <= LONGEST_NAME and _NAME.fullmatch(value) is not None


# --- values ----------------------------------------------------------------------------------------------------------


def _unit_rows(features: npt.NDArray[np.float64]) -> Features:
    rows = np.ones((len(features), features.shape[1] + 1))  # C order: the sums below see one row at a time
    rows[:, :-1] = features
    rows /= np.abs(rows).max(axis=1, keepdims=True, initial=1.0)  # no square overflows
    rows *= SHRINK / np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    unit = rows.astype("<f4")
    assert (np.square(unit, dtype=np.float64).sum(axis=1) <= 1).all()
    return unit


def _numbers(values: Values) -> npt.NDArray[np.float64]:
    """Numbers, NaN for a missing value, infinity for one that is no finite number."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        kind = values.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return np.asarray(pc.cast(values, pa.float64(), safe=False), dtype=np.float64)
    return np.array([_number(value) for value in _listed(values)], dtype=np.float64)


def _number(value: object) -> float:
    if value is None or value == "":
        return math.nan
    if isinstance(value, str):
        if _NUMBER.fullmatch(value):
            return float(value)
        return math.nan if value.lower() == "nan" else math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.inf
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _codes(values: Values, names: tuple[str, ...]) -> Labels:
    """The position of each value among the names; -1 for a missing or an unknown one."""
    position: dict[str | None, int] = {name: code for code, name in enumerate(names)}
    return np.array([position.get(_text(value), -1) for value in _listed(values)], dtype="<i4")


def _text(value: object) -> str | None:
    """Text as CSV would have it, so that all formats agree; None for what is missing or is no name."""
    if isinstance(value, str):
        return value or None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else None


def _listed(values: Values) -> Sequence[object]:
    """The values, those of an Arrow array as Python's; a text that occurs often is there once."""
    if isinstance(values, pa.ChunkedArray):
        return [value for chunk in values.chunks for value in _listed(chunk)]
    if isinstance(values, pa.DictionaryArray):
        used, position = np.unique(np.asarray(values.indices.cast(pa.int64()).fill_null(-1)), return_inverse=True)
        texts = _listed(values.dictionary.take(pa.array(used, mask=used < 0)))
        return [texts[place] for place in position]
    if isinstance(values, pa.StringArray | pa.LargeStringArray):
        values = pc.if_else(pc.greater(pc.binary_length(values), 4 * LONGEST_NAME), _TOO_LONG, values)
    listed: Sequence[object] = values.to_pylist() if isinstance(values, pa.Array) else values
    return listed


def _num_rows(columns: Mapping[str, Values]) -> int:
    return len(next(iter(columns.values()), ()))


# --- reading a schema ------------------------------------------------------------------------------------------------


def parse_schema(document: object) -> Schema:
    """The schema that a JSON document states; every deviation is a `SchemaInvalid` that names its path."""
    faults: list[FieldError] = []
    if not isinstance(document, dict) or not isinstance(document.get("columns"), dict):
        raise SchemaInvalid('columns: expected an object {"columns": {...}}.', [FieldError("columns", "is missing")])
    faults += [FieldError(_at("schema", key), "is not a key of a schema") for key in document if key != "columns"]
    features: list[Numeric | Categorical] = []
    roles: dict[str, list[str]] = {"label": [], "subject": [], "ignored": []}
    classes: tuple[str, ...] = ()
    for name, spec in sorted(document["columns"].items(), key=lambda item: str(item[0])):
        path = _at("columns", name)
        if not is_name(name):
            faults.append(
                FieldError(path, f"expected names of 1 to {LONGEST_NAME} characters, none of them a control character")
            )
        match spec:
            case {"kind": "numeric"}:
                _check_keys(path, spec, {"kind", "min", "max", "outside", "unknown"}, faults)
                features.append(_numeric(name, path, spec, faults))
            case {"kind": "categorical"}:
                _check_keys(path, spec, {"kind", "values", "unknown"}, faults)
                values = _names(f"{path}.values", spec.get("values"), 1, faults)
                features.append(Categorical(name=name, values=values, unknown=_unknown(path, spec, faults)))
            case {"role": "label"}:
                _check_keys(path, spec, {"role", "values"}, faults)
                classes = _names(f"{path}.values", spec.get("values"), 2, faults)
                roles["label"].append(name)
            case {"role": "subject" | "ignored" as role}:
                _check_keys(path, spec, {"role"}, faults)
                roles[role].append(name)
            case _:
                faults.append(
                    FieldError(path, "expected kind numeric or categorical, or role label, subject or ignored")
                )
    if len(roles["label"]) != 1:
        faults.append(FieldError("columns", "expected exactly one label column"))
    if len(roles["subject"]) > 1:
        faults.append(FieldError("columns", "expected at most one subject column"))
    if not features:
        faults.append(FieldError("columns", "expected at least one numeric or categorical column"))
    if sum(column.width for column in features) > MAX_FEATURES:
        faults.append(FieldError("columns", f"expected at most {MAX_FEATURES} numeric columns and categories together"))
    if len(classes) > MAX_CLASSES:
        faults.append(FieldError("columns", f"expected at most {MAX_CLASSES} labels"))
    refuse(SchemaInvalid, faults)
    return Schema(
        features=tuple(features),
        label=roles["label"][0],
        classes=classes,
        subject=next(iter(roles["subject"]), None),
        ignored=tuple(roles["ignored"]),
    )


def _numeric(name: str, path: str, spec: dict[str, object], faults: list[FieldError]) -> Numeric:
    bounds = {key: _bound(spec.get(key)) for key in ("min", "max")}
    faults += [FieldError(f"{path}.{key}", "expected a finite number") for key in bounds if math.isinf(bounds[key])]
    low, high = bounds["min"], bounds["max"]
    if math.isfinite(low) and math.isfinite(high) and not 0 < high - low < math.inf:
        faults.append(FieldError(f"{path}.max", "expected min < max, and a finite distance between them"))
    outside: Outside = "clip" if spec.get("outside") == "clip" else "error"
    if spec.get("outside", "error") != outside:
        faults.append(FieldError(f"{path}.outside", "expected error or clip"))
    return Numeric(name=name, low=low, high=high, outside=outside, unknown=_unknown(path, spec, faults))


def _bound(value: object) -> float:
    number = math.inf if isinstance(value, str) else _number(value)
    return math.inf if math.isnan(number) else number


def _unknown(path: str, spec: dict[str, object], faults: list[FieldError]) -> Unknown:
    unknown: Unknown = "null" if spec.get("unknown") == "null" else "error"
    if spec.get("unknown", "error") != unknown:
        faults.append(FieldError(f"{path}.unknown", "expected error or null"))
    return unknown


def _names(path: str, values: object, at_least: int, faults: list[FieldError]) -> tuple[str, ...]:
    names = tuple(value for value in values if is_name(value)) if isinstance(values, list) else ()
    if not isinstance(values, list) or len(names) < len(values) or len(set(names)) < max(len(names), at_least):
        faults.append(
            FieldError(path, f"expected a list of {at_least} or more distinct texts of 1 to {LONGEST_NAME} characters")
        )
    return names


def _at(path: str, key: object) -> str:
    return f"{path}.{key}" if is_name(key) else path


def _check_keys(path: str, spec: dict[str, object], allowed: set[str], faults: list[FieldError]) -> None:
    faults += [FieldError(_at(path, key), "is not a key of this column") for key in spec if key not in allowed]
