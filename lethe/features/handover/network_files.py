"""Files of public networks, found by the SHA-256 that a mechanism states."""

import hashlib

from lethe import Client
from lethe.contract.problems import NetworkUnknown
from lethe.features.networks.contract import NetworkOut


def network_of(client: Client, sha256: str) -> tuple[NetworkOut, bytes]:
    """Return the network with this SHA-256 and its verified file. Raises `NetworkUnknown`."""
    for network in client.networks.list():
        if network.sha256 == sha256:
            content = client.networks.file(network.id)
            if hashlib.sha256(content).hexdigest() == sha256:
                return network, content
    raise NetworkUnknown(f"The network of SHA-256 {sha256} is not there.")
