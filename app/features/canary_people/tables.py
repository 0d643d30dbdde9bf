"""Tables of the `canary_people` feature."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.tables import Owned, Table


class CanaryRound(Owned, Table):
    """Canaries of one training run. `content`: tie-breaking seed, planted and unplanted canaries, sealed under the
    vault's `key`; null once no more runs are tested against them. `outcome`: verdict on this run; null until judged."""

    __tablename__ = "canary_rounds"
    training_id: Mapped[str] = mapped_column(sa.ForeignKey("trainings.id"), primary_key=True)
    trainer_id: Mapped[str] = mapped_column(sa.ForeignKey("trainers.id"), index=True)
    drawn_at: Mapped[datetime.datetime]
    outcome: Mapped[str | None]
    key: Mapped[str | None] = mapped_column(index=True)
    content: Mapped[bytes | None]
