"""Login through an identity provider: OpenID Connect, authorization code flow with PKCE (RFC 7636).

The provider identifies the person; whether they may log in depends on their invitation (`users`).
"""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.client import OAuth2Client
from authlib.oauth2.rfc6749.parameters import prepare_token_request
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from app.config import Settings
from lethe.contract.fields import trimmed
from lethe.features.people.contract import IdentityProviderUnavailable, IdentityRefused, is_email_normal

ALGORITHMS = ["RS256", "PS256", "ES256", "ES384", "EdDSA", "Ed25519"]
"""Only asymmetric algorithms, so that a client secret cannot be used to sign tokens."""
_SECONDS = 3.0
_CACHE_SECONDS = 300.0
"""Time for which the provider's metadata and keys are cached."""
_cache: dict[str, tuple[float, dict[str, Any]]] = {}
"""Cached documents by URL, each with its expiry time."""
_CLOCKS_DIFFER_BY = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Login in progress; the provider's response must match it."""

    state: str
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcIdentity:
    """Person's identity at the provider. `email` is None unless the provider has verified it."""

    issuer: str
    subject: str
    email: str | None


def start(settings: Settings, *, redirect_uri: str) -> tuple[str, Attempt]:
    """Return the provider's login URL and the attempt. Raises `IdentityProviderUnavailable`, `IdentityRefused`."""
    attempt = Attempt(
        state=secrets.token_urlsafe(32), nonce=secrets.token_urlsafe(32), verifier=secrets.token_urlsafe(48)
    )
    with _http() as http:
        metadata = _metadata(http, settings)
    client = OAuth2Client(
        session=None, client_id=settings.oidc_client_id, scope="openid email profile", code_challenge_method="S256"
    )
    address, _ = client.create_authorization_url(
        metadata["authorization_endpoint"],
        state=attempt.state,
        code_verifier=attempt.verifier,
        nonce=attempt.nonce,
        redirect_uri=redirect_uri,
    )
    return str(address), attempt


def finish(settings: Settings, attempt: Attempt, *, code: str, redirect_uri: str) -> OidcIdentity:
    """Exchange the authorization code for the person's identity. Raises `IdentityProviderUnavailable`,
    `IdentityRefused`."""
    with _http() as http:
        metadata = _metadata(http, settings)
        granted = _exchange(http, settings, metadata, attempt, code=code, redirect_uri=redirect_uri)
        try:
            keys = _published(http, metadata["jwks_uri"])
            claims = identity_claims(granted, keys, settings=settings, nonce=attempt.nonce)
        # The provider may have changed its keys since they were cached.
        except IdentityRefused:
            keys = _published(http, metadata["jwks_uri"], afresh=True)
            claims = identity_claims(granted, keys, settings=settings, nonce=attempt.nonce)
        if not {"email", "email_verified"} <= claims.keys() and "userinfo_endpoint" in metadata:
            bearer = {"Authorization": f"Bearer {granted.get('access_token')}"}
            more = _json(http.get(metadata["userinfo_endpoint"], headers=bearer))
            # OpenID Connect Core, 5.3.2
            if more.get("sub") == claims["sub"]:
                claims |= {name: more.get(name) for name in ("email", "email_verified")}
    email = claims.get("email")
    # Some providers send a string. A missing claim verifies nothing.
    verified = claims.get("email_verified")
    is_verified = (verified is True or verified == "true") and isinstance(email, str) and is_email_normal(email)
    return OidcIdentity(issuer=claims["iss"], subject=claims["sub"], email=str(email).lower() if is_verified else None)


def identity_claims(granted: dict[str, Any], keys: dict[str, Any], *, settings: Settings, nonce: str) -> dict[str, Any]:
    """Return the claims of the ID token. Raises `IdentityRefused` unless the provider signed the token for this client
    and this login, and it has not expired."""
    try:
        token = jwt.decode(str(granted["id_token"]), KeySet.import_key_set(keys), algorithms=ALGORITHMS)  # type: ignore[arg-type]
        claims = CodeIDToken(
            token.claims,
            token.header,
            options={
                "iss": {"essential": True, "value": settings.oidc_issuer},
                "aud": {"essential": True, "value": settings.oidc_client_id},
            },
            params={"nonce": nonce, "client_id": settings.oidc_client_id, "access_token": granted.get("access_token")},
        )
        claims.validate(leeway=_CLOCKS_DIFFER_BY)
        subject = claims["sub"]
    except (JoseError, KeyError, TypeError, ValueError) as error:
        raise IdentityRefused(
            "The identity provider's statement is not for this login: another signature, issuer, client or nonce, or "
            "it has expired. Begin again."
        ) from error
    if not isinstance(subject, str) or not subject:
        raise IdentityRefused("The identity provider does not say who this is.")
    return dict(claims)


@contextmanager
def _http() -> Iterator[httpx.Client]:
    """Open an HTTP client for the provider. Errors in the block raise `IdentityProviderUnavailable`."""
    try:
        with httpx.Client(timeout=_SECONDS, follow_redirects=False) as http:
            yield http
    except httpx.HTTPError as error:
        raise _unavailable() from error


def _json(answer: httpx.Response) -> dict[str, Any]:
    """Return the JSON object in a successful response. Raises `IdentityProviderUnavailable`."""
    try:
        document = answer.json() if answer.is_success else None
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise _unavailable()
    return document


def _published(http: httpx.Client, address: str, *, afresh: bool = False) -> dict[str, Any]:
    """Return the document at one of the provider's URLs, at most five minutes old; `afresh` bypasses the cache."""
    until, document = _cache.get(address, (0.0, {}))
    if afresh or time.monotonic() >= until:
        document = _json(http.get(address))
        _cache[address] = time.monotonic() + _CACHE_SECONDS, document
    return document


def _unavailable() -> IdentityProviderUnavailable:
    return IdentityProviderUnavailable("The identity provider does not answer as it should. Try again in a while.")


def _metadata(http: httpx.Client, settings: Settings) -> dict[str, Any]:
    """Return the provider's metadata, whose issuer must equal `LETHE_OIDC_ISSUER` (OpenID Connect Discovery, 4.3)."""
    issuer = settings.oidc_issuer or ""
    metadata = _published(http, f"{issuer.rstrip('/')}/.well-known/openid-configuration")
    if metadata.get("issuer") != issuer:
        raise IdentityRefused("The identity provider calls itself otherwise than LETHE_OIDC_ISSUER does.")
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
        address = metadata.get(name)
        if not isinstance(address, str) or not address.startswith(("https://", f"{issuer.rstrip('/')}/")):
            raise IdentityRefused("The identity provider has no {name} that is reached by https.", name=name)
    return metadata


def _exchange(
    http: httpx.Client, settings: Settings, metadata: dict[str, Any], attempt: Attempt, *, code: str, redirect_uri: str
) -> dict[str, Any]:
    file = settings.oidc_client_secret_file
    secret = None if file is None else trimmed(file.read_text())
    offered = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    method = "client_secret_basic" if "client_secret_basic" in offered else "client_secret_post"
    body = prepare_token_request(
        "authorization_code", code=code, redirect_uri=redirect_uri, code_verifier=attempt.verifier
    )
    address, headers, body = ClientAuth(settings.oidc_client_id, secret, method if secret else "none").prepare(
        "POST",
        metadata["token_endpoint"],
        {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"},
        body,
    )
    answer = http.post(address, headers=headers, content=body)
    if 400 <= answer.status_code < 500:
        raise IdentityRefused("The identity provider did not accept the authorization code. Log in again.")
    return _json(answer)
