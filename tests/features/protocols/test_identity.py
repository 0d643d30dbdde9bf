import base64
import datetime
import time
from collections.abc import Callable
from typing import Any

import pytest
from joserfc import jwk, jwt

from app.deletion import service as deletion
from app.features.protocols import identity
from app.features.protocols.identity import IdentityStatement, sha256_of
from app.installations import Installation
from lethe.contract.problems import IdentityStatementInvalid, IdentityStatementRequired, InputInvalid
from lethe.contract.tenants import Policy
from lethe.features.protocols.contract import IssuerExists, IssuerUnknown
from tests.app.deletion import people
from tests.app.deletion.people import OFFICER
from tests.tables import each

POLICY = Policy(identity="statement")
KEYS: dict[str, Any] = {
    "EdDSA": jwk.OKPKey.generate_key("Ed25519", auto_kid=True),
    "Ed25519": jwk.OKPKey.generate_key("Ed25519", auto_kid=True),
    "ES256": jwk.ECKey.generate_key("P-256", auto_kid=True),
    "RS256": jwk.RSAKey.generate_key(2048, auto_kid=True),
}
JWKS = {"keys": [key.as_dict(private=False) for key in KEYS.values()]}
ISSUER, AUDIENCE = "https://id.example.org", "lethe"


class _Any(identity._SignatureRegistry):
    def get_alg(self, name: str) -> Any:
        return self.algorithms[name]


def signed(alg: str = "ES256", *, key: Any = None, header: dict[str, Any] | None = None, **claims: Any) -> str:
    now = int(time.time())
    usual: dict[str, Any] = {"iss": ISSUER, "aud": AUDIENCE, "sub": "p1", "exp": now + 600, "jti": "one"}
    key = key or KEYS[alg]
    said = {name: value for name, value in (usual | claims).items() if value is not None}
    named = {"alg": alg, "kid": key.kid} | (header or {})
    return jwt.encode({name: value for name, value in named.items() if value}, said, key, registry=_Any())


@pytest.fixture
def check(installation: Installation) -> Callable[..., IdentityStatement]:
    """Register an issuer and return a function that checks a statement about `p1`."""
    with installation.database.writing(by=OFFICER) as session:
        identity.register(session, issuer=ISSUER, audience=AUDIENCE, jwks=JWKS)

    def run(token: str, subject_id: str = "p1") -> IdentityStatement:
        with installation.database.reading(by=OFFICER) as session:
            return identity.check(session, installation.keys, token, subject_sha256=sha256_of(subject_id), rule="text")

    return run


@each("alg", KEYS)
def test_a_valid_statement_is_accepted(check: Callable[..., IdentityStatement], alg: str) -> None:
    """A statement about the subject is accepted if it is signed by a registered issuer and valid for at most an
    hour."""
    found = check(signed(alg))
    left = found.expires_at - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(0) < left <= datetime.timedelta(minutes=10)
    again = check(signed(alg, aud=["other", AUDIENCE], nbf=int(time.time()), iat=int(time.time())))
    assert (again.issuer_id, again.hash) == (found.issuer_id, found.hash)
    # Clocks differ.
    assert check(signed(alg, exp=int(time.time()) - 30)).hash == found.hash
    assert check(signed(alg, nbf=int(time.time()) + 30, iat=int(time.time()) + 30)).hash == found.hash


WRONG: dict[str, Callable[[], str]] = {
    "no token": lambda: "a.b.c",
    "another subject": lambda: signed(sub="p2"),
    "no subject": lambda: signed(sub=None),
    "a number for a subject": lambda: signed(sub=1),
    "another issuer": lambda: signed(iss="https://evil.example"),
    "another audience": lambda: signed(aud="other"),
    "expired": lambda: signed(exp=int(time.time()) - 61),
    "good for too long": lambda: signed(exp=int(time.time()) + 3 * 3600),
    "good for ever": lambda: signed(exp=None),
    "a time that is none": lambda: signed(exp="soon"),
    "not yet good": lambda: signed(nbf=int(time.time()) + 600),
    "no id": lambda: signed(jti=None),
    "an empty id": lambda: signed(jti=""),
    "another key": lambda: signed(key=jwk.ECKey.generate_key("P-256", auto_kid=True)),
    "another key by the name of ours": lambda: signed(key=jwk.ECKey.generate_key("P-256", {"kid": KEYS["ES256"].kid})),
    "a secret that is our public key": lambda: signed(
        "HS256",
        key=jwk.OctKey.import_key(KEYS["RS256"].as_dict(private=False)["n"].encode() * 2, {"kid": KEYS["RS256"].kid}),
    ),
    "a key of another kind": lambda: signed("RS256", header={"kid": KEYS["ES256"].kid}),
    "no key named": lambda: signed(header={"kid": None}),
    "changed": lambda: signed()[:-8] + "AAAAAAAA",
}


