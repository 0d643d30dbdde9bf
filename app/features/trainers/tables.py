"""Tables of the `trainers` feature."""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.tables import Owned, Table, partial_index


class TrainingTable(Owned, Table):
    """Rows of people with their original columns. `dataset_id`: dataset whose rows are the tokens of this table's rows,
    and whose records identify the people. `revision`: revision of the dataset up to which blocks have been rewritten
    and the keys of the old blocks have been destroyed. `columns`: `name` and `type` of each column."""

    __tablename__ = "training_tables"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"), unique=True)
    subject_column: Mapped[str]
    columns: Mapped[list[dict[str, str]]] = mapped_column(sa.JSON)
    revision: Mapped[int]
    created_at: Mapped[datetime.datetime]
    retired_at: Mapped[datetime.datetime | None]
    __table_args__ = (sa.Index(None, "tenant_id", "created_at", "id"),)


class TableBlock(Owned, Table):
    """Consecutive rows of a table as an Arrow stream, sealed under the vault's key `key`."""

    __tablename__ = "training_table_blocks"
    table_id: Mapped[str] = mapped_column(sa.ForeignKey("training_tables.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    num_rows: Mapped[int]
    key: Mapped[str]
    content: Mapped[bytes]


class Trainer(Owned, Table):
    """Command that trains on a table. `specification`: the fields of `TrainerIn`. `sha256`: digest of commands, files
    and lock file together. `lock_sha256`: digest of the lock file. `live_id`: training run whose artefacts are live.
    `failures`: number of failed runs since the last successful one. `retry_at`: end of the back-off."""

    __tablename__ = "trainers"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    table_id: Mapped[str] = mapped_column(sa.ForeignKey("training_tables.id"))
    specification: Mapped[dict[str, Any]]
    sha256: Mapped[str]
    lock_sha256: Mapped[str]
    live_id: Mapped[str | None]
    live_revision: Mapped[int | None]
    failures: Mapped[int] = mapped_column(default=0)
    error_code: Mapped[str | None]
    retry_at: Mapped[datetime.datetime | None]
    created_at: Mapped[datetime.datetime]
    retired_at: Mapped[datetime.datetime | None]
    __table_args__ = (sa.Index(None, "tenant_id", "created_at", "id"), sa.Index(None, "table_id"))


class Training(Owned, Table):
    """Training run, whose id is its fencing token. `revision`: dataset revision up to which erased people are absent
    from its rows. `leased_until`: time from which another worker may abandon it. `findings`: the plants' reports. The
    seed is drawn in the worker and never stored, since it would let readers of artefacts test who was included."""

    __tablename__ = "trainings"
    id: Mapped[str] = mapped_column(primary_key=True)
    trainer_id: Mapped[str] = mapped_column(sa.ForeignKey("trainers.id"))
    status: Mapped[str]
    revision: Mapped[int]
    started_at: Mapped[datetime.datetime]
    ended_at: Mapped[datetime.datetime | None]
    leased_until: Mapped[datetime.datetime]
    error_code: Mapped[str | None]
    repeated: Mapped[bool] = mapped_column(default=False)
    held: Mapped[bool] = mapped_column(default=False)
    metrics: Mapped[dict[str, Any]] = mapped_column(default=dict)
    findings: Mapped[dict[str, Any]] = mapped_column(default=dict)
    __table_args__ = (
        sa.Index(None, "trainer_id", "started_at", "id"),
        partial_index("trainer_id", where="status = 'running'", name="ix_trainings_running", unique=True),
    )


class Artefact(Owned, Table):
    """File written by a training run. `content`: sealed under `key`, as in `TableBlock`; both null once destroyed."""

    __tablename__ = "training_artefacts"
    training_id: Mapped[str] = mapped_column(sa.ForeignKey("trainings.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    sha256: Mapped[str]
    size: Mapped[int]
    key: Mapped[str | None]
    content: Mapped[bytes | None]


class RetiredKey(Owned, Table):
    """Vault key that is no longer needed but not yet destroyed. `table_id`: table whose rows the key decrypts."""

    __tablename__ = "retired_training_keys"
    key: Mapped[str] = mapped_column(primary_key=True)
    table_id: Mapped[str | None]


STORED = (
    ("training tables", sa.select(sa.func.sum(sa.func.length(TableBlock.content)))),
    ("trainers", sa.select(sa.func.sum(sa.func.length(sa.cast(Trainer.specification, sa.Text))))),
    ("artefacts", sa.select(sa.func.sum(Artefact.size)).where(Artefact.content.is_not(None))),
)
"""Bytes of tables, of trainers' files, and of artefacts. Artefacts are never refused."""
