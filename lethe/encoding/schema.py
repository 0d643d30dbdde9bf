"""Schema parsing: the settings of each kind of column. Every fault is reported with its path."""

import dataclasses
import datetime
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from lethe.contract.fields import expected, nearest
from lethe.contract.problems import FieldError, SchemaInvalid
from lethe.encoding import columns, rows, targets
from lethe.proof.losses import MAX_LABELS

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
"""Keys that a schema can have for each kind of column."""
_MAX_GRAM_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Spec:
    """One column's settings in a schema document. Faults are appended to `faults`."""

    name: str
    path: str
    settings: dict[str, object]
    max_unknown: float
    edition: columns.Edition
    faults: list[FieldError]

    def fault(self, key: str, message: str) -> None:
        self.faults.append(FieldError(f"{self.path}.{key}", message))

    def common(self) -> dict[str, Any]:
        """Return the settings common to all kinds of columns."""
        unknown: columns.Unknown = "null" if self.settings.get("unknown") == "null" else "error"
        if self.settings.get("unknown", "error") != unknown:
            meant = '"null", a text' if self.settings["unknown"] is None else "null"
            self.fault("unknown", f"expected error or {meant}")
        maximum = share(f"{self.path}.max_unknown", self.settings, self.max_unknown, self.faults)
        return {"name": self.name, "unknown": unknown, "max_unknown": maximum, "edition": self.edition}

    def range(self) -> tuple[float, float]:
        """Return the public range of a numeric column or a target."""
        low, high = number_in(self.settings.get("min")), number_in(self.settings.get("max"))
        for key, bound in (("min", low), ("max", high)):
            if math.isinf(bound):
                self.fault(key, "expected a finite number")
        if math.isfinite(low) and math.isfinite(high) and not 0 < high - low < math.inf:
            self.fault("max", "expected min < max, and a finite distance between them")
        return low, high

    def outside(self) -> columns.Outside:
        outside: columns.Outside = "clip" if self.settings.get("outside") == "clip" else "error"
        if self.settings.get("outside", "error") != outside:
            self.fault("outside", expected(("error", "clip"), found=self.settings["outside"]))
        return outside

    def number(self, key: str, default: float | None = None, *, above: float = -math.inf) -> float:
        number = number_in(self.settings.get(key, default))
        if not (math.isfinite(number) and number > above):
            self.fault(key, "expected a finite number" + (f" above {above:g}" if math.isfinite(above) else ""))
            return max(above, 0.0) + 1.0
        return number

    def numbers(self, key: str, length: int, default: float, *, above: float = -math.inf) -> tuple[float, ...]:
        """Return the setting `key`: one number for the whole vector, or one number per entry."""
        stated = self.settings.get(key, default)
        numbers = tuple(number_in(number) for number in (stated if isinstance(stated, list) else [stated]))
        if len(numbers) not in (1, length) or not all(math.isfinite(number) and number > above for number in numbers):
            beyond = f" above {above:g}" if math.isfinite(above) else ""
            self.fault(key, f"expected a finite number{beyond}, or a list of {length}")
            return (max(above, 0.0) + 1.0,)
        return numbers

    def count(self, key: str) -> int:
        count = self.settings.get(key)
        if type(count) is not int or not 1 <= count <= rows.MAX_FEATURES:
            self.fault(key, f"expected a whole number from 1 to {rows.MAX_FEATURES}")
            return 1
        return count

    def lengths(self, key: str, default: tuple[int, int] | None) -> tuple[int, int] | None:
        """Return the setting `key`, the minimum and maximum length of n-grams; None if these n-grams are disabled."""
        lengths = self.settings.get(key, default)
        match lengths:
            case None:
                return None
            case [int(minimum), int(maximum)] | (int(minimum), int(maximum)) if (
                1 <= minimum <= maximum <= _MAX_GRAM_LENGTH
            ):
                return minimum, maximum
        self.fault(key, f"expected the minimum and maximum length of n-grams, from 1 to {_MAX_GRAM_LENGTH}, or null")
        return 1, 1


def _numeric(spec: Spec) -> columns.Numeric:
    low, high = spec.range()
    return columns.Numeric(low=low, high=high, outside=spec.outside(), knots=_knots(spec, low, high), **spec.common())


def _knots(spec: Spec, low: float, high: float) -> tuple[float, ...]:
    stated = spec.settings.get("knots", [])
    knots = tuple(number_in(knot) for knot in stated) if isinstance(stated, list) else (math.inf,)
    ascending = all(lower < upper for lower, upper in pairwise(knots))
    if knots and not (len(knots) > 1 and ascending and low <= knots[0] and knots[-1] <= high):
        spec.fault("knots", "expected two or more ascending numbers from min to max")
    return knots


