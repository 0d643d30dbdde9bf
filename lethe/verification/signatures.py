"""Signatures of an installation: compact JWS (RFC 7515) with Ed25519 (RFC 9864)."""

from typing import Any

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from lethe.contract.problems import CertificateInvalid

ALGORITHM = "Ed25519"


def signed_payload(compact: str, public_keys: KeySet, *, kind: str | None = None) -> bytes | None:
    """Return the payload if one of these keys signed it as type `kind` (None admits any type); otherwise None."""
    try:
        signed = jws.deserialize_compact(compact, public_keys, algorithms=[ALGORITHM])
    except (JoseError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return signed.payload if kind in (None, signed.headers().get("typ")) else None


def key_set(jwks: dict[str, Any]) -> KeySet:
    """Parse a JWK set. Raises `CertificateInvalid`."""
    try:
        return KeySet.import_key_set({"keys": jwks["keys"]})
    except (JoseError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CertificateInvalid("Those are no public keys: expected a JSON Web Key Set.") from error
