"""SQL functions that each database spells differently: planner hints, bytes of texts, and days between two times."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import OperatorType


class usually(FunctionElement[bool]):
    """Hint that a condition holds for nearly all rows, so that the planner uses an index on it only for ordering.

    PostgreSQL relies on its statistics. SQLite assumes that any equality is selective; without the hint, it would read
    all of a tenant's requests to find the one with a given id.
    """

    inherit_cache = True
    type = sa.Boolean()

    def self_group(self, against: OperatorType | None = None) -> Any:
        """Return the condition without parentheses, because SQLite would not recognise the hint inside them."""
        return self


@compiles(usually)
def _plain(element: usually, compiler: SQLCompiler, **named: Any) -> str:
    return compiler.process(element.clauses, **named)


@compiles(usually, "sqlite")
def _hinted(element: usually, compiler: SQLCompiler, **named: Any) -> str:
    return f"likelihood({compiler.process(element.clauses, **named)}, 0.95)"


class raw(FunctionElement[bytes]):
    """Bytes of a text column. Damaged text need not be UTF-8, and drivers refuse to decode it."""

    inherit_cache = True
    type = sa.LargeBinary()


@compiles(raw, "sqlite")
def _cast(element: raw, compiler: SQLCompiler, **named: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **named)} AS BLOB)"


@compiles(raw, "postgresql")
def _sent(element: raw, compiler: SQLCompiler, **named: Any) -> str:
    return f"textsend({compiler.process(element.clauses, **named)})"


class days_between(FunctionElement[int]):
    """Whole days from the first time to the second. Each time is rounded to milliseconds and truncated to seconds."""

    inherit_cache = True
    type = sa.Integer()


@compiles(days_between, "sqlite")
def _of_texts(element: days_between, compiler: SQLCompiler, **named: Any) -> str:
    start, end = (f"unixepoch({compiler.process(clause, **named)})" for clause in element.clauses)
    return f"(({end} - {start}) / 86400)"


@compiles(days_between, "postgresql")
def _of_seconds(element: days_between, compiler: SQLCompiler, **named: Any) -> str:
    start, end = (
        f"floor(round(date_part('epoch', {compiler.process(clause, **named)}) * 1000) / 1000)"
        for clause in element.clauses
    )
    return f"CAST(trunc(({end} - {start}) / 86400) AS integer)"
