"""`client.models` call that returns predictions for records."""

from lethe.client.methods import H, Resource, call
from lethe.features.predictions import contract


class ModelPredictions(Resource[H]):
    """Call of `client.models` that returns predictions."""

    predictions = call(contract.PREDICT)
