"""Accuracy against epsilon against passes: what a target costs, and what versions have reached, drawn."""

from dataclasses import dataclass

from fastapi import Response

from app.api import models, plans
from app.dashboard import pages
from app.dashboard.languages import gettext, marked
from app.dashboard.request_context import RequestContext, TheContext
from lethe.contract.models import ModelIn, ModelOut
from lethe.contract.plans import MeasuredVersionOut, PlanOut

router = pages.new_router()

Rows = list[list[float | None]]
_SERIES = {
    1: (marked("to learn"), marked("to forget one")),
    3: (
        marked("to learn"),
        marked("to forget one, a quarter of l2"),
        marked("to forget one, l2 as by default"),
        marked("to forget one, four times l2"),
    ),
}
"""Names of the curves, by the number of l2 in a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A plan as `macros.html` plots it. `reached`: metric by epsilon of the versions in service; `versions`: metric by
    number of version of one model. `lived`: these, newest first; `others`: versions in service of other models."""

    columns: list[str]
    costs: Rows
    metric: str
    reached: Rows
    versions: Rows
    lived: list[MeasuredVersionOut]
    others: list[MeasuredVersionOut]


@router.get("/models/{model_id}/plan")
def show_plan(context: TheContext, model_id: str) -> Response:
    """Plot what targets cost on the rows of a model, and what its versions have reached."""
    model = context.ask(models.get_model, model_id=model_id)
    plan = context.ask(
        plans.get_plan,
        dataset_id=model.dataset_id,
        objective=model.objective,
        loss_width=model.mechanism.loss_width,
        metric=model.quality.metric if model.quality else None,
        l2=None,
    )
    return context.page("models/plan.html", model=model, drawing=drawn(plan, model))


def of_new(context: RequestContext, asked: ModelIn) -> Drawing | None:
    """The plan of a model that is not made yet; None where the caller may not ask for it."""
    if not context.may(plans.get_plan):
        return None
    plan = context.ask(
        plans.get_plan,
        dataset_id=asked.dataset_id,
        objective=asked.objective,
        loss_width=asked.loss_width,
        metric=asked.quality.metric if asked.quality else None,
        l2=asked.l2,
    )
    return drawn(plan)


def drawn(plan: PlanOut, model: ModelOut | None = None) -> Drawing:
    """The curves of a plan: of each epsilon the passes, and of each version what was measured."""
    epsilons = sorted({cost.epsilon for cost in plan.costs})
    at = {epsilon: [cost for cost in plan.costs if cost.epsilon == epsilon] for epsilon in epsilons}
    width = len(at[epsilons[0]])
    lived = [one for one in plan.measured if model and one.model_id == model.id]
    live = sorted((one for one in plan.measured if one.live), key=lambda one: one.epsilon)
    return Drawing(
        columns=["ε", *map(gettext, _SERIES[width])],
        costs=[
            [epsilon, costs[width // 2].learn_passes, *(cost.request_passes for cost in costs)]
            for epsilon, costs in at.items()
        ],
        metric=plan.measured[0].metric if plan.measured else "",
        reached=[[one.epsilon, one.value] for one in live],
        versions=[[one.version, one.value] for one in reversed(lived)],
        lived=lived,
        others=[one for one in live if one not in lived],
    )
