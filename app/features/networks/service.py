"""Public networks: registered after an examination, loaded for use, linearised, and deleted once nothing uses them.

A network's file is in the database, in pieces. It is therefore committed and deleted with its row, is part of every
backup, and can be read by every gateway and worker. The file is public; its SHA-256 is checked at each read.
"""

import dataclasses
import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from app import config, turns
from app.audit import service as audit
from app.catalogue import datasets
from app.db import actor, bulk, now, tables
from app.features.networks import repository, under_way
from app.features.networks.tables import Network
from app.rows.formats import FeaturesOf
from lethe.contract import fields, models, problems
from lethe.encoding.rows import numbers_of
from lethe.features.networks import contract
from lethe.features.networks.encoders import process
from lethe.features.networks.encoders.limits import Limits
from lethe.features.networks.tangents.supported import unsupported
from lethe.proof.errors import PrivacyError
from lethe.proof.network import Linearisation, PublicNetwork

OF_TENANT = 3
"""Maximum number of concurrent network processes per tenant."""
IN_ALL = 6
"""Maximum number of concurrent network processes in total: half of the gateway's threads (`app.api.gateway`)."""
_places = turns.Turns(IN_ALL, of_one=OF_TENANT)
_FACTS = ("opset", "input_shape", "output_size", "num_parameters", "parameters", "operators")
"""Facts found by the examination of a network that are stored as columns of its row."""


@contextmanager
def place(tenant_id: str) -> Iterator[None]:
    """Reserve a network process for a tenant during the block. Raises `Busy` if `OF_TENANT` or `IN_ALL` is reached."""
    asked = _places.ask(tenant_id)
    try:
        if not asked.done():
            raise problems.Busy(
                "Nothing was done. Repeat the call in a second, with its Idempotency-Key if it has one."
            )
        yield
    finally:
        _places.end(tenant_id, asked)


class StoredNetwork:
    """Registered network whose file was read and verified; each use starts a process for it."""

    def __init__(self, row: Network, content: bytes, settings: config.Settings) -> None:
        self.input_size = math.prod(row.input_shape)
        self._id, self._tenant_id = row.id, row.tenant_id
        self._output_size = row.output_size
        self._content = content
        self._settings = settings

    def encode(self, raw: NDArray[np.float64]) -> NDArray[np.floating[Any]]:
        """Return the features of the rows `raw`, with shape (n, k). Raises `NetworkFailed`."""
        with self._started() as encoder:
            return encoder.encode(raw)

    @contextmanager
    def encoding(self, *, tenant_id: str, name: str, num_bytes: int) -> Iterator[FeaturesOf]:
        """Start an encoder for an upload's rows, and list the upload's progress until the block ends (`under_way`).

        The encoder raises `NetworkFailed`, and `InputInvalid` for vectors whose length is not `input_size`.
        """
        num_encoded = 0
        listing = under_way.metered(
            self._settings, tenant_id=tenant_id, name=name, network_id=self._id, num_bytes=num_bytes
        )
        with listing as meter, self._started() as encoder:

            def features_of(raw: NDArray[np.float64], num_in_file: int | None) -> NDArray[np.floating[Any]]:
                nonlocal num_encoded
                if raw.shape[1] != self.input_size:
                    fault = problems.FieldError("x", numbers_of(self.input_size))
                    raise problems.InputInvalid("The vectors do not fit the network.", [fault])
                before = num_encoded
                num_encoded += len(raw)
                return encoder.encode(raw, progress=lambda done: meter.advance(before + done, num_in_file))

            yield features_of

    @contextmanager
    def _started(self) -> Iterator[process.Encoder]:
        """Start the network's process, and stop it at the end of the `with` block. Raises `NetworkFailed` or `Busy`."""
        size, limits = {"input_size": self.input_size, "output_size": self._output_size}, limits_of(self._settings)
        with place(self._tenant_id), process.started(self._content, **size, limits=limits) as encoder:
            yield encoder


def limits_of(settings: config.Settings) -> Limits:
    """Return the limits for a network's process and file."""
    return Limits(
        memory_bytes=settings.network_memory_bytes,
        seconds=settings.network_seconds,
        file_bytes=settings.max_network_bytes,
    )


def register(
    session: Session,
    *,
    examined: process.ExaminedNetwork,
    name: str,
    licence: str,
    provenance: str,
    dp_ledger: str | None,
) -> Network:
    """Register an examined network.

    Raises:
        NetworkExists: if the file is already registered.
        NetworkInvalid: if the licence or the ledger cannot be stated in a certificate as given.
    """
    try:
        PublicNetwork(sha256=examined.sha256, licence=licence, opset=int(examined.facts["opset"]), dp_ledger=dp_ledger)
    except PrivacyError as error:
        raise problems.NetworkInvalid("{error}; send it so, since certificates state it.", error=str(error)) from error
    if existing := repository.by_sha256(session, examined.sha256):
        raise contract.NetworkExists(network_id=existing.id)
    row = Network(
        id=tables.new_id("net"),
        tenant_id=actor(session).tenant_id,
        name=name,
        sha256=examined.sha256,
        size=len(examined.content),
        licence=licence,
        provenance=provenance,
        dp_ledger=dp_ledger,
        created_at=now(session),
        **{fact: examined.facts[fact] for fact in _FACTS},
    )
    repository.add(session, row, examined.content)
    audit.record(session, "network.created", row.id, sha256=row.sha256)
    return row


