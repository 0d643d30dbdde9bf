"""Accounting API: guarantees by model, dataset and request, and the ledger that they follow from."""

import datetime
from typing import Annotated, Any

from pydantic import Field

from lethe.contract import problems
from lethe.contract.certificates import GuaranteeOut, JointOut, TargetOut
from lethe.contract.fields import Answer, PageOut, Paging, Positive, Query
from lethe.contract.models import WaitingOut
from lethe.contract.operation import ResourceOperations, of_one
from lethe.contract.sets import Scope


class LedgerEntryOut(Answer):
    sequence: int = Field(description="Position of the entry in the model's ledger, from 1 without gaps.")
    body: dict[str, Any] = Field(description="Statement of the entry: run, version, mechanism, chain and guarantees.")
    previous_hash: str = Field(description="Hash of the preceding entry (hex); 64 zeros for the first entry.")
    hash: str = Field(
        description="SHA-256 (hex) of previous_hash, a line feed, and body as JSON with sorted keys, no spaces, in "
        "ASCII."
    )


class LedgerOut(PageOut[LedgerEntryOut]):
    pass


class LedgerVerdictOut(Answer):
    model_id: str = Field(description="ID of the model.")
    valid: bool = Field(description="True if every hash and number recomputes and versions are those of the ledger.")
    fault: str | None = Field(description="First fault found; null if the ledger is valid.")
    entries: int | None = Field(description="Number of recomputed entries; null if the ledger is not valid.")
    head: str | None = Field(description="Hash of the last entry (hex); null if there is none or the ledger not valid.")


class NextRequestOut(Answer):
    kind: str = Field(description="Kind of the run that would forget one more record: unlearn or relearn.")
    steps: int = Field(description="Number of steps of that run.")
    epsilon_without_steps: float = Field(
        description="Epsilon of `unlearning`, in nats, if the record were erased and no step followed."
    )


class ReleasesLeftOut(Answer):
    epsilon: float = Field(
        description="Epsilon of the `adaptive` budget (nats): of the query, else the dataset's, else the model's "
        "target."
    )
    delta: float = Field(description="Delta of the budget: of the query, else the dataset's, else the model's target.")
    steps_per_release: int = Field(description="Number of steps that forgetting one more record takes now.")
    records: int = Field(description="Number of the person's records, in every version of all the dataset's models.")
    count: int | None = Field(
        description="Further versions of this model, if no other model publishes, within the budget; null if exceeded."
    )


class ResetOut(Answer):
    steps: int = Field(description="Minimum number of steps after which `reset` meets the model's target.")
    guarantee: GuaranteeOut = Field(description="`reset` guarantee after these steps.")


class NextRunOut(Answer):
    kind: str = Field(description="Kind of the run: learn, unlearn or relearn.")
    steps: int = Field(description="Number of steps of the run.")
    reason: str = Field(description="Reason for this kind and number of steps, in words.")
    records: int = Field(description="Number of records that the run would forget.")


class LargeRequestOut(Answer):
    request_id: str = Field(description="ID of the deletion request.")
    records: int = Field(description="Number of rows of the person in the model's dataset.")


class ModelBudgetOut(Answer):
    model_id: str = Field(description="ID of the model.")
    version: int | None = Field(description="Number of the live version; null before the first version.")
    target: TargetOut = Field(description="Target of the model's `unlearning` guarantee.")
    releases: int = Field(description="Number of versions published so far, including destroyed and lost ones.")
    mu: float = Field(description="`adaptive` mu of one record over these versions; squares of all models add up.")
    releases_left: ReleasesLeftOut | None = Field(description="Versions that still fit; null before the first.")
    room: int | None = Field(
        description="Most records forgotten together in fewer steps than relearning; null before the first version."
    )
    next_run: NextRunOut | None = Field(description="Run that would serve waiting requests now; null if none waits.")
    relearning: list[LargeRequestOut] = Field(description="Open requests that each force relearning, the largest 100.")


class DatasetAccountOut(Answer):
    dataset_id: str = Field(description="ID of the dataset.")
    used: GuaranteeOut | None = Field(
        description="`adaptive` guarantee of one record in every version of every model; null without versions."
    )
    models: list[ModelBudgetOut] = Field(description="Account of each model of the dataset.")


class AccountOut(Answer):
    model_id: str = Field(description="ID of the model.")
    version: int = Field(description="Number of the live version.")
    influence: float = Field(
        description="Influence W: bound on the parameter shift by all edits so far, each at its worst position."
    )
    noise_variance: float = Field(description="Variance V of the noise in each coordinate of the live version.")
    mu: float = Field(description="Mu of `unlearning`, counting rows erased since the live version was published.")
    guarantees: list[GuaranteeOut] = Field(
        description="`unlearning` of erased rows, not of people in `waiting`, and `release` of a record still present."
    )
    waiting: WaitingOut = Field(description="People with open requests whose rows are not erased yet.")
    releases: int = Field(description="Number of versions of the model on record, including destroyed ones.")
    next_request: NextRequestOut = Field(description="Run that forgetting one more record would take.")
    releases_left: ReleasesLeftOut = Field(description="Versions that still fit an `adaptive` budget.")
    reset: ResetOut | None = Field(description="Repair run after which no initial weights matter; null if too long.")


class StatementOut(Answer):
    model_id: str = Field(description="ID of the model.")
    certificate_id: str = Field(description="ID of the certificate.")
    version: int = Field(description="Number of the version that the certificate is about.")
    signed: list[GuaranteeOut] = Field(description="Guarantees that the certificate states.")
    today: list[GuaranteeOut] = Field(description="The same guarantees, recomputed for today's live version.")


