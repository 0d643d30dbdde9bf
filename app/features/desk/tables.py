"""Tables of the `desk` feature."""

import base64
import datetime
from dataclasses import dataclass, field
from typing import Self

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db import sealed, tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(sealed.Private):
    """Internal note about a request, for reviewers only."""

    text: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileName(sealed.Private):
    """Name of a file attached to a request; the name itself is often personal data."""

    text: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedFile(sealed.Private):
    """Content of a file attached to a request."""

    base64: str = field(default="", repr=False)

    @classmethod
    def of(cls, content: bytes, *, key: str) -> Self:
        return cls(key=key, base64=base64.b64encode(content).decode())

    @property
    def content(self) -> bytes:
        return base64.b64decode(self.base64)


class DashboardSession(tables.Table):
    """Dashboard session of an API key or a user. `token_hash` is the hash of the token in the browser's cookie."""

    __tablename__ = "dashboard_sessions"
    token_hash: Mapped[str] = mapped_column(primary_key=True)
    api_key_id: Mapped[str | None] = mapped_column(sa.ForeignKey("api_keys.id"))
    user_id: Mapped[str | None] = mapped_column(sa.ForeignKey("users.id"), index=True)
    opened_at: Mapped[datetime.datetime]
    seen_at: Mapped[datetime.datetime] = mapped_column(index=True)
    expires_at: Mapped[datetime.datetime] = mapped_column(index=True)
    __table_args__ = (sa.CheckConstraint("(api_key_id IS NULL) <> (user_id IS NULL)", name="key_or_user"),)


class RequestNote(tables.Owned, tables.Table):
    """Internal note about a request. Each note is sealed under its own key."""

    __tablename__ = "request_notes"
    id: Mapped[str] = mapped_column(primary_key=True)
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"))
    author: Mapped[str]
    at: Mapped[datetime.datetime]
    text: Mapped[Note] = mapped_column(sealed.Sealed(Note), nullable=True)
    __table_args__ = (sa.Index(None, "request_id", "at", "id"),)


class RequestAttachment(tables.Owned, tables.Table):
    """File attached to a request. Its name and bytes are sealed under a key of their own; the bytes are loaded on
    access."""

    __tablename__ = "request_attachments"
    id: Mapped[str] = mapped_column(primary_key=True)
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"))
    author: Mapped[str]
    at: Mapped[datetime.datetime]
    kind: Mapped[str]
    size: Mapped[int]
    name: Mapped[FileName] = mapped_column(sealed.Sealed(FileName), nullable=True)
    content: Mapped[AttachedFile] = mapped_column(sealed.Sealed(AttachedFile), nullable=True, deferred=True)
    __table_args__ = (sa.Index(None, "request_id", "at", "id"),)


STORED = (("attachments", sa.select(sa.func.sum(RequestAttachment.size))),)
"""Bytes of attachments."""
