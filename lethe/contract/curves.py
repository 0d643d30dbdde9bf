"""A model's life step by step, for plots."""

import datetime
from typing import Annotated

from pydantic import Field

from lethe.contract.fields import Answer, PageOut, Paging
from lethe.contract.guarantees import GuaranteeOut, TargetOut
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import InputInvalid, ModelUnknown
from lethe.contract.sets import RunKind, Scope


class EpsilonsOut(Answer):
    """By notion, each rounded up; they are never added."""

    unlearning: float = Field(description="Of everybody deleted since the chain began, together")
    deletion: float | None = Field(
        description="Of the person with most records among those whom this run forgets; null if it forgets nobody"
    )
    adaptive: float = Field(description="Of one record still there, against readers of every version")
    release: float = Field(description="Of one record still there, given the version before")


class PointOut(Answer):
    step: int = Field(description="Of this run: 0 is before its first, when what it forgets is null already")
    influence: float = Field(description="Of everybody deleted since the chain began")
    presence: float = Field(description="Of one record still there")
    noise_variance: float
    epsilon: EpsilonsOut
    epsilon_of_one: float = Field(
        description="`deletion` of one record still there, if it became null here and no step followed"
    )


class SegmentOut(Answer):
    """The steps behind one ledger entry, which is also one release."""

    sequence: int
    version: int
    kind: RunKind
    run_id: str
    revision: int
    recorded_at: datetime.datetime
    steps_before: int = Field(description="Steps of the model's whole life before it: its points begin here in a plot")
    steps: int
    records: int = Field(description="That became null before it")
    requests: int = Field(description="That it served")
    largest: int | None = Field(description="Most records of one person among them; null if it served nobody")
    guarantees: list[GuaranteeOut] = Field(description="As posted: where its points end")
    adaptive: GuaranteeOut | None = Field(
        description="Of that person: every version they fed, of every model of the dataset; null if it served nobody"
    )
    exports: int = Field(description="How often the weights of its version were handed out")
    points: list[PointOut]


class TrajectoryOut(PageOut[SegmentOut]):
    model_id: str
    target: TargetOut
    items: list[SegmentOut] = Field(description="Newest first")


class TrajectoryQuery(Paging):
    points: Annotated[int, Field(ge=2, le=500)] = 50


_CURVES = Resource("Accounting", "/v1/accounting")

TRAJECTORY = of_one(
    _CURVES.operation(
        "get_trajectory",
        "GET",
        "/models/{model_id}/trajectory",
        scope=Scope.ACCOUNTING_READ,
        query=TrajectoryQuery,
        gives=TrajectoryOut,
        problems=(ModelUnknown, InputInvalid),
        does="Influence and epsilon after each step of learning and of every deletion since, with its release, "
        "from the ledger alone: what a certificate would say had the run been planned to end there. At most "
        "`points` of each run, closest where they change most, and 10,000 in all; newest run first.",
    )
)
