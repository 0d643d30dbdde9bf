"""Logging in with an API key, and out again."""

from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from app.access import sessions
from app.access.service import Caller
from app.api import calls, problems
from app.api.calls import At
from app.dashboard import pages
from app.dashboard.pages import ROOT
from app.dashboard.request_context import COOKIE, TheContext, check_form
from app.installations import Installation
from lethe.contract.problems import Problem, RateLimited, Unauthenticated, UploadTooLarge

router = pages.new_router()

_BEFORE = "lethe_login"
"""The cookie of somebody who is about to log in: nobody can log them in as somebody else."""
_MOST_BYTES = 16 * 1024

Next = Annotated[str, Query(max_length=pages.MOST_ONWARD)]


@router.get("/login")
async def login_page(request: Request, next: Next = ROOT) -> Response:  # noqa: A002  the usual name in an address
    """Ask for an API key."""
    return _asked(request, next)


@router.post("/login")
async def log_in(request: Request, installation: At) -> Response:
    """Exchange an API key for a session. What is wrong with a key is not said."""
    declared = request.headers.get("content-length", "")
    if not declared.isdigit() or int(declared) > _MOST_BYTES:
        raise UploadTooLarge("This form is longer than any key.")
    await check_form(request, installation.settings, sessions.form_token(request.cookies.get(_BEFORE, "")))
    form = await request.form()
    key, onward = str(form.get("key", "")).strip(), str(form.get("next", ""))
    address = request.client.host if request.client else ""
    try:
        caller = await calls.identified(request.app.state.known, key, address)
    except (Unauthenticated, RateLimited) as error:
        return _asked(request, onward, error=error)
    token = sessions.new_token()
    await run_in_threadpool(_open, installation, token, caller)
    answer: Response = pages.see(_inside(onward))
    if pages.is_fragment(request):  # a page that is open stays, if it is of the same key
        answer = pages.quiet({"Form-Token": sessions.form_token(token), "Key-Id": caller.key_id})
    is_secure = request.url.scheme == "https" or request.headers["origin"].startswith("https:")
    answer.set_cookie(COOKIE, token, path=ROOT, secure=is_secure, httponly=True, samesite="strict")
    answer.delete_cookie(_BEFORE, path=ROOT)
    return answer


@router.get("/session")
def is_logged_in(_context: TheContext) -> Response:
    """Say that the session goes on, to a page that is about to send what somebody wrote."""
    return pages.quiet()


@router.post("/logout")
def log_out(context: TheContext) -> Response:
    """End the session."""
    with context.call.writing() as session:
        sessions.close_session(session, token=context.request.cookies[COOKIE], caller=context.caller)
    answer = pages.see(f"{ROOT}/login", ended=1)
    answer.delete_cookie(COOKIE, path=ROOT)
    return answer


def _open(installation: Installation, token: str, caller: Caller) -> None:
    with installation.database.writing(by=caller.actor) as session:
        sessions.open_session(session, token=token, caller=caller, settings=installation.settings)


def _asked(request: Request, onward: str, *, error: Problem | None = None) -> Response:
    token = sessions.new_token()
    answer = pages.rendered(
        request,
        "login_form.html" if pages.is_fragment(request) else "login.html",
        status=problems.status_of(type(error)) if error else 200,
        error=error,
        ended="ended" in request.query_params,
        onward=_inside(onward),
        form_token=sessions.form_token(token),
    )
    if isinstance(error, RateLimited):
        answer.headers["Retry-After"] = str(error.retry_after)
    answer.set_cookie(_BEFORE, token, path=ROOT, httponly=True, samesite="strict", max_age=3600)
    return answer


def _inside(onward: str) -> str:
    """A page of the dashboard with what is asked of it, and nothing else."""
    path, _, _ = onward.partition("?")
    inside = path == ROOT or path.startswith(f"{ROOT}/")
    return onward if inside and not set(onward) & set("\\#\r\n") and "//" not in path else ROOT