def get(session: Session, network_id: str) -> Network:
    """Return a network. Raises `NetworkUnknown`."""
    return problems.NetworkUnknown.if_none(repository.network(session, network_id), network_id=network_id)


def listed(session: Session, *, limit: int, cursor: str | None) -> bulk.Page[Network]:
    return repository.networks(session, limit=limit, cursor=cursor)


def content_of(session: Session, row: Network) -> bytes:
    """Return a network's file as uploaded. Raises `DatabaseDamaged` if its SHA-256 does not match."""
    content = repository.content_of(session, row.id)
    if hashlib.sha256(content).hexdigest() != row.sha256:
        raise problems.DatabaseDamaged(
            "The file of network {row_id} is not the one on record (its SHA-256 differs); restore a backup.",
            row_id=row.id,
        )
    return content


def content_by(session: Session, sha256: str) -> bytes:
    """Return the network file with this SHA-256, from any tenant, for a worker.

    Raises `NetworkUnknown`, and `DatabaseDamaged` as `content_of` does.
    """
    row = repository.any_with(session, sha256)
    if row is None:
        raise problems.NetworkUnknown("There is no network of SHA-256 {sha256}; restore a backup.", sha256=sha256)
    return content_of(session, row)


def opened(session: Session, settings: config.Settings, network_id: str) -> StoredNetwork:
    """Read a network so that it can be run. Raises `NetworkUnknown`, and `DatabaseDamaged` as `content_of` does."""
    row = get(session, network_id)
    return StoredNetwork(row, content_of(session, row), settings)


def named_by_id(session: Session, network_id: str) -> PublicNetwork:
    """Return a network's description for use in mechanisms and certificates. Raises `NetworkUnknown`."""
    return named(get(session, network_id))


def named(row: Network) -> PublicNetwork:
    """Return a network's description for use in mechanisms and certificates."""
    return PublicNetwork(sha256=row.sha256, licence=row.licence, opset=row.opset, dp_ledger=row.dp_ledger)


def delete(session: Session, network_id: str) -> None:
    """Delete a network.

    Raises:
        NetworkUnknown: if there is no such network.
        NetworkInUse: while a dataset or a model uses the network.
    """
    row = get(session, network_id)
    if dataset_id := repository.first_dataset_on(session, network_id):
        raise contract.NetworkInUse.by_dataset(dataset_id=dataset_id, network_id=network_id)
    for model_id, mechanism in repository.mechanisms_in_service(session):
        stated = mechanism.get("network")
        if isinstance(stated, dict) and stated.get("sha256") == row.sha256:
            raise contract.NetworkInUse.by_model(model_id=model_id, network_id=network_id)
    repository.drop(session, row)
    audit.record(session, "network.deleted", network_id, sha256=row.sha256)


def linearised(session: Session, dataset: tables.Dataset, tangent: models.TangentIn) -> tuple[PublicNetwork, int]:
    """Return the linearised network for a tangent model's mechanism, and the model's number of parameters.

    Raises:
        NetworkUnknown: if there is no such network.
        PreconditionFailed: if the network cannot be differentiated, or does not fit the dataset.
    """
    network = get(session, tangent.network_id)
    if why := unsupported(network.operators, network.opset):
        raise _refusal(f"Network {network.id} cannot be differentiated: {why}.", network_id="expected another network")
    if dataset.network_id is not None:
        raise _refusal(
            "The rows of this dataset are features of a network already; learn a model of them, or send the records"
            " without an encoder.",
            network_id="expected a dataset without an encoder",
        )
    num_inputs = math.prod(network.input_shape)
    if dataset.num_features != num_inputs:
        raise _refusal(
            f"Network {network.id} takes {num_inputs} numbers of a row, and the dataset has {dataset.num_features}.",
            network_id=f"expected a network of {dataset.num_features} inputs",
        )
    _check_outputs(dataset, network)
    shapes = {parameter["name"]: parameter["shape"] for parameter in network.parameters}
    if unknown := sorted(set(tangent.layers) - shapes.keys()):
        layers = fields.expected(sorted(shapes), found=unknown[0])
        raise _refusal(f"Network {network.id} has no weights {unknown[0]!r}.", layers=layers)
    settings = tangent.model_dump(exclude={"network_id"})
    linearisation = Linearisation(**settings | {"layers": tuple(tangent.layers)})
    num_parameters = sum(math.prod(linearisation.shape(shapes[name])) for name in linearisation.layers)
    return dataclasses.replace(named(network), linearisation=linearisation), num_parameters


def _check_outputs(dataset: tables.Dataset, network: Network) -> None:
    """Require one output per class or label; for two classes, a single output (the score difference) is enough."""
    if dataset.target:
        raise _refusal(
            "Tangent models learn classes or labels, and this dataset has a target.", network_id="expected none"
        )
    classes = len(dataset.classes)
    allowed = (1, 2) if classes == 2 and not datasets.has_labels(dataset) else (classes,)
    if network.output_size not in allowed:
        sizes = " or ".join(map(str, allowed))
        raise _refusal(
            f"Network {network.id} has {network.output_size} outputs, and this dataset needs {sizes}.",
            network_id=f"expected a network of {sizes} outputs",
        )


def _refusal(detail: str, **messages: str) -> problems.PreconditionFailed:
    return problems.PreconditionFailed(
        detail, [problems.FieldError(f"tangent.{field}", message) for field, message in messages.items()]
    )
