"""Endpoints for the audit log, for models' ledgers, and for a tenant's ledger."""

import datetime
import json

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from joserfc.jwk import KeySet

from app.access import service as access
from app.accounting import ledger, repository as accounting_repository
from app.api import calls, gateway
from app.audit import repository as chains
from app.audit.checkpoints import AUDIT
from app.catalogue import service as catalogue
from app.db.tables import AuditEntry
from app.errors import AuditCorrupt
from app.features.custody import exports, repository
from lethe.contract import fields, problems
from lethe.features.custody import contract
from lethe.verification import ledgers
from lethe.verification.chains import GENESIS

audit_log, ledger_router = APIRouter(), APIRouter()


@gateway.serves(audit_log, contract.ENTRIES)
def list_audit_entries(call: calls.Call, query: contract.AuditEntriesQuery) -> contract.AuditPageOut:
    with call.reading() as session:
        filters = query.model_dump(exclude={"cursor", "limit"})
        tenant_id, before = call.caller.tenant_id, calls.number_in(query.cursor)
        entries = repository.audit_entries(
            session, tenant_id=tenant_id, before=before, limit=query.limit + 1, **filters
        )
        ids = {id_ for entry in entries for id_ in (entry.actor, entry.object_id)}
        names = access.names_of(session, ids)
    items = [_entry(entry) for entry in entries[: query.limit]]
    next_cursor = str(items[-1].sequence) if len(entries) > query.limit else None
    return contract.AuditPageOut(items=items, next_cursor=next_cursor, names=names)


@gateway.serves(audit_log, contract.CHECKPOINTS)
def list_audit_checkpoints(call: calls.Call, query: fields.Paging) -> fields.PageOut[contract.AuditCheckpointOut]:
    with call.reading() as session:
        checkpoints = chains.checkpoints(
            session, AUDIT, tenant_id=call.caller.tenant_id, before=calls.number_in(query.cursor), limit=query.limit + 1
        )
    items = [contract.AuditCheckpointOut.of(row) for row in checkpoints[: query.limit]]
    return fields.PageOut(items=items, next_cursor=str(items[-1].sequence) if len(checkpoints) > query.limit else None)


@gateway.serves(audit_log, contract.AUDIT_VERDICT)
def verify_audit_log(call: calls.Call) -> contract.AuditVerdictOut:
    tenant_id = call.caller.tenant_id
    with call.reading() as session:
        entries = chains.all_entries(session, tenant_id=tenant_id)
        signed = chains.all_checkpoints(session, AUDIT, tenant_id=tenant_id)
        try:
            chain = AUDIT.verify(tenant_id, entries, signed, _keys(call))
        except AuditCorrupt as error:
            return contract.AuditVerdictOut(
                valid=False, entries=None, checkpoints=None, signed=None, head=None, fault=error.detail
            )
    return contract.AuditVerdictOut.of(chain, valid=True, fault=None)


def _entry(entry: AuditEntry) -> contract.AuditEntryOut:
    return contract.AuditEntryOut.of(entry, at=entry.at.astimezone(datetime.UTC).isoformat())


@gateway.serves(ledger_router, contract.LEDGER)
def get_ledger(call: calls.Call, model_id: str, query: fields.Paging) -> contract.LedgerOut:
    after = calls.number_in(query.cursor) or 0
    with call.reading() as session:
        catalogue.get_model(session, model_id)
        entries = accounting_repository.entries(session, model_id=model_id, after=after, limit=query.limit + 1)
    items = [contract.LedgerEntryOut.of(entry, body=json.loads(entry.body)) for entry in entries[: query.limit]]
    return contract.LedgerOut(items=items, next_cursor=str(items[-1].sequence) if len(entries) > query.limit else None)


@gateway.serves(ledger_router, contract.VERDICT)
def verify_ledger(call: calls.Call, model_id: str) -> contract.LedgerVerdictOut:
    with call.reading() as session:
        catalogue.get_model(session, model_id)
        entries = accounting_repository.all_entries(session, model_id=model_id)
        try:
            report = ledgers.verify(entries, repository.versions(session, model_id=model_id))
        except problems.LedgerCorrupt as error:
            return contract.LedgerVerdictOut(
                model_id=model_id, valid=False, fault=error.detail, entries=None, head=None
            )
    return contract.LedgerVerdictOut.of(
        report, model_id=model_id, valid=True, fault=None, head=report.heads.get(model_id)
    )


@gateway.serves(ledger_router, contract.HEAD)
def get_ledger_head(call: calls.Call) -> contract.LedgerHeadOut:
    tenant_id = call.caller.tenant_id
    with call.reading() as session:
        head = exports.head(session, _keys(call), tenant_id=tenant_id)
    if head is None:
        return contract.LedgerHeadOut(tenant_id=tenant_id, sequence=0, hash=GENESIS, jws=None, signed_at=None)
    return contract.LedgerHeadOut.of(head)


@gateway.serves(ledger_router, contract.EXPORT)
def export_ledger(call: calls.Call) -> StreamingResponse:
    lines = exports.written(call.reading, _keys(call), tenant_id=call.caller.tenant_id)
    headers = {"Content-Disposition": 'attachment; filename="ledger.jsonl"'}
    return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)


@gateway.serves(ledger_router, contract.LEDGER_VERDICT)
def verify_whole_ledger(call: calls.Call) -> contract.TenantLedgerVerdictOut:
    tenant_id = call.caller.tenant_id
    nothing = dict.fromkeys(("models", "entries", "certificates", "links", "signed", "head"))
    with call.reading() as session:
        try:
            verified = ledger.verify_tenant(session, _keys(call), tenant_id=tenant_id)
        except problems.LedgerCorrupt as error:
            return contract.TenantLedgerVerdictOut.model_validate(
                {"tenant_id": tenant_id, "valid": False, "fault": error.detail} | nothing
            )
    report = verified.report
    return contract.TenantLedgerVerdictOut.of(
        verified, tenant_id=tenant_id, valid=True, fault=None, models=report.models, entries=report.entries
    )


def _keys(call: calls.Call) -> KeySet:
    return KeySet([call.installation.keys.public_key])


MOUNTS = (gateway.Mount(router=audit_log), gateway.Mount(router=ledger_router, by_accounting=True))
