"""Deletion requests and their events, suppressions, and issuers that vouch for people."""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.sealed import AttachedFile, FileName, Note, Particulars, Reference, Sealed
from app.db.tables.table import Owned, Table
from lethe.contract.sets import EventKind

_OPEN = sa.text("status IN ('accepted', 'in_review', 'received', 'running')")
"""In the order in which SQLite compares the text."""
_WAS_HELD = sa.text("held_until IS NOT NULL")
_HAS_EXTERNAL_ID, _HAS_SOURCE = sa.text("external_ref IS NOT NULL"), sa.text("source IS NOT NULL")
_IS_MADE, _IS_DOUBTED = sa.text("maker IS NOT NULL"), sa.text("doubted_at IS NOT NULL")
_IS_ASSIGNED = sa.text("assignee IS NOT NULL")
_WAS_COMPLETED = sa.text("completed_at IS NOT NULL")
_IS_REPORTED, _HAS_ENDED = sa.text("reported_at IS NOT NULL"), sa.text("ended_at IS NOT NULL")


class DeletionRequest(Owned, Table):
    """`alias_refs`: further identifiers of the same person; `dataset_ids`: where to forget the person (None: wherever
    they are held). `deadline`: when it must be done, as `due_at`, `extended_due_at` and pauses have it; `paused_at`:
    since when the clock stands still; `held_until`: no worker takes it before (None: at once). `doubted_at`: since when
    it could be about somebody who is not found, because records are damaged; before it completes it is looked up again.
    `source`: the list or the protocol that it came by. `maker`: the line of the key that made it (None: not known).
    `discreet`: it was made by a caller who may not learn whether anything is held. `refers_to`: the ended request that
    this one follows. `alerted`: of what its receivers have been told, `at_risk` or `overdue`. `reported_at`: when
    callers who may not learn whether anything is held see it completed, known since it was accepted. `ended_at`: since
    when it is over, from which on `kept` shrinks as the tenant's policy says (`app.deletion.retention`).
    `external_ref`: of its external id. `assignee`: the id of the person whose case it is."""

    __tablename__ = "deletion_requests"
    id: Mapped[str] = mapped_column(primary_key=True)
    subject_ref: Mapped[str]
    alias_refs: Mapped[list[str] | None] = mapped_column(sa.JSON(none_as_null=True))
    dataset_ids: Mapped[list[str] | None] = mapped_column(sa.JSON(none_as_null=True))
    regulation: Mapped[str]
    ground: Mapped[str | None]
    status: Mapped[str]
    outcome: Mapped[str | None]
    external_ref: Mapped[str | None] = mapped_column(Reference)
    source: Mapped[str | None]
    refers_to: Mapped[str | None]
    particulars: Mapped[Particulars] = mapped_column(Sealed(Particulars), nullable=True)
    kept: Mapped[str]
    maker: Mapped[str | None]
    discreet: Mapped[bool]
    submitted_at: Mapped[datetime.datetime]
    due_at: Mapped[datetime.datetime]
    extended_due_at: Mapped[datetime.datetime | None]
    deadline: Mapped[datetime.datetime]
    paused_at: Mapped[datetime.datetime | None]
    held_until: Mapped[datetime.datetime | None]
    doubted_at: Mapped[datetime.datetime | None]
    alerted: Mapped[str | None]
    rejection_ground: Mapped[str | None]
    created_at: Mapped[datetime.datetime]
    completed_at: Mapped[datetime.datetime | None]
    reported_at: Mapped[datetime.datetime | None]
    ended_at: Mapped[datetime.datetime | None]
    assignee: Mapped[str | None]
    __table_args__ = (
        sa.Index(None, "tenant_id", "created_at", "id"),
        sa.Index(None, "tenant_id", "status", "created_at", "id"),
        sa.Index(None, "tenant_id", "regulation", "created_at", "id"),
        sa.Index(None, "tenant_id", "maker", "created_at", "id", sqlite_where=_IS_MADE, postgresql_where=_IS_MADE),
        sa.Index(
            None, "tenant_id", "assignee", "created_at", "id", sqlite_where=_IS_ASSIGNED, postgresql_where=_IS_ASSIGNED
        ),
        sa.Index(None, "subject_ref", "created_at", "id"),
        sa.Index(
            None,
            "tenant_id",
            "external_ref",
            "created_at",
            "id",
            sqlite_where=_HAS_EXTERNAL_ID,
            postgresql_where=_HAS_EXTERNAL_ID,
        ),
        sa.Index(
            None, "tenant_id", "source", "created_at", "id", sqlite_where=_HAS_SOURCE, postgresql_where=_HAS_SOURCE
        ),
        sa.Index(
            "ix_deletion_requests_reported",
            "tenant_id",
            "reported_at",
            "status",
            "submitted_at",
            "deadline",
            sqlite_where=_IS_REPORTED,
            postgresql_where=_IS_REPORTED,
        ),
        sa.Index(None, "tenant_id", "submitted_at", "id"),
        sa.Index(
            "ix_deletion_requests_completed",
            "tenant_id",
            "completed_at",
            "submitted_at",
            "deadline",
            sqlite_where=_WAS_COMPLETED,
            postgresql_where=_WAS_COMPLETED,
        ),
        sa.Index(None, "kept", "tenant_id", "ended_at", sqlite_where=_HAS_ENDED, postgresql_where=_HAS_ENDED),
        sa.Index(
            "ix_deletion_requests_held", "status", "held_until", sqlite_where=_WAS_HELD, postgresql_where=_WAS_HELD
        ),
        sa.Index(
            "ix_deletion_requests_doubted",
            "status",
            "created_at",
            sqlite_where=_IS_DOUBTED,
            postgresql_where=_IS_DOUBTED,
        ),
        sa.Index(
            "ix_deletion_requests_open",
            "status",
            "tenant_id",
            "regulation",
            "deadline",
            "created_at",
            "paused_at",
            "held_until",
            sqlite_where=_OPEN,
            postgresql_where=_OPEN,
        ),
    )

    @property
    def subject_refs(self) -> tuple[str, ...]:
        """Every identifier of the person."""
        return (self.subject_ref, *(self.alias_refs or ()))


