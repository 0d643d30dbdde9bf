"""Endpoints of plans, curves, previews and the summary of requests."""

import math
from collections.abc import Iterator, Sequence

from fastapi import APIRouter

from app.accounting import runtime_estimates
from app.accounting import service as accounting
from app.accounting.runtime_estimates import RuntimeEstimate
from app.api.accounting import guarantee_of, guarantees_to_response
from app.api.calls import Call, number_in
from app.api.deletion_requests import view_of
from app.api.gateway import Mount, serves
from app.api.sentences import of_plan
from app.catalogue import datasets, mechanisms, repository
from app.catalogue import service as catalogue
from app.db.tables import Model, Run, Version, stored_mechanism
from app.deletion import service as deletion
from app.features.insight import curve, outlook, summary
from app.features.insight.curve import Segment
from app.features.insight.outlook import ModelOutlook
from app.features.quality import gates as quality
from app.unlearning import planner
from app.unlearning.planner import Option, Plan, PlanReason
from lethe.contract.certificates import TargetOut
from lethe.contract.problems import FieldError, InputInvalid
from lethe.contract.sets import Metric, RunKind, VersionStatus
from lethe.features.insight import contract
from lethe.proof import accountant, calibration, guarantees

router = APIRouter()
accounting_router = APIRouter()


@serves(router, contract.PREVIEW_REQUEST)
def preview_deletion_request(call: Call, request_id: str) -> contract.RequestPreviewOut:
    with call.reading() as session:
        request = outlook.of_request(session, deletion.get(session, request_id))
        rows, models = (request.rows, request.models) if request else ({}, ())
        return contract.RequestPreviewOut(
            request_id=request_id,
            is_open=request is not None,
            datasets=[contract.DatasetToEraseOut(dataset_id=name, rows=count) for name, count in sorted(rows.items())],
            models=[_model_to_forget(forecast) for forecast in models],
        )


def _model_to_forget(forecast: ModelOutlook) -> contract.ModelToForgetOut:
    model, plan, wait = forecast.model, forecast.plan, forecast.wait
    return contract.ModelToForgetOut(
        model_id=model.id,
        name=model.name,
        version=model.live_version,
        rows=forecast.rows,
        kind=plan.kind if plan else None,
        steps=plan.steps if plan else None,
        passes=forecast.passes,
        seconds=forecast.seconds,
        reason=wait.reason if wait else None,
        waiting=wait.requests if wait else 0,
        batch=model.max_requests,
        until=wait.until if wait else None,
    )


@serves(router, contract.SUMMARY)
def summarise_deletion_requests(call: Call) -> contract.SummaryOut:
    zone = call.caller.policy.time_zone
    with call.reading() as session:
        view = view_of(session, call)
        counts = summary.of_requests(session, view=view, zone=zone)
    return contract.SummaryOut(
        at=view.at,
        time_zone=zone,
        overdue=counts.overdue,
        due=[contract.DueOnDayOut(day=day, requests=number) for day, number in counts.due.items()],
        later=counts.later,
        weeks=[contract.WeekOut.of(week) for week in counts.weeks],
        completion=contract.CompletionOut(
            requests=counts.completed,
            median_days=counts.days_of(50),
            p90_days=counts.days_of(90),
            share_in_time=counts.in_time / counts.completed if counts.completed else None,
        ),
    )


_MAX_POINTS = 10_000
"""Maximum number of points in one answer."""
_OF_ENTRY = ("sequence", "version", "kind", "run_id", "revision", "recorded_at", "steps", "records")
"""Fields that a segment copies from its ledger entry under the same name."""


