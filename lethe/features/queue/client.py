"""Call of `client.runs` about the queue of work."""

from lethe.client.methods import H, Resource, call
from lethe.features.queue import contract


class RunQueue(Resource[H]):
    """Call of `client.runs` about the queue."""

    queue = call(contract.QUEUE)
