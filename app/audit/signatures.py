"""What the installation signed: compact JWS (RFC 7515, RFC 9864) by Ed25519, each kind of statement of its own type."""

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from app.keys import Keys

_ALGORITHM = "Ed25519"


def sign(keys: Keys, payload: str, *, media_type: str) -> str:
    """The compact JWS of a payload."""
    header = {"alg": _ALGORITHM, "typ": media_type, "kid": keys.signing_key.kid}
    return jws.serialize_compact(header, payload, keys.signing_key, algorithms=[_ALGORITHM])


def signed_payload(compact: str, public_keys: KeySet, *, media_type: str | None = None) -> bytes | None:
    """What one of these keys signed, as a statement of that type (None: of any); None where none did."""
    try:
        signed = jws.deserialize_compact(compact, public_keys, algorithms=[_ALGORITHM])
    except (JoseError, ValueError, KeyError, TypeError):
        return None
    return signed.payload if media_type in (None, signed.headers().get("typ")) else None
