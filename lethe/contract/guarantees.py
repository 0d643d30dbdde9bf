"""Guarantees, as they are answered."""

from pydantic import Field

from lethe.contract.fields import Answer


class GuaranteeOut(Answer):
    notion: str
    adjacency: str
    mu: float
    epsilon: float
    delta: float
    reference_process: str
    best_attacker_accuracy: float = Field(
        description="Phi(mu/2), rounded up: how often the best attacker is right about which of two equally likely "
        "worlds they see, this one or the reference process."
    )


class TargetOut(Answer):
    epsilon: float
    delta: float


class JointOut(Answer):
    """All models that carried a person, together: where their noise is independent, mu^2 adds up. mu, epsilon, delta
    and best_attacker_accuracy are of `deletion`."""

    models: list[str]
    mu: float
    epsilon: float
    delta: float
    best_attacker_accuracy: float
    guarantees: list[GuaranteeOut] = Field(description="unlearning, deletion and adaptive, each of all these models.")
