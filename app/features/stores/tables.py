"""Table of the `stores` feature."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.tables import Owned, Table
from app.features.systems.tables import SystemTask


class SearchReport(Owned, Table):
    """Report on a search of a system's stores, exactly as the system signed it. `report` is JSON text containing
    counts, sizes and digests (`lethe.features.stores.reports`)."""

    __tablename__ = "search_reports"
    task_id: Mapped[str] = mapped_column(sa.ForeignKey(SystemTask.id), primary_key=True)
    report: Mapped[str] = mapped_column(sa.Text)
    at: Mapped[datetime.datetime]
