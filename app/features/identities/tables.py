"""Tables of the `identities` feature."""

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.tables import Owned, Table


class Identity(Owned, Table):
    """Keyed hash of a person's identifier. `kind`: kind of the identifier. `person`: random id shared by all of a
    person's identifiers; it changes when two people prove to be the same."""

    __tablename__ = "identities"
    subject_ref: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    person: Mapped[str] = mapped_column(index=True)
    __table_args__ = (sa.Index(None, "tenant_id", "kind"),)


class IdentityKind(Owned, Table):
    """Kind of identifier that a tenant has defined, or the region of its phone numbers. `region`: country (ISO 3166-1)
    assumed for numbers without a country code; null if such numbers are refused."""

    __tablename__ = "identity_kinds"
    tenant_id: Mapped[str] = mapped_column(sa.ForeignKey("tenants.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    region: Mapped[str | None]


STORED = (("identity maps", sa.select((sa.func.count(Identity.subject_ref) + 65_535) // 65_536 * 2**24)),)
"""Bytes of identity maps, 256 per identifier. Counting in steps hides whether an identifier was new."""
