"""Context of a page: its caller, identified by the session cookie, and the API endpoints that this caller may use.

Pages call the same functions as the API's routes, and therefore require the same scopes.
"""

import functools
import hmac
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from fastapi import Depends, Request, Response
from fastapi.responses import HTMLResponse
from starlette.datastructures import FormData

from app.access import idempotency, service as access
from app.api import calls, datasets, deletion_requests, gateway, models, tenants
from app.api.intake import Intake
from app.config import Settings
from app.features.desk import languages, lists, rendering as pages, sessions
from lethe.contract import operation, problems
from lethe.features.desk.contract import FormRefused

T = TypeVar("T")
COOKIE = "lethe_session"
# The name of a form field, not a secret.
_FORM_TOKEN = "csrf"  # noqa: S105
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_READ_BY: dict[str, Callable[..., Any]] = {
    "dr": deletion_requests.get_deletion_request,
    "ds": datasets.get_dataset,
    "key": tenants.list_api_keys,
    "mdl": models.get_model,
}
"""Endpoint that returns an object's name, for each id prefix."""
_NAMED = ("dataset_id", "model_id", "api_key_id")
"""Fields of list items that contain the ids of objects shown by name on pages."""


def operation_of(endpoint: Callable[..., Any]) -> operation.Operation[..., Any]:
    """Return the API operation that `endpoint` serves. Raises `TypeError` if it serves none."""
    if endpoint not in gateway.SERVED:
        raise TypeError(f"{endpoint.__name__} serves no operation")
    return gateway.SERVED[endpoint]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """Context of a single page request. `form_token` is the token that the page's forms must send, and `names` maps ids
    to the names that the page has looked up."""

    request: Request
    call: calls.Call
    intake: Intake
    form_token: str
    names: dict[str, str] = field(default_factory=dict)

    @property
    def caller(self) -> access.Caller:
        return self.call.caller

    def may(self, endpoint: Callable[..., Any]) -> bool:
        """Return True if the caller may call the API's `endpoint`. Pages offer only permitted actions."""
        return may(self.call, endpoint)

    def require(self, endpoint: Callable[..., Any]) -> None:
        """Raise `ScopeMissing` if the caller may not call the API's `endpoint`."""
        if scope := operation_of(endpoint).scope:
            self.caller.require(scope)

    def ask(self, endpoint: Callable[..., T], /, **arguments: Any) -> T:
        """Call the API's `endpoint` as if over HTTP, with its ids, body and query parameters as keyword arguments.

        Call, intake, idempotency key and response are filled in. Raises `ScopeMissing`, and the endpoint's own errors.
        """
        self.require(endpoint)
        query = operation_of(endpoint).query
        parameters = {name: arguments.pop(name) for name in query.model_fields.keys() & arguments.keys()}
        supplied = {
            calls.Call: self.call,
            Intake: self.intake,
            idempotency.Once: idempotency.Once(name=None, fingerprint=""),
            Response: Response(),
            query: query.model_validate(parameters),
        }
        types = _parameter_types(endpoint).items()
        return endpoint(**{name: supplied[kind] for name, kind in types if kind in supplied}, **arguments)

    def ask_if_allowed(self, endpoint: Callable[..., T], /, **arguments: Any) -> T | None:
        """Return the result of `endpoint`; None if the caller may not call it."""
        return self.ask(endpoint, **arguments) if self.may(endpoint) else None

    def listing(
        self, endpoint: Callable[..., Any], place: lists.PagePosition, singular: str, plural: str, /, **arguments: Any
    ) -> dict[str, Any]:
        """Return the variables for a list's template: the page at `place`, and the range of entries on it."""
        page = self.ask(endpoint, **arguments, limit=place.size, cursor=place.cursor)
        self.read_names(page.items)
        return {"page": page, "place": place, "extent": place.extent(page, singular, plural)}

    def name_of(self, id_: str) -> str:
        """Return the name of a dataset, model or API key, or the case number of a request. If there is none, or the
        caller may not read it, return the id."""
        if id_ not in self.names:
            self._read_names([id_])
        if id_ not in self.names:
            self.names[id_] = (id_.startswith("dr_") and self._case_number_of(id_)) or id_
        return self.names[id_]

    def read_names(self, items: Iterable[Any]) -> None:
        """Read the names of all objects that a list's items refer to, in one look-up instead of one per object."""
        self._read_names(getattr(item, field, None) for item in items for field in _NAMED)

    def _read_names(self, ids: Iterable[str | None]) -> None:
        """Read the names of those datasets, models and API keys that the caller may read, in a single query."""
        unread = {id_ for id_ in ids if id_ and id_ not in self.names and not id_.startswith("dr_")}
        readable = {id_ for id_ in unread if self._may_read(id_)}
        if readable:
            with self.call.reading() as session:
                names = access.names_of(session, readable)
            self.names.update((id_, names.get(id_) or id_) for id_ in readable)

    def _may_read(self, id_: str) -> bool:
        endpoint = _READ_BY.get(id_.partition("_")[0])
        return endpoint is not None and self.may(endpoint)

    def _case_number_of(self, request_id: str) -> str | None:
        if not self._may_read(request_id):
            return None
        try:
            return self.ask(deletion_requests.get_deletion_request, request_id=request_id).external_id
        except problems.NotFound:
            return None

    def page(self, template: str, /, *, status: int | None = None, **variables: Any) -> HTMLResponse:
        return pages.rendered(self.request, template, status=status, **variables)