@serves(accounting_router, contract.TRAJECTORY)
def get_trajectory(call: Call, model_id: str, query: contract.TrajectoryQuery) -> contract.TrajectoryOut:
    before = number_in(query.cursor)
    with call.reading() as session:
        model = catalogue.get_model(session, model_id)
        segments, earlier = curve.segments(
            session,
            model,
            points=max(2, min(query.points, _MAX_POINTS // query.limit)),
            limit=query.limit,
            before=before,
        )
    return contract.TrajectoryOut(
        model_id=model.id,
        target=TargetOut.of(model),
        items=[_segment(segment) for segment in segments],
        next_cursor=None if earlier is None else str(earlier),
    )


def _segment(segment: Segment) -> contract.SegmentOut:
    entry = segment.entry
    return contract.SegmentOut.of(
        segment,
        **{name: entry[name] for name in _OF_ENTRY},
        requests=len(entry["requests"]),
        guarantees=[guarantee_of(stated) for stated in entry["guarantees"]],
        adaptive=guarantees_to_response([segment.adaptive])[0] if segment.adaptive else None,
        points=[contract.PointOut.of(point) for point in segment.points],
    )


_MAX_RUNS = 100
"""Maximum number of runs in one schedule, which bounds the time of an answer for sliders."""


@serves(accounting_router, contract.PREVIEW)
def preview(call: Call, body: contract.PreviewIn) -> contract.PreviewOut:
    records, batch = body.num_records, body.batch or body.num_records
    if math.ceil(records / batch) > _MAX_RUNS:
        message = f"Expected num_records={records} in at most {_MAX_RUNS} runs, not {math.ceil(records / batch)}"
        raise InputInvalid(message, [FieldError("batch", message)])
    with call.reading() as session:
        model = catalogue.get_model(session, body.model_id)
        catalogue.require_kept(model)
        chain = accounting.standing(session, model).chain
        measured = runtime_estimates.of_model(session, model)
    epsilon, delta = body.epsilon or model.epsilon, body.delta or model.delta
    plan = planner.forget(chain, records=records, epsilon=epsilon, delta=delta)
    if body.steps is not None:
        plan = Plan(kind=RunKind.UNLEARN, steps=body.steps, reason=PlanReason.REQUESTED)
    reached = planner.after(chain, plan, records=records)
    compared = planner.options(
        chain, records=records, epsilon=epsilon, delta=delta, expected_requests=body.expected_requests
    )
    schedule = planner.in_batches(chain, records=records, batch=batch, epsilon=epsilon, delta=delta)
    last_run = accountant.Run(steps=plan.steps, records=records)
    return contract.PreviewOut(
        kind=plan.kind,
        steps=plan.steps,
        reason=of_plan(plan.reason, plan.facts),
        seconds=_seconds(measured, plan.steps),
        epsilon_without_steps=accounting.epsilon_without_steps(chain, records=records, delta=delta),
        guarantees=guarantees_to_response(guarantees.of_chain(reached, last_run=last_run, delta=delta)),
        schedule=contract.ScheduleOut(
            batch=batch,
            runs=schedule.runs,
            relearned=schedule.relearned,
            steps=schedule.steps,
            longest=schedule.longest,
            seconds=_seconds(measured, schedule.steps, runs=schedule.runs),
            epsilon=calibration.least_epsilon(schedule.chain, records=0, steps=0, delta=delta),
        ),
        options=options_to_response(compared, measured),
        pace=contract.PaceOut.of(measured) if measured else None,
    )


def options_to_response(options: list[Option], measured: RuntimeEstimate | None) -> list[contract.OptionOut]:
    return [
        contract.OptionOut.of(
            option, seconds=_seconds(measured, option.steps), reason=of_plan(option.reason, option.facts)
        )
        for option in options
    ]


def _seconds(measured: RuntimeEstimate | None, steps: int, *, runs: int = 1) -> float | None:
    return measured.seconds(steps, runs=runs) if measured else None


_MAX_VERSIONS = 100
_METRICS = (Metric.ACCURACY, Metric.LABEL_ACCURACY, Metric.R_SQUARED)
"""Metrics that a plan shows by default; for each version, the first that was measured."""


@serves(accounting_router, contract.PLAN)
def get_plan(call: Call, dataset_id: str, query: contract.PlanQuery) -> contract.PlanOut:
    with call.reading() as session:
        dataset = datasets.get(session, dataset_id)
        objective, costs = mechanisms.costs_of(
            dataset, objective=query.objective, loss_width=query.loss_width, l2=query.l2
        )
        published = repository.versions_from(session, dataset_id=dataset.id, limit=_MAX_VERSIONS)
        metrics = [query.metric] if query.metric else _METRICS
        measured = [version for row in published for version in _measured(metrics, *row)]
    return contract.PlanOut(
        dataset_id=dataset_id,
        objective=objective,
        costs=[contract.CostOut.of(cost) for cost in costs],
        measured=measured,
    )


def _measured(
    metrics: Sequence[Metric], model: Model, version: Version, run: Run
) -> Iterator[contract.MeasuredVersionOut]:
    """Yield the version with the first of the metrics that it has; nothing if it has none of them."""
    mechanism = stored_mechanism(model.mechanism)
    values = [(metric, value) for metric in metrics if (value := quality.value_of(metric, version.metrics)) is not None]
    for metric, value in values[:1]:
        yield contract.MeasuredVersionOut(
            model_id=model.id,
            name=model.name,
            version=version.number,
            live=version.status == VersionStatus.LIVE,
            kind=RunKind(run.kind),
            epsilon=model.epsilon,
            l2=mechanism.l2,
            passes=run.steps_total / mechanism.num_batches,
            metric=metric,
            value=value,
            published_at=version.published_at,
        )


MOUNTS = (Mount(router=router), Mount(router=accounting_router, by_accounting=True))
