"""Tables of the `lineage` feature."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.tables import Owned, Table


class Export(Owned, Table):
    """Exported copy of a version's weights. Lethe cannot erase it, so it records the recipient and the latest statement
    about the copy. `destroyed` states how the destruction was checked; None if the copy was not destroyed."""

    __tablename__ = "exports"
    id: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"))
    version: Mapped[int]
    api_key_id: Mapped[str]
    at: Mapped[datetime.datetime]
    kind: Mapped[str | None]
    place: Mapped[str | None]
    destroyed: Mapped[str | None]
    replaced_by: Mapped[int | None]
    stated_by: Mapped[str | None]
    stated_at: Mapped[datetime.datetime | None]
    __table_args__ = (sa.Index(None, "model_id", "at", "id"),)


READ_BY_ACCOUNTING = (Export.__tablename__,)
