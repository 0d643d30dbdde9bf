"""Tenants: organisations that share an installation but are isolated from each other."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from app.access import repository, service as access
from app.audit import service as audit
from app.db import actor, now, tables
from lethe.contract import problems, sets, tenants
from lethe.proof import target

OPERATOR = "operator"
"""Actor recorded in a new tenant's log. The log of the operator's own tenant names the key that created it."""


def create(session: Session, *, name: str, policy: tenants.Policy, admin_key: str) -> tables.Tenant:
    """Create a tenant and give `admin_key` full admin rights in it. Raises `TenantExists`, `InputInvalid`."""
    if repository.tenant_named(session, name) is not None:
        raise problems.TenantExists("Tenants have names of their own; choose another one.")
    _check_business_id(session, policy, besides=None)
    at = now(session)
    tenant = tables.Tenant(id=tables.new_id("ten"), name=name, policy=policy.model_dump(mode="json"), created_at=at)
    session.add(tenant)
    session.flush()
    key = tables.ApiKey(
        id=tables.new_id("key"),
        tenant_id=tenant.id,
        name="admin",
        key_hash=access.hash_of(admin_key),
        scopes=[str(sets.Scope.ADMIN)],
        created_at=at,
    )
    session.add(key)
    audit.record(session, "tenant.created", tenant.id)
    deeds = [("tenant.created", tenant.id, {}), ("api_key.created", key.id, {"scopes": key.scopes})]
    audit.record_all(
        session,
        [
            audit.Deed(tenant_id=tenant.id, actor=OPERATOR, action=action, object_id=object_id, detail=detail)
            for action, object_id, detail in deeds
        ],
        at=at,
    )
    return tenant


def get(session: Session, tenant_id: str) -> tables.Tenant:
    """Return a tenant. Raises `TenantUnknown`."""
    return problems.TenantUnknown.if_none(session.get(tables.Tenant, tenant_id), tenant_id=tenant_id)


def change_policy(session: Session, changed: dict[str, Any]) -> tables.Tenant:
    """Apply `changed` to the policy of the session's tenant. Raises `InputInvalid`, `SubjectRuleFixed`."""
    tenant = session.get_one(tables.Tenant, actor(session).tenant_id)
    before = tenants.Policy.stored(tenant.policy)
    try:
        policy = tenants.Policy.model_validate(tenant.policy | changed)
    except ValidationError as error:
        faults = [
            problems.FieldError(".".join(["policy", *(str(part) for part in fault["loc"])]), fault["msg"])
            for fault in error.errors()
        ]
        raise problems.InputInvalid("No policy has these fields together.", faults) from error
    _check_business_id(session, policy, besides=tenant.id)
    if policy.subject_rule != before.subject_rule and repository.knows_anybody(session):
        raise problems.SubjectRuleFixed(rule=before.subject_rule)
    tenant.policy = policy.model_dump(mode="json")
    audit.record(session, "tenant.policy_changed", tenant.id, policy=_as_recorded(tenant.policy, changed))
    access.will_change(session)
    return tenant


def _as_recorded(policy: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the named fields as recorded in the audit log, which holds no personal data: values that may name a person
    are replaced by "set"."""
    fields = {name: policy[name] for name in names}
    return {name: "set" if name in tenants.MAY_NAME_SOMEBODY and value else value for name, value in fields.items()}


def _check_business_id(session: Session, policy: tenants.Policy, *, besides: str | None) -> None:
    """Raise `InputInvalid` if the policy's Data Rights Protocol id belongs to another tenant or lacks a `drp_claim`.

    Agents address a tenant by this id, so a duplicate would receive requests meant for the other tenant. If `drp_claim`
    did not name the datasets' subject id, no rows would match, and requests would erase nothing.
    """
    if policy.drp_business_id is not None and policy.drp_claim is None:
        message = "expected the claim that is the subject id in your datasets"
        raise problems.InputInvalid(
            "Agents must know by which claim people are known.", [problems.FieldError("policy.drp_claim", message)]
        )
    if policy.drp_business_id is not None and repository.is_business(session, policy.drp_business_id, besides=besides):
        message = "expected an id that no other tenant has"
        raise problems.InputInvalid(
            "This is another tenant's id.", [problems.FieldError("policy.drp_business_id", message)]
        )


def weakest(policy: tenants.Policy, *, num_slots: int) -> tuple[float, float]:
    """Return the largest epsilon and delta that a policy allows as the target of a model with `num_slots` slots."""
    return policy.max_epsilon, target.largest_delta(num_slots) if policy.max_delta is None else policy.max_delta
