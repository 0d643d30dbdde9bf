"""User pages: login through an identity provider, invitations, the caller's account, and the users with their roles.

The session cookie is strict, so browsers do not send it to the page to which the provider redirects. The login in
progress is therefore kept in a short-lived lax cookie, and that page redirects again to the page originally requested.
"""

import base64
import datetime
import hmac
import json
import time
from typing import Annotated, Literal

import anyio.to_thread
from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from app.access.service import Caller
from app.api import calls
from app.db import Actor
from app.features.desk import gate, languages, lists, menu, rendering as pages, sessions, wording
from app.features.desk.forms import checked, text
from app.features.desk.request_context import Form, RequestContext, TheContext
from app.features.people import credentials, endpoints, oidc, users
from app.features.people.tables import User
from app.installations import Installation
from lethe.contract.problems import FieldError, InputInvalid, NotFound, Problem, RateLimited
from lethe.features.people import contract

router = pages.new_router()

_COOKIE = "lethe_oidc"
_PATH = f"{pages.ROOT}/oidc"
_SECONDS = 600
Sent = Annotated[str, Query(max_length=4096)]


@router.get("/oidc")
# This is the usual name of the parameter in addresses of logins.
async def begin(request: Request, installation: calls.At, next: gate.Next = pages.ROOT) -> Response:  # noqa: A002
    """Redirect the browser to the identity provider's login page."""
    limits = _provider_limits(request, installation)
    limits.rates.count_login(calls.address_of(request.scope))
    address, attempt = await anyio.to_thread.run_sync(
        lambda: oidc.start(installation.settings, redirect_uri=_back(request, installation)), limiter=limits.providers
    )
    answer = pages.see(address)
    sealed = _sealed(installation, attempt, gate.onward_page(next))
    sessions.put(request, answer, _COOKIE, sealed, path=_PATH, max_age=_SECONDS, samesite="lax")
    return answer


@router.get("/oidc/return")
async def come_back(
    request: Request, installation: calls.At, state: Sent = "", code: Sent = "", error: Sent = ""
) -> Response:
    """Log in the invited person identified by the identity provider."""
    limits = _provider_limits(request, installation)
    token = sessions.new_token()
    try:
        attempt, onward = _opened(installation, sessions.read(request, _COOKIE))
        if not hmac.compare_digest(attempt.state.encode(), state.encode()):
            raise contract.IdentityRefused(
                languages.gettext("This answer is to another login than the one that was begun in this browser.")
            )
        if error or not code:
            raise contract.IdentityRefused(languages.gettext("The identity provider refused the login."))
        identity = await anyio.to_thread.run_sync(
            lambda: oidc.finish(installation.settings, attempt, code=code, redirect_uri=_back(request, installation)),
            limiter=limits.providers,
        )
        caller = await run_in_threadpool(_enter, installation, identity, token)
    except contract.IdentityRefused:
        limits.rates.failed(calls.address_of(request.scope))
        raise
    answer = pages.rendered(request, "continue.html", onward=onward, name=caller.name)
    sessions.drop(request, answer, _COOKIE, path=_PATH)
    return gate.let_in(request, answer, token)


def _provider_limits(request: Request, installation: Installation) -> calls.Known:
    """Return the limits on calls to the provider. Raises `NotFound` if no provider is configured, and `RateLimited`."""
    if installation.settings.oidc_issuer is None:
        raise NotFound(languages.gettext("This installation knows no identity provider."))
    limits: calls.Known = request.app.state.known
    limits.rates.admit(calls.address_of(request.scope))
    return limits


def _back(request: Request, installation: Installation) -> str:
    """Return the redirect URI, which must be registered with the provider."""
    origin = installation.settings.dashboard_origin or f"{request.url.scheme}://{request.url.netloc}"
    return f"{origin}{_PATH}/return"


def _enter(installation: Installation, identity: oidc.OidcIdentity, token: str) -> Caller:
    """Log the person in with the session `token`, and return the caller. Raises `IdentityRefused`."""
    with installation.database.reading() as session:
        user = users.of_identity(session, identity)
    with installation.database.writing(by=Actor(tenant_id=user.tenant_id, name=user.id)) as session:
        user = users.of_identity(session, identity)
        users.link(session, user, identity)
        return _log_in(session, installation, user, token)


