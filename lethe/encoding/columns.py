"""Column values, read identically from CSV, Parquet, npz and JSON: numbers, texts, times, vectors, and positions in a
list of names. pyarrow is imported only for Arrow arrays."""

import abc
import datetime
import decimal
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from lethe.contract.fields import expected
from lethe.contract.problems import FieldError, InputInvalid, RowInvalid, Sentence

# A pyarrow Array or ChunkedArray (untyped), a numpy array, or a sequence of JSON values.
Values: TypeAlias = Any

# Maximum in characters; the same limit as for a person in a deletion request.
MAX_NAME_LENGTH = 500

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_OF_NUMBERS = b"0123456789+-.eE"
_NO_CODE = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,99})(?:\.[0-9]{1,100})?(?:[eE][+-]?[0-9]{1,3})?")
"""Text that is a number and not a code such as `007`, in which leading zeros matter."""
# Replaces a text longer than any name in UTF-8; it is neither a name nor a number.
_TOO_LONG = "\x00"
NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")
"""Text consisting of characters that every database and every JSON writer can represent."""
INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200e\u200f\u2060\ufeff"))
"""Table for `str.translate` that removes soft hyphens, zero-width spaces, direction marks and byte order marks."""
_NOT_CSV = {
    rb"PK\x03\x04|\xd0\xcf\x11\xe0": Sentence("is a workbook or a zip archive"),
    rb"\x1f\x8b|\x28\xb5\x2f\xfd": Sentence("is compressed"),
    rb"PAR1": Sentence("is a parquet file"),
    rb"\xff\xfe|\xfe\xff|[^\r\n]*\0": Sentence("is in UTF-16, or is no text"),
    rb'"?sep=': Sentence("begins with a line sep= for Excel"),
    rb"(?=[^,\r\n]*;)[^,\r\n]*([\r\n]|\Z)": Sentence("has semicolons between fields"),
    rb"(?=[^,\r\n]*\t)[^,\r\n]*([\r\n]|\Z)": Sentence("has tabs between fields"),
}
"""Patterns for the first bytes of files that are sent as CSV by mistake, each with a description of the file."""
AS_CSV = Sentence("save it as CSV in UTF-8, with commas between fields and points before decimals")


def is_name(value: object) -> bool:
    """Return True for a non-empty string of at most 500 characters without control characters or lone surrogates."""
    return isinstance(value, str) and len(value) <= MAX_NAME_LENGTH and NAME.fullmatch(value) is not None


def is_subject(value: object) -> bool:
    """Return True if `value` can name a person: a name that is not empty under any normalisation of subject ids."""
    return is_name(value) and str(value).translate(INVISIBLE).strip() != ""


_REWRITTEN = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]*)?[eE]\+[0-9]+|[+-]?[0-9]+[.,]0+")
"""Number rewritten by a spreadsheet or data frame. A code such as `12e5` has no sign after the `e`."""
NO_REWRITTEN_ID = (
    "expected an id as text: a spreadsheet or data frame wrote this one as a number, such as 4.86E+17 or 4711.0, which "
    "may have lost digits; format the column as text at its source, and export it again"
)


def is_rewritten(value: object) -> bool:
    """Return True for an id that was read as a number and may be rounded: a float or decimal, even if sent as text."""
    text = value.translate(INVISIBLE).strip() if isinstance(value, str) else ""
    return isinstance(value, float | Decimal) or _REWRITTEN.fullmatch(text) is not None


def check_csv(start: bytes, path: str) -> None:
    """Raise `InputInvalid` at `path` if the file does not begin like comma-separated CSV in UTF-8."""
    start = start.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    for pattern, fault in _NOT_CSV.items():
        if re.match(pattern, start, re.IGNORECASE):
            expected = FieldError(path, "expected CSV in UTF-8, with commas")
            raise InputInvalid("The file {fault}; {advice}.", [expected], fault=fault, advice=AS_CSV)


def is_arrow(values: Values) -> bool:
    return type(values).__module__.partition(".")[0] == "pyarrow"


