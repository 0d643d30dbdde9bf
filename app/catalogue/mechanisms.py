"""A model's mechanism, fixed before training and derived from public facts only."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from app.catalogue import datasets
from app.db.tables import Dataset
from lethe.contract.fields import expected
from lethe.contract.models import ModelIn, TargetIn
from lethe.contract.problems import FieldError, PreconditionFailed, Sentence, TargetUnreachable
from lethe.proof import accountant, calibration, errors, methods, network
from lethe.proof.losses import Objective, num_weight_rows
from lethe.proof.mechanism import Mechanism

_OF_THE_BODY = [field.name for field in fields(calibration.ModelSettings) if field.name in ModelIn.model_fields]


def default_delta(dataset: Dataset) -> float:
    """Return a dataset's default delta, 1 / num_slots^1.1."""
    return float(dataset.num_slots**-1.1)


def delta_of(dataset: Dataset, target: TargetIn) -> float:
    """Return the delta of a target, or the dataset's default if the target has none."""
    return default_delta(dataset) if target.delta is None else target.delta


def _settings(dataset: Dataset, model: ModelIn) -> calibration.ModelSettings:
    return calibration.ModelSettings(
        epsilon=model.target.epsilon,
        delta=delta_of(dataset, model.target),
        **{name: getattr(model, name) for name in _OF_THE_BODY},
    )


def of(
    dataset: Dataset,
    model: ModelIn,
    *,
    max_steps: int,
    tangent: tuple[network.PublicNetwork, int] | None = None,
    encoder: network.PublicNetwork | None = None,
) -> Mechanism:
    """Return the mechanism for the model requested in `model`.

    `tangent` is the network whose weights the model adjusts, with the model's number of parameters, and `encoder` the
    network that computed the features. Raises `PreconditionFailed` if the method is not installed or lacks a requested
    option, if the mechanism has no guarantee or the dataset does not support the objective, and `TargetUnreachable` if
    no number of steps up to `max_steps` reaches (epsilon, delta) for a single deletion.
    """
    settings, installed = _settings(dataset, model), methods.all_methods()
    if model.method not in installed or model.mechanism not in (None, model.method):
        raise _refused("There is no such method here.", method=expected(installed, found=model.method))
    with refusals():
        try:
            mechanism: Mechanism = installed[model.method].calibrate(
                settings,
                **problem_of(dataset, model.objective, model.loss_width) | _of_tangent(tangent, encoder),
                class_weights=_weights(dataset, model.class_weights),
            )
            if mechanism.learn_steps > max_steps:
                raise errors.InfeasibleError(f"Expected learn_steps={mechanism.learn_steps} <= {max_steps}: raise l2")
            if installed[model.method].continues:
                learned, delta = (
                    accountant.replay(mechanism, [accountant.Run(steps=mechanism.learn_steps)]),
                    settings.delta,
                )
                calibration.least_steps(learned, records=1, epsilon=settings.epsilon, delta=delta, at_most=max_steps)
        except errors.InfeasibleError as error:
            raise TargetUnreachable("{error}. Raise l2, noise_scale or the target.", error=str(error)) from error
    return mechanism


@contextmanager
def refusals() -> Iterator[None]:
    """Convert the accountant's errors to request problems."""
    try:
        yield
    except errors.PrivacyError as error:
        raise PreconditionFailed(str(error)) from error
    except ArithmeticError as error:
        raise PreconditionFailed("A setting is too large or too small to compute with.") from error


def _weights(dataset: Dataset, by_class: dict[str, float] | None) -> tuple[float, ...] | None:
    """Return the class weights in the order of the classes, scaled to a maximum of 1; None for equal weights. Raises
    `PreconditionFailed` for an unknown class."""
    if not by_class:
        return None
    if dataset.target or datasets.has_labels(dataset):
        raise _refused("Only a dataset with classes has class_weights.", class_weights="expected none")
    for name in by_class:
        if name not in dataset.classes:
            raise _refused("There is no such class.", class_weights=expected(tuple(dataset.classes), found=name))
    weights = [by_class.get(name, 1.0) for name in dataset.classes]
    return tuple(weight / max(weights) for weight in weights)


def problem_of(dataset: Dataset, objective: str | None, loss_width: float | None) -> dict[str, Any]:
    """Return the settings that a mechanism derives from its dataset and objective. Raises `PreconditionFailed`."""
    chosen = _objective(dataset, objective)
    if loss_width is not None and not chosen.has_width:
        raise _refused(Sentence("The loss of {objective} has no width.", objective=chosen), loss_width="expected none")
    num_classes = 1 if dataset.target else len(dataset.classes)
    return {
        "num_slots": dataset.num_slots,
        "num_classes": num_classes,
        "objective": chosen,
        # One more feature than the rows have, for the bias.
        "num_parameters": num_weight_rows(num_classes, chosen) * (dataset.num_features + 1),
        "weight_bound": datasets.weight_bound_of(dataset),
    }


def _of_tangent(
    tangent: tuple[network.PublicNetwork, int] | None, encoder: network.PublicNetwork | None
) -> dict[str, Any]:
    if encoder or not tangent:
        return {"network": encoder} if encoder else {}
    return {"network": tangent[0], "num_parameters": tangent[1]}


def _objective(dataset: Dataset, name: str | None) -> Objective:
    """Return the requested objective, or the default. Raises `PreconditionFailed` if the dataset does not support
    it."""
    kind, allowed = _learnable(dataset)
    if name is None:
        return allowed[0]
    if name not in allowed:
        raise _refused(f"This dataset has {kind}, which {name} does not learn.", objective=expected(allowed))
    return Objective(name)


def _learnable(dataset: Dataset) -> tuple[str, tuple[Objective, ...]]:
    """Return the kind of a dataset's labels, for messages, and the objectives that support them, default first."""
    if target := datasets.target_of(dataset):
        if target.counts:
            return "counts", (Objective.POISSON_REGRESSION, Objective.HUBER_REGRESSION, Objective.LEAST_SQUARES)
        return "a target", (Objective.HUBER_REGRESSION, Objective.LEAST_SQUARES)
    if datasets.has_labels(dataset):
        return "several labels a record", (Objective.MULTILABEL_LOGISTIC_REGRESSION,)
    if len(dataset.classes) == 2:
        return "two classes", (Objective.LOGISTIC_REGRESSION, Objective.SMOOTHED_HINGE)
    return f"{len(dataset.classes)} classes", (Objective.LOGISTIC_REGRESSION,)


def _refused(detail: str, **messages: str) -> PreconditionFailed:
    return PreconditionFailed(detail, [FieldError(field, message) for field, message in messages.items()])
