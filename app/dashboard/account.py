"""One's own account: its name and role, another password, an authenticator app."""

from typing import Literal

import anyio.to_thread
from fastapi import Response
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import FormData

from app.access import passwords, sessions, users
from app.api import calls, problems
from app.api.calls import Known
from app.dashboard import gate, pages
from app.dashboard.authenticator import enrolment
from app.dashboard.languages import gettext
from app.dashboard.login import place_of
from app.dashboard.pages import ROOT
from app.dashboard.request_context import Form, RequestContext, TheContext
from app.dashboard.requests import text
from app.db.tables import User
from lethe.contract.problems import FieldError, InputInvalid, NotFound, Problem, RateLimited

router = pages.new_router()


@router.get("/account")
def show_account(context: TheContext, done: Literal["", "password", "enrolled", "removed"] = "") -> Response:
    """Show who is logged in, and what they log in with."""
    return _page(context, done=done)


@router.post("/account/password")
async def change_password(context: TheContext, form: Form) -> Response:
    """Take another password: all sessions end, and this browser gets a new one."""
    try:
        user = await _confirmed(context, form)
        password_hash = await run_in_threadpool(passwords.hash_of, str(form.get("password", "")))
    except (InputInvalid, RateLimited) as error:
        return await run_in_threadpool(_page, context, error=error, at="password")
    token = sessions.new_token()

    def change() -> None:
        with context.call.writing() as session:
            users.change_password(session, users.get(session, user.id), password_hash=password_hash)
            settings = context.call.installation.settings
            sessions.open_session(session, token=token, caller=context.caller, settings=settings)

    await run_in_threadpool(change)
    return gate.let_in(context.request, pages.see(f"{ROOT}/account", done="password"), token)


@router.post("/account/totp")
async def enrol(context: TheContext, form: Form) -> Response:
    """Ask for codes of an app from here on."""
    secret, code = text(form, "secret"), text(form, "code")

    def add(user: User) -> None:
        with context.call.writing() as session:
            users.enrol(session, users.get(session, user.id), secret=secret, code=code)

    try:
        user = await _confirmed(context, form)
        await run_in_threadpool(add, user)
    except (InputInvalid, RateLimited) as error:
        return await run_in_threadpool(_page, context, error=error, at="totp", secret=secret)
    return pages.see(f"{ROOT}/account", done="enrolled")


@router.post("/account/totp/remove")
async def remove(context: TheContext, form: Form) -> Response:
    """Ask for no codes any more."""

    def drop(user: User) -> None:
        with context.call.writing() as session:
            users.remove_totp(session, users.get(session, user.id))

    try:
        if context.call.installation.settings.require_totp:
            message = gettext("this installation asks everybody for codes of an app")
            raise InputInvalid(gettext("The app was not removed."), [FieldError("present", message)])
        await run_in_threadpool(drop, await _confirmed(context, form))
    except (InputInvalid, RateLimited) as error:
        return await run_in_threadpool(_page, context, error=error, at="totp")
    return pages.see(f"{ROOT}/account", done="removed")


async def _confirmed(context: RequestContext, form: FormData) -> User:
    """The person, who has shown that they know their password. Raises `InputInvalid`, `RateLimited`, `NotFound`."""
    user = await run_in_threadpool(_own, context)
    if user is None:
        raise NotFound(gettext("This session is of an API key, which has no password."))
    known: Known = context.request.app.state.known
    places = calls.address_of(context.request.scope), place_of(user.email)
    known.rates.admit(*places)
    given = str(form.get("present", ""))
    if not await anyio.to_thread.run_sync(passwords.matches, given, user.password_hash, limiter=known.strangers):
        known.rates.failed(*places)
        raise InputInvalid(
            gettext("Nothing was changed."), [FieldError("present", gettext("this is not your present password"))]
        )
    return user


def _own(context: RequestContext) -> User | None:
    if not context.caller.is_person:
        return None
    with context.call.reading() as session:
        return users.get(session, context.caller.id)


def _page(
    context: RequestContext,
    *,
    done: str = "",
    error: Problem | None = None,
    at: str = "",
    secret: str = "",
) -> Response:
    user = _own(context)
    return context.page(
        "account.html",
        status=problems.status_of(type(error)) if error else 200,
        user=user,
        done=done,
        error=error,
        at=at,
        least=passwords.LEAST,
        enrolment=enrolment(user.email, secret) if user and not user.totp.secret else None,
        is_totp_required=context.call.installation.settings.require_totp,
    )
