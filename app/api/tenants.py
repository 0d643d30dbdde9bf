"""`/tenants`: the organisations of an installation, made by its operator; `/tenant`: one's own, and its policy."""

import datetime
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from app.access import repository, tenants
from app.access import service as access
from app.access.policy import Policy
from app.api.calls import Call, Cursor, Limit, call_with
from app.api.problems import responses
from app.api.schemas import Body, Name, PageOut
from app.db.tables import Tenant
from lethe.contract.problems import SubjectRuleFixed, TenantExists, TenantUnknown
from lethe.contract.sets import Scope

router = APIRouter(tags=["Tenants"])


class TenantIn(Body):
    name: Name
    policy: Policy = Field(default_factory=Policy)


class TenantOut(BaseModel):
    id: str
    name: str
    policy: Policy
    created_at: datetime.datetime


class NewTenantOut(TenantOut):
    admin_key: str = Field(description="Of its first admin. Shown once; only its hash is kept.")


class TenantChangeIn(Body):
    policy: Policy = Field(description="Fields that are not given stay as they are.")


@router.post("/tenants", status_code=201, responses=responses(TenantExists))
def create_tenant(call: Annotated[Call, call_with(Scope.OPERATOR)], body: TenantIn, response: Response) -> NewTenantOut:
    """Make a tenant, and the key of its first admin, which is shown once.

    No `Idempotency-Key` is taken, for no key is kept to be shown again: a repetition is a 409.
    """
    key = access.new_key()
    with call.writing() as session:
        tenant = tenants.create(session, name=body.name, policy=body.policy, admin_key=key)
    response.headers["Location"] = f"/v1/tenants/{tenant.id}"
    return NewTenantOut(**_shown(tenant).model_dump(), admin_key=key)


@router.get("/tenants", responses=responses())
def list_tenants(
    call: Annotated[Call, call_with(Scope.OPERATOR)], limit: Limit = 50, cursor: Cursor = None
) -> PageOut[TenantOut]:
    """All tenants of the installation, newest first."""
    with call.reading() as session:
        page = repository.tenants(session, limit=limit, cursor=cursor)
    return PageOut(items=[_shown(tenant) for tenant in page.items], next_cursor=page.next_cursor)


@router.get("/tenants/{tenant_id}", responses=responses(TenantUnknown))
def get_tenant(call: Annotated[Call, call_with(Scope.OPERATOR)], tenant_id: str) -> TenantOut:
    """A tenant and its policy."""
    with call.reading() as session:
        return _shown(tenants.get(session, tenant_id))


@router.get("/tenant", responses=responses())
def get_own_tenant(call: Annotated[Call, call_with(Scope.ADMIN)]) -> TenantOut:
    """The tenant of this key."""
    with call.reading() as session:
        return _shown(tenants.get(session, call.caller.tenant_id))


@router.patch("/tenant", responses=responses(SubjectRuleFixed))
def change_own_tenant(call: Annotated[Call, call_with(Scope.ADMIN)], body: TenantChangeIn) -> TenantOut:
    """Change some fields of its policy, for what comes from now on."""
    with call.writing() as session:
        tenant = tenants.change_policy(session, body.policy.model_dump(mode="json", exclude_unset=True))
    return _shown(tenant)


def _shown(tenant: Tenant) -> TenantOut:
    return TenantOut.model_validate(tenant, from_attributes=True)
