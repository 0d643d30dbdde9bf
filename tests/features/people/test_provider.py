"""Logging in by an identity provider: a real one, and every fault of an answer."""

import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from joserfc import jwt
from joserfc.jwk import RSAKey

from app.config import Settings
from app.features.people import oidc, pages as people_pages
from app.main import create_app
from lethe.features.people.contract import IdentityProviderUnavailable, IdentityRefused
from tests.features.desk.browsing import Browser
from tests.features.people.provider import Provider, running
from tests.tables import each

MARIA = {"sub": "maria-1", "email": "Maria@Example.com", "email_verified": True}
PEOPLE: tuple[dict[str, Any], ...] = (
    MARIA,
    {"sub": "impostor", "email": "maria@example.com", "email_verified": True},
    {"sub": "maria-1 in words", "email": "maria@example.com", "email_verified": "true"},
    {"sub": "unverified", "email": "maria@example.com", "email_verified": False},
    {"sub": "unverified in words", "email": "maria@example.com", "email_verified": "false"},
    {"sub": "unverified by a number", "email": "maria@example.com", "email_verified": 1},
    {"sub": "unmentioned", "email": "maria@example.com"},
    {"sub": "kelvin", "email": "\N{KELVIN SIGN}arl@example.com", "email_verified": True},
    {"sub": "stranger", "email": "stranger@example.com", "email_verified": True},
)


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with running(*PEOPLE) as started:
        yield started


@pytest.fixture
def company(settings: Settings, provider: Provider) -> Settings:
    secret = settings.data_dir / "oidc.secret"
    secret.write_text('\ufeff"a secret of the client"\r\n')
    more = {"oidc_issuer": provider.issuer, "oidc_client_id": "lethe", "oidc_client_secret_file": secret}
    return settings.model_copy(update=more | {"oidc_name": "Example Ltd"})


@pytest.fixture
def browser(company: Settings, admin_key: str) -> Iterator[Browser]:
    """Yield a browser that is not logged in, at a gateway to which Maria has been invited."""
    with TestClient(create_app(company), raise_server_exceptions=False) as client:
        headers = {"Authorization": f"Bearer {admin_key}"}
        body = {"name": "Maria Lopez", "email": "maria@example.com", "role": "viewer"}
        assert client.post("/v1/users", json=body, headers=headers).status_code == 201
        yield Browser(client=client, key=admin_key)


def begun(browser: Browser, **changed: str) -> str:
    """Start a login and return the provider's address to which it leads, with some parameters changed."""
    address = browser.get("/admin/oidc?next=/admin/models").headers["location"]
    path, _, query = address.partition("?")
    return f"{path}?{urllib.parse.urlencode(dict(urllib.parse.parse_qsl(query)) | changed)}"


def refused(browser: Browser, path: str) -> str:
    """Check that the provider's response at `path` is refused and that no user is logged in, and return the page."""
    answer = browser.get(path)
    assert answer.status_code == 403, answer.text
    assert 'data-code="identity_refused"' in answer.text
    assert browser.get("/admin/models").status_code == 303
    return answer.text


def test_an_invited_user_logs_in_through_a_provider(browser: Browser, provider: Provider) -> None:
    """The login page links to the identity provider with PKCE. The provider's response leads to the requested page and
    can be used only once. From then on the user is identified by the provider's own id, and another user with the same
    address is refused."""
    page = browser.get("/admin/login?next=/admin/models").text
    assert "Log in with Example Ltd" in page
    assert "/admin/oidc?next=%2Fadmin%2Fmodels" in page
    address = begun(browser)
    asked = dict(urllib.parse.parse_qsl(address.partition("?")[2]))
    assert (asked["code_challenge_method"], asked["response_type"]) == ("S256", "code")
    back = provider.returns(address, "maria-1")
    answer = browser.get(back)
    assert answer.status_code == 200
    assert '<meta http-equiv="refresh" content="0; url=/admin/models">' in answer.text
    assert (
        "samesite=strict"
        in next(one for one in answer.headers.get_list("set-cookie") if "lethe_session" in one).lower()
    )
    assert ">Maria Lopez</a>" in browser.get("/admin/models").text
    browser.post("/admin/logout")
    refused(browser, back)
    refused(browser, provider.returns(begun(browser), "impostor"))
    assert browser.get(provider.returns(begun(browser), "maria-1")).status_code == 200


def test_email_verified_may_be_text(browser: Browser, provider: Provider) -> None:
    """An address counts as verified even if the provider sends the claim `email_verified` as the text "true"."""
    assert browser.get(provider.returns(begun(browser), "maria-1 in words")).status_code == 200
    assert ">Maria Lopez</a>" in browser.get("/admin/models").text


@each("subject", ["unverified", "unverified in words", "unverified by a number", "unmentioned", "stranger"])
def test_uninvited_users_are_refused(browser: Browser, provider: Provider, subject: str) -> None:
    """The login is refused if the provider has not verified the address or if the address was not invited."""
    page = refused(browser, provider.returns(begun(browser), subject))
    assert ("has not verified" in page) == (subject != "stranger")


def test_a_compatibility_character_is_refused(browser: Browser, provider: Provider) -> None:
    """If an address contains a compatibility character and its lower-case form equals another user's address, it is
    refused for logins and for invitations."""
    headers = {"Authorization": f"Bearer {browser.key}"}
    karl = {"name": "Karl", "email": "karl@example.com", "role": "administrator"}
    assert browser.client.post("/v1/users", json=karl, headers=headers).status_code == 201
    refused(browser, provider.returns(begun(browser), "kelvin"))
    body = karl | {"email": "\N{KELVIN SIGN}atja@example.com"}
    answer = browser.client.post("/v1/users", json=body, headers=headers)
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "email")


