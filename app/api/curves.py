"""`/accounting/models/{id}/trajectory`: a model's life step by step, for plots."""

from fastapi import APIRouter

from app.accounting import curve
from app.accounting.curve import Segment
from app.api.accounting import guarantees_to_response
from app.api.calls import Call, number_in
from app.api.certificates import guarantee_of
from app.api.gateway import serves
from app.catalogue import service as catalogue
from lethe.contract import curves as contract
from lethe.contract.curves import PointOut, SegmentOut, TrajectoryOut, TrajectoryQuery
from lethe.contract.guarantees import TargetOut

router = APIRouter()

_MOST_POINTS = 10_000
"""The most points of one answer."""


@serves(router, contract.TRAJECTORY)
def get_trajectory(call: Call, model_id: str, query: TrajectoryQuery) -> TrajectoryOut:
    before = number_in(query.cursor)
    with call.reading() as session:
        model = catalogue.get_model(session, model_id)
        found, earlier = curve.segments(
            session,
            model,
            points=max(2, min(query.points, _MOST_POINTS // query.limit)),
            limit=query.limit,
            before=before,
        )
    return TrajectoryOut(
        model_id=model.id,
        target=TargetOut(epsilon=model.epsilon, delta=model.delta),
        items=[_to_response(segment) for segment in found],
        next_cursor=None if earlier is None else str(earlier),
    )


def _to_response(segment: Segment) -> SegmentOut:
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
        guarantees=[guarantee_of(stated) for stated in entry["guarantees"]],
        adaptive=guarantees_to_response([segment.adaptive])[0] if segment.adaptive else None,
        exports=segment.exports,
        points=[PointOut.model_validate(point, from_attributes=True) for point in segment.points],
    )
