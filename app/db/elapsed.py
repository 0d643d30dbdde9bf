"""Differences of moments, which each database computes in its own way and both alike."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class days_between(FunctionElement[int]):
    """The whole days from the first moment to the second: each is rounded to milliseconds, and then fractions of a
    second are dropped."""

    inherit_cache = True
    type = sa.Integer()


@compiles(days_between, "sqlite")
def _of_texts(element: days_between, compiler: SQLCompiler, **named: Any) -> str:
    start, end = (f"unixepoch({compiler.process(one, **named)})" for one in element.clauses)
    return f"(({end} - {start}) / 86400)"


@compiles(days_between, "postgresql")
def _of_seconds(element: days_between, compiler: SQLCompiler, **named: Any) -> str:
    start, end = (
        f"floor(round(date_part('epoch', {compiler.process(one, **named)}) * 1000) / 1000)" for one in element.clauses
    )
    return f"CAST(trunc(({end} - {start}) / 86400) AS integer)"
