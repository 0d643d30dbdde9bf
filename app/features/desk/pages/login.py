"""Login with an API key, or with an e-mail address, password and code; logout; and choice of language."""

import hmac
import time

import anyio.to_thread
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import FormData

from app.access.service import Caller
from app.api import calls
from app.db import Actor
from app.features.desk import forms, gate, languages, rendering as pages, request_context, sessions
from app.features.people import credentials, tables, users
from app.installations import Installation
from lethe.contract.problems import InputInvalid, Problem, RateLimited, Unauthenticated
from lethe.features.desk.contract import FormRefused
from lethe.features.people.contract import LoginRefused

router = pages.new_router()

_MAX_CODE_SECONDS = 300
"""Maximum time between entering the password and entering the code."""
_YEAR_SECONDS = 365 * 86400


# `next` is the usual name of this parameter in addresses.
@router.get("/login")
async def login_page(request: Request, installation: calls.At, next: gate.Next = pages.ROOT) -> Response:  # noqa: A002
    """Show the login form, for a password or an API key."""
    return _first_form(request, installation, next)


@router.post("/login")
async def log_in(request: Request, installation: calls.At) -> Response:
    """Exchange a key, or an e-mail address and password, for a session. A refusal does not reveal what is wrong."""
    form = await gate.form_of(request, installation.settings)
    onward, email = str(form.get("next", "")), forms.text(form, "email")
    address = calls.address_of(request.scope)
    state: calls.Known = request.app.state.known
    try:
        if not email:
            caller, token = await calls.identified(state, forms.text(form, "key"), address), sessions.new_token()
            await run_in_threadpool(_open_session, installation, token, caller)
            return _logged_in(request, caller, token, onward)
        user = await _authenticated(state, installation, email, str(form.get("password", "")), address)
    except (Unauthenticated, LoginRefused, RateLimited) as error:
        return _first_form(request, installation, onward, error=error, email=email)
    if user.totp.secret or installation.settings.require_totp:
        return _code_form(request, installation, user, onward)
    token = sessions.new_token()
    caller = await run_in_threadpool(_enter, installation, user, token, password=str(form["password"]))
    return _logged_in(request, caller, token, onward)


@router.post("/login/code")
async def send_code(request: Request, installation: calls.At) -> Response:
    """Exchange the result of the first login step and a code for a session."""
    form = await gate.form_of(request, installation.settings)
    onward = str(form.get("next", ""))
    state: calls.Known = request.app.state.known
    user = await run_in_threadpool(_user_of_first_step, installation, form, gate.form_token(request))
    if user is None:
        return _first_form(request, installation, onward, error=users.refusal())
    places = calls.address_of(request.scope), gate.account_key(user.email)
    token = sessions.new_token()
    try:
        state.rates.admit(*places)
        caller = await run_in_threadpool(
            _enter, installation, user, token, code=forms.text(form, "code"), secret=forms.text(form, "secret")
        )
    except (LoginRefused, InputInvalid, RateLimited) as error:
        state.rates.failed(*places)
        return _code_form(request, installation, user, onward, error=error, secret=forms.text(form, "secret"))
    return _logged_in(request, caller, token, onward)


@router.get("/session")
def is_logged_in(context: request_context.TheContext) -> Response:
    """Confirm to an open page that its session is still active, and identify the caller.

    Pages check this before they submit input: another login may have replaced the session in another tab.
    """
    return _session_of(context.caller, sessions.read(context.request, request_context.COOKIE))


@router.post("/logout")
def log_out(context: request_context.TheContext) -> Response:
    """End the session."""
    with context.call.writing() as session:
        sessions.close_session(
            session, token=sessions.read(context.request, request_context.COOKIE), caller=context.caller
        )
    response = pages.see(f"{pages.ROOT}/login", ended=1)
    sessions.drop(context.request, response, request_context.COOKIE)
    return response


@router.post("/language")
async def choose_language(request: Request, installation: calls.At) -> Response:
    """Store the reader's language in a cookie, before or after login, and show the same page again."""
    if not (gate.is_known(request) or sessions.read(request, request_context.COOKIE)):
        raise Unauthenticated("Choose the language on a page of the dashboard.")
    try:
        form = await gate.form_of(request, installation.settings)
    except FormRefused:
        await request_context.check_form(
            request, installation.settings, sessions.form_token(sessions.read(request, request_context.COOKIE))
        )
        form = await request.form()
    language = forms.text(form, "language")
    if language not in languages.LANGUAGES:
        raise InputInvalid(languages.gettext("The dashboard is not available in this language."))
    response = pages.see(gate.onward_page(str(form.get("next", ""))))
    response.set_cookie(
        languages.COOKIE,
        language,
        path=pages.ROOT,
        max_age=_YEAR_SECONDS,
        secure=gate.is_https(request),
        httponly=True,
        samesite="lax",
    )
    return response


