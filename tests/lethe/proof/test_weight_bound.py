"""The public bound on row weights: what a mechanism accepts, and that no constant changes."""

from dataclasses import replace

import pytest

from lethe.proof import accountant, calibration
from lethe.proof.accountant import Run
from lethe.proof.errors import DomainError, PreconditionError
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism

OBJECTIVES = [
    (Objective.LOGISTIC_REGRESSION, 2),
    (Objective.LOGISTIC_REGRESSION, 3),
    (Objective.MULTILABEL_LOGISTIC_REGRESSION, 3),
    (Objective.SMOOTHED_HINGE, 2),
    (Objective.HUBER_REGRESSION, 1),
    (Objective.LEAST_SQUARES, 1),
    (Objective.POISSON_REGRESSION, 1),
]


def made(bound: float | None, objective: Objective = Objective.LOGISTIC_REGRESSION, classes: int = 2) -> Mechanism:
    return calibration.mechanism_for(
        calibration.ModelSettings(epsilon=1.0, delta=1e-5),
        num_slots=500,
        num_classes=classes,
        objective=objective,
        weight_bound=bound,
    )


@pytest.mark.parametrize(("objective", "classes"), OBJECTIVES)
def test_constants_do_not_depend_on_the_weight_bound(objective: Objective, classes: int) -> None:
    """For every objective, all constants are the same with and without weights. The document of a mechanism with
    weights states the bound, and the mechanism is read back from it unchanged. Without weights, the document states no
    bound."""
    weighted, plain = made(10.0, objective, classes), made(None, objective, classes)
    assert replace(weighted, weight_bound=None) == plain
    assert (weighted.gradient_bound, weighted.smoothness) == (plain.gradient_bound, plain.smoothness)
    document = weighted.to_json()
    assert document == plain.to_json() | {"weight_bound": 10.0}
    assert Mechanism.from_json(document) == weighted
    assert "weight_bound" not in plain.to_json()


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_a_malformed_bound_is_refused(wrong: float) -> None:
    """A bound on weights that is not a finite number above 0 is refused."""
    with pytest.raises(DomainError):
        made(wrong)


def test_a_run_with_another_weight_bound_is_refused() -> None:
    """A run whose weight bound differs from that of its chain is refused, because the run would minimise another
    objective."""
    first = made(10.0)
    with pytest.raises(PreconditionError, match="weight_bound"):
        accountant.replay(first, [Run(steps=first.learn_steps), Run(steps=3, mechanism=made(5.0))])
