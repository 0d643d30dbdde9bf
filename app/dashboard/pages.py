"""Making of pages: templates, the headers browsers obey, and a designed page for everything that goes wrong."""

import datetime
import functools
import gzip
import hashlib
import importlib.resources
import urllib.parse
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any

import sqlalchemy.exc
from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.types import Scope

from app.api import forms, problems
from app.api.compression import takes_gzip
from app.dashboard import faults, languages, terms, wording
from lethe.contract.problems import FieldError, InputInvalid, NotFound, Problem, RateLimited, Unauthenticated

ROOT = "/admin"
MOST_ONWARD = 500
"""The longest address that a login leads on to."""
_WORTH_IT = 1024
"""Bytes of a static file that is worth compressing."""
_KEPT = ("Cache-Control", "ETag", "Last-Modified", "Vary")
"""Headers of a static file in either form."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers would hide the origin of our own forms
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


@functools.cache
def environment() -> Environment:
    found = Environment(
        loader=PackageLoader("app.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    found.policies["ext.i18n.trimmed"] = True
    # values that a text has places for are escaped as everywhere, for texts are formatted by the template itself
    found.install_gettext_callables(languages.gettext, languages.ngettext, newstyle=True)  # type: ignore[attr-defined]
    found.globals |= {"asset": asset, "count": wording.count, "percent": wording.percent, "root": ROOT}
    for shown in (
        wording.at_least,
        wording.at_most,
        wording.damage,
        wording.duration,
        wording.given,
        wording.happened,
        languages.inside,
        wording.left,
        wording.legal,
        wording.moment,
        wording.number,
        wording.of_notion,
        wording.outcome,
        wording.regulation,
        wording.run_kind,
        wording.sentence,
        wording.size,
        wording.state,
        wording.message,
        wording.why,
        wording.words,
        wording.written,
    ):
        found.filters[shown.__name__] = shown
    found.filters |= {"fault_of": faults.fault_of, "place_of": faults.place_of}
    return found


@functools.cache
def asset(name: str) -> str:
    """The address of a static file, which changes with what is in it, so that browsers may keep it for ever."""
    content = importlib.resources.files("app.dashboard").joinpath("static", name).read_bytes()
    return f"{ROOT}/static/{name}?{hashlib.sha256(content).hexdigest()[:12]}"


@functools.cache
def _compressed(name: str) -> bytes | None:
    """A static file as gzip has it; None of what is not made of words, or too short for that."""
    content = importlib.resources.files("app.dashboard").joinpath("static", name).read_bytes()
    is_text = name.endswith((".css", ".js", ".svg"))
    return gzip.compress(content, 9, mtime=0) if is_text and len(content) >= _WORTH_IT else None


class Assets(StaticFiles):
    """The static files of the dashboard, each compressed once where the browser takes that."""

    def __init__(self) -> None:
        super().__init__(directory=str(importlib.resources.files("app.dashboard") / "static"))

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        if answer.status_code == 200 and scope["query_string"]:
            answer.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        if answer.status_code != 200 or scope["method"] != "GET":
            return answer
        short = await run_in_threadpool(_compressed, path)
        if short is None:
            return answer
        answer.headers["Vary"] = "Accept-Encoding"
        answer.headers["ETag"] = f"W/{answer.headers['etag']}"  # the same file, in whichever form
        if not takes_gzip(scope):
            return answer
        kept = {name: answer.headers[name] for name in _KEPT if name in answer.headers}
        return Response(short, media_type=answer.media_type, headers=kept | {"Content-Encoding": "gzip"})


def rendered(request: Request, template: str, /, *, status: int = 200, **shown: Any) -> HTMLResponse:
    """A page, or a part of one; `context` is None without a login. Where an `error` is shown, fields have what was
    typed."""
    context = getattr(request.state, "context", None)
    typed = getattr(request.state, "typed", {}) if shown.get("error") else {}
    languages.speak(request)
    content = (
        environment()
        .get_template(template)
        .render(
            context=context,
            here=request.url.path,
            again=_address(request) if request.method == "GET" and status == 200 else ROOT,
            fragment=is_fragment(request),
            typed=typed,
            opened_at=datetime.datetime.now(datetime.UTC),
            page_language=languages.spoken(),
            page_languages=languages.LANGUAGES,
            terms=terms.translated(),
            grounds=wording.rejection_grounds(),
            **shown,
        )
    )
    return HTMLResponse(content, status, headers=_HEADERS)


def _address(request: Request) -> str:
    """The page that was asked for, as it stands after the name of the host."""
    return str(request.url.replace(scheme="", netloc=""))


def see(path: str, **query: str | int) -> RedirectResponse:
    """The answer of a form that has done what it is for: go and look there."""
    return RedirectResponse(
        f"{path}?{urllib.parse.urlencode(query)}" if query else path, status_code=303, headers=_HEADERS
    )


def quiet(headers: Mapping[str, str] = MappingProxyType({})) -> Response:
    """An answer to a page's script, with nothing to show."""
    return Response(status_code=204, headers=_HEADERS | dict(headers))


