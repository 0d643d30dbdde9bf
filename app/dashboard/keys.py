"""API keys: made and shown once, rotated with an overlap, revoked."""

import datetime
from typing import Literal

from fastapi import Response
from starlette.datastructures import FormData

from app.api import api_keys, problems
from app.dashboard import numbers, pages
from app.dashboard.languages import gettext, marked
from app.dashboard.lists import Place, ThePlace
from app.dashboard.pages import ROOT
from app.dashboard.request_context import Form, RequestContext, TheContext
from app.dashboard.requests import checked, text
from lethe.contract.api_keys import ApiKeyIn, ApiKeyOut, RotationIn
from lethe.contract.problems import FieldError, InputInvalid, Problem
from lethe.contract.sets import Scope

router = pages.new_router()

_MEANS = {
    Scope.REQUESTS_READ: marked("read deletion requests"),
    Scope.REQUESTS_WRITE: marked("make deletion requests, and cancel them"),
    Scope.REQUESTS_REVIEW: marked(
        "approve, reject, extend, pause deletion requests; only with the scope that reads accounts"
    ),
    Scope.MODELS_READ: marked("read datasets, models, versions and runs; download weights; predict"),
    Scope.MODELS_WRITE: marked("upload datasets, make models"),
    Scope.ACCOUNTING_READ: marked("read accounts, certificates and lineage"),
    Scope.ADMIN: marked("all of that, and keys, policy and audit log"),
    Scope.METRICS_READ: marked("read how the installation does, for monitoring"),
    Scope.OPERATOR: marked("make tenants; see the settings of the installation"),
}
"""The scopes that a key is made for by hand; an agent's is made by the agent."""
_FIELDS = ("name", "expires_on", "calls_per_minute", "sees")
_SEES = [
    ("", marked("its own, if it may do nothing but make requests")),
    ("own", marked("its own")),
    ("all", marked("all of the tenant's")),
]
_OVERLAPS = [
    ("0", marked("none: it ends now")),
    ("3600", marked("an hour")),
    ("86400", marked("a day")),
    ("604800", marked("a week")),
]


@router.get("/keys")
def list_keys(context: TheContext, place: ThePlace, done: Literal["", "revoked"] = "") -> Response:
    """All keys, newest first."""
    return _list(context, place, done=done)


@router.post("/keys")
def create_key(context: TheContext, form: Form) -> Response:
    """Make a key, and show it this once."""
    try:
        made = context.ask(api_keys.create_api_key, body=_asked(form))
    except Problem as error:
        return _list(context, Place(), error=error, form=form)
    return context.page("keys/made.html", status=201, made=made, replaced=None)


@router.get("/keys/{key_id}")
def show_key(context: TheContext, key_id: str) -> Response:
    """Show what a key opens, and how to end it."""
    return _one(context, key_id)


@router.post("/keys/{key_id}/rotate")
def rotate_key(context: TheContext, form: Form, key_id: str) -> Response:
    """Make its successor, and show it this once."""
    try:
        body = checked(RotationIn, overlap_seconds=numbers.read(text(form, "overlap_seconds") or "0"))
        made = context.ask(api_keys.rotate_api_key, key_id=key_id, body=body)
    except Problem as error:
        return _one(context, key_id, error)
    return context.page(
        "keys/made.html", status=201, made=made, replaced={"id": key_id, "seconds": body.overlap_seconds}
    )


@router.post("/keys/{key_id}/revoke")
def revoke_key(context: TheContext, key_id: str) -> Response:
    """From here on nobody gets in with it."""
    try:
        context.ask(api_keys.revoke_api_key, key_id=key_id)
    except Problem as error:
        return _one(context, key_id, error)
    return pages.see(f"{ROOT}/keys", done="revoked")


def _asked(form: FormData) -> ApiKeyIn:
    return checked(
        ApiKeyIn,
        name=text(form, "name"),
        scopes=[scope for scope in form.getlist("scopes") if isinstance(scope, str)],
        expires_at=_end_of(text(form, "expires_on")),
        calls_per_minute=numbers.of_field(text(form, "calls_per_minute")),
        own_requests_only={"own": True, "all": False}.get(text(form, "sees")),
    )


def _end_of(day: str) -> str | None:
    """The end of that day, in UTC; None if none was chosen."""
    if not day:
        return None
    try:
        ends = datetime.datetime.combine(datetime.date.fromisoformat(day), datetime.time.max, datetime.UTC)
    except ValueError:
        raise InputInvalid(
            gettext("The key was not made."), [FieldError("expires_on", gettext("expected a date"))]
        ) from None
    return ends.replace(microsecond=0).isoformat()


def _translated(options: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(value, gettext(said)) for value, said in options]


def _status(key: ApiKeyOut, now: datetime.datetime) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= now else "in_force"


def _one(context: RequestContext, key_id: str, error: Problem | None = None) -> Response:
    status = problems.status_of(type(error)) if error else 200
    key = context.ask(api_keys.get_api_key, key_id=key_id)
    state = _status(key, datetime.datetime.now(datetime.UTC))
    return context.page(
        "keys/one.html", status=status, key=key, state=state, overlaps=_translated(_OVERLAPS), error=error
    )


def _list(
    context: RequestContext,
    place: Place,
    *,
    done: str = "",
    error: Problem | None = None,
    form: FormData | None = None,
) -> Response:
    found = context.ask(api_keys.list_api_keys, limit=place.size, cursor=place.cursor)
    now = datetime.datetime.now(datetime.UTC)
    return context.page(
        "keys/list.html",
        status=problems.status_of(type(error)) if error else 200,
        found=found,
        keys=[(key, _status(key, now)) for key in found.items],
        place=place,
        extent=place.extent(found, "key", "keys"),
        done=done,
        error=error,
        wanted={} if form is None else {name: text(form, name) for name in _FIELDS},
        chosen=[] if form is None else form.getlist("scopes"),
        sees=_translated(_SEES),
        scopes=[(scope.value, gettext(means)) for scope, means in _MEANS.items() if context.caller.has(scope)],
    )
