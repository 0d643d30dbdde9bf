"""Reading what a schema states about one column: each kind's settings, and every fault by its path."""

import datetime
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from lethe.contract.problems import FieldError
from lethe.contract.spelling import expected
from lethe.encoding import values
from lethe.encoding.columns import (
    CLIP,
    WORDS,
    Categorical,
    Column,
    DateTime,
    Edition,
    Hashed,
    Numeric,
    Outside,
    Standard,
    Text,
    Unknown,
    Vector,
)
from lethe.encoding.random_features import (
    MOST_FEATURES,
    MOST_INPUTS,
    MOST_SEED,
    MOST_WEIGHTS,
    RandomFeatures,
)
from lethe.encoding.rows import MAX_FEATURES
from lethe.encoding.values import LONGEST_NAME, is_name

_OF_UNKNOWN = ("unknown", "max_unknown")
OF_KIND = {
    "numeric": ("kind", "min", "max", "outside", "knots", *_OF_UNKNOWN),
    "standard": ("kind", "center", "scale", "clip", *_OF_UNKNOWN),
    "datetime": ("kind", "min", "max", "outside", *_OF_UNKNOWN),
    "categorical": ("kind", "values", *_OF_UNKNOWN),
    "hashed": ("kind", "features", *_OF_UNKNOWN),
    "text": ("kind", "features", "words", "characters", *_OF_UNKNOWN),
    "vector": ("kind", "length", "center", "scale", "clip", "unknown"),
}
"""The keys of each kind of column."""
_LONGEST_GRAM = 8


@dataclass(frozen=True, slots=True)
class Spec:
    """The statements of a document about one column; each that is wrong goes to the faults."""

    name: str
    path: str
    said: dict[str, object]
    most_unknown: float
    edition: Edition
    faults: list[FieldError]

    def fault(self, key: str, message: str) -> None:
        self.faults.append(FieldError(f"{self.path}.{key}", message))

    def common(self) -> dict[str, Any]:
        """The settings that all columns have."""
        unknown: Unknown = "null" if self.said.get("unknown") == "null" else "error"
        if self.said.get("unknown", "error") != unknown:
            meant = '"null", a text' if self.said["unknown"] is None else "null"
            self.fault("unknown", f"expected error or {meant}")
        most = share(f"{self.path}.max_unknown", self.said, self.most_unknown, self.faults)
        return {"name": self.name, "unknown": unknown, "max_unknown": most, "edition": self.edition}

    def range(self) -> tuple[float, float]:
        """The public range of a number."""
        low, high = number_in(self.said.get("min")), number_in(self.said.get("max"))
        for key, bound in (("min", low), ("max", high)):
            if math.isinf(bound):
                self.fault(key, "expected a finite number")
        if math.isfinite(low) and math.isfinite(high) and not 0 < high - low < math.inf:
            self.fault("max", "expected min < max, and a finite distance between them")
        return low, high

    def outside(self) -> Outside:
        outside: Outside = "clip" if self.said.get("outside") == "clip" else "error"
        if self.said.get("outside", "error") != outside:
            self.fault("outside", expected(("error", "clip"), found=self.said["outside"]))
        return outside

    def number(self, key: str, default: float | None = None, *, above: float = -math.inf) -> float:
        found = number_in(self.said.get(key, default))
        if not (math.isfinite(found) and found > above):
            self.fault(key, "expected a finite number" + (f" above {above:g}" if math.isfinite(above) else ""))
            return max(above, 0.0) + 1.0
        return found

    def numbers(self, key: str, length: int, default: float, *, above: float = -math.inf) -> tuple[float, ...]:
        """One number, or one for each of a vector."""
        said = self.said.get(key, default)
        found = tuple(number_in(number) for number in (said if isinstance(said, list) else [said]))
        if len(found) not in (1, length) or not all(math.isfinite(number) and number > above for number in found):
            beyond = f" above {above:g}" if math.isfinite(above) else ""
            self.fault(key, f"expected a finite number{beyond}, or a list of {length}")
            return (max(above, 0.0) + 1.0,)
        return found

    def count(self, key: str, *, most: int = MAX_FEATURES) -> int:
        found = self.said.get(key)
        if type(found) is not int or not 1 <= found <= most:
            self.fault(key, f"expected a whole number from 1 to {most}")
            return 1
        return found

    def lengths(self, key: str, default: tuple[int, int] | None) -> tuple[int, int] | None:
        """The least and the greatest length of n-grams; null for none of them."""
        found = self.said.get(key, default)
        match found:
            case None:
                return None
            case [int(least), int(most)] | (int(least), int(most)) if 1 <= least <= most <= _LONGEST_GRAM:
                return least, most
        self.fault(key, f"expected the least and the greatest length of n-grams, from 1 to {_LONGEST_GRAM}, or null")
        return 1, 1


def _numeric(spec: Spec) -> Numeric:
    low, high = spec.range()
    return Numeric(low=low, high=high, outside=spec.outside(), knots=_knots(spec, low, high), **spec.common())