class RequestAlias(Table):
    """The `alias_refs` of a request, one by one, so that they are found."""

    __tablename__ = "request_aliases"
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"), primary_key=True)
    subject_ref: Mapped[str] = mapped_column(primary_key=True, index=True)


class RequestEvent(Table):
    """Something that happened to a request. `facts`: what there is to say of it beyond its kind; `detail`: the words
    of a release that knew no kinds, and whose workers may still add events, which are `noted`."""

    __tablename__ = "request_events"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"), index=True)
    status: Mapped[str]
    detail: Mapped[str | None]
    actor: Mapped[str]
    at: Mapped[datetime.datetime]
    kind: Mapped[str] = mapped_column(server_default=EventKind.NOTED.value)
    facts: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))


class RequestNote(Owned, Table):
    """A note about a request by somebody who decides; each is sealed under a key of its own."""

    __tablename__ = "request_notes"
    id: Mapped[str] = mapped_column(primary_key=True)
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"))
    author: Mapped[str]
    at: Mapped[datetime.datetime]
    text: Mapped[Note] = mapped_column(Sealed(Note), nullable=True)
    __table_args__ = (sa.Index(None, "request_id", "at", "id"),)


class RequestAttachment(Owned, Table):
    """A file about a request, for those who decide. Its name and its bytes are sealed under one key of its own; the
    bytes are read where they are asked for."""

    __tablename__ = "request_attachments"
    id: Mapped[str] = mapped_column(primary_key=True)
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"))
    author: Mapped[str]
    at: Mapped[datetime.datetime]
    kind: Mapped[str]
    size: Mapped[int]
    name: Mapped[FileName] = mapped_column(Sealed(FileName), nullable=True)
    content: Mapped[AttachedFile] = mapped_column(Sealed(AttachedFile), nullable=True, deferred=True)
    __table_args__ = (sa.Index(None, "request_id", "at", "id"),)


class Suppression(Owned, Table):
    """Somebody who asked to be forgotten, and whose rows are refused until they consent again. `dataset_id`: where;
    `*` for wherever."""

    __tablename__ = "suppressions"
    subject_ref: Mapped[str] = mapped_column(primary_key=True)
    dataset_id: Mapped[str] = mapped_column(primary_key=True)
    id: Mapped[str]
    request_id: Mapped[str]
    created_at: Mapped[datetime.datetime]
    __table_args__ = (sa.Index(None, "tenant_id", "created_at", "id"),)


class IdentityIssuer(Owned, Table):
    """An issuer that may state, by a signed JWT, that somebody is who they say."""

    __tablename__ = "identity_issuers"
    id: Mapped[str] = mapped_column(primary_key=True)
    issuer: Mapped[str]
    audience: Mapped[str]
    jwks: Mapped[dict[str, Any]]
    created_at: Mapped[datetime.datetime]
    __table_args__ = (sa.UniqueConstraint("tenant_id", "issuer"),)


class UsedStatement(Table):
    """A signed statement that has been used: it is not believed again."""

    __tablename__ = "used_statements"
    issuer_id: Mapped[str] = mapped_column(sa.ForeignKey("identity_issuers.id"), primary_key=True)
    statement_hash: Mapped[str] = mapped_column(primary_key=True)
    expires_at: Mapped[datetime.datetime] = mapped_column(index=True)
