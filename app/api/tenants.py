"""`/tenants`: the organisations of an installation, made by its operator; `/tenant`: one's own, and its policy."""

from fastapi import APIRouter, Response

from app.access import repository, tenants
from app.access import service as access
from app.api.calls import Call
from app.api.gateway import serves
from app.db.tables import Tenant
from lethe.contract import tenants as contract
from lethe.contract.fields import PageOut, Paging
from lethe.contract.tenants import NewTenantOut, TenantChangeIn, TenantIn, TenantOut

router = APIRouter()


@serves(router, contract.CREATE)
def create_tenant(call: Call, body: TenantIn, response: Response) -> NewTenantOut:
    key = access.new_key()
    with call.writing() as session:
        tenant = tenants.create(session, name=body.name, policy=body.policy, admin_key=key)
    response.headers["Location"] = f"/v1/tenants/{tenant.id}"
    return NewTenantOut(**_to_response(tenant).model_dump(), admin_key=key)


@serves(router, contract.LIST)
def list_tenants(call: Call, query: Paging) -> PageOut[TenantOut]:
    with call.reading() as session:
        page = repository.tenants(session, limit=query.limit, cursor=query.cursor)
    return PageOut(items=[_to_response(tenant) for tenant in page.items], next_cursor=page.next_cursor)


@serves(router, contract.GET)
def get_tenant(call: Call, tenant_id: str) -> TenantOut:
    with call.reading() as session:
        return _to_response(tenants.get(session, tenant_id))


@serves(router, contract.OWN)
def get_own_tenant(call: Call) -> TenantOut:
    with call.reading() as session:
        return _to_response(tenants.get(session, call.caller.tenant_id))


@serves(router, contract.CHANGE_OWN)
def change_own_tenant(call: Call, body: TenantChangeIn) -> TenantOut:
    with call.writing() as session:
        tenant = tenants.change_policy(session, body.policy.model_dump(mode="json", exclude_unset=True))
    return _to_response(tenant)


def _to_response(tenant: Tenant) -> TenantOut:
    return TenantOut.model_validate(tenant, from_attributes=True)
