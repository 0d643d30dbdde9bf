"""Dangers, in words: what of an installation needs somebody, why, and where to look."""

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from app.dashboard.pages import ROOT
from app.dashboard.wording import count, duration
from lethe.contract.overview import OverviewOut
from lethe.contract.sets import DeliveryStatus, WorkerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Danger:
    """`what`: how much of what it is, which leads to `path`; `why`: the rest of the sentence; `tone`: bad or warn."""

    what: str
    why: str
    path: str
    tone: str = "bad"


def dangers(numbers: OverviewOut, *, at: datetime.datetime, risk_days: float) -> list[Danger]:
    """The worst first."""
    return [*_of_workers(numbers), *_of_requests(numbers, risk_days), *_of_models(numbers), *_of_the_rest(numbers, at)]


def _of_workers(numbers: OverviewOut) -> Iterator[Danger]:
    if numbers.workers is WorkerState.SILENT:
        why = "has given a sign of life for a minute: nobody is being forgotten now. Start one, or look at its log."
        yield Danger(what="No worker", why=why, path=f"{ROOT}/runs")
    elif numbers.workers is WorkerState.FAILING:
        yield Danger(what="The last runs", why="all failed.", path=f"{ROOT}/runs?status=unresolved")
    silent = [host.name for host in numbers.hosts if host.workers is WorkerState.SILENT]
    if silent and numbers.workers is not WorkerState.SILENT:
        why = f"of {len(numbers.hosts):,} with workers gave no sign of life for a minute: {', '.join(silent)}."
        yield Danger(what=count(len(silent), "host"), why=why, path=f"{ROOT}/runs", tone="warn")


def _of_requests(numbers: OverviewOut, risk_days: float) -> Iterator[Danger]:
    if numbers.overdue:
        why = f"{_is(numbers.overdue)} past the deadline of the law."
        yield Danger(
            what=count(numbers.overdue, "request"), why=why, path=f"{ROOT}/requests?due=overdue&order=deadline"
        )
    if numbers.at_risk:
        path = f"{ROOT}/requests?due=soon&order=deadline"
        why = f"{_is(numbers.at_risk)} due within {risk_days:.0f} days."
        yield Danger(what=count(numbers.at_risk, "request"), why=why, path=path, tone="warn")


def _of_models(numbers: OverviewOut) -> Iterator[Danger]:
    models = numbers.models
    if models.failed:
        why = "could not be learned, and is not tried again by itself."
        if models.failed > 1:
            why = "could not be learned, and are not tried again by themselves."
        yield Danger(what=count(models.failed, "model"), why=why, path=f"{ROOT}/models?danger=failed")
    if models.audits_refused:
        why = "had the last canary test refute a run, which published nothing."
        yield Danger(what=count(models.audits_refused, "model"), why=why, path=f"{ROOT}/models?danger=audit_refused")

    if models.held:
        why = "missed the quality gate and is not served: release the version, or learn again."
        if models.held > 1:
            why = "missed their quality gates and are not served: release the versions, or learn again."
        yield Danger(what=count(models.held, "model"), why=why, path=f"{ROOT}/models?danger=held")
    served = models.degraded - models.held
    if served > 0:
        why = (
            "is served although it misses the quality gate." if served == 1 else "are served below their quality gates."
        )
        yield Danger(what=count(served, "model"), why=why, path=f"{ROOT}/models?danger=degraded", tone="warn")


def _of_the_rest(numbers: OverviewOut, at: datetime.datetime) -> Iterator[Danger]:
    if numbers.failed_runs:
        total = sum(numbers.failed_runs.values())
        why = f"failed, and no later run made good for them: {_by_number(numbers.failed_runs)}."
        yield Danger(what=count(total, "run"), why=why, path=f"{ROOT}/runs?status=unresolved")
    dead = numbers.undelivered.get(DeliveryStatus.DEAD, 0)
    if dead:
        why = f"{_is(dead)} given up: the receiver was not reached for three days."
        yield Danger(
            what=count(dead, "webhook delivery", "webhook deliveries"), why=why, path=f"{ROOT}/deliveries?status=dead"
        )
    late = numbers.undelivered.get(DeliveryStatus.PENDING, 0)
    if late:
        why = "did not arrive yet, and will be tried again."
        path = f"{ROOT}/deliveries?status=undelivered"
        yield Danger(what=count(late, "webhook delivery", "webhook deliveries"), why=why, path=path, tone="warn")
    if numbers.backups.is_late:
        last_at = numbers.backups.last_at
        why = f"was finished {duration((at - last_at).total_seconds())} ago." if last_at else "was ever made."
        what = "The last backup" if last_at else "No backup"
        yield Danger(what=what, why=why, path=f"{ROOT}/audit-log?action=installation.backed_up", tone="warn")


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _by_number(counts: Mapping[str, int]) -> str:
    most_first = sorted(counts, key=lambda name: (-counts[name], name))
    return ", ".join(f"{counts[name]:,} × {name}" for name in most_first)
