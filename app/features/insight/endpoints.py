"""Endpoints for accounts, plans, curves, previews and the summary of requests."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from fastapi import APIRouter
from sqlalchemy.orm import Session

from app.accounting import (
    budgets,
    certificates,
    repository as accounting_repository,
    runtime_estimates,
    service as accounting,
)
from app.api import calls, deletion_requests, gateway, sentences
from app.api.accounting import joint_to_response
from app.catalogue import datasets, service as catalogue
from app.db.tables import Dataset, DeletionRequest, Model, Run, Version, stored_mechanism
from app.deletion import service as deletion
from app.features.insight import comparison, costs, curve, outlook, repository as insight_repository, summary
from app.features.quality import gates as quality
from app.unlearning import planner, queue, waiting
from lethe.contract import problems, sets
from lethe.contract.certificates import GuaranteeOut, TargetOut
from lethe.contract.models import WaitingOut
from lethe.features.insight import contract, margins
from lethe.proof import accountant, conversion, guarantees, methods

router = APIRouter()
accounting_router = APIRouter()


@gateway.serves(router, contract.PREVIEW_REQUEST)
def preview_deletion_request(call: calls.Call, request_id: str) -> contract.RequestPreviewOut:
    with call.reading() as session:
        request = outlook.of_request(session, deletion.get(session, request_id))
        rows, models = (request.rows, request.models) if request else ({}, ())
        return contract.RequestPreviewOut(
            request_id=request_id,
            is_open=request is not None,
            datasets=[contract.DatasetToEraseOut(dataset_id=name, rows=count) for name, count in sorted(rows.items())],
            models=[_model_to_forget(forecast) for forecast in models],
        )


def _model_to_forget(forecast: outlook.ModelOutlook) -> contract.ModelToForgetOut:
    model, plan, wait = forecast.model, forecast.plan, forecast.wait
    return contract.ModelToForgetOut.of(
        forecast,
        model_id=model.id,
        name=model.name,
        version=model.live_version,
        kind=plan.kind if plan else None,
        steps=plan.steps if plan else None,
        reason=wait.reason if wait else None,
        waiting=wait.requests if wait else 0,
        batch=model.max_requests,
        until=wait.until if wait else None,
    )


@gateway.serves(router, contract.SUMMARY)
def summarise_deletion_requests(call: calls.Call) -> contract.SummaryOut:
    zone = call.caller.policy.time_zone
    with call.reading() as session:
        view = deletion_requests.view_of(session, call)
        counts = summary.of_requests(session, view=view, zone=zone)
    return contract.SummaryOut(
        at=view.at,
        time_zone=zone,
        overdue=counts.overdue,
        paused=counts.paused,
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
"""Maximum number of points in one response."""
_OF_ENTRY = ("sequence", "version", "kind", "run_id", "revision", "recorded_at", "steps", "records")
"""Fields that a segment copies from the ledger entry's fields of the same names."""


@gateway.serves(accounting_router, contract.TRAJECTORY)
def get_trajectory(call: calls.Call, model_id: str, query: contract.TrajectoryQuery) -> contract.TrajectoryOut:
    before = calls.number_in(query.cursor)
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


def _segment(segment: curve.Segment) -> contract.SegmentOut:
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
"""Maximum number of runs in one schedule, to bound the response time for sliders."""


@gateway.serves(accounting_router, contract.PREVIEW)
def preview(call: calls.Call, body: contract.PreviewIn) -> contract.PreviewOut:
    records, batch = body.num_records, body.batch or body.num_records
    runs = math.ceil(records / batch)
    if runs > _MAX_RUNS:
        template = "Expected num_records={records} in at most {max_runs} runs, not {runs}"
        message = problems.Sentence(template, records=records, max_runs=_MAX_RUNS, runs=runs)
        raise problems.InputInvalid(message, [problems.FieldError("batch", message)])
    with call.reading() as session:
        model = catalogue.get_model(session, body.model_id)
        catalogue.require_kept(model)
        if body.steps is not None:
            catalogue.langevin_of(model)
        chain = accounting.standing(session, model).chain
        measured = runtime_estimates.of_model(session, model)
    epsilon, delta = body.epsilon or model.epsilon, body.delta or model.delta
    plan = planner.forget(chain, records=records, epsilon=epsilon, delta=delta)
    if body.steps is not None:
        plan = planner.Plan(kind=sets.RunKind.UNLEARN, steps=body.steps, reason=planner.PlanReason.REQUESTED)
    reached = planner.after(chain, plan, records=records)
    compared = costs.options(
        chain, records=records, epsilon=epsilon, delta=delta, expected_requests=body.expected_requests
    )
    schedule = costs.in_batches(chain, records=records, batch=batch, epsilon=epsilon, delta=delta)
    last_run = accountant.Run(steps=plan.steps, records=records)
    return contract.PreviewOut(
        kind=plan.kind,
        steps=plan.steps,
        reason=sentences.of_plan(plan.reason, plan.facts),
        seconds=_seconds(measured, plan.steps),
        epsilon_without_steps=costs.epsilon_without_steps(chain, records=records, delta=delta),
        guarantees=guarantees_to_response(guarantees.of_chain(reached, last_run=last_run, delta=delta)),
        schedule=contract.ScheduleOut.of(
            schedule,
            batch=batch,
            seconds=_seconds(measured, schedule.steps, runs=schedule.runs),
            epsilon=margins.least_epsilon(schedule.chain, records=0, steps=0, delta=delta),
        ),
        options=options_to_response(compared, measured),
        pace=contract.PaceOut.of(measured) if measured else None,
    )


