"""Every page has headers and files of its own, and a designed error page for each failure."""

import hashlib
import json
import re
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from app.api import operations
from app.config import Settings
from app.features.desk import endpoints, rendering as pages
from app.features.desk.languages import LANGUAGES
from app.features.desk.request_context import operation_of
from app.features.overview import endpoints as overview
from app.installations import Installation
from app.main import create_app
from lethe.contract.sets import Scope
from tests.features.desk.browsing import HERE, Browser, inline
from tests.tables import each

VENDOR = files("app.features.desk") / "static" / "vendor"


@each("path", ["/admin/login", "/admin", "/admin/requests", "/admin/nowhere"])
def test_pages_have_a_content_security_policy(officer: Browser, path: str) -> None:
    """Pages run only scripts and styles from our own files, never inline. Pages cannot be framed, are not cached, and
    send no referrer to other sites."""
    answer = officer.get(path)
    assert not inline(answer.text)
    headers = answer.headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"


def test_static_files_are_cached_forever(browser: Browser) -> None:
    """Static files need no session and can be cached forever, because their addresses change with their content."""
    page = browser.get("/admin/login").text
    addresses = re.findall(r'(?:src|href)="(/admin/static/[^"]+)"', page)
    assert len(addresses) >= 4
    for address in addresses:
        answer = browser.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert hashlib.sha256(answer.content).hexdigest().startswith(address.partition("?")[2])


def test_vendored_files_match_their_digests() -> None:
    """Each vendored file is listed with its version, registry, licence and digest."""
    manifest = json.loads((VENDOR / "manifest.json").read_text())
    listed = {file for package in manifest for file in package["files"]}
    assert {file.name for file in VENDOR.iterdir()} == listed | {"manifest.json"}
    for package in manifest:
        assert package["source"] == "npm"
        assert re.fullmatch(r"\d+\.\d+\.\d+", package["version"])
        assert package["licence"] in package["files"]
        for name, sha256 in package["files"].items():
            assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == sha256


def test_an_unknown_address_is_a_404(officer: Browser) -> None:
    """Unknown addresses and unknown ids return a page with a message and a link back."""
    for path in ("/admin/nowhere", "/admin/requests/dr_none"):
        answer = officer.get(path)
        assert answer.status_code == 404
        assert "Not found" in answer.text
        assert re.search(r'href="/admin"[^>]*>Back to the overview', answer.text)


def test_a_malformed_address_is_a_422(officer: Browser) -> None:
    """A request with an invalid filter or cursor gets a page with status 422 that names the fault and quotes no part of
    the request."""
    answer = officer.get("/admin/requests?status=<script>alert(1)</script>")
    assert answer.status_code == 422
    assert "alert(1)" not in answer.text
    assert '<strong title="status">Status:</strong> Choose from the list.' in answer.text
    answer = officer.get("/admin/requests?cursor=" + "x" * 501)
    assert "Enter at most 500 characters." in answer.text
    assert "String should" not in answer.text


def test_a_missing_scope_is_named(somebody_with: Callable[..., Browser]) -> None:
    """A page that is refused because the key lacks a scope names the scope."""
    answer = somebody_with(Scope.MODELS_READ).get("/admin/requests")
    assert answer.status_code == 403
    assert "requests:read" in answer.text


def test_parts_of_a_page_ask_for_the_login_in_place(browser: Browser) -> None:
    """If the session has ended, a request for part of an open page returns an empty 401 response that leaves the page
    unchanged, so that the page can ask for a login."""
    answer = browser.get("/admin/live", **{"HX-Request": "true"})
    assert (answer.status_code, answer.text) == (401, "")
    assert answer.headers["hx-reswap"] == "none"


