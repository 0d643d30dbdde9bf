"""Operations on models trained elsewhere with differential privacy."""

import datetime
from typing import Annotated, Any

from pydantic import Field, Strict

from lethe.contract import fields, operation, problems, sets
from lethe.features.systems.contract import Ids


class DpModelUnknown(
    problems.NotFound, title="There is no such DP model", template="There is no DP model {dp_model_id!r}."
): ...


class Relation(sets.ClosedSet):
    """A ledger's neighbouring relation. Replacing a row with another (replace_one) is not supported: under sampling, no
    exact bound for several of a person's rows is known."""

    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    """One dataset has one more row than the other."""
    REPLACE_SPECIAL = "replace_special"
    """The datasets differ in one row: in one of them, it is replaced with a row that contributes zero."""


class DpRequestStatus(sets.ClosedSet):
    BOUNDED = "bounded"
    """The ledger bounds, within the budget, what the model retains about the person."""
    WAITING = "waiting"
    """The budget is spent: the request is waiting for the ledger of a training run started after it was accepted."""
    CLOSED = "closed"
    """The model was retired while the request was waiting, so the request never took effect on it."""
    CANCELLED = "cancelled"
    """The request was cancelled or rejected."""


_LEDGER = {"format": "opacus", "history": [[1.1, 0.01, 1000]]}


class LedgerIn(fields.Body):
    model_config = fields.example(
        ledger=_LEDGER, delta=1e-5, max_rows_per_person=2, budget_epsilon=8.0, trained_from="2026-11-01T08:00:00Z"
    )

    ledger: dict[str, Any] = Field(
        description="Ledger of the training run: the history of an Opacus accountant or a dp-accounting event tree "
        "(see docs/dp-ledgers.md)."
    )
    relation: Annotated[Relation, Strict(False)] = Field(
        default=Relation.ADD_OR_REMOVE_ONE, description="Neighbouring relation: how two datasets differ in one row."
    )
    delta: Annotated[float, Field(ge=1e-9, le=0.1)] = Field(description="Delta at which epsilon is stated.")
    max_rows_per_person: Annotated[int, Field(ge=1, le=1000)] = Field(
        description="Maximum number of training rows per person. Every request is counted as this many rows."
    )
    budget_epsilon: Annotated[float, Field(gt=0, le=50)] = Field(
        description="Maximum epsilon for all forgotten rows together. Requests that exceed this wait for retraining."
    )
    trained_from: fields.Moment = Field(
        description="Time at which the training run read its data. People whose requests were accepted before this "
        "time are assumed to be absent from the data."
    )


class DpModelIn(LedgerIn):
    model_config = fields.example(
        name="Ranker",
        ledger=_LEDGER,
        delta=1e-5,
        max_rows_per_person=2,
        budget_epsilon=8.0,
        trained_from="2026-11-01T08:00:00Z",
    )

    name: fields.Name = Field(description="Name of the model, shown to officers and in bundles.")
    dataset_ids: Ids | None = fields.optional(
        "IDs of the datasets with the people whose data the model may have been trained on. A request restricted to "
        "other datasets does not concern the model. Default: all datasets of the tenant."
    )


class CurvePoint(fields.Answer):
    rows: int = Field(description="Number of rows added or removed together.")
    epsilon: float | None = Field(description="Upper bound on epsilon, rounded up; null if the bound is above 50.")


class DpModelOut(fields.Answer):
    id: str = Field(description="ID of the model, also used as its system ID.")
    name: str = Field(description="Name of the model.")
    dataset_ids: list[str] | None = Field(description="IDs of datasets it may have been trained on; null for all.")
    version: int = Field(description="Number of the current ledger, starting at 1.")
    ledger_id: str = Field(description="ID of the current ledger.")
    ledger: dict[str, Any] = Field(description="Current ledger, as registered.")
    relation: Relation = Field(description="Neighbouring relation used by the ledger.")
    delta: float = Field(description="Delta at which epsilon is stated.")
    max_rows_per_person: int = Field(description="Number of rows that every request counts as.")
    trained_from: datetime.datetime = Field(description="Time at which the model's training run read its data.")
    epsilon: float = Field(description="Epsilon for the rows of one person, recomputed from the ledger and rounded up.")
    curve: list[CurvePoint] = Field(description="Epsilon for some numbers of rows, up to just above the budget.")
    budget_epsilon: float = Field(description="Maximum epsilon for all forgotten rows together.")
    budget_rows: int = Field(description="Maximum number of forgotten rows whose epsilon fits into the budget.")
    forgotten_rows: int = Field(
        description="Number of rows charged for requests accepted since `trained_from`, including waiting requests."
    )
    retraining_due: bool = Field(description="True if a waiting request exceeds the budget or the next request would.")
    waiting_requests: int = Field(description="Number of requests waiting for the model to be retrained.")
    created_at: datetime.datetime = Field(description="Time at which the model was registered.")
    retired_at: datetime.datetime | None = Field(description="Time at which the model was retired; null until then.")


_DP_MODELS = operation.ResourceOperations("Systems", "/v1/dp-models", DpModelUnknown)

CREATE = _DP_MODELS.operation(
    "create_dp_model",
    "POST",
    scope=sets.Scope.ADMIN,
    takes=DpModelIn,
    gives=DpModelOut,
    status=201,
    repeat="keyed",
    problems=(problems.StorageQuotaExceeded,),
    does="Register a model that was trained outside Lethe with differential privacy. Its epsilon is recomputed from "
    "its ledger. Requests accepted from now on count against its budget.",
)
LIST = _DP_MODELS.operation(
    "list_dp_models",
    "GET",
    scope=sets.Scope.MODELS_READ,
    query=fields.Paging,
    gives=fields.PageOut[DpModelOut],
    does="List models with ledgers, including retired ones, newest first.",
)
GET = _DP_MODELS.of_one(
    "get_dp_model",
    "GET",
    "/{dp_model_id}",
    scope=sets.Scope.MODELS_READ,
    gives=DpModelOut,
    does="Return a model with its ledger, its epsilon by number of rows, and its remaining budget.",
)
RENEW = _DP_MODELS.of_one(
    "renew_dp_model",
    "POST",
    "/{dp_model_id}/ledgers",
    scope=sets.Scope.ADMIN,
    takes=LedgerIn,
    gives=DpModelOut,
    repeat="idempotent",
    does="Replace a model's ledger after a retraining. Requests accepted before `trained_from` no longer count; if "
    "waiting, they proceed, as do others that now fit. Refused if the budget does not cover the others counted so far.",
)
RETIRE = _DP_MODELS.of_one(
    "retire_dp_model",
    "DELETE",
    "/{dp_model_id}",
    scope=sets.Scope.ADMIN,
    gives=type(None),
    status=204,
    does="Retire a model. Requests stop waiting for its retraining; their headlines state that it was not reached.",
)