def options_to_response(
    options: list[costs.Option], measured: runtime_estimates.RuntimeEstimate | None
) -> list[contract.OptionOut]:
    return [
        contract.OptionOut.of(
            option, seconds=_seconds(measured, option.steps), reason=sentences.of_plan(option.reason, option.facts)
        )
        for option in options
    ]


def _seconds(measured: runtime_estimates.RuntimeEstimate | None, steps: int, *, runs: int = 1) -> float | None:
    return measured.seconds(steps, runs=runs) if measured else None


_MAX_VERSIONS = 100
_METRICS = (sets.Metric.ACCURACY, sets.Metric.LABEL_ACCURACY, sets.Metric.R_SQUARED)
"""Metrics shown by default in a plan: for each version, the first of these that was measured."""


@gateway.serves(accounting_router, contract.PLAN)
def get_plan(call: calls.Call, dataset_id: str, query: contract.PlanQuery) -> contract.PlanOut:
    with call.reading() as session:
        dataset = datasets.get(session, dataset_id)
        settings = query.model_dump(include={"objective", "loss_width", "l2"})
        objective, noise_costs = comparison.costs_of(dataset, **settings)
        compared = comparison.of_dataset(dataset, **settings, max_steps=call.installation.settings.max_steps)
        published = insight_repository.versions_from(session, dataset_id=dataset.id, limit=_MAX_VERSIONS)
        metrics = [query.metric] if query.metric else _METRICS
        measured = [version for row in published for version in _measured(metrics, *row)]
    return contract.PlanOut(
        dataset_id=dataset_id,
        objective=objective,
        costs=[contract.CostOut.of(cost) for cost in noise_costs],
        methods=[contract.MethodPlanOut.of(plan) for plan in compared],
        takes=comparison.taken(compared),
        measured=measured,
    )


def _measured(
    metrics: Sequence[sets.Metric], model: Model, version: Version, run: Run
) -> Iterator[contract.MeasuredVersionOut]:
    """Yield the version with the first of `metrics` that was measured for it; yield nothing if none was measured."""
    mechanism = stored_mechanism(model.mechanism)
    values = [(metric, value) for metric in metrics if (value := quality.value_of(metric, version.metrics)) is not None]
    for metric, value in values[:1]:
        yield contract.MeasuredVersionOut(
            model_id=model.id,
            name=model.name,
            version=version.number,
            live=version.status == sets.VersionStatus.LIVE,
            kind=sets.RunKind(run.kind),
            epsilon=model.epsilon,
            l2=mechanism.l2,
            passes=run.steps_total / mechanism.num_batches,
            metric=metric,
            value=value,
            published_at=version.published_at,
        )


@gateway.serves(accounting_router, contract.MODEL)
def get_account(call: calls.Call, model_id: str, query: contract.AccountQuery) -> contract.AccountOut:
    with call.reading() as session:
        model = catalogue.get_model(session, model_id)
        catalogue.require_kept(model)
        standing = accounting.standing(session, model)
        chain = standing.chain
        plan = planner.forget(chain, records=1, epsilon=model.epsilon, delta=model.delta)
        epsilon, delta = _asked(datasets.get(session, model.dataset_id), query.adaptive_epsilon, query.adaptive_delta)
        releases_left = _left(session, model, chain, epsilon=epsilon, delta=delta)
        releases = insight_repository.count_versions(session, model_id=model.id)
        waits = waiting.for_models(session, [model])[model.id]
    reset = costs.reset(model, at_most=call.installation.settings.max_steps)
    without = costs.epsilon_without_steps(chain, records=1, delta=model.delta)
    return contract.AccountOut(
        model_id=model.id,
        version=model.live_version or 0,
        influence=chain.influence,
        noise_variance=chain.variance,
        mu=methods.of(chain.mechanism).unlearning_mu(chain),
        guarantees=guarantees_to_response(standing.guarantees),
        waiting=WaitingOut.of(waits),
        releases=releases,
        reset=contract.ResetOut(steps=reset[0], guarantee=guarantees_to_response([reset[1]])[0]) if reset else None,
        next_request=contract.NextRequestOut(kind=plan.kind, steps=plan.steps, epsilon_without_steps=without),
        releases_left=releases_left,
    )


