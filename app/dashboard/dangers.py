"""Dangers, in words: what of an installation needs somebody, why, and where to look."""

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from app.dashboard.languages import gettext, ngettext
from app.dashboard.pages import ROOT
from app.dashboard.wording import count, duration, number
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
        why = gettext(
            "has given a sign of life for a minute: nobody is being forgotten now. Start one, or look at its log."
        )
        yield Danger(what=gettext("No worker"), why=why, path=f"{ROOT}/runs")
    elif numbers.workers is WorkerState.FAILING:
        path = f"{ROOT}/runs?status=unresolved"
        yield Danger(what=gettext("The last runs"), why=gettext("all failed."), path=path)
    silent = [host.name for host in numbers.hosts if host.workers is WorkerState.SILENT]
    if silent and numbers.workers is not WorkerState.SILENT:
        why = gettext("of {hosts} with workers gave no sign of life for a minute: {silent}.").format(
            hosts=number(len(numbers.hosts)), silent=", ".join(silent)
        )
        yield Danger(what=count(len(silent), "host", "hosts"), why=why, path=f"{ROOT}/runs", tone="warn")


def _of_requests(numbers: OverviewOut, risk_days: float) -> Iterator[Danger]:
    if numbers.overdue:
        why = ngettext("is past the deadline of the law.", "are past the deadline of the law.", numbers.overdue)
        path = f"{ROOT}/requests?due=overdue&order=deadline"
        yield Danger(what=count(numbers.overdue, "request", "requests"), why=why, path=path)
    if numbers.at_risk:
        path = f"{ROOT}/requests?due=soon&order=deadline"
        why = ngettext("is due within {days} days.", "are due within {days} days.", numbers.at_risk)
        why = why.format(days=f"{risk_days:.0f}")
        yield Danger(what=count(numbers.at_risk, "request", "requests"), why=why, path=path, tone="warn")


def _of_models(numbers: OverviewOut) -> Iterator[Danger]:
    models = numbers.models
    if models.failed:
        why = ngettext(
            "could not be learned, and is not tried again by itself.",
            "could not be learned, and are not tried again by themselves.",
            models.failed,
        )
        yield Danger(what=count(models.failed, "model", "models"), why=why, path=f"{ROOT}/models?danger=failed")
    if models.audits_refused:
        why = gettext("had the last canary test refute a run, which published nothing.")
        path = f"{ROOT}/models?danger=audit_refused"
        yield Danger(what=count(models.audits_refused, "model", "models"), why=why, path=path)

    if models.held:
        why = ngettext(
            "missed the quality gate and is not served: release the version, or learn again.",
            "missed their quality gates and are not served: release the versions, or learn again.",
            models.held,
        )
        yield Danger(what=count(models.held, "model", "models"), why=why, path=f"{ROOT}/models?danger=held")
    served = models.degraded - models.held
    if served > 0:
        why = ngettext(
            "is served although it misses the quality gate.", "are served below their quality gates.", served
        )
        path = f"{ROOT}/models?danger=degraded"
        yield Danger(what=count(served, "model", "models"), why=why, path=path, tone="warn")


def _of_the_rest(numbers: OverviewOut, at: datetime.datetime) -> Iterator[Danger]:
    if numbers.failed_runs:
        total = sum(numbers.failed_runs.values())
        why = gettext("failed, and no later run made good for them: {runs}.").format(
            runs=_by_number(numbers.failed_runs)
        )
        yield Danger(what=count(total, "run", "runs"), why=why, path=f"{ROOT}/runs?status=unresolved")
    dead = numbers.undelivered.get(DeliveryStatus.DEAD, 0)
    if dead:
        why = ngettext(
            "is given up: the receiver was not reached for three days.",
            "are given up: the receiver was not reached for three days.",
            dead,
        )
        what = count(dead, "webhook delivery", "webhook deliveries")
        yield Danger(what=what, why=why, path=f"{ROOT}/deliveries?status=dead")
    late = numbers.undelivered.get(DeliveryStatus.PENDING, 0)
    if late:
        why = gettext("did not arrive yet, and will be tried again.")
        path = f"{ROOT}/deliveries?status=undelivered"
        yield Danger(what=count(late, "webhook delivery", "webhook deliveries"), why=why, path=path, tone="warn")
    if numbers.backups.is_late:
        last_at, path = numbers.backups.last_at, f"{ROOT}/audit-log?action=installation.backed_up"
        if last_at is None:
            yield Danger(what=gettext("No backup"), why=gettext("was ever made."), path=path, tone="warn")
        else:
            why = gettext("was finished {duration} ago.").format(duration=duration((at - last_at).total_seconds()))
            yield Danger(what=gettext("The last backup"), why=why, path=path, tone="warn")


def _by_number(counts: Mapping[str, int]) -> str:
    most_first = sorted(counts, key=lambda name: (-counts[name], name))
    return ", ".join(f"{number(counts[name])} × {name}" for name in most_first)
