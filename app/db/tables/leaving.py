"""Counters of answers to why people leave."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.tables.table import Owned, Table


class LeavingCount(Owned, Table):
    """The count of an answer to why people leave, in a week (since its Monday, UTC): all that is kept of it. `odds`:
    how many times likelier a client sends the true answer than each other one."""

    __tablename__ = "leaving_counts"
    tenant_id: Mapped[str] = mapped_column(sa.ForeignKey("tenants.id"), primary_key=True)
    week: Mapped[datetime.datetime] = mapped_column(primary_key=True)
    odds: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    answer: Mapped[str] = mapped_column(primary_key=True)
    num_sent: Mapped[int]
