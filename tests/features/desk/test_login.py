"""Logging in: keys, cookies, cross-site forms, and the ends of a session."""

import datetime
import re
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.config import Settings
from app.features.desk import jobs
from app.features.desk.tables import DashboardSession
from app.installations import Installation
from app.main import create_app
from lethe.contract.sets import Scope
from lethe.features.desk.contract import FormRefused
from tests.features.desk.browsing import Browser
from tests.tables import each


def test_a_page_redirects_to_the_login(browser: Browser) -> None:
    """Without a session, a page redirects to the login page, and the login leads back to the page."""
    answer = browser.get("/admin/requests")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/admin/login?next=%2Fadmin%2Frequests"
    answer = browser.log_in(after=answer.headers["location"])
    assert (answer.status_code, answer.headers["location"]) == (303, "/admin/requests")
    assert browser.get("/admin/requests").status_code == 200


@each(
    "onward",
    ["https://evil.example", "//evil.example", "/admin//evil.example", "/admin/..\\evil", "/v1/models", "/adminx"],
)
def test_a_login_redirects_only_to_the_dashboard(browser: Browser, onward: str) -> None:
    """A login redirects only to pages of the dashboard, whatever address was requested."""
    answer = browser.log_in(after=f"/admin/login?next={onward}")
    assert answer.headers["location"] == "/admin"


def test_a_wrong_key_is_refused(browser: Browser) -> None:
    """The login page states that the key is not valid and does not repeat the key, and no session is started."""
    answer = browser.log_in(key="lethe_wrong")
    assert answer.status_code == 401
    assert "not valid" in answer.text
    assert "lethe_wrong" not in answer.text
    assert "lethe_session" not in browser.client.cookies


@pytest.mark.usefixtures("minute")
def test_guessing_is_limited(settings: Settings, admin_key: str) -> None:
    """Wrong keys at the login page count towards the same limit as wrong keys at the API. Beyond the limit, both refuse
    further attempts from the caller's address for a while."""
    few = settings.model_copy(update={"failed_calls_per_minute": 2})
    with TestClient(create_app(few), raise_server_exceptions=False) as client:
        browser = Browser(client=client, key=admin_key)
        answers = [browser.log_in(key=f"lethe_{n}") for n in range(3)]
        assert [answer.status_code for answer in answers] == [401, 401, 429]
        assert 1 <= int(answers[2].headers["retry-after"]) <= 60
        assert client.get("/v1/tenant", headers={"Authorization": "Bearer lethe_4"}).status_code == 429


def test_the_cookie_is_restricted(browser: Browser) -> None:
    """The session cookie is hidden from scripts, not sent by other sites and restricted to the dashboard. It does not
    contain the key."""
    cookie = browser.log_in().headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/admin" in cookie
    assert browser.key.lower() not in cookie
    assert "secure" not in re.findall(r"lethe_session=[^,]*", cookie)[0]


def test_the_cookie_is_restricted_to_https(settings: Settings, admin_key: str) -> None:
    """On HTTPS, the `Secure` attribute and the `__Host-` prefix restrict the session cookie to HTTPS."""
    origin = "https://lethe.example"
    with TestClient(create_app(settings), base_url=origin) as client:
        page = client.get("/admin/login").text
        [token] = re.findall(r'name="csrf" value="([0-9a-f]{64})"', page)
        answer = client.post(
            "/admin/login",
            data={"csrf": token, "key": admin_key},
            headers={"Origin": origin},
            follow_redirects=False,
        )
        assert answer.status_code == 303
        [cookie] = [one for one in answer.headers.get_list("set-cookie") if "lethe_session" in one]
        assert re.fullmatch(r"__Host-lethe_session=[\w-]+; HttpOnly; Path=/; SameSite=strict; Secure", cookie)
        assert client.get("/admin/requests").status_code == 200
        assert not [one.name for one in client.cookies.jar if not one.name.startswith("__Host-")]


@pytest.mark.parametrize("base", ["https://lethe.example", "http://lethe.example"])
def test_a_cookie_without_the_host_prefix_is_refused_on_https(
    settings: Settings, admin_key: str, officer: Browser, base: str
) -> None:
    """On HTTPS, a session cookie without the `__Host-` prefix is refused, because a sibling domain or a page without
    TLS could have set it. The same applies if only the dashboard's origin uses HTTPS."""
    token = officer.client.cookies["lethe_session"]
    at_https = settings.model_copy(update={"dashboard_origin": "https://lethe.example"})
    with TestClient(create_app(at_https), base_url=base) as client:
        for name, status in (("lethe_session", 303), ("__Host-lethe_session", 200)):
            answer = client.get("/admin/requests", headers={"Cookie": f"{name}={token}"}, follow_redirects=False)
            assert answer.status_code == status


