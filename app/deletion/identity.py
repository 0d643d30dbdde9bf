"""Identity statements, by issuers whom the tenant trusts to make them: a JWT about the subject, good for one request.

Why a statement was not believed is told to nobody: the answer would say whom it is about, or that it was used before.
"""

import datetime
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from joserfc import jws
from joserfc.errors import JoseError, UnsupportedAlgorithmError
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey
from joserfc.jws import JWSRegistry
from sqlalchemy.orm import Session

from app.access import subjects
from app.audit import service as audit
from app.db import actor, now
from app.db.paging import Page
from app.db.tables import IdentityIssuer, UsedStatement, new_id
from app.deletion import issuers
from app.keys import Keys
from lethe.contract.choices import SubjectRule
from lethe.contract.problems import FieldError, IdentityStatementInvalid, InputInvalid, IssuerExists, IssuerUnknown

ALGORITHMS = ("EdDSA", "Ed25519", "ES256", "RS256")
_LONGEST_LIFE = datetime.timedelta(hours=1)
_CLOCKS_DIFFER_BY = datetime.timedelta(minutes=1)
_MOST_KEYS = 20
_LEAST_RSA_BITS, _MOST_RSA_BITS = 2048, 8192
_PRIVATE = {"d", "p", "q", "dp", "dq", "qi", "k", "oth"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement that holds, and that nobody may use again. `hash`: keyed, of its `jti`."""

    issuer_id: str
    hash: str
    expires_at: datetime.datetime


class _Registry(JWSRegistry):
    """Signatures by these algorithms alone. `EdDSA` is how nearly everybody still writes `Ed25519` (RFC 9864)."""

    def get_alg(self, name: str) -> Any:
        if name not in ALGORITHMS:
            raise UnsupportedAlgorithmError("not one of ours")
        return self.algorithms[name]


def check(session: Session, keys: Keys, token: str, *, subject_sha256: bytes, rule: SubjectRule) -> Statement:
    """Check that a token of one of the tenant's issuers is about this subject, by the tenant's `rule` for subject ids.
    Its earlier use is checked by `submit_all`.

    Raises `IdentityStatementInvalid`.
    """
    at = now(session)
    try:
        issuer = issuers.by_name(session, str(_claims(jws.extract_compact(token.encode()).payload)["iss"]))
        if issuer is None:
            raise refusal()
        key_set = KeySet.import_key_set(issuer.jwks)  # type: ignore[arg-type]  # checked when it was registered
        claims = _claims(jws.deserialize_compact(token, key_set, registry=_Registry()).payload)
        expires_at = _moment(claims["exp"])
        audience, jti = claims["aud"], claims["jti"]
        about = sha256_of(subjects.normal(str(claims["sub"]), rule))
        holds = (
            at < expires_at <= at + _LONGEST_LIFE + _CLOCKS_DIFFER_BY
            and all(_moment(claims[name]) <= at + _CLOCKS_DIFFER_BY for name in ("nbf", "iat") if name in claims)
            and issuer.audience in (audience if isinstance(audience, list) else [audience])
            and isinstance(claims["sub"], str)
            and hmac.compare_digest(about, subject_sha256)
            and isinstance(jti, str)
            and 0 < len(jti) <= 500
        )
    except (JoseError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        raise refusal() from None
    if not holds:
        raise refusal()
    return Statement(
        issuer_id=issuer.id,
        hash=keys.fingerprint(b"statement", issuer.id.encode(), jti.encode()),
        expires_at=expires_at,
    )


def sha256_of(subject_id: str) -> bytes:
    """The hash that a statement's `sub` is compared by: some callers have no more of a subject id than this."""
    return hashlib.sha256(subject_id.encode()).digest()


def refusal() -> IdentityStatementInvalid:
    return IdentityStatementInvalid(
        "Expected a JWT about this subject, signed by a registered issuer for its audience, that expires within an "
        "hour and was not used before."
    )


def use(session: Session, statements: Sequence[Statement]) -> None:
    """None of them is believed again."""
    session.add_all(
        UsedStatement(issuer_id=one.issuer_id, statement_hash=one.hash, expires_at=one.expires_at + _CLOCKS_DIFFER_BY)
        for one in statements
    )


def is_anything_to_purge(session: Session) -> bool:
    """Return True if used statements have expired."""
    return issuers.is_any_expired(session, at=now(session))


def purge(session: Session, *, limit: int = 10_000) -> int:
    """Forget used statements that have expired: nobody believes them anyway. Returns how many (`limit` at most)."""
    return issuers.drop_expired(session, at=now(session), limit=limit)


def register(session: Session, *, issuer: str, audience: str, jwks: Mapping[str, Any]) -> IdentityIssuer:
    """Believe what this issuer signs with one of these public keys. Raises `InputInvalid`, `IssuerExists`."""
    _check_keys(jwks)
    if issuers.by_name(session, issuer) is not None:
        raise IssuerExists("This issuer is registered; delete it to register other keys.")
    row = IdentityIssuer(
        id=new_id("iss"),
        tenant_id=actor(session).tenant_id,
        issuer=issuer,
        audience=audience,
        jwks=dict(jwks),
        created_at=now(session),
    )
    session.add(row)
    audit.record(session, "identity_issuer.created", row.id)
    return row


def listed(session: Session, *, limit: int, cursor: str | None) -> Page[IdentityIssuer]:
    return issuers.listed(session, limit=limit, cursor=cursor)


def delete(session: Session, issuer_id: str) -> None:
    """Believe this issuer no longer. Raises `IssuerUnknown`."""
    row = issuers.get(session, issuer_id)
    if row is None:
        raise IssuerUnknown(f"There is no issuer {issuer_id!r}.")
    issuers.drop(session, row)
    audit.record(session, "identity_issuer.deleted", issuer_id)


def _claims(payload: bytes) -> dict[str, Any]:
    found = json.loads(payload)
    if not isinstance(found, dict):
        raise ValueError("no claims")
    return found


def _moment(stamp: object) -> datetime.datetime:
    if isinstance(stamp, bool) or not isinstance(stamp, int | float):
        raise ValueError("no time")
    return datetime.datetime.fromtimestamp(stamp, datetime.UTC)


def _check_keys(jwks: Mapping[str, Any]) -> None:
    keys = jwks.get("keys")
    if not isinstance(keys, list) or not 1 <= len(keys) <= _MOST_KEYS or not all(isinstance(key, dict) for key in keys):
        raise _malformed("jwks", f"expected a JSON Web Key Set with 1 to {_MOST_KEYS} keys")
    for place, key in enumerate(keys):
        if _PRIVATE & key.keys():
            raise _malformed(f"jwks.keys.{place}", "expected a public key; never send a private one")
        if not _is_usable(key):
            raise _malformed(f"jwks.keys.{place}", "expected Ed25519, P-256, or RSA of 2048 to 8192 bits")


def _is_usable(key: dict[str, Any]) -> bool:
    try:
        match key.get("kty"):
            case "OKP":
                OKPKey.import_key(key)
                return bool(key["crv"] == "Ed25519")
            case "EC":
                ECKey.import_key(key)
                return bool(key["crv"] == "P-256")
            case "RSA":
                return _LEAST_RSA_BITS <= RSAKey.import_key(key).raw_value.key_size <= _MOST_RSA_BITS
            case _:
                return False
    except (JoseError, KeyError, TypeError, ValueError):
        return False


def _malformed(path: str, expected: str) -> InputInvalid:
    return InputInvalid("The keys cannot be used.", [FieldError(path, expected)])