def _log_in(session: Session, installation: Installation, user: User, token: str) -> Caller:
    users.entered(session, user)
    caller = users.caller_as(session, user)
    sessions.open_session(session, token=token, caller=caller, settings=installation.settings)
    return caller


def _sealed(installation: Installation, attempt: oidc.Attempt, onward: str) -> str:
    """Return an attempt's cookie. It contains an expiry time and is authenticated, so that no other service on this
    host can forge it."""
    until = str(int(time.time()) + _SECONDS)
    fields = [attempt.state, attempt.nonce, attempt.verifier, onward, until]
    content = base64.urlsafe_b64encode(json.dumps(fields).encode())
    return f"{content.decode()}.{_mac(installation, content)}"


def _opened(installation: Installation, cookie: str) -> tuple[oidc.Attempt, str]:
    """Return the attempt in a cookie and the page to redirect to. Raises `IdentityRefused`."""
    content, _, mac = cookie.partition(".")
    is_ours = hmac.compare_digest(mac.encode(), _mac(installation, content.encode()).encode())
    fields: list[str] = json.loads(base64.urlsafe_b64decode(content)) if is_ours else []
    if not fields or time.time() >= int(fields[-1]):
        raise contract.IdentityRefused(
            languages.gettext("No login was started in this browser in the last ten minutes. Start again.")
        )
    state, nonce, verifier, onward, _ = fields
    return oidc.Attempt(state=state, nonce=nonce, verifier=verifier), onward


def _mac(installation: Installation, content: bytes) -> str:
    return installation.keys.fingerprint(b"login by an identity provider", content)


Invitation = Annotated[str, Query(max_length=200)]


@router.get("/welcome")
def welcome_page(request: Request, installation: calls.At, invitation: Invitation = "") -> Response:
    """Show the form in which an invited person chooses a password."""
    return _welcome_page(request, installation, _invited_user(installation, invitation), invitation)


@router.post("/welcome")
async def accept_invitation(request: Request, installation: calls.At) -> Response:
    """Set the password, enrol the authenticator app if the form contains its code, and log the person in."""
    form = await gate.form_of(request, installation.settings)
    state: calls.Known = request.app.state.known
    invitation, password = text(form, "invitation"), str(form.get("password", ""))
    secret, code = text(form, "secret"), text(form, "code")
    user, token = await run_in_threadpool(_invited_user, installation, invitation), sessions.new_token()
    try:
        if not code and installation.settings.require_totp:
            message = languages.gettext("enrol an app: this installation requires its codes from all users")
            raise InputInvalid(languages.gettext("The password was not set."), [FieldError("code", message)])
        password_hash = await anyio.to_thread.run_sync(credentials.hash_of, password, limiter=state.strangers)
        await run_in_threadpool(
            _accept, installation, user, invitation, token, password_hash=password_hash, secret=secret, code=code
        )
    except InputInvalid as error:
        return _welcome_page(request, installation, user, invitation, error=error, secret=secret)
    return gate.let_in(request, pages.see(pages.ROOT), token)


def _invited_user(installation: Installation, invitation: str) -> User:
    """Return the invited person. Raises `InvitationOver`."""
    with installation.database.reading() as session:
        return users.invited(session, invitation)


def _accept(
    installation: Installation, user: User, invitation: str, token: str, *, password_hash: str, secret: str, code: str
) -> None:
    """Accept the invitation, and log in with the session `token`. Raises `InvitationOver`, `InputInvalid`."""
    with installation.database.writing(by=Actor(tenant_id=user.tenant_id, name=user.id)) as session:
        # Another browser may have used the invitation in the meantime.
        user = users.invited(session, invitation)
        users.accept(session, user, password_hash=password_hash)
        if code:
            users.enrol(session, user, secret=secret, code=code)
        _log_in(session, installation, user, token)


def _welcome_page(
    request: Request,
    installation: Installation,
    user: User,
    invitation: str,
    *,
    error: Problem | None = None,
    secret: str = "",
) -> Response:
    return gate.page(
        request,
        "welcome.html",
        token=sessions.new_token(),
        error=error,
        invitation=invitation,
        user=user,
        least=credentials.MIN_LENGTH,
        enrolment=credentials.enrolment(user.email, secret),
        is_totp_required=installation.settings.require_totp,
    )


