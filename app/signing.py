"""Signatures with the installation's Ed25519 key. Every signature is verified with the published key before use."""

from typing import Any

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, OKPKey

from app.errors import SignatureUnverifiable
from app.keys import Keys
from lethe.verification.signatures import ALGORITHM


def sign(keys: Keys, payload: bytes, *, kind: str) -> str:
    """Return the compact JWS (RFC 7515, RFC 9864) of `payload` with the type `kind`.

    Raises `SignatureUnverifiable` if the private key does not belong to the public key.
    """
    header = {"alg": ALGORITHM, "typ": kind, "kid": keys.signing_key.kid}
    signed = jws.serialize_compact(header, payload, keys.signing_key, algorithms=[ALGORITHM])
    try:
        read = jws.deserialize_compact(signed, published(keys), algorithms=[ALGORITHM])
    except (JoseError, ValueError) as error:
        raise _unverifiable() from error
    if read.payload != payload:
        raise _unverifiable()
    return signed


def public_keys(keys: Keys) -> dict[str, Any]:
    """Return the JWK set published at `/.well-known/jwks.json`."""
    return {"keys": [keys.signing_key.as_dict(private=False) | {"use": "sig", "alg": ALGORITHM}]}


def published(keys: Keys) -> KeySet:
    """Return the public key as a key set for verification."""
    return KeySet([OKPKey.import_key(keys.signing_key.as_dict(private=False))])


def _unverifiable() -> SignatureUnverifiable:
    return SignatureUnverifiable(
        "What signing.jwk signs does not verify with the public key in it: put the right key back. Nothing was signed."
    )
