"""Everything that can go wrong with a call: one class per condition, each with a stable code and an HTTP status.

The gateway raises these and answers with them (RFC 9457); the SDK raises the same classes for the answers it reads. The
families say what to do: `Refused` will be refused again, `Unavailable` may be tried later. A detail says what to do
next. Nothing here quotes what was sent, or anything from a person's record.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from lethe.contract.sets import DamageKind


@dataclass(frozen=True, slots=True)
class FieldError:
    """The place where a malformed input is wrong: a dotted path (or `line 12, column age`) and what was expected
    there."""

    path: str
    message: str


class Problem(Exception):
    """A named condition. `code` is stable and public; `detail` is for people. `status`: of the HTTP answer, None where
    there was none; `retry_after`: seconds after which the gateway would like to be asked again."""

    code: str = "internal_error"
    title: str = "Something went wrong"
    status: int | None = 500

    def __init__(self, detail: str, errors: Sequence[FieldError] = (), *, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = tuple(errors)
        self.retry_after = retry_after

    @property
    def line(self) -> str:
        """Everything there is to say, in one line: the code, the detail, and the places at fault."""
        return f"{self.code}: " + "; ".join([self.detail, *(f"{fault.path}: {fault.message}" for fault in self.errors)])


class Unavailable(Problem):
    """The gateway could not do it now: later it may."""

    code = "unavailable"
    title = "Not available now"
    status = 503


class Refused(Problem):
    """The gateway will not do it: the same call will be refused again."""

    code = "refused"
    title = "The call is refused"
    status = 400


class NotAllowed(Refused):
    """The API key is not valid, or may not do this."""

    code = "not_allowed"
    title = "The caller may not do this"
    status = 403


class NotFound(Refused):
    """There is no such thing."""

    code = "not_found"
    title = "There is no such thing"
    status = 404


class Conflict(Refused):
    """Not in the present state."""

    code = "conflict"
    title = "This cannot be done in the present state"
    status = 409


class Gone(Refused):
    """It was destroyed."""

    code = "gone"
    title = "It was destroyed"
    status = 410


class Malformed(Refused):
    """The call takes something else than was sent; `errors` says where."""

    code = "malformed"
    title = "The call is malformed"
    status = 422


# --- malformed input -------------------------------------------------------------------------------------------------


class InputInvalid(Malformed):
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


class NetworkInvalid(InputInvalid):
    code = "network_invalid"
    title = "The file is no network that is taken"


class NetworkFailed(InputInvalid):
    code = "network_failed"
    title = "A network took more memory or time than it may"


class MessageEarly(InputInvalid):
    code = "message_early"
    title = "The signed message is not valid yet"


class MessageExpired(InputInvalid):
    code = "message_expired"
    title = "The signed message is not valid any more"


class DatasetUnusable(InputInvalid):
    code = "dataset_unusable"
    title = "No model can be learned from these rows"


class UploadTooLarge(Malformed):
    code = "upload_too_large"
    title = "The upload is larger than this server accepts"
    status = 413


class HeadersTooLarge(Malformed):
    code = "headers_too_large"
    title = "The head of the request is larger than this server accepts"
    status = 431


class RequestTimedOut(Refused):
    code = "request_timed_out"
    title = "The request did not come in time"
    status = 408


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


class Unauthenticated(NotAllowed):
    code = "unauthenticated"
    title = "A valid API key is needed"
    status = 401


class ScopeMissing(NotAllowed):
    code = "scope_missing"
    title = "The API key lacks a scope"


class RateLimited(Unavailable):
    """`retry_after`: seconds until the next call is heard, a minute at most."""

    code = "rate_limited"
    title = "Too many calls in this minute"
    status = 429

    def __init__(self, detail: str, errors: Sequence[FieldError] = (), *, retry_after: float | None = 60) -> None:
        super().__init__(detail, errors, retry_after=retry_after)


class FormRefused(NotAllowed):
    code = "form_refused"
    title = "The form did not come from a page of this session"


class MessageRefused(NotAllowed):
    code = "message_refused"
    title = "The signed message is not one of this agent to this business"


class IdentityStatementInvalid(NotAllowed):
    code = "identity_statement_invalid"
    title = "The identity statement does not hold"


# --- what is asked for -----------------------------------------------------------------------------------------------


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


class TangentServedElsewhere(Conflict):
    code = "tangent_served_elsewhere"
    title = "The gateway does not run the network of this model"


class NetworkUnknown(NotFound):
    code = "network_unknown"
    title = "There is no such network"


class IssuerUnknown(NotFound):
    code = "issuer_unknown"
    title = "There is no such issuer"


class RunUnknown(NotFound):
    code = "run_unknown"
    title = "There is no such run"


class CertificateUnknown(NotFound):
    code = "certificate_unknown"
    title = "There is no such certificate"


class WeightsDestroyed(Gone):
    code = "weights_destroyed"
    title = "The weights of this version were destroyed"


# --- what cannot be done now -----------------------------------------------------------------------------------------


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


class NetworkExists(Conflict):
    code = "network_exists"
    title = "This network is there"


class NetworkInUse(Conflict):
    code = "network_in_use"
    title = "A dataset or a model stands on this network"


class IssuerExists(Conflict):
    code = "issuer_exists"
    title = "This issuer is registered"


class ModelNotLive(Conflict):
    code = "model_not_live"
    title = "The model has no live version yet"


class ModelHeld(Conflict):
    code = "model_held"
    title = "The live version is held back from serving"


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


class LedgerCorrupt(Problem):
    code = "ledger_corrupt"
    title = "The ledger does not verify"


class LedgerRestored(LedgerCorrupt):
    code = "ledger_restored"
    title = "The ledger was restored to before the head that was kept"


class CertificateInvalid(Malformed):
    code = "certificate_invalid"
    title = "The certificate does not verify"


class CertificateBeyondLimits(CertificateInvalid):
    code = "certificate_beyond_limits"
    title = "The certificate verifies, and guarantees less than was asked for"


# --- not here, not now -----------------------------------------------------------------------------------------------


class MethodNotAllowed(Refused):
    code = "method_not_allowed"
    title = "The path knows other methods"
    status = 405


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


def of_answer(
    status: int, code: str, title: str, detail: str, errors: Sequence[FieldError], *, retry_after: float | None
) -> Problem:
    """The condition that an answer names; a code that is not known here is of the family of its status."""
    family: type[Problem] = next(
        (one for one in (NotAllowed, NotFound, Conflict, Gone, Malformed) if one.status == status), Refused
    )
    if status == 429 or status >= 500:
        family = Unavailable
    elif status in (400, 413):
        family = Malformed
    elif status == 401:
        family = NotAllowed
    found = _OF_CODE.get(code, family)(detail, errors, retry_after=retry_after)
    found.code, found.title, found.status = code, title, status
    return found


def _below(family: type[Problem]) -> Iterator[type[Problem]]:
    for one in family.__subclasses__():
        yield one
        yield from _below(one)


_OF_CODE = {one.code: one for one in _below(Problem) if "code" in vars(one)}
