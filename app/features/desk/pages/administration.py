"""Administration: tenants, API keys and, for operators, the installation's settings, versions and readiness.

A tenant's page shows its policy, identity issuers and agents. The policy form has one row per regulation, and durations
with units; changes are shown before they are saved. A key is shown once, when it is created; it can be revoked, or
rotated with an overlap.
"""

import contextlib
import datetime
import functools
import importlib.metadata
import json
import platform
import zoneinfo
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import Response
from pydantic import SecretStr, ValidationError
from starlette.datastructures import FormData

from app.api import operations, tenants
from app.config import Settings
from app.db import migrate
from app.deletion import deadlines
from app.features.custody import endpoints as custody
from app.features.desk import forms, lists, rendering as pages
from app.features.desk.forms import checked, parse_number, parse_optional_number, text
from app.features.desk.glossary import labels
from app.features.desk.languages import gettext, marked
from app.features.desk.request_context import Form, RequestContext, TheContext
from app.features.desk.wording import count, regulation, words
from app.features.protocols import endpoints as protocols
from lethe.contract import api_keys, readiness, sets
from lethe.contract.problems import FieldError, InputInvalid, NotFound, Problem
from lethe.contract.tenants import MAY_NAME_SOMEBODY, Policy, TenantChangeIn, TenantIn
from lethe.features.protocols.contract import AgentIn, IdentityIssuerIn

router = pages.new_router()

_PER_PAGE = 100
_MAX_CHANGES = 20
Done = Literal["", "policy", "issuer", "issuer_deleted", "agent", "agent_deleted"]

_UNITS: Mapping[str, int] = {marked("seconds"): 1, marked("minutes"): 60, marked("hours"): 3600, marked("days"): 86400}
_LIMITS = ("days", "months", "extension_days", "extension_months")
_DURATIONS = ("grace_seconds", "report_seconds")
_DAYS = ("retain_details_days", "retain_requests_days")
_NUMBERS = ("max_epsilon", "max_delta")
_CHOICES = ("identity", "subject_rule", "time_zone")
_TEXTS = ("drp_business_id", "drp_claim", "drp_verification_url", "controller", "contact")
_OPTIONAL = ("retain_requests_days", "max_delta", *_TEXTS)
_EMPTY_ROWS = 2
_MAX_ROWS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """Policy field before and after a change."""

    label: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimitInForce:
    """A regulation's time limit and its only extension, in words, with their legal source."""

    regulation: str
    limit: str
    extension: str
    may_pause: bool
    law: str


@router.get("/tenant")
def show_own(context: TheContext, done: Done = "") -> Response:
    """Show the caller's tenant and its policy."""
    return _own(context, done=done)


@router.post("/tenant/policy")
def change_policy(context: TheContext, form: Form) -> Response:
    """Show how the form differs from the policy; once the user confirms, change the fields that differ."""
    context.require(tenants.change_own_tenant)
    try:
        own = context.ask(tenants.get_own_tenant)
        current = own.policy.model_dump(mode="json")
        submitted = _policy_in_form(form, num_regulations=len(current["regulations"]))
        changed = {name: value for name, value in submitted.items() if value != current[name]}
        policy = _checked_policy(changed)
        if changed and text(form, "confirmed") != "yes":
            sent = [(name, value) for name, value in form.multi_items() if name not in ("csrf", "confirmed")]
            return context.page("tenants/review.html", tenant=own, changes=_changes(current, changed), sent=sent)
        if changed:
            context.ask(tenants.change_own_tenant, body=TenantChangeIn(policy=policy))
    except Problem as error:
        return _own(context, error=error, filled={name: text(form, name) for name in form})
    return pages.see(f"{pages.ROOT}/tenant", done="policy")