def file(name: str, content: str, media_type: str) -> Response:
    """Something to be kept."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(content, media_type=media_type, headers=headers)


def is_fragment(request: Request) -> bool:
    """Return True if a page asks for a part of itself."""
    return request.headers.get("hx-request") == "true"


class _PageRoute(forms.SpooledRoute):
    """A route of a page, which answers errors by a page. Files are spooled as the API spools them, never in clear."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def page(request: Request) -> Response:
            languages.speak(request)
            try:
                return await answer(request)
            except Unauthenticated:
                return _log_in(request)
            except Problem as error:
                return refused(request, error)
            except RequestValidationError as error:
                return refused(request, malformed(error))
            except sqlalchemy.exc.OperationalError as error:
                return refused(request, problems.unavailable(error))
            except HTTPException as error:
                if problems.is_full(error.__cause__):
                    return refused(request, problems.storage_full())
                return refused(
                    request,
                    InputInvalid(languages.gettext("The form cannot be read."))
                    if error.status_code == 400
                    else _none(),
                )
            except Exception as error:  # noqa: BLE001  a defect, or a full disk: logged without what it says, which may name people
                if problems.is_full(error):
                    return refused(request, problems.storage_full())
                problems.unexpected(error)
                return refused(
                    request, Problem(languages.gettext("The log of the gateway names the error. Try again."))
                )

        return page


def new_router() -> APIRouter:
    """For pages: they are no part of the API's documentation."""
    return APIRouter(prefix=ROOT, route_class=_PageRoute, include_in_schema=False)


def refused(request: Request, error: Problem) -> Response:
    """The page for a named condition."""
    answer = rendered(
        request,
        "refused.html",
        status=problems.status_of(type(error)),
        error=error,
        status_code=problems.status_of(type(error)),
    )
    if isinstance(error, RateLimited):
        answer.headers["Retry-After"] = str(error.retry_after)
    return answer


def malformed(error: Any) -> InputInvalid:
    """Name what is wrong with an address, in words and without what was sent."""
    found: dict[str, str] = {}
    for fault in faults.in_words(error):  # of a choice of types each says what it lacks: the first is enough
        name = fault.path.partition(".")[2] or fault.path
        found.setdefault(name.partition(".")[0], fault.message)
    faulty = [FieldError(name, message) for name, message in found.items()]
    return InputInvalid(languages.gettext("The address of this page has what the page does not know."), faulty)


def _none() -> NotFound:
    return NotFound(languages.gettext("There is no such page."))


def _log_in(request: Request) -> Response:
    """Lead to the login, and from there back; a page that is open asks for it in its place, so that nothing is lost
    that was written there."""
    if is_fragment(request):
        return Response(status_code=401, headers=_HEADERS | {"HX-Reswap": "none"})
    onward = _address(request)
    if request.method != "GET":
        origin, path = request.headers.get("origin", ""), request.headers.get("referer", "")
        onward = path.removeprefix(origin) if origin else ROOT
    if onward == ROOT or len(onward) > MOST_ONWARD:
        return see(f"{ROOT}/login")
    return see(f"{ROOT}/login", next=onward)