def _standard(spec: Spec) -> columns.Standard:
    return columns.Standard(
        center=spec.number("center"),
        scale=spec.number("scale", above=0),
        clip=spec.number("clip", columns.CLIP, above=0),
        **spec.common(),
    )


def _datetime(spec: Spec) -> columns.DateTime:
    earliest, latest = _moment(spec, "min"), _moment(spec, "max")
    if not earliest < latest:
        spec.fault("max", "expected min < max")
    return columns.DateTime(earliest=earliest, latest=latest, outside=spec.outside(), **spec.common())


def _moment(spec: Spec, key: str) -> datetime.datetime:
    seconds = float(columns.seconds([spec.settings.get(key)])[0])
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        spec.fault(key, "expected a date or a time, such as 2000-01-01 or 2000-01-01T12:00:00Z")
        return datetime.datetime(9000 if key == "max" else 1, 1, 1, tzinfo=datetime.UTC)


def _categorical(spec: Spec) -> columns.Categorical:
    return columns.Categorical(
        values=names_in(f"{spec.path}.values", spec.settings.get("values"), 1, spec.faults), **spec.common()
    )


def _text(spec: Spec) -> columns.Text:
    words, characters = spec.lengths("words", columns.WORDS), spec.lengths("characters", None)
    if words is None and characters is None:
        spec.fault("words", "expected n-grams of words, of characters, or of both")
    return columns.Text(features=spec.count("features"), words=words, characters=characters, **spec.common())


def _vector(spec: Spec) -> columns.Vector:
    length, common = spec.count("length"), spec.common()
    if common["unknown"] != "error":
        spec.fault("unknown", "expected error: a vector is never missing")
    return columns.Vector(
        length=length,
        center=spec.numbers("center", length, 0.0),
        scale=spec.numbers("scale", length, 1.0, above=0),
        clip=None if spec.settings.get("clip") is None else spec.number("clip", above=0),
        **common,
    )


READERS: dict[str, Callable[[Spec], columns.Column]] = {
    "numeric": _numeric,
    "standard": _standard,
    "datetime": _datetime,
    "categorical": _categorical,
    "hashed": lambda spec: columns.Hashed(features=spec.count("features"), **spec.common()),
    "text": _text,
    "vector": _vector,
}


def number_in(value: object) -> float:
    number = math.inf if isinstance(value, str) else columns.number(value)
    return math.inf if math.isnan(number) else number


def share(path: str, spec: dict[str, object], default: float, faults: list[FieldError]) -> float:
    share = number_in(spec.get("max_unknown", default))
    if not 0 <= share <= 1:
        faults.append(FieldError(path, "expected a share of the rows, a number from 0 to 1"))
    return share


def random_in(document: object, inputs: int, faults: list[FieldError]) -> rows.RandomFeatures | None:
    """Parse a schema's random features, which replace `inputs` column features; return None if the schema has none."""
    if document is None:
        return None
    path = "random_features"
    if not isinstance(document, dict) or set(document) - {"features", "seed", "scale"}:
        faults.append(FieldError(path, 'expected an object, such as {"features": 500, "seed": 1}, or with a "scale"'))
        return None
    features, seed = document.get("features"), document.get("seed")
    if type(features) is not int or not 1 <= features <= rows.MAX_RANDOM_FEATURES:
        faults.append(FieldError(f"{path}.features", f"expected a whole number from 1 to {rows.MAX_RANDOM_FEATURES}"))
        return None
    if type(seed) is not int or not 0 <= seed < rows.MAX_SEED:
        faults.append(FieldError(f"{path}.seed", "expected a whole number from 0 to 2^53 - 1"))
        return None
    scale = number_in(document.get("scale", 1 / math.sqrt(max(inputs, 1))))
    if not 1e-6 <= scale <= 1e6:
        faults.append(FieldError(f"{path}.scale", "expected a number from 1e-6 to 1e6"))
    if inputs > rows.MAX_INPUTS or inputs * features > rows.MAX_WEIGHTS:
        limits = f"{rows.MAX_INPUTS} features of columns, and {rows.MAX_WEIGHTS} for both numbers multiplied"
        faults.append(FieldError(path, f"expected at most {limits}"))
        return None
    return rows.RandomFeatures(features=features, seed=seed, scale=scale)


def names_in(path: str, document: object, at_least: int, faults: list[FieldError]) -> tuple[str, ...]:
    names = tuple(value for value in document if columns.is_name(value)) if isinstance(document, list) else ()
    if not isinstance(document, list) or len(names) < len(document) or len(set(names)) < max(len(names), at_least):
        faults.append(
            FieldError(
                path,
                f"expected a list of {at_least} or more distinct texts of 1 to {columns.MAX_NAME_LENGTH} characters",
            )
        )
    return names


