"""Page rendering: templates, static files, security headers, and a page for every error."""

import datetime
import functools
import gzip
import hashlib
import importlib.resources
import json
import urllib.parse
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import sqlalchemy.exc
from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Scope

from app.api import forms, problems
from app.features import FEATURES
from app.features.desk import glossary, languages, wording
from app.features.desk.forms import fault_of, in_words, place_of
from lethe.contract.problems import FieldError, InputInvalid, NotFound, Problem, RateLimited, Unauthenticated

ROOT = "/admin"
MAX_ONWARD_LENGTH = 500
"""Maximum length of the URL to which a login redirects."""
_MIN_COMPRESSED_BYTES = 1024
"""Size in bytes from which static files are compressed."""
_CACHING_HEADERS = ("Cache-Control", "ETag", "Last-Modified", "Vary")
"""Response headers of a static file, whether or not it is compressed."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    # With no-referrer, browsers would hide the origin of the dashboard's own forms.
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


def with_templates() -> list[str]:
    """Return the names of the features that have a folder of templates."""
    folder = importlib.resources.files("app.features")
    return [feature for feature in FEATURES if (folder / feature / "templates").is_dir()]


@pass_context
def legal(page: Context, at: datetime.datetime, zone: str, *, minute: bool = False) -> Markup:
    """Return a legal deadline's date, without its time zone if the page already states that zone (`stated_zone`)."""
    return wording.legal(at, zone, minute=minute, stated=page.get("stated_zone"))


_FILTERS = (
    fault_of,
    languages.day,
    languages.inside,
    place_of,
    wording.at_least,
    wording.at_most,
    wording.damage,
    wording.duration,
    wording.given,
    wording.happened,
    wording.left,
    legal,
    wording.message,
    wording.moment,
    wording.number,
    wording.of_notion,
    wording.outcome,
    wording.regulation,
    wording.run_kind,
    wording.sentence,
    wording.size,
    wording.state,
    wording.why,
    wording.words,
    wording.written,
)
"""Template filters, available under the names of their functions."""


