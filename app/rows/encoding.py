"""The public encoding of a dataset: the schema alone says how a record becomes a row, never the data.

Were a range or a category learned from the records, a forgotten person would live on in everybody else's row. So the
schema is public knowledge, one row never depends on another, and every row ends in a constant bias and has norm <= 1.

A schema says by which edition of these rules it encodes, and keeps to it for good. Edition 1 encoded a missing number
as the lowest one, and matched categories by their text alone; datasets that were made by it go on with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from app.rows import values
from app.rows.faults import MAX_FAULTS, Faults, refuse
from app.rows.values import LONGEST_NAME, Values, is_subject
from app.spelling import expected
from lethe.contract.problems import DatasetUnusable, FieldError, InputInvalid, SchemaInvalid

Features: TypeAlias = npt.NDArray[np.float32]
Labels: TypeAlias = npt.NDArray[np.int32]
Unknown: TypeAlias = Literal["error", "null"]
Outside: TypeAlias = Literal["error", "clip"]
Edition: TypeAlias = Literal[1, 2]

EDITION: Edition = 2
MAX_UNKNOWN = 0.5
MAX_FEATURES = 65_536  # of a row
MAX_CLASSES = 65_536
# Rounding to float32 lengthens a row by a factor of at most 1 + 2**-24; sixteen times that keeps the norm <= 1 exactly.
SHRINK = 1 - 2.0**-20

EXPECTED_SUBJECT = f"expected a subject of 1 to {LONGEST_NAME} characters, not all of them white space"


# --- columns ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Numeric:
    """A number scaled from [low, high] to [0, 1]. Where it may be missing, a second feature says that it is.

    `max_unknown`: the share of a file's rows in which it may be missing.
    """

    name: str
    low: float
    high: float
    outside: Outside = "error"
    unknown: Unknown = "error"
    max_unknown: float = MAX_UNKNOWN
    edition: Edition = EDITION

    @property
    def _says_missing(self) -> bool:
        return self.unknown == "null" and self.edition > 1

    @property
    def width(self) -> int:
        return 2 if self._says_missing else 1

    @property
    def expected(self) -> str:
        return f"expected a number from {self.low:g} to {self.high:g}"

    def encode(self, column: Values, faults: Faults) -> tuple[npt.NDArray[np.float64], int]:
        """The features  # (b, width), and how many of them are missing."""
        numbers = values.numbers(column)
        missing = np.isnan(numbers)
        if self.unknown == "error":
            faults.mark(self.name, missing, "expected a value")
        faults.mark(self.name, np.isinf(numbers), "expected a finite number")
        if self.outside == "error":
            beyond = np.isfinite(numbers) & ((numbers < self.low) | (numbers > self.high))
            faults.mark(self.name, beyond, self.expected)
        scaled = (np.clip(numbers, self.low, self.high) - self.low) / (self.high - self.low)
        features = np.where(missing, 0.0, scaled)[:, np.newaxis]  # (b, 1)
        if self._says_missing:
            features = np.column_stack((features, missing))  # (b, 2)
        return features, int(missing.sum())

    def to_json(self) -> dict[str, object]:
        return {
            "kind": "numeric",
            "min": self.low,
            "max": self.high,
            "outside": self.outside,
            **_unknown_to_json(self),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Categorical:
    """One of a closed list of values; one feature for each, all of them 0 for what is missing or unknown.

    `max_unknown`: the share of a file's rows in which it may be so.
    """

    name: str
    values: tuple[str, ...]
    unknown: Unknown = "error"
    max_unknown: float = MAX_UNKNOWN
    edition: Edition = EDITION

    @property
    def width(self) -> int:
        return len(self.values)

    @property
    def expected(self) -> str:
        return expected(self.values)

    def encode(self, column: Values, faults: Faults) -> tuple[npt.NDArray[np.float64], int]:
        """The features  # (b, width), and how many of them are missing or unknown."""
        listed = values.listed(column)
        codes = values.codes(listed, self.values, by_number=self.edition > 1)
        if self.unknown == "error":
            faults.mark(self.name, codes < 0, self.expected + _of_booleans(listed))
        one_hot: npt.NDArray[np.bool_] = codes[:, np.newaxis] == np.arange(self.width)  # (b, width)
        return one_hot.astype(np.float64), int((codes < 0).sum())

    def to_json(self) -> dict[str, object]:
        return {"kind": "categorical", "values": list(self.values), **_unknown_to_json(self)}


def _unknown_to_json(column: Numeric | Categorical) -> dict[str, object]:
    said: dict[str, object] = {"unknown": column.unknown}
    if column.edition > 1 and column.unknown == "null":
        said["max_unknown"] = column.max_unknown
    return said


def _of_booleans(column: Sequence[object]) -> str:
    return " (a boolean is true or false)" if any(isinstance(value, bool) for value in column) else ""


# --- the schema ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """Encoded records: their rows, labels and subjects (None without a subject column). `num_unknown`: for each feature
    column of the schema, in how many of them it is missing or unknown."""

    features: Features  # (b, num_features + 1)
    labels: Labels  # (b,)
    subjects: list[str | None]
    num_unknown: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The meaning of every column. Features come in the order of their names: a JSON object has no order of its own."""

    features: tuple[Numeric | Categorical, ...]
    label: str
    classes: tuple[str, ...]
    subject: str | None = None
    ignored: tuple[str, ...] = ()
    edition: Edition = EDITION

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
        features, _ = self._features(columns, faults)
        faults.refuse()
        return _unit_rows(features)

    def encode_labelled(self, columns: Mapping[str, Values], lines: Sequence[int]) -> Labelled:
        """The records at these lines, encoded."""
        faults = Faults.in_file(lines)
        features, num_unknown = self._features(columns, faults)
        found = values.listed(columns[self.label])
        labels = values.codes(found, self.classes, by_number=self.edition > 1)
        faults.mark(self.label, labels < 0, expected(self.classes) + _of_booleans(found))
        subjects: list[str | None] = [None] * len(lines)
        if self.subject is not None:
            subjects = [values.text(value) for value in values.listed(columns[self.subject])]
            faults.mark(self.subject, [not is_subject(subject) for subject in subjects], EXPECTED_SUBJECT)
        faults.refuse()
        return Labelled(features=_unit_rows(features), labels=labels, subjects=subjects, num_unknown=num_unknown)

    def check_known(self, num_unknown: npt.NDArray[np.int64], num_rows: int) -> None:
        """Refuse a file in which a column is missing or unknown more often than it may be. Raises `DatasetUnusable`.

        A column that is unknown in every row, because it was written otherwise than was declared, would be silent.
        """
        faults = []
        for column, count in zip(self.features, num_unknown.tolist(), strict=True):
            if self.edition > 1 and column.unknown == "null" and count > column.max_unknown * num_rows:
                share = (
                    f"is missing or unknown in {count} of {num_rows} rows, more than max_unknown={column.max_unknown:g}"
                )
                faults.append(FieldError(f"column {column.name}", f"{share} of them; {column.expected}"))
        refuse(DatasetUnusable, faults)

    def encode_records(self, records: Sequence[object]) -> Features:
        """Rows for records to predict; label, subject and ignored columns may be there and are not looked at."""
        faults = Faults.in_records()
        dicts = [record if isinstance(record, dict) else {} for record in records]
        faults.mark("", [not isinstance(record, dict) for record in records], "expected an object")
        known = set(self.declared)
        strange = [min(map(str, record.keys() - known), default=None) for record in dicts]
        for name in sorted({name for name in strange if name is not None})[:MAX_FAULTS]:
            said = f"{expected(known, found=name)} (columns of the schema)"
            faults.mark("", [name == other for other in strange], said)
        faults.refuse()
        columns = {column.name: [record.get(column.name) for record in dicts] for column in self.features}
        features, _ = self._features(columns, faults)
        faults.refuse()
        return _unit_rows(features)

    def to_json(self) -> dict[str, object]:
        columns: dict[str, object] = {column.name: column.to_json() for column in self.features}
        columns[self.label] = {"role": "label", "values": list(self.classes)}
        if self.subject is not None:
            columns[self.subject] = {"role": "subject"}
        return {"encoding": self.edition, "columns": columns | {name: {"role": "ignored"} for name in self.ignored}}

    def _features(
        self, columns: Mapping[str, Values], faults: Faults
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        names = [column.name for column in self.features]
        refuse(SchemaInvalid, [FieldError(f"column {name}", "is missing") for name in names if name not in columns])
        encoded = [column.encode(columns[column.name], faults) for column in self.features]
        return np.hstack([features for features, _ in encoded]), np.array([count for _, count in encoded])


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


def _unit_rows(features: npt.NDArray[np.float64]) -> Features:
    rows = np.ones((len(features), features.shape[1] + 1))  # C order: the sums below see one row at a time
    rows[:, :-1] = features
    rows /= np.abs(rows).max(axis=1, keepdims=True, initial=1.0)  # no square overflows
    rows *= SHRINK / np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    unit = rows.astype("<f4")
    assert (np.square(unit, dtype=np.float64).sum(axis=1) <= 1).all()
    return unit


def _num_rows(columns: Mapping[str, Values]) -> int:
    return len(next(iter(columns.values()), ()))