def test_only_a_hash_is_stored(officer: Browser, installation: Installation) -> None:
    """The database contains only a hash of the session token."""
    with installation.database.reading() as session:
        [stored] = session.scalars(sa.select(DashboardSession.token_hash))
    assert stored not in (officer.client.cookies["lethe_session"], officer.key)
    assert len(stored) == 64


def test_logging_out_ends_the_session(officer: Browser) -> None:
    """Logging out also ends the session on the server, and the cookie is no longer accepted."""
    kept = officer.client.cookies["lethe_session"]
    answer = officer.post("/admin/logout")
    assert answer.headers["location"] == "/admin/login?ended=1"
    officer.client.cookies.set("lethe_session", kept, path="/admin")
    assert officer.get("/admin").headers["location"] == "/admin/login"


def test_a_revoked_key_ends_its_sessions(
    gateway: TestClient, somebody_with: Callable[..., Browser], installation: Installation
) -> None:
    """Revoking a key ends the sessions that were started with it."""
    browser = somebody_with(Scope.REQUESTS_READ)
    assert browser.get("/admin/requests").status_code == 200
    [key_id] = [one["id"] for one in gateway.get("/v1/api-keys").json()["items"] if one["name"] == "test"]
    assert gateway.delete(f"/v1/api-keys/{key_id}").status_code == 204
    assert browser.get("/admin/requests").status_code == 303


@pytest.mark.parametrize("column", ["seen_at", "expires_at"])
def test_idle_and_old_sessions_expire(officer: Browser, installation: Installation, column: str) -> None:
    """A session ends after an hour without use or after half a day, and its data is deleted."""
    long_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1, minutes=1)
    with installation.database.writing() as session:
        session.execute(sa.update(DashboardSession).values({column: long_ago}))
    assert officer.get("/admin").status_code == 303
    jobs.forget_sessions(installation)
    with installation.database.reading() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(DashboardSession)) == 0


def test_using_a_session_extends_it(officer: Browser, installation: Installation) -> None:
    """Using a session restarts its idle period of an hour."""
    a_while_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=50)
    with installation.database.writing() as session:
        session.execute(sa.update(DashboardSession).values(seen_at=a_while_ago))
    assert officer.get("/admin").status_code == 200
    jobs.forget_sessions(installation)
    with installation.database.reading() as session:
        assert session.scalars(sa.select(DashboardSession.seen_at)).one() > a_while_ago + datetime.timedelta(minutes=45)


def test_sessions_are_in_the_audit_log(officer: Browser, gateway: TestClient) -> None:
    """Logins and logouts are recorded in the audit log."""
    officer.post("/admin/logout")
    actions = [one["action"] for one in gateway.get("/v1/audit-log").json()["items"]]
    assert actions[:2] == ["dashboard.session_closed", "dashboard.session_opened"]


@each("origin", [None, "null", "http://evil.example", "http://testserver.evil.example"])
def test_forms_from_elsewhere_are_refused(officer: Browser, origin: str | None) -> None:
    """A form on another site has no effect, even with the right CSRF token, and cannot log a user in."""
    answer = officer.post("/admin/logout", origin=origin)
    assert answer.status_code == FormRefused.status
    assert 'data-code="form_refused"' in answer.text
    assert officer.get("/admin").status_code == 200
    page = officer.get("/admin/login").text
    [token] = re.findall(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert officer.post("/admin/login", origin=origin, csrf=token, key=officer.key).status_code == 403


@each("token", ["", "0" * 64, "ä"])
def test_forms_without_their_token_are_refused(officer: Browser, token: str) -> None:
    """A form with a wrong CSRF token, or a login with the token of another page, has no effect."""
    assert officer.post("/admin/logout", csrf=token).status_code == 403
    assert officer.get("/admin").status_code == 200
    assert officer.post("/admin/login", csrf=token, key=officer.key).status_code == 403


def test_forms_must_come_from_the_dashboard_origin(settings: Settings, admin_key: str) -> None:
    """If LETHE_DASHBOARD_ORIGIN is set, a form from any other origin is refused."""
    behind = settings.model_copy(update={"dashboard_origin": "https://lethe.example"})
    with TestClient(create_app(behind), base_url="https://testserver", raise_server_exceptions=False) as client:
        page = client.get("/admin/login").text
        [token] = re.findall(r'name="csrf" value="([0-9a-f]{64})"', page)
        fields = {"csrf": token, "key": admin_key}
        refused = client.post("/admin/login", data=fields, headers={"Origin": "http://testserver"})
        assert refused.status_code == 403
        answer = client.post(
            "/admin/login", data=fields, headers={"Origin": "https://lethe.example"}, follow_redirects=False
        )
        assert answer.status_code == 303


def test_a_long_login_form_is_refused(browser: Browser) -> None:
    """A login form much longer than a key gets a 413 response."""
    answer = browser.client.post(
        "/admin/login", content=b"key=" + b"x" * 20_000, headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert answer.status_code == 413
