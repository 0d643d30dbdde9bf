"""Kinds of feature columns: each says how one value becomes features, by what its schema states and nothing else.

Where a value may be missing, all features of the column are 0 then, and a column of numbers has one more that says so.
"""

import abc
import datetime
import hashlib
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from lethe.contract.spelling import expected
from lethe.encoding import values
from lethe.encoding.faults import Faults
from lethe.encoding.values import Values

Unknown: TypeAlias = Literal["error", "null"]
Outside: TypeAlias = Literal["error", "clip"]
Edition: TypeAlias = Literal[1, 2]
Floats: TypeAlias = npt.NDArray[np.float64]

EDITION: Edition = 2
MAX_UNKNOWN = 0.5
CLIP = 3.0
"""Scales from the centre: beyond it lie three of a thousand values of a normal column."""
WORDS = (1, 2)
LONGEST_TEXT = 65_536
"""Characters."""

_WORD = re.compile(r"\w+")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(abc.ABC):
    """`max_unknown`: the share of a file's rows in which the value may be missing or unknown."""

    kind: ClassVar[str]
    name: str
    unknown: Unknown = "error"
    max_unknown: float = MAX_UNKNOWN
    edition: Edition = EDITION

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """Number of features."""

    @property
    @abc.abstractmethod
    def expected(self) -> str:
        """The values that it takes, in words."""

    @abc.abstractmethod
    def encode(self, column: Values, faults: Faults) -> tuple[Floats, int]:
        """The features  # (b, width), and how many of the values are missing or unknown."""

    def num_clipped(self, column: Values) -> int:
        """Number of values beyond the range, which become its nearer end."""
        return 0

    @abc.abstractmethod
    def settings(self) -> dict[str, object]:
        """The keys of the schema that this kind alone has."""

    def to_json(self) -> dict[str, object]:
        said = {"kind": self.kind, **self.settings(), "unknown": self.unknown}
        return said | ({"max_unknown": self.max_unknown} if self.edition > 1 and self.unknown == "null" else {})


