"""`client.lineage`: the lineage of a person's rows; and `client.models` calls about copies of weights."""

from lethe.client.methods import H, Resource, call, pages
from lethe.features.lineage import contract


class Lineage(Resource[H]):
    """Methods of `client.lineage`."""

    of_request = call(contract.OF_REQUEST)
    of_person = call(contract.OF_PERSON)


class ModelCopies(Resource[H]):
    """Methods of `client.models` for copies of weights and for checking whether they may be served."""

    exports = pages(contract.EXPORTS)
    state_copy = call(contract.STATE_COPY)
    serving = call(contract.SERVING)