def _knots(spec: Spec, low: float, high: float) -> tuple[float, ...]:
    said = spec.said.get("knots", [])
    knots = tuple(number_in(knot) for knot in said) if isinstance(said, list) else (math.inf,)
    ascending = all(one < other for one, other in pairwise(knots))
    if knots and not (len(knots) > 1 and ascending and low <= knots[0] and knots[-1] <= high):
        spec.fault("knots", "expected two or more ascending numbers from min to max")
    return knots


def _standard(spec: Spec) -> Standard:
    return Standard(
        center=spec.number("center"),
        scale=spec.number("scale", above=0),
        clip=spec.number("clip", CLIP, above=0),
        **spec.common(),
    )


def _datetime(spec: Spec) -> DateTime:
    earliest, latest = _moment(spec, "min"), _moment(spec, "max")
    if not earliest < latest:
        spec.fault("max", "expected min < max")
    return DateTime(earliest=earliest, latest=latest, outside=spec.outside(), **spec.common())


def _moment(spec: Spec, key: str) -> datetime.datetime:
    seconds = float(values.seconds([spec.said.get(key)])[0])
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        spec.fault(key, "expected a date or a time, such as 2000-01-01 or 2000-01-01T12:00:00Z")
        return datetime.datetime(9000 if key == "max" else 1, 1, 1, tzinfo=datetime.UTC)


def _categorical(spec: Spec) -> Categorical:
    return Categorical(values=names_in(f"{spec.path}.values", spec.said.get("values"), 1, spec.faults), **spec.common())


def _hashed(spec: Spec) -> Hashed:
    return Hashed(features=spec.count("features"), **spec.common())


def _text(spec: Spec) -> Text:
    words, characters = spec.lengths("words", WORDS), spec.lengths("characters", None)
    if words is None and characters is None:
        spec.fault("words", "expected n-grams of words, of characters, or of both")
    return Text(features=spec.count("features"), words=words, characters=characters, **spec.common())


def _vector(spec: Spec) -> Vector:
    length, common = spec.count("length"), spec.common()
    if common["unknown"] != "error":
        spec.fault("unknown", "expected error: a vector is never missing")
    return Vector(
        length=length,
        center=spec.numbers("center", length, 0.0),
        scale=spec.numbers("scale", length, 1.0, above=0),
        clip=None if spec.said.get("clip") is None else spec.number("clip", above=0),
        **common,
    )


READERS: dict[str, Callable[[Spec], Column]] = {
    "numeric": _numeric,
    "standard": _standard,
    "datetime": _datetime,
    "categorical": _categorical,
    "hashed": _hashed,
    "text": _text,
    "vector": _vector,
}


def number_in(value: object) -> float:
    number = math.inf if isinstance(value, str) else values.number(value)
    return math.inf if math.isnan(number) else number


def share(path: str, spec: dict[str, object], default: float, faults: list[FieldError]) -> float:
    share = number_in(spec.get("max_unknown", default))
    if not 0 <= share <= 1:
        faults.append(FieldError(path, "expected a share of the rows, a number from 0 to 1"))
    return share


def random_in(document: object, inputs: int, faults: list[FieldError]) -> RandomFeatures | None:
    """Random features of so many features of columns, as a schema states them; None if it states nothing."""
    if document is None:
        return None
    path = "random_features"
    if not isinstance(document, dict) or set(document) - {"features", "seed", "scale"}:
        faults.append(FieldError(path, 'expected an object, such as {"features": 500, "seed": 1}, or with a "scale"'))
        return None
    features, seed = document.get("features"), document.get("seed")
    if type(features) is not int or not 1 <= features <= MOST_FEATURES:
        faults.append(FieldError(f"{path}.features", f"expected a whole number from 1 to {MOST_FEATURES}"))
        return None
    if type(seed) is not int or not 0 <= seed < MOST_SEED:
        faults.append(FieldError(f"{path}.seed", "expected a whole number from 0 to 2^53 - 1"))
        return None
    scale = number_in(document.get("scale", 1 / math.sqrt(max(inputs, 1))))
    if not 1e-6 <= scale <= 1e6:
        faults.append(FieldError(f"{path}.scale", "expected a number from 1e-6 to 1e6"))
    if inputs > MOST_INPUTS or inputs * features > MOST_WEIGHTS:
        limits = f"{MOST_INPUTS} features of columns, and {MOST_WEIGHTS} for both numbers multiplied"
        faults.append(FieldError(path, f"expected at most {limits}"))
        return None
    return RandomFeatures(features=features, seed=seed, scale=scale)


def names_in(path: str, found: object, at_least: int, faults: list[FieldError]) -> tuple[str, ...]:
    names = tuple(value for value in found if is_name(value)) if isinstance(found, list) else ()
    if not isinstance(found, list) or len(names) < len(found) or len(set(names)) < max(len(names), at_least):
        faults.append(
            FieldError(path, f"expected a list of {at_least} or more distinct texts of 1 to {LONGEST_NAME} characters")
        )
    return names
