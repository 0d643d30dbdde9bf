"""Endpoints for tenants, their policies and their API keys."""

from fastapi import APIRouter, Response

from app.access import repository, service as access, tenants
from app.api import calls, gateway
from app.db.tables import ApiKey
from lethe.contract import api_keys, api_keys as key_operations, fields, problems, tenants as contract

router = APIRouter()


@gateway.serves(router, key_operations.CREATE)
def create_api_key(call: calls.Call, body: api_keys.ApiKeyIn, response: Response) -> api_keys.NewApiKeyOut:
    for scope in body.scopes:
        # A key cannot create a key with more scopes than its own.
        call.caller.require(scope)
    key = access.new_key()
    with call.writing() as session:
        row = access.add_key(session, key=key, **dict(body))
    return _new(row, key, response)


@gateway.serves(router, key_operations.LIST)
def list_api_keys(call: calls.Call, query: fields.Paging) -> fields.PageOut[api_keys.ApiKeyOut]:
    with call.reading() as session:
        page = repository.keys(session, limit=query.limit, cursor=query.cursor)
    return fields.PageOut(items=[api_keys.ApiKeyOut.of(row) for row in page.items], next_cursor=page.next_cursor)


@gateway.serves(router, key_operations.ROTATE)
def rotate_api_key(
    call: calls.Call, key_id: str, body: api_keys.RotationIn, response: Response
) -> api_keys.NewApiKeyOut:
    key = access.new_key()
    with call.writing() as session:
        row = access.rotate_key(
            session, key_id, by=call.caller, key=key, overlap_seconds=body.overlap_seconds, expires_at=body.expires_at
        )
    return _new(row, key, response)


@gateway.serves(router, key_operations.REVOKE)
def revoke_api_key(call: calls.Call, key_id: str) -> None:
    with call.writing() as session:
        access.revoke_key(session, key_id, by=call.caller)


def _new(row: ApiKey, key: str, response: Response) -> api_keys.NewApiKeyOut:
    response.headers["Location"] = f"/v1/api-keys/{row.id}"
    return api_keys.NewApiKeyOut.of(row, key=key)


@gateway.serves(router, key_operations.GET)
def get_api_key(call: calls.Call, key_id: str) -> api_keys.ApiKeyOut:
    with call.reading() as session:
        return api_keys.ApiKeyOut.of(problems.KeyUnknown.if_none(repository.key(session, key_id), key_id=key_id))


@gateway.serves(router, contract.CREATE)
def create_tenant(call: calls.Call, body: contract.TenantIn, response: Response) -> contract.NewTenantOut:
    key = access.new_key()
    with call.writing() as session:
        tenant = tenants.create(session, name=body.name, policy=body.policy, admin_key=key)
    response.headers["Location"] = f"/v1/tenants/{tenant.id}"
    return contract.NewTenantOut.of(tenant, admin_key=key)


@gateway.serves(router, contract.LIST)
def list_tenants(call: calls.Call, query: fields.Paging) -> fields.PageOut[contract.TenantOut]:
    with call.reading() as session:
        page = repository.tenants(session, limit=query.limit, cursor=query.cursor)
    return fields.PageOut(items=[contract.TenantOut.of(tenant) for tenant in page.items], next_cursor=page.next_cursor)


@gateway.serves(router, contract.GET)
def get_tenant(call: calls.Call, tenant_id: str) -> contract.TenantOut:
    with call.reading() as session:
        return contract.TenantOut.of(tenants.get(session, tenant_id))


@gateway.serves(router, contract.OWN)
def get_own_tenant(call: calls.Call) -> contract.TenantOut:
    with call.reading() as session:
        return contract.TenantOut.of(tenants.get(session, call.caller.tenant_id))


@gateway.serves(router, contract.CHANGE_OWN)
def change_own_tenant(call: calls.Call, body: contract.TenantChangeIn) -> contract.TenantOut:
    with call.writing() as session:
        tenant = tenants.change_policy(session, body.policy.model_dump(mode="json", exclude_unset=True))
    return contract.TenantOut.of(tenant)
