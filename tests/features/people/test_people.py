"""Users: invited by a link that is shown once, logged in with password and code, shown by name, and disabled."""

import datetime
import html
import re
from collections.abc import Callable
from typing import Any

import pyotp
import pytest
from fastapi.testclient import TestClient

from app.access import rates, service as access
from app.api.calls import Call
from app.api.gateway import SERVED
from app.config import Settings
from app.db import Actor
from app.features.desk import request_context, sessions
from app.features.desk.menu import entries
from app.features.desk.pages import login
from app.features.people import users
from app.installations import Installation
from app.main import create_app
from lethe.contract.problems import Unauthenticated
from lethe.contract.sets import Scope
from lethe.features.people.contract import LoginRefused, Role
from tests.features.desk.browsing import Browser, hidden
from tests.tables import each

Get = Callable[[str], Any]
EMAIL, PASSWORD = "maria@example.com", "correct horse battery staple"
READERS = {Role.VIEWER, Role.OFFICER, Role.ENGINEER, Role.ADMINISTRATOR}
MAY: dict[Scope, set[Role]] = {
    Scope.REQUESTS_READ: READERS,
    Scope.REQUESTS_WRITE: {Role.OFFICER, Role.ADMINISTRATOR},
    Scope.REQUESTS_REVIEW: {Role.OFFICER, Role.ADMINISTRATOR},
    Scope.MODELS_READ: READERS,
    Scope.MODELS_WRITE: {Role.ENGINEER, Role.ADMINISTRATOR},
    Scope.ACCOUNTING_READ: READERS,
    Scope.ADMIN: {Role.ADMINISTRATOR},
    Scope.AGENT: {Role.ADMINISTRATOR},
    Scope.METRICS_READ: {Role.OPERATOR},
    Scope.OPERATOR: {Role.OPERATOR},
}
"""Roles that have each scope, spelled out."""
TITLES = {
    "Inbox Overview Calendar Accounting Ledger Calculator Requests Suppressions Deliveries": READERS,
    "Models Datasets Networks Runs Systems Identities": READERS,
    "People Keys": {Role.ADMINISTRATOR},
    "Policy": {Role.ADMINISTRATOR, Role.OFFICER},
    "Tenants Installation": {Role.OPERATOR},
}
PAGES = {title: roles for titles, roles in TITLES.items() for title in titles.split()}
PAGES |= dict.fromkeys(("Trainers", "Attested trainers"), PAGES["Models"])
PAGES |= {"Leaving reasons": READERS, "Audit log": {Role.ADMINISTRATOR, Role.OFFICER}}
"""Roles that see each page of the menu."""


def beside(gateway: TestClient) -> Browser:
    """Return a second browser for the same gateway that is not logged in."""
    client = TestClient(gateway.app, raise_server_exceptions=False)
    client.portal = gateway.portal
    return Browser(client=client, key="")


def invitation_of(officer: Browser, **asked: str) -> str:
    """Invite a user and return the path of the invitation, which the page shows only once."""
    answer = officer.post("/admin/people", **({"name": "Maria Lopez", "email": EMAIL, "role": "officer"} | asked))
    assert answer.status_code == 201, answer.text
    return str(re.findall(r'data-copy="http://testserver(/admin/welcome\?invitation=[\w-]+)"', answer.text)[0])


def welcomed(browser: Browser, invitation: str, *, password: str = PASSWORD, with_app: bool = False) -> str:
    """Accept an invitation and return the authenticator app's secret."""
    page = browser.get(invitation).text
    # The whole code is visible at any size.
    assert re.search(r'<svg [^>]*viewBox="0 0 (\d+) \1"', page)
    form = hidden(page)
    code = pyotp.TOTP(form["secret"]).now() if with_app else ""
    answer = browser.post("/admin/welcome", **(form | {"password": password, "code": code}))
    assert answer.status_code == 303, answer.text
    return form["secret"]


def later(secret: str) -> str:
    """Return the code for the next time step, for use after the current one has been accepted."""
    return pyotp.TOTP(secret).at(datetime.datetime.now() + datetime.timedelta(seconds=30))  # noqa: DTZ005  pyotp wants local time


