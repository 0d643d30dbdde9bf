"""`client.runs`: what the workers did and are doing."""

from lethe.contract import runs
from lethe.methods import H, Resource, call, pages


class Runs(Resource[H]):
    list = pages(runs.LIST)
    get = call(runs.GET)
    cancel = call(runs.CANCEL)
    queue = call(runs.QUEUE)
