"""The file of a public network, by the SHA-256 by which a mechanism names it."""

import hashlib

from lethe.client import Client
from lethe.contract.networks import NetworkOut
from lethe.contract.problems import NetworkUnknown


def network_of(client: Client, sha256: str) -> tuple[NetworkOut, bytes]:
    """The network and its file, which has this SHA-256. Raises `NetworkUnknown`."""
    for found in client.networks.list():
        if found.sha256 == sha256 and hashlib.sha256(content := client.networks.file(found.id)).hexdigest() == sha256:
            return found, content
    raise NetworkUnknown(f"The network of SHA-256 {sha256} is not there.")
