"""Hints to the planner of a database, which cannot know them without counting rows."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import OperatorType


class usually(FunctionElement[bool]):
    """The condition given, which holds for nearly all rows: an index on it is used for its order alone.

    PostgreSQL counts its rows and finds out. SQLite takes any equality for a rare thing: without this it would read all
    requests of a tenant to find the one whose id is named as well.
    """

    inherit_cache = True
    type = sa.Boolean()

    def self_group(self, against: OperatorType | None = None) -> Any:
        """Nothing is put around it: SQLite would not see the condition through it."""
        return self


@compiles(usually)
def _plain(element: usually, compiler: SQLCompiler, **named: Any) -> str:
    return compiler.process(element.clauses, **named)


@compiles(usually, "sqlite")
def _hinted(element: usually, compiler: SQLCompiler, **named: Any) -> str:
    return f"likelihood({compiler.process(element.clauses, **named)}, 0.95)"
