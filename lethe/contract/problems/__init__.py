"""Everything that can go wrong with a call: one class per condition, each with a stable code and an HTTP status.

The gateway raises these and answers with them (RFC 9457); the SDK raises the same classes for the answers it reads. The
families say what to do: `Refused` will be refused again, `Unavailable` may be tried later. A detail says what to do
next. Nothing here quotes what was sent, or anything from a person's record.
"""

from collections.abc import Iterator, Sequence

from lethe.contract.problems.availability import (
    Busy,
    DatabaseDamaged,
    IdentityProviderUnavailable,
    InstallationMismatch,
    MethodNotAllowed,
    StorageFull,
)
from lethe.contract.problems.callers import (
    FormRefused,
    IdentityRefused,
    IdentityStatementInvalid,
    LoginRefused,
    MessageRefused,
    RateLimited,
    ScopeMissing,
    Unauthenticated,
)
from lethe.contract.problems.conflicts import (
    AdaptiveBudgetSpent,
    AgentExists,
    AlreadyExtended,
    AttachmentsFull,
    ClockRunsOn,
    DatasetBusy,
    DatasetFull,
    DatasetInUse,
    DatasetRetired,
    DetailsErased,
    EvaluationOverlaps,
    ExtensionNotProvided,
    ExtensionTooLate,
    IdempotencyConflict,
    IssuerExists,
    LastAdministrator,
    LastAdminKey,
    ModelHeld,
    ModelInUse,
    ModelNotLive,
    ModelRetired,
    NetworkExists,
    NetworkInUse,
    NotAssignable,
    NotesFull,
    RehearsalDone,
    RehearsalPending,
    RehearsalTooLarge,
    ReplyUnprintable,
    RequestOpen,
    RunNotCancellable,
    SavedViewExists,
    SavedViewsFull,
    SecretNotPresent,
    SubjectRuleFixed,
    SubjectSuppressed,
    TangentServedElsewhere,
    TenantExists,
    TransitionForbidden,
    UserExists,
)
from lethe.contract.problems.families import (
    Conflict,
    FieldError,
    Gone,
    Malformed,
    NotAllowed,
    NotFound,
    Problem,
    Refused,
    Unavailable,
)
from lethe.contract.problems.integrity import (
    CertificateBeyondLimits,
    CertificateInvalid,
    DatasetDamaged,
    LedgerCorrupt,
    LedgerRestored,
)
from lethe.contract.problems.malformed import (
    AttachmentInvalid,
    BatchRefused,
    DatasetUnusable,
    HeadersTooLarge,
    IdentityStatementRequired,
    InputInvalid,
    MessageEarly,
    MessageExpired,
    NetworkFailed,
    NetworkInvalid,
    PreconditionFailed,
    RequestTimedOut,
    RowInvalid,
    SchemaInvalid,
    TargetTooWeak,
    TargetUnreachable,
    UploadTooLarge,
    WorkExceeded,
)
from lethe.contract.problems.unknown import (
    AdditionUnknown,
    AgentUnknown,
    AttachmentUnknown,
    BoundUnknown,
    CertificateUnknown,
    DatasetUnknown,
    DeliveryUnknown,
    InvitationOver,
    IssuerUnknown,
    KeyUnknown,
    ModelUnknown,
    NetworkUnknown,
    RehearsalUnknown,
    RequestUnknown,
    RunUnknown,
    SavedViewUnknown,
    SubjectUnknown,
    TenantUnknown,
    UserUnknown,
    VersionUnknown,
    WeightsDestroyed,
)

__all__ = [
    "AdaptiveBudgetSpent",
    "AdditionUnknown",
    "AgentExists",
    "AgentUnknown",
    "AlreadyExtended",
    "AttachmentInvalid",
    "AttachmentUnknown",
    "AttachmentsFull",
    "BatchRefused",
    "BoundUnknown",
    "Busy",
    "CertificateBeyondLimits",
    "CertificateInvalid",
    "CertificateUnknown",
    "ClockRunsOn",
    "Conflict",
    "DatabaseDamaged",
    "DatasetBusy",
    "DatasetDamaged",
    "DatasetFull",
    "DatasetInUse",
    "DatasetRetired",
    "DatasetUnknown",
    "DatasetUnusable",
    "DeliveryUnknown",
    "DetailsErased",
    "EvaluationOverlaps",
    "ExtensionNotProvided",
    "ExtensionTooLate",
    "FieldError",
    "FormRefused",
    "Gone",
    "HeadersTooLarge",
    "IdempotencyConflict",
    "IdentityProviderUnavailable",
    "IdentityRefused",
    "IdentityStatementInvalid",
    "IdentityStatementRequired",
    "InputInvalid",
    "InstallationMismatch",
    "InvitationOver",
    "IssuerExists",
    "IssuerUnknown",
    "KeyUnknown",
    "LastAdminKey",
    "LastAdministrator",
    "LedgerCorrupt",
    "LedgerRestored",
    "LoginRefused",
    "Malformed",
    "MessageEarly",
    "MessageExpired",
    "MessageRefused",
    "MethodNotAllowed",
    "ModelHeld",
    "ModelInUse",
    "ModelNotLive",
    "ModelRetired",
    "ModelUnknown",
    "NetworkExists",
    "NetworkFailed",
    "NetworkInUse",
    "NetworkInvalid",
    "NetworkUnknown",
    "NotAllowed",
    "NotAssignable",
    "NotFound",
    "NotesFull",
    "PreconditionFailed",
    "Problem",
    "RateLimited",
    "Refused",
    "RehearsalDone",
    "RehearsalPending",
    "RehearsalTooLarge",
    "RehearsalUnknown",
    "ReplyUnprintable",
    "RequestOpen",
    "RequestTimedOut",
    "RequestUnknown",
    "RowInvalid",
    "RunNotCancellable",
    "RunUnknown",
    "SavedViewExists",
    "SavedViewUnknown",
    "SavedViewsFull",
    "SchemaInvalid",
    "ScopeMissing",
    "SecretNotPresent",
    "StorageFull",
    "SubjectRuleFixed",
    "SubjectSuppressed",
    "SubjectUnknown",
    "TangentServedElsewhere",
    "TargetTooWeak",
    "TargetUnreachable",
    "TenantExists",
    "TenantUnknown",
    "TransitionForbidden",
    "Unauthenticated",
    "Unavailable",
    "UploadTooLarge",
    "UserExists",
    "UserUnknown",
    "VersionUnknown",
    "WeightsDestroyed",
    "WorkExceeded",
    "of_answer",
]


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
