"""Error conditions of calls: one class per condition, each with a stable code and an HTTP status.

The gateway raises these classes and answers with them (RFC 9457); the SDK raises the same classes for the answers it
reads. The families say what to do: a `Refused` call will be refused again, an `Unavailable` one may be retried later. A
detail names the next step. No text quotes the input of a caller or a person's record.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from lethe.contract.sets import DamageKind

_CAPITAL = re.compile("(?<!^)(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class FieldError:
    """Fault of a malformed input: its dotted path (or `line 12, column age`) and what was expected there."""

    path: str
    message: str


class Problem(Exception):
    """Named condition. `code` is stable and public: the name of the class in snake case. `detail` is for people.
    `status` is that of the HTTP answer, None without an answer; `retry_after` is the number of seconds after which to
    repeat the call, None if not known."""

    code: str = "internal_error"
    title: str = "Something went wrong"
    status: int | None = 500

    def __init_subclass__(cls, *, title: str | None = None, status: int | None = None) -> None:
        super().__init_subclass__()
        cls.code = _CAPITAL.sub("_", cls.__name__).lower()
        cls.title = title or cls.title
        cls.status = status or cls.status

    def __init__(self, detail: str, errors: Sequence[FieldError] = (), *, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = tuple(errors)
        self.retry_after = retry_after

    @property
    def line(self) -> str:
        """Code, detail and faults in one line."""
        return f"{self.code}: " + "; ".join([self.detail, *(f"{fault.path}: {fault.message}" for fault in self.errors)])


class Unavailable(Problem, title="Not available now", status=503):
    """The gateway could not serve the call now; it may succeed later."""


class Refused(Problem, title="The call is refused", status=400):
    """The gateway refuses the call, and would refuse it again."""


class NotAllowed(Refused, title="The caller may not do this", status=403):
    """The API key is not valid, or lacks the permission."""


class NotFound(Refused, title="Not found", status=404):
    """The object does not exist."""


class Conflict(Refused, title="The current state does not allow this", status=409):
    """The present state does not allow the call."""


class Gone(Refused, title="It was destroyed", status=410):
    """The object was destroyed."""


class Malformed(Refused, title="The call is malformed", status=422):
    """The input is not what the call takes; `errors` names the faults."""


class Unauthenticated(NotAllowed, title="A valid API key is needed", status=401): ...


class ScopeMissing(NotAllowed, title="The API key lacks a scope"): ...


class RateLimited(Unavailable, title="Too many calls this minute", status=429):
    """Too many calls. `retry_after` is the number of seconds until the next call is accepted, at most 60."""

    def __init__(self, detail: str, errors: Sequence[FieldError] = (), *, retry_after: float | None = 60) -> None:
        super().__init__(detail, errors, retry_after=retry_after)


class FormRefused(NotAllowed, title="The form did not come from a page of this session"): ...


class MessageRefused(NotAllowed, title="The signed message is not from this agent to this business"): ...


class IdentityStatementInvalid(NotAllowed, title="The identity statement is not valid"): ...


class LoginRefused(NotAllowed, title="This login is refused", status=401): ...


class IdentityRefused(NotAllowed, title="The identity provider's response does not grant access"): ...


class KeyUnknown(NotFound, title="There is no such API key"): ...


class AgentUnknown(NotFound, title="There is no such agent"): ...


class TenantUnknown(NotFound, title="There is no such tenant"): ...


class BoundUnknown(NotFound, title="There is no such bound in the calculator"): ...


class DatasetUnknown(NotFound, title="There is no such dataset"): ...


class AdditionUnknown(NotFound, title="There is no such addition"): ...


class AttachmentUnknown(NotFound, title="The request has no such attachment"): ...


class SubjectUnknown(NotFound, title="Nothing is held about this subject"): ...


class ModelUnknown(NotFound, title="There is no such model"): ...


class VersionUnknown(NotFound, title="There is no such model version"): ...


class RequestUnknown(NotFound, title="There is no such deletion request"): ...


class DeliveryUnknown(NotFound, title="There is no such delivery"): ...


class NetworkUnknown(NotFound, title="There is no such network"): ...


class IssuerUnknown(NotFound, title="There is no such issuer"): ...


class RunUnknown(NotFound, title="There is no such run"): ...


class CertificateUnknown(NotFound, title="There is no such certificate"): ...


class WeightsDestroyed(Gone, title="The weights of this version were destroyed"): ...


class RehearsalUnknown(NotFound, title="There is no such rehearsal"): ...


class UserUnknown(NotFound, title="There is no such person"): ...


class InvitationOver(Gone, title="The invitation has been used, or has expired"): ...


class InputInvalid(Malformed, title="The input is malformed"): ...


class BatchRefused(InputInvalid, title="None of the requests was accepted"): ...


class SchemaInvalid(InputInvalid, title="The dataset schema is malformed"): ...


class RowInvalid(InputInvalid, title="A row of the upload cannot be encoded"): ...


class NetworkInvalid(InputInvalid, title="The file is not a supported network"): ...


class NetworkFailed(InputInvalid, title="The network could not be run"): ...


class MessageEarly(InputInvalid, title="The signed message is not valid yet"): ...


class MessageExpired(InputInvalid, title="The signed message has expired or is valid for too long"): ...


class DatasetUnusable(InputInvalid, title="No model can be learned from these rows"): ...


class UploadTooLarge(Malformed, title="The upload is larger than this server accepts", status=413): ...


class ContentEncodingUnsupported(Malformed, title="The body is compressed or otherwise encoded", status=415): ...


class AttachmentInvalid(Malformed, title="The file cannot be attached"): ...


class RequestTimedOut(Refused, title="The request took too long to arrive", status=408): ...


class PreconditionFailed(InputInvalid, title="A precondition of the guarantee does not hold"): ...


class WorkExceeded(InputInvalid, title="The evaluation exceeds this service's work limit"): ...


class IdentityStatementRequired(InputInvalid, title="A signed statement of the subject's identity is required"): ...


class TargetUnreachable(InputInvalid, title="The target cannot be reached with these settings"): ...


class TargetTooWeak(InputInvalid, title="The target is weaker than the tenant's policy allows"): ...


class TangentServedElsewhere(Conflict, title="The gateway does not run the network of this model"): ...


class IdempotencyConflict(Conflict, title="The idempotency key was used with another body"): ...


class TenantExists(Conflict, title="A tenant with this name exists"): ...


class SubjectRuleFixed(Conflict, title="The rule for subject ids can no longer be changed"): ...


class LastAdminKey(Conflict, title="Without this key nobody would be left to administer the tenant"): ...


class TransitionForbidden(Conflict, title="The request can no longer change that way"): ...


class RequestOpen(Conflict, title="The referenced request has not ended"): ...


class AlreadyExtended(Conflict, title="The deadline has been extended before"): ...


class ExtensionTooLate(Conflict, title="The deadline has passed"): ...


class ExtensionNotProvided(Conflict, title="The regulation does not provide for an extension"): ...


class ClockRunsOn(Conflict, title="The clock cannot be paused under this regulation"): ...


class DetailsErased(Conflict, title="Details of the request are no longer kept"): ...


class SealedTextDamaged(Conflict, title="A stored text, or its key, is damaged"): ...


class NotesFull(Conflict, title="The request has reached its limit of notes"): ...


class AttachmentsFull(Conflict, title="The request has reached its limit of attachments"): ...


class ReplyUnprintable(Conflict, title="The PDF of the reply would lack characters"): ...


class NotAssignable(Conflict, title="Requests cannot be assigned to this person"): ...


class SubjectSuppressed(Conflict, title="Somebody in the upload asked to be forgotten"): ...


class DatasetBusy(Conflict, title="A run is using the dataset"): ...


class EvaluationOverlaps(Conflict, title="A person is in both the training and the evaluation rows"): ...


class DatasetFull(Conflict, title="The dataset has too few free slots"): ...


class SecretNotPresent(Conflict, title="The named webhook secret is not the current one"): ...


class NetworkExists(Conflict, title="This network exists already"): ...


class NetworkInUse(Conflict, title="A dataset or a model uses this network"): ...


class IssuerExists(Conflict, title="This issuer is registered already"): ...


class ModelNotLive(Conflict, title="The model has no live version yet"): ...


class ModelHeld(Conflict, title="The live version is held back from serving"): ...


class ModelInUse(Conflict, title="The model is still needed"): ...


class DatasetInUse(Conflict, title="The dataset is still needed"): ...


class ModelRetired(Conflict, title="The model was retired"): ...


class AdaptiveBudgetSpent(Conflict, title="The dataset's budget has no room for another version"): ...


class DatasetRetired(Conflict, title="The dataset was retired"): ...


class RunNotCancellable(Conflict, title="The run cannot be cancelled"): ...


class AgentExists(Conflict, title="An agent with this id exists"): ...


class RehearsalPending(Conflict, title="A rehearsal of the model has not ended yet"): ...


class RehearsalDone(Conflict, title="The live version has been rehearsed"): ...


class RehearsalTooLarge(Conflict, title="The rehearsal would forget more people than the dataset can spare"): ...


class UserExists(Conflict, title="A person with this e-mail address exists"): ...


class LastAdministrator(Conflict, title="Without this person nobody would be left to administer the tenant"): ...


class DatasetDamaged(Conflict, title="The rows of a dataset are not those on record"):
    """Damaged rows. `rows_id` is the ID of the dataset or addition; `block` is the index of a block of 4,096 rows."""

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


class LedgerCorrupt(Problem, title="The ledger does not verify"): ...


class LedgerRestored(LedgerCorrupt, title="The ledger is older than the head that was kept"): ...


class CertificateDamaged(Conflict, title="The stored certificate is not what was signed"): ...


class CertificateInvalid(Malformed, title="The certificate does not verify"): ...


class CertificateBeyondLimits(
    CertificateInvalid, title="The certificate verifies, and guarantees less than was asked for"
): ...


class MethodNotAllowed(Refused, title="The path does not support this method", status=405): ...


class InstallationMismatch(Unavailable, title="Keys, stores and database do not belong to one installation"): ...


class StorageFull(Unavailable, title="The disk is full"): ...


class DatabaseDamaged(Unavailable, title="The database is damaged"): ...


class DatabasePutBack(Unavailable, title="The database is older than the tombstones"): ...


class Busy(Unavailable, title="Too many calls at once"): ...


class IdentityProviderUnavailable(Unavailable, title="The identity provider does not answer"): ...


def of_answer(
    status: int, code: str, title: str, detail: str, errors: Sequence[FieldError], *, retry_after: float | None
) -> Problem:
    """Return the condition that an answer names; an unknown code falls into the family of its status."""
    family: type[Problem] = next(
        (kind for kind in (NotAllowed, NotFound, Conflict, Gone, Malformed) if kind.status == status), Refused
    )
    if status == 429 or status >= 500:
        family = Unavailable
    elif status in (400, 413):
        family = Malformed
    elif status == 401:
        family = NotAllowed
    problem = _OF_CODE.get(code, family)(detail, errors, retry_after=retry_after)
    problem.code, problem.title, problem.status = code, title, status
    return problem


def _below(family: type[Problem]) -> Iterator[type[Problem]]:
    for child in family.__subclasses__():
        yield child
        yield from _below(child)


_OF_CODE = {kind.code: kind for kind in _below(Problem)}