_KEYS = ("columns", "encoding", "max_unknown", "random_features")
_OF_ROLE = {
    "label": ("role", "values"),
    "labels": ("role", "values", "separator"),
    "target": ("role", "min", "max", "outside", "counts"),
    "weight": ("role", "max", "outside"),
    "subject": ("role",),
    "ignored": ("role",),
}
_EXPECTED_LEARNED = (
    'expected exactly one column to learn, {"role": "label", "values": [...]}, with the role labels where a record has '
    'several, or {"role": "target", "min": 0, "max": 1}'
)


def stored(document: dict[str, Any]) -> rows.Schema:
    """Parse a dataset's stored schema. If it names no edition of the encoding, edition 1 applies."""
    return parse_schema({"encoding": 1} | document)


def is_same(first: dict[str, Any] | None, second: dict[str, Any] | None) -> bool:
    """Return True if two stored schemas encode records identically. They may differ in how many missing values they
    allow and in whether rows have weights."""
    if first is None or second is None:
        return first is second
    return _bare(stored(first)) == _bare(stored(second))


def _bare(schema: rows.Schema) -> rows.Schema:
    features = tuple(dataclasses.replace(column, max_unknown=columns.MAX_UNKNOWN) for column in schema.features)
    return dataclasses.replace(schema, features=features, weight=None)


def parse_schema(document: object, *, classes: tuple[str, ...] | None = None) -> rows.Schema:
    """Parse the schema in a JSON document. Raises `SchemaInvalid` with the path of every fault.

    `classes` supplies the labels if the document does not list them.
    """
    faults: list[FieldError] = []
    if not isinstance(document, dict) or not isinstance(document.get("columns"), dict):
        raise SchemaInvalid('columns: expected an object {"columns": {...}}.', [FieldError("columns", "is missing")])
    _check_keys("schema", "a schema", document, _KEYS, faults)
    edition = _edition(document.get("encoding", columns.EDITION), faults)
    max_unknown = share("max_unknown", document, columns.MAX_UNKNOWN, faults)
    features: list[columns.Column] = []
    roles: dict[str, list[str]] = {role: [] for role in _OF_ROLE}
    labels: tuple[str, ...] = ()
    target: targets.TargetColumn | None = None
    weight: rows.Weight | None = None
    separator: str | None = None
    for name, spec in sorted(document["columns"].items(), key=lambda item: str(item[0])):
        path = _at("columns", name)
        if not columns.is_name(name):
            faults.append(
                FieldError(
                    path,
                    f"expected names of 1 to {columns.MAX_NAME_LENGTH} characters, none of them a control character",
                )
            )
        match spec:
            case {"kind": str(kind)} if kind in READERS:
                _check_keys(path, f"a {kind} column", spec, OF_KIND[kind], faults)
                features.append(READERS[kind](Spec(name, path, spec, max_unknown, edition, faults)))
            case {"role": str(role)} if role in _OF_ROLE:
                _check_keys(path, f"a column with the role {role}", spec, _OF_ROLE[role], faults)
                if role == "label":
                    labels = _labels(f"{path}.values", spec, classes, faults)
                if role == "labels":
                    labels, separator = _several(path, spec, faults)
                if role == "target":
                    target = _target(Spec(name, path, spec, max_unknown, edition, faults))
                if role == "weight":
                    weight = _weight(Spec(name, path, spec, max_unknown, edition, faults))
                roles[role].append(name)
            case _:
                faults.append(FieldError(path, _column_expectation(spec)))
    learned = roles["label"] + roles["labels"] + roles["target"]
    if len(learned) != 1:
        faults.append(FieldError("columns", _EXPECTED_LEARNED))
    if not roles["label"] and classes is not None:
        faults.append(FieldError("classes", "expected none beside a column with the role labels or target"))
    for role in ("subject", "weight"):
        if len(roles[role]) > 1:
            faults.append(FieldError("columns", f"expected at most one {role} column"))
    if not features:
        faults.append(FieldError("columns", f"expected at least one column of a kind: {', '.join(OF_KIND)}"))
    if sum(column.width for column in features) > rows.MAX_FEATURES:
        faults.append(FieldError("columns", f"expected at most {rows.MAX_FEATURES} features of all columns together"))
    if len(labels) > rows.MAX_CLASSES:
        faults.append(FieldError("columns", f"expected at most {rows.MAX_CLASSES} labels"))
    random = random_in(document.get("random_features"), sum(column.width for column in features), faults)
    columns.refuse(SchemaInvalid, faults)
    return rows.Schema(
        features=tuple(features),
        label=learned[0],
        classes=labels,
        target=target,
        separator=separator,
        weight=weight,
        subject=next(iter(roles["subject"]), None),
        ignored=tuple(roles["ignored"]),
        edition=edition,
        random=random,
    )


