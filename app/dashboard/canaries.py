"""Canary tests of a model over time: what each run's canaries proved, beside what was certified of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Response

from app.api import models, runs
from app.api.calls import Cursor
from app.dashboard import pages
from app.dashboard.languages import gettext, inside
from app.dashboard.request_context import TheContext
from app.dashboard.wording import run_kind
from lethe.contract.runs import AuditOut, RunOut

router = pages.new_router()

_RUNS = 60
_VERSIONS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """A run and what its canaries showed. `version`: that it published, if it did. `share`: of the epsilon that is
    certified, how much is proved."""

    run: RunOut
    audit: AuditOut
    version: int | None
    share: float


@router.get("/models/{model_id}/canary-tests")
def show_canary_tests(context: TheContext, model_id: str, cursor: Cursor = None) -> Response:
    """Plot what was proved and what is certified of one record, run by run, and name the worst first."""
    model = context.ask(models.get_model, model_id=model_id)
    found = context.ask(runs.list_runs, model_id=model_id, limit=_RUNS, cursor=cursor)
    published = context.ask(models.list_versions, model_id=model_id, limit=_VERSIONS).items
    oldest_first = tested(found.items[::-1], {version.run_id: version.number for version in published})
    return context.page(
        "models/canary_tests.html",
        model=model,
        tests=worst_first(oldest_first),
        plot=drawn(oldest_first),
        next_cursor=found.next_cursor,
        cursor=cursor,
    )


def tested(found: Sequence[RunOut], versions: dict[str, int]) -> list[Tested]:
    """The runs that canaries took part in, in the order given."""
    return [
        Tested(
            run=run,
            audit=run.audit,
            version=versions.get(run.id),
            share=run.audit.epsilon_lower_bound / run.audit.epsilon if run.audit.epsilon else 0.0,
        )
        for run in found
        if run.audit is not None
    ]


def worst_first(tests: Sequence[Tested]) -> list[Tested]:
    """Those that refuted their run before all others; among each, those that proved most of what is certified."""
    return sorted(tests, key=lambda one: (not one.audit.findings, -one.share))


def drawn(tests: Sequence[Tested]) -> dict[str, Any]:
    """Both epsilons, run by run, as `dashboard.js` plots them."""
    return {
        "columns": [gettext("run"), gettext("certified, at most"), gettext("proved, at least")],
        "rows": [[place, one.audit.epsilon, one.audit.epsilon_lower_bound] for place, one in enumerate(tests, 1)],
        "names": [_name(one) for one in tests],
        "ticks": [[place, _short(one)] for place, one in enumerate(tests, 1)],
        "x": "",
        "y": gettext("ε of one record"),
        "log": False,
        "height": 280,
    }


def _name(one: Tested) -> str:
    kind, day = run_kind(one.run.kind), f"{one.run.started_at:%Y-%m-%d}"
    if not one.version:
        return f"{kind}, {day}"
    return gettext("{kind}, version {version}, {day}").format(kind=kind, version=one.version, day=day)


def _short(one: Tested) -> str:
    return f"v{one.version}" if one.version else inside(run_kind(one.run.kind))
