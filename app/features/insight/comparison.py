"""Plans for a dataset, from public numbers alone: costs of Langevin models by target, and a comparison of methods."""

from collections import Counter
from dataclasses import dataclass

from app.catalogue import mechanisms
from app.db.tables import Dataset
from app.unlearning import planner
from lethe.contract import models, problems
from lethe.features.insight import costs
from lethe.proof import accountant, budget, calibration, guarantees, losses, methods
from lethe.proof.mechanism import Mechanism

REQUESTS = (1, 10, 100)
"""Numbers of requests for which `adaptive` is compared."""
DECISIVE = 10
"""Number of requests at which the methods' `adaptive` epsilons are compared in order to choose a method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodPlan:
    """Default model of one method. If no such model is possible, `refused` is the reason, and all numbers are None.

    `learn_passes` and `request_passes` are the passes for training and the first request, or their cap. `deletion` is
    the epsilon on the first requester's certificate, `release` a record's epsilon in the first version, and `adaptive`
    its epsilon over all versions, for each number of other people's requests in `REQUESTS`.
    """

    method: str
    refused: str | None = None
    learn_passes: float | None = None
    request_passes: float | None = None
    deletion: float | None = None
    release: float | None = None
    adaptive: tuple[float, ...] | None = None


def costs_of(
    dataset: Dataset, *, objective: str | None, loss_width: float | None, l2: float | None
) -> tuple[losses.Objective, list[costs.Cost]]:
    """Return the objective and the costs of default models with the given settings, ordered by epsilon and then by l2.
    Raises `PreconditionFailed`."""
    problem, delta = mechanisms.problem_of(dataset, objective, loss_width), mechanisms.default_delta(dataset)
    chosen = problem["objective"]
    with mechanisms.refusals():
        all_costs = [
            costs.of(
                calibration.mechanism_for(
                    calibration.ModelSettings(epsilon=epsilon, delta=delta, l2=strength, loss_width=loss_width),
                    **problem,
                ),
                epsilon=epsilon,
                delta=delta,
            )
            for epsilon in costs.EPSILONS
            for strength in ([l2] if l2 else costs.around(dataset.num_slots, epsilon, chosen))
        ]
    return chosen, all_costs


def of_dataset(
    dataset: Dataset, *, objective: str | None, loss_width: float | None, l2: float | None, max_steps: int
) -> list[MethodPlan]:
    """Return each installed method's plan for the default target, with the core's method first."""
    plans = []
    for name in methods.all_methods():
        body = models.ModelIn.model_validate(
            {
                "name": "plan",
                "dataset_id": dataset.id,
                "method": name,
                "objective": objective,
                "loss_width": loss_width,
                "l2": l2,
            }
        )
        try:
            mechanism = mechanisms.of(dataset, body, max_steps=max_steps)
        except (problems.PreconditionFailed, problems.TargetUnreachable) as error:
            plans.append(MethodPlan(method=name, refused=error.detail))
            continue
        delta = mechanisms.delta_of(dataset, body.target)
        plans.append(_planned(mechanism, epsilon=body.target.epsilon, delta=delta))
    return plans


def taken(plans: list[MethodPlan]) -> str | None:
    """Among the methods whose `adaptive` after `DECISIVE` requests is within 1 % of the smallest, return the one with
    the fewest passes per request; None if no method supports the dataset."""
    at = REQUESTS.index(DECISIVE)
    known = [(plan.adaptive[at], plan) for plan in plans if plan.adaptive is not None]
    least = min((adaptive for adaptive, _ in known), default=0.0)
    near = [plan for adaptive, plan in known if adaptive <= 1.01 * least]
    return min(near, key=lambda plan: plan.request_passes or 0.0).method if near else None


def _planned(mechanism: Mechanism, *, epsilon: float, delta: float) -> MethodPlan:
    """Plan the first `DECISIVE` requests. Each later request is assumed to take as many steps as the last of these."""
    method, learned = methods.of(mechanism), planner.learn(mechanism)
    start = chain = methods.replay(mechanism, [accountant.Run(steps=learned.steps)])
    steps = []
    deletion_mu = 0.0
    for request in range(DECISIVE):
        plan = planner.forget(chain, records=1, epsilon=epsilon, delta=delta)
        chain = planner.after(chain, plan, records=1)
        steps.append(plan.steps)
        if request == 0:
            is_anew = chain.steps == plan.steps
            deletion_mu = method.deletion_mu(chain, records=1, steps_present=0 if is_anew else start.steps)
    adaptive = []
    for requests in REQUESTS:
        runs = Counter([learned.steps, *steps[:requests], *steps[-1:] * (requests - len(steps))])
        exposures = (accountant.exposed(mechanism, runs, records=1),)
        bound = budget.Adaptive(mu=methods.adaptive_mu(exposures), bounded=False, summed=exposures)
        adaptive.append(guarantees.adaptive(bound, delta=delta).epsilon)
    released = guarantees.of_chain(start, last_run=accountant.Run(steps=learned.steps), delta=delta)
    return MethodPlan(
        method=method.name,
        learn_passes=learned.steps / mechanism.num_batches,
        request_passes=steps[0] / mechanism.num_batches,
        deletion=guarantees.guarantee(guarantees.Notion.DELETION, mu=deletion_mu, delta=delta).epsilon,
        release=next(guarantee.epsilon for guarantee in released if guarantee.notion is guarantees.Notion.RELEASE),
        adaptive=tuple(adaptive),
    )
