"""Calls needed to hand over a model: fetch a public network's file by the SHA-256 in the mechanism, and report what
happened to the resulting copies."""

import hashlib
from typing import Any

from lethe import Client
from lethe.contract.problems import NetworkUnknown, NotAllowed
from lethe.features.lineage.contract import CopyKind
from lethe.features.networks.contract import NetworkOut


def network_of(client: Client, sha256: str) -> tuple[NetworkOut, bytes]:
    """Return the network with this SHA-256 and its verified file. Raises `NetworkUnknown`."""
    for network in client.networks.list():
        if network.sha256 == sha256:
            content = client.networks.file(network.id)
            if hashlib.sha256(content).hexdigest() == sha256:
                return network, content
    raise NetworkUnknown(f"The network of SHA-256 {sha256} is not there.")


def name_copy(client: Client, model_id: str, version: int, *, kind: CopyKind, place: str) -> None:
    """Record the form and place of the newest of the caller's copies of a version whose form is not yet stated."""
    mine = client.models.exports(model_id, version=version, mine=True)
    unnamed = next((export for export in mine if export.kind is None), None)
    if unnamed is not None:
        client.models.state_copy(model_id, unnamed.id, kind=kind, place=place)


def state_copies(client: Client, model_id: str, version: int, *, kind: CopyKind, place: str, **stated: Any) -> None:
    """Record what happened to a version's copies at `place`. Copies received by other keys are left unchanged unless
    the caller is an admin."""
    for export in client.models.exports(model_id, version=version):
        if (export.kind, export.place) == (kind, place):
            try:
                client.models.state_copy(model_id, export.id, kind=kind, place=place, **stated)
            except NotAllowed:
                continue
