"""Sign with the installation's Ed25519 key; nothing that does not verify with the published key ever leaves."""

from typing import Any

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, OKPKey

from app.errors import SignatureUnverifiable
from app.keys import Keys
from lethe.verification.signatures import ALGORITHM


def sign(keys: Keys, payload: bytes, *, kind: str) -> str:
    """The compact JWS (RFC 7515, RFC 9864) of `payload`, of the type `kind`.

    Raises `SignatureUnverifiable` where the private key is not that of the public one.
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
    """The JWK set that `/.well-known/jwks.json` publishes."""
    return {"keys": [keys.signing_key.as_dict(private=False) | {"use": "sig", "alg": ALGORITHM}]}


def published(keys: Keys) -> KeySet:
    """The same, to verify with."""
    return KeySet([OKPKey.import_key(keys.signing_key.as_dict(private=False))])


def _unverifiable() -> SignatureUnverifiable:
    return SignatureUnverifiable(
        "What signing.jwk signs does not verify with the public key in it: put the right key back. Nothing was signed."
    )
