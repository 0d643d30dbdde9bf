"""Operations on a tenant's audit log and ledgers, with everything needed to recompute their hashes."""

import datetime
from typing import Annotated, Any

from pydantic import Field

from lethe.contract import fields, operation, problems, sets


class LedgerEntryOut(fields.Answer):
    sequence: int = Field(description="Position of the entry in the model's ledger, counted from 1 without gaps.")
    body: dict[str, Any] = Field(description="Content of the entry: run, version, mechanism, chain and guarantees.")
    previous_hash: str = Field(description="Hash of the previous entry (hex); 64 zeros in the first entry.")
    hash: str = Field(
        description="SHA-256 (hex) of previous_hash, a line feed, and body as ASCII JSON with sorted keys and no "
        "spaces."
    )


class LedgerOut(fields.PageOut[LedgerEntryOut]):
    pass


class LedgerVerdictOut(fields.Answer):
    model_id: str = Field(description="ID of the model.")
    valid: bool = Field(description="True if all hashes and numbers are correct and the versions match the ledger.")
    fault: str | None = Field(description="First fault detected; null if the ledger is valid.")
    entries: int | None = Field(description="Number of entries verified; null if the ledger is not valid.")
    head: str | None = Field(description="Hash of the last entry (hex); null if the ledger is empty or not valid.")


_ACCOUNTING = operation.ResourceOperations("Accounting", "/v1/accounting", problems.ModelUnknown)

LEDGER = _ACCOUNTING.of_one(
    "get_ledger",
    "GET",
    "/models/{model_id}/ledger",
    scope=sets.Scope.ACCOUNTING_READ,
    query=fields.Paging,
    gives=LedgerOut,
    problems=(problems.InputInvalid,),
    does="List a model's hash-chained ledger entries, oldest first, which is the order for replaying them.",
)
VERDICT = _ACCOUNTING.of_one(
    "verify_ledger",
    "GET",
    "/models/{model_id}/ledger/verdict",
    scope=sets.Scope.ACCOUNTING_READ,
    gives=LedgerVerdictOut,
    does="Recompute every hash and number of a model's ledger from its entries alone, and check that the "
    "published versions are exactly those in the ledger.",
)


class LedgerHeadOut(fields.Answer):
    tenant_id: str = Field(description="ID of the tenant.")
    sequence: int = Field(description="Position of the last link in the tenant's chain; 0 before the first version.")
    hash: str = Field(description="Hash of the last link (hex); 64 zeros before the first version.")
    jws: str | None = Field(
        description="Signed head (compact JWS, Ed25519, key in /.well-known/jwks.json); null before the first version."
    )
    signed_at: datetime.datetime | None = Field(description="Time the head was signed; null before the first version.")


class TenantLedgerVerdictOut(fields.Answer):
    tenant_id: str = Field(description="ID of the tenant.")
    valid: bool = Field(description="True if all hashes, numbers, versions, certificates and heads are consistent.")
    fault: str | None = Field(description="First fault detected; null if the ledger is valid.")
    models: int | None = Field(description="Number of models with entries; null if the ledger is not valid.")
    entries: int | None = Field(description="Number of entries verified; null if the ledger is not valid.")
    certificates: int | None = Field(description="Number of certificates checked against entries; null if not valid.")
    links: int | None = Field(description="Number of links in the chain over all models; null if not valid.")
    signed: int | None = Field(description="Number of the last link covered by a signed head, or 0; null if not valid.")
    head: str | None = Field(description="Hash of the last link (hex); null if the ledger is not valid.")


_LEDGER = operation.ResourceOperations("Accounting", "/v1/ledger")

HEAD = _LEDGER.operation(
    "get_ledger_head",
    "GET",
    "/head",
    scope=sets.Scope.ACCOUNTING_READ,
    gives=LedgerHeadOut,
    problems=(problems.LedgerCorrupt,),
    does="Return the signed head of the ledger over all models. Store it where the service's operators cannot change "
    "it: any later removal or change of an entry contradicts it.",
)
EXPORT = _LEDGER.operation(
    "export_ledger",
    "GET",
    "/export",
    scope=sets.Scope.ACCOUNTING_READ,
    gives=bytes,
    problems=(problems.LedgerCorrupt,),
    does="Export the whole ledger as JSON lines, with the signed head last. `lethe ledger verify` verifies the file "
    "offline and compares it with a head that you stored.",
)
LEDGER_VERDICT = _LEDGER.operation(
    "verify_whole_ledger",
    "GET",
    "/verdict",
    scope=sets.Scope.ACCOUNTING_READ,
    gives=TenantLedgerVerdictOut,
    does="Recompute every hash and number of all models and compare them with versions, certificates and signed "
    "heads.\n\nAn installation cannot prove more about itself: store heads elsewhere and use `lethe ledger verify`.",
)


