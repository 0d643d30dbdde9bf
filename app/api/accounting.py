"""Endpoints of certificates, and of the ledgers of models and tenants."""

import json
from typing import Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from joserfc.jwk import KeySet

from app.accounting import certificates, ledger, repository
from app.api.calls import Call, number_in
from app.api.gateway import serves
from app.catalogue import service as catalogue
from app.db.tables import Certificate
from lethe import verification
from lethe.contract import accounting as contract
from lethe.contract import certificates as certificate_operations
from lethe.contract.certificates import CertificateIn, CertificateOut, CertificateVerdictOut, GuaranteeOut, JointOut
from lethe.contract.fields import Paging
from lethe.contract.problems import LedgerCorrupt
from lethe.proof import conversion
from lethe.proof.guarantees import Guarantee
from lethe.proof.joint import Joint
from lethe.verification import chains, ledgers

router = APIRouter()


@serves(router, certificate_operations.GET)
def get_certificate(call: Call, certificate_id: str) -> CertificateOut:
    with call.reading() as session:
        return certificate_to_response(certificates.get(session, call.installation.keys, certificate_id))


@serves(router, certificate_operations.VERIFY)
def verify_certificate(call: Call, body: CertificateIn) -> CertificateVerdictOut:
    keys = certificates.public_keys(call.installation.keys)
    return verification.verify(body.jws, keys, max_epsilon=body.max_epsilon, max_delta=body.max_delta)


def certificate_to_response(certificate: Certificate) -> CertificateOut:
    return CertificateOut.of(certificate, statement=certificates.statement_in(certificate.jws))


def joint_to_response(joint: Joint | None) -> JointOut | None:
    return JointOut.model_validate(joint.to_json()) if joint else None


def guarantee_of(stated: dict[str, Any]) -> GuaranteeOut:
    """Return the guarantee that a ledger entry or a certificate states, with the accuracy of the best attacker."""
    accuracy = conversion.gdp_balanced_accuracy(mu=stated["mu"])
    return GuaranteeOut(**stated | {"best_attacker_accuracy": accuracy})


@serves(router, contract.LEDGER)
def get_ledger(call: Call, model_id: str, query: Paging) -> contract.LedgerOut:
    after = number_in(query.cursor) or 0
    with call.reading() as session:
        catalogue.get_model(session, model_id)
        entries = repository.entries(session, model_id=model_id, after=after, limit=query.limit + 1)
    items = [contract.LedgerEntryOut.of(entry, body=json.loads(entry.body)) for entry in entries[: query.limit]]
    return contract.LedgerOut(items=items, next_cursor=str(items[-1].sequence) if len(entries) > query.limit else None)


@serves(router, contract.VERDICT)
def verify_ledger(call: Call, model_id: str) -> contract.LedgerVerdictOut:
    with call.reading() as session:
        catalogue.get_model(session, model_id)
        entries = repository.all_entries(session, model_id=model_id)
        try:
            report = ledgers.verify(entries, repository.all_versions(session, model_id=model_id))
        except LedgerCorrupt as error:
            return contract.LedgerVerdictOut(
                model_id=model_id, valid=False, fault=error.detail, entries=None, head=None
            )
    return contract.LedgerVerdictOut.of(
        report, model_id=model_id, valid=True, fault=None, head=report.heads.get(model_id)
    )


def guarantees_to_response(guarantees: list[Guarantee]) -> list[GuaranteeOut]:
    return [GuaranteeOut(**guarantee.stated()) for guarantee in guarantees]


@serves(router, contract.HEAD)
def get_ledger_head(call: Call) -> contract.LedgerHeadOut:
    tenant_id = call.caller.tenant_id
    with call.reading() as session:
        head = ledger.head(session, _keys(call), tenant_id=tenant_id)
    if head is None:
        return contract.LedgerHeadOut(tenant_id=tenant_id, sequence=0, hash=chains.GENESIS, jws=None, signed_at=None)
    return contract.LedgerHeadOut.of(head)


@serves(router, contract.EXPORT)
def export_ledger(call: Call) -> StreamingResponse:
    lines = ledger.written(call.reading, _keys(call), tenant_id=call.caller.tenant_id)
    headers = {"Content-Disposition": 'attachment; filename="ledger.jsonl"'}
    return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)


@serves(router, contract.LEDGER_VERDICT)
def verify_whole_ledger(call: Call) -> contract.TenantLedgerVerdictOut:
    tenant_id = call.caller.tenant_id
    nothing = dict.fromkeys(("models", "entries", "certificates", "links", "signed", "head"))
    with call.reading() as session:
        try:
            verified = ledger.verify_tenant(session, _keys(call), tenant_id=tenant_id)
        except LedgerCorrupt as error:
            return contract.TenantLedgerVerdictOut.model_validate(
                {"tenant_id": tenant_id, "valid": False, "fault": error.detail} | nothing
            )
    report = verified.report
    return contract.TenantLedgerVerdictOut.of(
        verified, tenant_id=tenant_id, valid=True, fault=None, models=report.models, entries=report.entries
    )


def _keys(call: Call) -> KeySet:
    return KeySet([call.installation.keys.public_key])
