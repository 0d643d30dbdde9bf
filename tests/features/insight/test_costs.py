"""The cost of a target from public numbers."""

import math

from lethe.features.insight import costs, margins
from lethe.proof import accountant, calibration
from lethe.proof.accountant import Run


def test_a_smaller_target_never_costs_less() -> None:
    """Along the cost curve, the noise never increases with epsilon. Each entry agrees with the accountant, or is the
    cost of retraining if that is no higher."""
    delta, found = 1e-4, []
    for epsilon in costs.EPSILONS:
        made = calibration.mechanism_for(
            calibration.ModelSettings(epsilon=epsilon, delta=delta, l2=2e-3), num_slots=2000, num_classes=3
        )
        cost = costs.of(made, epsilon=epsilon, delta=delta)
        assert cost.request_passes is not None
        steps = round(cost.request_passes * made.num_batches)
        chain = accountant.replay(made, [Run(steps=made.learn_steps)])
        reached = margins.least_epsilon(chain, records=1, steps=steps, delta=delta)
        assert reached <= epsilon or steps == made.learn_steps
        assert math.isclose(cost.learn_passes, made.learn_steps / made.num_batches)
        found.append(cost.noise)
    assert found == sorted(found, reverse=True)


def test_an_unreachable_target_has_no_cost() -> None:
    """If no number of steps can reach the target, the number of passes is None."""
    made = calibration.mechanism_for(
        calibration.ModelSettings(epsilon=1.0, delta=1e-5, l2=1e-6, noise_scale=1e-3),
        num_slots=1000,
        num_classes=2,
        num_parameters=10**9,
    )
    assert costs.of(made, epsilon=1e-9, delta=1e-300).request_passes is None
