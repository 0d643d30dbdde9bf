"""Events of requests say of which kind they are, and what there is to say beyond it. Events that were there keep their
words.

Revision ID: 0014
"""

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_EVENTS = sa.table(
    "request_events",
    *map(sa.column, ("id", "status", "detail", "kind")),
    sa.column("facts", sa.JSON()),
)
_SENTENCES = {
    "nothing_held": "nothing is held about this subject",
    "extended": "the deadline was extended",
    "paused": "the clock was paused",
    "resumed": "the clock runs again",
    "at_risk": "the deadline is near",
    "overdue": "the deadline has passed",
}
_ERASED = "% erased from dataset %"
_HANDED_BACK = ("%; it will be tried again", "% again; it is tried until it succeeds")
_ENDINGS = {"cancelled": "its run was cancelled", "abandoned": "its worker stopped"}


def upgrade() -> None:
    op.add_column("request_events", sa.Column("kind", sa.String(), server_default="noted", nullable=False))
    op.add_column("request_events", sa.Column("facts", sa.JSON(), nullable=True))
    detail = _EVENTS.c.detail
    kind = sa.case(
        (detail.is_(None), _EVENTS.c.status),
        *((detail == sentence, sa.literal(kind)) for kind, sentence in _SENTENCES.items()),
        (detail.like(_ERASED), sa.literal("rows_erased")),
        (sa.or_(*map(detail.like, _HANDED_BACK)), sa.literal("handed_back")),
        else_=sa.literal("noted"),
    )
    op.execute(_EVENTS.update().values(kind=kind))


def downgrade() -> None:
    for kind, sentence in _SENTENCES.items():
        _tell(sa.and_(_EVENTS.c.kind == kind, _EVENTS.c.detail.is_(None)), sentence)
    _tell_each("rows_erased", _erased)
    _tell_each("handed_back", _handed_back)
    op.drop_column("request_events", "facts")
    op.drop_column("request_events", "kind")


def _tell(which: sa.ColumnElement[bool], sentence: str) -> None:
    op.execute(_EVENTS.update().where(which).values(detail=sentence))


def _tell_each(kind: str, sentence: Callable[[dict[str, Any]], str]) -> None:
    told = sa.select(_EVENTS.c.id, _EVENTS.c.facts).where(_EVENTS.c.kind == kind, _EVENTS.c.detail.is_(None))
    for number, facts in op.get_bind().execute(told).all():
        _tell(_EVENTS.c.id == number, sentence(facts))


def _erased(facts: dict[str, Any]) -> str:
    rows = "1 row" if facts["num_rows"] == 1 else f"{facts['num_rows']} rows"
    return f"{rows} erased from dataset {facts['dataset_id']}"


def _handed_back(facts: dict[str, Any]) -> str:
    why = _ENDINGS.get(facts["run_status"], f"its run failed ({facts['error_code']})")
    return why + _HANDED_BACK[facts["again"]].removeprefix("%")
