"""Accounting: how much of anybody is left, by model, dataset and request, and the ledger it follows from."""

from typing import Annotated, Any

from pydantic import Field

from lethe.contract.fields import Answer, PageOut, Paging, Positive, Query
from lethe.contract.guarantees import GuaranteeOut, JointOut, TargetOut
from lethe.contract.models import WaitingOut
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import (
    DatasetUnknown,
    InputInvalid,
    ModelNotLive,
    ModelRetired,
    ModelUnknown,
    RequestUnknown,
)
from lethe.contract.sets import Scope


class LedgerEntryOut(Answer):
    sequence: int
    body: dict[str, Any]
    previous_hash: str
    hash: str


class LedgerOut(PageOut[LedgerEntryOut]):
    pass


class LedgerVerdictOut(Answer):
    model_id: str
    valid: bool
    fault: str | None = Field(description="The entry and the part of it that do not follow; null if all do.")
    entries: int | None = Field(description="That were recomputed; null if one of them does not follow.")
    not_recomputed: int | None = Field(
        description="Entries of an earlier format, which were there at the upgrade: their hashes hold, their numbers"
        " are not recomputed."
    )
    head: str | None = Field(
        description="Hash of the last entry: whoever keeps it elsewhere can tell a cut ledger; null if there is none."
    )


class NextRequestOut(Answer):
    kind: str
    steps: int
    epsilon_without_steps: float = Field(description="unlearning epsilon if the rows were nulled and nothing ran")


class ReleasesLeftOut(Answer):
    epsilon: float = Field(description="The `adaptive` budget: of the query, the dataset's, or the model's target")
    delta: float
    steps_per_release: int = Field(description="What forgetting one more record takes now")
    records: int = Field(description="Of the person, in every version of every model of the dataset so far")
    count: int | None = Field(description="Versions of this model that still fit; null: the budget is exceeded already")


class ResetOut(Answer):
    steps: int
    guarantee: GuaranteeOut


class NextRunOut(Answer):
    kind: str
    steps: int
    reason: str
    records: int = Field(description="That it would forget")


class LargeRequestOut(Answer):
    request_id: str
    records: int


class ModelBudgetOut(Answer):
    model_id: str
    version: int | None
    target: TargetOut
    releases: int = Field(description="Versions published so far, destroyed ones among them")
    mu: float = Field(description="What they add to the `adaptive` mu of the dataset: squares add up")
    releases_left: ReleasesLeftOut | None = Field(description="null before the first version")
    room: int | None = Field(
        description="Records that can be forgotten together before learning again is no dearer; null before the first"
        " version"
    )
    next_run: NextRunOut | None = Field(description="What would run now, for all who wait; null if nobody does")
    relearning: list[LargeRequestOut] = Field(
        description="Open requests that leave no choice but to learn again, each by itself; the 100 largest"
    )


class DatasetAccountOut(Answer):
    dataset_id: str
    used: GuaranteeOut | None = Field(
        description="`adaptive` of one record that fed every version of every model so far; null before there are any"
    )
    models: list[ModelBudgetOut]


class AccountOut(Answer):
    model_id: str
    version: int
    influence: float
    noise_variance: float
    mu: float
    guarantees: list[GuaranteeOut] = Field(
        description="`unlearning` and `deletion`: of those whose rows are erased, and of nobody in `waiting`"
    )
    waiting: WaitingOut = Field(description="Those whose rows are not erased yet")
    releases: int
    next_request: NextRequestOut
    releases_left: ReleasesLeftOut
    reset: ResetOut | None = Field(description="What it takes until no start matters, for repair; null if too much")


class StatementOut(Answer):
    model_id: str
    certificate_id: str
    version: int
    signed: list[GuaranteeOut] = Field(
        description="Empty for a certificate of an earlier format, which cannot be verified any more."
    )
    today: list[GuaranteeOut]


class RequestAccountOut(Answer):
    request_id: str
    models: list[StatementOut]
    joint: JointOut | None = Field(
        description="Of all models that carried the person, as it was signed; null until every one has forgotten."
    )


class AccountQuery(Query):
    adaptive_epsilon: Annotated[Positive | None, Field()] = None
    adaptive_delta: Annotated[float | None, Field(gt=0, lt=1)] = None


class DatasetAccountQuery(Query):
    adaptive_epsilon: Annotated[Positive | None, Field()] = None
    adaptive_delta: Annotated[float | None, Field(gt=0, lt=1)] = None


_ACCOUNTING = Resource("Accounting", "/v1/accounting")

MODEL = of_one(
    _ACCOUNTING.operation(
        "get_account",
        "GET",
        "/models/{model_id}",
        scope=Scope.ACCOUNTING_READ,
        query=AccountQuery,
        gives=AccountOut,
        problems=(ModelUnknown, ModelNotLive, ModelRetired),
        does="Where the live version stands, what forgetting one more record would take, and how many more "
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
        problems=(ModelUnknown, InputInvalid),
        does="The hash-chained entries of a model, oldest first, so that they can be replayed as they come.",
    )
)
VERDICT = of_one(
    _ACCOUNTING.operation(
        "verify_ledger",
        "GET",
        "/models/{model_id}/ledger/verdict",
        scope=Scope.ACCOUNTING_READ,
        gives=LedgerVerdictOut,
        problems=(ModelUnknown,),
        does="Recompute every hash and every number of a model's ledger from its entries alone, and that its "
        "versions are exactly those that the entries account for.",
    )
)
DELETION_REQUEST = of_one(
    _ACCOUNTING.operation(
        "get_request_account",
        "GET",
        "/deletion-requests/{request_id}",
        scope=Scope.ACCOUNTING_READ,
        gives=RequestAccountOut,
        problems=(RequestUnknown,),
        does="What was signed about a person, what holds of the live versions today, and what all models tell "
        "together.",
    )
)
DATASET = of_one(
    _ACCOUNTING.operation(
        "get_dataset_account",
        "GET",
        "/datasets/{dataset_id}",
        scope=Scope.ACCOUNTING_READ,
        query=DatasetAccountQuery,
        gives=DatasetAccountOut,
        problems=(DatasetUnknown,),
        does="What one record that fed every version of every model has spent against people who read them all, "
        "how many more versions fit a budget, and which open requests leave no choice but to learn again.",
    )
)
