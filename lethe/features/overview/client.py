"""Call that returns an overview of a tenant's requests."""

from lethe.client.methods import H, Resource, call
from lethe.features.overview import contract


class Overview(Resource[H]):
    """`client.overview`: the state of a tenant's requests, in numbers."""

    get = call(contract.GET)