class _OfNumbers(Column):
    """A column of numbers, of which NaN is missing."""

    __slots__ = ()

    @property
    def _says_missing(self) -> bool:
        return self.unknown == "null" and self.edition > 1

    @property
    def width(self) -> int:
        return self.num_scaled + self._says_missing

    @property
    def num_scaled(self) -> int:
        """Number of features that a number becomes."""
        return 1

    def encode(self, column: Values, faults: Faults) -> tuple[Floats, int]:
        numbers = self.numbers(column)
        missing = np.isnan(numbers)
        if self.unknown == "error":
            faults.mark(self.name, missing, "expected a value")
        faults.mark(self.name, np.isinf(numbers), self.unreadable)
        self.check(numbers, faults)
        known = np.where(np.isfinite(numbers), numbers, 0.0)
        features = np.where(missing[:, np.newaxis], 0.0, self.scaled(known))  # (b, num_scaled)
        if self._says_missing:
            features = np.column_stack((features, missing))
        return features, int(missing.sum())

    @property
    def unreadable(self) -> str:
        return "expected a finite number"

    def numbers(self, column: Values) -> Floats:
        """The values as numbers  # (b,), NaN for a missing one, infinity for what is none."""
        return values.numbers(column)

    def check(self, numbers: Floats, faults: Faults) -> None:
        """Mark the numbers that the column does not take."""

    @abc.abstractmethod
    def scaled(self, numbers: Floats) -> Floats:
        """The features of finite numbers  # (b, num_scaled)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numeric(_OfNumbers):
    """A number scaled from [low, high] to [0, 1]; with `knots` (ascending, two or more), its place between them: one
    feature for each, a linear spline, which lets a linear model follow a curve."""

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
        said: dict[str, object] = {"min": self.low, "max": self.high, "outside": self.outside}
        return said | ({"knots": list(self.knots)} if self.knots else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Standard(_OfNumbers):
    """A number as its distance from `center` in units of `scale`, clipped to [-clip, clip]."""

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
    """A date or a time (ISO 8601; UTC where it states no offset), scaled from [earliest, latest] to [0, 1]."""

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
        return values.seconds(column)

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
    """One of a closed list of values; one feature for each, all of them 0 for what is missing or unknown."""

    kind = "categorical"
    values: tuple[str, ...]

    @property
    def width(self) -> int:
        return len(self.values)

    @property
    def expected(self) -> str:
        return expected(self.values)

    def encode(self, column: Values, faults: Faults) -> tuple[Floats, int]:
        listed = values.listed(column)
        codes = values.codes(listed, self.values, by_number=self.edition > 1)
        if self.unknown == "error":
            faults.mark(self.name, codes < 0, self.expected + of_booleans(listed))
        one_hot: npt.NDArray[np.bool_] = codes[:, np.newaxis] == np.arange(self.width)  # (b, width)
        return one_hot.astype(np.float64), int((codes < 0).sum())

    def settings(self) -> dict[str, object]:
        return {"values": list(self.values)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashed(Column):
    """A text out of too many to list; one of `features` places, by its hash. Different texts may share one."""

    kind = "hashed"
    features: int

    @property
    def width(self) -> int:
        return self.features

    @property
    def expected(self) -> str:
        return "expected a text"

    def encode(self, column: Values, faults: Faults) -> tuple[Floats, int]:
        texts = [values.text(value) for value in values.listed(column)]
        missing = np.array([text is None for text in texts], dtype=np.bool_)
        if self.unknown == "error":
            faults.mark(self.name, missing, self.expected)
        found = np.zeros((len(texts), self.features))
        for row, text in enumerate(texts):
            if text is not None:
                found[row, _place(text, self.features)[0]] = 1.0
        return found, int(missing.sum())

    def settings(self) -> dict[str, object]:
        return {"features": self.features}


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Column):
    """Free text as a vector of length 1: its n-grams of `words` and of `characters` within words, in lower case, each
    with its sign and place by its hash (feature hashing), counted as log(1 + count). None: no such n-grams."""

    kind = "text"
    features: int
    words: tuple[int, int] | None = WORDS
    characters: tuple[int, int] | None = None

    @property
    def width(self) -> int:
        return self.features

    @property
    def expected(self) -> str:
        return f"expected a text of at most {LONGEST_TEXT} characters"

    def encode(self, column: Values, faults: Faults) -> tuple[Floats, int]:
        texts = values.prose(column)
        missing = np.array([text is None for text in texts], dtype=np.bool_)
        if self.unknown == "error":
            faults.mark(self.name, missing, self.expected)
        faults.mark(self.name, [len(text or "") > LONGEST_TEXT for text in texts], self.expected)
        distinct = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        found = np.zeros((len(distinct), self.features))
        for text, row in distinct.items():
            for place, sign in (_place(gram, self.features) for gram in self._grams((text or "")[:LONGEST_TEXT])):
                found[row, place] += sign
        found = np.sign(found) * np.log1p(np.abs(found))
        found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
        return found[[distinct[text] for text in texts]], int(missing.sum())

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
        said: dict[str, object] = {"features": self.features}
        if self.words:
            said["words"] = list(self.words)
        return said | ({"characters": list(self.characters)} if self.characters else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector(Column):
    """A list of `length` finite numbers, an embedding for instance: each its distance from `center` in units of
    `scale`, one for all or one for each, and clipped to [-clip, clip] if `clip` is given. Is never missing."""

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
        vectors = values.vectors(column, self.length)  # (b, length)
        faults.mark(self.name, ~np.isfinite(vectors).all(axis=1), self.expected)
        known = np.where(np.isfinite(vectors), vectors, 0.0)
        clip = math.inf if self.clip is None else self.clip
        return _standard(known, np.array(self.center), np.array(self.scale), clip), 0

    def num_clipped(self, column: Values) -> int:
        clip = math.inf if self.clip is None else self.clip
        far = np.abs(values.vectors(column, self.length) - np.array(self.center)) > clip * np.array(self.scale)
        return int(far.any(axis=1).sum())

    def settings(self) -> dict[str, object]:
        said: dict[str, object] = {"length": self.length, "center": _brief(self.center), "scale": _brief(self.scale)}
        return said | ({} if self.clip is None else {"clip": self.clip})


def of_booleans(column: Sequence[object]) -> str:
    return " (a boolean is true or false)" if any(isinstance(value, bool) for value in column) else ""


def _standard(numbers: Floats, center: float | Floats, scale: float | Floats, clip: float) -> Floats:
    return np.clip((numbers - center) / scale, -clip, clip)


def _num_beyond(numbers: Floats, low: float, high: float) -> int:
    return int(((numbers < low) | (numbers > high)).sum())


def _brief(numbers: tuple[float, ...]) -> float | list[float]:
    return numbers[0] if len(numbers) == 1 else list(numbers)


def _lengths(between: tuple[int, int] | None) -> range:
    return range(between[0], between[1] + 1) if between else range(0)


def _place(text: str, features: int) -> tuple[int, float]:
    """A place among the features and a sign, by the text's hash: the same everywhere and for good."""
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=9).digest()
    return int.from_bytes(digest[:8], "big") % features, 1.0 if digest[8] & 1 else -1.0
