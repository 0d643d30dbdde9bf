"""Logging in with an API key, or with an e-mail address, a password and a code; and out again."""

import hashlib
import hmac
import time
from typing import Annotated

import anyio.to_thread
from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import FormData

from app.access import service as access
from app.access import sessions, users
from app.access.service import Caller
from app.api import calls
from app.api.calls import At, Known
from app.dashboard import gate, pages
from app.dashboard.authenticator import enrolment
from app.dashboard.pages import ROOT
from app.dashboard.request_context import COOKIE, TheContext
from app.dashboard.requests import text
from app.db import Actor
from app.db.tables import User
from app.installations import Installation
from lethe.contract.problems import InputInvalid, LoginRefused, Problem, RateLimited, Unauthenticated

router = pages.new_router()

_CODE_WITHIN = 300
"""Seconds between the password and the code."""
Next = Annotated[str, Query(max_length=pages.MOST_ONWARD)]


@router.get("/login")
async def login_page(request: Request, installation: At, next: Next = ROOT) -> Response:  # noqa: A002  the usual name in an address
    """Ask for a password, or an API key."""
    return _asked(request, installation, next)


@router.post("/login")
async def log_in(request: Request, installation: At) -> Response:
    """Exchange a key, or an address and a password, for a session. What is wrong with them is not said."""
    form = await gate.form_of(request, installation.settings)
    onward, email = str(form.get("next", "")), text(form, "email")
    address = calls.address_of(request.scope)
    known: Known = request.app.state.known
    try:
        if not email:
            of_key, token = await calls.identified(known, text(form, "key"), address), sessions.new_token()
            await run_in_threadpool(_open_session, installation, token, of_key)
            return _let_in(request, of_key, token, onward)
        user = await _checked(known, installation, email, str(form.get("password", "")), address)
    except (Unauthenticated, LoginRefused, RateLimited) as error:
        return _asked(request, installation, onward, error=error, email=email)
    if user.totp.secret or installation.settings.require_totp:
        return _code_asked(request, installation, user, onward)
    token = sessions.new_token()
    caller = await run_in_threadpool(_enter, installation, user, token, password=str(form["password"]))
    return _let_in(request, caller, token, onward)


@router.post("/login/code")
async def send_code(request: Request, installation: At) -> Response:
    """The second step: exchange what the first one gave, and a code, for a session."""
    form = await gate.form_of(request, installation.settings)
    onward = str(form.get("next", ""))
    known: Known = request.app.state.known
    user = await run_in_threadpool(_first_step, installation, form, gate.form_token(request))
    if user is None:
        return _asked(request, installation, onward, error=users.refusal())
    places = calls.address_of(request.scope), place_of(user.email)
    token = sessions.new_token()
    try:
        known.rates.admit(*places)
        caller = await run_in_threadpool(
            _enter, installation, user, token, code=text(form, "code"), secret=text(form, "secret")
        )
    except (LoginRefused, InputInvalid, RateLimited) as error:
        known.rates.failed(*places)
        return _code_asked(request, installation, user, onward, error=error, secret=text(form, "secret"))
    return _let_in(request, caller, token, onward)


@router.get("/session")
def is_logged_in(context: TheContext) -> Response:
    """Say that the session goes on, and whose it is: to a page that is about to send what somebody wrote, or whose
    session ended and was begun again in another tab."""
    return _session_of(context.caller, context.request.cookies[COOKIE])


@router.post("/logout")
def log_out(context: TheContext) -> Response:
    """End the session."""
    with context.call.writing() as session:
        sessions.close_session(session, token=context.request.cookies[COOKIE], caller=context.caller)
    answer = pages.see(f"{ROOT}/login", ended=1)
    answer.delete_cookie(COOKIE, path=ROOT)
    return answer


def place_of(email: str) -> str:
    """The account that wrong passwords are counted for, whether there is one or not."""
    return "account " + hashlib.sha256(email.strip().lower().encode(errors="replace")).hexdigest()


