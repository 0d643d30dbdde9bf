"""The cost of forgetting more people: here, in batches, and by what others have published."""

from dataclasses import dataclass

from fastapi import Response

from app.api import models, previews, problems
from app.dashboard import pages
from app.dashboard.numbers import Above, Whole
from app.dashboard.request_context import RequestContext, TheContext
from lethe.contract.models import ModelOut
from lethe.contract.previews import PreviewIn, PreviewOut, RivalOut, RivalsOut
from lethe.contract.problems import ModelNotLive, NotFound, Problem

router = pages.new_router()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The settings of the sliders."""

    records: int
    epsilon: float
    batch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A way to serve the request. `share`: of the longest bar; None where it has no number of steps."""

    rival: RivalOut
    is_ours: bool
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to the sliders. `preview` is None, and `error` says why, where there is none."""

    ask: Ask
    preview: PreviewOut | None
    rivals: RivalsOut | None
    bars: list[Bar]
    error: Problem | None


@router.get("/models/{model_id}/what-if")
def show_what_if(
    context: TheContext, model_id: str, records: Whole = None, epsilon: Above = None, batch: Whole = None
) -> Response:
    """Show the answer alone for sliders that move; a page if the form is sent."""
    model = context.ask(models.get_model, model_id=model_id)
    ask = Ask(records=records or 1, epsilon=epsilon or model.target.epsilon, batch=batch)
    answer = _answered(context, model, ask)
    status = problems.status_of(type(answer.error)) if answer.error else 200
    return context.page("models/what_if.html", status=status, model=model, answer=answer)


def first(context: RequestContext, model: ModelOut) -> Answer | None:
    """The answer for one record more; None if the caller may not ask, or while there is no version to ask about."""
    if model.live_version is None or not context.may(previews.preview):
        return None
    answer = _answered(context, model, Ask(records=1, epsilon=model.target.epsilon, batch=None))
    return None if isinstance(answer.error, ModelNotLive) else answer


def _answered(context: RequestContext, model: ModelOut, ask: Ask) -> Answer:
    body = PreviewIn(model_id=model.id, num_records=ask.records, epsilon=ask.epsilon, batch=ask.batch)
    try:
        preview = context.ask(previews.preview, body=body)
        rivals = context.ask(
            previews.get_rivals, model_id=model.id, num_records=ask.records, epsilon=ask.epsilon, delta=None
        )
    except NotFound:
        raise
    except Problem as error:
        return Answer(ask=ask, preview=None, rivals=None, bars=[], error=error)
    return Answer(ask=ask, preview=preview, rivals=rivals, bars=_bars(rivals.rivals), error=None)


def _bars(rivals: list[RivalOut]) -> list[Bar]:
    longest = max((rival.steps for rival in rivals if rival.steps is not None), default=0)
    return [
        Bar(
            rival=rival,
            is_ours=rival.name == "lethe",
            share=None if rival.steps is None or not longest else 100 * rival.steps / longest,
        )
        for rival in rivals
    ]
