"""Encoding of records into rows, and row weights: how much each row's loss counts, up to a bound stated in the schema.

A weight is stored next to the label as weight / bound, a multiple of 2^-23, which is exact in single precision.
Whatever the data, no row therefore counts for more than 1, and a row of weight 0 has no more effect than a null row.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from lethe.contract.fields import expected
from lethe.contract.problems import DatasetUnusable, FieldError, InputInvalid, SchemaInvalid
from lethe.encoding import columns as values, targets

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomFeatures:
    """D = `features` random features that replace the column features. The random weights have `scale` > 0 and are
    drawn from `seed`, 0 <= seed < 2^53."""

    features: int
    seed: int
    scale: float

    def of(self, rows: Floats) -> Floats:
        """Return each row's random features, which do not depend on other rows  # (b, d) -> (b, D)"""
        weights, phases = _drawn(self.seed, self.features, rows.shape[1])
        rounded = np.rint(np.clip(rows, -REACH, REACH) * _UNITS)
        # Exact, as a sum of integers: |x| <= 2^22, |w| <= 2^15, d <= 2^12.
        sums = rounded @ weights
        angles = sums * (self.scale / (_UNITS * _SPREAD)) + phases
        return np.asarray(math.sqrt(2 / self.features) * np.cos(angles))

    def to_json(self) -> dict[str, object]:
        return {"features": self.features, "seed": self.seed, "scale": self.scale}


