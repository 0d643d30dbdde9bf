"""`/ledger`: the ledger of a whole tenant, to be kept and verified elsewhere: its signed head, and all of it."""

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from joserfc.jwk import KeySet

from app.accounting import anchors, exports
from app.api.calls import Call
from app.api.gateway import serves
from lethe.contract import ledger as contract
from lethe.contract.ledger import LedgerHeadOut, TenantLedgerVerdictOut
from lethe.contract.problems import LedgerCorrupt
from lethe.verification.chains import GENESIS

router = APIRouter()


@serves(router, contract.HEAD)
def get_ledger_head(call: Call) -> LedgerHeadOut:
    tenant_id = call.caller.tenant_id
    with call.reading() as session:
        found = anchors.head(session, _keys(call), tenant_id=tenant_id)
    if found is None:
        return LedgerHeadOut(tenant_id=tenant_id, sequence=0, hash=GENESIS, jws=None, signed_at=None)
    return LedgerHeadOut.model_validate(found, from_attributes=True)


@serves(router, contract.EXPORT)
def export_ledger(call: Call) -> StreamingResponse:
    lines = exports.written(call.reading, _keys(call), tenant_id=call.caller.tenant_id)
    headers = {"Content-Disposition": 'attachment; filename="ledger.jsonl"'}
    return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)


@serves(router, contract.VERDICT)
def verify_whole_ledger(call: Call) -> TenantLedgerVerdictOut:
    tenant_id = call.caller.tenant_id
    nothing = dict.fromkeys(("models", "entries", "not_recomputed", "certificates", "links", "signed", "head"))
    with call.reading() as session:
        try:
            found = anchors.verify_tenant(session, _keys(call), tenant_id=tenant_id)
        except LedgerCorrupt as error:
            return TenantLedgerVerdictOut.model_validate(
                {"tenant_id": tenant_id, "valid": False, "fault": error.detail} | nothing
            )
    return TenantLedgerVerdictOut(
        tenant_id=tenant_id,
        valid=True,
        fault=None,
        models=found.report.models,
        entries=found.report.entries,
        not_recomputed=found.report.not_recomputed,
        certificates=found.certificates,
        links=found.links,
        signed=found.signed,
        head=found.head,
    )


def _keys(call: Call) -> KeySet:
    return KeySet([call.installation.keys.signing_key])
