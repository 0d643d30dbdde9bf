"""Datasets, additions to them, and the person of each of their rows."""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.sealed import Reference
from app.db.tables.table import Owned, Table

_IS_DAMAGED = sa.text("damaged_at IS NOT NULL")


class Dataset(Owned, Table):
    """`network_id`: of the public network whose features its rows are, if there is one. `classes`: what labels stand
    for, or none where they are numbers in the range of a `target` (`lethe.encoding.targets`). `revision` counts batches
    of edits: rows at revision r lack everybody erased at or before r, and hold everybody added at or before r.
    `references_check`: a keyed hash of the id under the key that the references of its people were made with, so that
    another key is told from people who are not held;
    `records_have_checks`: each of its records carries a check value of its own, so that one without is damaged too;
    `num_rows`: how many of its rows are not null; `records_verified_at`, `records_verified_to`: when all of them were
    verified last, and up to which slot they are since (None: none). `lost_models`: what models published that a
    restored backup does not know, by their ids: `mechanism` and `steps`, of each version. `digest`: the root of what
    its rows are (`app.rows.manifest`); `damaged_at`: since when they are known not to be that; `damage`: what was found
    first, a `kind`, of which `rows`, in which `block`. `adaptive_budget`: `epsilon` and `delta`, if it was made with
    one (`app.accounting.budgets`). `retired_at`: nothing is learned from it any more; `destroyed_at`: nothing is left
    of its rows."""

    __tablename__ = "datasets"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    schema: Mapped[dict[str, Any] | None]
    network_id: Mapped[str | None]
    classes: Mapped[list[str]]
    target: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    lost_models: Mapped[dict[str, Any]] = mapped_column(default=dict)
    num_features: Mapped[int]
    num_slots: Mapped[int]
    num_rows: Mapped[int] = mapped_column(default=0, server_default="0")
    digest: Mapped[str]
    references_check: Mapped[str | None] = mapped_column(Reference)
    records_have_checks: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    records_verified_at: Mapped[datetime.datetime | None]
    records_verified_to: Mapped[int | None]
    damaged_at: Mapped[datetime.datetime | None]
    damage: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    revision: Mapped[int]
    attempts: Mapped[int] = mapped_column(default=0)
    not_before: Mapped[datetime.datetime | None]
    created_at: Mapped[datetime.datetime]
    adaptive_budget: Mapped[dict[str, float] | None] = mapped_column(sa.JSON(none_as_null=True))
    retired_at: Mapped[datetime.datetime | None]
    destroyed_at: Mapped[datetime.datetime | None]
    __table_args__ = (
        sa.Index(None, "tenant_id", "created_at", "id"),
        sa.Index("ix_datasets_damaged", "damaged_at", sqlite_where=_IS_DAMAGED, postgresql_where=_IS_DAMAGED),
    )


_STAGED = sa.text("staged")
_WAS_ADDED = sa.text("addition_id IS NOT NULL")


class Addition(Owned, Table):
    """Rows that came to a dataset after it was made, for slots that were null. `status`: pending, applied (they are in
    their slots) or dropped (the dataset was retired before); `revision`: set when a worker takes them; `staged`: the
    batch that came still lies beside the dataset, `digest` being the root of its rows."""

    __tablename__ = "additions"
    id: Mapped[str] = mapped_column(primary_key=True)
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"))
    num_records: Mapped[int]
    digest: Mapped[str]
    status: Mapped[str]
    staged: Mapped[bool]
    revision: Mapped[int | None]
    created_at: Mapped[datetime.datetime]
    applied_at: Mapped[datetime.datetime | None]
    __table_args__ = (
        sa.Index(None, "dataset_id", "created_at", "id"),
        sa.Index("ix_additions_revision", "dataset_id", "revision"),
        sa.Index("ix_additions_staged", "dataset_id", sqlite_where=_STAGED, postgresql_where=_STAGED),
    )


class Record(Table):
    """A record: the person of the row in a slot. The line goes when the row has become null: nothing says whose it was.

    `addition_id`: with which addition it came; None: with the dataset. `check_value`: a keyed hash of whose row is in
    which slot of which dataset, so that damage is told from absence (`app.rows.records`)."""

    __tablename__ = "records"
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"), primary_key=True)
    slot: Mapped[int] = mapped_column(primary_key=True)
    subject_ref: Mapped[str | None]
    erasure_id: Mapped[str | None] = mapped_column(index=True)
    addition_id: Mapped[str | None]
    check_value: Mapped[bytes | None]
    __table_args__ = (
        sa.Index(None, "subject_ref", "dataset_id"),
        sa.Index("ix_records_added", "addition_id", "slot", sqlite_where=_WAS_ADDED, postgresql_where=_WAS_ADDED),
    )