class RequestAccountOut(Answer):
    request_id: str = Field(description="ID of the deletion request.")
    models: list[StatementOut] = Field(description="One statement per certificate of the request.")
    joint: JointOut | None = Field(
        description="Guarantee over all models that carried the person, except models destroyed before they forgot; "
        "null if there is none or one must still forget."
    )


class AccountQuery(Query):
    adaptive_epsilon: Annotated[
        Positive | None,
        Field(description="Epsilon of the budget, in nats. Default: the dataset's, else the model's target."),
    ] = None
    adaptive_delta: Annotated[
        float | None,
        Field(gt=0, lt=1, description="Delta of the budget. Default: the dataset's, else the model's target."),
    ] = None


_ACCOUNTING = ResourceOperations("Accounting", "/v1/accounting")

MODEL = of_one(
    _ACCOUNTING.operation(
        "get_account",
        "GET",
        "/models/{model_id}",
        scope=Scope.ACCOUNTING_READ,
        query=AccountQuery,
        gives=AccountOut,
        problems=(problems.ModelUnknown, problems.ModelNotLive, problems.ModelRetired),
        does="Return the guarantees of the live version, the cost of forgetting one more record, and how many more "
        "versions a person who stays can feed before the `adaptive` guarantee exceeds a budget.",
    )
)
LEDGER = of_one(
    _ACCOUNTING.operation(
        "get_ledger",
        "GET",
        "/models/{model_id}/ledger",
        scope=Scope.ACCOUNTING_READ,
        query=Paging,
        gives=LedgerOut,
        problems=(problems.ModelUnknown, problems.InputInvalid),
        does="List the hash-chained ledger entries of a model, oldest first, in the order of a replay.",
    )
)
VERDICT = of_one(
    _ACCOUNTING.operation(
        "verify_ledger",
        "GET",
        "/models/{model_id}/ledger/verdict",
        scope=Scope.ACCOUNTING_READ,
        gives=LedgerVerdictOut,
        problems=(problems.ModelUnknown,),
        does="Recompute every hash and number of a model's ledger from its entries alone, and check that the "
        "published versions are exactly those in the ledger.",
    )
)
DELETION_REQUEST = of_one(
    _ACCOUNTING.operation(
        "get_request_account",
        "GET",
        "/deletion-requests/{request_id}",
        scope=Scope.ACCOUNTING_READ,
        gives=RequestAccountOut,
        problems=(problems.RequestUnknown, problems.CertificateDamaged),
        does="Return the guarantees signed for a request, the same for today's live versions, and the joint guarantee "
        "over all models.",
    )
)
DATASET = of_one(
    _ACCOUNTING.operation(
        "get_dataset_account",
        "GET",
        "/datasets/{dataset_id}",
        scope=Scope.ACCOUNTING_READ,
        query=AccountQuery,
        gives=DatasetAccountOut,
        problems=(problems.DatasetUnknown,),
        does="Return the `adaptive` guarantee of one record that fed every version of every model, the versions that "
        "still fit a budget, and the open requests that force relearning.",
    )
)


class LedgerHeadOut(Answer):
    tenant_id: str = Field(description="ID of the tenant.")
    sequence: int = Field(description="Number of the last link of all models' chain; 0 before the first version.")
    hash: str = Field(description="Hash of the last link (hex); 64 zeros before the first version.")
    jws: str | None = Field(
        description="Signed head: compact JWS, Ed25519, key in /.well-known/jwks.json; null before the first version."
    )
    signed_at: datetime.datetime | None = Field(description="Time of the signature; null before the first version.")


class TenantLedgerVerdictOut(Answer):
    tenant_id: str = Field(description="ID of the tenant.")
    valid: bool = Field(description="True if all hashes, numbers, versions, certificates and signed heads agree.")
    fault: str | None = Field(description="First fault found; null if the ledger is valid.")
    models: int | None = Field(description="Number of models with entries; null if the ledger is not valid.")
    entries: int | None = Field(description="Number of recomputed entries; null if the ledger is not valid.")
    certificates: int | None = Field(description="Number of certificates checked against entries; null if not valid.")
    links: int | None = Field(description="Number of links of the chain over all models; null if not valid.")
    signed: int | None = Field(description="Number of the last link under a signed head, or 0; null if not valid.")
    head: str | None = Field(description="Hash of the last link (hex); null if the ledger is not valid.")


_LEDGER = ResourceOperations("Accounting", "/v1/ledger")

HEAD = _LEDGER.operation(
    "get_ledger_head",
    "GET",
    "/head",
    scope=Scope.ACCOUNTING_READ,
    gives=LedgerHeadOut,
    problems=(problems.LedgerCorrupt,),
    does="Return the signed head of the ledger over all models. Keep it out of reach of the service's operators: any "
    "later removal or change of an entry contradicts it.",
)
EXPORT = _LEDGER.operation(
    "export_ledger",
    "GET",
    "/export",
    scope=Scope.ACCOUNTING_READ,
    gives=bytes,
    problems=(problems.LedgerCorrupt,),
    does="Export the whole ledger as JSON lines, signed head last. `lethe ledger verify` recomputes the file offline "
    "and compares it with a head that you kept.",
)
LEDGER_VERDICT = _LEDGER.operation(
    "verify_whole_ledger",
    "GET",
    "/verdict",
    scope=Scope.ACCOUNTING_READ,
    gives=TenantLedgerVerdictOut,
    does="Recompute every hash and number of all models and compare them with versions, certificates and signed "
    "heads.\n\nAn installation cannot prove more about itself: keep heads elsewhere, and see `lethe ledger verify`.",
)
