from benchmarks import schedules
from lethe.proof import accountant
from lethe.proof.accountant import Chain, Run
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism

MNIST = 11982
TARGET = {"epsilon": 1.0, "delta": 1 / MNIST}


def converged(*, l2: float, noise_scale: float, step_size: float | None = None) -> Chain:
    """Return the two-class MNIST model of Chien et al. (2024) after many steps."""
    mechanism = Mechanism(
        objective=Objective.LOGISTIC_REGRESSION,
        num_slots=MNIST,
        num_classes=2,
        l2=l2,
        step_size=step_size or 1 / (0.25 + l2),
        noise_scale=noise_scale,
        radius=1.0,
        learn_steps=5000,
    )
    return accountant.replay(mechanism, [Run(steps=5000)])


def replaced(chain: Chain, *, batch: int, epsilon: float) -> list[int]:
    """Return the steps of each batch for 100 deletions. With `replace` adjacency, each deletion counts as two
    records."""
    batches = [2 * batch] * (100 // batch)
    return schedules.schedule(chain, batches=batches, epsilon=epsilon, delta=1 / MNIST, at_most=1000)
