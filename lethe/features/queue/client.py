"""`client.runs` call that returns the work queue."""

from lethe.client.methods import H, Resource, call
from lethe.features.queue import contract


class RunQueue(Resource[H]):
    """Call of `client.runs` that returns the work queue."""

    queue = call(contract.QUEUE)
