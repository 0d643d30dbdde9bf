"""Tables of the `systems` feature."""

import datetime
from dataclasses import dataclass
from typing import Self

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db import sealed, tables


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemAddress(sealed.Private):
    """System's webhook URL, which may contain a secret, and its contact."""

    url: str = ""
    contact: str = ""

    def changed(self, *, url: str | None, contact: str | None) -> Self:
        """Return the address with the given fields replaced, to be sealed under the same key."""
        return type(self)(key=self.key, url=url or self.url, contact=contact or self.contact)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNote(sealed.Private):
    """Note by a system or an officer about a task, which may name the person."""

    text: str = ""


class System(tables.Owned, tables.Table):
    """System outside Lethe. `public_key`: Ed25519 key whose signatures acknowledge tasks. `api_key_id`: API key whose
    calls acknowledge tasks. `dataset_ids`: datasets whose people it may hold data about; null means all. `parents`:
    models and systems it was derived from. `retired_at`: time from which no tasks are opened for it."""

    __tablename__ = "systems"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    address: Mapped[SystemAddress] = mapped_column(sealed.Sealed(SystemAddress), nullable=True)
    public_key: Mapped[str | None]
    api_key_id: Mapped[str | None] = mapped_column(sa.ForeignKey("api_keys.id"))
    dataset_ids: Mapped[list[str] | None] = mapped_column(sa.JSON(none_as_null=True))
    identifier_kinds: Mapped[list[str]] = mapped_column(sa.JSON)
    map_complete_since: Mapped[datetime.datetime | None]
    parents: Mapped[list[str]] = mapped_column(sa.JSON)
    created_at: Mapped[datetime.datetime]
    retired_at: Mapped[datetime.datetime | None]
    __table_args__ = (sa.Index(None, "tenant_id", "created_at", "id"),)


class SystemTask(tables.Owned, tables.Table):
    """System's task for a deletion request. `status`: open, acknowledged, closed (system not reached) or cancelled.
    `sent_from`: end of the request's grace period, from which the webhook is sent. `reminded`: last clock state
    (at_risk or overdue) that the system was reminded of. `public_key`: key that signed `jws`. `acknowledged_with`: API
    key used for an unsigned acknowledgement. `note`: sealed text, erased with the request's details."""

    __tablename__ = "system_tasks"
    id: Mapped[str] = mapped_column(primary_key=True)
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"))
    system_id: Mapped[str] = mapped_column(sa.ForeignKey("systems.id"))
    status: Mapped[str]
    opened_at: Mapped[datetime.datetime]
    sent_from: Mapped[datetime.datetime]
    reminded: Mapped[str | None]
    reminded_at: Mapped[datetime.datetime | None]
    ended_at: Mapped[datetime.datetime | None]
    confirmed_by: Mapped[str | None]
    evidence_sha256: Mapped[str | None]
    public_key: Mapped[str | None]
    jws: Mapped[str | None] = mapped_column(sa.Text)
    acknowledged_with: Mapped[str | None]
    note: Mapped[TaskNote] = mapped_column(sealed.Sealed(TaskNote), nullable=True)
    __table_args__ = (
        sa.UniqueConstraint("request_id", "system_id"),
        sa.Index(None, "tenant_id", "opened_at", "id"),
        tables.partial_index("request_id", where="status = 'open'", name="ix_system_tasks_open"),
    )


OF_REQUESTS = (SystemTask,)
"""Tables whose rows are visible to callers who may see the request concerned."""
