"""Pages shown before login, and the cookie that a login sets.

Each browser gets its own token for the forms on these pages, so that no other site can log it in as someone else.
"""

import hashlib
from typing import Annotated, Any

from fastapi import Query, Request, Response
from starlette.datastructures import FormData

from app.config import Settings
from app.features.desk import languages, rendering as pages, request_context, sessions
from lethe.contract.problems import Problem, UploadTooLarge

_BROWSER_COOKIE = "lethe_login"
"""Cookie that identifies a browser before login."""
Next = Annotated[
    str, Query(max_length=pages.MAX_ONWARD_LENGTH, description="Address of the page to show after the login.")
]
_MAX_FORM_BYTES = 16 * 1024


async def form_of(request: Request, settings: Settings) -> FormData:
    """Read the form of a pre-login page. Raises `UploadTooLarge` and `FormRefused`."""
    length = request.headers.get("content-length", "")
    if not length.isdigit() or int(length) > _MAX_FORM_BYTES:
        raise UploadTooLarge(languages.gettext("This form is longer than any key or password."))
    await request_context.check_form(request, settings, form_token(request))
    return await request.form()


def form_token(request: Request) -> str:
    """Return the token of the form that this browser was shown last."""
    return sessions.form_token(sessions.read(request, _BROWSER_COOKIE))


def is_known(request: Request) -> bool:
    """Return True if this browser has been shown a pre-login form."""
    return bool(sessions.read(request, _BROWSER_COOKIE))


def page(request: Request, template: str, *, token: str, error: Problem | None = None, **variables: Any) -> Response:
    """Render a page with a form. The form's token is derived from `token`, a fresh result of `sessions.new_token`."""
    response = pages.rendered(request, template, error=error, form_token=sessions.form_token(token), **variables)
    sessions.put(request, response, _BROWSER_COOKIE, token, max_age=3600)
    return response


def let_in(request: Request, response: Response, token: str) -> Response:
    """Set the session cookie and delete the pre-login cookie."""
    sessions.put(request, response, request_context.COOKIE, token, secure=is_https(request))
    sessions.drop(request, response, _BROWSER_COOKIE)
    return response


def is_https(request: Request) -> bool:
    """Return True if the browser reached the dashboard over https, possibly through a proxy that terminates TLS."""
    return sessions.is_https(request) or request.headers.get("origin", "").startswith("https:")


def onward_page(address: str) -> str:
    """Return `address` if it is a dashboard page, with or without a query; otherwise return the overview page."""
    path, _, _ = address.partition("?")
    is_inside = path == pages.ROOT or path.startswith(f"{pages.ROOT}/")
    return address if is_inside and not set(address) & set("\\#\r\n") and "//" not in path else pages.ROOT


def account_key(email: str) -> str:
    """Return the key under which an account's failed passwords are counted; the account need not exist."""
    return "account " + hashlib.sha256(email.strip().lower().encode(errors="replace")).hexdigest()
