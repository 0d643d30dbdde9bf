"""Tables of the `attested` feature."""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db import sealed, tables
from app.features.systems.tables import SystemAddress


class AttestedTrainer(tables.Owned, tables.Table):
    """Trainer outside Lethe. `public_key`: Ed25519 key that verifies its manifests. `dataset_ids`: datasets whose
    people's rows it may read; null for all. `lead_days`: safety margin before a deadline, in days. `retraining_id`:
    retraining that the next manifest must name. `announced`: last `retraining_due` sent. `retired_at`: time from which
    no request waits for it. `restored_at`: last time the database was restored from a backup."""

    __tablename__ = "attested_trainers"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    address: Mapped[SystemAddress] = mapped_column(sealed.Sealed(SystemAddress), nullable=True)
    public_key: Mapped[str]
    dataset_ids: Mapped[list[str] | None] = mapped_column(sa.JSON(none_as_null=True))
    lead_days: Mapped[int]
    retraining_id: Mapped[str]
    announced: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    created_at: Mapped[datetime.datetime]
    retired_at: Mapped[datetime.datetime | None]
    restored_at: Mapped[datetime.datetime | None]
    __table_args__ = (sa.Index(None, "tenant_id", "created_at", "id"),)


class AttestedManifest(tables.Owned, tables.Table):
    """Accepted manifest of a retraining, without its list of people. `public_key`: key that verifies `jws`.
    `num_served`: number of requests served by the manifest."""

    __tablename__ = "attested_manifests"
    id: Mapped[str] = mapped_column(primary_key=True)
    trainer_id: Mapped[str] = mapped_column(sa.ForeignKey("attested_trainers.id"))
    retraining_id: Mapped[str] = mapped_column(unique=True)
    public_key: Mapped[str]
    jws: Mapped[str] = mapped_column(sa.Text)
    identifiers_sha256: Mapped[str]
    num_identifiers: Mapped[int]
    artefacts: Mapped[list[str]] = mapped_column(sa.JSON)
    rows_read_at: Mapped[datetime.datetime]
    accepted_at: Mapped[datetime.datetime]
    num_served: Mapped[int]
    __table_args__ = (sa.Index(None, "trainer_id", "rows_read_at"),)


class AttestedArtefact(tables.Owned, tables.Table):
    """Artefact named in a manifest."""

    __tablename__ = "attested_artefacts"
    manifest_id: Mapped[str] = mapped_column(sa.ForeignKey("attested_manifests.id"), primary_key=True)
    sha256: Mapped[str] = mapped_column(primary_key=True)
    __table_args__ = (sa.Index(None, "tenant_id", "sha256"),)


class AttestedWait(tables.Owned, tables.Table):
    """A deletion request's wait for a trainer's next retraining. `status`: open, served, closed (not reached) or
    cancelled. `asked_at`: end of the request's grace period; a retraining that reads its rows earlier does not serve
    the request. `manifest_id`: manifest that served it."""

    __tablename__ = "attested_waits"
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"), primary_key=True)
    trainer_id: Mapped[str] = mapped_column(sa.ForeignKey("attested_trainers.id"), primary_key=True)
    status: Mapped[str]
    asked_at: Mapped[datetime.datetime]
    ended_at: Mapped[datetime.datetime | None]
    manifest_id: Mapped[str | None] = mapped_column(sa.ForeignKey("attested_manifests.id"))
    __table_args__ = (
        sa.Index(None, "trainer_id", "status", "asked_at"),
        tables.partial_index("request_id", where="status = 'open'", name="ix_attested_waits_open"),
    )
