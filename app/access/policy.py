"""The bounds that a tenant's policy sets to the targets of its models."""

from lethe.contract.policy import Policy
from lethe.proof import target


def weakest(policy: Policy, *, num_slots: int) -> tuple[float, float]:
    """The largest epsilon and delta that the target of a model of so many slots may have."""
    return policy.max_epsilon, target.largest_delta(num_slots) if policy.max_delta is None else policy.max_delta
