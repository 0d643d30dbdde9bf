"""Call of `client.models` that predicts records."""

from lethe.client.methods import H, Resource, call
from lethe.features.predictions import contract


class ModelPredictions(Resource[H]):
    """Call of `client.models` that predicts."""

    predictions = call(contract.PREDICT)
