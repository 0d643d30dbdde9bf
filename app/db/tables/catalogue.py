"""Models, their versions, and the weights that were handed out."""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.tables.table import Owned, Table


class Model(Owned, Table):
    """`wanted`: the run from scratch that is due, if any (`learn` or `relearn`). `lost_releases`: the steps behind
    versions that were published and that a restored backup does not know. `attempts`, `deaths`: runs since the last
    version that failed by themselves, and whose worker died. `max_requests`, `max_wait_seconds`: how many requests
    wait for each other before a run, at most, and for how long. `audit_lanes`: of each run's audit, 0 for none;
    `audit_chains`: how many times as many of one that is asked for; `audit_asked_at`: of one that waits. `quality`: its
    gate, a `metric`, `threshold` and `on_breach` (None: there is none). `retired_at`: it learns and forgets no more;
    `destroyed_at`: nothing is left of its weights."""

    __tablename__ = "models"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"), index=True)
    evaluation_dataset_id: Mapped[str | None] = mapped_column(sa.ForeignKey("datasets.id"))
    mechanism: Mapped[dict[str, Any]]
    epsilon: Mapped[float]
    delta: Mapped[float]
    max_requests: Mapped[int | None]
    max_wait_seconds: Mapped[int] = mapped_column(default=0, server_default="0")
    audit_lanes: Mapped[int] = mapped_column(default=256, server_default="256")
    audit_chains: Mapped[int] = mapped_column(default=16, server_default="16")
    audit_asked_at: Mapped[datetime.datetime | None]
    quality: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    lost_releases: Mapped[list[int]] = mapped_column(sa.JSON, default=list)
    status: Mapped[str]
    wanted: Mapped[str | None]
    live_version: Mapped[int | None]
    attempts: Mapped[int] = mapped_column(default=0)
    deaths: Mapped[int] = mapped_column(default=0)
    not_before: Mapped[datetime.datetime | None]
    error_code: Mapped[str | None]
    created_at: Mapped[datetime.datetime]
    retired_at: Mapped[datetime.datetime | None]
    destroyed_at: Mapped[datetime.datetime | None]
    __table_args__ = (sa.Index(None, "tenant_id", "created_at", "id"),)


class Version(Table):
    """`degraded`: it missed the quality gate that it was judged by last; `held`: it is kept from serving for that."""

    __tablename__ = "versions"
    id: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"))
    number: Mapped[int]
    status: Mapped[str] = mapped_column(index=True)
    run_id: Mapped[str] = mapped_column(sa.ForeignKey("runs.id"), unique=True)
    revision: Mapped[int]
    weights_sha256: Mapped[str]
    metrics: Mapped[dict[str, Any]]
    degraded: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    held: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    published_at: Mapped[datetime.datetime]
    destroyed_at: Mapped[datetime.datetime | None]
    __table_args__ = (sa.UniqueConstraint("model_id", "number"),)


class Export(Owned, Table):
    """Weights that were handed out: where a copy went, nobody here can erase it."""

    __tablename__ = "exports"
    id: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"))
    version: Mapped[int]
    api_key_id: Mapped[str]
    at: Mapped[datetime.datetime]
    __table_args__ = (sa.Index(None, "model_id", "at", "id"),)
