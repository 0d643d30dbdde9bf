"""Reading a schema: what a JSON document states about columns, and what is wrong with one that cannot be used."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from lethe.contract.problems import FieldError, SchemaInvalid
from lethe.contract.spelling import expected, nearest
from lethe.encoding.columns import EDITION, MAX_UNKNOWN, Column, Edition
from lethe.encoding.faults import refuse
from lethe.encoding.rows import MAX_CLASSES, MAX_FEATURES, Schema
from lethe.encoding.specs import OF_KIND, READERS, Spec, names_in, random_in, share
from lethe.encoding.targets import MOST_COUNTED, Target
from lethe.encoding.values import LONGEST_NAME, is_name
from lethe.encoding.weights import Weight
from lethe.proof.losses import MOST_LABELS

_KEYS = ("columns", "encoding", "max_unknown", "random_features")
_OF_ROLE = {
    "label": ("role", "values"),
    "labels": ("role", "values", "separator"),
    "target": ("role", "min", "max", "outside", "counts"),
    "weight": ("role", "max", "outside"),
    "subject": ("role",),
    "ignored": ("role",),
}
_ONE_IS_LEARNED = (
    'expected exactly one column to learn, {"role": "label", "values": [...]}, with the role labels where a record has '
    'several, or {"role": "target", "min": 0, "max": 1}'
)


def stored(document: dict[str, Any]) -> Schema:
    """The schema of a dataset, as it was stored. One that names no edition of the encoding is from before there were
    two."""
    return parse_schema({"encoding": 1} | document)


def is_same(one: dict[str, Any] | None, other: dict[str, Any] | None) -> bool:
    """Return True if two stored schemas encode alike: they may differ in how many values may be missing, and in whether
    rows have weights."""
    if one is None or other is None:
        return one is other
    return _bare(stored(one)) == _bare(stored(other))


def _bare(schema: Schema) -> Schema:
    features = tuple(dataclasses.replace(column, max_unknown=MAX_UNKNOWN) for column in schema.features)
    return dataclasses.replace(schema, features=features, weight=None)


def parse_schema(document: object, *, classes: tuple[str, ...] | None = None) -> Schema:
    """The schema that a JSON document states; every deviation is a `SchemaInvalid` that names its path.

    `classes`: the labels, where the document does not list them.
    """
    faults: list[FieldError] = []
    if not isinstance(document, dict) or not isinstance(document.get("columns"), dict):
        raise SchemaInvalid('columns: expected an object {"columns": {...}}.', [FieldError("columns", "is missing")])
    _check_keys("schema", "a schema", document, _KEYS, faults)
    edition = _edition(document.get("encoding", EDITION), faults)
    max_unknown = share("max_unknown", document, MAX_UNKNOWN, faults)
    features: list[Column] = []
    roles: dict[str, list[str]] = {role: [] for role in _OF_ROLE}
    labels: tuple[str, ...] = ()
    target: Target | None = None
    weight: Weight | None = None
    separator: str | None = None
    for name, spec in sorted(document["columns"].items(), key=lambda item: str(item[0])):
        path = _at("columns", name)
        if not is_name(name):
            faults.append(
                FieldError(path, f"expected names of 1 to {LONGEST_NAME} characters, none of them a control character")
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
                faults.append(FieldError(path, _what_a_column_is(spec)))
    learned = roles["label"] + roles["labels"] + roles["target"]
    if len(learned) != 1:
        faults.append(FieldError("columns", _ONE_IS_LEARNED))
    if not roles["label"] and classes is not None:
        faults.append(FieldError("classes", "expected none beside a column with the role labels or target"))
    for role in ("subject", "weight"):
        if len(roles[role]) > 1:
            faults.append(FieldError("columns", f"expected at most one {role} column"))
    if not features:
        faults.append(FieldError("columns", f"expected at least one column of a kind: {', '.join(OF_KIND)}"))
    if sum(column.width for column in features) > MAX_FEATURES:
        faults.append(FieldError("columns", f"expected at most {MAX_FEATURES} features of all columns together"))
    if len(labels) > MAX_CLASSES:
        faults.append(FieldError("columns", f"expected at most {MAX_CLASSES} labels"))
    random = random_in(document.get("random_features"), sum(column.width for column in features), faults)
    refuse(SchemaInvalid, faults)
    return Schema(
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


def _what_a_column_is(spec: object) -> str:
    said = f"expected kind {_or(OF_KIND)}, or role {_or(_OF_ROLE)}"
    if not isinstance(spec, dict):
        return f'{said}, such as {{"kind": "numeric", "min": 0, "max": 100}}'
    for key, known in (("kind", OF_KIND), ("role", _OF_ROLE)):
        if key in spec:
            other = _OF_ROLE if key == "kind" else OF_KIND
            if isinstance(spec[key], str) and spec[key] in other:
                return f"{said}; did you mean {'role' if key == 'kind' else 'kind'} {spec[key]}?"
            meant = nearest(spec[key], known)
            return f"{said}; did you mean {key} {meant}?" if meant else said
    return said


def _or(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"


def _labels(
    path: str, spec: dict[str, object], classes: tuple[str, ...] | None, faults: list[FieldError]
) -> tuple[str, ...]:
    """Declared in the column or beside the schema, never read from the data: a class that only somebody who is
    forgotten had would tell of them for good."""
    if classes is None:
        return names_in(path, spec.get("values"), 2, faults)
    if spec.get("values", list(classes)) != list(classes):
        faults.append(FieldError(path, "expected the same names as in classes, in their order, or none"))
    return classes


def _target(spec: Spec) -> Target:
    """Declared, never read from the data: the least and the largest of them are two people's."""
    low, high = spec.range()
    counts = spec.said.get("counts", False)
    if not isinstance(counts, bool):
        spec.fault("counts", "expected true or false")
    elif counts:
        if low != 0:
            spec.fault("min", "expected 0, of counts")
        if not (1 <= high <= MOST_COUNTED and high == int(high)):
            spec.fault("max", f"expected a whole number from 1 to {MOST_COUNTED}, of counts")
    return Target(low=low, high=high, outside=spec.outside(), counts=counts is True)


