"""`/audit-log`: who did what in a tenant, with all that it takes to recompute it."""

import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from joserfc.jwk import KeySet
from pydantic import BaseModel, Field

from app.api.calls import Call, Cursor, Limit, call_with, number_in
from app.api.problems import responses
from app.api.schemas import PageOut, Text
from app.audit import repository, verify
from app.audit.chains import AUDIT
from app.db.tables import AuditEntry
from app.errors import AuditCorrupt
from lethe.contract.sets import Scope

router = APIRouter(prefix="/audit-log", tags=["Audit log"], dependencies=[call_with(Scope.ADMIN)])

Asked = Annotated[Text | None, Query(max_length=200)]


class AuditEntryOut(BaseModel):
    tenant_id: str
    sequence: int = Field(description="From 1, without gaps.")
    at: str = Field(description="RFC 3339, UTC, to the letter as it was hashed.")
    actor: str = Field(description="The key that was called with; operator, or lethe for what the service does itself.")
    action: str
    object_id: str
    detail: dict[str, Any]
    previous_hash: str
    hash: str = Field(
        description="SHA-256 (hex) of previous_hash, a line feed, and the other fields as JSON with sorted keys, "
        "without spaces, in ASCII."
    )


class AuditCheckpointOut(BaseModel):
    sequence: int
    hash: str = Field(description="Of the entry of this sequence.")
    jws: str = Field(description="The same, signed: a compact JWS, Ed25519, with a key of /.well-known/jwks.json.")
    signed_at: datetime.datetime


class AuditVerdictOut(BaseModel):
    valid: bool
    entries: int | None = Field(description="How many were recomputed; null where the log does not hold.")
    checkpoints: int | None = Field(description="How many signatures agree with them.")
    signed: int | None = Field(description="The last entry that a checkpoint vouches for; 0: none.")
    head: str | None = Field(description="The hash of the last entry.")
    fault: str | None = Field(description="The first entry or checkpoint at fault, and what is wrong with it.")


@router.get("", responses=responses())
def list_audit_entries(
    call: Annotated[Call, call_with(Scope.ADMIN)],
    limit: Limit = 50,
    cursor: Cursor = None,
    object_id: Asked = None,
    actor: Asked = None,
    action: Asked = None,
) -> PageOut[AuditEntryOut]:
    """Newest first. Whoever has all of it can recompute every hash."""
    with call.reading() as session:
        found = repository.entries(
            session,
            tenant_id=call.caller.tenant_id,
            before=number_in(cursor),
            limit=limit + 1,
            object_id=object_id,
            actor=actor,
            action=action,
        )
    items = [_shown(entry) for entry in found[:limit]]
    return PageOut(items=items, next_cursor=str(items[-1].sequence) if len(found) > limit else None)


@router.get("/checkpoints", responses=responses())
def list_audit_checkpoints(
    call: Annotated[Call, call_with(Scope.ADMIN)], limit: Limit = 50, cursor: Cursor = None
) -> PageOut[AuditCheckpointOut]:
    """What the installation signed about this log. Whoever keeps the last one elsewhere can tell a forged log."""
    with call.reading() as session:
        found = repository.checkpoints(
            session, AUDIT, tenant_id=call.caller.tenant_id, before=number_in(cursor), limit=limit + 1
        )
    items = [AuditCheckpointOut.model_validate(row, from_attributes=True) for row in found[:limit]]
    return PageOut(items=items, next_cursor=str(items[-1].sequence) if len(found) > limit else None)


@router.post(":verify", responses=responses())
def verify_audit_log(call: Annotated[Call, call_with(Scope.ADMIN)]) -> AuditVerdictOut:
    """Recompute every hash of this log from its entries alone, and hold them against what was signed about it.

    That is all that an installation can say about itself: keep checkpoints elsewhere, and see `lethe audit verify`.
    """
    tenant_id = call.caller.tenant_id
    with call.reading() as session:
        entries = repository.all_entries(session, tenant_id=tenant_id)
        signed = repository.all_checkpoints(session, AUDIT, tenant_id=tenant_id)
        try:
            chain = verify.verify(tenant_id, entries, signed, KeySet([call.installation.keys.signing_key]))
        except AuditCorrupt as error:
            return AuditVerdictOut(
                valid=False, entries=None, checkpoints=None, signed=None, head=None, fault=error.detail
            )
    return AuditVerdictOut(
        valid=True,
        entries=chain.entries,
        checkpoints=chain.checkpoints,
        signed=chain.signed,
        head=chain.head,
        fault=None,
    )


def _shown(entry: AuditEntry) -> AuditEntryOut:
    return AuditEntryOut(
        tenant_id=entry.tenant_id,
        sequence=entry.sequence,
        at=entry.at.astimezone(datetime.UTC).isoformat(),
        actor=entry.actor,
        action=entry.action,
        object_id=entry.object_id,
        detail=entry.detail,
        previous_hash=entry.previous_hash,
        hash=entry.hash,
    )
