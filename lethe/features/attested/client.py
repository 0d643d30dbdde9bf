"""`client.attested_trainers`: calls about trainers outside Lethe."""

from lethe.client.methods import H, Keyed, Resource, call, pages
from lethe.features.attested import contract


class _NewAttestedTrainer(contract.AttestedTrainerIn, Keyed):
    pass


class AttestedTrainers(Resource[H]):
    """Trainers outside of Lethe, their manifests, and permissions to serve their artefacts."""

    create = call(contract.CREATE, _NewAttestedTrainer)
    list = pages(contract.LIST)
    get = call(contract.GET)
    change = call(contract.CHANGE)
    retire = call(contract.RETIRE)
    identifiers = call(contract.IDENTIFIERS)
    accept = call(contract.ACCEPT)
    close = call(contract.CLOSE)
    serving = call(contract.SERVING)
