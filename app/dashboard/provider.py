"""Logging in by the identity provider of a company: there, and back.

The session's cookie is strict, so the page that the provider leads to cannot use it: what it was begun with is in a lax
cookie of its own, for some minutes, and the page goes on by itself to where somebody wanted to go.
"""

import base64
import hmac
import json
import time
from typing import Annotated, Any

import anyio.to_thread
from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from app.access import oidc, sessions, users
from app.access import service as access
from app.access.oidc import Attempt, Identity
from app.access.service import Caller
from app.api import calls
from app.api.calls import At, Known
from app.dashboard import gate, pages
from app.dashboard.languages import gettext
from app.dashboard.login import Next
from app.dashboard.pages import ROOT
from app.db import Actor
from app.installations import Installation
from lethe.contract.problems import IdentityRefused, NotFound

router = pages.new_router()

_COOKIE = "lethe_oidc"
_PATH = f"{ROOT}/oidc"
_SECONDS = 600
Sent = Annotated[str, Query(max_length=4096)]


@router.get("/oidc")
async def begin(request: Request, installation: At, next: Next = ROOT) -> Response:  # noqa: A002  the usual name in an address
    """Lead to the provider."""
    known = _known(request, installation)
    known.rates.count_login(calls.address_of(request.scope))
    address, attempt = await anyio.to_thread.run_sync(
        lambda: oidc.start(installation.settings, redirect_uri=_back(request, installation)), limiter=known.providers
    )
    answer = pages.see(address)
    answer.set_cookie(
        _COOKIE,
        _sealed(installation, attempt, gate.inside(next)),
        path=_PATH,
        max_age=_SECONDS,
        httponly=True,
        samesite="lax",
        secure=_back(request, installation).startswith("https:"),
    )
    return answer


@router.get("/oidc/return")
async def come_back(
    request: Request, installation: At, state: Sent = "", code: Sent = "", error: Sent = ""
) -> Response:
    """Let somebody in whom the provider names, and who was invited."""
    known = _known(request, installation)
    token = sessions.new_token()
    try:
        attempt, onward = _opened(installation, request.cookies.get(_COOKIE, ""))
        if not hmac.compare_digest(attempt.state.encode(), state.encode()):
            raise IdentityRefused(
                gettext("This answer is to another login than the one that was begun in this browser.")
            )
        if error or not code:
            raise IdentityRefused(gettext("The identity provider let nobody in."))
        identity = await anyio.to_thread.run_sync(
            lambda: oidc.finish(installation.settings, attempt, code=code, redirect_uri=_back(request, installation)),
            limiter=known.providers,
        )
        caller = await run_in_threadpool(_enter, installation, identity, token)
    except IdentityRefused:
        known.rates.failed(calls.address_of(request.scope))
        raise
    answer = pages.rendered(request, "continue.html", onward=onward, name=caller.name)
    answer.delete_cookie(_COOKIE, path=_PATH)
    return gate.let_in(request, answer, token, is_secure=_back(request, installation).startswith("https:"))


def _known(request: Request, installation: Installation) -> Known:
    """Raises `NotFound` where no provider is set, and `RateLimited`."""
    if installation.settings.oidc_issuer is None:
        raise NotFound(gettext("This installation knows no identity provider."))
    known: Known = request.app.state.known
    known.rates.admit(calls.address_of(request.scope))
    return known


def _back(request: Request, installation: Installation) -> str:
    """The address that the provider leads back to, which it must know."""
    origin = installation.settings.dashboard_origin or f"{request.url.scheme}://{request.url.netloc}"
    return f"{origin}{_PATH}/return"


def _enter(installation: Installation, identity: Identity, token: str) -> Caller:
    """The caller that somebody is from here on, whose session `token` opens. Raises `IdentityRefused`."""
    with installation.database.reading() as session:
        user = users.of_identity(session, identity)
    with installation.database.writing(by=Actor(tenant_id=user.tenant_id, name=user.id)) as session:
        found = users.of_identity(session, identity)
        users.link(session, found, identity)
        users.entered(session, found)
        caller = access.caller_as(session, found)
        sessions.open_session(session, token=token, caller=caller, settings=installation.settings)
    return caller


def _sealed(installation: Installation, attempt: Attempt, onward: str) -> str:
    """The attempt as a cookie, which no other service on this host can make, and which says itself when it is over."""
    until = str(int(time.time()) + _SECONDS)
    said = [attempt.state, attempt.nonce, attempt.verifier, onward, until]
    content = base64.urlsafe_b64encode(json.dumps(said).encode())
    return f"{content.decode()}.{_mac(installation, content)}"


def _opened(installation: Installation, cookie: str) -> tuple[Attempt, str]:
    """Raises `IdentityRefused`."""
    content, _, mac = cookie.partition(".")
    is_ours = hmac.compare_digest(mac.encode(), _mac(installation, content.encode()).encode())
    found: list[Any] = json.loads(base64.urlsafe_b64decode(content)) if is_ours else []
    if len(found) != 5 or time.time() >= int(found[4]):  # one of an earlier release does not say until when
        raise IdentityRefused(gettext("No login was begun in this browser in the last ten minutes. Begin again."))
    state, nonce, verifier, onward, _ = map(str, found)
    return Attempt(state=state, nonce=nonce, verifier=verifier), onward


def _mac(installation: Installation, content: bytes) -> str:
    return installation.keys.fingerprint(b"login by an identity provider", content)
