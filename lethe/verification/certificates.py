"""Verification of certificates: the signature is checked, and every number is recomputed from the statement alone.

An installation's signatures are compact JWS (RFC 7515) with Ed25519 (RFC 9864).
"""

from typing import Any

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from lethe.contract import certificates, problems
from lethe.proof import certificate, errors, signed as signed_texts

TYPE = "lethe-certificate+jws"
"""Media type of a certificate, in its signed header."""
ALGORITHM = "Ed25519"


class _Registry(jws.JWSRegistry):
    # A bundle of evidence has a statement of each system and model; joserfc would refuse more than 95 kB.
    max_payload_length = 2**25


SIGNATURES = _Registry(algorithms=[ALGORITHM])
"""joserfc registry for the signatures of installations."""


def verify(
    compact_jws: str, jwks: dict[str, Any], *, max_epsilon: float | None = None, max_delta: float | None = None
) -> certificates.CertificateVerdictOut:
    """Verify a certificate and return its statement and guarantees. Raises `CertificateInvalid`, naming the failed
    check, and `CertificateBeyondLimits` if a guarantee of forgetting exceeds `max_epsilon` or `max_delta`."""
    try:
        keys = KeySet.import_key_set({"keys": jwks["keys"]})
        signed = jws.deserialize_compact(compact_jws.strip(), keys, registry=SIGNATURES)
    except (JoseError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise problems.CertificateInvalid(
            "The signature was not made by any of the given keys over this statement."
        ) from error
    header = signed.headers()
    if header.get("typ") != TYPE:
        raise problems.CertificateInvalid(f"Expected a token of type {TYPE}.")
    try:
        read = signed_texts.read(signed.payload, header=dict(header))
    except errors.PrivacyError as error:
        raise problems.CertificateInvalid(f"{error}.") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise problems.CertificateInvalid("The signed payload is not a statement.") from error
    try:
        certificate.check_limits(read.guarantees, max_epsilon=max_epsilon, max_delta=max_delta)
    except errors.PrivacyError as error:
        raise problems.CertificateBeyondLimits(f"{error}.") from error
    return certificates.CertificateVerdictOut(
        valid=True,
        key_id=str(header.get("kid")),
        guarantees=[certificates.GuaranteeOut(**guarantee.stated()) for guarantee in read.guarantees],
        statement=read.statement,
    )


def signed_payload(compact: str, public_keys: KeySet, *, kind: str | None = None) -> bytes | None:
    """Return the payload if one of the keys signed it as type `kind` (None allows any type), otherwise None."""
    try:
        signed = jws.deserialize_compact(compact, public_keys, registry=SIGNATURES)
    except (JoseError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return signed.payload if kind in (None, signed.headers().get("typ")) else None


def key_set(jwks: dict[str, Any]) -> KeySet:
    """Parse a JWK set. Raises `CertificateInvalid`."""
    try:
        return KeySet.import_key_set({"keys": jwks["keys"]})
    except (JoseError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise problems.CertificateInvalid("These are not public keys: expected a JSON Web Key Set.") from error
