"""`client.dp_models`: calls about models trained elsewhere with differential privacy."""

from lethe.client.methods import H, Keyed, Resource, call, pages
from lethe.features.ledgers import contract


class _NewDpModel(contract.DpModelIn, Keyed):
    pass


class DpModels(Resource[H]):
    """Models that were trained elsewhere with differential privacy, with their ledgers."""

    create = call(contract.CREATE, _NewDpModel)
    list = pages(contract.LIST)
    get = call(contract.GET)
    renew = call(contract.RENEW)
    retire = call(contract.RETIRE)
