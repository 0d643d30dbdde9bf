"""Reading a schema: what a JSON document states about columns, and what is wrong with one that cannot be used."""

import dataclasses
import math
from typing import Any

from app.rows import values
from app.rows.encoding import (
    EDITION,
    MAX_CLASSES,
    MAX_FEATURES,
    MAX_UNKNOWN,
    Categorical,
    Edition,
    Numeric,
    Outside,
    Schema,
    Unknown,
)
from app.rows.faults import refuse
from app.rows.values import LONGEST_NAME, is_name
from app.spelling import expected, nearest
from lethe.contract.problems import FieldError, SchemaInvalid

_KEYS = ("columns", "encoding", "max_unknown")
_OF_COLUMN = {
    "numeric": ("kind", "min", "max", "outside", "unknown", "max_unknown"),
    "categorical": ("kind", "values", "unknown", "max_unknown"),
    "label": ("role", "values"),
    "subject": ("role",),
    "ignored": ("role",),
}
_KINDS, _ROLES = ("numeric", "categorical"), ("label", "subject", "ignored")


def stored(document: dict[str, Any]) -> Schema:
    """The schema of a dataset, as it was stored. One that names no edition of the encoding is from before there were
    two."""
    return parse_schema({"encoding": 1} | document)


def is_same(one: dict[str, Any] | None, other: dict[str, Any] | None) -> bool:
    """Return True if two stored schemas encode alike: they may differ in how many values may be missing."""
    if one is None or other is None:
        return one is other
    return _bare(stored(one)) == _bare(stored(other))


def _bare(schema: Schema) -> Schema:
    features = tuple(dataclasses.replace(column, max_unknown=MAX_UNKNOWN) for column in schema.features)
    return dataclasses.replace(schema, features=features)


def parse_schema(document: object, *, classes: tuple[str, ...] | None = None) -> Schema:
    """The schema that a JSON document states; every deviation is a `SchemaInvalid` that names its path.

    `classes`: the labels, where the document does not list them.
    """
    faults: list[FieldError] = []
    if not isinstance(document, dict) or not isinstance(document.get("columns"), dict):
        raise SchemaInvalid('columns: expected an object {"columns": {...}}.', [FieldError("columns", "is missing")])
    _check_keys("schema", "a schema", document, _KEYS, faults)
    edition = _edition(document.get("encoding", EDITION), faults)
    max_unknown = _share("max_unknown", document, MAX_UNKNOWN, faults)
    features: list[Numeric | Categorical] = []
    roles: dict[str, list[str]] = {role: [] for role in _ROLES}
    labels: tuple[str, ...] = ()
    for name, spec in sorted(document["columns"].items(), key=lambda item: str(item[0])):
        path = _at("columns", name)
        if not is_name(name):
            faults.append(
                FieldError(path, f"expected names of 1 to {LONGEST_NAME} characters, none of them a control character")
            )
        match spec:
            case {"kind": "numeric" | "categorical" as kind}:
                _check_keys(path, f"a {kind} column", spec, _OF_COLUMN[kind], faults)
                read = _numeric if kind == "numeric" else _categorical
                features.append(read(name, path, spec, max_unknown, edition, faults))
            case {"role": "label" | "subject" | "ignored" as role}:
                _check_keys(path, f"a column with the role {role}", spec, _OF_COLUMN[role], faults)
                if role == "label":
                    labels = _labels(f"{path}.values", spec, classes, faults)
                roles[role].append(name)
            case _:
                faults.append(FieldError(path, _what_a_column_is(spec)))
    if len(roles["label"]) != 1:
        faults.append(FieldError("columns", 'expected exactly one label column, {"role": "label", "values": [...]}'))
    if len(roles["subject"]) > 1:
        faults.append(FieldError("columns", "expected at most one subject column"))
    if not features:
        faults.append(FieldError("columns", "expected at least one numeric or categorical column"))
    if sum(column.width for column in features) > MAX_FEATURES:
        faults.append(FieldError("columns", f"expected at most {MAX_FEATURES} numeric columns and categories together"))
    if len(labels) > MAX_CLASSES:
        faults.append(FieldError("columns", f"expected at most {MAX_CLASSES} labels"))
    refuse(SchemaInvalid, faults)
    return Schema(
        features=tuple(features),
        label=roles["label"][0],
        classes=labels,
        subject=next(iter(roles["subject"]), None),
        ignored=tuple(roles["ignored"]),
        edition=edition,
    )


