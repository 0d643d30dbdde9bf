"""Task acknowledgements: a system's statements, signed with its Ed25519 key, that it has done its part of a request.

Systems call `sign` and pass the result to `client.system_tasks.acknowledge`; verifiers call `read`.
"""

import base64
import datetime
import json
from collections.abc import Callable, Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, OKPKey

from lethe.proof import errors, wellformed
from lethe.verification.certificates import ALGORITHM, signed_payload

FORMAT = "lethe-acknowledgement/1"
TYPE = "lethe-acknowledgement+jws"
"""Media type of an acknowledgement, in its signed header."""
_MAX_BY = 200
_FIELDS: wellformed.Fields = {
    "format": wellformed.text,
    "task_id": wellformed.named("tsk"),
    "system_id": wellformed.named("sys"),
    "request_id": wellformed.named("dr"),
    "by": wellformed.text,
    "at": wellformed.moment,
    "evidence_sha256": wellformed.Kind(
        "64 hexadecimal digits or null", lambda value: value is None or wellformed.sha256.holds(value)
    ),
}


def sign(
    private_jwk: Mapping[str, str],
    *,
    task: Mapping[str, Any],
    by: str,
    evidence_sha256: str | None = None,
    at: datetime.datetime | None = None,
) -> str:
    """Return a task's signed acknowledgement (compact JWS), given the `data` of its webhook.

    `private_jwk` is the system's Ed25519 key (RFC 8037, with `x` and `d`), `by` the person or role that confirms, and
    `evidence_sha256` the digest (hex) of a document that shows the deletion. `at` is the time of confirmation, with its
    time zone; the default is now.

    Raises:
        ValueError: if the key is not a private Ed25519 key, or a field is malformed.
    """
    statement = {
        "format": FORMAT,
        "task_id": task["id"],
        "system_id": task["system_id"],
        "request_id": task["request_id"],
        "by": by,
        "at": (at or datetime.datetime.now(datetime.UTC)).isoformat(),
        "evidence_sha256": evidence_sha256,
    }
    _check(statement)
    return compact(private_jwk, statement, kind=TYPE)


def compact(private_jwk: Mapping[str, str], statement: Mapping[str, Any], *, kind: str) -> str:
    """Sign a statement with an Ed25519 key, and return it as a compact JWS of type `kind`.

    Raises:
        ValueError: if the key is not a private Ed25519 key.
    """
    header = {"alg": ALGORITHM, "typ": kind}
    signed = ".".join(_encoded(json.dumps(part).encode()) for part in (header, statement))
    try:
        key = OKPKey.import_key({**private_jwk, "kty": "OKP", "crv": "Ed25519"})
        private = key.get_op_key("sign")
        if not isinstance(private, Ed25519PrivateKey):
            raise TypeError("Another curve")
        jws = f"{signed}.{_encoded(private.sign(signed.encode()))}"
    except (JoseError, ValueError, TypeError) as error:
        raise ValueError("Expected a private Ed25519 key (JWK with x and d)") from error
    if payload(jws, private_jwk["x"], kind=kind) is None:
        raise ValueError("Expected x and d of one Ed25519 key")
    return jws


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def read(compact_jws: str, public_key: str) -> dict[str, Any] | None:
    """Return the statement in an acknowledgement; None if its signature does not verify with `public_key`.

    `public_key` is `x` of the system's JWK (base64url of 32 bytes).

    Raises:
        PreconditionError: if the signed statement is malformed.
    """
    return signed_statement(compact_jws, public_key, kind=TYPE, name="acknowledgement", check=_check)


def signed_statement(
    compact_jws: str, public_key: str, *, kind: str, name: str, check: Callable[[Any], None]
) -> dict[str, Any] | None:
    """Return the statement of type `kind` if the key whose `x` is `public_key` signed it, otherwise None.

    Raises:
        PreconditionError: `<name>_well_formed` if the signed content is not JSON, and the errors of `check`.
    """
    signed = payload(compact_jws, public_key, kind=kind)
    if signed is None:
        return None
    try:
        statement = wellformed.read(signed)
    except errors.PreconditionError:
        raise
    except (ValueError, RecursionError) as error:
        raise errors.PreconditionError(f"{name}_well_formed", f"Expected JSON in the {name}") from error
    check(statement)
    return dict(statement)


def payload(compact_jws: str, public_key: str, *, kind: str) -> bytes | None:
    """Return the payload if `public_key` (the JWK's `x`: 32 bytes in base64url) signed it as `kind`, otherwise None."""
    try:
        keys = KeySet.import_key_set({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": public_key}]})
    except (JoseError, ValueError, TypeError):
        return None
    return signed_payload(compact_jws, keys, kind=kind)


def _check(statement: Any) -> None:
    wellformed.check("the acknowledgement", statement, _FIELDS)
    if statement["format"] != FORMAT or len(statement["by"]) > _MAX_BY:
        raise errors.PreconditionError(
            "acknowledgement_well_formed", f"Expected {FORMAT}, confirmed by at most {_MAX_BY} characters"
        )
