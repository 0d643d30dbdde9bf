"""`/accounting/preview`, `/accounting/models/{id}/rivals`: what forgetting would take, here and elsewhere."""

import math
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from app.accounting import rivals, runtime_estimates, service
from app.accounting.rivals import Ask
from app.accounting.runtime_estimates import RuntimeEstimate
from app.api.accounting import shown_guarantees
from app.api.bounds import RefusalOut
from app.api.calls import Call, call_with
from app.api.problems import responses
from app.api.schemas import GuaranteeOut, Positive, PreviewIn, TargetOut
from app.catalogue import service as catalogue
from app.unlearning import planner
from app.unlearning.planner import Option, Plan
from lethe.contract.problems import FieldError, InputInvalid, ModelNotLive, ModelRetired, ModelUnknown
from lethe.contract.sets import Scope
from lethe.proof import guarantees
from lethe.proof.accountant import Run
from lethe.theorems import calibration

router = APIRouter(prefix="/accounting", tags=["Accounting"])

_MOST_RUNS = 100
"""Of one schedule: whoever moves a slider waits for it."""
_SECONDS = "By the model's own past runs, from claim to publication; null before its first version"


class OptionOut(BaseModel):
    kind: str = Field(description="unlearn (now) | batch (wait for the expected requests) | relearn")
    steps: int
    steps_per_request: float = Field(description="If this and the expected requests are all handled so")
    epsilon: float = Field(description="`unlearning`, once its run is done")
    seconds: float | None = Field(description=_SECONDS)
    reason: str


class ScheduleOut(BaseModel):
    """The records forgotten `batch` at a time, each batch brought to the target before the next comes."""

    batch: int
    runs: int
    relearned: int = Field(description="How many of the runs learn again: unlearning would be no cheaper")
    steps: int = Field(description="Of all runs")
    longest: int = Field(description="Steps of the longest run")
    seconds: float | None = Field(description=_SECONDS)
    epsilon: float = Field(description="`unlearning`, after the last run")


class PaceOut(BaseModel):
    seconds_per_run: float = Field(description="Whatever its length")
    seconds_per_step: float
    runs: int = Field(description="So many were measured, the last 20 at most")


class PreviewOut(BaseModel):
    kind: str
    steps: int
    reason: str
    seconds: float | None = Field(description=_SECONDS)
    epsilon_without_steps: float
    guarantees: list[GuaranteeOut]
    schedule: ScheduleOut
    options: list[OptionOut] = Field(description="Cheapest per request first")
    pace: PaceOut | None


class RivalOut(BaseModel):
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


class RivalsOut(BaseModel):
    model_id: str
    records: int
    target: TargetOut
    rivals: list[RivalOut]
    pace: PaceOut | None


@router.post("/preview", responses=responses(ModelUnknown, ModelNotLive, ModelRetired))
def preview(call: Annotated[Call, call_with(Scope.ACCOUNTING_READ)], body: PreviewIn) -> PreviewOut:
    """What forgetting `num_records` more would take, to the model's target or another, or what so many steps would
    reach, and what else could be done; nothing is changed."""
    records, batch = body.num_records, body.batch or body.num_records
    if math.ceil(records / batch) > _MOST_RUNS:
        message = f"Expected num_records={records} in at most {_MOST_RUNS} runs, not {math.ceil(records / batch)}"
        raise InputInvalid(message, [FieldError("batch", message)])
    with call.reading() as session:
        model = catalogue.get_model(session, body.model_id)
        catalogue.require_kept(model)
        chain = service.standing(session, model).chain
        measured = runtime_estimates.of_model(session, model)
    epsilon, delta = body.epsilon or model.epsilon, body.delta or model.delta
    plan = planner.forget(chain, records=records, epsilon=epsilon, delta=delta)
    if body.steps is not None:
        plan = Plan(kind="unlearn", steps=body.steps, reason="asked for")
    reached = planner.after(chain, plan, records=records)
    compared = planner.options(
        chain, records=records, epsilon=epsilon, delta=delta, expected_requests=body.expected_requests
    )
    schedule = planner.in_batches(chain, records=records, batch=batch, epsilon=epsilon, delta=delta)
    last_run = Run(steps=plan.steps, records=records)
    return PreviewOut(
        kind=plan.kind,
        steps=plan.steps,
        reason=plan.reason,
        seconds=_seconds(measured, plan.steps),
        epsilon_without_steps=service.epsilon_without_steps(chain, records=records, delta=delta),
        guarantees=shown_guarantees(guarantees.of_chain(reached, last_run=last_run, delta=delta)),
        schedule=ScheduleOut(
            batch=batch,
            runs=schedule.runs,
            relearned=schedule.relearned,
            steps=schedule.steps,
            longest=schedule.longest,
            seconds=_seconds(measured, schedule.steps, runs=schedule.runs),
            epsilon=calibration.least_epsilon(schedule.chain, records=0, steps=0, delta=delta),
        ),
        options=shown_options(compared, measured),
        pace=_pace(measured),
    )


@router.get("/models/{model_id}/rivals", responses=responses(ModelUnknown, ModelNotLive, ModelRetired))
def get_rivals(
    call: Annotated[Call, call_with(Scope.ACCOUNTING_READ)],
    model_id: str,
    num_records: Annotated[int, Query(ge=1, le=2**31 - 1)] = 1,
    epsilon: Annotated[Positive | None, Query()] = None,
    delta: Annotated[float | None, Query(gt=0, lt=1)] = None,
) -> RivalsOut:
    """The steps that other published guarantees need for the same request on this model's problem and noise, each at
    its best, with what its epsilon means; or which of its preconditions fails."""
    with call.reading() as session:
        model = catalogue.get_model(session, model_id)
        catalogue.require_kept(model)
        chain = service.standing(session, model).chain
        measured = runtime_estimates.of_model(session, model)
    ask = Ask(records=num_records, epsilon=epsilon or model.epsilon, delta=delta or model.delta)
    found = [
        RivalOut(
            name=rival.name,
            title=rival.title,
            notion=rival.notion,
            adjacency=rival.adjacency,
            reference_process=rival.reference_process,
            reference=rival.reference,
            assumptions=list(rival.assumptions),
            bound=rival.bound,
            steps=rival.steps,
            seconds=None if rival.steps is None else _seconds(measured, rival.steps),
            noise_std=rival.noise_std,
            refused=RefusalOut.model_validate(rival.refused, from_attributes=True) if rival.refused else None,
        )
        for rival in rivals.compare(chain, ask)
    ]
    return RivalsOut(
        model_id=model.id,
        records=ask.records,
        target=TargetOut(epsilon=ask.epsilon, delta=ask.delta),
        rivals=found,
        pace=_pace(measured),
    )


def shown_options(found: list[Option], measured: RuntimeEstimate | None) -> list[OptionOut]:
    return [
        OptionOut(
            kind=option.kind,
            steps=option.steps,
            steps_per_request=option.steps_per_request,
            epsilon=option.epsilon,
            seconds=_seconds(measured, option.steps),
            reason=option.reason,
        )
        for option in found
    ]


def _seconds(measured: RuntimeEstimate | None, steps: int, *, runs: int = 1) -> float | None:
    return measured.seconds(steps, runs=runs) if measured else None


def _pace(measured: RuntimeEstimate | None) -> PaceOut | None:
    return PaceOut.model_validate(measured, from_attributes=True) if measured else None