def test_responses_to_other_logins_are_refused(browser: Browser, provider: Provider) -> None:
    """The provider's response is refused if it has a different nonce or state, comes without the cookie, reports an
    error, or contains a made-up code."""
    refused(browser, provider.returns(begun(browser, nonce="another"), "maria-1"))
    refused(browser, provider.returns(begun(browser, state="another"), "maria-1"))
    begun(browser)
    back = provider.returns(begun(browser), "maria-1")
    state = dict(urllib.parse.parse_qsl(back.partition("?")[2]))["state"]
    refused(browser, f"/admin/oidc/return?state={state}&error=access_denied")
    refused(browser, f"/admin/oidc/return?state={state}&code=made-up")
    browser.client.cookies.delete("lethe_oidc")
    refused(browser, back)


def test_an_old_login_expires(browser: Browser, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """A login expires ten minutes after it began, even if the browser keeps its cookie."""
    back = provider.returns(begun(browser), "maria-1")
    later = time.time() + 601
    with monkeypatch.context() as patched:
        patched.setattr(people_pages.time, "time", lambda: later)
        assert "last ten minutes" in refused(browser, back)


def test_an_invalid_provider_is_refused(settings: Settings, provider: Provider) -> None:
    """A provider that states a different issuer name is refused. If the provider does not respond, a page with status
    503 reports it as unavailable."""
    for issuer, status in ((f"{provider.issuer}/", 403), ("http://127.0.0.1:9", 503)):
        other = settings.model_copy(update={"oidc_issuer": issuer, "oidc_client_id": "lethe"})
        with TestClient(create_app(other), raise_server_exceptions=False) as client:
            answer = client.get("/admin/oidc", follow_redirects=False)
            assert answer.status_code == status
            assert 'data-code="identity_' in answer.text


@pytest.mark.slow
def test_provider_metadata_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses that a provider publishes are cached for five minutes, during which the provider may be
    unavailable, and then fetched again."""
    with running(MARIA) as own:
        company = Settings(oidc_issuer=own.issuer, oidc_client_id="lethe")
        address, _ = oidc.start(company, redirect_uri="http://testserver/admin/oidc/return")
    again, _ = oidc.start(company, redirect_uri="http://testserver/admin/oidc/return")
    assert address.partition("?")[0] == again.partition("?")[0]
    for known, (_, found) in list(oidc._cache.items()):
        monkeypatch.setitem(oidc._cache, known, (0.0, found))
    with pytest.raises(IdentityProviderUnavailable):
        oidc.start(company, redirect_uri="http://testserver/admin/oidc/return")


LOGIN = Settings(oidc_issuer="https://login.example", oidc_client_id="lethe")


def claims_at(at: int) -> dict[str, Any]:
    """Return the claims of a token that the provider issues at time `at`."""
    return {"iss": LOGIN.oidc_issuer, "aud": "lethe", "sub": "1", "nonce": "n", "iat": at, "exp": at + 600}


def read(claims: dict[str, Any], *, of: RSAKey, signed_by: RSAKey | None = None) -> dict[str, Any]:
    """Return the claims read from a token, verified with the public part of the key `of`."""
    token = jwt.encode({"alg": "RS256", "kid": of.kid}, claims, signed_by or of, algorithms=["RS256"])
    keys = {"keys": [of.as_dict(private=False)]}
    return oidc.identity_claims({"id_token": token}, keys, settings=LOGIN, nonce="n")


@pytest.fixture(scope="module")
def key() -> RSAKey:
    return RSAKey.generate_key(2048, auto_kid=True)


@each("changed", [{"exp": -30}, {"iat": 30}, {"nbf": 30}])
def test_clock_skew_of_a_minute_is_tolerated(key: RSAKey, changed: dict[str, int]) -> None:
    """An ID token that expired half a minute ago or was issued half a minute in the future is accepted."""
    at = int(time.time())
    claims = claims_at(at) | {name: at + seconds for name, seconds in changed.items()}
    assert read(claims, of=key)["sub"] == "1"


@each(
    "changed",
    [
        {"iss": "https://evil.example"},
        {"aud": "another client"},
        {"aud": ["lethe", "another client"], "azp": "another client"},
        {"exp": 1},
        {"exp": None},
        {"nonce": "another"},
        {"nonce": None},
        {"sub": None},
        {"sub": ""},
    ],
)
def test_id_tokens_are_bound_to_the_login(key: RSAKey, changed: dict[str, Any]) -> None:
    """An ID token is refused if it has expired, has another issuer, audience or nonce, or has no subject."""
    claims = claims_at(int(time.time()))
    assert read(claims, of=key)["sub"] == "1"
    with pytest.raises(IdentityRefused):
        read({name: value for name, value in (claims | changed).items() if value is not None}, of=key)


def test_id_tokens_signed_with_another_key_are_refused(key: RSAKey) -> None:
    """A token that was signed with another key is refused."""
    with pytest.raises(IdentityRefused):
        read(claims_at(int(time.time())), of=key, signed_by=RSAKey.generate_key(2048))


def test_incomplete_provider_settings_are_refused() -> None:
    """Settings are invalid if they name an issuer but no client id, or an issuer that does not use https."""
    for wrong in ({"oidc_issuer": "https://login.example"}, {"oidc_issuer": "http://a.example", "oidc_client_id": "l"}):
        with pytest.raises(ValueError, match=r"oidc|OIDC"):
            Settings(**wrong)
