"""Moments as numbers, which the databases subtract alike."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class seconds(FunctionElement[int]):
    """The whole seconds between 1970 and a moment; what is left of a second is dropped."""

    inherit_cache = True
    type = sa.BigInteger()


@compiles(seconds, "sqlite")
def _parsed(element: seconds, compiler: SQLCompiler, **named: Any) -> str:
    text = compiler.process(element.clauses, **named)  # without its fraction, which would be rounded
    return f"CAST(strftime('%s', substr({text}, 1, 19)) AS INTEGER)"


@compiles(seconds, "postgresql")
def _extracted(element: seconds, compiler: SQLCompiler, **named: Any) -> str:
    return f"CAST(floor(extract(epoch FROM {compiler.process(element.clauses, **named)})) AS bigint)"
