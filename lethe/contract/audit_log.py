"""Audit log of a tenant, with everything needed to recompute its hashes."""

import datetime
from typing import Annotated, Any

from pydantic import Field

from lethe.contract.fields import Answer, PageOut, Paging, Text
from lethe.contract.operation import ResourceOperations
from lethe.contract.sets import Scope


class AuditEntryOut(Answer):
    tenant_id: str = Field(description="ID of the tenant.")
    sequence: int = Field(description="Position of the entry in the tenant's log, from 1 without gaps.")
    at: str = Field(description="Time of the action: RFC 3339, UTC, spelled as it was hashed.")
    actor: str = Field(description="ID of the person or API key; `operator`, or `lethe` for the service itself.")
    action: str = Field(description="Action as `thing.verb`, such as api_key.created.")
    object_id: str = Field(description="ID of the object that was acted on.")
    detail: dict[str, Any] = Field(description="Further facts: IDs, numbers and fixed words, never personal data.")
    previous_hash: str = Field(description="Hash of the preceding entry (hex); 64 zeros for the first entry.")
    hash: str = Field(
        description="SHA-256 (hex) of previous_hash, a line feed, and the other fields as JSON with sorted keys, "
        "without spaces, in ASCII."
    )


class AuditPageOut(PageOut[AuditEntryOut]):
    names: dict[str, str] = Field(
        default_factory=dict,
        description="Present names of the page's actors and objects, by ID; not hashed.",
    )


class AuditCheckpointOut(Answer):
    sequence: int = Field(description="Number of the last entry that the checkpoint covers.")
    hash: str = Field(description="Hash of that entry (hex).")
    jws: str = Field(description="Signed checkpoint: compact JWS, Ed25519, key in /.well-known/jwks.json.")
    signed_at: datetime.datetime = Field(description="Time of the signature.")


class AuditVerdictOut(Answer):
    valid: bool = Field(description="True if every hash recomputes and agrees with every checkpoint.")
    entries: int | None = Field(description="Number of recomputed entries; null if the log is not valid.")
    checkpoints: int | None = Field(description="Number of checkpoints that agree; null if the log is not valid.")
    signed: int | None = Field(description="Number of the last entry under a checkpoint, or 0; null if not valid.")
    head: str | None = Field(description="Hash of the last entry (hex); null if the log is not valid.")
    fault: str | None = Field(description="First entry or checkpoint at fault, and why; null if the log is valid.")


class AuditEntriesQuery(Paging):
    object_id: Annotated[Text | None, Field(max_length=200, description="Only entries about this object.")] = None
    actor: Annotated[Text | None, Field(max_length=200, description="Only entries of this person or API key.")] = None
    action: Annotated[Text | None, Field(max_length=200, description="Only this action, e.g. api_key.created.")] = None


_AUDIT_LOG = ResourceOperations("Audit log", "/v1/audit-log")

LIST = _AUDIT_LOG.operation(
    "list_audit_entries",
    "GET",
    scope=Scope.REQUESTS_REVIEW,
    query=AuditEntriesQuery,
    gives=AuditPageOut,
    does="List the audit log, newest first. All entries together suffice to recompute every hash.",
)
CHECKPOINTS = _AUDIT_LOG.operation(
    "list_audit_checkpoints",
    "GET",
    "/checkpoints",
    scope=Scope.REQUESTS_REVIEW,
    query=Paging,
    gives=PageOut[AuditCheckpointOut],
    does="List the signed checkpoints of this log, newest first. A checkpoint kept elsewhere reveals a forged log.",
)
VERIFY = _AUDIT_LOG.operation(
    "verify_audit_log",
    "POST",
    ":verify",
    scope=Scope.REQUESTS_REVIEW,
    gives=AuditVerdictOut,
    does="Recompute every hash of this log from its entries alone and compare them with the signed checkpoints.\n\nAn "
    "installation cannot prove more about itself: keep checkpoints elsewhere, and see `lethe audit verify`.",
)