@router.post("/tenant/issuers")
def add_issuer(context: TheContext, form: Form) -> Response:
    """Register an issuer whose signed statements about people's identity are accepted."""

    def arguments() -> dict[str, Any]:
        jwks = _json(form, "jwks", gettext("expected a JSON Web Key Set"))
        fields = {name: text(form, name) for name in ("issuer", "audience")}
        return {"body": checked(IdentityIssuerIn, **fields, jwks=jwks)}

    return _changed(context, "issuer", protocols.create_identity_issuer, arguments)


@router.post("/tenant/issuers/{issuer_id}/delete")
def delete_issuer(context: TheContext, issuer_id: str) -> Response:
    return _changed(context, "issuer_deleted", protocols.delete_identity_issuer, lambda: {"issuer_id": issuer_id})


@router.post("/tenant/agents")
def add_agent(context: TheContext, form: Form) -> Response:
    """Register a Data Rights Protocol agent whose signed requests are accepted."""

    def arguments() -> dict[str, Any]:
        return {"body": checked(AgentIn, **{name: text(form, name) for name in ("agent_id", "name", "verify_key")})}

    return _changed(context, "agent", protocols.register_agent, arguments)


@router.post("/tenant/agents/{agent}/delete")
def remove_agent(context: TheContext, agent: str) -> Response:
    return _changed(context, "agent_deleted", protocols.remove_agent, lambda: {"id": agent})


@router.get("/tenants")
def list_tenants(context: TheContext, place: lists.ThePlace) -> Response:
    """List all of the installation's tenants, for its operators."""
    return _all(context, place)


@router.post("/tenants")
def create_tenant(context: TheContext, form: Form) -> Response:
    """Create a tenant, and show its first administrator's key once."""
    try:
        created = context.ask(tenants.create_tenant, body=checked(TenantIn, name=text(form, "name")))
    except Problem as error:
        return _all(context, lists.PagePosition(), error=error)
    return context.page("tenants/made.html", status=201, made=created)


def _changed(
    context: RequestContext, done: Done, endpoint: Callable[..., Any], arguments: Callable[[], dict[str, Any]]
) -> Response:
    """Call `endpoint` and redirect to the tenant's page, or show that page with the error."""
    try:
        context.ask(endpoint, **arguments())
    except NotFound:
        raise
    except Problem as error:
        return _own(context, error=error)
    return pages.see(f"{pages.ROOT}/tenant", done=done)


def _json(form: FormData, name: str, expected: str) -> Any:
    try:
        return json.loads(text(form, name) or "{}")
    except (ValueError, RecursionError):
        raise InputInvalid(
            gettext("Check the marked fields, and send the form again."), [FieldError(name, expected)]
        ) from None


def _own(
    context: RequestContext, *, done: Done = "", error: Problem | None = None, filled: dict[str, str] | None = None
) -> Response:
    own = context.ask(tenants.get_own_tenant)
    policy = own.policy.model_dump(mode="json")
    return context.page(
        "tenants/own.html",
        tenant=own,
        policy=policy,
        filled=filled or {},
        rows=_rows(policy, filled or {}),
        zones=_zones(),
        units=[(unit, gettext(unit)) for unit in _UNITS],
        durations={name: _in_units(policy[name]) for name in _DURATIONS},
        may_change=context.may(tenants.change_own_tenant),
        in_force=_limits_in_force(own.policy),
        values={words(name): _value(name, value) for name, value in policy.items() if name != "regulations"},
        history=context.ask(custody.list_audit_entries, action="tenant.policy_changed", limit=_MAX_CHANGES).items,
        recorded=_recorded,
        issuers=_items(context, protocols.list_identity_issuers),
        agents=_items(context, protocols.list_agents),
        done=done,
        error=error,
    )


def _items(context: RequestContext, endpoint: Callable[..., Any]) -> list[Any]:
    """Return the items that a list endpoint returns; an empty list if the caller may not read them."""
    page = context.ask_if_allowed(endpoint, limit=_PER_PAGE)
    return list(page.items) if page else []


