"""The mechanism that a model of a dataset has: settled before it learns, by public facts alone."""

from typing import Any

from app.catalogue import datasets
from app.db.tables import Dataset
from lethe.contract.problems import FieldError, PreconditionFailed, TargetUnreachable
from lethe.contract.spelling import expected
from lethe.proof import accountant
from lethe.proof.accountant import Run
from lethe.proof.errors import InfeasibleError, PrivacyError
from lethe.proof.losses import Objective, num_weight_rows
from lethe.proof.mechanism import Mechanism
from lethe.proof.network import PublicNetwork
from lethe.theorems import calibration, costs
from lethe.theorems.costs import Cost


def default_delta(dataset: Dataset) -> float:
    """1 / num_slots^1.1"""
    return float(dataset.num_slots**-1.1)


def of(
    dataset: Dataset,
    *,
    epsilon: float,
    delta: float,
    objective: str | None,
    loss_width: float | None,
    l2: float | None,
    noise_scale: float | None,
    step_size: float | None,
    radius: float | None,
    learn_steps: int | None,
    batch_size: int | None,
    cool_down: int | None,
    second_moment: float | None,
    class_weights: dict[str, float] | None,
    max_steps: int,
    tangent: tuple[PublicNetwork, int] | None = None,
) -> Mechanism:
    """As it was asked for, and by default where it was not. `tangent`: of which network, in how many parameters.

    Raises `PreconditionFailed` when the mechanism has no guarantee, or its objective is not one of what the dataset
    has; `TargetUnreachable` when a single deletion could not be brought to (epsilon, delta) within `max_steps`.
    """
    try:
        mechanism = calibration.mechanism_for(
            **_problem(dataset, objective, loss_width) | _of_tangent(tangent),
            epsilon=epsilon,
            delta=delta,
            l2=l2,
            noise_scale=noise_scale,
            step_size=step_size,
            radius=radius,
            learn_steps=learn_steps,
            batch_size=batch_size,
            cool_down=cool_down,
            second_moment=second_moment,
            class_weights=_weights(dataset, class_weights),
        )
        if mechanism.learn_steps > max_steps:
            raise InfeasibleError(f"Expected learn_steps={mechanism.learn_steps} <= {max_steps}: raise l2")
        learned = accountant.replay(mechanism, [Run(steps=mechanism.learn_steps)])
        calibration.least_steps(learned, records=1, epsilon=epsilon, delta=delta, at_most=max_steps)
    except InfeasibleError as error:
        raise TargetUnreachable(f"{error}. Raise l2, noise_scale or the target.") from error
    except PrivacyError as error:
        raise PreconditionFailed(str(error)) from error
    except ArithmeticError as error:
        raise PreconditionFailed("A setting is too large or too small to compute with.") from error
    return mechanism


def costs_of(
    dataset: Dataset, *, objective: str | None, loss_width: float | None, l2: float | None
) -> tuple[Objective, list[Cost]]:
    """The objective of a model by default but for what is asked for, and its costs, by epsilon and then
    by l2.

    Raises `PreconditionFailed`.
    """
    problem, delta = _problem(dataset, objective, loss_width), default_delta(dataset)
    chosen = problem["objective"]
    try:
        found = [
            costs.of(
                calibration.mechanism_for(**problem, epsilon=epsilon, delta=delta, l2=one), epsilon=epsilon, delta=delta
            )
            for epsilon in costs.EPSILONS
            for one in ([l2] if l2 else costs.around(dataset.num_slots, epsilon, chosen))
        ]
    except PrivacyError as error:
        raise PreconditionFailed(str(error)) from error
    except ArithmeticError as error:
        raise PreconditionFailed("A setting is too large or too small to compute with.") from error
    return chosen, found


def _weights(dataset: Dataset, asked: dict[str, float] | None) -> tuple[float, ...] | None:
    """A weight for each class, in their order, the largest 1. Raises `PreconditionFailed` for a name that is none."""
    if not asked:
        return None
    if dataset.target or datasets.has_labels(dataset):
        raise _refused("Only a dataset with classes has class_weights.", class_weights="expected none")
    for name in asked:
        if name not in dataset.classes:
            raise _refused("There is no such class.", class_weights=expected(tuple(dataset.classes), found=name))
    weights = [asked.get(name, 1.0) for name in dataset.classes]
    return tuple(weight / max(weights) for weight in weights)


def _problem(dataset: Dataset, objective: str | None, loss_width: float | None) -> dict[str, Any]:
    """The part of a mechanism that follows from its dataset and its objective. Raises `PreconditionFailed`."""
    chosen = _objective(dataset, objective)
    if loss_width is not None and not chosen.has_width:
        raise _refused(f"The loss of {chosen} has no width.", loss_width="expected none")
    num_classes = 1 if dataset.target else len(dataset.classes)
    return {
        "num_slots": dataset.num_slots,
        "num_classes": num_classes,
        "objective": chosen,
        "loss_width": loss_width,
        "num_parameters": num_weight_rows(num_classes, chosen) * (dataset.num_features + 1),  # the bias
        "weight_bound": datasets.weight_bound_of(dataset),
    }


def _of_tangent(tangent: tuple[PublicNetwork, int] | None) -> dict[str, Any]:
    return {"network": tangent[0], "num_parameters": tangent[1]} if tangent else {}


def _objective(dataset: Dataset, asked: str | None) -> Objective:
    """The objective that was asked for. Raises `PreconditionFailed` where it is not one of what the dataset has."""
    what, allowed = _learnable(dataset)
    if asked is None:
        return allowed[0]
    if asked not in allowed:
        raise _refused(f"This dataset has {what}, which {asked} does not learn.", objective=expected(allowed))
    return Objective(asked)


def _learnable(dataset: Dataset) -> tuple[str, tuple[Objective, ...]]:
    """The kind of what a dataset has, and the objectives that learn it, the default first."""
    if target := datasets.target_of(dataset):
        if target.counts:
            return "counts", (Objective.POISSON_REGRESSION, Objective.HUBER_REGRESSION, Objective.LEAST_SQUARES)
        return "a target", (Objective.HUBER_REGRESSION, Objective.LEAST_SQUARES)
    if datasets.has_labels(dataset):
        return "several labels a record", (Objective.MULTILABEL_LOGISTIC_REGRESSION,)
    if len(dataset.classes) == 2:
        return "two classes", (Objective.LOGISTIC_REGRESSION, Objective.SMOOTHED_HINGE)
    return f"{len(dataset.classes)} classes", (Objective.LOGISTIC_REGRESSION,)


def _refused(detail: str, **said: str) -> PreconditionFailed:
    return PreconditionFailed(detail, [FieldError(field, message) for field, message in said.items()])
