"""Conditions that rarely hold, such as whether any system is registered, all evaluated by a single statement.

A deletion request may concern many features, few of them in use. Without `ask`, each would run its own query.
"""

import functools
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


def ask(session: Session) -> None:
    """Evaluate the conditions of all features. Changes that `session` makes later must not make any of them true."""
    conditions = tuple(_conditions)
    answers: Any = rows(session, _statement(conditions), {})
    session.info[_ASKED] = dict(zip(conditions, next(iter(answers)), strict=True))


@functools.lru_cache(maxsize=1)
def _statement(conditions: tuple[Rare, ...]) -> sa.Select[*tuple[Any, ...]]:
    return sa.select(*[condition.exists for condition in conditions])