async def _checked(known: Known, installation: Installation, email: str, password: str, address: str) -> User:
    """The person with this password. Raises `LoginRefused`, `RateLimited`."""
    places = address, place_of(email)
    known.rates.admit(*places)

    def look() -> User:
        with installation.database.reading() as session:
            return users.checked(session, email=email, password=password)

    try:
        return await anyio.to_thread.run_sync(look, limiter=known.strangers)
    except LoginRefused:
        known.rates.failed(*places)
        raise


def _enter(
    installation: Installation,
    user: User,
    token: str,
    *,
    password: str | None = None,
    code: str | None = None,
    secret: str = "",
) -> Caller:
    """The caller that somebody is from here on, with `token`: its session is opened where the password is compared, so
    that none outlives a change of it. Raises `LoginRefused`, `InputInvalid`."""
    with installation.database.writing(by=Actor(tenant_id=user.tenant_id, name=user.id)) as session:
        found = users.get(session, user.id)
        is_let_in = found.disabled_at is None and found.password_hash == user.password_hash
        if is_let_in and code is not None and found.totp.secret:
            is_let_in = users.accept_code(session, found, code)
        elif is_let_in and code is not None:
            users.enrol(session, found, secret=secret, code=code)
        caller = access.caller_as(session, found)
        if is_let_in:
            users.entered(session, found, password=password)
            sessions.open_session(session, token=token, caller=caller, settings=installation.settings)
    if not is_let_in:
        raise users.refusal()
    return caller


def _let_in(request: Request, caller: Caller, token: str, onward: str) -> Response:
    answer: Response = pages.see(gate.inside(onward))
    if pages.is_fragment(request):  # a page that is open stays, if it is of the same caller
        answer = _session_of(caller, token)
    return gate.let_in(request, answer, token)


def _session_of(caller: Caller, token: str) -> Response:
    """Tell an open page who its caller is now, and what its forms are sent with."""
    return pages.quiet({"Form-Token": sessions.form_token(token), "Caller-Id": caller.id})


def _open_session(installation: Installation, token: str, caller: Caller) -> None:
    with installation.database.writing(by=caller.actor) as session:
        sessions.open_session(session, token=token, caller=caller, settings=installation.settings)


def _asked(
    request: Request, installation: Installation, onward: str, *, error: Problem | None = None, email: str = ""
) -> Response:
    return gate.page(
        request,
        "login_form.html" if pages.is_fragment(request) else "login.html",
        token=sessions.new_token(),
        error=error,
        ended="ended" in request.query_params,
        onward=gate.inside(onward),
        email=email,
        company=installation.settings.oidc_name if installation.settings.oidc_issuer else None,
    )


def _code_asked(
    request: Request,
    installation: Installation,
    user: User,
    onward: str,
    *,
    error: Problem | None = None,
    secret: str = "",
) -> Response:
    """The form of the second step, for this browser and a few minutes."""
    token = sessions.new_token()
    until = str(int(time.time()) + _CODE_WITHIN)
    mac = _mac(installation, user, until, sessions.form_token(token))
    return gate.page(
        request,
        "login_code.html" if pages.is_fragment(request) else "login.html",
        token=token,
        error=error,
        onward=gate.inside(onward),
        step=f"{user.id}.{until}.{mac}",
        enrolment=None if user.totp.secret else enrolment(user.email, secret),
    )


def _first_step(installation: Installation, form: FormData, form_token: str) -> User | None:
    """The person whose password was right a moment ago, in this browser."""
    user_id, _, rest = text(form, "step").partition(".")
    until, _, mac = rest.partition(".")
    with installation.database.reading() as session:
        user = session.get(User, user_id)
    if user is None or not hmac.compare_digest(mac.encode(), _mac(installation, user, until, form_token).encode()):
        return None
    return user if time.time() < int(until) else None


def _mac(installation: Installation, user: User, until: str, form_token: str) -> str:
    parts = (user.id, until, form_token, user.password_hash or "")
    return installation.keys.fingerprint(b"first step of a login", *(part.encode() for part in parts))