def _column_expectation(spec: object) -> str:
    expectation = f"expected kind {_or(OF_KIND)}, or role {_or(_OF_ROLE)}"
    if not isinstance(spec, dict):
        return f'{expectation}, such as {{"kind": "numeric", "min": 0, "max": 100}}'
    for key, names in (("kind", OF_KIND), ("role", _OF_ROLE)):
        if key in spec:
            other = _OF_ROLE if key == "kind" else OF_KIND
            if isinstance(spec[key], str) and spec[key] in other:
                return f"{expectation}; did you mean {'role' if key == 'kind' else 'kind'} {spec[key]}?"
            meant = nearest(spec[key], names)
            return f"{expectation}; did you mean {key} {meant}?" if meant else expectation
    return expectation


def _or(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"


def _labels(
    path: str, spec: dict[str, object], classes: tuple[str, ...] | None, faults: list[FieldError]
) -> tuple[str, ...]:
    """Parse the labels, declared in the column or alongside the schema. They are never inferred from the data: a class
    that only a forgotten person had would reveal that person forever."""
    if classes is None:
        return names_in(path, spec.get("values"), 2, faults)
    if spec.get("values", list(classes)) != list(classes):
        faults.append(FieldError(path, "expected the same names as in classes, in their order, or none"))
    return classes


def _target(spec: Spec) -> targets.TargetColumn:
    """Parse the target's declared range. It is never inferred: the extremes would be two people's values."""
    low, high = spec.range()
    counts = spec.settings.get("counts", False)
    if not isinstance(counts, bool):
        spec.fault("counts", "expected true or false")
    elif counts:
        if low != 0:
            spec.fault("min", "expected 0, of counts")
        if not (1 <= high <= targets.MAX_COUNT and high == int(high)):
            spec.fault("max", f"expected a whole number from 1 to {targets.MAX_COUNT}, of counts")
    return targets.TargetColumn(low=low, high=high, outside=spec.outside(), counts=counts is True)


def _weight(spec: Spec) -> rows.Weight:
    """Parse the declared bound on weights. It is never inferred: the maximum would be one person's weight."""
    return rows.Weight(column=spec.name, bound=spec.number("max", above=0), outside=spec.outside())


def _several(path: str, spec: dict[str, object], faults: list[FieldError]) -> tuple[tuple[str, ...], str]:
    """Parse the label names of a schema whose records can have several labels, and the separator between labels."""
    names, separator = names_in(f"{path}.values", spec.get("values"), 2, faults), spec.get("separator", ";")
    if not (
        isinstance(separator, str) and len(separator) == 1 and columns.is_name(separator) and not separator.isspace()
    ):
        faults.append(FieldError(f"{path}.separator", "expected one character, and no white space"))
    elif any(separator in name or name != name.strip() for name in names):
        faults.append(FieldError(f"{path}.values", "expected names without the separator, or white space at an end"))
    if len(names) > MAX_LABELS:
        faults.append(FieldError(f"{path}.values", f"expected at most {MAX_LABELS} names"))
    return names, str(separator)


def _edition(value: object, faults: list[FieldError]) -> columns.Edition:
    if isinstance(value, bool) or value not in (1, 2):
        faults.append(FieldError("encoding", "expected 2, or 1 for rows that go with a dataset whose schema says 1"))
    return 1 if value == 1 else columns.EDITION


def parse_classes(document: object) -> tuple[str, ...]:
    """Parse a list of class names as in a schema, in the order of the labels 0, 1, .... Raises `SchemaInvalid`."""
    faults: list[FieldError] = []
    names = names_in("classes", document, 2, faults)
    if len(names) > rows.MAX_CLASSES:
        faults.append(FieldError("classes", f"expected at most {rows.MAX_CLASSES} names"))
    columns.refuse(SchemaInvalid, faults)
    return names


def parse_target(document: object) -> targets.TargetColumn:
    """Parse the target's range for a dataset without a schema. The format is that of a schema's target column, without
    its role. Raises `SchemaInvalid`."""
    if not isinstance(document, dict):
        message = 'expected an object, such as {"min": 0, "max": 100}'
        raise SchemaInvalid("The target has no valid range.", [FieldError("target", message)])
    faults: list[FieldError] = []
    _check_keys("target", "a target", document, ("min", "max", "outside", "counts"), faults)
    target = _target(Spec("target", "target", document, columns.MAX_UNKNOWN, columns.EDITION, faults))
    columns.refuse(SchemaInvalid, faults)
    return target


def _at(path: str, key: object) -> str:
    return f"{path}.{key}" if columns.is_name(key) else path


def _check_keys(
    path: str, kind: str, spec: dict[str, object], allowed: tuple[str, ...], faults: list[FieldError]
) -> None:
    faults += [
        FieldError(_at(path, key), f"is no key of {kind}: {expected(allowed, found=key)}")
        for key in spec
        if key not in allowed
    ]
