"""Trainer's client: leave out people whose rows must not be read, train, sign the manifest, and send it."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from lethe.features.attested import contract, manifests

Row = TypeVar("Row")


def retrain(
    client: Any,
    trainer_id: str,
    private_jwk: Mapping[str, str],
    *,
    rows: Sequence[Row],
    person: Callable[[Row], str],
    train: Callable[[list[Row]], bytes],
    **details: str,
) -> tuple[bytes, contract.ManifestOut]:
    """Train on the rows of everyone whose data may still be used, and return the artefact with its accepted manifest.

    `rows` has at least one row. `person` returns the identifier of a row's person, `train` the bytes of an artefact,
    and `details` are `code_revision` and `environment`. Publish the artefact only after this function has returned.

    Raises:
        ManifestRefused: if the manifest satisfies no request, for example because another retraining finished first.
    """
    retraining_id = client.attested_trainers.get(trainer_id).retraining_id
    ids = list(dict.fromkeys(map(person, rows)))
    parts = [
        client.attested_trainers.identifiers(trainer_id, ids=ids[at : at + contract.MAX_IDS])
        for at in range(0, len(ids), contract.MAX_IDS)
    ]
    digests = dict(zip(ids, (digest for part in parts for digest in part.digests), strict=True))
    artefact = train([row for row in rows if digests[person(row)] is not None])
    manifest = manifests.sign(
        private_jwk,
        trainer_id=trainer_id,
        retraining_id=retraining_id,
        rows_read_at=parts[0].read_at.isoformat(),
        identifiers=[digest for digest in digests.values() if digest is not None],
        artefacts=[hashlib.sha256(artefact).hexdigest()],
        **details,
    )
    return artefact, client.attested_trainers.accept(trainer_id, **manifest)
