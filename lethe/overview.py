"""`client.overview`: how a tenant's requests stand, in numbers."""

from lethe.contract import overview
from lethe.methods import H, Resource, call


class Overview(Resource[H]):
    get = call(overview.GET)