@gateway.serves(accounting_router, contract.DELETION_REQUEST)
def get_request_account(call: calls.Call, request_id: str) -> contract.RequestAccountOut:
    with call.reading() as session:
        problems.RequestUnknown.if_none(session.get(DeletionRequest, request_id), request_id=request_id)
        stored = accounting_repository.certificates_of(session, request_id=request_id)
        certificates.require_whole(certificates.damaged(call.installation.keys, stored))
        statements = costs.statements_of(session, request_id=request_id)
        joint = joint_to_response(accounting.joint_of(session, request_id=request_id))
    models = [
        contract.StatementOut(
            model_id=statement.certificate.model_id,
            certificate_id=statement.certificate.id,
            version=statement.certificate.version,
            signed=guarantees_to_response(statement.signed),
            today=guarantees_to_response(statement.today),
        )
        for statement in statements
    ]
    return contract.RequestAccountOut(request_id=request_id, models=models, joint=joint)


@gateway.serves(accounting_router, contract.DATASET)
def get_dataset_account(call: calls.Call, dataset_id: str, query: contract.AccountQuery) -> contract.DatasetAccountOut:
    with call.reading() as session:
        dataset = datasets.get(session, dataset_id)
        exposed = budgets.exposures(session, dataset_id=dataset.id, records=1)
        # Models lost in a restore have exposures but no account.
        models = accounting_repository.models_of(session, dataset_id=dataset.id)
        epsilon, delta = _asked(dataset, query.adaptive_epsilon, query.adaptive_delta)
        by_model = [
            _budget(
                session,
                model,
                exposed[model.id],
                epsilon=epsilon,
                delta=delta,
                max_requests=call.installation.settings.max_requests_per_run,
            )
            for model in models
        ]
    used = None
    if models and any(exposure.releases for exposure in exposed.values()):
        delta = delta or min(model.delta for model in models)
        mu = methods.adaptive_mu(exposed.values())
        used = guarantees_to_response([guarantees.guarantee(guarantees.Notion.ADAPTIVE, mu=mu, delta=delta)])[0]
    return contract.DatasetAccountOut(dataset_id=dataset.id, used=used, models=by_model)


def _budget(
    session: Session,
    model: Model,
    exposed: accountant.Exposure,
    *,
    epsilon: float | None,
    delta: float | None,
    max_requests: int,
) -> contract.ModelBudgetOut:
    plan, records = queue.next_run(session, model, max_requests=max_requests)
    waits = records > 0 or model.wanted is not None
    room = releases_left = None
    large: list[tuple[str, int]] = []
    if model.live_version is not None:
        chain = accounting.standing(session, model).chain
        room = costs.room(chain, epsilon=model.epsilon, delta=model.delta)
        large = insight_repository.larger_requests(session, model, records=room, limit=100)
        releases_left = _left(session, model, chain, epsilon=epsilon, delta=delta)
    return contract.ModelBudgetOut(
        model_id=model.id,
        version=model.live_version,
        target=TargetOut(epsilon=model.epsilon, delta=model.delta),
        releases=sum(count for _, count in exposed.releases),
        mu=methods.adaptive_mu([exposed]),
        releases_left=releases_left,
        room=room,
        next_run=_next_run(plan, records) if waits else None,
        relearning=[contract.LargeRequestOut(request_id=request_id, records=rows) for request_id, rows in large],
    )


def _next_run(plan: planner.Plan, records: int) -> contract.NextRunOut:
    reason = sentences.of_plan(plan.reason, plan.facts)
    return contract.NextRunOut(kind=plan.kind, steps=plan.steps, reason=reason, records=records)


def _asked(dataset: Dataset, epsilon: float | None, delta: float | None) -> tuple[float | None, float | None]:
    """Return the epsilon and delta of the query's budget or, if the query has none, of the dataset's own budget."""
    own = budgets.of(dataset)
    return (own.epsilon, own.delta) if own and epsilon is None and delta is None else (epsilon, delta)


def _left(
    session: Session, model: Model, chain: accountant.Chain, *, epsilon: float | None, delta: float | None
) -> contract.ReleasesLeftOut:
    """Return how many more versions, each forgetting one record, fit a budget (default: the model's target)."""
    plan = planner.forget(chain, records=1, epsilon=model.epsilon, delta=model.delta)
    epsilon, delta = epsilon or model.epsilon, delta or model.delta
    count = costs.releases_left(session, model, records=1, steps=plan.steps, epsilon=epsilon, delta=delta)
    return contract.ReleasesLeftOut(epsilon=epsilon, delta=delta, steps_per_release=plan.steps, records=1, count=count)


def guarantee_of(stated: dict[str, Any]) -> GuaranteeOut:
    """Return the guarantee stated in a ledger entry or certificate, with the best attacker's accuracy."""
    accuracy = conversion.gdp_balanced_accuracy(mu=stated["mu"])
    return GuaranteeOut(**stated | {"best_attacker_accuracy": accuracy})


def guarantees_to_response(stated: list[guarantees.Guarantee]) -> list[GuaranteeOut]:
    return [GuaranteeOut(**guarantee.stated()) for guarantee in stated]


MOUNTS = (gateway.Mount(router=router), gateway.Mount(router=accounting_router, by_accounting=True))