@router.get("/account")
def show_account(context: TheContext, done: Literal["", "password", "enrolled", "removed"] = "") -> Response:
    """Show the account and the credentials of the person who is logged in."""
    return _account_page(context, done=done)


@router.post("/account/password")
async def change_password(context: TheContext, form: Form) -> Response:
    """Set a new password and end all sessions; this browser gets a new session."""
    try:
        user = await _confirmed(context, form)
        password_hash = await run_in_threadpool(credentials.hash_of, str(form.get("password", "")))
    except (InputInvalid, RateLimited) as error:
        return await run_in_threadpool(_account_page, context, error=error, at="password")
    token = sessions.new_token()

    def change() -> None:
        with context.call.writing() as session:
            users.change_password(session, users.get(session, user.id), password_hash=password_hash)
            settings = context.call.installation.settings
            sessions.open_session(session, token=token, caller=context.caller, settings=settings)

    await run_in_threadpool(change)
    return gate.let_in(context.request, pages.see(f"{pages.ROOT}/account", done="password"), token)


@router.post("/account/totp")
async def enrol_app(context: TheContext, form: Form) -> Response:
    """Require codes from an authenticator app from now on."""
    secret, code = text(form, "secret"), text(form, "code")

    def add(user: User) -> None:
        with context.call.writing() as session:
            users.enrol(session, users.get(session, user.id), secret=secret, code=code)

    try:
        user = await _confirmed(context, form)
        await run_in_threadpool(add, user)
    except (InputInvalid, RateLimited) as error:
        return await run_in_threadpool(_account_page, context, error=error, at="totp", secret=secret)
    return pages.see(f"{pages.ROOT}/account", done="enrolled")


@router.post("/account/totp/remove")
async def remove_app(context: TheContext, form: Form) -> Response:
    """Stop requiring codes from an authenticator app."""

    def drop(user: User) -> None:
        with context.call.writing() as session:
            users.remove_totp(session, users.get(session, user.id))

    try:
        if context.call.installation.settings.require_totp:
            message = languages.gettext("this installation requires codes of an app from all users")
            raise InputInvalid(languages.gettext("The app was not removed."), [FieldError("present", message)])
        await run_in_threadpool(drop, await _confirmed(context, form))
    except (InputInvalid, RateLimited) as error:
        return await run_in_threadpool(_account_page, context, error=error, at="totp")
    return pages.see(f"{pages.ROOT}/account", done="removed")


async def _confirmed(context: RequestContext, form: FormData) -> User:
    """Return the logged-in person after checking the password in the form. Raises `InputInvalid`, `RateLimited`,
    `NotFound`."""
    user = await run_in_threadpool(_own_user, context)
    if user is None:
        raise NotFound(languages.gettext("This session belongs to an API key, which has no password."))
    state: calls.Known = context.request.app.state.known
    places = calls.address_of(context.request.scope), gate.account_key(user.email)
    state.rates.admit(*places)
    password = str(form.get("present", ""))
    if not await anyio.to_thread.run_sync(credentials.matches, password, user.password_hash, limiter=state.strangers):
        state.rates.failed(*places)
        raise InputInvalid(
            languages.gettext("Nothing was changed."),
            [FieldError("present", languages.gettext("this is not your current password"))],
        )
    return user


def _own_user(context: RequestContext) -> User | None:
    if not context.caller.is_person:
        return None
    with context.call.reading() as session:
        return users.get(session, context.caller.id)


def _account_page(
    context: RequestContext, *, done: str = "", error: Problem | None = None, at: str = "", secret: str = ""
) -> Response:
    user = _own_user(context)
    return context.page(
        "account.html",
        user=user,
        done=done,
        error=error,
        at=at,
        least=credentials.MIN_LENGTH,
        enrolment=credentials.enrolment(user.email, secret) if user and not user.totp.secret else None,
        is_totp_required=context.call.installation.settings.require_totp,
    )


