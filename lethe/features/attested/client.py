"""`client.trainers`."""

from lethe.client.methods import H, Keyed, Resource, call, pages
from lethe.features.attested import contract


class _NewTrainer(contract.TrainerIn, Keyed):
    pass


class Trainers(Resource[H]):
    """Trainers outside of Lethe, their manifests, and what may be served."""

    create = call(contract.CREATE, _NewTrainer)
    list = pages(contract.LIST)
    get = call(contract.GET)
    change = call(contract.CHANGE)
    retire = call(contract.RETIRE)
    identifiers = call(contract.IDENTIFIERS)
    accept = call(contract.ACCEPT)
    close = call(contract.CLOSE)
    serving = call(contract.SERVING)
