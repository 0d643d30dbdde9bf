"""Public networks: taken once they were examined, found, and let go of when nothing stands on them.

The file lies in the database, in pieces, so that it comes and goes with the line that names it, is in every backup,
and is where every gateway and worker can read it. It is public; that it is the file on record is checked by its SHA-256
each time it is opened.
"""

import hashlib

from sqlalchemy.orm import Session

from app.audit import service as audit
from app.config import Settings
from app.db import actor, now
from app.db.paging import Page
from app.db.tables import Network, new_id
from app.encoders import repository
from lethe.contract.problems import (
    DatabaseDamaged,
    NetworkExists,
    NetworkInUse,
    NetworkInvalid,
    NetworkUnknown,
)
from lethe.encoders.examining import Examined
from lethe.encoders.limits import Limits
from lethe.proof.errors import PrivacyError
from lethe.proof.network import PublicNetwork


def limits_of(settings: Settings) -> Limits:
    return Limits(
        memory_bytes=settings.network_memory_bytes,
        seconds=settings.network_seconds,
        file_bytes=settings.max_network_bytes,
    )


def register(
    session: Session, *, examined: Examined, name: str, licence: str, provenance: str, dp_ledger: str | None
) -> Network:
    """Keep a network that was examined. Raises `NetworkExists`, and `NetworkInvalid` for texts no certificate can
    state."""
    try:
        PublicNetwork(sha256=examined.sha256, licence=licence, opset=int(examined.facts["opset"]), dp_ledger=dp_ledger)
    except PrivacyError as error:
        raise NetworkInvalid(f"{error}; send it so, since certificates state it.") from error
    if there := repository.by_sha256(session, examined.sha256):
        raise NetworkExists(f"This file is network {there.id}; use that, or delete it to register it anew.")
    facts = examined.facts
    row = Network(
        id=new_id("net"),
        tenant_id=actor(session).tenant_id,
        name=name,
        sha256=examined.sha256,
        size=len(examined.content),
        licence=licence,
        provenance=provenance,
        dp_ledger=dp_ledger,
        opset=facts["opset"],
        input_shape=facts["input_shape"],
        output_size=facts["output_size"],
        num_parameters=facts["num_parameters"],
        parameters=facts["parameters"],
        operators=facts["operators"],
        batch_size=facts["batch_size"],
        created_at=now(session),
    )
    repository.add(session, row, examined.content)
    audit.record(session, "network.created", row.id, sha256=row.sha256)
    return row


def get(session: Session, network_id: str) -> Network:
    """Raises `NetworkUnknown`."""
    row = repository.network(session, network_id)
    if row is None:
        raise NetworkUnknown(f"There is no network {network_id!r}; GET /v1/networks lists them.")
    return row


def listed(session: Session, *, limit: int, cursor: str | None) -> Page[Network]:
    return repository.networks(session, limit=limit, cursor=cursor)


def content_of(session: Session, row: Network) -> bytes:
    """The file of a network, as it came. Raises `DatabaseDamaged` where it is not the one on record."""
    content = repository.content_of(session, row.id)
    if hashlib.sha256(content).hexdigest() != row.sha256:
        raise DatabaseDamaged(
            f"The file of network {row.id} is not the one on record (its SHA-256 differs); restore a backup."
        )
    return content


def content_by(session: Session, sha256: str) -> bytes:
    """The file of this SHA-256, for a worker, which works for all tenants. Raises `NetworkUnknown`, and as
    `content_of`."""
    row = repository.any_with(session, sha256)
    if row is None:
        raise NetworkUnknown(f"There is no network of SHA-256 {sha256}; restore a backup.")
    return content_of(session, row)


def named(row: Network) -> PublicNetwork:
    """The network as mechanisms and certificates name it."""
    return PublicNetwork(sha256=row.sha256, licence=row.licence, opset=row.opset, dp_ledger=row.dp_ledger)


def delete(session: Session, network_id: str) -> None:
    """Let go of a network. Raises `NetworkUnknown`; `NetworkInUse` while a dataset or a model stands on it."""
    row = get(session, network_id)
    if dataset_id := repository.first_dataset_on(session, network_id):
        raise NetworkInUse(f"The rows of dataset {dataset_id} are features of network {network_id}; retire it first.")
    for model_id, mechanism in repository.mechanisms_in_service(session):
        stated = mechanism.get("network")
        if isinstance(stated, dict) and stated.get("sha256") == row.sha256:
            raise NetworkInUse(f"Model {model_id} stands on network {network_id}; retire it first.")
    repository.drop(session, row)
    audit.record(session, "network.deleted", network_id, sha256=row.sha256)
