"""Compiled statements, kept for all databases of one kind that a process of tests opens.

SQLAlchemy keeps them for one engine. A gateway opens one for years; tests open thousands, and would spend a quarter of
their time on compiling the same statements again. What seals or opens values is compiled for each engine all the same:
its processors have the vault of that engine.
"""

import functools
from collections import defaultdict
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.visitors import iterate

from app.db import driver
from app.db.sealed import Reference, Sealed

_COMMON: dict[str, dict[Any, Any]] = defaultdict(dict)
_OWN: WeakKeyDictionary[sa.Dialect, "_Statements"] = WeakKeyDictionary()


class _Statements(dict[Any, Any]):
    """The cache of one engine, in front of the shared one."""

    def __init__(self, dialect: sa.Dialect) -> None:
        super().__init__()
        self._common = _COMMON[dialect.name]

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(key[1:]) or self._common.get(key[1:], default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        if _seals(compiled):
            super().__setitem__(key[1:], compiled)
        else:
            self._common[key[1:]] = compiled


def _seals(compiled: Any) -> bool:
    if not isinstance(compiled, SQLCompiler):
        return True
    types = [bound.type for bound in compiled.binds.values()] + [column.type for column in compiled._result_columns]
    return _any_seals(types)


def _any_seals(types: Iterable[Any]) -> bool:
    return any(isinstance(one, (Sealed, Reference)) for one in types)


def _share_selects() -> None:
    """Share what the driver's own cache keeps for one dialect, which is one engine's."""
    of_one_engine = driver._compiled
    seals = functools.lru_cache(
        lambda statement: _any_seals(getattr(part, "type", None) for part in iterate(statement))
    )
    common: dict[Any, Any] = {}

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

    @sa.event.listens_for(sa.Engine, "engine_connect")
    def _share(connection: sa.Connection) -> None:
        statements = _OWN.get(connection.dialect)
        if statements is None:
            statements = _OWN[connection.dialect] = _Statements(connection.dialect)
        connection.execution_options(compiled_cache=statements)
