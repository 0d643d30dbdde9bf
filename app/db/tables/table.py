"""Base of all tables: types of columns, names of constraints, ids, the tenant that owns a line."""

import datetime
import secrets
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from lethe.contract.problems import InputInvalid


class Moment(sa.TypeDecorator[datetime.datetime]):
    """An aware UTC time; SQLite, which has no zones, stores the UTC wall time."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime.datetime | None, dialect: sa.Dialect) -> datetime.datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("Expected an aware time")
        return value and value.astimezone(datetime.UTC)

    def process_result_value(self, value: datetime.datetime | None, dialect: sa.Dialect) -> datetime.datetime | None:
        return value and (
            value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value.astimezone(datetime.UTC)
        )


class Text(sa.TypeDecorator[str]):
    """Text that PostgreSQL can store and look for; any other raises `InputInvalid`, on both databases."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        if value is not None and ("\0" in value or not _encodes(value)):
            raise InputInvalid("A text of the call holds the character NUL or half a surrogate pair; send it without.")
        return value


def _encodes(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class Table(DeclarativeBase):
    type_annotation_map = {str: Text, datetime.datetime: Moment, dict[str, Any]: sa.JSON, list[str]: sa.JSON}  # noqa: RUF012
    metadata = sa.MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        }
    )


def new_id(prefix: str) -> str:
    """A fresh opaque id such as `dr_3f9c...` (80 random bits)."""
    return f"{prefix}_{secrets.token_hex(10)}"


class Owned:
    """A thing that belongs to one tenant: a session that acts for a tenant sees nothing of the others
    (`app.db.session`)."""

    tenant_id: Mapped[str] = mapped_column(sa.ForeignKey("tenants.id"))
