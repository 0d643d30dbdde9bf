"""Tables of the `drop` feature."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.tables import Owned, Table


class DropFile(Owned, Table):
    """DROP file. `num_lines`: number of lines in the file; null until the last call that loads it."""

    __tablename__ = "drop_files"
    tenant_id: Mapped[str] = mapped_column(sa.ForeignKey("tenants.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    num_lines: Mapped[int | None]
    created_at: Mapped[datetime.datetime]


class DropLine(Owned, Table):
    """DROP line. `line_id`: permanent ID. `file`: the last file that contained the line; null if DROP withdrew the line
    before any file contained it. `hash_ref`: keyed hash of the line's hash and list. `request_id`: request created for
    it. `opted_out_at`: time all people it matches were reported as opted out. `removed_at`: time DROP withdrew it."""

    __tablename__ = "drop_lines"
    tenant_id: Mapped[str] = mapped_column(sa.ForeignKey("tenants.id"), primary_key=True)
    line_id: Mapped[str] = mapped_column(primary_key=True)
    file: Mapped[str | None]
    hash_ref: Mapped[str] = mapped_column(index=True)
    request_id: Mapped[str | None] = mapped_column(sa.ForeignKey("deletion_requests.id"))
    opted_out_at: Mapped[datetime.datetime | None]
    removed_at: Mapped[datetime.datetime | None]
    __table_args__ = (sa.Index(None, "tenant_id", "file", "line_id"),)


class DropHash(Owned, Table):
    """Keyed hash by which a DROP list may refer to the person with this identifier; empty if the data that the list
    hashes is not held. `kind`: kind of the identifier. Several people may share a hash."""

    __tablename__ = "drop_hashes"
    subject_ref: Mapped[str] = mapped_column(primary_key=True)
    list_type: Mapped[str] = mapped_column(primary_key=True)
    hash_ref: Mapped[str] = mapped_column(primary_key=True, index=True)
    kind: Mapped[str]
    __table_args__ = (sa.Index(None, "tenant_id", "list_type"),)


STORED = (("hashes for DROP", sa.select((sa.func.count(DropHash.hash_ref) + 65_535) // 65_536 * 2**24)),)
"""Bytes of people's hashes, 256 per hash, counted in the same steps as the bytes of identity maps."""
