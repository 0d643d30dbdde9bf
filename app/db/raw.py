"""Text as it is stored, whether it is text or not."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class raw(FunctionElement[bytes]):
    """The bytes of a text: those of a damaged one need not be UTF-8, and drivers refuse to read what is not."""

    inherit_cache = True
    type = sa.LargeBinary()


@compiles(raw, "sqlite")
def _cast(element: raw, compiler: SQLCompiler, **named: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **named)} AS BLOB)"


@compiles(raw, "postgresql")
def _sent(element: raw, compiler: SQLCompiler, **named: Any) -> str:
    return f"textsend({compiler.process(element.clauses, **named)})"
