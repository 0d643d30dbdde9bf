"""`/accounting/preview`, `/accounting/models/{id}/rivals`: what forgetting would take, here and elsewhere."""

from typing import Annotated

from pydantic import Field

from lethe.contract.bounds import RefusalOut
from lethe.contract.fields import Answer, Body, Positive, Query, example
from lethe.contract.guarantees import GuaranteeOut, TargetOut
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import ModelNotLive, ModelRetired, ModelUnknown
from lethe.contract.sets import Scope

EXPECTED_REQUESTS = 9
"""Requests assumed to come next, when nobody says: a batch of ten."""


class PreviewIn(Body):
    model_config = example(model_id="mdl_6f1c", num_records=3)

    model_id: str
    num_records: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1
    epsilon: Positive | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    steps: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        default=None,
        description="The other way round: what so many steps would reach. Default: as few as reach the target.",
    )
    batch: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        default=None, description="Records per run, for `schedule`, in at most 100 runs. Default: all in one."
    )
    expected_requests: Annotated[int, Field(ge=1, le=100)] = Field(
        default=EXPECTED_REQUESTS, description="Further requests of as many records each, for the comparison of options"
    )


_SECONDS = "By the model's own past runs, from claim to publication; null before its first version"


class OptionOut(Answer):
    kind: str = Field(description="unlearn (now) | batch (wait for the expected requests) | relearn")
    steps: int
    steps_per_request: float = Field(description="If this and the expected requests are all handled so")
    epsilon: float = Field(description="`unlearning`, once its run is done")
    seconds: float | None = Field(description=_SECONDS)
    reason: str


class ScheduleOut(Answer):
    """The records forgotten `batch` at a time, each batch brought to the target before the next comes."""

    batch: int
    runs: int
    relearned: int = Field(description="How many of the runs learn again: unlearning would be no cheaper")
    steps: int = Field(description="Of all runs")
    longest: int = Field(description="Steps of the longest run")
    seconds: float | None = Field(description=_SECONDS)
    epsilon: float = Field(description="`unlearning`, after the last run")


class PaceOut(Answer):
    seconds_per_run: float = Field(description="Whatever its length")
    seconds_per_step: float
    runs: int = Field(description="So many were measured, the last 20 at most")


class PreviewOut(Answer):
    kind: str
    steps: int
    reason: str
    seconds: float | None = Field(description=_SECONDS)
    epsilon_without_steps: float
    guarantees: list[GuaranteeOut]
    schedule: ScheduleOut
    options: list[OptionOut] = Field(description="Cheapest per request first")
    pace: PaceOut | None


class RivalOut(Answer):
    """One way to serve the request. Rows with different notions or adjacencies are side by side, not comparable."""

    name: str
    title: str
    notion: str
    adjacency: str = Field(description="zero_out | replace | add_remove: what without the record means")
    reference_process: str
    reference: str
    assumptions: list[str] = Field(description="Taken to hold, as its theorem takes them")
    bound: str | None = Field(description="Its theorem in the calculator")
    steps: int | None = Field(description="null: see refused")
    seconds: float | None = Field(description="At the seconds per step that this model's runs take")
    noise_std: float | None = Field(description="Standard deviation of the noise in what it publishes, per coordinate")
    refused: RefusalOut | None


class RivalsOut(Answer):
    model_id: str
    records: int
    target: TargetOut
    rivals: list[RivalOut]
    pace: PaceOut | None


class RivalsQuery(Query):
    num_records: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1
    epsilon: Annotated[Positive | None, Field()] = None
    delta: Annotated[float | None, Field(gt=0, lt=1)] = None


_PREVIEWS = Resource("Accounting", "/v1/accounting")

PREVIEW = _PREVIEWS.operation(
    "preview",
    "POST",
    "/preview",
    scope=Scope.ACCOUNTING_READ,
    takes=PreviewIn,
    gives=PreviewOut,
    idempotent=True,
    problems=(ModelUnknown, ModelNotLive, ModelRetired),
    does="What forgetting `num_records` more would take, to the model's target or another, or what so many "
    "steps would reach, and what else could be done; nothing is changed.",
)
RIVALS = of_one(
    _PREVIEWS.operation(
        "get_rivals",
        "GET",
        "/models/{model_id}/rivals",
        scope=Scope.ACCOUNTING_READ,
        query=RivalsQuery,
        gives=RivalsOut,
        problems=(ModelUnknown, ModelNotLive, ModelRetired),
        does="The steps that other published guarantees need for the same request on this model's problem and "
        "noise, each at its best, with what its epsilon means; or which of its preconditions fails.",
    )
)
