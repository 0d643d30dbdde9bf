"""`/ledger`: the ledger of a whole tenant, to be kept and verified elsewhere: its signed head, and all of it."""

import datetime
from typing import Annotated

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from joserfc.jwk import KeySet
from pydantic import BaseModel, Field

from app.accounting import anchors, exports
from app.api.calls import Call, call_with
from app.api.problems import responses
from app.audit.chains import GENESIS
from app.errors import LedgerCorrupt
from lethe.contract.sets import Scope

router = APIRouter(prefix="/ledger", tags=["Accounting"], dependencies=[call_with(Scope.ACCOUNTING_READ)])


class LedgerHeadOut(BaseModel):
    tenant_id: str
    sequence: int = Field(description="Of the last link of the chain over all models; 0: nothing was published yet.")
    hash: str = Field(description="Of that link.")
    jws: str | None = Field(
        description="The same, signed: a compact JWS, Ed25519, with a key of /.well-known/jwks.json; null with 0."
    )
    signed_at: datetime.datetime | None


class TenantLedgerVerdictOut(BaseModel):
    tenant_id: str
    valid: bool
    fault: str | None = Field(description="What is at fault first; null where all holds.")
    models: int | None = Field(description="With entries; null, as all below, where the ledger does not hold.")
    entries: int | None = Field(description="That were recomputed.")
    not_recomputed: int | None = Field(
        description="Entries of an earlier format, which were there at the upgrade: their hashes hold, their numbers"
        " are not recomputed."
    )
    certificates: int | None = Field(description="That name an entry, each as it is.")
    links: int | None = Field(description="Of the chain over all models.")
    signed: int | None = Field(description="The last link that a signed head vouches for; 0: none.")
    head: str | None = Field(description="The hash of the last link.")


@router.get("/head", responses=responses(LedgerCorrupt))
def get_ledger_head(call: Annotated[Call, call_with(Scope.ACCOUNTING_READ)]) -> LedgerHeadOut:
    """What was signed about the end of the ledger, over all models. Keep it where nobody who runs the service reaches
    it: whatever is removed or rewritten afterwards contradicts it."""
    tenant_id = call.caller.tenant_id
    with call.reading() as session:
        found = anchors.head(session, _keys(call), tenant_id=tenant_id)
    if found is None:
        return LedgerHeadOut(tenant_id=tenant_id, sequence=0, hash=GENESIS, jws=None, signed_at=None)
    return LedgerHeadOut.model_validate(found, from_attributes=True)


@router.get("/export", response_class=StreamingResponse, responses=responses(LedgerCorrupt))
def export_ledger(call: Annotated[Call, call_with(Scope.ACCOUNTING_READ)]) -> StreamingResponse:
    """The whole ledger as lines of JSON, with its signed head at the end: `lethe ledger verify` recomputes it offline,
    and against a head that was kept."""
    lines = exports.written(call.reading, _keys(call), tenant_id=call.caller.tenant_id)
    headers = {"Content-Disposition": 'attachment; filename="ledger.jsonl"'}
    return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)


@router.get("/verdict", responses=responses())
def verify_whole_ledger(call: Annotated[Call, call_with(Scope.ACCOUNTING_READ)]) -> TenantLedgerVerdictOut:
    """Recompute every hash and number of all models, and hold them against versions, certificates and signed heads.

    That is all that an installation can say about itself: keep heads elsewhere, and see `lethe ledger verify`.
    """
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
