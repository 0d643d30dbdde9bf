"""Named conditions of the domain: one class per condition, each with a stable code.

The HTTP edge maps a class to a status in one table (`app/api/problems.py`); the CLI prints `code: detail` in one line.
A detail says what to do next and never quotes anything from a person's record.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self


@dataclass(frozen=True, slots=True)
class FieldError:
    """Where a malformed input is wrong: a dotted path (or `line 12, column age`) and what was expected there."""

    path: str
    message: str


class LetheError(Exception):
    """A named condition. `code` is stable and public; `detail` is for people."""

    code: ClassVar[str] = "internal_error"
    title: ClassVar[str] = "Something went wrong"

    def __init__(self, detail: str, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = tuple(errors)


# --- malformed input -------------------------------------------------------------------------------------------------


class InputInvalid(LetheError):
    code = "input_invalid"
    title = "The input is malformed"


class BatchRefused(InputInvalid):
    code = "batch_refused"
    title = "None of the requests was accepted"


class SchemaInvalid(InputInvalid):
    code = "schema_invalid"
    title = "The dataset schema is malformed"


class RowInvalid(InputInvalid):
    code = "row_invalid"
    title = "A row of the upload cannot be encoded"


class MessageEarly(InputInvalid):
    code = "message_early"
    title = "The signed message is not valid yet"


class MessageExpired(InputInvalid):
    code = "message_expired"
    title = "The signed message is not valid any more"


class DatasetUnusable(InputInvalid):
    code = "dataset_unusable"
    title = "No model can be learned from these rows"


class UploadTooLarge(LetheError):
    code = "upload_too_large"
    title = "The upload is larger than this server accepts"


class HeadersTooLarge(LetheError):
    code = "headers_too_large"
    title = "The head of the request is larger than this server accepts"


class RequestTimedOut(LetheError):
    code = "request_timed_out"
    title = "The request did not come in time"


class PreconditionFailed(InputInvalid):
    code = "precondition_failed"
    title = "A precondition of the guarantee does not hold"


class WorkExceeded(InputInvalid):
    code = "work_exceeded"
    title = "The evaluation would take more work than this service gives it"


class IdentityStatementRequired(InputInvalid):
    code = "identity_statement_required"
    title = "A signed statement about the subject's identity is needed"


class TargetUnreachable(InputInvalid):
    code = "target_unreachable"
    title = "The target cannot be reached with these settings"


class TargetTooWeak(InputInvalid):
    code = "target_too_weak"
    title = "The target is weaker than the tenant's policy allows"


# --- who is asking ---------------------------------------------------------------------------------------------------


class Unauthenticated(LetheError):
    code = "unauthenticated"
    title = "A valid API key is needed"


class ScopeMissing(LetheError):
    code = "scope_missing"
    title = "The API key lacks a scope"


class RateLimited(LetheError):
    """`retry_after`: seconds until the next call is heard, a minute at most."""

    code = "rate_limited"
    title = "Too many calls in this minute"

    def __init__(self, detail: str, errors: Sequence[FieldError] = (), *, retry_after: int = 60) -> None:
        super().__init__(detail, errors)
        self.retry_after = retry_after


class FormRefused(LetheError):
    code = "form_refused"
    title = "The form did not come from a page of this session"


class MessageRefused(LetheError):
    code = "message_refused"
    title = "The signed message is not one of this agent to this business"


class IdentityStatementInvalid(LetheError):
    code = "identity_statement_invalid"
    title = "The identity statement does not hold"


# --- what is asked for -----------------------------------------------------------------------------------------------


class NotFound(LetheError):
    code = "not_found"
    title = "There is no such thing"


class KeyUnknown(NotFound):
    code = "key_unknown"
    title = "There is no such API key"


class AgentUnknown(NotFound):
    code = "agent_unknown"
    title = "There is no such agent"


class TenantUnknown(NotFound):
    code = "tenant_unknown"
    title = "There is no such tenant"


class BoundUnknown(NotFound):
    code = "bound_unknown"
    title = "There is no such bound in the calculator"


class DatasetUnknown(NotFound):
    code = "dataset_unknown"
    title = "There is no such dataset"


class AdditionUnknown(NotFound):
    code = "addition_unknown"
    title = "There is no such addition"


class SubjectUnknown(NotFound):
    code = "subject_unknown"
    title = "Nothing is held about this subject"


class ModelUnknown(NotFound):
    code = "model_unknown"
    title = "There is no such model"


class VersionUnknown(NotFound):
    code = "version_unknown"
    title = "There is no such model version"


class RequestUnknown(NotFound):
    code = "request_unknown"
    title = "There is no such deletion request"


class DeliveryUnknown(NotFound):
    code = "delivery_unknown"
    title = "There is no such delivery to a receiver"


class IssuerUnknown(NotFound):
    code = "issuer_unknown"
    title = "There is no such issuer"


class RunUnknown(NotFound):
    code = "run_unknown"
    title = "There is no such run"


class CertificateUnknown(NotFound):
    code = "certificate_unknown"
    title = "There is no such certificate"


class WeightsDestroyed(LetheError):
    code = "weights_destroyed"
    title = "The weights of this version were destroyed"


# --- what cannot be done now -----------------------------------------------------------------------------------------


class Conflict(LetheError):
    code = "conflict"
    title = "This cannot be done in the present state"


class IdempotencyConflict(Conflict):
    code = "idempotency_conflict"
    title = "The idempotency key was used with another body"


class TenantExists(Conflict):
    code = "tenant_exists"
    title = "There is a tenant of this name"


class SubjectRuleFixed(Conflict):
    code = "subject_rule_fixed"
    title = "The rule for subject ids cannot be changed any more"


class LastAdminKey(Conflict):
    code = "last_admin_key"
    title = "Without this key nobody would be left to administer the tenant"


class TransitionForbidden(Conflict):
    code = "transition_forbidden"
    title = "The request can no longer change that way"


class RequestOpen(Conflict):
    code = "request_open"
    title = "The request referred to has not ended"


class AlreadyExtended(Conflict):
    code = "already_extended"
    title = "The deadline has been extended before"


class ExtensionTooLate(Conflict):
    code = "extension_too_late"
    title = "The deadline has passed"


class ExtensionNotProvided(Conflict):
    code = "extension_not_provided"
    title = "The regulation provides for no extension"


class ClockRunsOn(Conflict):
    code = "clock_runs_on"
    title = "The clock does not stand still under this regulation"


class SubjectSuppressed(Conflict):
    code = "subject_suppressed"
    title = "Somebody in the upload asked to be forgotten"


class DatasetBusy(Conflict):
    code = "dataset_busy"
    title = "A run is at work on the dataset"


class EvaluationOverlaps(Conflict):
    code = "evaluation_overlaps"
    title = "Somebody is both learned from and measured on"


class DatasetFull(Conflict):
    code = "dataset_full"
    title = "The dataset has too few free slots"


class SecretNotPresent(Conflict):
    code = "secret_not_present"
    title = "The webhook secret named is not the present one"


class IssuerExists(Conflict):
    code = "issuer_exists"
    title = "This issuer is registered"


class ModelNotLive(Conflict):
    code = "model_not_live"
    title = "The model has no live version yet"


class ModelInUse(Conflict):
    code = "model_in_use"
    title = "The model is still needed"


class DatasetInUse(Conflict):
    code = "dataset_in_use"
    title = "The dataset is still needed"


class ModelRetired(Conflict):
    code = "model_retired"
    title = "The model was retired"


class AdaptiveBudgetSpent(Conflict):
    code = "adaptive_budget_spent"
    title = "The dataset's budget has no room for another version"


class DatasetRetired(Conflict):
    code = "dataset_retired"
    title = "The dataset was retired"


class RunNotCancellable(Conflict):
    code = "run_not_cancellable"
    title = "The run cannot be cancelled"


class AgentExists(Conflict):
    code = "agent_exists"
    title = "There is an agent with this id"


# --- refusals of the engine and the accountant -----------------------------------------------------------------------


class LeaseLost(LetheError):
    code = "lease_lost"
    title = "Another worker has taken this run"


class RunDiffersFromPlan(LetheError):
    code = "run_differs_from_plan"
    title = "What ran is not what was planned; nothing is certified"


class AuditFailed(LetheError):
    code = "audit_failed"
    title = "The audit of a run refuted what it was to certify; nothing is published"


class DamageKind(StrEnum):
    """What of the rows does not open, or is not what the database names."""

    MANIFEST = "manifest"
    MANIFEST_MISSING = "manifest_missing"
    BLOCK = "block"
    BLOCK_MISSING = "block_missing"
    KEY = "key"
    KEY_MISSING = "key_missing"
    FIRST_LAYOUT = "first_layout"
    """Rows of a release before, which were not those on record when they were to be sealed."""
    RECORD = "record"
    """Whose row is in which slot: a line of the database does not match its own check value."""


class DatasetDamaged(Conflict):
    """`rows_id`: of the dataset, or of rows that wait to be added to one; `block`: which 4096 of them."""

    code = "dataset_damaged"
    title = "The rows of a dataset are not those on record"

    rows_id: str
    kind: DamageKind
    block: int | None

    @classmethod
    def found(cls, rows_id: str, kind: DamageKind, block: int | None = None) -> Self:
        where = f"{kind} of block {block}" if block is not None else kind
        error = cls(
            f"The rows of {rows_id} are not those on record ({where}): no run touches the dataset until the right file "
            "is back and `lethe dataset recheck` finds nothing, or until `lethe restore`."
        )
        error.rows_id, error.kind, error.block = rows_id, kind, block
        return error


class DatasetTooLarge(LetheError):
    code = "dataset_too_large"
    title = "The rows of a dataset do not fit in the memory that a run may use"


class LedgerCorrupt(LetheError):
    code = "ledger_corrupt"
    title = "The ledger does not verify"


class LedgerRestored(LedgerCorrupt):
    code = "ledger_restored"
    title = "The ledger was restored to before the head that was kept"


class AuditCorrupt(LetheError):
    code = "audit_corrupt"
    title = "The audit log does not verify"


class MechanismUnreadable(LetheError):
    code = "mechanism_unreadable"
    title = "A stored mechanism is not of this release's format"


class WeightsUnreadable(LetheError):
    code = "weights_unreadable"
    title = "The sealed weights cannot be opened"


class SignatureUnverifiable(LetheError):
    code = "signature_unverifiable"
    title = "What was signed does not verify; it is not used"


class CertificateInvalid(LetheError):
    code = "certificate_invalid"
    title = "The certificate does not verify"


class CertificateBeyondLimits(CertificateInvalid):
    code = "certificate_beyond_limits"
    title = "The certificate verifies, and guarantees less than was asked for"


# --- not here, not now -----------------------------------------------------------------------------------------------


class MethodNotAllowed(LetheError):
    code = "method_not_allowed"
    title = "The path knows other methods"


class Unavailable(LetheError):
    code = "unavailable"
    title = "Not available now"


class InstallationMismatch(Unavailable):
    code = "installation_mismatch"
    title = "Keys, stores and database are not of one installation"


class StorageFull(Unavailable):
    code = "storage_full"
    title = "The disk is full"


class DatabaseDamaged(Unavailable):
    code = "database_damaged"
    title = "The database is damaged"


class Busy(Unavailable):
    code = "busy"
    title = "Too many calls at once"


# --- starting the service --------------------------------------------------------------------------------------------


class AlreadyRunning(LetheError):
    code = "already_running"
    title = "The data folder is in use"


class DatabaseUnreadable(LetheError):
    code = "database_unreadable"
    title = "The database cannot be read"


class FolderExposed(LetheError):
    code = "folder_exposed"
    title = "Others can enter a folder of the installation"


class SigningUnusable(LetheError):
    code = "signing_unusable"
    title = "The certificate for signing answers cannot be used"


class AddressInUse(LetheError):
    code = "address_in_use"
    title = "The address cannot be listened on"


# --- backups ---------------------------------------------------------------------------------------------------------


class BackupRefused(LetheError):
    code = "backup_refused"
    title = "The backup cannot be made or restored so"


class BackupDamaged(LetheError):
    code = "backup_damaged"
    title = "The archive is not what was written"


class TombstonesDamaged(LetheError):
    code = "tombstones_damaged"
    title = "The tombstones are not those that were written"


class TombstonesStale(LetheError):
    code = "tombstones_stale"
    title = "The tombstones are older than the backup"


class DatabasePutBack(LetheError):
    code = "database_put_back"
    title = "The database is older than the tombstones"


class RestoreUnfinished(LetheError):
    code = "restore_unfinished"
    title = "A restore was not finished"
