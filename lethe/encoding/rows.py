"""The public encoding of a dataset: the schema alone says how a record becomes a row, never the data.

Were a range or a category learned from the records, a forgotten person would live on in everybody else's row. So the
schema is public knowledge, one row never depends on another, and every row ends in a constant bias and has norm <= 1.

A schema says by which edition of these rules it encodes, and keeps to it for good. Edition 1 encoded a missing number
as the lowest one, and matched categories by their text alone; datasets that were made by it go on with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lethe.contract.problems import DatasetUnusable, FieldError, InputInvalid, SchemaInvalid
from lethe.contract.spelling import expected
from lethe.encoding import values
from lethe.encoding.columns import EDITION, Column, DateTime, Edition, Vector, of_booleans
from lethe.encoding.faults import MAX_FAULTS, Faults, refuse
from lethe.encoding.random_features import RandomFeatures
from lethe.encoding.targets import Target
from lethe.encoding.values import LONGEST_NAME, Values, is_subject
from lethe.encoding.weights import Weight

Features: TypeAlias = npt.NDArray[np.float32]
Labels: TypeAlias = npt.NDArray[np.int32]
MAX_FEATURES = 65_536  # of a row
MAX_CLASSES = 65_536
# Rounding to float32 lengthens a row by a factor of at most 1 + 2**-24; sixteen times that keeps the norm <= 1 exactly.
SHRINK = 1 - 2.0**-20

EXPECTED_SUBJECT = f"expected a subject of 1 to {LONGEST_NAME} characters, not all of them white space"


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """Encoded records: their rows, labels (or targets, as `Target` stores them, each with its weight beside it where
    rows have weights) and subjects (None without a subject column). `num_unknown`: for each feature column of the
    schema, in how many of them it is missing or unknown; `raw`: the features before each row got its bias and was
    scaled."""

    features: Features  # (b, num_features + 1)
    labels: Labels  # (b,), or (b, 2) with weights
    subjects: list[str | None]
    num_unknown: npt.NDArray[np.int64]
    raw: npt.NDArray[np.float64]  # (b, num_features)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The meaning of every column. Features come in the order of their names: a JSON object has no order of its own.
    `label`: the column of the label, or of the `target` where there are no classes. `separator`: between the labels of
    a record that may have several of the classes, or none; stored as a bit for each. `weight`: of each row's loss, if
    rows have one. `random`: features made of all those of the columns, which take their place."""

    features: tuple[Column, ...]
    label: str
    classes: tuple[str, ...]
    target: Target | None = None
    separator: str | None = None
    weight: Weight | None = None
    subject: str | None = None
    ignored: tuple[str, ...] = ()
    edition: Edition = EDITION
    random: RandomFeatures | None = None

    @property
    def num_features(self) -> int:
        """The encoded width without the bias."""
        return self.random.features if self.random else self._width

    @property
    def num_held(self) -> int:
        """Number of features that there are of a row while it is encoded."""
        return self._width + (self.random.features if self.random else 0)

    @property
    def _width(self) -> int:
        return sum(column.width for column in self.features)

    @property
    def places(self) -> dict[str, slice]:
        """The features of each column; random ones are of none."""
        if self.random:
            return {"random_features": slice(0, self.random.features)}
        ends = np.cumsum([0, *(column.width for column in self.features)]).tolist()
        return {column.name: slice(*place) for column, place in zip(self.features, pairwise(ends), strict=True)}

    @property
    def times(self) -> set[str]:
        """The columns of dates and times."""
        return {column.name for column in self.features if isinstance(column, DateTime)}

    @property
    def takes_vectors(self) -> bool:
        """Return True if a record may be sent as the list that its only column is."""
        return len(self.features) == 1 and isinstance(self.features[0], Vector)

    @property
    def used(self) -> tuple[str, ...]:
        """The columns that are read."""
        subject = () if self.subject is None else (self.subject,)
        weight = () if self.weight is None else (self.weight.column,)
        return (*(column.name for column in self.features), self.label, *weight, *subject)

    @property
    def declared(self) -> tuple[str, ...]:
        """The columns that a file has, no more and no fewer."""
        return self.used + self.ignored

    def encode(self, columns: Mapping[str, Values], first_line: int = 1) -> Features:
        """Rows (b, num_features + 1) of norm <= 1, the bias last; a value that breaks the schema is a `RowInvalid`."""
        faults = Faults.in_file(range(first_line, first_line + _num_rows(columns)))
        features, _ = self._features(columns, faults)
        faults.refuse()
        return unit_rows(features)

    def encode_labelled(self, columns: Mapping[str, Values], lines: Sequence[int]) -> Labelled:
        """The records at these lines, encoded."""
        faults = Faults.in_file(lines)
        features, num_unknown = self._features(columns, faults)
        labels = self._labels(columns[self.label], faults)
        if self.weight is not None:
            labels = np.stack([labels, self._weights(columns[self.weight.column], self.weight, faults)], axis=1)
        subjects: list[str | None] = [None] * len(lines)
        if self.subject is not None:
            subjects = [values.text(value) for value in values.listed(columns[self.subject])]
            faults.mark(self.subject, [not is_subject(subject) for subject in subjects], EXPECTED_SUBJECT)
        faults.refuse()
        return Labelled(
            features=unit_rows(features),
            labels=labels,
            subjects=subjects,
            num_unknown=num_unknown,
            raw=features,
        )

    def _labels(self, column: Values, faults: Faults) -> Labels:
        if self.target:
            numbers = values.numbers(column)
            wrong = self.target.wrong(numbers)
            faults.mark(self.label, wrong, self.target.expected)
            return self.target.labels(np.where(wrong, self.target.low, numbers))
        found = values.listed(column)
        if self.separator is not None:
            labels = values.bits(found, self.classes, self.separator)
            said = f"expected names in the schema, with {self.separator} between them"
            faults.mark(self.label, labels < 0, said)
            return labels
        labels = values.codes(found, self.classes, by_number=self.edition > 1)
        faults.mark(self.label, labels < 0, expected(self.classes) + of_booleans(found))
        return labels

    def _weights(self, column: Values, weight: Weight, faults: Faults) -> Labels:
        numbers = values.numbers(column)
        wrong = weight.wrong(numbers)
        faults.mark(weight.column, wrong, weight.expected)
        return weight.stored(np.where(wrong, 0, numbers))

    def _label_to_json(self) -> dict[str, object]:
        if self.target:
            return {"role": "target"} | self.target.to_json()
        if self.separator is not None:
            return {"role": "labels", "values": list(self.classes), "separator": self.separator}
        return {"role": "label", "values": list(self.classes)}

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
        return unit_rows(self.raw_records(records))

    def raw_records(self, records: Sequence[object]) -> npt.NDArray[np.float64]:
        """The features (n, num_features) of records, before each row gets its bias and is scaled."""
        faults = Faults.in_records()
        if self.takes_vectors:
            name = self.features[0].name
            records = [{name: record} if isinstance(record, list) else record for record in records]
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
        return features

    def to_json(self) -> dict[str, object]:
        columns: dict[str, object] = {column.name: column.to_json() for column in self.features}
        columns[self.label] = self._label_to_json()
        if self.weight is not None:
            columns[self.weight.column] = self.weight.to_json()
        if self.subject is not None:
            columns[self.subject] = {"role": "subject"}
        random = {"random_features": self.random.to_json()} if self.random else {}
        return {
            "encoding": self.edition,
            **random,
            "columns": columns | {name: {"role": "ignored"} for name in self.ignored},
        }

    def _features(
        self, columns: Mapping[str, Values], faults: Faults
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        names = [column.name for column in self.features]
        refuse(SchemaInvalid, [FieldError(f"column {name}", "is missing") for name in names if name not in columns])
        encoded = [column.encode(columns[column.name], faults) for column in self.features]
        features = np.hstack([features for features, _ in encoded])
        num_unknown = np.array([count for _, count in encoded])
        return self.random.of(features) if self.random else features, num_unknown


def encode_vectors(x: npt.ArrayLike, *, first_line: int | None = None) -> Features:
    """Rows (b, d + 1) of norm <= 1, the bias last, for (b, d) vectors that come without a schema.

    With `first_line` a fault is placed at `line 12, column x[3]` of a file, without it at `records.11.3`.
    """
    return unit_rows(checked_vectors(x, first_line=first_line))


def checked_vectors(x: npt.ArrayLike, *, first_line: int | None = None) -> npt.NDArray[np.float64]:
    """Vectors (b, d) of finite numbers; faults as of `encode_vectors`."""
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
    return vectors


def unit_rows(features: npt.NDArray[np.float64]) -> Features:
    """Append the bias and scale each row to norm <= 1."""
    rows = np.ones((len(features), features.shape[1] + 1))  # C order: the sums below see one row at a time
    rows[:, :-1] = features
    rows /= np.abs(rows).max(axis=1, keepdims=True, initial=1.0)  # no square overflows
    rows *= SHRINK / np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    unit = rows.astype("<f4")
    assert (np.square(unit, dtype=np.float64).sum(axis=1) <= 1).all()
    return unit


def _num_rows(columns: Mapping[str, Values]) -> int:
    return len(next(iter(columns.values()), ()))
