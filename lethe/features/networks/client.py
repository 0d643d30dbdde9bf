"""`client.networks`: public networks, which compute the features that models are trained on."""

from lethe.client.methods import H, Keyed, Resource, call, pages, upload
from lethe.contract.fields import optional
from lethe.features.networks import contract as networks


class _Network(networks.NetworkFileIn, Keyed):
    name: str | None = optional("Name of the network. Default: the file's name.")


class Networks(Resource[H]):
    """Methods of `client.networks`."""

    upload = upload(networks.UPLOAD, _Network)
    list = pages(networks.LIST)
    get = call(networks.GET)
    file = call(networks.FILE)
    delete = call(networks.DELETE)


class DatasetEncodings(Resource[H]):
    """Methods of `client.datasets` for uploads that a public network encodes."""

    encodings = call(networks.ENCODINGS)
