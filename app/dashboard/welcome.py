"""The page that an invitation leads to: its person chooses a password, and may enrol an authenticator app."""

from typing import Annotated

import anyio.to_thread
from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from app.access import passwords, sessions, users
from app.access import service as access
from app.api.calls import At, Known
from app.dashboard import gate, pages
from app.dashboard.authenticator import enrolment
from app.dashboard.languages import gettext
from app.dashboard.pages import ROOT
from app.dashboard.requests import text
from app.db import Actor
from app.db.tables import User
from app.installations import Installation
from lethe.contract.problems import FieldError, InputInvalid, Problem

router = pages.new_router()

Invitation = Annotated[str, Query(max_length=200)]


@router.get("/welcome")
def welcome_page(request: Request, installation: At, invitation: Invitation = "") -> Response:
    """Ask for a password."""
    return _asked(request, installation, _invited(installation, invitation), invitation)


@router.post("/welcome")
async def accept_invitation(request: Request, installation: At) -> Response:
    """Take the password, and the code of an app; the person is logged in then."""
    form = await gate.form_of(request, installation.settings)
    known: Known = request.app.state.known
    invitation, password = text(form, "invitation"), str(form.get("password", ""))
    secret, code = text(form, "secret"), text(form, "code")
    user, token = await run_in_threadpool(_invited, installation, invitation), sessions.new_token()
    try:
        if not code and installation.settings.require_totp:
            message = gettext("enrol an app: this installation asks everybody for its codes")
            raise InputInvalid(gettext("The password was not set."), [FieldError("code", message)])
        password_hash = await anyio.to_thread.run_sync(passwords.hash_of, password, limiter=known.strangers)
        await run_in_threadpool(
            _accept, installation, user, invitation, token, password_hash=password_hash, secret=secret, code=code
        )
    except InputInvalid as error:
        return _asked(request, installation, user, invitation, error=error, secret=secret)
    return gate.let_in(request, pages.see(ROOT), token)


def _invited(installation: Installation, invitation: str) -> User:
    """Raises `InvitationOver`."""
    with installation.database.reading() as session:
        return users.invited(session, invitation)


def _accept(
    installation: Installation, user: User, invitation: str, token: str, *, password_hash: str, secret: str, code: str
) -> None:
    """Take the password, and open the session of `token`. Raises `InvitationOver`, `InputInvalid`."""
    with installation.database.writing(by=Actor(tenant_id=user.tenant_id, name=user.id)) as session:
        found = users.invited(session, invitation)  # once: somebody else may have come meanwhile
        users.accept(session, found, password_hash=password_hash)
        if code:
            users.enrol(session, found, secret=secret, code=code)
        users.entered(session, found)
        caller = access.caller_as(session, found)
        sessions.open_session(session, token=token, caller=caller, settings=installation.settings)


def _asked(
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
        least=passwords.LEAST,
        enrolment=enrolment(user.email, secret),
        is_totp_required=installation.settings.require_totp,
    )
