"""Well-formedness of a statement: the values of its fields, and one way to read its JSON, the same for every reader.

JSON that names a key twice says two things; which of them is read depends on the reader. So it is refused, as is
whatever a statement made here could not hold: numbers that are none, negative counts, times without a zone, digests
that are not digests.
"""

import datetime
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lethe.proof.errors import LARGEST_COUNT, PreconditionError

_DATE_AND_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of field, and the values that it takes; `is_called`: in words."""

    is_called: str
    holds: Callable[[Any], bool]


Fields = Mapping[str, Kind]


def count(least: int) -> Kind:
    return Kind(f"a whole number from {least}", lambda value: type(value) is int and least <= value <= LARGEST_COUNT)


def named(prefix: str) -> Kind:
    """An id as this service makes them."""
    pattern = re.compile(rf"{prefix}_[0-9a-z]{{1,64}}", re.ASCII)
    return Kind(f"an id such as {prefix}_0a1b", lambda value: _matches(pattern, value))


def _matches(pattern: re.Pattern[str], value: Any) -> bool:
    return type(value) is str and pattern.fullmatch(value) is not None


def _is_moment(value: Any) -> bool:
    if not _matches(_DATE_AND_TIME, value):
        return False
    try:
        datetime.datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


sha256 = Kind("64 hexadecimal digits", lambda value: _matches(re.compile("[0-9a-f]{64}"), value))
moment = Kind("a time with its zone (RFC 3339)", _is_moment)
text = Kind("text", lambda value: type(value) is str and bool(value.strip()))
word = Kind("a word", lambda value: _matches(re.compile("[a-z_]{1,40}"), value))
number = Kind("a number", lambda value: type(value) is float and math.isfinite(value))
truth = Kind("true or false", lambda value: type(value) is bool)
zero = Kind("0", lambda value: type(value) is int and value == 0)


def check(part: str, stated: Any, fields: Fields) -> None:
    """Raises `PreconditionError` unless `stated` has these fields, no others, and each is what it has to be."""
    if not isinstance(stated, dict) or stated.keys() != fields.keys():
        raise PreconditionError("statement_complete", f"Expected the fields of {part} to be {sorted(fields)}")
    for name, kind in fields.items():
        if not kind.holds(stated[name]):
            raise PreconditionError("field_well_formed", f"Expected {part}.{name} to be {kind.is_called}")


def read(payload: str | bytes) -> Any:
    """The JSON of a statement. Raises `PreconditionError` where a key stands twice or a number is none, `ValueError`
    where it is no JSON."""
    return json.loads(payload, object_pairs_hook=_once, parse_constant=_refused)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise PreconditionError("keys_unique", "Expected no key twice in one object")
    return found


def _refused(constant: str) -> Any:
    raise PreconditionError("numbers_finite", f"Expected no {constant}: it is no number of JSON")
