"""Calls for quality gates, and for remedies for models that miss them."""

from lethe.client.methods import H, Resource, call
from lethe.features.quality import contract


class ModelGates(Resource[H]):
    """Methods of `client.models` for quality gates and remedies."""

    update = call(contract.UPDATE)
    remove_gate = call(contract.REMOVE_GATE)
    release = call(contract.RELEASE)
    remedies = call(contract.REMEDIES)