def _limits_in_force(policy: Policy) -> list[TimeLimitInForce]:
    """Return the effective time limits, built-in ones first. A tenant's own limit replaces the built-in one."""
    laws = labels("laws")
    limits = []
    for name, limit in deadlines.limits(policy).items():
        law = laws.get(name)
        if name in policy.regulations:
            law = gettext("this policy, in place of {law}").format(law=law) if law else gettext("this policy")
        limits.append(
            TimeLimitInForce(
                regulation=regulation(name),
                limit=_time(limit.months, limit.days),
                extension=_time(limit.extension_months, limit.extension_days),
                may_pause=limit.may_pause,
                law=law or gettext("none"),
            )
        )
    return limits


def _all(context: RequestContext, place: lists.PagePosition, *, error: Problem | None = None) -> Response:
    listing = context.listing(tenants.list_tenants, place, "tenant", "tenants")
    return context.page("tenants/list.html", **listing, error=error)


@functools.cache
def _zones() -> list[str]:
    """Return the time zone names for a picker."""
    return sorted(name for name in zoneinfo.available_timezones() if "/" in name or name == "UTC")


def _in_units(seconds: int) -> tuple[int, str]:
    """Convert a duration to the largest unit in which it is a whole number."""
    for unit, size in reversed(list(_UNITS.items())):
        if seconds % size == 0 and (seconds or unit == "seconds"):
            return seconds // size, unit
    return seconds, "seconds"