def _what_a_column_is(spec: object) -> str:
    said = "expected kind numeric or categorical, or role label, subject or ignored"
    if not isinstance(spec, dict):
        return f'{said}, such as {{"kind": "numeric", "min": 0, "max": 100}}'
    for key, known in (("kind", _KINDS), ("role", _ROLES)):
        if key in spec:
            other = _ROLES if key == "kind" else _KINDS
            if spec[key] in other:
                return f"{said}; did you mean {'role' if key == 'kind' else 'kind'} {spec[key]}?"
            meant = nearest(spec[key], known)
            return f"{said}; did you mean {key} {meant}?" if meant else said
    return said


def _numeric(
    name: str, path: str, spec: dict[str, object], most: float, edition: Edition, faults: list[FieldError]
) -> Numeric:
    bounds = {key: _bound(spec.get(key)) for key in ("min", "max")}
    faults += [FieldError(f"{path}.{key}", "expected a finite number") for key in bounds if math.isinf(bounds[key])]
    low, high = bounds["min"], bounds["max"]
    if math.isfinite(low) and math.isfinite(high) and not 0 < high - low < math.inf:
        faults.append(FieldError(f"{path}.max", "expected min < max, and a finite distance between them"))
    outside: Outside = "clip" if spec.get("outside") == "clip" else "error"
    if spec.get("outside", "error") != outside:
        faults.append(FieldError(f"{path}.outside", expected(("error", "clip"), found=spec["outside"])))
    return Numeric(
        name=name,
        low=low,
        high=high,
        outside=outside,
        unknown=_unknown(path, spec, faults),
        max_unknown=_share(f"{path}.max_unknown", spec, most, faults),
        edition=edition,
    )


def _categorical(
    name: str, path: str, spec: dict[str, object], most: float, edition: Edition, faults: list[FieldError]
) -> Categorical:
    return Categorical(
        name=name,
        values=_names(f"{path}.values", spec.get("values"), 1, faults),
        unknown=_unknown(path, spec, faults),
        max_unknown=_share(f"{path}.max_unknown", spec, most, faults),
        edition=edition,
    )


def _labels(
    path: str, spec: dict[str, object], classes: tuple[str, ...] | None, faults: list[FieldError]
) -> tuple[str, ...]:
    """Declared in the column or beside the schema, never read from the data: a class that only somebody who is
    forgotten had would tell of them for good."""
    if classes is None:
        return _names(path, spec.get("values"), 2, faults)
    if spec.get("values", list(classes)) != list(classes):
        faults.append(FieldError(path, "expected the same names as in classes, in their order, or none"))
    return classes


def _edition(value: object, faults: list[FieldError]) -> Edition:
    if isinstance(value, bool) or value not in (1, 2):
        faults.append(FieldError("encoding", "expected 2, or 1 for rows that go with a dataset whose schema says 1"))
    return 1 if value == 1 else EDITION


def _bound(value: object) -> float:
    number = math.inf if isinstance(value, str) else values.number(value)
    return math.inf if math.isnan(number) else number


def _share(path: str, spec: dict[str, object], default: float, faults: list[FieldError]) -> float:
    share = _bound(spec.get("max_unknown", default))
    if not 0 <= share <= 1:
        faults.append(FieldError(path, "expected a share of the rows, a number from 0 to 1"))
    return share


def _unknown(path: str, spec: dict[str, object], faults: list[FieldError]) -> Unknown:
    unknown: Unknown = "null" if spec.get("unknown") == "null" else "error"
    if spec.get("unknown", "error") != unknown:
        meant = '"null", a text' if spec["unknown"] is None else "null"
        faults.append(FieldError(f"{path}.unknown", f"expected error or {meant}"))
    return unknown


def _names(path: str, found: object, at_least: int, faults: list[FieldError]) -> tuple[str, ...]:
    names = tuple(value for value in found if is_name(value)) if isinstance(found, list) else ()
    if not isinstance(found, list) or len(names) < len(found) or len(set(names)) < max(len(names), at_least):
        faults.append(
            FieldError(path, f"expected a list of {at_least} or more distinct texts of 1 to {LONGEST_NAME} characters")
        )
    return names


def parse_classes(document: object) -> tuple[str, ...]:
    """The names of the classes, in the order of the labels 0, 1, ...: a list as a schema has it. Raises
    `SchemaInvalid`."""
    faults: list[FieldError] = []
    names = _names("classes", document, 2, faults)
    if len(names) > MAX_CLASSES:
        faults.append(FieldError("classes", f"expected at most {MAX_CLASSES} names"))
    refuse(SchemaInvalid, faults)
    return names


def _at(path: str, key: object) -> str:
    return f"{path}.{key}" if is_name(key) else path


def _check_keys(
    path: str, what: str, spec: dict[str, object], allowed: tuple[str, ...], faults: list[FieldError]
) -> None:
    faults += [
        FieldError(_at(path, key), f"is no key of {what}: {expected(allowed, found=key)}")
        for key in spec
        if key not in allowed
    ]
