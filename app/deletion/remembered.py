"""Copies of requests outside the database: the subject as a keyed hash, the deadlines, and no texts by callers."""

import datetime
from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """Copy of a request as of its last change."""

    id: str
    tenant_id: str
    subject_ref: str
    alias_refs: list[str] | None = None
    dataset_ids: list[str] | None
    regulation: str
    time_zone: str
    ground: str | None
    status: str
    discreet: bool
    rejection_ground: str | None
    submitted_at: datetime.datetime
    created_at: datetime.datetime
    due_at: datetime.datetime
    extended_due_at: datetime.datetime | None
    deadline: datetime.datetime
    paused_at: datetime.datetime | None
    held_until: datetime.datetime | None
    resolution: dict[str, Any] | None = None
    unknown_at: datetime.datetime | None = None

    @property
    def subject_refs(self) -> tuple[str, ...]:
        return (self.subject_ref, *(self.alias_refs or ()), *(self.resolution or {}).get("linked", ()))

    def to_json(self) -> dict[str, Any]:
        values = ((name, getattr(self, name)) for name in REMEMBERED)
        return {name: value.isoformat() if isinstance(value, datetime.datetime) else value for name, value in values}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        values = dict(document)
        for name in _MOMENTS & values.keys():
            values[name] = values[name] and datetime.datetime.fromisoformat(values[name])
        return cls(**values)


REMEMBERED = tuple(column.name for column in fields(Remembered))
"""Columns of `deletion_requests` that a copy contains."""
_MOMENTS = {
    column.name for column in fields(Remembered) if column.type in (datetime.datetime, datetime.datetime | None)
}
