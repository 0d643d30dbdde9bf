"""Operations on models that were trained elsewhere with differential privacy."""

import datetime
from typing import Annotated, Any

from pydantic import Field, Strict

from lethe.contract.fields import Answer, Body, Moment, Name, PageOut, Paging, example, optional
from lethe.contract.operation import ResourceOperations
from lethe.contract.problems import NotFound, StorageQuotaExceeded
from lethe.contract.sets import ClosedSet, Scope
from lethe.features.systems.contract import Ids


class DpModelUnknown(NotFound, title="There is no such DP model", template="There is no DP model {dp_model_id!r}."): ...


class Relation(ClosedSet):
    """Neighbouring relation of a ledger. Replacing a row by another (replace_one) is not among them: no exact bound for
    several rows of a person is known under sampling."""

    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    """Datasets differ in a row that one of them lacks."""
    REPLACE_SPECIAL = "replace_special"
    """Datasets differ in a row that one of them replaces by a row that contributes zero."""


class DpRequestStatus(ClosedSet):
    BOUNDED = "bounded"
    """The ledger bounds what the model holds of the person, within the budget."""
    WAITING = "waiting"
    """The budget is spent: the request waits for a ledger of a training that started after it was accepted."""
    CLOSED = "closed"
    """The model was retired while the request waited: it was not reached."""
    CANCELLED = "cancelled"
    """The request was cancelled or rejected."""


_LEDGER = {"format": "opacus", "history": [[1.1, 0.01, 1000]]}


class LedgerIn(Body):
    model_config = example(
        ledger=_LEDGER, delta=1e-5, max_rows_per_person=2, budget_epsilon=8.0, trained_from="2026-11-01T08:00:00Z"
    )

    ledger: dict[str, Any] = Field(
        description="Ledger of the training: the history of an Opacus accountant, or an event tree of dp-accounting "
        "(docs/dp-ledgers.md)."
    )
    relation: Annotated[Relation, Strict(False)] = Field(
        default=Relation.ADD_OR_REMOVE_ONE, description="Neighbouring relation of the ledger, for one row."
    )
    delta: Annotated[float, Field(ge=1e-9, le=0.1)] = Field(description="Delta at which epsilon is stated.")
    max_rows_per_person: Annotated[int, Field(ge=1, le=1000)] = Field(
        description="Largest number of training rows of one person, which every request counts."
    )
    budget_epsilon: Annotated[float, Field(gt=0, le=50)] = Field(
        description="Largest epsilon of all forgotten rows together. Requests beyond it wait for a retraining."
    )
    trained_from: Moment = Field(
        description="Time at which the training read its data. People whose requests were accepted before that time "
        "count as absent from it."
    )


class DpModelIn(LedgerIn):
    model_config = example(
        name="Ranker",
        ledger=_LEDGER,
        delta=1e-5,
        max_rows_per_person=2,
        budget_epsilon=8.0,
        trained_from="2026-11-01T08:00:00Z",
    )

    name: Name = Field(description="Name of the model, shown to officers and in the bundle.")
    dataset_ids: Ids | None = optional(
        "Datasets whose people the model may hold: a request restricted to other datasets does not concern "
        "it. Default: all datasets of the tenant."
    )


class CurvePoint(Answer):
    rows: int = Field(description="Number of rows that are added or removed together.")
    epsilon: float | None = Field(description="Upper bound on epsilon, rounded up; null if it is above 50.")


class DpModelOut(Answer):
    id: str = Field(description="ID of the model, also in the list of systems.")
    name: str = Field(description="Name of the model.")
    dataset_ids: list[str] | None = Field(description="Datasets whose people the model may hold; null for all.")
    version: int = Field(description="Number of the current ledger, counted from 1.")
    ledger_id: str = Field(description="ID of the current ledger.")
    ledger: dict[str, Any] = Field(description="Current ledger, as registered.")
    relation: Relation = Field(description="Neighbouring relation of the ledger.")
    delta: float = Field(description="Delta at which epsilon is stated.")
    max_rows_per_person: int = Field(description="Number of rows that every request counts.")
    trained_from: datetime.datetime = Field(description="Time at which the training read its data.")
    epsilon: float = Field(description="Epsilon of the rows of one person, recomputed from the ledger and rounded up.")
    curve: list[CurvePoint] = Field(description="Epsilon by number of rows, up to just above the budget.")
    budget_epsilon: float = Field(description="Largest epsilon of all forgotten rows together.")
    budget_rows: int = Field(description="Largest number of forgotten rows whose epsilon is within the budget.")
    forgotten_rows: int = Field(
        description="Number of rows counted by requests accepted since the training started, including waiting ones."
    )
    retraining_due: bool = Field(description="True if the next or an already waiting request exceeds the budget.")
    waiting_requests: int = Field(description="Number of requests that wait for a retraining.")
    created_at: datetime.datetime = Field(description="Time of registration.")
    retired_at: datetime.datetime | None = Field(description="Time of retirement; null while in use.")


_DP_MODELS = ResourceOperations("Systems", "/v1/dp-models", DpModelUnknown)

CREATE = _DP_MODELS.operation(
    "create_dp_model",
    "POST",
    scope=Scope.ADMIN,
    takes=DpModelIn,
    gives=DpModelOut,
    status=201,
    repeat="keyed",
    problems=(StorageQuotaExceeded,),
    does="Register a model that was trained elsewhere with differential privacy. Epsilon is recomputed from its "
    "ledger. Requests accepted from now on count against its budget.",
)
LIST = _DP_MODELS.operation(
    "list_dp_models",
    "GET",
    scope=Scope.MODELS_READ,
    query=Paging,
    gives=PageOut[DpModelOut],
    does="List models with ledgers, including retired ones, newest first.",
)
GET = _DP_MODELS.of_one(
    "get_dp_model",
    "GET",
    "/{dp_model_id}",
    scope=Scope.MODELS_READ,
    gives=DpModelOut,
    does="Return a model with its ledger, its epsilon by number of rows, and the rest of its budget.",
)
RENEW = _DP_MODELS.of_one(
    "renew_dp_model",
    "POST",
    "/{dp_model_id}/ledgers",
    scope=Scope.ADMIN,
    takes=LedgerIn,
    gives=DpModelOut,
    repeat="idempotent",
    does="Replace the ledger after a retraining. Requests accepted before the training started no longer count, and "
    "those that waited for it proceed. A ledger whose budget does not cover the others is refused.",
)
RETIRE = _DP_MODELS.of_one(
    "retire_dp_model",
    "DELETE",
    "/{dp_model_id}",
    scope=Scope.ADMIN,
    gives=type(None),
    status=204,
    does="Retire a model. Requests that waited for its retraining end without having reached it, which their headline "
    "states.",
)
