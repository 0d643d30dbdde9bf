"""Named conditions of the domain: one class per condition, each with a stable code.

The HTTP edge maps a class to a status in one table (`app/api/problems.py`); the CLI prints `code: detail` in one line.
A detail says what to do next and never quotes anything from a person's record.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


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


class SchemaInvalid(InputInvalid):
    code = "schema_invalid"
    title = "The dataset schema is malformed"


class RowInvalid(InputInvalid):
    code = "row_invalid"
    title = "A row of the upload cannot be encoded"


class DatasetUnusable(InputInvalid):
    code = "dataset_unusable"
    title = "No model can be learned from these rows"


class UploadTooLarge(LetheError):
    code = "upload_too_large"
    title = "The upload is larger than this server accepts"


class PreconditionFailed(InputInvalid):
    code = "precondition_failed"
    title = "A precondition of the guarantee does not hold"


class TargetUnreachable(InputInvalid):
    code = "target_unreachable"
    title = "The target cannot be reached with these settings"


# --- who is asking ---------------------------------------------------------------------------------------------------


class Unauthenticated(LetheError):
    code = "unauthenticated"
    title = "A valid API key is needed"


class ScopeMissing(LetheError):
    code = "scope_missing"
    title = "The API key lacks a scope"


# --- what is asked for -----------------------------------------------------------------------------------------------


class NotFound(LetheError):
    code = "not_found"
    title = "There is no such thing"


class KeyUnknown(NotFound):
    code = "key_unknown"
    title = "There is no such API key"


class BoundUnknown(NotFound):
    code = "bound_unknown"
    title = "There is no such bound in the calculator"


class DatasetUnknown(NotFound):
    code = "dataset_unknown"
    title = "There is no such dataset"


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


class TransitionForbidden(Conflict):
    code = "transition_forbidden"
    title = "The request can no longer change that way"


class ModelNotLive(Conflict):
    code = "model_not_live"
    title = "The model has no live version yet"


# --- refusals of the engine and the accountant -----------------------------------------------------------------------


class LeaseLost(LetheError):
    code = "lease_lost"
    title = "Another worker has taken this run"


class RunDiffersFromPlan(LetheError):
    code = "run_differs_from_plan"
    title = "What ran is not what was planned; nothing is certified"


class DatasetDamaged(LetheError):
    code = "dataset_damaged"
    title = "The rows of a dataset are not those on record"


class LedgerCorrupt(LetheError):
    code = "ledger_corrupt"
    title = "The ledger does not verify"


class WeightsUnreadable(LetheError):
    code = "weights_unreadable"
    title = "The sealed weights cannot be opened"


class CertificateInvalid(LetheError):
    code = "certificate_invalid"
    title = "The certificate does not verify"


# --- starting the service --------------------------------------------------------------------------------------------


class AlreadyRunning(LetheError):
    code = "already_running"
    title = "The data folder is in use"


class DatabaseUnreadable(LetheError):
    code = "database_unreadable"
    title = "The database cannot be read"


class AddressInUse(LetheError):
    code = "address_in_use"
    title = "The address cannot be listened on"
