"""`/accounting/preview`, `/accounting/models/{id}/rivals`: what forgetting would take, here and elsewhere."""

import math

from fastapi import APIRouter

from app.accounting import rivals, runtime_estimates, service
from app.accounting.rivals import Ask
from app.accounting.runtime_estimates import RuntimeEstimate
from app.api.accounting import guarantees_to_response
from app.api.calls import Call
from app.api.gateway import serves
from app.catalogue import service as catalogue
from app.unlearning import planner
from app.unlearning.planner import Option, Plan
from lethe.contract import previews as contract
from lethe.contract.bounds import RefusalOut
from lethe.contract.guarantees import TargetOut
from lethe.contract.previews import (
    OptionOut,
    PaceOut,
    PreviewIn,
    PreviewOut,
    RivalOut,
    RivalsOut,
    RivalsQuery,
    ScheduleOut,
)
from lethe.contract.problems import FieldError, InputInvalid
from lethe.contract.sets import RunKind
from lethe.proof import guarantees
from lethe.proof.accountant import Run
from lethe.theorems import calibration

router = APIRouter()

_MOST_RUNS = 100
"""The most runs of one schedule: somebody who moves a slider waits for it."""


@serves(router, contract.PREVIEW)
def preview(call: Call, body: PreviewIn) -> PreviewOut:
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
        plan = Plan(kind=RunKind.UNLEARN, steps=body.steps, reason="asked for")
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
        guarantees=guarantees_to_response(guarantees.of_chain(reached, last_run=last_run, delta=delta)),
        schedule=ScheduleOut(
            batch=batch,
            runs=schedule.runs,
            relearned=schedule.relearned,
            steps=schedule.steps,
            longest=schedule.longest,
            seconds=_seconds(measured, schedule.steps, runs=schedule.runs),
            epsilon=calibration.least_epsilon(schedule.chain, records=0, steps=0, delta=delta),
        ),
        options=options_to_response(compared, measured),
        pace=_runtime_estimate(measured),
    )


@serves(router, contract.RIVALS)
def get_rivals(call: Call, model_id: str, query: RivalsQuery) -> RivalsOut:
    with call.reading() as session:
        model = catalogue.get_model(session, model_id)
        catalogue.require_kept(model)
        chain = service.standing(session, model).chain
        measured = runtime_estimates.of_model(session, model)
    ask = Ask(records=query.num_records, epsilon=query.epsilon or model.epsilon, delta=query.delta or model.delta)
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
        pace=_runtime_estimate(measured),
    )


def options_to_response(found: list[Option], measured: RuntimeEstimate | None) -> list[OptionOut]:
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


def _runtime_estimate(measured: RuntimeEstimate | None) -> PaceOut | None:
    return PaceOut.model_validate(measured, from_attributes=True) if measured else None
