"""The context of a page: the caller, found by the cookie of their session and allowed what the key they logged in with
is allowed."""

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse
from starlette.datastructures import FormData

from app.access import sessions
from app.access.service import Caller
from app.api.calls import WINDOW, At, Call, Known
from app.api.intake import Intake
from app.config import Settings
from app.dashboard import endpoints, pages
from app.dashboard.languages import gettext
from lethe.contract.problems import FormRefused

T = TypeVar("T")
COOKIE = "lethe_session"
_FORM_TOKEN = "csrf"  # noqa: S105  the name of a field
_READING = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """One look at one page. `form_token`: what its forms must carry."""

    request: Request
    call: Call
    intake: Intake
    form_token: str

    @property
    def caller(self) -> Caller:
        return self.call.caller

    def may(self, endpoint: Callable[..., Any]) -> bool:
        """Return True if what `endpoint` of the API does is to be offered."""
        return endpoints.may(self.call, endpoint)

    def require(self, endpoint: Callable[..., Any]) -> None:
        """Raises `ScopeMissing` where a form would be shown for what cannot be asked."""
        endpoints.require(self.call, endpoint)

    def ask(self, endpoint: Callable[..., T], /, **arguments: Any) -> T:
        """Ask `endpoint` of the API; `call`, `intake`, `once` and `response` are given to it."""
        return endpoints.ask(self.call, self.intake, endpoint, **arguments)

    def page(self, template: str, /, *, status: int = 200, **shown: Any) -> HTMLResponse:
        return pages.rendered(self.request, template, status=status, **shown)


def _opened(request: Request, installation: At) -> tuple[Caller, str]:
    """The caller of the session, and its token. Raises `Unauthenticated`."""
    token = request.cookies.get(COOKIE, "")
    with installation.database.reading() as session:
        caller, to_note = sessions.caller_of(session, token, settings=installation.settings)
    if to_note:
        with installation.database.writing(by=caller.actor, exclusive=False) as session:
            sessions.seen(session, token)
    return caller, token


async def _context(
    request: Request, installation: At, opened: Annotated[tuple[Caller, str], Depends(_opened)]
) -> RequestContext:
    caller, token = opened
    known: Known = request.app.state.known
    request.scope[WINDOW] = known.rates.count(caller)
    form_token = sessions.form_token(token)
    context = RequestContext(
        request=request,
        call=Call(installation=installation, caller=caller),
        intake=request.app.state.intake,
        form_token=form_token,
    )
    request.state.context = context
    if request.method not in _READING:
        await check_form(request, installation.settings, form_token)
    return context


TheContext = Annotated[RequestContext, Depends(_context)]


async def _form(request: Request, _context: TheContext) -> FormData:
    form = await request.form()
    request.state.typed = {name: value for name, value in form.items() if isinstance(value, str)}
    return form


Form = Annotated[FormData, Depends(_form)]
"""The form that was filled in. No page declares fields of its own: a body is read only once it is known who sends
it."""


async def check_form(request: Request, settings: Settings, expected: str) -> None:
    """Raises `FormRefused` unless a page of this dashboard sent the request."""
    given: object = None
    if _is_from_here(request, settings):
        given = request.headers.get("x-csrf-token") or (await request.form()).get(_FORM_TOKEN)
    if not (isinstance(given, str) and hmac.compare_digest(given.encode(), expected.encode())):
        raise FormRefused(
            gettext("The form did not come from a page of this session. Open the page again and repeat it.")
        )


def _is_from_here(request: Request, settings: Settings) -> bool:
    """Browsers say which origin a form is from; what does not say so is no form of ours."""
    origin = request.headers.get("origin", "")
    if settings.dashboard_origin is not None:
        return origin == settings.dashboard_origin
    return bool(origin) and urlsplit(origin).netloc == request.headers.get("host")
