"""The audit log: who did what in a tenant, with all that it takes to recompute it."""

import datetime
from typing import Annotated, Any

from pydantic import Field

from lethe.contract.fields import Answer, PageOut, Paging, Text
from lethe.contract.operation import Resource
from lethe.contract.sets import Scope


class AuditEntryOut(Answer):
    tenant_id: str
    sequence: int = Field(description="From 1, without gaps.")
    at: str = Field(description="RFC 3339, UTC, to the letter as it was hashed.")
    actor: str = Field(
        description="The person who was logged in, or the key that was called with; operator, or lethe for what the "
        "service does itself."
    )
    action: str
    object_id: str
    detail: dict[str, Any]
    previous_hash: str
    hash: str = Field(
        description="SHA-256 (hex) of previous_hash, a line feed, and the other fields as JSON with sorted keys, "
        "without spaces, in ASCII."
    )


class AuditPageOut(PageOut[AuditEntryOut]):
    names: dict[str, str] = Field(
        default_factory=dict,
        description="The names, today, of the people and keys that are actors or objects here, by id: beside the "
        "entries, which stay as they were hashed.",
    )


class AuditCheckpointOut(Answer):
    sequence: int
    hash: str = Field(description="Of the entry of this sequence.")
    jws: str = Field(description="The same, signed: a compact JWS, Ed25519, with a key of /.well-known/jwks.json.")
    signed_at: datetime.datetime


class AuditVerdictOut(Answer):
    valid: bool
    entries: int | None = Field(description="How many were recomputed; null where the log does not hold.")
    checkpoints: int | None = Field(description="How many signatures agree with them.")
    signed: int | None = Field(description="The last entry that a checkpoint vouches for; 0: none.")
    head: str | None = Field(description="The hash of the last entry.")
    fault: str | None = Field(description="The first entry or checkpoint at fault, and what is wrong with it.")


class AuditEntriesQuery(Paging):
    object_id: Annotated[Text | None, Field(max_length=200)] = None
    actor: Annotated[Text | None, Field(max_length=200)] = None
    action: Annotated[Text | None, Field(max_length=200)] = None


_AUDIT_LOG = Resource("Audit log", "/v1/audit-log")

LIST = _AUDIT_LOG.operation(
    "list_audit_entries",
    "GET",
    scope=Scope.ADMIN,
    query=AuditEntriesQuery,
    gives=AuditPageOut,
    does="Newest first. Whoever has all of it can recompute every hash.",
)
CHECKPOINTS = _AUDIT_LOG.operation(
    "list_audit_checkpoints",
    "GET",
    "/checkpoints",
    scope=Scope.ADMIN,
    query=Paging,
    gives=PageOut[AuditCheckpointOut],
    does="What the installation signed about this log. Whoever keeps the last one elsewhere can tell a forged log.",
)
VERIFY = _AUDIT_LOG.operation(
    "verify_audit_log",
    "POST",
    ":verify",
    scope=Scope.ADMIN,
    gives=AuditVerdictOut,
    does="Recompute every hash of this log from its entries alone, and hold them against what was signed about"
    " it.\n\nThat is all that an installation can say about itself: keep checkpoints elsewhere, and see "
    "`lethe audit verify`.",
)