@each("case", WRONG)
def test_all_invalid_statements_get_the_same_error(check: Callable[..., IdentityStatement], case: str) -> None:
    """An invalid statement is refused with the same error, whatever is wrong with it."""
    with pytest.raises(IdentityStatementInvalid) as error:
        check(WRONG[case]())
    assert error.value.detail == identity.refusal().detail


def test_an_unsigned_statement_is_refused(check: Callable[..., IdentityStatement]) -> None:
    """A statement with the signature algorithm `none` is refused."""
    parts = signed().split(".")
    for header in ("eyJhbGciOiJub25lIn0", "eyJhbGciOiJOT05FIn0"):
        with pytest.raises(IdentityStatementInvalid):
            check(f"{header}.{parts[1]}.")


def test_a_statement_is_used_once(installation: Installation, check: Callable[..., IdentityStatement]) -> None:
    """A statement that was used in one request is refused in any other request, even in the same batch. A refused
    request does not use up its statement."""
    statement = check(signed())
    with installation.database.writing() as session:
        with pytest.raises(InputInvalid):
            people.ask(session, "sub_a", POLICY, statement=statement, regulation="none")
        asked = [
            people.asked("sub_a", POLICY, statement=one) for one in (statement, statement, check(signed(jti="two")))
        ]
        made = deletion.submit_all(session, asked)
        assert [type(one).__name__ for one in made] == ["Submitted", "IdentityStatementInvalid", "Submitted"]
    with installation.database.writing() as session, pytest.raises(IdentityStatementInvalid):
        people.ask(session, "sub_a", POLICY, statement=statement)


def test_a_policy_may_require_statements(installation: Installation) -> None:
    """A tenant that requires statements refuses requests without one. A tenant that does not require them still refuses
    requests with an invalid statement."""
    with installation.database.writing() as session:
        with pytest.raises(IdentityStatementRequired) as error:
            people.ask(session, "sub_a", POLICY)
        assert [fault.path for fault in error.value.errors] == ["identity_statement"]
        with pytest.raises(IdentityStatementInvalid):
            people.ask(session, "sub_a", Policy(), statement=identity.refusal())


def test_used_statements_expire(installation: Installation, check: Callable[..., IdentityStatement]) -> None:
    """A used statement is remembered until its validity ends."""
    with installation.database.writing() as session:
        people.ask(session, "sub_a", POLICY, statement=check(signed()))
    with installation.database.writing() as session:
        assert identity.purge(session) == 0
        people.later(session, datetime.timedelta(minutes=12))
    with installation.database.writing() as session:
        assert identity.purge(session) == 1


def test_a_deleted_issuer_is_not_accepted(installation: Installation, check: Callable[..., IdentityStatement]) -> None:
    """An issuer's name can be registered only once. After the issuer is deleted, none of its statements is accepted,
    not even one that was verified before."""
    statement = check(signed())
    with installation.database.writing(by=OFFICER) as session:
        with pytest.raises(IssuerExists):
            identity.register(session, issuer=ISSUER, audience="other", jwks=JWKS)
        people.ask(session, "sub_a", POLICY, statement=check(signed(jti="used")))
        identity.delete(session, statement.issuer_id)
        with pytest.raises(IssuerUnknown):
            identity.delete(session, statement.issuer_id)
    with pytest.raises(IdentityStatementInvalid):
        check(signed())
    with installation.database.writing() as session, pytest.raises(IdentityStatementInvalid):
        people.ask(session, "sub_a", POLICY, statement=statement)


@each(
    "jwks",
    [
        {},
        {"keys": []},
        {"keys": ["key"]},
        {"keys": [{"kty": "oct", "k": "c2VjcmV0"}]},
        {"keys": [KEYS["ES256"].as_dict(private=True)]},
        {"keys": [jwk.ECKey.generate_key("P-384").as_dict(private=False)]},
        {"keys": [{"kty": "OKP", "crv": "Ed25519"}]},
        {"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]},
    ],
)
def test_unusable_keys_are_refused(installation: Installation, jwks: dict[str, Any]) -> None:
    """Symmetric, weak and invalid keys are refused on registration."""
    with installation.database.writing(by=OFFICER) as session, pytest.raises(InputInvalid) as error:
        identity.register(session, issuer=ISSUER, audience=AUDIENCE, jwks=jwks)
    assert error.value.errors[0].path.startswith("jwks")


@pytest.mark.parametrize("place", [0, 1])
def test_a_deeply_nested_statement_is_invalid(check: Callable[..., IdentityStatement], place: int) -> None:
    """A statement whose header or claims are nested too deeply to be parsed is invalid and causes no server error."""
    parts = signed().split(".")
    parts[place] = base64.urlsafe_b64encode(b'{"iss":' + b"[" * 50_000).rstrip(b"=").decode()
    with pytest.raises(IdentityStatementInvalid):
        check(".".join(parts))