def numbers(values: Values) -> npt.NDArray[np.float64]:
    """Return the values as numbers: NaN if missing, infinity if not a finite number."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        return values.astype(np.float64)
    if is_arrow(values):
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = values.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return np.asarray(pc.cast(values, pa.float64(), safe=False), dtype=np.float64)
    texts = listed(values)
    plain = _plain_numbers(texts)
    return np.array([number(value) for value in texts], dtype=np.float64) if plain is None else plain


def seconds(values: Values) -> npt.NDArray[np.float64]:
    """Return times in seconds since 1970 (UTC unless an offset is given): NaN if missing, infinity if not a time."""
    if is_arrow(values):
        import pyarrow as pa

        kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            # Python has no nanoseconds, no years above 9999, and not every time zone that a file may name.
            unit = "s" if pa.types.is_date32(kind) else "ms" if pa.types.is_date64(kind) else kind.unit
            ticks = values.cast(kind).cast(pa.timestamp("us" if unit == "ns" else unit), safe=False).cast(pa.int64())
            per_second = {"s": 1, "ms": 10**3}.get(unit, 10**6)
            return np.array([math.nan if tick is None else tick / per_second for tick in ticks.to_pylist()])
    return np.array([_second(value) for value in listed(values)], dtype=np.float64)


def _second(value: object) -> float:
    if value is None or value == "":
        return math.nan
    with suppress(ValueError, OverflowError):
        if isinstance(value, str):
            value = datetime.datetime.fromisoformat(value)
        if isinstance(value, datetime.datetime):
            value = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
            return value.timestamp()
        if isinstance(value, datetime.date):
            return datetime.datetime.combine(value, datetime.time(), datetime.UTC).timestamp()
    return math.inf


def vectors(values: Values, length: int) -> npt.NDArray[np.float64]:
    """Return the values as lists of `length` numbers, with NaN for entries that are not numbers  # (b, length)"""
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.shape[1] == length and values.dtype.kind in "iuf":
        return values.astype(np.float64)
    lists = listed(values)
    rows = np.full((len(lists), length), math.nan)
    for row, value in enumerate(lists):
        if isinstance(value, str):
            with suppress(ValueError, RecursionError):
                value = json.loads(value)
        if isinstance(value, list | tuple) and len(value) == length:
            rows[row] = [number(entry) for entry in value]
    return rows


def prose(values: Values) -> list[str | None]:
    """Return the values as texts of any length, with None for a value that is missing or not a text."""
    entries = _of_arrow(values, at_full_length=True) if is_arrow(values) else listed(values)
    return [value if isinstance(value, str) and value else None for value in entries]


def _plain_numbers(texts: Sequence[Any]) -> npt.NDArray[np.float64] | None:
    """Return what `number` returns for each text, but ten times as fast; None unless every text is a number or empty.
    `float` accepts the same texts as `number` among those made up only of characters in `_OF_NUMBERS`."""
    try:
        if "".join(texts).encode().translate(None, _OF_NUMBERS):
            return None
        # ValueError means that a text is empty.
        with suppress(ValueError):
            return np.fromiter(map(float, texts), dtype=np.float64, count=len(texts))
        return np.array([float(text or "nan") for text in texts], dtype=np.float64)
    # A value is not a text, or a text is not a number.
    except (TypeError, ValueError):
        return None


def number(value: object) -> float:
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


def codes(values: Sequence[object], names: Sequence[str], *, by_number: bool) -> npt.NDArray[np.int32]:
    """Return the position of each value among the names; -1 if missing or unknown.

    With `by_number`, a value that is not a name matches the name with the same numeric value, if there is exactly one.
    This is needed because some tools write integers as floats, such as `3.0`, as soon as one value is missing.
    """
    position: dict[str | None, int] = {name: code for code, name in enumerate(names)}
    # Computed on first use, because it is rarely needed.
    equal: dict[Decimal, int] | None = None

    def code(value: object) -> int:
        nonlocal equal
        place = position.get(text(value), -1)
        exact = _exactly(value) if by_number and place < 0 else None
        if exact is None:
            return place
        equal = _by_number(names) if equal is None else equal
        return equal.get(exact, -1)

    return np.array([code(value) for value in values], dtype="<i4")


