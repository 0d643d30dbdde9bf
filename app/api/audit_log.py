"""Endpoints of the audit log: its entries, its signed checkpoints, and verifying both."""

import datetime

from fastapi import APIRouter
from joserfc.jwk import KeySet

from app.access import service as access
from app.api.calls import Call, number_in
from app.api.gateway import serves
from app.audit import repository
from app.audit.checkpoints import AUDIT
from app.db.tables import AuditEntry
from app.errors import AuditCorrupt
from lethe.contract import audit_log as contract
from lethe.contract.fields import PageOut, Paging

router = APIRouter()


@serves(router, contract.LIST)
def list_audit_entries(call: Call, query: contract.AuditEntriesQuery) -> contract.AuditPageOut:
    with call.reading() as session:
        entries = repository.entries(
            session,
            tenant_id=call.caller.tenant_id,
            before=number_in(query.cursor),
            limit=query.limit + 1,
            object_id=query.object_id,
            actor=query.actor,
            action=query.action,
        )
        ids = {id_ for entry in entries for id_ in (entry.actor, entry.object_id)}
        names = access.names_of(session, ids)
    items = [_to_response(entry) for entry in entries[: query.limit]]
    next_cursor = str(items[-1].sequence) if len(entries) > query.limit else None
    return contract.AuditPageOut(items=items, next_cursor=next_cursor, names=names)


@serves(router, contract.CHECKPOINTS)
def list_audit_checkpoints(call: Call, query: Paging) -> PageOut[contract.AuditCheckpointOut]:
    with call.reading() as session:
        checkpoints = repository.checkpoints(
            session, AUDIT, tenant_id=call.caller.tenant_id, before=number_in(query.cursor), limit=query.limit + 1
        )
    items = [contract.AuditCheckpointOut.of(row) for row in checkpoints[: query.limit]]
    return PageOut(items=items, next_cursor=str(items[-1].sequence) if len(checkpoints) > query.limit else None)


@serves(router, contract.VERIFY)
def verify_audit_log(call: Call) -> contract.AuditVerdictOut:
    tenant_id = call.caller.tenant_id
    with call.reading() as session:
        entries = repository.all_entries(session, tenant_id=tenant_id)
        signed = repository.all_checkpoints(session, AUDIT, tenant_id=tenant_id)
        try:
            chain = AUDIT.verify(tenant_id, entries, signed, KeySet([call.installation.keys.public_key]))
        except AuditCorrupt as error:
            return contract.AuditVerdictOut(
                valid=False, entries=None, checkpoints=None, signed=None, head=None, fault=error.detail
            )
    return contract.AuditVerdictOut.of(chain, valid=True, fault=None)


def _to_response(entry: AuditEntry) -> contract.AuditEntryOut:
    return contract.AuditEntryOut.of(entry, at=entry.at.astimezone(datetime.UTC).isoformat())
