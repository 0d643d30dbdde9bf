"""Tables of the `rehearsals` feature."""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.tables import Owned, Table


class Rehearsal(Owned, Table):
    """Rehearsal in which a temporary copy of the model forgets `people` people drawn at random. No column identifies
    them. `lost_runs`: number of failed runs. `report`: measured aggregates; null once anyone whose row may have been
    measured has been erased."""

    __tablename__ = "rehearsals"
    id: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"))
    people: Mapped[int]
    status: Mapped[str]
    asked_at: Mapped[datetime.datetime]
    run_id: Mapped[str | None]
    lost_runs: Mapped[int] = mapped_column(default=0, server_default="0")
    report: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    error_code: Mapped[str | None]
    finished_at: Mapped[datetime.datetime | None]
    __table_args__ = (
        sa.Index(None, "model_id", "asked_at", "id"),
        sa.Index(
            "ix_rehearsals_waiting",
            "model_id",
            sqlite_where=sa.text("status = 'waiting'"),
            postgresql_where=sa.text("status = 'waiting'"),
        ),
    )


class RehearsedRows(Owned, Table):
    """Newest `revision` at which a completed rehearsal measured a dataset's training or test rows. The record outlives
    the rehearsal, because deleting a report or its model does not unpublish the report's numbers."""

    __tablename__ = "rehearsed_rows"
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"), primary_key=True)
    revision: Mapped[int]
    rehearsal_id: Mapped[str]