def bits(values: Sequence[object], names: Sequence[str], separator: str) -> npt.NDArray[np.int32]:
    """Return the names listed in each value as a bit set, in which bit c stands for name c (at most 31 names); 0 if the
    value is missing or empty, -1 if it lists an unknown name."""
    position = {name: 1 << code for code, name in enumerate(names)}

    def mask(value: object) -> int:
        if value is None or value == "":
            return 0
        names_text = text(value)
        masks = {position.get(name.strip(), -1) for name in names_text.split(separator)} if names_text else {-1}
        return -1 if -1 in masks else sum(masks)

    return np.array([mask(value) for value in values], dtype="<i4")


def text(value: object) -> str | None:
    """Return a value as CSV would write it, so that all formats agree; None if it is missing or cannot be a name."""
    if isinstance(value, str):
        return value or None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else None


def listed(values: Values) -> Sequence[object]:
    """Return the values as Python objects; equal texts in a dictionary array share one object."""
    if is_arrow(values):
        return _of_arrow(values)
    entries: Sequence[object] = values.tolist() if isinstance(values, np.ndarray) else values
    return entries


def _of_arrow(values: Any, *, at_full_length: bool = False) -> Sequence[object]:
    """Return the values as Python objects. Unless `at_full_length`, texts too long for a name become `_TOO_LONG`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(values, pa.ChunkedArray):
        return [value for chunk in values.chunks for value in _of_arrow(chunk, at_full_length=at_full_length)]
    if isinstance(values, pa.DictionaryArray):
        used, position = np.unique(np.asarray(values.indices.cast(pa.int64()).fill_null(-1)), return_inverse=True)
        texts = _of_arrow(values.dictionary.take(pa.array(used, mask=used < 0)), at_full_length=at_full_length)
        return [texts[place] for place in position]
    if isinstance(values, pa.StringArray | pa.LargeStringArray) and not at_full_length:
        values = pc.if_else(pc.greater(pc.binary_length(values), 4 * MAX_NAME_LENGTH), _TOO_LONG, values)
    # Python's datetime has no nanoseconds.
    if pa.types.is_timestamp(values.type) and values.type.unit == "ns":
        values = values.cast(pa.timestamp("us", values.type.tz), safe=False)
    entries: list[object] = values.to_pylist()
    return entries


def _by_number(names: Sequence[str]) -> dict[Decimal, int]:
    """Map each name's numeric value to the name's position, leaving out values that several names share."""
    positions: dict[Decimal, int] = {}
    twice: set[Decimal] = set()
    for code, name in enumerate(names):
        exact = _exactly(name)
        if exact is not None:
            twice |= {exact} & positions.keys()
            positions[exact] = code
    return {exact: code for exact, code in positions.items() if exact not in twice}


def _exactly(value: object) -> Decimal | None:
    """Return a value as an exact number; None if it is not a finite number."""
    match value:
        case bool():
            return None
        case str():
            return Decimal(value) if _NO_CODE.fullmatch(value) else None
        case int():
            return Decimal(value)
        case float():
            return Decimal(repr(value)) if math.isfinite(value) else None
        case decimal.Decimal():
            return value if value.is_finite() else None
        case _:
            return None


MAX_FAULTS = 20


class Faults:
    """Faults found in a batch of rows. `refuse` raises the first twenty, in row order."""

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
            refuse(self._error, [fault for _, fault in sorted(self._found, key=lambda item: item[0])])


def refuse(error: type[InputInvalid], faults: Sequence[FieldError]) -> None:
    """Raise `error` with the first twenty faults, using the first as its detail; do nothing if there are none."""
    if faults:
        raise error(f"{faults[0].path}: {faults[0].message}.", faults[:MAX_FAULTS])


Unknown: TypeAlias = Literal["error", "null"]
Outside: TypeAlias = Literal["error", "clip"]
Edition: TypeAlias = Literal[1, 2]
Floats: TypeAlias = npt.NDArray[np.float64]

EDITION: Edition = 2
MAX_UNKNOWN = 0.5
CLIP = 3.0
"""Clipping distance as a multiple of the scale. In a normally distributed column, 0.3 % of the values lie beyond it."""
WORDS = (1, 2)
MAX_TEXT_LENGTH = 65_536
"""Maximum number of characters in a text."""

_WORD = re.compile(r"\w+")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(abc.ABC):
    """Column of a schema. `max_unknown` is the maximum share of a file's rows whose value may be missing or unknown."""

    kind: ClassVar[str]
    name: str
    unknown: Unknown = "error"
    max_unknown: float = MAX_UNKNOWN
    edition: Edition = EDITION

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """Number of features that encode the column."""

    @property
    @abc.abstractmethod
    def expected(self) -> str:
        """Text stating which values the column accepts."""

    @abc.abstractmethod
    def encode(self, column: Values, faults: Faults) -> tuple[Floats, int]:
        """Return the features (b, width) and the number of missing or unknown values."""

    def num_clipped(self, column: Values) -> int:
        """Return the number of values outside the range, each of which is clipped to the nearer end."""
        return 0

    @abc.abstractmethod
    def settings(self) -> dict[str, object]:
        """Return the settings specific to this kind of column, under their keys in the schema."""

    def to_json(self) -> dict[str, object]:
        document = {"kind": self.kind, **self.settings(), "unknown": self.unknown}
        return document | ({"max_unknown": self.max_unknown} if self.edition > 1 and self.unknown == "null" else {})