def test_an_unreachable_database_is_a_503(
    officer: Browser, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the database cannot be reached, the page returns 503 with a message."""
    with installation.database.engine.connect() as connection:
        connection.execute(sa.text("ALTER TABLE dashboard_sessions RENAME TO away"))
        connection.commit()
    answer = officer.get("/admin/requests")
    assert answer.status_code == 503
    assert "Repeat the call" in answer.text


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_body_that_is_too_large_is_refused(settings: Settings, admin_key: str, is_declared: bool) -> None:
    """A file larger than the limit is refused with an error page, whether or not its length is declared."""
    small = settings.model_copy(update={"max_upload_bytes": 100_000})
    with TestClient(create_app(small), raise_server_exceptions=False) as client:
        officer = Browser(client=client, key=admin_key)
        officer.log_in()
        form = client.build_request("POST", "/admin/datasets/new", data={"name": "d"}, files={"file": b"0" * 200_000})
        content = form.read() if is_declared else iter([form.read()])
        headers = {"Origin": HERE, "X-CSRF-Token": officer.token(), "Content-Type": form.headers["content-type"]}
        answer = client.post("/admin/datasets/new", content=content, headers=headers)
        assert answer.status_code == 413
        assert '<div class="gate" data-code="upload_too_large">' in answer.text
        assert "LETHE_MAX_UPLOAD_BYTES" in answer.text
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert client.post("/v1/datasets", content=b"0" * 200_000).headers["content-type"] == "application/problem+json"


@pytest.mark.usefixtures("minute")
def test_rate_limits_apply_to_pages(gateway: TestClient, browser: Browser) -> None:
    """A key's rate limit applies to pages too, and the page states when to retry."""
    made = gateway.post("/v1/api-keys", json={"name": "few", "scopes": ["admin"], "calls_per_minute": 1}).json()
    few = Browser(client=browser.client, key=made["key"])
    few.log_in()
    answers = [few.get("/admin") for _ in range(3)]
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) <= 60
    assert "Too many calls" in answers[-1].text


def test_every_page_needs_a_session(browser: Browser) -> None:
    """Without a session every address under /admin redirects to the login, except for the login itself and
    invitations."""
    routes = [route for router in endpoints.routers() for route in router.routes if isinstance(route, APIRoute)]
    paths = {(method, route.path) for route in routes for method in route.methods}
    assert len(paths) > 10
    for method, path in paths:
        if path in ("/admin/login", "/admin/login/code", "/admin/welcome", "/admin/oidc", "/admin/oidc/return"):
            continue
        answer = browser.client.request(method, re.sub(r"\{[^}]*\}", "x", path), follow_redirects=False)
        assert answer.status_code == 303, path
        assert answer.headers["location"].startswith("/admin/login")


def test_pages_need_the_scopes_of_the_api() -> None:
    """A page requires the same scope as the API operation that it calls. A page cannot call an operation that has no
    scope."""
    assert operation_of(overview.get_overview).scope is Scope.ACCOUNTING_READ
    with pytest.raises(TypeError):
        operation_of(operations.readyz)


def test_pages_are_not_in_the_openapi_document(gateway: TestClient) -> None:
    """The OpenAPI document describes no pages."""
    assert not [path for path in gateway.get("/openapi.json").json()["paths"] if path.startswith("/admin")]


@each("name", ["dashboard.css", "dashboard.js", "vendor/htmx.min.js"])
def test_static_files_are_compressed_for_browsers_that_accept_gzip(browser: Browser, name: str) -> None:
    """A browser that accepts gzip gets a compressed static file, and any other browser gets the file uncompressed. Both
    can cache it."""
    asked = browser.get(pages.asset(name), **{"Accept-Encoding": "gzip"})
    plain = browser.get(pages.asset(name), **{"Accept-Encoding": "identity"})
    assert asked.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert asked.content == plain.content == (files("app.features.desk") / "static" / name).read_bytes()
    assert int(asked.headers["content-length"]) < len(asked.content) / 2
    for answer in (asked, plain):
        assert answer.headers["vary"] == "Accept-Encoding"
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-type"] == plain.headers["content-type"]
    again = browser.get(pages.asset(name), **{"Accept-Encoding": "gzip", "If-None-Match": asked.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@each("path", ["/admin/models/new", "/admin/datasets/new", "/admin/tenant"])
@each("language", LANGUAGES)
def test_hints_are_short(officer: Browser, new_dataset: Callable[..., Any], path: str, language: str) -> None:
    """In every language, the hints of long forms have at most twelve words."""
    new_dataset()
    page = officer.get(path, **{"Accept-Language": language}).text
    forms = "".join(re.findall(r'(?s)<form method="post".*?</form>', page))
    hints = re.findall(r'(?s)<p class="hint"[^>]*>(.*?)</p>', forms)
    assert len(hints) > 3
    assert [hint for hint in hints if len(hint.split()) > 12] == []


@each("path", ["/admin", "/admin/requests", "/admin/live", "/admin/requests.csv"])
def test_pages_are_not_compressed(officer: Browser, path: str) -> None:
    """Pages are not compressed, because they contain CSRF tokens next to text from the URL, and the compressed length
    would leak the tokens."""
    answer = officer.get(path, **{"Accept-Encoding": "gzip"})
    assert answer.status_code == 200
    assert "content-encoding" not in answer.headers
