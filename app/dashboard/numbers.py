"""Numbers as people write them into fields; in the address of a page, None where a field was left empty."""

import math
from typing import Annotated

from fastapi import Query
from pydantic import BeforeValidator, Field

_Blank = BeforeValidator(lambda written: written or None)

Whole = Annotated[Annotated[int, Field(ge=1, le=2**31 - 1)] | None, _Blank, Query()]
Above = Annotated[Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None, _Blank, Query()]
Chance = Annotated[Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None, _Blank, Query()]


def read(text: str) -> int | float | str:
    """A number, or whatever else is written there: "1/n", "inf"."""
    for kind in (int, float):
        try:
            value = kind(text)
            if math.isfinite(value):
                return value
        except (ValueError, OverflowError):
            continue
    return text


def of_field(text: str) -> int | float | str | None:
    """As `read`; None where nothing is written."""
    return read(text) if text else None