async def _authenticated(
    state: calls.Known, installation: Installation, email: str, password: str, address: str
) -> tables.User:
    """Return the user with this e-mail address and password. Raises `LoginRefused` and `RateLimited`."""
    places = address, gate.account_key(email)
    state.rates.admit(*places)

    def check() -> tables.User:
        with installation.database.reading() as session:
            return users.checked(session, email=email, password=password)

    try:
        return await anyio.to_thread.run_sync(check, limiter=state.strangers)
    except LoginRefused:
        state.rates.failed(*places)
        raise


def _enter(
    installation: Installation,
    user: tables.User,
    token: str,
    *,
    password: str | None = None,
    code: str | None = None,
    secret: str = "",
) -> Caller:
    """Open a session for a user under `token`, and return the user as a caller.

    The session is opened in the transaction that checks the password, so that no session survives a password change.
    Raises `LoginRefused` and `InputInvalid`.
    """
    with installation.database.writing(by=Actor(tenant_id=user.tenant_id, name=user.id)) as session:
        stored = users.get(session, user.id)
        is_admitted = stored.disabled_at is None and stored.password_hash == user.password_hash
        if is_admitted and code is not None and stored.totp.secret:
            is_admitted = users.accept_code(session, stored, code)
        elif is_admitted and code is not None:
            users.enrol(session, stored, secret=secret, code=code)
        caller = users.caller_as(session, stored)
        if is_admitted:
            users.entered(session, stored, password=password)
            sessions.open_session(session, token=token, caller=caller, settings=installation.settings)
    if not is_admitted:
        raise users.refusal()
    return caller


def _logged_in(request: Request, caller: Caller, token: str, onward: str) -> Response:
    """Set the session cookie and redirect to `onward`. An open page stays in place if its caller is unchanged."""
    response = _session_of(caller, token) if pages.is_fragment(request) else pages.see(gate.onward_page(onward))
    return gate.let_in(request, response, token)


def _session_of(caller: Caller, token: str) -> Response:
    """Send the caller's id and the form token to an open page."""
    return pages.no_content({"Form-Token": sessions.form_token(token), "Caller-Id": caller.id})


def _open_session(installation: Installation, token: str, caller: Caller) -> None:
    with installation.database.writing(by=caller.actor) as session:
        sessions.open_session(session, token=token, caller=caller, settings=installation.settings)


def _first_form(
    request: Request, installation: Installation, onward: str, *, error: Problem | None = None, email: str = ""
) -> Response:
    return gate.page(
        request,
        "login_form.html" if pages.is_fragment(request) else "login.html",
        token=sessions.new_token(),
        error=error,
        ended="ended" in request.query_params,
        onward=gate.onward_page(onward),
        email=email,
        company=installation.settings.oidc_name if installation.settings.oidc_issuer else None,
    )


def _code_form(
    request: Request,
    installation: Installation,
    user: tables.User,
    onward: str,
    *,
    error: Problem | None = None,
    secret: str = "",
) -> Response:
    """Return the form for the second login step, which is valid in this browser for `_MAX_CODE_SECONDS`."""
    token = sessions.new_token()
    until = str(int(time.time()) + _MAX_CODE_SECONDS)
    mac = _mac(installation, user, until, sessions.form_token(token))
    return gate.page(
        request,
        "login_code.html" if pages.is_fragment(request) else "login.html",
        token=token,
        error=error,
        onward=gate.onward_page(onward),
        step=f"{user.id}.{until}.{mac}",
        enrolment=None if user.totp.secret else credentials.enrolment(user.email, secret),
    )


def _user_of_first_step(installation: Installation, form: FormData, form_token: str) -> tables.User | None:
    """Return the user who passed the first step in this browser; None if proof of it is missing or has expired."""
    user_id, _, rest = forms.text(form, "step").partition(".")
    until, _, mac = rest.partition(".")
    with installation.database.reading() as session:
        user = session.get(tables.User, user_id)
    if user is None or not hmac.compare_digest(mac.encode(), _mac(installation, user, until, form_token).encode()):
        return None
    return user if time.time() < int(until) else None


def _mac(installation: Installation, user: tables.User, until: str, form_token: str) -> str:
    parts = (user.id, until, form_token, user.password_hash or "")
    return installation.keys.fingerprint(b"first step of a login", *(part.encode() for part in parts))
