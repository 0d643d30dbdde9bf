"""API keys: created and shown once, rotated with an overlap, revoked."""

import datetime
from collections.abc import Mapping
from typing import Literal

from fastapi import Response
from starlette.datastructures import FormData

from app.api import tenants
from app.features.desk import rendering as pages
from app.features.desk.forms import checked, parse_number, parse_optional_number, text
from app.features.desk.languages import gettext, marked
from app.features.desk.lists import PagePosition, ThePlace
from app.features.desk.rendering import ROOT
from app.features.desk.request_context import Form, RequestContext, TheContext
from lethe.contract.api_keys import ApiKeyIn, ApiKeyOut, RotationIn
from lethe.contract.problems import FieldError, InputInvalid, Problem
from lethe.contract.sets import Scope

router = pages.new_router()

_SCOPES: Mapping[Scope, str] = {
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
"""The scopes of keys that people create; the key of an agent is created with the agent."""
_FIELDS = ("name", "expires_on", "calls_per_minute", "sees")
_VISIBLE_REQUESTS = {
    "": marked("its own, if it may do nothing but make requests"),
    "own": marked("its own"),
    "all": marked("all of the tenant's"),
}
_OVERLAPS = {
    "0": marked("none: it ends now"),
    "3600": marked("an hour"),
    "86400": marked("a day"),
    "604800": marked("a week"),
}


@router.get("/keys")
def list_keys(context: TheContext, place: ThePlace, done: Literal["", "revoked"] = "") -> Response:
    """List keys, newest first."""
    return _list(context, place, done=done)


@router.post("/keys")
def create_key(context: TheContext, form: Form) -> Response:
    """Create a key, and show it once."""
    try:
        created = context.ask(tenants.create_api_key, body=_body(form))
    except Problem as error:
        return _list(context, PagePosition(), error=error, form=form)
    return context.page("keys/made.html", status=201, made=created, replaced=None)


@router.get("/keys/{key_id}")
def show_key(context: TheContext, key_id: str) -> Response:
    """Show the permissions of a key, and how to rotate or revoke it."""
    return _one(context, key_id)


@router.post("/keys/{key_id}/rotate")
def rotate_key(context: TheContext, form: Form, key_id: str) -> Response:
    """Create the successor of a key, and show it once."""
    try:
        body = checked(RotationIn, overlap_seconds=parse_number(text(form, "overlap_seconds") or "0"))
        created = context.ask(tenants.rotate_api_key, key_id=key_id, body=body)
    except Problem as error:
        return _one(context, key_id, error)
    replaced = {"id": key_id, "seconds": body.overlap_seconds}
    return context.page("keys/made.html", status=201, made=created, replaced=replaced)


@router.post("/keys/{key_id}/revoke")
def revoke_key(context: TheContext, key_id: str) -> Response:
    """Revoke a key at once."""
    try:
        context.ask(tenants.revoke_api_key, key_id=key_id)
    except Problem as error:
        return _one(context, key_id, error)
    return pages.see(f"{ROOT}/keys", done="revoked")


def _body(form: FormData) -> ApiKeyIn:
    return checked(
        ApiKeyIn,
        name=text(form, "name"),
        scopes=[scope for scope in form.getlist("scopes") if isinstance(scope, str)],
        expires_at=_end_of(text(form, "expires_on")),
        calls_per_minute=parse_optional_number(text(form, "calls_per_minute")),
        own_requests_only={"own": True, "all": False}.get(text(form, "sees")),
    )


def _end_of(day: str) -> str | None:
    """Return the last second of a day in UTC; None if the field is empty."""
    if not day:
        return None
    try:
        end = datetime.datetime.combine(datetime.date.fromisoformat(day), datetime.time.max, datetime.UTC)
    except ValueError:
        raise InputInvalid(
            gettext("The key was not made."), [FieldError("expires_on", gettext("expected a date"))]
        ) from None
    return end.replace(microsecond=0).isoformat()


def _choices(labels: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(value, gettext(label)) for value, label in labels.items()]


def _status(key: ApiKeyOut) -> str:
    if key.revoked_at is not None:
        return "revoked"
    is_expired = key.expires_at is not None and key.expires_at <= datetime.datetime.now(datetime.UTC)
    return "expired" if is_expired else "in_force"


def _one(context: RequestContext, key_id: str, error: Problem | None = None) -> Response:
    key = context.ask(tenants.get_api_key, key_id=key_id)
    return context.page("keys/one.html", key=key, state=_status(key), overlaps=_choices(_OVERLAPS), error=error)


def _list(
    context: RequestContext,
    place: PagePosition,
    *,
    done: str = "",
    error: Problem | None = None,
    form: FormData | None = None,
) -> Response:
    listing = context.listing(tenants.list_api_keys, place, "key", "keys")
    return context.page(
        "keys/list.html",
        **listing,
        keys=[(key, _status(key)) for key in listing["page"].items],
        done=done,
        error=error,
        written={} if form is None else {name: text(form, name) for name in _FIELDS},
        chosen=[] if form is None else form.getlist("scopes"),
        sees=_choices(_VISIBLE_REQUESTS),
        scopes=[(scope.value, gettext(label)) for scope, label in _SCOPES.items() if context.caller.has(scope)],
    )
