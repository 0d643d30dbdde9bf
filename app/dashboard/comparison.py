"""Comparison of two versions of a model: what they predict, what they leave of anybody, and what they took."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query, Response

from app.api import curves, models, runs
from app.dashboard import pages
from app.dashboard.languages import gettext, inside
from app.dashboard.request_context import RequestContext, TheContext
from app.dashboard.wording import at_least, at_most, number, run_kind, state, words
from lethe.contract.curves import SegmentOut
from lethe.contract.models import ModelOut, VersionOut
from lethe.contract.runs import AuditOut, RunOut

router = pages.new_router()

_MOST_VERSIONS = 500
_MOST_SEGMENTS = 100
Number = Annotated[int | None, Query(ge=1, le=2**31 - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two versions. `life`: the part of the model's life that ended with it; None where the caller may not
    read accounts, or the ledger has none."""

    version: VersionOut
    run: RunOut
    life: SegmentOut | None

    @property
    def epsilons(self) -> dict[str, float | None]:
        """By notion, when the version was published."""
        return self.life.points[-1].epsilon.model_dump() if self.life else {}

    @property
    def delta(self) -> float | None:
        return self.life.guarantees[0].delta if self.life and self.life.guarantees else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the table: what it is about, what each version says, and by how much the second differs; None: there is
    nothing to say, or to subtract. `term`: its explanation."""

    label: str
    one: str | None
    other: str | None
    difference: str | None = None
    term: str | None = None


@router.get("/models/{model_id}/versions/compare")
def compare_versions(context: TheContext, model_id: str, one: Number = None, other: Number = None) -> Response:
    """Show two versions side by side: those that were picked, or the newest and the one before."""
    model = context.ask(models.get_model, model_id=model_id)
    known = context.ask(models.list_versions, model_id=model_id, limit=_MOST_VERSIONS).items
    numbers = [version.number for version in known]
    other = other or next(iter(numbers), None)
    one = one or next((number for number in numbers if other and number < other), other)
    groups: list[tuple[str, list[Line]]] = []
    if one and other:
        sides = _side(context, model_id, one), _side(context, model_id, other)
        groups = compared(model, *sides, may_account=context.may(curves.get_trajectory))
    choices = [(version.number, _choice(version)) for version in known]
    return context.page("models/compare.html", model=model, one=one, other=other, choices=choices, groups=groups)


def _choice(version: VersionOut) -> str:
    return f"{version.number}, {inside(state(version.status).label)}, {version.published_at:%Y-%m-%d}"


def _side(context: RequestContext, model_id: str, number: int) -> Side:
    version = context.ask(models.get_version, model_id=model_id, number=number)
    return Side(
        version=version,
        run=context.ask(runs.get_run, run_id=version.run_id),
        life=_life(context, model_id, number) if context.may(curves.get_trajectory) else None,
    )


def _life(context: RequestContext, model_id: str, number: int) -> SegmentOut | None:
    """The segment of a version. There are as many as versions unless some were lost with a backup: then it is among
    those before, or not found."""
    for limit in (1, _MOST_SEGMENTS):
        found = context.ask(
            curves.get_trajectory, model_id=model_id, points=2, limit=limit, cursor=str(number + 1)
        ).items
        segment = next((segment for segment in found if segment.version == number), None)
        if segment is not None:
            return segment
    return None


def compared(model: ModelOut, one: Side, other: Side, *, may_account: bool) -> list[tuple[str, list[Line]]]:
    """The lines by what they are about."""
    groups = [(gettext("Quality on evaluation data"), list(_metrics(model, one, other)))]
    if may_account:
        groups.append((gettext("Residual influence"), list(_epsilons(one, other))))
    groups.append((gettext("Run"), list(_work(model, one, other))))
    groups.append((gettext("Canary test"), list(_audits(one, other))))
    return [(title, lines) for title, lines in groups if lines]


def _metrics(model: ModelOut, one: Side, other: Side) -> Iterator[Line]:
    before, after = one.version.metrics, other.version.metrics
    for name in dict.fromkeys([*before, *after]):
        percents = name == "accuracy"
        yield _line(
            words(name),
            before.get(name),
            after.get(name),
            shown=_percent if percents else _spelled,
            unit=gettext(" points") if percents else "",
            factor=100 if percents else 1,
        )
    if model.quality is not None:
        yield Line(label=gettext("Quality gate"), one=_gate(one.version), other=_gate(other.version))


def _gate(version: VersionOut) -> str:
    if version.held:
        return gettext("misses it, held back")
    return gettext("misses it") if version.degraded else gettext("meets it")


def _epsilons(one: Side, other: Side) -> Iterator[Line]:
    before, after = one.epsilons, other.epsilons
    for notion in dict.fromkeys([*before, *after]):
        if before.get(notion) is not None or after.get(notion) is not None:
            yield _line(
                f"ε, {inside(words(notion))}", before.get(notion), after.get(notion), shown=at_most, term="epsilon"
            )
    yield _line("δ", one.delta, other.delta, shown=lambda value: at_most(value, 3), term="delta")


def _work(model: ModelOut, one: Side, other: Side) -> Iterator[Line]:
    yield Line(label=gettext("Kind"), one=run_kind(one.run.kind), other=run_kind(other.run.kind))
    yield _line(gettext("Steps"), one.run.steps_total, other.run.steps_total, term="steps")
    batches = max(1, model.mechanism.num_batches)
    passes = one.run.steps_total / batches, other.run.steps_total / batches
    yield _line(gettext("Passes"), *passes, shown=lambda value: number(value, 3), term="passes")
    yield _line(gettext("Rows nulled before it"), one.run.records, other.run.records, term="rows_nulled")
    yield _line(gettext("Seconds"), _seconds(one.run), _seconds(other.run), shown=lambda value: number(value, 3))


def _audits(one: Side, other: Side) -> Iterator[Line]:
    before, after = one.run.audit, other.run.audit
    if before is None and after is None:
        return
    yield Line(label=gettext("Result"), one=_result(before), other=_result(after))
    proved = [found and found.epsilon_lower_bound for found in (before, after)]
    yield _line(gettext("ε proved"), *proved, shown=at_least, term="proved")
    certified = [found and found.epsilon for found in (before, after)]
    yield _line(gettext("ε certified"), *certified, shown=at_most, term="certified")


def _result(audit: AuditOut | None) -> str | None:
    return None if audit is None else state("refused" if audit.findings else "passed").label


def _seconds(run: RunOut) -> float | None:
    return (run.finished_at - run.started_at).total_seconds() if run.finished_at else None


def _spelled(value: Any) -> str:
    return number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _percent(value: Any) -> str:
    return f"{number(100 * value)} %" if isinstance(value, int | float) else str(value)


def _line(
    label: str,
    one: Any,
    other: Any,
    *,
    shown: Callable[[Any], str] = _spelled,
    term: str | None = None,
    unit: str = "",
    factor: float = 1,
) -> Line:
    both = [value for value in (one, other) if isinstance(value, int | float) and not isinstance(value, bool)]
    return Line(
        label=label,
        one=None if one is None else shown(one),
        other=None if other is None else shown(other),
        difference=_signed(factor * (both[1] - both[0])) + unit if len(both) == 2 else None,
        term=term,
    )


def _signed(value: float) -> str:
    return "0" if value == 0 else ("+" if value > 0 else "−") + number(abs(value), 3)
