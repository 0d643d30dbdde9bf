"""Tables of the `leaving` feature."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.tables import Owned, Table


class LeavingCount(Owned, Table):
    """Number of times that an answer was sent in the week starting on Monday `week` (UTC). Nothing else is stored.

    `odds`: probability of sending the true answer, divided by that of sending any particular other answer.
    """

    __tablename__ = "leaving_counts"
    tenant_id: Mapped[str] = mapped_column(sa.ForeignKey("tenants.id"), primary_key=True)
    week: Mapped[datetime.datetime] = mapped_column(primary_key=True)
    odds: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    answer: Mapped[str] = mapped_column(primary_key=True)
    num_sent: Mapped[int]