class _OfNumbers(Column):
    """Column of numbers, in which NaN means missing."""

    __slots__ = ()

    @property
    def _says_missing(self) -> bool:
        return self.unknown == "null" and self.edition > 1

    @property
    def width(self) -> int:
        return self.num_scaled + self._says_missing

    @property
    def num_scaled(self) -> int:
        """Number of features that encode one number."""
        return 1

    def encode(self, column: Values, faults: Faults) -> tuple[Floats, int]:
        numbers = self.numbers(column)
        missing = np.isnan(numbers)
        if self.unknown == "error":
            faults.mark(self.name, missing, "expected a value")
        faults.mark(self.name, np.isinf(numbers), self.unreadable)
        self.check(numbers, faults)
        finite = np.where(np.isfinite(numbers), numbers, 0.0)
        features = np.where(missing[:, np.newaxis], 0.0, self.scaled(finite))  # (b, num_scaled)
        if self._says_missing:
            features = np.column_stack((features, missing))
        return features, int(missing.sum())

    @property
    def unreadable(self) -> str:
        return "expected a finite number, with a point before decimals"

    def numbers(self, column: Values) -> Floats:
        """Return the values as numbers: NaN if missing, infinity if not a number  # (b,)"""
        return numbers(column)

    def check(self, numbers: Floats, faults: Faults) -> None:
        """Record a fault for each number that the column does not accept."""

    @abc.abstractmethod
    def scaled(self, numbers: Floats) -> Floats:
        """Return the features of finite numbers  # (b, num_scaled)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numeric(_OfNumbers):
    """Number scaled from [low, high] to [0, 1]. With `knots` (ascending, at least two), it is encoded as a linear
    spline with one feature per knot, so that a linear model can fit a curve."""

    kind = "numeric"
    low: float
    high: float
    outside: Outside = "error"
    knots: tuple[float, ...] = ()

    @property
    def num_scaled(self) -> int:
        return len(self.knots) or 1

    @property
    def expected(self) -> str:
        return f"expected a number from {self.low:g} to {self.high:g}"

    def check(self, numbers: Floats, faults: Faults) -> None:
        if self.outside == "error":
            beyond = np.isfinite(numbers) & ((numbers < self.low) | (numbers > self.high))
            faults.mark(self.name, beyond, self.expected)

    def num_clipped(self, column: Values) -> int:
        return _num_beyond(self.numbers(column), self.low, self.high)

    def scaled(self, numbers: Floats) -> Floats:
        inside = np.clip(numbers, self.low, self.high)
        if not self.knots:
            return ((inside - self.low) / (self.high - self.low))[:, np.newaxis]
        places = np.eye(len(self.knots))
        return np.column_stack([np.interp(inside, self.knots, place) for place in places])

    def settings(self) -> dict[str, object]:
        document: dict[str, object] = {"min": self.low, "max": self.high, "outside": self.outside}
        return document | ({"knots": list(self.knots)} if self.knots else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Standard(_OfNumbers):
    """Number encoded as (value - center) / scale, clipped to [-clip, clip]."""

    kind = "standard"
    center: float
    scale: float
    clip: float = CLIP

    @property
    def expected(self) -> str:
        return "expected a number"

    def num_clipped(self, column: Values) -> int:
        reach = self.clip * self.scale
        return _num_beyond(self.numbers(column), self.center - reach, self.center + reach)

    def scaled(self, numbers: Floats) -> Floats:
        return _standard(numbers, self.center, self.scale, self.clip)[:, np.newaxis]

    def settings(self) -> dict[str, object]:
        return {"center": self.center, "scale": self.scale, "clip": self.clip}


@dataclass(frozen=True, slots=True, kw_only=True)
class DateTime(_OfNumbers):
    """Date or time (ISO 8601; UTC unless an offset is given), scaled from [earliest, latest] to [0, 1]."""

    kind = "datetime"
    earliest: datetime.datetime
    latest: datetime.datetime
    outside: Outside = "error"

    @property
    def expected(self) -> str:
        return f"expected a date or a time from {self.earliest.isoformat()} to {self.latest.isoformat()}"

    @property
    def unreadable(self) -> str:
        return self.expected

    def numbers(self, column: Values) -> Floats:
        return seconds(column)

    def check(self, numbers: Floats, faults: Faults) -> None:
        low, high = self._range
        if self.outside == "error":
            faults.mark(self.name, np.isfinite(numbers) & ((numbers < low) | (numbers > high)), self.expected)

    def num_clipped(self, column: Values) -> int:
        return _num_beyond(self.numbers(column), *self._range)

    def scaled(self, numbers: Floats) -> Floats:
        low, high = self._range
        return ((np.clip(numbers, low, high) - low) / (high - low))[:, np.newaxis]

    @property
    def _range(self) -> tuple[float, float]:
        return (self.earliest - _EPOCH).total_seconds(), (self.latest - _EPOCH).total_seconds()

    def settings(self) -> dict[str, object]:
        return {"min": self.earliest.isoformat(), "max": self.latest.isoformat(), "outside": self.outside}


@dataclass(frozen=True, slots=True, kw_only=True)
class Categorical(Column):
    """Value from a closed list, with one feature per value; all features are 0 if the value is missing or unknown."""

    kind = "categorical"
    values: tuple[str, ...]

    @property
    def width(self) -> int:
        return len(self.values)

    @property
    def expected(self) -> str:
        return expected(self.values)

    def encode(self, column: Values, faults: Faults) -> tuple[Floats, int]:
        entries = listed(column)
        places = codes(entries, self.values, by_number=self.edition > 1)
        if self.unknown == "error":
            faults.mark(self.name, places < 0, self.expected + of_booleans(entries))
        one_hot: npt.NDArray[np.bool_] = places[:, np.newaxis] == np.arange(self.width)  # (b, width)
        return one_hot.astype(np.float64), int((places < 0).sum())

    def settings(self) -> dict[str, object]:
        return {"values": list(self.values)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashed(Column):
    """Text with too many distinct values to list: a hash assigns each to one of `features` shared features."""

    kind = "hashed"
    features: int

    @property
    def width(self) -> int:
        return self.features

    @property
    def expected(self) -> str:
        return "expected a text"

    def encode(self, column: Values, faults: Faults) -> tuple[Floats, int]:
        texts = [text(value) for value in listed(column)]
        missing = np.array([entry is None for entry in texts], dtype=np.bool_)
        if self.unknown == "error":
            faults.mark(self.name, missing, self.expected)
        one_hot = np.zeros((len(texts), self.features))
        for row, entry in enumerate(texts):
            if entry is not None:
                one_hot[row, _place(entry, self.features)[0]] = 1.0
        return one_hot, int(missing.sum())

    def settings(self) -> dict[str, object]:
        return {"features": self.features}


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Column):
    """Free text encoded as a vector of length 1. The hash of each lower-case n-gram selects a feature and a sign;
    counts enter as log(1 + count). `words` and (within words) `characters` are n-gram lengths; None disables them."""

    kind = "text"
    features: int
    words: tuple[int, int] | None = WORDS
    characters: tuple[int, int] | None = None

    @property
    def width(self) -> int:
        return self.features

    @property
    def expected(self) -> str:
        return f"expected a text of at most {MAX_TEXT_LENGTH} characters"

    def encode(self, column: Values, faults: Faults) -> tuple[Floats, int]:
        texts = prose(column)
        missing = np.array([text is None for text in texts], dtype=np.bool_)
        if self.unknown == "error":
            faults.mark(self.name, missing, self.expected)
        faults.mark(self.name, [len(text or "") > MAX_TEXT_LENGTH for text in texts], self.expected)
        distinct = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        counts = np.zeros((len(distinct), self.features))
        for text, row in distinct.items():
            for place, sign in (_place(gram, self.features) for gram in self._grams((text or "")[:MAX_TEXT_LENGTH])):
                counts[row, place] += sign
        counts = np.sign(counts) * np.log1p(np.abs(counts))
        counts /= np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-12)
        return counts[[distinct[text] for text in texts]], int(missing.sum())

    def _grams(self, text: str) -> Iterator[str]:
        words = _WORD.findall(text.lower())
        for length in _lengths(self.words):
            for start in range(len(words) - length + 1):
                yield " ".join(words[start : start + length])
        for word, length in itertools.product(words, _lengths(self.characters)):
            framed = f"<{word}>"
            for start in range(len(framed) - length + 1):
                yield f"#{framed[start : start + length]}"

    def settings(self) -> dict[str, object]:
        document: dict[str, object] = {"features": self.features}
        if self.words:
            document["words"] = list(self.words)
        return document | ({"characters": list(self.characters)} if self.characters else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector(Column):
    """List of `length` finite numbers, such as an embedding; it cannot be missing. Each entry is stored as (value -
    center) / scale, with shared or separate centers and scales, and clipped to [-clip, clip] if `clip` is given."""

    kind = "vector"
    length: int
    center: tuple[float, ...] = (0.0,)
    scale: tuple[float, ...] = (1.0,)
    clip: float | None = None

    @property
    def width(self) -> int:
        return self.length

    @property
    def expected(self) -> str:
        return f"expected a list of {self.length} finite numbers"

    def encode(self, column: Values, faults: Faults) -> tuple[Floats, int]:
        points = vectors(column, self.length)  # (b, length)
        faults.mark(self.name, ~np.isfinite(points).all(axis=1), self.expected)
        finite = np.where(np.isfinite(points), points, 0.0)
        clip = math.inf if self.clip is None else self.clip
        return _standard(finite, np.array(self.center), np.array(self.scale), clip), 0

    def num_clipped(self, column: Values) -> int:
        clip = math.inf if self.clip is None else self.clip
        far = np.abs(vectors(column, self.length) - np.array(self.center)) > clip * np.array(self.scale)
        return int(far.any(axis=1).sum())

    def settings(self) -> dict[str, object]:
        stated: dict[str, object] = {"length": self.length, "center": _brief(self.center), "scale": _brief(self.scale)}
        return stated | ({} if self.clip is None else {"clip": self.clip})


def of_booleans(column: Sequence[object]) -> str:
    return " (a boolean is true or false)" if any(isinstance(value, bool) for value in column) else ""


# Values too large for a float are clipped.
@np.errstate(over="ignore")
def _standard(numbers: Floats, center: float | Floats, scale: float | Floats, clip: float) -> Floats:
    return np.clip((numbers - center) / scale, -clip, clip)


def _num_beyond(numbers: Floats, low: float, high: float) -> int:
    return int(((numbers < low) | (numbers > high)).sum())


def _brief(numbers: tuple[float, ...]) -> float | list[float]:
    return numbers[0] if len(numbers) == 1 else list(numbers)


def _lengths(between: tuple[int, int] | None) -> range:
    return range(between[0], between[1] + 1) if between else range(0)


def _place(text: str, features: int) -> tuple[int, float]:
    """Return a feature position and a sign derived from a text's hash. Both are fixed and the same on every machine."""
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=9).digest()
    return int.from_bytes(digest[:8], "big") % features, 1.0 if digest[8] & 1 else -1.0
