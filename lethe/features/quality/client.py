"""Calls about quality gates, and about remedies for models that miss them."""

from lethe.client.methods import H, Resource, call
from lethe.features.quality import contract


class ModelGates(Resource[H]):
    """Calls of `client.models` about quality gates."""

    update = call(contract.UPDATE)
    remove_gate = call(contract.REMOVE_GATE)
    release = call(contract.RELEASE)
    remedies = call(contract.REMEDIES)
