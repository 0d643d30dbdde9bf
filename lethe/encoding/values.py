"""The values of a column, read alike from csv, parquet, npz and JSON: numbers, texts, times, vectors, and places in a
list of names. Arrow's arrays are read by Arrow, which is not loaded where there are none."""

import datetime
import decimal
import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Values: TypeAlias = Any  # a pyarrow Array or ChunkedArray (untyped), a numpy array, or a sequence of JSON values

LONGEST_NAME = 500  # characters; as many as a deletion request may name a person with

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_OF_NUMBERS = b"0123456789+-.eE"
_NO_CODE = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,99})(?:\.[0-9]{1,100})?(?:[eE][+-]?[0-9]{1,3})?")
"""A number as one is written that is no code such as `007`, where zeros in front count."""
_TOO_LONG = "\x00"  # stands for a text that is longer than any name in UTF-8; neither a name nor a number
_NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")  # what every database and every JSON writer can hold


def is_name(value: object) -> bool:
    """Return True for a non-empty string of at most 500 characters, without control characters and lone surrogates."""
    return isinstance(value, str) and len(value) <= LONGEST_NAME and _NAME.fullmatch(value) is not None


def is_subject(value: object) -> bool:
    """Return True if this can name a person: no rule for subject ids makes nothing of it."""
    return is_name(value) and not str(value).isspace()


def is_arrow(values: Values) -> bool:
    return type(values).__module__.partition(".")[0] == "pyarrow"


def numbers(values: Values) -> npt.NDArray[np.float64]:
    """Numbers, NaN for a missing value, infinity for one that is no finite number."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        return values.astype(np.float64)
    if is_arrow(values):
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = values.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return np.asarray(pc.cast(values, pa.float64(), safe=False), dtype=np.float64)
    texts = listed(values)
    found = _plain_numbers(texts)
    return np.array([number(value) for value in texts], dtype=np.float64) if found is None else found


def seconds(values: Values) -> npt.NDArray[np.float64]:
    """Times as seconds since 1970 (UTC where none states an offset), NaN for a missing one, infinity for what is
    none."""
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
    """Lists of so many numbers  # (b, length), NaN for each that is none."""
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.shape[1] == length and values.dtype.kind in "iuf":
        return values.astype(np.float64)
    lists = listed(values)
    found = np.full((len(lists), length), math.nan)
    for row, value in enumerate(lists):
        if isinstance(value, str):
            with suppress(ValueError, RecursionError):
                value = json.loads(value)
        if isinstance(value, list | tuple) and len(value) == length:
            found[row] = [number(one) for one in value]
    return found


def prose(values: Values) -> list[str | None]:
    """Texts of any length, None for a missing one and for what is none."""
    found = _of_arrow(values, whole=True) if is_arrow(values) else listed(values)
    return [value if isinstance(value, str) and value else None for value in found]


def _plain_numbers(texts: Sequence[Any]) -> npt.NDArray[np.float64] | None:
    """As `number` has them, in a tenth of the time; None unless all are texts that are numbers or empty: `float` takes
    more than these, but of no other characters."""
    try:
        if "".join(texts).encode().translate(None, _OF_NUMBERS):
            return None
        with suppress(ValueError):  # one is empty
            return np.fromiter(map(float, texts), dtype=np.float64, count=len(texts))
        return np.array([float(text or "nan") for text in texts], dtype=np.float64)
    except (TypeError, ValueError):  # not all are texts; or one is no number
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
    """The position of each value among the names; -1 for a missing or an unknown one.

    With `by_number` a value that is no name stands for the one that is the same number, if exactly one is: columns of
    integers come as `3.0` from tools that write them as floats as soon as one of them is missing.
    """
    position: dict[str | None, int] = {name: code for code, name in enumerate(names)}
    equal: dict[Decimal, int] | None = None  # read where it is needed first: mostly it is not

    def code(value: object) -> int:
        nonlocal equal
        found = position.get(text(value), -1)
        exact = _exactly(value) if by_number and found < 0 else None
        if exact is None:
            return found
        equal = _by_number(names) if equal is None else equal
        return equal.get(exact, -1)

    return np.array([code(value) for value in values], dtype="<i4")


def bits(values: Sequence[object], names: Sequence[str], separator: str) -> npt.NDArray[np.int32]:
    """The set of names that each value lists: bit c for the name c, at most 31 of them; 0 for a missing or an empty
    value, -1 where something listed is no name."""
    position = {name: 1 << code for code, name in enumerate(names)}

    def mask(value: object) -> int:
        if value is None or value == "":
            return 0
        written = text(value)
        found = {position.get(one.strip(), -1) for one in written.split(separator)} if written else {-1}
        return -1 if -1 in found else sum(found)

    return np.array([mask(value) for value in values], dtype="<i4")


def text(value: object) -> str | None:
    """Text as CSV would have it, so that all formats agree; None for what is missing or is no name."""
    if isinstance(value, str):
        return value or None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else None


def listed(values: Values) -> Sequence[object]:
    """The values, those of an array as Python's; a text that occurs often is there once."""
    if is_arrow(values):
        return _of_arrow(values)
    found: Sequence[object] = values.tolist() if isinstance(values, np.ndarray) else values
    return found


def _of_arrow(values: Any, *, whole: bool = False) -> Sequence[object]:
    """`whole`: also of texts that are longer than any name."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(values, pa.ChunkedArray):
        return [value for chunk in values.chunks for value in _of_arrow(chunk, whole=whole)]
    if isinstance(values, pa.DictionaryArray):
        used, position = np.unique(np.asarray(values.indices.cast(pa.int64()).fill_null(-1)), return_inverse=True)
        texts = _of_arrow(values.dictionary.take(pa.array(used, mask=used < 0)), whole=whole)
        return [texts[place] for place in position]
    if isinstance(values, pa.StringArray | pa.LargeStringArray) and not whole:
        values = pc.if_else(pc.greater(pc.binary_length(values), 4 * LONGEST_NAME), _TOO_LONG, values)
    if pa.types.is_timestamp(values.type) and values.type.unit == "ns":  # which Python's times have not
        values = values.cast(pa.timestamp("us", values.type.tz), safe=False)
    found: list[object] = values.to_pylist()
    return found


def _by_number(names: Sequence[str]) -> dict[Decimal, int]:
    """The position of each name that is a number and that no other name equals."""
    found: dict[Decimal, int] = {}
    twice: set[Decimal] = set()
    for code, name in enumerate(names):
        exact = _exactly(name)
        if exact is not None:
            twice |= {exact} & found.keys()
            found[exact] = code
    return {exact: code for exact, code in found.items() if exact not in twice}


def _exactly(value: object) -> Decimal | None:
    """The number that a value is, without rounding; None for what is no finite number."""
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
