"""`/accounting/models/{id}/trajectory`: a model's life step by step, for plots."""

import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from app.accounting import curve
from app.accounting.curve import Segment
from app.api.accounting import shown_guarantees
from app.api.calls import Call, Cursor, Limit, call_with, number_in
from app.api.problems import responses
from app.api.schemas import GuaranteeOut, TargetOut
from app.catalogue import service as catalogue
from lethe.contract.problems import InputInvalid, ModelUnknown
from lethe.contract.sets import Scope

router = APIRouter(prefix="/accounting", tags=["Accounting"])

_MOST_POINTS = 10_000
"""Of one answer."""


class EpsilonsOut(BaseModel):
    """By notion, each rounded up; they are never added."""

    unlearning: float = Field(description="Of everybody deleted since the chain began, together")
    deletion: float | None = Field(
        description="Of the person with most records among those whom this run forgets; null if it forgets nobody"
    )
    adaptive: float = Field(description="Of one record still there, against readers of every version")
    release: float = Field(description="Of one record still there, given the version before")


class PointOut(BaseModel):
    step: int = Field(description="Of this run: 0 is before its first, when what it forgets is null already")
    influence: float = Field(description="Of everybody deleted since the chain began")
    presence: float = Field(description="Of one record still there")
    noise_variance: float
    epsilon: EpsilonsOut
    epsilon_of_one: float = Field(
        description="`deletion` of one record still there, if it became null here and no step followed"
    )


class SegmentOut(BaseModel):
    """The steps behind one ledger entry, which is also one release."""

    sequence: int
    version: int
    kind: str
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


class TrajectoryOut(BaseModel):
    model_id: str
    target: TargetOut
    items: list[SegmentOut] = Field(description="Newest first")
    next_cursor: str | None


@router.get("/models/{model_id}/trajectory", responses=responses(ModelUnknown, InputInvalid))
def get_trajectory(
    call: Annotated[Call, call_with(Scope.ACCOUNTING_READ)],
    model_id: str,
    points: Annotated[int, Query(ge=2, le=500)] = 50,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> TrajectoryOut:
    """Influence and epsilon after each step of learning and of every deletion since, with its release, from the ledger
    alone: what a certificate would say had the run been planned to end there. At most `points` of each run, closest
    where they change most, and 10,000 in all; newest run first."""
    before = number_in(cursor)
    with call.reading() as session:
        model = catalogue.get_model(session, model_id)
        found, earlier = curve.segments(
            session, model, points=max(2, min(points, _MOST_POINTS // limit)), limit=limit, before=before
        )
    return TrajectoryOut(
        model_id=model.id,
        target=TargetOut(epsilon=model.epsilon, delta=model.delta),
        items=[_shown(segment) for segment in found],
        next_cursor=None if earlier is None else str(earlier),
    )


def _shown(segment: Segment) -> SegmentOut:
    entry = segment.entry
    return SegmentOut(
        sequence=entry["sequence"],
        version=entry["version"],
        kind=entry["kind"],
        run_id=entry["run_id"],
        revision=entry["revision"],
        recorded_at=entry["recorded_at"],
        steps_before=segment.steps_before,
        steps=entry["steps"],
        records=entry["records"],
        requests=len(entry["requests"]),
        largest=segment.largest,
        guarantees=[GuaranteeOut(**stated) for stated in entry["guarantees"]],
        adaptive=shown_guarantees([segment.adaptive])[0] if segment.adaptive else None,
        exports=segment.exports,
        points=[PointOut.model_validate(point, from_attributes=True) for point in segment.points],
    )
