"""Manifests: signed statements (Ed25519) by a trainer about the people whose rows a retraining read, and its artefacts.

The signed header refers to people only by a list's digest. The list is sent along but not stored.
"""

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

from lethe.features.systems import acknowledgements
from lethe.proof import errors, wellformed

FORMAT = "lethe-manifest/1"
TYPE = "lethe-manifest+jws"
"""Media type of a manifest, in its signed header."""
MAX_ARTEFACTS = 100
_MAX_TEXT = 200


def _are_artefacts(value: Any) -> bool:
    is_list = type(value) is list and 0 < len(value) <= MAX_ARTEFACTS and all(map(wellformed.sha256.holds, value))
    return is_list and value == sorted(set(value))


_short = wellformed.Kind(
    f"text of at most {_MAX_TEXT} characters", lambda value: wellformed.text.holds(value) and len(value) <= _MAX_TEXT
)
_FIELDS: wellformed.Fields = {
    "format": wellformed.text,
    "trainer_id": wellformed.named("atr"),
    "retraining_id": wellformed.named("rtn"),
    "rows_read_at": wellformed.moment,
    "num_identifiers": wellformed.count(0),
    "identifiers_sha256": wellformed.sha256,
    "artefacts": wellformed.Kind(f"1 to {MAX_ARTEFACTS} digests, sorted, each once", _are_artefacts),
    "code_revision": _short,
    "environment": _short,
}


def sign(
    private_jwk: Mapping[str, str],
    *,
    trainer_id: str,
    retraining_id: str,
    rows_read_at: str,
    identifiers: Collection[str],
    artefacts: Collection[str],
    code_revision: str,
    environment: str,
) -> dict[str, Any]:
    """Return the arguments of `client.attested_trainers.accept`: the signed header as `jws`, and the sorted
    `identifiers`.

    `private_jwk` is the trainer's Ed25519 key (RFC 8037, with `x` and `d`). `identifiers` are the digests that
    `client.attested_trainers.identifiers` returned, and `rows_read_at` their `read_at` (RFC 3339). `artefacts` are
    SHA-256 digests (hex). `code_revision` and `environment` identify the setup, such as a commit and an image digest.

    Raises:
        ValueError: if the key is not a private Ed25519 key.
        PreconditionError: if a field is malformed.
    """
    people = sorted(set(identifiers))
    statement = {
        "format": FORMAT,
        "trainer_id": trainer_id,
        "retraining_id": retraining_id,
        "rows_read_at": rows_read_at,
        "num_identifiers": len(people),
        "identifiers_sha256": digest_of(people),
        "artefacts": sorted(set(artefacts)),
        "code_revision": code_revision,
        "environment": environment,
    }
    _check(statement)
    return {"jws": acknowledgements.compact(private_jwk, statement, kind=TYPE), "identifiers": people}


def digest_of(identifiers: Collection[str]) -> str:
    """Return the SHA-256 (hex) of the sorted identifier digests, each followed by a line feed."""
    return hashlib.sha256("".join(f"{identifier}\n" for identifier in identifiers).encode()).hexdigest()


def read(compact_jws: str, public_key: str) -> dict[str, Any] | None:
    """Return a manifest's signed header; None if the signature does not verify with `public_key` (`x` of a JWK).

    Raises:
        PreconditionError: if the signed header is malformed.
    """
    return acknowledgements.signed_statement(compact_jws, public_key, kind=TYPE, name="manifest", check=_check)


def _check(statement: Any) -> None:
    wellformed.check("the manifest", statement, _FIELDS)
    if statement["format"] != FORMAT:
        raise errors.PreconditionError("manifest_well_formed", f"Expected {FORMAT}")