Integers = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """Column of row weights and their public upper `bound`. A weight above the bound is invalid or clipped; a weight
    that is negative or not a number is invalid."""

    column: str
    bound: float
    outside: values.Outside = "error"

    @property
    def expected(self) -> str:
        clipped = ", or more, which is clipped" if self.outside == "clip" else ""
        return f"expected a weight, a number from 0 to {self.bound:g}{clipped}"

    def wrong(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Return True for each number that cannot be stored: missing, infinite, negative, or above the bound if such
        numbers are not clipped."""
        return ~np.isfinite(numbers) | (numbers < 0) | ((numbers > self.bound) & (self.outside == "error"))

    def stored(self, numbers: npt.NDArray[np.float64]) -> Integers:
        """Return the stored form of numbers that are not `wrong`  # (b,)"""
        return np.rint(np.minimum(numbers, self.bound) / self.bound * targets.UNIT).astype("<i4")

    def to_json(self) -> dict[str, object]:
        return {"role": "weight", "max": self.bound, "outside": self.outside}


def labels_in(stored: Integers) -> Integers:
    """Return the rows' labels  # (n,) without weights or (n, 2) with weights -> (n,)"""
    return stored[:, 0] if stored.ndim == 2 else stored


def weights_in(stored: Integers) -> Integers | None:
    """Return the rows' weights as multiples of 2^-23, or None if rows have no weights  # (n,)"""
    return stored[:, 1] if stored.ndim == 2 else None


def as_factors(weights: Integers) -> npt.NDArray[np.float32]:
    """Return weights as loss factors between 0 and 1  # (n,)"""
    return weights.astype(np.float32) / np.float32(targets.UNIT)


Features: TypeAlias = npt.NDArray[np.float32]
Labels: TypeAlias = npt.NDArray[np.int32]
# Maximum per row.
MAX_FEATURES = 65_536
MAX_CLASSES = 65_536
# Rounding to float32 lengthens a row by a factor of at most 1 + 2**-24; sixteen times this keeps the norm <= 1 exactly.
SHRINK = 1 - 2.0**-20

EXPECTED_SUBJECT = f"expected a subject of 1 to {values.MAX_NAME_LENGTH} characters, not all of them white space"


def read_subjects(column: Sequence[object], name: str, faults: values.Faults) -> list[str | None]:
    """Return the subjects in the column `name`, and record a fault for each value that cannot name a person."""
    subjects = [values.text(value) for value in column]
    rewritten = [values.is_rewritten(value) for value in column]
    faults.mark(name, rewritten, values.NO_REWRITTEN_ID)
    nameless = [not (number or values.is_subject(text)) for number, text in zip(rewritten, subjects, strict=True)]
    faults.mark(name, nameless, EXPECTED_SUBJECT)
    return subjects


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """Encoded records: rows, labels (or targets, as stored by `TargetColumn`) with any row weights alongside, and
    subjects (None if there is no subject column). `num_unknown` counts, for each feature column of the schema, the
    records in which its value is missing or unknown. `raw` holds the features before the bias is added and rows are
    scaled."""

    features: Features  # (b, num_features + 1)
    labels: Labels  # (b,), or (b, 2) with weights
    subjects: list[str | None]
    num_unknown: npt.NDArray[np.int64]
    raw: npt.NDArray[np.float64]  # (b, num_features)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """Meaning of a dataset's columns. Features are sorted by name, because a JSON object has no order. `label` is the
    column of the label, or of the `target` if there are no classes. `separator` separates the labels if a record can
    belong to several classes, which are stored as one bit each. `weight` is the column of row weights, if any. `random`
    features are computed from the features of all columns and replace them."""

    features: tuple[values.Column, ...]
    label: str
    classes: tuple[str, ...]
    target: targets.TargetColumn | None = None
    separator: str | None = None
    weight: Weight | None = None
    subject: str | None = None
    ignored: tuple[str, ...] = ()
    edition: values.Edition = values.EDITION
    random: RandomFeatures | None = None

    @property
    def num_features(self) -> int:
        """Number of features of an encoded row, excluding the bias."""
        return self.random.features if self.random else self._width

    @property
    def num_held(self) -> int:
        """Number of features held in memory per row during encoding."""
        return self._width + (self.random.features if self.random else 0)

    @property
    def _width(self) -> int:
        return sum(column.width for column in self.features)

    @property
    def places(self) -> dict[str, slice]:
        """Each column's range of feature positions. Random features belong to no column and share one range."""
        if self.random:
            return {"random_features": slice(0, self.random.features)}
        ends = np.cumsum([0, *(column.width for column in self.features)]).tolist()
        return {column.name: slice(*place) for column, place in zip(self.features, pairwise(ends), strict=True)}

    @property
    def times(self) -> set[str]:
        """Names of the date and time columns."""
        return {column.name for column in self.features if isinstance(column, values.DateTime)}

    @property
    def takes_vectors(self) -> bool:
        """True if a record can be sent as a bare list, which is the value of its only column."""
        return len(self.features) == 1 and isinstance(self.features[0], values.Vector)

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the columns whose values are read."""
        subject = () if self.subject is None else (self.subject,)
        weight = () if self.weight is None else (self.weight.column,)
        return (*(column.name for column in self.features), self.label, *weight, *subject)

    @property
    def declared(self) -> tuple[str, ...]:
        """Names of exactly the columns that a file must have."""
        return self.used + self.ignored

    def encode(self, columns: Mapping[str, values.Values], first_line: int = 1) -> Features:
        """Return rows (b, num_features + 1) of norm <= 1, with the bias last. Raises `RowInvalid` for a value that
        violates the schema."""
        num_rows = len(next(iter(columns.values()), ()))
        faults = values.Faults.in_file(range(first_line, first_line + num_rows))
        features, _ = self._features(columns, faults)
        faults.refuse()
        return unit_rows(features)

    def encode_labelled(self, columns: Mapping[str, values.Values], lines: Sequence[int]) -> Labelled:
        """Encode a file's records, given their line numbers."""
        faults = values.Faults.in_file(lines)
        features, num_unknown = self._features(columns, faults)
        labels = self._labels(columns[self.label], faults)
        if self.weight is not None:
            labels = np.stack([labels, self._weights(columns[self.weight.column], self.weight, faults)], axis=1)
        subjects: list[str | None] = [None] * len(lines)
        if self.subject is not None:
            subjects = read_subjects(values.listed(columns[self.subject]), self.subject, faults)
        faults.refuse()
        return Labelled(
            features=unit_rows(features), labels=labels, subjects=subjects, num_unknown=num_unknown, raw=features
        )

    def _labels(self, column: values.Values, faults: values.Faults) -> Labels:
        if self.target:
            numbers = values.numbers(column)
            wrong = self.target.wrong(numbers)
            faults.mark(self.label, wrong, self.target.expected)
            return self.target.labels(np.where(wrong, self.target.low, numbers))
        entries = values.listed(column)
        if self.separator is not None:
            labels = values.bits(entries, self.classes, self.separator)
            message = f"expected names in the schema, with {self.separator} between them"
            faults.mark(self.label, labels < 0, message)
            return labels
        labels = values.codes(entries, self.classes, by_number=self.edition > 1)
        faults.mark(self.label, labels < 0, expected(self.classes) + values.of_booleans(entries))
        return labels

    def _weights(self, column: values.Values, weight: Weight, faults: values.Faults) -> Labels:
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
        """Refuse a file in which a column's value is missing or unknown more often than the schema allows.

        If a column has the wrong format, all its values are unknown, which would otherwise go unnoticed. Raises
        `DatasetUnusable`.
        """
        faults = []
        for column, count in zip(self.features, num_unknown.tolist(), strict=True):
            if self.edition > 1 and column.unknown == "null" and count > column.max_unknown * num_rows:
                share = (
                    f"is missing or unknown in {count} of {num_rows} rows, more than max_unknown={column.max_unknown:g}"
                )
                faults.append(FieldError(f"column {column.name}", f"{share} of them; {column.expected}"))
        values.refuse(DatasetUnusable, faults)

    def raw_records(self, records: Sequence[object]) -> npt.NDArray[np.float64]:
        """Return the features (n, num_features) of records to be predicted, before the bias is added and rows are
        scaled. Label, subject and ignored columns are accepted but not read."""
        faults = values.Faults.in_records()
        if self.takes_vectors:
            name = self.features[0].name
            records = [{name: record} if isinstance(record, list) else record for record in records]
        dicts = [record if isinstance(record, dict) else {} for record in records]
        faults.mark("", [not isinstance(record, dict) for record in records], "expected an object")
        declared = set(self.declared)
        strange = [min(map(str, record.keys() - declared), default=None) for record in dicts]
        for name in sorted({name for name in strange if name is not None})[: values.MAX_FAULTS]:
            message = f"{expected(declared, found=name)} (columns of the schema)"
            faults.mark("", [name == other for other in strange], message)
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
        self, columns: Mapping[str, values.Values], faults: values.Faults
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        names = [column.name for column in self.features]
        values.refuse(
            SchemaInvalid, [FieldError(f"column {name}", "is missing") for name in names if name not in columns]
        )
        encoded = [column.encode(columns[column.name], faults) for column in self.features]
        features = np.hstack([features for features, _ in encoded])
        num_unknown = np.array([count for _, count in encoded])
        return self.random.of(features) if self.random else features, num_unknown


def checked_vectors(x: npt.ArrayLike, *, first_line: int | None = None) -> npt.NDArray[np.float64]:
    """Return vectors (b, d) of finite numbers. With `first_line`, faults are located like `line 12, column x[3]`;
    without it, like `records.11.3`."""
    try:
        vectors = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputInvalid("Expected vectors of numbers, all of one length.") from None
    if vectors.ndim != 2 or vectors.shape[1] == 0:
        raise InputInvalid("Expected vectors of numbers, all of one length.")
    faults = (
        values.Faults.in_records()
        if first_line is None
        else values.Faults.in_file(range(first_line, first_line + len(vectors)))
    )
    wrong = ~np.isfinite(vectors)
    for column in np.flatnonzero(wrong.any(axis=0))[: values.MAX_FAULTS].tolist():
        name = f"{column}" if first_line is None else f"x[{column}]"
        faults.mark(name, wrong[:, column], "expected a finite number")
    faults.refuse()
    return vectors


def unit_rows(features: npt.NDArray[np.float64]) -> Features:
    """Append the bias and scale each row to norm <= 1."""
    # Copied in C order, so that the sums below see one row at a time.
    rows = np.ones((len(features), features.shape[1] + 1))
    rows[:, :-1] = features
    # Scale before squaring, so that no square overflows.
    rows /= np.abs(rows).max(axis=1, keepdims=True, initial=1.0)
    rows *= SHRINK / np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    unit = rows.astype("<f4")
    assert (np.square(unit, dtype=np.float64).sum(axis=1) <= 1).all()
    return unit


MAX_RANDOM_FEATURES = 16_384
MAX_INPUTS = 4_096
MAX_WEIGHTS = 2**23
MAX_SEED = 2**53
REACH = 64.0
"""Magnitude to which features are clipped before they are rounded to multiples of 2^-16."""
_UNITS = 2.0**16
_PARTS = 16
_SHIFT = 4
_SPREAD = math.sqrt(_PARTS * (2**32 - 1) / 12) / 2**_SHIFT
"""Standard deviation of a weight before scaling: a weight is a 16th of the sum of 16 uniform 16-bit numbers."""


@lru_cache(maxsize=4)
def _drawn(seed: int, features: int, inputs: int) -> tuple[Floats, Floats]:
    """Return the integer weights (d, D) and the phases (D,). They are drawn feature by feature, weights before the
    phase. A weight takes four random words of four parts each, a phase takes one word."""
    # NumPy guarantees the stream of a bit generator, but not what a Generator's methods make of it (NEP 19).
    words = np.random.Philox(key=seed).random_raw(features * (4 * inputs + 1)).reshape(features, 4 * inputs + 1)
    parts = words[:, :-1].astype("<u8").view("<u2").reshape(features, inputs, _PARTS)
    sums = parts.sum(axis=2, dtype=np.int64) - _PARTS * (2**16 - 1) // 2
    phases = (words[:, -1] >> np.uint64(11)).astype(np.float64) * (2 * math.pi / 2**53)
    return np.ascontiguousarray((sums >> _SHIFT).astype(np.float64).T), phases


NOT_FINITE = "expected features that are finite numbers, once the network has computed them"


def numbers_of(input_size: int) -> str:
    """Return the fault message that states how many numbers per row a network expects."""
    return f"expected {input_size} numbers of a row, which the network takes"


def check_fit(schema: Schema, input_size: int) -> None:
    """Raise `SchemaInvalid` unless the schema encodes a record into as many numbers as the network has inputs."""
    if schema.random is not None or schema.num_features != input_size:
        raise SchemaInvalid("The schema does not fit the network.", [FieldError("schema", numbers_of(input_size))])


def check_finite(numbers: NDArray[np.floating[Any]], lines: Sequence[int], message: str = NOT_FINITE) -> None:
    """Raise `RowInvalid`, naming the `lines` concerned, if a network computes non-finite numbers for any row."""
    faults = values.Faults.in_file(lines)
    faults.mark("", ~np.isfinite(numbers).all(axis=1), message)
    faults.refuse()
