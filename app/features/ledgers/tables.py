"""Tables of the `ledgers` feature."""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.tables import Owned, Table, partial_index


class DpModel(Owned, Table):
    """Model trained elsewhere. `dataset_ids`: datasets it may have been trained on; null means all. `version`: number
    of its current ledger. `retired_at`: time from which requests no longer concern it."""

    __tablename__ = "dp_models"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    dataset_ids: Mapped[list[str] | None] = mapped_column(sa.JSON(none_as_null=True))
    version: Mapped[int]
    created_at: Mapped[datetime.datetime]
    retired_at: Mapped[datetime.datetime | None]
    __table_args__ = (sa.Index(None, "tenant_id", "created_at", "id"),)


class DpLedger(Owned, Table):
    """Ledger of one training run. `curve`: pairs (number of rows, epsilon); epsilon is null beyond the computed range.
    `epsilon`: epsilon for one person's rows. `budget_rows`: maximum number of forgotten rows within
    `budget_epsilon`."""

    __tablename__ = "dp_ledgers"
    id: Mapped[str] = mapped_column(primary_key=True)
    dp_model_id: Mapped[str] = mapped_column(sa.ForeignKey("dp_models.id"))
    version: Mapped[int]
    ledger: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    relation: Mapped[str]
    delta: Mapped[float]
    max_rows_per_person: Mapped[int]
    budget_epsilon: Mapped[float]
    trained_from: Mapped[datetime.datetime]
    epsilon: Mapped[float]
    curve: Mapped[list[tuple[int, float | None]]] = mapped_column(sa.JSON)
    budget_rows: Mapped[int]
    created_at: Mapped[datetime.datetime]
    __table_args__ = (sa.UniqueConstraint("dp_model_id", "version"),)


class DpRequest(Owned, Table):
    """Deletion request that concerns a model. `status`: bounded, waiting, closed or cancelled. `forgotten_rows`: number
    of rows from this and earlier requests that the model was trained on; 0 if training started after the request.
    `ledger_id`: ledger that bounds the request; null while waiting."""

    __tablename__ = "dp_requests"
    id: Mapped[str] = mapped_column(primary_key=True)
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"))
    dp_model_id: Mapped[str] = mapped_column(sa.ForeignKey("dp_models.id"))
    ledger_id: Mapped[str | None] = mapped_column(sa.ForeignKey("dp_ledgers.id"))
    status: Mapped[str]
    forgotten_rows: Mapped[int]
    opened_at: Mapped[datetime.datetime]
    ended_at: Mapped[datetime.datetime | None]
    __table_args__ = (
        sa.UniqueConstraint("request_id", "dp_model_id"),
        sa.Index(None, "dp_model_id", "opened_at", "id"),
        partial_index("request_id", where="status = 'waiting'", name="ix_dp_requests_waiting"),
    )


OF_REQUESTS = (DpRequest,)
"""Tables whose rows are visible to callers who may see the request concerned."""

STORED = (("ledgers", sa.select(sa.func.sum(sa.func.length(sa.cast(DpLedger.ledger, sa.Text))))),)
"""Bytes of ledgers."""
