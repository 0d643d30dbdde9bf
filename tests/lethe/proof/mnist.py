from typing import Any

from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism

MNIST = 11982  # records of the digits 3 and 8, the experiment of Chien et al. (2024)
CONVERGED = 5000


def mechanism(**changed: Any) -> Mechanism:
    set_up = {"num_slots": 100, "num_classes": 2, "l2": 0.05, "step_size": 2.0, "noise_scale": 0.1, "radius": 1.0}
    return Mechanism(objective=Objective.LOGISTIC_REGRESSION, **{**set_up, "learn_steps": 50, **changed})


def mnist(*, l2: float = 0.0119, noise_scale: float = 0.03) -> Mechanism:
    return mechanism(num_slots=MNIST, l2=l2, step_size=1 / (0.25 + l2), noise_scale=noise_scale)
