"""Tenants: one's own with its policy, whose statements and signatures it believes; and, for operators, all of them."""

import json
from collections.abc import Callable
from typing import Any, Literal

from fastapi import Response
from starlette.datastructures import FormData

from app.api import agents, audit_log, identity_issuers, problems, tenants
from app.dashboard import pages
from app.dashboard import policy as policies
from app.dashboard.languages import gettext
from app.dashboard.lists import Place, ThePlace
from app.dashboard.pages import ROOT
from app.dashboard.request_context import Form, RequestContext, TheContext
from app.dashboard.requests import checked, text
from app.dashboard.wording import message
from lethe.contract.agents import AgentIn
from lethe.contract.identity_issuers import IdentityIssuerIn
from lethe.contract.policy import Policy
from lethe.contract.problems import FieldError, InputInvalid, NotFound, Problem
from lethe.contract.tenants import TenantChangeIn, TenantIn

router = pages.new_router()

_PER_PAGE = 100
_CHANGES = 20
Done = Literal["", "policy", "issuer", "issuer_deleted", "agent", "agent_deleted"]


@router.get("/tenant")
def show_own(context: TheContext, done: Done = "") -> Response:
    """The tenant of this session, and its policy."""
    return _own(context, done=done)


@router.post("/tenant/policy")
def change_policy(context: TheContext, form: Form) -> Response:
    """Show what differs from the policy in force; once that is confirmed, change it and leave the rest."""
    filled = {name: text(form, name) for name in form}
    try:
        own = context.ask(tenants.get_own_tenant)
        present = own.policy.model_dump(mode="json")
        asked = policies.asked(form, known=len(present["regulations"]))
        changed = {name: value for name, value in asked.items() if value != present[name]}
        policy = policies.checked(changed)
        if changed and text(form, "confirmed") != "yes":
            sent = [(name, value) for name, value in form.multi_items() if name not in ("csrf", "confirmed")]
            found = policies.changes(present, changed)
            return context.page("tenants/review.html", tenant=own, changes=found, sent=sent)
        if changed:
            context.ask(tenants.change_own_tenant, body=TenantChangeIn(policy=policy))
    except Problem as error:
        return _own(context, error=error, filled=filled)
    return pages.see(f"{ROOT}/tenant", done="policy")


@router.post("/tenant/issuers")
def add_issuer(context: TheContext, form: Form) -> Response:
    """Believe what an issuer signs about people's identity."""

    def asked() -> dict[str, Any]:
        jwks = _json(form, "jwks", gettext("expected a JSON Web Key Set"))
        named = {name: text(form, name) for name in ("issuer", "audience")}
        return {"body": checked(IdentityIssuerIn, **named, jwks=jwks)}

    return _changed(context, "issuer", identity_issuers.create_identity_issuer, asked)


@router.post("/tenant/issuers/{issuer_id}/delete")
def delete_issuer(context: TheContext, issuer_id: str) -> Response:
    return _changed(
        context, "issuer_deleted", identity_issuers.delete_identity_issuer, lambda: {"issuer_id": issuer_id}
    )


@router.post("/tenant/agents")
def add_agent(context: TheContext, form: Form) -> Response:
    """Let an agent of the Data Rights Protocol sign requests."""

    def asked() -> dict[str, Any]:
        return {"body": checked(AgentIn, **{name: text(form, name) for name in ("agent_id", "name", "verify_key")})}

    return _changed(context, "agent", agents.register_agent, asked)


@router.post("/tenant/agents/{agent}/delete")
def remove_agent(context: TheContext, agent: str) -> Response:
    return _changed(context, "agent_deleted", agents.remove_agent, lambda: {"id": agent})


@router.get("/tenants")
def list_tenants(context: TheContext, place: ThePlace) -> Response:
    """All tenants of the installation, for its operators."""
    return _all(context, place)


@router.post("/tenants")
def create_tenant(context: TheContext, form: Form) -> Response:
    """Make a tenant, and show the key of its first admin this once."""
    try:
        body = checked(TenantIn, name=text(form, "name"))
        made = context.ask(tenants.create_tenant, body=body)
    except Problem as error:
        return _all(context, Place(), error=error)
    return context.page("tenants/made.html", status=201, made=made)


def _changed(
    context: RequestContext, done: Done, endpoint: Callable[..., Any], asked: Callable[[], dict[str, Any]]
) -> Response:
    """Ask `endpoint` for it, and say that it is done; or why not, above what is there."""
    try:
        context.ask(endpoint, **asked())
    except NotFound:
        raise
    except Problem as error:
        return _own(context, error=error)
    return pages.see(f"{ROOT}/tenant", done=done)


def _json(form: FormData, name: str, expected: str) -> Any:
    try:
        return json.loads(text(form, name) or "{}")
    except (ValueError, RecursionError):
        raise InputInvalid(gettext("Correct what is named, and send it again."), [FieldError(name, expected)]) from None


def _own(
    context: RequestContext, *, done: Done = "", error: Problem | None = None, filled: dict[str, str] | None = None
) -> Response:
    own = context.ask(tenants.get_own_tenant)
    policy = own.policy.model_dump(mode="json")
    return context.page(
        "tenants/own.html",
        status=problems.status_of(type(error)) if error else 200,
        tenant=own,
        policy=policy,
        filled=filled or {},
        rows=policies.rows(policy, filled or {}),
        zones=policies.zones(),
        units=[(unit, gettext(unit)) for unit in policies.UNITS],
        durations={name: policies.in_units(policy[name]) for name in ("grace_seconds", "report_seconds")},
        history=context.ask(audit_log.list_audit_entries, action="tenant.policy_changed", limit=_CHANGES).items,
        recorded=policies.recorded,
        meaning={name: message(field.description) for name, field in Policy.model_fields.items() if field.description},
        issuers=context.ask(identity_issuers.list_identity_issuers, limit=_PER_PAGE).items,
        agents=context.ask(agents.list_agents, limit=_PER_PAGE).items,
        done=done,
        error=error,
    )


def _all(context: RequestContext, place: Place, *, error: Problem | None = None) -> Response:
    found = context.ask(tenants.list_tenants, limit=place.size, cursor=place.cursor)
    status = problems.status_of(type(error)) if error else 200
    extent = place.extent(found, "tenant", "tenants")
    return context.page("tenants/list.html", status=status, found=found, place=place, extent=extent, error=error)