def test_an_invited_user_decides_by_name(
    officer: Browser, gateway: TestClient, forget: Callable[..., Any], get: Get
) -> None:
    """An invited user sets a password, enrols an authenticator app, logs in with a code and approves a request. Events
    and the audit log show the user's name next to the id, even after the user has been disabled, which also logs them
    out."""
    request = forget("p1", identity_verified=False)["id"]
    maria = beside(gateway)
    invitation = invitation_of(officer)
    secret = welcomed(maria, invitation, with_app=True)
    assert maria.get(invitation).status_code == 410
    maria.post("/admin/logout")
    assert maria.log_in_as(EMAIL, PASSWORD, code=later(secret)).headers["location"] == "/admin"
    page = maria.get("/admin/requests").text
    assert ">Maria Lopez</a>" in page
    assert ">default</span>" in page
    assert maria.get("/admin/keys").status_code == 403
    assert maria.post(f"/admin/requests/{request}/approve").status_code == 303
    [user] = get("/users")["items"]
    event = next(one for one in get(f"/deletion-requests/{request}/events")["items"] if one["kind"] == "accepted")
    assert (event["actor"], event["actor_name"]) == (user["id"], "Maria Lopez")
    assert "by <span title=" in maria.get(f"/admin/requests/{request}").text
    assert officer.post(f"/admin/people/{user['id']}/disable").headers["location"] == "/admin/people?done=disabled"
    assert maria.get("/admin/requests").status_code == 303
    assert maria.log_in_as(EMAIL, PASSWORD).status_code == 401
    log = get("/audit-log?actor=" + user["id"])
    assert log["names"][user["id"]] == "Maria Lopez"
    assert request in {one["object_id"] for one in log["items"]}
    assert "dashboard.session_opened" in {one["action"] for one in log["items"]}
    assert "Maria Lopez" in officer.get("/admin/audit-log").text
    assert EMAIL not in str(get("/audit-log")["items"])


def test_failed_logins_get_the_same_response(officer: Browser, gateway: TestClient) -> None:
    """A wrong password, an unknown address and a wrong code get the same response, which never contains the
    password."""
    maria = beside(gateway)
    welcomed(maria, invitation_of(officer), with_app=True)
    maria.post("/admin/logout")
    answers = [
        maria.log_in_as(EMAIL, "wrong password"),
        maria.log_in_as("nobody@example.com", "wrong password"),
        maria.log_in_as(EMAIL, PASSWORD, code="000000"),
        maria.log_in_as(EMAIL, PASSWORD, code="000000", step="usr_0.9999999999.00"),
    ]
    assert [answer.status_code for answer in answers] == [401] * 4
    assert all("is wrong, or the account is deactivated" in html.unescape(answer.text) for answer in answers)
    assert "wrong password" not in answers[0].text
    assert "lethe_session" not in maria.client.cookies


def test_a_changed_password_ends_a_login_in_progress(
    officer: Browser, gateway: TestClient, installation: Installation, by: Actor
) -> None:
    """The password is compared again just before a login opens a session. A password change during the login therefore
    prevents the session, and a later change ends it."""
    welcomed(beside(gateway), invitation_of(officer))
    with installation.database.reading() as session:
        user = users.checked(session, email=EMAIL, password=PASSWORD)
    login._enter(installation, user, "in time", password=PASSWORD)
    with installation.database.reading() as session:
        assert sessions.caller_of(session, "in time", settings=installation.settings)[0].id == user.id
    with installation.database.writing(by=by) as session:
        users.change_password(session, users.get(session, user.id), password_hash="$argon2id$")
    with pytest.raises(LoginRefused):
        login._enter(installation, user, "too late", password=PASSWORD)
    for token in ("in time", "too late"):
        with installation.database.reading() as session, pytest.raises(Unauthenticated):
            sessions.caller_of(session, token, settings=installation.settings)


def test_the_second_step_is_bound_to_the_browser(officer: Browser, gateway: TestClient) -> None:
    """The token of the first login step is refused in another browser and after a few minutes."""
    maria, thief = beside(gateway), beside(gateway)
    secret = welcomed(maria, invitation_of(officer), with_app=True)
    maria.post("/admin/logout")
    given = hidden(maria.log_in_as(EMAIL, PASSWORD).text)
    form = hidden(thief.get("/admin/login").text) | {"step": given["step"], "code": later(secret)}
    assert thief.post("/admin/login/code", **form).status_code == 401
    user_id, _, mac = given["step"].split(".")
    stale = given | {"step": f"{user_id}.1.{mac}", "code": later(secret)}
    assert maria.post("/admin/login/code", **stale).status_code == 401


