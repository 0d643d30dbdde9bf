"""Pages before a login: each browser has a token of its own for their forms, so that nobody is logged in as somebody
else; and the cookie of somebody who has got in."""

from typing import Any

from fastapi import Request, Response
from starlette.datastructures import FormData

from app.access import sessions
from app.api import problems
from app.config import Settings
from app.dashboard import pages
from app.dashboard.languages import gettext
from app.dashboard.pages import ROOT
from app.dashboard.request_context import COOKIE, check_form
from lethe.contract.problems import Problem, RateLimited, UploadTooLarge

_BEFORE = "lethe_login"
"""The cookie of somebody who is about to log in: nobody can log them in as somebody else."""
_MOST_BYTES = 16 * 1024


async def form_of(request: Request, settings: Settings) -> FormData:
    """The form that a page of ours sent. Raises `UploadTooLarge`, `FormRefused`."""
    declared = request.headers.get("content-length", "")
    if not declared.isdigit() or int(declared) > _MOST_BYTES:
        raise UploadTooLarge(gettext("This form is longer than any key or password."))
    await check_form(request, settings, form_token(request))
    return await request.form()


def form_token(request: Request) -> str:
    """The token that the form must carry which was shown to this browser last."""
    return sessions.form_token(request.cookies.get(_BEFORE, ""))


def is_known(request: Request) -> bool:
    """Return True if a page with a form was shown to this browser before a login."""
    return _BEFORE in request.cookies


def page(request: Request, template: str, *, token: str, error: Problem | None = None, **shown: Any) -> Response:
    """A page with a form; `token`: a new one (`sessions.new_token`), from which follows what the form carries."""
    status = problems.status_of(type(error)) if error else 200
    form_token = sessions.form_token(token)
    answer = pages.rendered(request, template, status=status, error=error, form_token=form_token, **shown)
    if isinstance(error, RateLimited):
        answer.headers["Retry-After"] = str(error.retry_after)
    answer.set_cookie(_BEFORE, token, path=ROOT, httponly=True, samesite="strict", max_age=3600)
    return answer


def let_in(request: Request, answer: Response, token: str, *, is_secure: bool = False) -> Response:
    """Let the browser keep the token of its session; `is_secure`: over https alone, if that is known."""
    is_secure = is_secure or request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:")
    answer.set_cookie(COOKIE, token, path=ROOT, secure=is_secure, httponly=True, samesite="strict")
    answer.delete_cookie(_BEFORE, path=ROOT)
    return answer


def inside(onward: str) -> str:
    """A page of the dashboard with what is asked of it, and nothing else."""
    path, _, _ = onward.partition("?")
    is_inside = path == ROOT or path.startswith(f"{ROOT}/")
    return onward if is_inside and not set(onward) & set("\\#\r\n") and "//" not in path else ROOT