def may(call: calls.Call, endpoint: Callable[..., Any]) -> bool:
    """Return True if the caller of `call` has the scope required by `endpoint`."""
    scope = operation_of(endpoint).scope
    return scope is None or call.caller.has(scope)


@functools.cache
def _parameter_types(endpoint: Callable[..., Any]) -> dict[str, Any]:
    return {name: kind for name, kind in typing.get_type_hints(endpoint).items() if name != "return"}


def _authenticated(request: Request, installation: calls.At) -> tuple[access.Caller, str]:
    """Return the session's caller and token. Raises `Unauthenticated`."""
    token = sessions.read(request, COOKIE)
    with installation.database.reading() as session:
        caller, is_touch_due = sessions.caller_of(session, token, settings=installation.settings)
    if is_touch_due:
        with installation.database.writing(by=caller.actor, exclusive=False) as session:
            sessions.touch(session, token)
    return caller, token


async def _context(
    request: Request, installation: calls.At, login: Annotated[tuple[access.Caller, str], Depends(_authenticated)]
) -> RequestContext:
    caller, token = login
    state: calls.Known = request.app.state.known
    request.scope[calls.WINDOW] = state.rates.count(caller)
    form_token = sessions.form_token(token)
    context = RequestContext(
        request=request,
        call=calls.Call(installation=installation, caller=caller),
        intake=request.app.state.intake,
        form_token=form_token,
    )
    request.state.context = context
    if request.method not in _SAFE_METHODS:
        await check_form(request, installation.settings, form_token)
    return context


TheContext = Annotated[RequestContext, Depends(_context)]


async def _form(request: Request, _context: TheContext) -> FormData:
    form = await request.form()
    request.state.typed = {name: value for name, value in form.items() if isinstance(value, str)}
    return form


Form = Annotated[FormData, Depends(_form)]
"""The submitted form. Pages declare no form fields, because a body is read only after its sender is authenticated."""


async def check_form(request: Request, settings: Settings, expected: str) -> None:
    """Raise `FormRefused` unless the request comes from this dashboard and carries the token `expected`."""
    token: object = None
    if _is_same_origin(request, settings):
        token = request.headers.get("x-csrf-token") or (await request.form()).get(_FORM_TOKEN)
    if not (isinstance(token, str) and hmac.compare_digest(token.encode(), expected.encode())):
        raise FormRefused(
            languages.gettext("The form did not come from a page of this session. Open the page again and repeat it.")
        )


def _is_same_origin(request: Request, settings: Settings) -> bool:
    """Return True if the form's Origin header names this dashboard. A form without an origin is refused."""
    origin = request.headers.get("origin", "")
    if settings.dashboard_origin is not None:
        return origin == settings.dashboard_origin
    return bool(origin) and urlsplit(origin).netloc == request.headers.get("host")
