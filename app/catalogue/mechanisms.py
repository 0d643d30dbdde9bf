"""The mechanism that a model of a dataset has: settled before it learns, by public facts alone."""

from app.db.tables import Dataset
from lethe.contract.problems import PreconditionFailed, TargetUnreachable
from lethe.proof import accountant
from lethe.proof.accountant import Run
from lethe.proof.errors import InfeasibleError, PrivacyError
from lethe.proof.mechanism import Mechanism, num_weight_rows
from lethe.theorems import calibration


def default_delta(dataset: Dataset) -> float:
    """1 / num_slots^1.1"""
    return float(dataset.num_slots**-1.1)


def of(
    dataset: Dataset,
    *,
    epsilon: float,
    delta: float,
    l2: float | None,
    noise_scale: float | None,
    step_size: float | None,
    radius: float | None,
    learn_steps: int | None,
    batch_size: int | None,
    cool_down: int | None,
    max_steps: int,
) -> Mechanism:
    """As it was asked for, and by default where it was not.

    Raises `PreconditionFailed` when the mechanism has no guarantee, `TargetUnreachable` when a single deletion could
    not be brought to (epsilon, delta) within `max_steps`.
    """
    try:
        mechanism = calibration.mechanism_for(
            num_slots=dataset.num_slots,
            num_classes=len(dataset.classes),
            num_parameters=num_weight_rows(len(dataset.classes)) * (dataset.num_features + 1),  # the bias
            epsilon=epsilon,
            delta=delta,
            l2=l2,
            noise_scale=noise_scale,
            step_size=step_size,
            radius=radius,
            learn_steps=learn_steps,
            batch_size=batch_size,
            cool_down=cool_down,
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