def _weight(spec: Spec) -> Weight:
    """Declared, never read from the data: the largest of them is somebody's."""
    return Weight(column=spec.name, most=spec.number("max", above=0), outside=spec.outside())


def _several(path: str, spec: dict[str, object], faults: list[FieldError]) -> tuple[tuple[str, ...], str]:
    """The labels of which a record may have several, and what stands between them."""
    names, separator = names_in(f"{path}.values", spec.get("values"), 2, faults), spec.get("separator", ";")
    if not (isinstance(separator, str) and len(separator) == 1 and is_name(separator) and not separator.isspace()):
        faults.append(FieldError(f"{path}.separator", "expected one character, and no white space"))
    elif any(separator in name or name != name.strip() for name in names):
        faults.append(FieldError(f"{path}.values", "expected names without the separator, or white space at an end"))
    if len(names) > MOST_LABELS:
        faults.append(FieldError(f"{path}.values", f"expected at most {MOST_LABELS} names"))
    return names, str(separator)


def _edition(value: object, faults: list[FieldError]) -> Edition:
    if isinstance(value, bool) or value not in (1, 2):
        faults.append(FieldError("encoding", "expected 2, or 1 for rows that go with a dataset whose schema says 1"))
    return 1 if value == 1 else EDITION


def parse_classes(document: object) -> tuple[str, ...]:
    """The names of the classes, in the order of the labels 0, 1, ...: a list as a schema has it. Raises
    `SchemaInvalid`."""
    faults: list[FieldError] = []
    names = names_in("classes", document, 2, faults)
    if len(names) > MAX_CLASSES:
        faults.append(FieldError("classes", f"expected at most {MAX_CLASSES} names"))
    refuse(SchemaInvalid, faults)
    return names


def parse_target(document: object) -> Target:
    """The range of a target that comes without a schema: an object as a schema has it, without a role. Raises
    `SchemaInvalid`."""
    if not isinstance(document, dict):
        said = 'expected an object, such as {"min": 0, "max": 100}'
        raise SchemaInvalid("The target is no range.", [FieldError("target", said)])
    faults: list[FieldError] = []
    _check_keys("target", "a target", document, ("min", "max", "outside", "counts"), faults)
    target = _target(Spec("target", "target", document, MAX_UNKNOWN, EDITION, faults))
    refuse(SchemaInvalid, faults)
    return target


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