_MEANS = {
    contract.Role.VIEWER: languages.marked("sees requests, models, accounts and certificates"),
    contract.Role.OFFICER: languages.marked("also makes requests and decides about them"),
    contract.Role.ENGINEER: languages.marked("sees the same as a viewer; uploads datasets, makes models"),
    contract.Role.ADMINISTRATOR: languages.marked("everything in this tenant, and its people, keys and policy"),
    contract.Role.OPERATOR: languages.marked("the tenants and the settings of the installation, and nothing in them"),
}


@router.get("/people")
def list_people(context: TheContext, place: lists.ThePlace, done: Literal["", "disabled"] = "") -> Response:
    """List people, newest first."""
    return _people_page(context, place, done=done)


@router.post("/people")
def invite_person(context: TheContext, form: Form) -> Response:
    """Invite a person, and show the invitation once."""
    try:
        body = checked(contract.UserIn, name=text(form, "name"), email=text(form, "email"), role=text(form, "role"))
        user = context.ask(endpoints.create_user, body=body)
    except Problem as error:
        return _people_page(context, lists.PagePosition(), error=error)
    return _invitation_page(context, user)


@router.get("/people/{user_id}")
def show_person(context: TheContext, user_id: str, done: Literal["", "changed"] = "") -> Response:
    """Show a person's permissions and credentials."""
    return _person_page(context, user_id, done=done)


@router.post("/people/{user_id}/change")
def change_person(context: TheContext, form: Form, user_id: str) -> Response:
    """Change a person's name or role."""
    try:
        body = checked(contract.UserChangeIn, name=text(form, "name"), role=text(form, "role"))
        context.ask(endpoints.change_user, user_id=user_id, body=body)
    except Problem as error:
        return _person_page(context, user_id, error)
    return pages.see(f"{pages.ROOT}/people/{user_id}", done="changed")


@router.post("/people/{user_id}/invite")
def invite_again(context: TheContext, user_id: str) -> Response:
    """Reinvite a person who has lost their credentials."""
    try:
        return _invitation_page(context, context.ask(endpoints.invite_user, user_id=user_id))
    except Problem as error:
        return _person_page(context, user_id, error)


@router.post("/people/{user_id}/disable")
def disable_person(context: TheContext, user_id: str) -> Response:
    """Disable a person, so that they can no longer log in."""
    try:
        context.ask(endpoints.disable_user, user_id=user_id)
    except Problem as error:
        return _person_page(context, user_id, error)
    return pages.see(f"{pages.ROOT}/people", done="disabled")


def _status(user: contract.UserOut) -> str:
    if user.disabled_at is not None:
        return "disabled"
    if user.has_password or user.has_identity:
        return "in_force"
    at = datetime.datetime.now(datetime.UTC)
    return "invited" if user.invited_until is not None and user.invited_until > at else "expired"


def _roles(context: RequestContext) -> list[tuple[str, str]]:
    """Return the roles that the caller may grant, each with its description."""
    roles = [role for role in contract.Role if all(context.caller.has(scope) for scope in contract.SCOPES_OF[role])]
    return [(role.value, f"{wording.words(role)}: {languages.gettext(_MEANS[role])}") for role in roles]


def _invitation_page(context: RequestContext, user: contract.InvitedUserOut) -> Response:
    settings, request = context.call.installation.settings, context.request
    origin = settings.dashboard_origin or f"{request.url.scheme}://{request.url.netloc}"
    return context.page("people/invited.html", status=201, made=user, link=origin + user.invitation)


def _person_page(context: RequestContext, user_id: str, error: Problem | None = None, *, done: str = "") -> Response:
    user = context.ask(endpoints.get_user, user_id=user_id)
    return context.page(
        "people/one.html",
        user=user,
        state=_status(user),
        roles=_roles(context),
        means=languages.gettext(_MEANS[contract.Role(user.role)]),
        done=done,
        error=error,
    )


def _people_page(
    context: RequestContext, place: lists.PagePosition, *, done: str = "", error: Problem | None = None
) -> Response:
    listing = context.listing(endpoints.list_users, place, "person", "people")
    return context.page(
        "people/list.html",
        people=[(user, _status(user)) for user in listing["page"].items],
        roles=_roles(context),
        **listing,
        done=done,
        error=error,
    )


PAGES = (router,)
MENU = (menu.MenuEntry(120, languages.marked("People"), f"{pages.ROOT}/people", endpoints.list_users, "settings"),)
