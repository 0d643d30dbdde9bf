"""Identity statements by issuers that a tenant trusts: a JWT about the subject, valid for a single request.

The reason for a refusal is not disclosed, because it would reveal whom the statement is about or that it was used.
"""

import datetime
import hmac
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from joserfc import jws
from joserfc.errors import JoseError, UnsupportedAlgorithmError
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey
from joserfc.jws import JWSRegistry
from sqlalchemy.orm import Session

from app.access import subjects
from app.audit import service as audit
from app.db import actor, bulk, now, tables
from app.deletion.admission import IdentityStatement, sha256_of
from app.features.protocols.tables import IdentityIssuer, UsedStatement
from app.keys import Keys
from lethe.contract import problems, sets
from lethe.features.protocols.contract import IssuerExists, IssuerUnknown

ALGORITHMS = ("EdDSA", "Ed25519", "ES256", "RS256")
_MAX_LIFETIME = datetime.timedelta(hours=1)
_CLOCKS_DIFFER_BY = datetime.timedelta(minutes=1)
_MAX_KEYS = 20
_MIN_RSA_BITS, _MAX_RSA_BITS = 2048, 8192
_PRIVATE = {"d", "p", "q", "dp", "dq", "qi", "k", "oth"}


def issuers(session: Session, *, limit: int, cursor: str | None) -> bulk.Page[IdentityIssuer]:
    query = sa.select(IdentityIssuer)
    return bulk.page(session, query, IdentityIssuer.created_at, IdentityIssuer.id, limit=limit, cursor=cursor)


def existing(session: Session, issuer_ids: Collection[str]) -> set[str]:
    return set(session.scalars(sa.select(IdentityIssuer.id).where(IdentityIssuer.id.in_(issuer_ids))))


def used(session: Session, hashes: Collection[str]) -> set[str]:
    return set(session.scalars(sa.select(UsedStatement.statement_hash).where(UsedStatement.statement_hash.in_(hashes))))


class _SignatureRegistry(JWSRegistry):
    """Registry that contains only the accepted algorithms. Most issuers still call `Ed25519` (RFC 9864) `EdDSA`."""

    def get_alg(self, name: str) -> Any:
        if name not in ALGORITHMS:
            raise UnsupportedAlgorithmError("not one of ours")
        return self.algorithms[name]


def check(
    session: Session, keys: Keys, token: str, *, subject_sha256: bytes, rule: sets.SubjectRule
) -> IdentityStatement:
    """Check that a token from one of the tenant's issuers is about this subject under the tenant's subject-id `rule`.

    `submit_all` checks that the token has not been used before. Raises `IdentityStatementInvalid`.
    """
    at = now(session)
    try:
        issuer = _by_name(session, str(_claims(jws.extract_compact(token.encode()).payload)["iss"]))
        if issuer is None:
            raise refusal()
        # The keys were checked at registration.
        key_set = KeySet.import_key_set(issuer.jwks)  # type: ignore[arg-type]
        claims = _claims(jws.deserialize_compact(token, key_set, registry=_SignatureRegistry()).payload)
        expires_at = _moment(claims["exp"])
        audience, jti = claims["aud"], claims["jti"]
        about = sha256_of(subjects.normal(str(claims["sub"]), rule))
        holds = (
            at - _CLOCKS_DIFFER_BY < expires_at <= at + _MAX_LIFETIME + _CLOCKS_DIFFER_BY
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
    return IdentityStatement(
        issuer_id=issuer.id,
        hash=keys.fingerprint(b"statement", issuer.id.encode(), jti.encode()),
        expires_at=expires_at,
    )


def refusal() -> problems.IdentityStatementInvalid:
    return problems.IdentityStatementInvalid(
        "Expected a JWT about this subject, signed by a registered issuer for its audience, that expires within an "
        "hour and was not used before."
    )


def use(session: Session, statements: Sequence[IdentityStatement]) -> None:
    """Record statements as used, so that they are not accepted again."""
    session.add_all(
        UsedStatement(
            issuer_id=statement.issuer_id,
            statement_hash=statement.hash,
            expires_at=statement.expires_at + _CLOCKS_DIFFER_BY,
        )
        for statement in statements
    )


def is_anything_to_purge(session: Session) -> bool:
    """Return True if any used statement has expired."""
    return session.scalar(sa.select(sa.exists().where(UsedStatement.expires_at < now(session)))) is True


def purge(session: Session, *, limit: int = 10_000) -> int:
    """Delete at most `limit` used statements that have expired, and return their number."""
    expired = sa.select(UsedStatement).where(UsedStatement.expires_at < now(session)).limit(limit)
    rows = session.scalars(expired).all()
    for row in rows:
        session.delete(row)
    return len(rows)


def register(session: Session, *, issuer: str, audience: str, jwks: Mapping[str, Any]) -> IdentityIssuer:
    """Register an issuer with its public keys. Raises `InputInvalid`, `IssuerExists`."""
    _check_keys(jwks)
    if _by_name(session, issuer) is not None:
        raise IssuerExists("This issuer is registered already; delete it to register other keys.")
    row = IdentityIssuer(
        id=tables.new_id("iss"),
        tenant_id=actor(session).tenant_id,
        issuer=issuer,
        audience=audience,
        jwks=dict(jwks),
        created_at=now(session),
    )
    session.add(row)
    audit.record(session, "identity_issuer.created", row.id)
    return row


def delete(session: Session, issuer_id: str) -> None:
    """Remove an issuer, so that its statements are refused from then on. Raises `IssuerUnknown`."""
    row = IssuerUnknown.if_none(session.get(IdentityIssuer, issuer_id), issuer_id=issuer_id)
    session.execute(sa.delete(UsedStatement).where(UsedStatement.issuer_id == issuer_id))
    session.delete(row)
    audit.record(session, "identity_issuer.deleted", issuer_id)


def _by_name(session: Session, issuer: str) -> IdentityIssuer | None:
    return session.scalars(sa.select(IdentityIssuer).where(IdentityIssuer.issuer == issuer)).one_or_none()


def _claims(payload: bytes) -> dict[str, Any]:
    claims = json.loads(payload)
    if not isinstance(claims, dict):
        raise ValueError("no claims")
    return claims


def _moment(stamp: object) -> datetime.datetime:
    if isinstance(stamp, bool) or not isinstance(stamp, int | float):
        raise ValueError("no time")
    return datetime.datetime.fromtimestamp(stamp, datetime.UTC)


def _check_keys(jwks: Mapping[str, Any]) -> None:
    keys = jwks.get("keys")
    if not isinstance(keys, list) or not 1 <= len(keys) <= _MAX_KEYS or not all(isinstance(key, dict) for key in keys):
        raise _malformed("jwks", f"expected a JSON Web Key Set with 1 to {_MAX_KEYS} keys")
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
                return _MIN_RSA_BITS <= RSAKey.import_key(key).raw_value.key_size <= _MAX_RSA_BITS
            case _:
                return False
    except (JoseError, KeyError, TypeError, ValueError):
        return False


def _malformed(path: str, expected: str) -> problems.InputInvalid:
    return problems.InputInvalid("The keys cannot be used.", [problems.FieldError(path, expected)])
