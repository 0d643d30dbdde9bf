"""Error conditions of calls: one class per condition, each with a stable code and an HTTP status.

The gateway raises these classes and returns them as responses (RFC 9457); the SDK raises the same classes when it reads
such responses. The families suggest how to react: a `Refused` call will be refused again, an `Unavailable` one can be
retried later. A detail names the next step. No text quotes a caller's input or a person's record.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from lethe.contract.sets import DamageKind

R = TypeVar("R")
_CAPITAL = re.compile("(?<!^)(?=[A-Z])")


class Sentence(str):
    """Text for people: `template`, filled in with `facts`. A page translates the template and fills in the facts."""

    template: str
    facts: Mapping[str, object]

    def __new__(cls, template: str, /, **facts: Any) -> Self:
        sentence = super().__new__(cls, template.format(**facts) if facts else template)
        sentence.template, sentence.facts = template, facts
        return sentence


@dataclass(frozen=True, slots=True)
class FieldError:
    """Fault in a malformed input: its dotted path (or `line 12, column age`) and the expected input."""

    path: str
    message: str


class Problem(Exception):
    """Named error condition. `code` is stable and public: the name of the class in snake case. `detail` is for people:
    the template of the class, or that of the call, filled in with facts. `status` is the status of the HTTP response,
    None without a response; `retry_after` is the number of seconds after which to repeat the call, None if unknown."""

    code: str = "internal_error"
    title: str = "Something went wrong"
    template: str = ""
    status: int | None = 500

    def __init_subclass__(cls, *, title: str = "", template: str = "", status: int | None = None) -> None:
        super().__init_subclass__()
        cls.code = _CAPITAL.sub("_", cls.__name__).lower()
        cls.title = title or cls.title
        cls.template = template or cls.template
        cls.status = status or cls.status

    def __init__(
        self, detail: str = "", errors: Sequence[FieldError] = (), *, retry_after: float | None = None, **facts: Any
    ) -> None:
        if facts or not detail:
            detail = Sentence(detail or self.template, **facts)
        super().__init__(detail)
        self.detail = detail
        self.errors = tuple(errors)
        self.retry_after = retry_after

    @classmethod
    def if_none(cls, row: R | None, /, **facts: Any) -> R:
        """Return `row`, or raise this condition if `row` is None."""
        if row is None:
            raise cls(**facts)
        return row

    @property
    def line(self) -> str:
        """Code, detail and faults in one line."""
        return f"{self.code}: " + "; ".join([self.detail, *(f"{fault.path}: {fault.message}" for fault in self.errors)])


def variant(template: str) -> "classmethod[Problem, ..., Problem]":
    """Declare another template for a condition; a call such as `RunNotCancellable.ended(run_id=run.id)` fills it in."""
    return classmethod(lambda condition, /, *errors, **facts: condition(template, *errors, **facts))


class Unavailable(Problem, title="Not available now", status=503):
    """The gateway cannot serve the call now; a later attempt may succeed."""

    database = variant(
        "The database cannot be reached or is busy. Repeat the call, with its Idempotency-Key if it has one."
    )


class Refused(Problem, title="The call is refused", status=400):
    """The gateway refuses the call, and would refuse it again."""


class NotAllowed(Refused, title="The caller may not do this", status=403):
    """The API key is not valid, or lacks the required permission."""


class NotFound(Refused, title="Not found", status=404):
    """The object does not exist."""


class Conflict(Refused, title="The current state does not allow this", status=409):
    """The current state does not allow the call."""


class Gone(Refused, title="The object was destroyed", status=410):
    """The object was destroyed."""


class Malformed(Refused, title="The call is malformed", status=422):
    """The input is not what the call expects; `errors` names the faults."""


class Unauthenticated(NotAllowed, title="A valid API key is needed", status=401): ...


class ScopeMissing(NotAllowed, title="The API key lacks a scope"):
    by_key = variant("This key does not have the scope {scope!r}.")
    by_role = variant("This role does not have the scope {scope!r}.")


class RateLimited(Unavailable, title="Too many calls this minute", status=429):
    """Too many calls. `retry_after` is the number of seconds until the next call is accepted, at most 60."""

    template = "{reason} Repeat the call in {seconds} s."

    def __init__(self, *detail_and_errors: Any, retry_after: float | None = 60, **facts: Any) -> None:
        super().__init__(*detail_and_errors, retry_after=retry_after, **facts)


class IdentityStatementInvalid(NotAllowed, title="The identity statement is not valid"): ...


class KeyUnknown(NotFound, title="There is no such API key"):
    template = "There is no API key {key_id!r}."
    not_in_force = variant("There is no API key {key_id!r} in force.")


class TenantUnknown(NotFound, title="There is no such tenant", template="There is no tenant {tenant_id!r}."): ...


class DatasetUnknown(NotFound, title="There is no such dataset"):
    template = "There is no dataset {dataset_id!r}; GET /v1/datasets lists them."


class SubjectUnknown(NotFound, title="Nothing is held about this subject"):
    @classmethod
    def but(cls, detail: str, alike: int) -> Self:
        """Return the problem, adding to its detail that `alike` people's ids differ from the subject's only in case."""
        people = "one person is held whose id is" if alike == 1 else f"{alike} people are held whose ids are"
        return cls(f"{detail} But {people} equal without regard to case." if alike else detail)


class ModelUnknown(NotFound, title="There is no such model"):
    template = "There is no model {model_id!r}; GET /v1/models lists them."


class VersionUnknown(NotFound, title="There is no such model version"):
    template = "Model {model_id} has no version {number}."
    never = variant("Model {model_id} never had this version: it must not be served under its name.")


class RequestUnknown(NotFound, title="There is no such deletion request"):
    template = "There is no deletion request {request_id!r}."


class NetworkUnknown(NotFound, title="There is no such network"):
    template = "There is no network {network_id!r}; GET /v1/networks lists them."


class RunUnknown(NotFound, title="There is no such run", template="There is no run {run_id!r}."): ...


class CertificateUnknown(NotFound, title="There is no such certificate"):
    template = "There is no certificate {certificate_id!r}."


class WeightsDestroyed(Gone, title="The weights of this version were destroyed"):
    template = "The weights of {version_id} were destroyed."
    superseded = variant(
        "Version {number} was superseded; its weights are gone, and with them whoever was forgotten since."
    )
    superseded_meanwhile = variant("Version {number} was superseded while it was read; its weights are not handed out.")


class InputInvalid(Malformed, title="The input is malformed"):
    no_schema = variant("This dataset has no schema: {expected}.")
    other_shape = variant("The rows are not of the dataset's shape.")
    damaged_file = variant("The file is damaged or is not a {kind} file.")
    file_name = variant("The file name must end in .csv, .parquet or .npz.")
    parquet_pages = variant("A file of this size may have {max_pages} pages; write fewer and larger ones.")
    parquet_encoding = variant("A column has an encoding that is not read; write it with plain or dictionary encoding.")


class SchemaInvalid(InputInvalid, title="The dataset schema is malformed"):
    too_long = variant("The {name} is too long.")
    null = variant("The field {name} is null.")
    not_json = variant("The field {name} is not JSON.")
    missing = variant("A {kind} file needs a schema.")
    two_targets = variant("An npz file has classes or a target.")


class RowInvalid(InputInvalid, title="A row of the upload cannot be encoded"): ...


class NetworkInvalid(InputInvalid, title="The file is not a supported network"): ...


class NetworkFailed(InputInvalid, title="The network could not be run"):
    template = "{why}; send a smaller network, or raise LETHE_NETWORK_MEMORY_BYTES or LETHE_NETWORK_SECONDS."


class DatasetUnusable(InputInvalid, title="No model can be learned from these rows"): ...


class UploadTooLarge(Malformed, title="The upload is larger than this server accepts", status=413):
    file = variant("This server accepts at most {max_bytes} bytes (LETHE_MAX_UPLOAD_BYTES). Nothing was stored.")
    body = variant("This operation accepts at most {max_bytes} bytes. Nothing was stored.")
    members = variant("This operation accepts at most {max_members} values in its body. Nothing was stored.")
    depth = variant("A body may nest lists and objects at most {max_depth} deep. Nothing was stored.")
    keyless = variant("Without a key, a body may have at most {max_bytes} bytes and needs a Content-Length.")
    attachment = variant(
        "An attachment has at most {max_bytes} bytes (LETHE_MAX_ATTACHMENT_BYTES). Nothing was stored."
    )
    network = variant(
        "The network has more than {max_bytes} bytes; send a smaller one, or raise LETHE_MAX_NETWORK_BYTES."
    )
    unpacked = variant("The file unpacks to {num_bytes} bytes; at most {max_bytes} are accepted.")
    footer = variant("The footer has {length} bytes; at most {max_bytes} are accepted.")


class ContentEncodingUnsupported(Malformed, title="The body is compressed or otherwise encoded", status=415): ...


class RequestTimedOut(Refused, title="The request took too long to arrive", status=408):
    template = "A body of at most {max_bytes} bytes must come in {seconds:g} s."


class PreconditionFailed(InputInvalid, title="A precondition of the guarantee does not hold"):
    bounded = variant("Model {model_id} states a second_moment, which more rows could exceed: retire it first.")
    no_gates = variant("This installation has no quality gates: create the model without one.")
    features = variant("The evaluation dataset must have the same features, and classes or target, as the dataset.")
    rows_wait = variant("Rows wait to be added to this dataset: make a model with second_moment once they are in it.")
    no_canaries = variant("This model was created without canaries, and so its runs have no canary test.")
    not_evaluated = variant("A quality gate needs evaluation data: create the model with an evaluation_dataset_id.")
    not_measured = variant("{metric} is not available for {objective}.")
    other_method = variant("Model {model_id} learns by {method}; this is only for models that learn by langevin.")


class IdentityStatementRequired(InputInvalid, title="A signed statement of the subject's identity is required"):
    template = "Each request must carry a signed statement about its subject's identity."
    for_one_id = variant("A statement is about one identifier: make a request for each, with a statement of its own.")


class TargetUnreachable(InputInvalid, title="The target cannot be reached with these settings"): ...


class TargetTooWeak(InputInvalid, title="The target is weaker than the tenant's policy allows"):
    template = (
        "Expected epsilon <= {most_epsilon:.10g} and delta <= {most_delta:.10g}: what meets a weaker target is not "
        "forgotten. Only an admin can widen this, by max_epsilon and max_delta of the tenant's policy."
    )


class IdempotencyConflict(Conflict, title="The idempotency key was used with another body"):
    template = "This Idempotency-Key came before with another body; use a new key for a new request."


class TenantExists(Conflict, title="A tenant with this name exists"): ...


class SubjectRuleFixed(Conflict, title="The rule for subject ids can no longer be changed"):
    template = (
        "This tenant has datasets or requests, whose people are known by the rule {rule}: under another one they would "
        "not be found. Make a tenant with the rule you want, and upload the data there."
    )


class LastAdminKey(Conflict, title="Without this key, the tenant could no longer be administered"):
    template = "{row_id} is the last key with the scope {scope!r} that does not expire; make another one first."


class TransitionForbidden(Conflict, title="The request can no longer change that way"):
    template = "A request that is {status} cannot become {wanted_status}."
    clock_ended = variant("A request that is {status} no longer has a clock.")
    not_in_review = variant("The clock can be stopped while a request is in review; this one is {status}.")
    too_late = variant(
        "It is too late: a request of an app's key can be ended while it is in review or its grace period lasts."
    )
    erasing = variant("The person's rows are being erased or are gone: it is too late.")


class RequestOpen(Conflict, title="The referenced request has not ended"): ...


class AlreadyExtended(Conflict, title="The deadline has been extended before"): ...


class ExtensionTooLate(Conflict, title="The deadline has passed"): ...


class ExtensionNotProvided(Conflict, title="The regulation does not provide for an extension"): ...


class ClockRunsOn(Conflict, title="The clock cannot be paused under this regulation"): ...


class SealedTextDamaged(Conflict, title="A stored text, or its key, is damaged"): ...


class SubjectSuppressed(Conflict, title="Somebody in the upload asked to be forgotten"):
    template = (
        "{num_suppressed} rows are of people who asked to be forgotten (the first, counted from 1: {lines}). Leave "
        "them out, or send suppressed=skip."
    )
    somebody = variant(
        "The upload has rows of people who asked to be forgotten; a key with accounting:read is shown which. Leave "
        "them out, or send suppressed=skip."
    )
    meanwhile = variant("Somebody in the upload asked to be forgotten meanwhile; send it again.")


class DatasetBusy(Conflict, title="A run is using the dataset"): ...


class EvaluationOverlaps(Conflict, title="A person is in both the training and the evaluation rows"):
    rows = variant(
        "{count} rows are both in a dataset that is learned from and in one that its models are measured on. Leave "
        "them out of one of the two."
    )
    people = variant(
        "{count} people are both in a dataset that is learned from and in one that its models are measured on. Leave "
        "them out of one of the two."
    )


class ModelNotLive(Conflict, title="The model has no live version yet"):
    template = "Model {model_id} is {status}; wait until its first version is published."


class ModelHeld(Conflict, title="The live version is held back from serving"):
    template = (
        "Version {number} misses the quality gate of its model, and is held back from serving. Release it (POST "
        "/v1/models/{model_id}/versions/{number}/release), or take a remedy that GET "
        "/v1/models/{model_id}/remedies names."
    )


class ModelInUse(Conflict, title="The model is still needed"):
    template = (
        "{requests} for model {model_id} to forget; wait until they are completed (GET "
        "/v1/deletion-requests?model_id={model_id}), or cancel them."
    )


class DatasetInUse(Conflict, title="The dataset is still needed"):
    by_model = variant(
        "Model {model_id} learns from dataset {dataset_id} or is measured on it; retire it first (DELETE "
        "/v1/models/{model_id})."
    )
    by_requests = variant(
        "{requests} to have rows of dataset {dataset_id} erased; wait until they are completed (GET "
        "/v1/deletion-requests), or cancel them."
    )


class ModelRetired(Conflict, title="The model was retired"):
    template = "Model {model_id} was retired, and its weights are destroyed; make another one."


class AdaptiveBudgetSpent(Conflict, title="The dataset's budget has no room for another version"):
    template = (
        "Dataset {dataset_id} has an adaptive budget of mu = {mu:.4g}, of which {spent:.4g} is spent: there is no room "
        "for another version. Requests wait for the models that carried their rows: retire those (DELETE "
        "/v1/models/{{model_id}}), and learn from a new dataset."
    )


class DatasetRetired(Conflict, title="The dataset was retired"):
    template = "Dataset {dataset_id} was retired, and its rows are destroyed; upload another one."


class RunNotCancellable(Conflict, title="The run cannot be cancelled"):
    ended = variant("Run {run_id} has ended: it is {status}.")
    for_requests = variant("Run {run_id} honours deletion requests; nothing cancels it now.")
    needed = variant(
        "Model {model_id} must learn again: rows were added, or its weights are lost. Retire it to end that (DELETE "
        "/v1/models/{model_id})."
    )


class DatasetDamaged(Conflict, title="The rows of a dataset are not those on record"):
    """Damaged rows. `rows_id` is the ID of the dataset or addition; `block` is the index of a block of 4,096 rows."""

    template = (
        "The rows of {rows_id} are not those on record ({where}): no run touches the dataset until the right file is "
        "back and `lethe dataset recheck` finds nothing, or until `lethe restore`."
    )
    rows_id: str
    kind: DamageKind
    block: int | None

    @classmethod
    def found(cls, rows_id: str, kind: DamageKind, block: int | None = None) -> Self:
        where = kind if block is None else Sentence("{kind} of block {block}", kind=kind, block=block)
        error = cls(rows_id=rows_id, where=where)
        error.rows_id, error.kind, error.block = rows_id, kind, block
        return error


class LedgerCorrupt(Problem, title="The ledger does not verify"): ...


class LedgerRestored(LedgerCorrupt, title="The ledger is older than the head that was kept"): ...


class CertificateDamaged(Conflict, title="The stored certificate is not what was signed"):
    template = (
        "Certificate {certificate_id} is not what was signed: use the copy that was handed out, and put back its row "
        "from a replica or a backup of the database."
    )


class CertificateInvalid(Malformed, title="The certificate does not verify"): ...


class CertificateBeyondLimits(
    CertificateInvalid, title="The certificate verifies, and guarantees less than was asked for"
): ...


class MethodNotAllowed(Refused, title="The path does not support this method", status=405): ...


class InstallationMismatch(Unavailable, title="Keys, stores and database do not belong to one installation"): ...


class StorageFull(Unavailable, title="The disk is full"):
    template = "There is no room to store this. Repeat the call, with its Idempotency-Key if it has one, when there is."


class DatabaseDamaged(Unavailable, title="The database is damaged"): ...


class DatabasePutBack(Unavailable, title="The database is older than the tombstones"): ...


class StorageQuotaExceeded(Conflict, title="The tenant may not store more"):
    template = (
        "The tenant would store {num_bytes} bytes and may store {max_bytes} (LETHE_MAX_TENANT_BYTES). It stores: "
        "{kinds}. Retire datasets, tables or trainers, or delete networks or attachments. Nothing was stored."
    )


class Busy(Unavailable, title="Too many calls at once"): ...


def of_answer(
    status: int, code: str, title: str, detail: str, errors: Sequence[FieldError], *, retry_after: float | None
) -> Problem:
    """Return the condition that a response names, from the core or a loaded feature; an unknown code is mapped to the
    family of its status."""
    families: dict[int | None, type[Problem]] = {400: Malformed, 401: NotAllowed, 413: Malformed}
    families |= {kind.status: kind for kind in (NotAllowed, NotFound, Conflict, Gone, Malformed)}
    family = Unavailable if status == 429 or status >= 500 else families.get(status, Refused)
    kind = next((kind for kind in _below(Problem) if kind.code == code), family)
    problem = kind(detail, errors, retry_after=retry_after)
    problem.code, problem.title, problem.status = code, title, status
    return problem


def _below(family: type[Problem]) -> Iterator[type[Problem]]:
    for child in family.__subclasses__():
        yield child
        yield from _below(child)