def _rows(policy: Mapping[str, Any], filled: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the rows of the regulations form: the submitted rows or, if none, the policy's plus some empty rows."""
    if filled:
        return [
            {"name": filled[f"regulation_{row}"], "may_pause": filled.get(f"may_pause_{row}") == "yes"}
            | {limit: filled.get(f"{limit}_{row}", "") for limit in _LIMITS}
            for row in range(_MAX_ROWS)
            if f"regulation_{row}" in filled
        ]
    rows = [{"name": name} | limits for name, limits in policy["regulations"].items()]
    empty = {"name": "", "may_pause": False} | dict.fromkeys(_LIMITS, "")
    return [*rows, *([empty] * _EMPTY_ROWS)]


def _policy_in_form(form: FormData, *, num_regulations: int) -> dict[str, Any]:
    """Return the policy entered in a form. Values that cannot be converted stay text, which `_checked_policy` refuses.

    `num_regulations` is the number of existing regulations, whose rows come first. Raises `InputInvalid`.
    """
    policy: dict[str, Any] = {name: text(form, name) for name in _CHOICES}
    policy["auto_accept"] = text(form, "auto_accept") == "yes"
    policy["opendsr_identities"] = [kind for kind in form.getlist("opendsr_identities") if isinstance(kind, str)]
    for name in (*_DURATIONS, *_DAYS, *_NUMBERS, *_TEXTS):
        value = text(form, name)
        policy[name] = _whole(value) if name in (*_DURATIONS, *_DAYS) else value
        if name in _DURATIONS and isinstance(policy[name], int):
            policy[name] *= _UNITS.get(text(form, f"{name}_unit"), 1)
        if name in _NUMBERS:
            with contextlib.suppress(ValueError):
                policy[name] = float(value)
        if not value and name in _OPTIONAL:
            policy[name] = None
    policy["regulations"] = _regulations(form, num_regulations=num_regulations)
    return policy


def _regulations(form: FormData, *, num_regulations: int) -> dict[str, Any]:
    """Return the regulations entered in a form. Clearing the name in an existing regulation's row removes it.

    Raises `InputInvalid` for a new row without a name, and for two rows with the same name.
    """
    regulations: dict[str, Any] = {}
    for row in range(_MAX_ROWS):
        name = text(form, f"regulation_{row}")
        limits = {limit: text(form, f"{limit}_{row}") for limit in _LIMITS}
        if not name and row >= num_regulations and any(limits.values()):
            raise _unchanged(FieldError("regulations", gettext("Name each regulation.")))
        if name in regulations:
            raise _unchanged(FieldError("regulations", gettext("Two rows have one name.")))
        if name:
            regulations[name] = {limit: _whole(value or "0") for limit, value in limits.items()}
            regulations[name]["may_pause"] = text(form, f"may_pause_{row}") == "yes"
    return regulations


def _whole(value: str) -> int | str:
    return int(value) if value.isascii() and value.isdecimal() else value


def _checked_policy(changed: dict[str, Any]) -> Policy:
    """Validate the changed fields as a policy. Raises `InputInvalid`."""
    try:
        return Policy.model_validate(changed)
    except ValidationError as error:
        raise _unchanged(*forms.in_words(error)) from None


def _unchanged(*faults: FieldError) -> InputInvalid:
    return InputInvalid(gettext("Policy unchanged."), list(faults))


def _changes(current: Mapping[str, Any], changed: Mapping[str, Any]) -> list[PolicyChange]:
    """Return the old and new value of each field and regulation that differs."""
    changes = [
        PolicyChange(label=words(name), before=_value(name, current[name]), after=_value(name, after))
        for name, after in changed.items()
        if name != "regulations"
    ]
    before, after = current["regulations"], changed.get("regulations", current["regulations"])
    return changes + [
        PolicyChange(
            label=gettext("Regulation {name}").format(name=name),
            before=_limits(before.get(name)),
            after=_limits(after.get(name)),
        )
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def _value(name: str, value: Any) -> str:
    """Return a policy field's value in words."""
    if value is None:
        return gettext("none")
    if isinstance(value, bool):
        return gettext("yes") if value else gettext("no")
    if name in _DURATIONS:
        return _duration(*_in_units(value))
    if name in _DAYS:
        return count(value, "day", "days")
    if name == "regulations":
        return "; ".join(f"{name}: {_limits(limits)}" for name, limits in value.items()) or gettext("none")
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or gettext("none")
    return str(value)


def _recorded(name: str, value: Any) -> str:
    """Describe a field's value for an audit entry; values that may name people are recorded only as "set"."""
    return gettext("set") if name in MAY_NAME_SOMEBODY and value else _value(name, value)


def _duration(number: int, unit: str) -> str:
    match unit:
        case "seconds":
            return count(number, "second", "seconds")
        case "minutes":
            return count(number, "minute", "minutes")
        case "hours":
            return count(number, "hour", "hours")
        case _:
            return count(number, "day", "days")


def _limits(limits: Mapping[str, Any] | None) -> str:
    """Describe the time limits that a regulation sets; None stands for a regulation that is not in the policy."""
    if limits is None:
        return gettext("not there")

    extension = limits.get("extension_months", 0), limits.get("extension_days", 0)
    more = gettext(", once {time} more").format(time=_time(*extension)) if any(extension) else ""
    pause = gettext(", the clock may pause") if limits.get("may_pause") else ""
    return _time(limits.get("months", 0), limits.get("days", 0)) + more + pause


def _time(months: int, days: int) -> str:
    parts = [count(months, "month", "months")] * bool(months) + [count(days, "day", "days")] * bool(days)
    return gettext(" and ").join(parts) or gettext("no time")


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
def list_keys(context: TheContext, place: lists.ThePlace, done: Literal["", "revoked"] = "") -> Response:
    """List keys, newest first."""
    return _list(context, place, done=done)


@router.post("/keys")
def create_key(context: TheContext, form: Form) -> Response:
    """Create a key, and show it once."""
    try:
        created = context.ask(tenants.create_api_key, body=_body(form))
    except Problem as error:
        return _list(context, lists.PagePosition(), error=error, form=form)
    return context.page("keys/made.html", status=201, made=created, replaced=None)


@router.get("/keys/{key_id}")
def show_key(context: TheContext, key_id: str) -> Response:
    """Show a key's permissions, and how to rotate or revoke the key."""
    return _one(context, key_id)


@router.post("/keys/{key_id}/rotate")
def rotate_key(context: TheContext, form: Form, key_id: str) -> Response:
    """Create a key's successor, and show it once."""
    try:
        body = checked(api_keys.RotationIn, overlap_seconds=parse_number(text(form, "overlap_seconds") or "0"))
        created = context.ask(tenants.rotate_api_key, key_id=key_id, body=body)
    except Problem as error:
        return _one(context, key_id, error)
    replaced = {"id": key_id, "seconds": body.overlap_seconds}
    return context.page("keys/made.html", status=201, made=created, replaced=replaced)


@router.post("/keys/{key_id}/revoke")
def revoke_key(context: TheContext, key_id: str) -> Response:
    """Revoke a key immediately."""
    try:
        context.ask(tenants.revoke_api_key, key_id=key_id)
    except Problem as error:
        return _one(context, key_id, error)
    return pages.see(f"{pages.ROOT}/keys", done="revoked")


def _body(form: FormData) -> api_keys.ApiKeyIn:
    return checked(
        api_keys.ApiKeyIn,
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
            gettext("The key was not created."), [FieldError("expires_on", gettext("expected a date"))]
        ) from None
    return end.replace(microsecond=0).isoformat()


def _choices(labels: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(value, gettext(label)) for value, label in labels.items()]


def _status(key: api_keys.ApiKeyOut) -> str:
    if key.revoked_at is not None:
        return "revoked"
    is_expired = key.expires_at is not None and key.expires_at <= datetime.datetime.now(datetime.UTC)
    return "expired" if is_expired else "in_force"


def _one(context: RequestContext, key_id: str, error: Problem | None = None) -> Response:
    key = context.ask(tenants.get_api_key, key_id=key_id)
    return context.page("keys/one.html", key=key, state=_status(key), overlaps=_choices(_OVERLAPS), error=error)


def _list(
    context: RequestContext,
    place: lists.PagePosition,
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
        scopes=[(scope, label) for scope, label in labels("scopes").items() if context.caller.has(sets.Scope(scope))],
    )


_MAY_HOLD_SECRETS = {"store_url", "otlp_endpoint"}
"""Settings that are URLs and may contain a password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """Effective setting. `value` is None if the setting is empty, or if it is a secret (`is_secret`) that is set."""

    variable: str
    value: str | None
    is_secret: bool
    is_changed: bool
    means: str


@router.get("/settings")
def show_settings(context: TheContext) -> Response:
    """Show every setting with its value and description."""
    context.require(tenants.list_tenants)
    installation = context.call.installation
    return context.page(
        "settings.html",
        settings=in_force(installation.settings),
        ready=readiness.ReadyOut.model_validate_json(bytes(operations.ready(installation).body)),
        versions={
            "Lethe": importlib.metadata.version("lethe-server"),
            marked("Schema of the database"): ", ".join(migrate.heads()),
            marked("Database"): installation.database.name,
            "Python": platform.python_version(),
            marked("System"): f"{platform.system()} {platform.machine()}",
        },
    )


def in_force(settings: Settings) -> list[InForce]:
    """Return all effective settings in the order in which they are documented."""
    return [
        _in_force(name, getattr(settings, name), field.default, field.description or "")
        for name, field in Settings.model_fields.items()
    ]


def _in_force(name: str, value: Any, default: Any, means: str) -> InForce:
    is_secret = isinstance(value, SecretStr) or (name in _MAY_HOLD_SECRETS and "@" in str(value))
    return InForce(
        variable=f"LETHE_{name.upper()}",
        value=None if is_secret or value in (None, "") else f"{value:.12g}" if isinstance(value, float) else str(value),
        is_secret=is_secret,
        is_changed=value != default,
        means=means,
    )