@functools.cache
def environment() -> Environment:
    """Return the Jinja environment for all features' templates."""
    templates = Environment(
        loader=ChoiceLoader([PackageLoader(f"app.features.{feature}") for feature in with_templates()]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    templates.policies["ext.i18n.trimmed"] = True
    # With newstyle gettext, the template fills in the placeholders of texts, and escapes the values as everywhere.
    templates.install_gettext_callables(  # type: ignore[attr-defined]
        languages.gettext, languages.ngettext, newstyle=True
    )
    templates.globals |= {"asset": asset, "count": wording.count, "percent": wording.percent, "root": ROOT}
    templates.filters |= {function.__name__: function for function in _FILTERS}
    return templates


@functools.cache
def asset(name: str) -> str:
    """Return a static file's URL, which changes with the content, so that browsers can cache the file indefinitely."""
    return f"{ROOT}/static/{name}?{hashlib.sha256(_content(name)).hexdigest()[:12]}"


def _content(name: str) -> bytes:
    return importlib.resources.files("app.features.desk").joinpath("static", name).read_bytes()


@functools.cache
def _compressed(name: str) -> bytes | None:
    """Return a static file compressed with gzip; None if it is not text, or is too short to be worth compressing."""
    content = _content(name)
    is_text = name.endswith((".css", ".js", ".svg"))
    return gzip.compress(content, 9, mtime=0) if is_text and len(content) >= _MIN_COMPRESSED_BYTES else None


def _accepts_gzip(scope: Scope) -> bool:
    """Return True if the browser accepts gzip with a quality value above zero."""
    codings = Headers(scope=scope).get("accept-encoding", "").lower().replace(" ", "").split(",")
    return any(coding == "gzip" or (coding.startswith("gzip;q=") and coding[7:].strip("0.")) for coding in codings)


class Assets(StaticFiles):
    """Static files of the dashboard. Each file is compressed once, for browsers that accept gzip."""

    def __init__(self) -> None:
        super().__init__(directory=str(importlib.resources.files("app.features.desk") / "static"))

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        # `asset` puts a hash of the content into the query, so such an address never names other bytes (RFC 8246).
        if answer.status_code == 200 and scope["query_string"]:
            answer.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        if answer.status_code != 200 or scope["method"] != "GET":
            return answer
        content = await run_in_threadpool(_compressed, path)
        if content is None:
            return answer
        # The plain answer varies too, or caches would serve it to every browser (RFC 9110, 12.5.5).
        answer.headers["Vary"] = "Accept-Encoding"
        # A weak tag: it names the same file in either encoding.
        answer.headers["ETag"] = f"W/{answer.headers['etag']}"
        if not _accepts_gzip(scope):
            return answer
        headers = {name: answer.headers[name] for name in _CACHING_HEADERS if name in answer.headers}
        return Response(content, media_type=answer.media_type, headers=headers | {"Content-Encoding": "gzip"})


def rendered(
    request: Request, template: str, /, *, status: int | None = None, error: Problem | None = None, **variables: Any
) -> HTMLResponse:
    """Render a page or a fragment. In templates, `context` is None if the browser is not logged in.

    With an `error`, fields keep the user's input, and the status is the error's status unless `status` is given.
    """
    if status is None:
        status = problems.status_of(type(error)) if error else 200
    languages.speak(request)
    content = (
        environment()
        .get_template(template)
        .render(
            context=getattr(request.state, "context", None),
            here=request.url.path,
            again=_address(request) if request.method == "GET" and status == 200 else ROOT,
            fragment=is_fragment(request),
            typed=getattr(request.state, "typed", {}) if error else {},
            error=error,
            opened_at=datetime.datetime.now(datetime.UTC),
            page_language=languages.spoken(),
            page_languages=languages.LANGUAGES,
            terms=glossary.terms(),
            grounds=glossary.labels("rejection_grounds"),
            **variables,
        )
    )
    response = HTMLResponse(content, status, headers=_HEADERS)
    if isinstance(error, RateLimited):
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def _address(request: Request) -> str:
    """Return the path and query of a request."""
    return str(request.url.replace(scheme="", netloc=""))


def see(path: str, **query: str | int) -> RedirectResponse:
    """Redirect to the page at `path` after a form has been processed (303 See Other)."""
    return RedirectResponse(
        f"{path}?{urllib.parse.urlencode(query)}" if query else path, status_code=303, headers=_HEADERS
    )


def no_content(headers: Mapping[str, str] = MappingProxyType({})) -> Response:
    """Return an empty response (204) to a page's script."""
    return Response(status_code=204, headers=_HEADERS | dict(headers))


def file(name: str, content: str, media_type: str) -> Response:
    """Return a response that browsers save as a file."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(content, media_type=media_type, headers=headers)


def json_file(name: str, answer: BaseModel | Sequence[BaseModel]) -> Response:
    """Return an API response body, or a list of bodies, as a JSON file to save."""
    content: Any = (
        answer.model_dump(mode="json")
        if isinstance(answer, BaseModel)
        else [item.model_dump(mode="json") for item in answer]
    )
    return file(name, json.dumps(content, indent=1), "application/json")


def is_fragment(request: Request) -> bool:
    """Return True if an open page is requesting a fragment of itself."""
    return request.headers.get("hx-request") == "true"


class PageRoute(forms.SpooledRoute):
    """Route that serves a page, even for an error. Like the API's routes, it never spools files in plaintext."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def page(request: Request) -> Response:
            languages.speak(request)
            try:
                return await handler(request)
            except Unauthenticated:
                return _login_of(request)
            except Exception as error:  # noqa: BLE001  every error has a page
                return refused(request, _problem_of(error))

        return page


def _problem_of(error: Exception) -> Problem:
    """Return the problem to report on a page for an error.

    An unexpected error is logged without its message, which may name people.
    """
    if isinstance(error, Problem):
        return error
    if isinstance(error, RequestValidationError):
        return malformed(error)
    if isinstance(error, sqlalchemy.exc.OperationalError):
        return problems.unavailable(error)
    if problems.is_full(error.__cause__ if isinstance(error, HTTPException) else error):
        return problems.storage_full()
    if isinstance(error, HTTPException):
        if error.status_code == 400:
            return InputInvalid(languages.gettext("The form cannot be read."))
        return NotFound(languages.gettext("There is no such page."))
    problems.unexpected(error)
    return Problem(languages.gettext("The log of the gateway names the error. Try again."))


def new_router() -> APIRouter:
    """Return a router for pages; they are excluded from the API's documentation."""
    return APIRouter(prefix=ROOT, route_class=PageRoute, include_in_schema=False)


def refused(request: Request, error: Problem) -> Response:
    """Return the page that reports an error."""
    return rendered(request, "refused.html", error=error, status_code=problems.status_of(type(error)))


def malformed(error: RequestValidationError) -> InputInvalid:
    """Describe what is wrong with a page's URL, without quoting the URL."""
    messages: dict[str, str] = {}
    for fault in in_words(error):
        # A union of types reports one fault for each type: the first is enough.
        name = fault.path.partition(".")[2] or fault.path
        messages.setdefault(name.partition(".")[0], fault.message)
    faults = [FieldError(name, message) for name, message in messages.items()]
    return InputInvalid(languages.gettext("The address of this page has unknown parameters."), faults)


def _login_of(request: Request) -> Response:
    """Redirect to the login page, and from there back to the requested page.

    A page that is already open receives status 401 and shows the login form itself, so that no typed text is lost.
    """
    if is_fragment(request):
        return Response(status_code=401, headers=_HEADERS | {"HX-Reswap": "none"})
    onward = _address(request)
    if request.method != "GET":
        origin, path = request.headers.get("origin", ""), request.headers.get("referer", "")
        onward = path.removeprefix(origin) if origin else ROOT
    if onward == ROOT or len(onward) > MAX_ONWARD_LENGTH:
        return see(f"{ROOT}/login")
    return see(f"{ROOT}/login", next=onward)
