"""Compiled statements, kept for all databases of one kind that a process of tests opens.

SQLAlchemy keeps them for one engine. A gateway opens one for years; tests open thousands, and would spend a quarter of
their time on compiling the same statements again. A statement that seals or opens values is copied for each engine,
because its processors have the vault of that engine.
"""

import copy
import functools
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapper
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.visitors import iterate

from app.db import driver
from app.db.sealed import Reference, Sealed


class _Statements:
    """Cache of compiled statements, as SQLAlchemy expects it: each key begins with the engine's dialect."""

    def __init__(self) -> None:
        self._common: dict[str, dict[Any, tuple[Any, bool]]] = defaultdict(dict)

    def get(self, key: Any) -> Any:
        dialect, rest = key[0], key[1:]
        compiled, seals = self._common[dialect.name].get(rest, (None, False))
        if not seals:
            return compiled
        own = vars(dialect).setdefault(_OWN, {})
        if rest not in own:
            own[rest] = _copy(compiled, dialect)
        return own[rest]

    def __setitem__(self, key: Any, compiled: Any) -> None:
        dialect, rest = key[0], key[1:]
        assert isinstance(compiled, SQLCompiler)
        types = [bound.type for bound in compiled.binds.values()] + [column.type for column in compiled._result_columns]
        self._common[dialect.name][rest] = compiled, _any_seals(types)


_STATEMENTS = _Statements()
_OWN = "_statements_of_tests"
"""Attribute of a dialect: its copies of the statements that seal or open values."""


def _copy(compiled: Any, dialect: sa.Dialect) -> Any:
    copied = copy.copy(compiled)
    copied.dialect, copied._cached_metadata = dialect, None
    vars(copied).pop("_bind_processors", None)
    return copied


def _any_seals(types: Iterable[Any]) -> bool:
    return any(isinstance(one, (Sealed, Reference)) for one in types)


def _share_selects() -> None:
    """Share what the driver's own cache keeps for one dialect, which is one engine's."""
    of_one_engine = driver._compiled
    common: dict[Any, Any] = {}

    @functools.cache
    def seals(statement: Any) -> bool:
        return _any_seals(getattr(part, "type", None) for part in [*iterate(statement), *statement.selected_columns])

    def compiled(statement: Any, dialect: sa.Dialect, sizes: Any) -> Any:
        key = (statement, dialect.name, sizes)
        if key not in common:
            found = of_one_engine(statement, dialect, sizes)
            if seals(statement):
                return found
            common[key] = found
        return common[key]

    driver._compiled = compiled  # type: ignore[assignment]


def share() -> None:
    """Share compiled SQL statements among all engines of this process from this call on."""
    _share_selects()
    Mapper._compiled_cache = _STATEMENTS  # type: ignore[assignment, method-assign]

    @sa.event.listens_for(sa.Engine, "engine_connect")
    def _share(connection: sa.Connection) -> None:
        connection.execution_options(compiled_cache=_STATEMENTS)
