"""Remedies follow from public numbers: less noise if noise matters, and less regularisation if it does not."""

import pytest

from app.features.quality import gates
from lethe.proof.calibration import ModelSettings, mechanism_for

EPSILON, DELTA = 1.0, 1e-5


@pytest.mark.parametrize(("num_slots", "factor"), [(1000, 2.0), (10_000_000, 0.5)])
def test_remedies_adapt_the_regularisation(num_slots: int, factor: float) -> None:
    """With few rows, noise matters, and the remedy doubles the regularisation to reduce it. With many rows, noise does
    not matter, and the remedy halves the regularisation."""
    now = mechanism_for(ModelSettings(epsilon=EPSILON, delta=DELTA), num_slots=num_slots, num_classes=2)
    found = {one.kind: one for one in gates.remedies(now, epsilon=EPSILON, delta=DELTA)}
    assert gates.is_noise_felt(now) is (factor > 1)
    assert found["l2"].mechanism.l2 == factor * now.l2
    if factor > 1:
        assert gates.score_noise(found["l2"].mechanism) < gates.score_noise(now)
        assert gates.score_noise(found["more_slots"].mechanism) < gates.score_noise(now)
    assert found["relearn"].mechanism is now
    assert found["more_slots"].mechanism.num_slots == 2 * num_slots


def test_remedies_are_ordered_by_training_cost() -> None:
    """Remedies are ordered by the number of passes needed for training. Serving a request never takes more passes than
    training."""
    now = mechanism_for(ModelSettings(epsilon=EPSILON, delta=DELTA), num_slots=2000, num_classes=3)
    found = gates.remedies(now, epsilon=EPSILON, delta=DELTA)
    assert [one.learn_passes for one in found] == sorted(one.learn_passes for one in found)
    assert all(0 < one.request_passes <= one.learn_passes for one in found)
