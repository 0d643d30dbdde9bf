"""Public class weights: what a mechanism accepts, and that no constant changes."""

from dataclasses import replace

import pytest

from lethe.proof import calibration
from lethe.proof.errors import DomainError
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism


def made(weights: tuple[float, ...] | None, **changed: object) -> Mechanism:
    data = {"num_slots": 500, "num_classes": 3} | changed
    settings = calibration.ModelSettings(epsilon=1.0, delta=1e-5)
    return calibration.mechanism_for(settings, class_weights=weights, **data)  # type: ignore[arg-type]


def test_constants_do_not_depend_on_class_weights() -> None:
    """With a largest class weight of 1, all constants are the same as without weights, because no row moves a step
    farther and no curvature is larger. The mechanism's document states the weights, and the mechanism is read back from
    it unchanged."""
    weighted, plain = made((0.2, 1.0, 0.7)), made(None)
    assert replace(weighted, class_weights=None) == plain
    assert (weighted.gradient_bound, weighted.smoothness) == (plain.gradient_bound, plain.smoothness)
    document = weighted.to_json()
    assert document["class_weights"] == [0.2, 1.0, 0.7]
    assert Mechanism.from_json(document) == weighted
    assert "class_weights" not in plain.to_json()
    with pytest.raises(DomainError):
        Mechanism.from_json(document | {"class_weights": [0.2, 1.5, 0.7]})


@pytest.mark.parametrize(
    "wrong", [(1.0, 1.0), (0.5, 0.5, 0.5), (1.0, 2.0, 1.0), (1.0, 0.0, 1.0), (1.0, float("nan"), 1.0)]
)
def test_malformed_weights_are_refused(wrong: tuple[float, ...]) -> None:
    """Class weights must be above 0, with one per class and a maximum of 1. Other weights are refused."""
    with pytest.raises(DomainError):
        made(wrong)


def test_weights_need_classes() -> None:
    """A model with a numeric target, or with several labels per record, cannot have class weights."""
    with pytest.raises(DomainError):
        made((1.0,), num_classes=1, objective=Objective.HUBER_REGRESSION)
    with pytest.raises(DomainError):
        made((1.0, 0.5, 0.5), objective=Objective.MULTILABEL_LOGISTIC_REGRESSION)
