"""The work that requests ask for: erasures, models that owe a run, and runs."""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.tables.table import Owned, Table
from lethe.contract.sets import RequestModelStatus

_UNCLAIMED = sa.text("revision IS NULL AND ready_at IS NOT NULL")
_CLAIMED = sa.text("revision IS NOT NULL")
_UNCONFIRMED = sa.text("num_records IS NOT NULL AND nulled_at IS NULL")


class Erasure(Table):
    """One request's rows in one dataset. `revision`, `num_records`: set when they are claimed (no way back from
    there); `num_claimed`: those of them that no other request of the same person had claimed; `nulled_at`: set when
    the rows are null, and nobody can open what they were.

    `deadline` is the request's, and `ready_at` says from when a worker may claim the rows (None: not as the request
    stands): what the queue goes by is here, because no index reaches over two tables. Triggers keep it so, no matter
    who changes the request."""

    __tablename__ = "erasures"
    id: Mapped[str] = mapped_column(primary_key=True)
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"))
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"))
    revision: Mapped[int | None]
    num_records: Mapped[int | None]
    num_claimed: Mapped[int] = mapped_column(default=0)
    nulled_at: Mapped[datetime.datetime | None]
    deadline: Mapped[datetime.datetime]
    ready_at: Mapped[datetime.datetime | None]
    __table_args__ = (
        sa.UniqueConstraint("request_id", "dataset_id"),
        sa.Index(
            "ix_erasures_claimed",
            "dataset_id",
            "revision",
            "deadline",
            "ready_at",
            sqlite_where=_CLAIMED,
            postgresql_where=_CLAIMED,
        ),
        sa.Index(
            "ix_erasures_by_deadline",
            "dataset_id",
            "deadline",
            "ready_at",
            sqlite_where=_UNCLAIMED,
            postgresql_where=_UNCLAIMED,
        ),
        sa.Index(
            "ix_erasures_by_readiness", "dataset_id", "ready_at", sqlite_where=_UNCLAIMED, postgresql_where=_UNCLAIMED
        ),
        sa.Index(
            "ix_erasures_unconfirmed",
            "dataset_id",
            "deadline",
            sqlite_where=_UNCONFIRMED,
            postgresql_where=_UNCONFIRMED,
        ),
    )


OWED = (RequestModelStatus.PENDING, RequestModelStatus.RUNNING)
"""Statuses of a model in a request that still has to forget."""


class RequestModel(Table):
    """A request's demand on one model: pending, running, completed, cancelled, destroyed (nothing is left of it), or
    nothing_published (it never had a version). `requested_at`: `created_at` of the request."""

    __tablename__ = "request_models"
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"), primary_key=True)
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"), primary_key=True)
    status: Mapped[str]
    run_id: Mapped[str | None] = mapped_column(sa.ForeignKey("runs.id"))
    version: Mapped[int | None]
    certificate_id: Mapped[str | None]
    requested_at: Mapped[datetime.datetime]
    __table_args__ = (
        sa.Index(None, "model_id", "requested_at", "request_id"),
        sa.Index(
            "ix_request_models_owed",
            "model_id",
            "status",
            sqlite_where=sa.text("status IN ('pending', 'running')"),
            postgresql_where=sa.text("status IN ('pending', 'running')"),
        ),
    )


CUT_OFF = sa.text("status IN ('abandoned', 'cancelled', 'failed')")
"""A condition on runs: they did not come to their end."""


class Run(Owned, Table):
    """One attempt, fenced by its own id: only a run that is still `running` can publish, and only one per dataset is.

    `first_step`: how many steps of the model's chain come before its own. `records`: how many records became null since
    the run of the parent version. `audit`: what its lanes showed.
    `repeated`: how many runs before it ended for the same reason, one after the other, and are not kept."""

    __tablename__ = "runs"
    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    status: Mapped[str]
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"))
    model_id: Mapped[str | None] = mapped_column(sa.ForeignKey("models.id"))
    revision: Mapped[int]
    parent_version_id: Mapped[str | None]
    version_id: Mapped[str]
    first_step: Mapped[int] = mapped_column(default=0, server_default="0")
    steps_total: Mapped[int]
    steps_done: Mapped[int]
    records: Mapped[int]
    reason: Mapped[str]
    worker: Mapped[str]
    lease_expires_at: Mapped[datetime.datetime]
    started_at: Mapped[datetime.datetime]
    finished_at: Mapped[datetime.datetime | None]
    error_code: Mapped[str | None]
    audit: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    repeated: Mapped[int] = mapped_column(default=0, server_default="0")
    __table_args__ = (
        sa.Index(
            "uq_runs_running_dataset",
            "dataset_id",
            unique=True,
            sqlite_where=sa.text("status = 'running'"),
            postgresql_where=sa.text("status = 'running'"),
        ),
        sa.Index("ix_runs_cut_off", "dataset_id", "finished_at", sqlite_where=CUT_OFF, postgresql_where=CUT_OFF),
        sa.Index(None, "status"),
        sa.Index(None, "model_id", "started_at", "id"),
        sa.Index(None, "started_at", "id"),
        sa.Index(None, "tenant_id", "started_at", "id"),
    )


class Rehearsal(Owned, Table):
    """People drawn at random, so many, who are forgotten on a copy that nobody keeps. Nothing here says who they were.
    `lost_runs`: how many of its runs came to nothing. `report`: what was measured, aggregates alone; none once somebody
    was erased whose row may have been measured."""

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