class AuditEntryOut(fields.Answer):
    tenant_id: str = Field(description="ID of the tenant.")
    sequence: int = Field(description="Position of the entry in the tenant's log, counted from 1 without gaps.")
    at: str = Field(description="Time of the action (RFC 3339, UTC), exactly as it was hashed.")
    actor: str = Field(description="ID of the user or API key that acted; `operator`; or `lethe` for the service.")
    action: str = Field(description="Action as `thing.verb`, such as api_key.created.")
    object_id: str = Field(description="ID of the object acted on.")
    detail: dict[str, Any] = Field(description="Additional facts: IDs, numbers and fixed words, never personal data.")
    previous_hash: str = Field(description="Hash of the previous entry (hex); 64 zeros in the first entry.")
    hash: str = Field(
        description="SHA-256 (hex) of previous_hash, a line feed, and the other fields as ASCII JSON with sorted keys "
        "and no spaces."
    )


class AuditPageOut(fields.PageOut[AuditEntryOut]):
    names: dict[str, str] = Field(
        default_factory=dict,
        description="Current names of the actors and objects on this page, keyed by ID; not covered by the hashes.",
    )


class AuditCheckpointOut(fields.Answer):
    sequence: int = Field(description="Number of the last entry covered by the checkpoint.")
    hash: str = Field(description="Hash of the last entry covered by the checkpoint (hex).")
    jws: str = Field(description="Signed checkpoint (compact JWS, Ed25519, key in /.well-known/jwks.json).")
    signed_at: datetime.datetime = Field(description="Time at which the checkpoint was signed.")


class AuditVerdictOut(fields.Answer):
    valid: bool = Field(description="True if all hashes are correct and consistent with all checkpoints.")
    entries: int | None = Field(description="Number of entries verified; null if the log is not valid.")
    checkpoints: int | None = Field(description="Number of consistent checkpoints; null if the log is not valid.")
    signed: int | None = Field(description="Number of the last entry covered by a checkpoint, or 0; null if not valid.")
    head: str | None = Field(description="Hash of the last entry (hex); null if the log is not valid.")
    fault: str | None = Field(description="First faulty entry or checkpoint and its fault; null if the log is valid.")


class AuditEntriesQuery(fields.Paging):
    object_id: Annotated[fields.Text | None, Field(max_length=200, description="Only entries about this object.")] = (
        None
    )
    actor: Annotated[fields.Text | None, Field(max_length=200, description="Only entries by this user or API key.")] = (
        None
    )
    action: Annotated[
        fields.Text | None, Field(max_length=200, description="Only this action, e.g. api_key.created.")
    ] = None


_AUDIT_LOG = operation.ResourceOperations("Audit log", "/v1/audit-log")

ENTRIES = _AUDIT_LOG.operation(
    "list_audit_entries",
    "GET",
    scope=sets.Scope.REQUESTS_REVIEW,
    query=AuditEntriesQuery,
    gives=AuditPageOut,
    does="List audit log entries, newest first. Together, all entries suffice to recompute every hash.",
)
CHECKPOINTS = _AUDIT_LOG.operation(
    "list_audit_checkpoints",
    "GET",
    "/checkpoints",
    scope=sets.Scope.REQUESTS_REVIEW,
    query=fields.Paging,
    gives=fields.PageOut[AuditCheckpointOut],
    does="List the audit log's signed checkpoints, newest first. A checkpoint stored elsewhere exposes a forged log.",
)
AUDIT_VERDICT = _AUDIT_LOG.operation(
    "verify_audit_log",
    "POST",
    ":verify",
    scope=sets.Scope.REQUESTS_REVIEW,
    gives=AuditVerdictOut,
    does="Recompute all hashes of the log from its entries alone and compare them with the signed checkpoints.\n\nAn "
    "installation cannot prove more about itself: store checkpoints elsewhere and use `lethe audit verify`.",
)
