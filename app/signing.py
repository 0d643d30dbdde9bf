"""Signatures with the installation's Ed25519 key. Each one is verified with the published key before it is used."""

import datetime
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from app.errors import SignatureUnverifiable
from app.keys import Keys
from lethe.verification.certificates import ALGORITHM, SIGNATURES


def sign(keys: Keys, payload: bytes, *, kind: str) -> str:
    """Return the compact JWS (RFC 7515, RFC 9864) of `payload` with the type `kind`.

    Raises `SignatureUnverifiable` if the private key does not belong to the public key.
    """
    header = {"alg": ALGORITHM, "typ": kind, "kid": keys.signing_key.kid}
    signed = jws.serialize_compact(header, payload, keys.signing_key, registry=SIGNATURES)
    try:
        read = jws.deserialize_compact(signed, published(keys), registry=SIGNATURES)
    except (JoseError, ValueError) as error:
        raise _unverifiable() from error
    if read.payload != payload:
        raise _unverifiable()
    return signed


Wanted: TypeAlias = tuple[Any, Callable[[], Any]]
"""Facts to be stated, and the function that creates the row with their signature."""


class NotSigned(Exception):
    """A transaction needs a signature that was not made before it began."""


class SignedAhead:
    """Signatures made outside the write transaction that stores them, so that no other writer has to wait for them.

    The transaction gets them from `of`. As long as it fails with `NotSigned`, call `sign` to make them and repeat the
    transaction. With `at_once`, or for up to `few` signatures (faster than a second transaction), `of` makes them
    itself. `at` is the signed time, set by the first transaction.
    """

    def __init__(self, *, at_once: bool = False, few: int = 5) -> None:
        self.at_once = at_once
        self._few = few
        self.at: datetime.datetime | None = None
        self._wanted: dict[str, Wanted] = {}
        self._signed: dict[str, tuple[Any, Any]] = {}

    def of(self, wanted: Mapping[str, Wanted]) -> dict[str, Any]:
        """Return the signed rows, keyed by name. Raises `NotSigned` if too many signatures are missing."""
        lacking = {name for name, (facts, _) in wanted.items() if self._signed.get(name, (None,))[0] != facts}
        self._wanted = {name: wanted[name] for name in lacking}
        if len(lacking) > self._few and not self.at_once:
            raise NotSigned
        self.sign()
        return {name: self._signed[name][1] for name in wanted}

    def sign(self) -> None:
        """Make the signatures that were missing in the last transaction."""
        self._signed |= {name: (facts, make()) for name, (facts, make) in self._wanted.items()}


def public_keys(keys: Keys) -> dict[str, Any]:
    """Return the JWK set published at `/.well-known/jwks.json`."""
    return {"keys": [keys.public_key.as_dict(private=False) | {"use": "sig", "alg": ALGORITHM}]}


def published(keys: Keys) -> KeySet:
    """Return the public key as a key set for verification."""
    return KeySet([keys.public_key])


def _unverifiable() -> SignatureUnverifiable:
    return SignatureUnverifiable(
        "What signing.jwk signs does not verify with the public key in it: put the right key back. Nothing was signed."
    )