def test_password_guessing_is_limited(settings: Settings, admin_key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After ten wrong passwords within a clock minute, every further password is refused, whether or not the account
    exists."""
    # Eleven slow hashes may take longer than what is left of the minute.
    monkeypatch.setattr(rates, "_present", lambda: 1000)
    many = settings.model_copy(update={"failed_calls_per_minute": 100})
    with TestClient(create_app(many), raise_server_exceptions=False) as client:
        browser = Browser(client=client, key=admin_key)
        answers = [browser.log_in_as("nobody@example.com", "wrong") for _ in range(11)]
        assert [answer.status_code for answer in answers] == [401] * 10 + [429]
        assert browser.log_in().status_code == 303


def test_codes_can_be_required(settings: Settings, admin_key: str) -> None:
    """If LETHE_REQUIRE_TOTP is set, accepting an invitation or logging in requires a code."""
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        admin = Browser(client=client, key=admin_key)
        admin.log_in()
        invitation, another = invitation_of(admin), invitation_of(admin, email="ann@example.com")
        admin.post("/admin/logout")
        welcomed(admin, invitation)
    strict = settings.model_copy(update={"require_totp": True})
    with TestClient(create_app(strict), raise_server_exceptions=False) as client:
        maria = Browser(client=client, key="")
        form = hidden(maria.get(another).text)
        refused = maria.post("/admin/welcome", **(form | {"password": PASSWORD, "code": ""}))
        assert refused.status_code == 422
        assert form["secret"] in refused.text
        step = maria.log_in_as(EMAIL, PASSWORD)
        assert "Enrol yours now" in step.text
        code = pyotp.TOTP(hidden(step.text)["secret"]).now()
        assert maria.post("/admin/login/code", code=code, **hidden(step.text)).status_code == 303


def test_users_change_their_own_credentials(officer: Browser, gateway: TestClient) -> None:
    """Users can change their password by entering the current one, which ends their other sessions. They can also enrol
    and remove an authenticator app."""
    maria, elsewhere = beside(gateway), beside(gateway)
    welcomed(maria, invitation_of(officer))
    elsewhere.log_in_as(EMAIL, PASSWORD)
    assert elsewhere.get("/admin/account").status_code == 200
    changed = {"present": PASSWORD, "password": "another password of mine"}
    refused = maria.post("/admin/account/password", **(changed | {"present": "wrong"}))
    assert (refused.status_code, "This is not your current password" in refused.text) == (422, True)
    assert maria.post("/admin/account/password", **(changed | {"password": "short"})).status_code == 422
    assert maria.post("/admin/account/password", **changed).headers["location"] == "/admin/account?done=password"
    assert elsewhere.get("/admin/account").status_code == 303
    form = hidden(re.findall(r"(?s)<form[^>]*/account/totp\".*?</form>", maria.get("/admin/account").text)[0])
    present = {"present": changed["password"]}
    assert maria.post("/admin/account/totp", **(form | present | {"code": "000000"})).status_code == 422
    code = pyotp.TOTP(form["secret"]).now()
    assert maria.post("/admin/account/totp", **(form | present | {"code": code})).status_code == 303
    assert "Code of your authenticator app" in elsewhere.log_in_as(EMAIL, changed["password"]).text
    assert maria.post("/admin/account/totp/remove", **present).headers["location"] == "/admin/account?done=removed"
    assert officer.post("/admin/account/password", **changed).status_code == 404


def test_administrators_change_users(officer: Browser, get: Get) -> None:
    """An administrator can change a user's name and role and repeat the invitation. The page explains what is wrong
    with invalid input."""
    invitation_of(officer)
    [user] = get("/users")["items"]
    path = f"/admin/people/{user['id']}"
    assert officer.post(f"{path}/change", name="Maria L.", role="viewer").headers["location"] == f"{path}?done=changed"
    assert get(f"/users/{user['id']}")["role"] == "viewer"
    assert "Maria L." in officer.get(path).text
    assert officer.post(f"{path}/invite").status_code == 201
    assert officer.post(f"{path}/change", name="", role="viewer").status_code == 422
    again = officer.post("/admin/people", name="Maria", email=EMAIL.upper(), role="viewer")
    assert (again.status_code, "A person with this e-mail address exists" in again.text) == (409, True)
    assert officer.post("/admin/people", name="Ann", email="no address", role="viewer").status_code == 422
    assert officer.get("/admin/people/usr_0").status_code == 404


@each("role", Role)
def test_roles_see_their_pages_and_operations(
    gateway: TestClient, installation: Installation, by: Actor, admin_key: str, role: Role
) -> None:
    """The menu shows each role exactly the pages that the role may use, and each role can call exactly the operations
    that it may use. `test_page_scopes.py` checks that pages need what the menu needs."""
    assert PAGES.keys() == {entry.title for entry in entries()}
    assert MAY.keys() == set(Scope)
    browser, token = beside(gateway), sessions.new_token()
    with installation.database.writing(by=by) as session:
        admin = access.caller_with(session, access.find(session, admin_key))
        user, _ = users.create(session, name=role, email=f"{role}@example.com", role=role, by=admin)
        session.flush()
        caller = users.caller_as(session, user)
        sessions.open_session(session, token=token, caller=caller, settings=installation.settings)
    browser.client.cookies.set("lethe_session", token, path="/admin")
    shown = re.findall(r'<li><a href="(/admin[^"]*)"', browser.get("/admin/calculator").text)
    for entry in entries():
        is_seen = role in PAGES[entry.title]
        assert (entry.path in shown) == is_seen, (role, entry.title)
    call = Call(installation=installation, caller=caller)
    for endpoint, operation in SERVED.items():
        if operation.scope is not None:
            assert request_context.may(call, endpoint) == (role in MAY[operation.scope]), (role, operation.name)
