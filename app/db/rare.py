"""Conditions that rarely hold, such as whether any system is registered, all evaluated by a single statement.

A deletion request may concern many features, few of them in use. Without `ask`, each would run its own query.
"""

import functools
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.driver import rows

_ASKED = "rare.asked"
_conditions: list["Rare"] = []


class Rare:
    """Condition that holds if any row matches the criteria. Instances are created at import time."""

    def __init__(self, *criteria: sa.ColumnElement[bool]) -> None:
        self.exists = sa.exists().where(*criteria).label(f"rare_{len(_conditions)}")
        _conditions.append(self)

    def may_hold(self, session: Session) -> bool:
        """Return False if `ask` found in this session that the condition does not hold."""
        answers: dict[Rare, bool] = session.info.get(_ASKED, {})
        return answers.get(self, True)


def ask(session: Session, query: sa.Select[*tuple[Any, ...]], parameters: Mapping[str, Any]) -> list[Any]:
    """Return the rows of `query`, built at import time, and evaluate the conditions of all features in its statement.
    Changes that `session` makes later must not make any of them true."""
    conditions = tuple(_conditions)
    found: list[Any] = list(rows(session, _with(query, conditions), parameters))
    session.info[_ASKED] = dict(zip(conditions, found[0][-len(conditions) :], strict=True)) if found else {}
    return [row[: -len(conditions)] for row in found]


@functools.lru_cache(maxsize=10)
def _with(query: sa.Select[*tuple[Any, ...]], conditions: tuple[Rare, ...]) -> sa.Select[*tuple[Any, ...]]:
    return query.add_columns(*[condition.exists for condition in conditions])
