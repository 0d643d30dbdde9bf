"""The organisations of an installation, made by its operator; `/tenant`: one's own, and its policy."""

import datetime

from pydantic import Field

from lethe.contract.fields import Answer, Body, Name, PageOut, Paging
from lethe.contract.operation import Resource, of_one
from lethe.contract.policy import Policy
from lethe.contract.problems import SubjectRuleFixed, TenantExists, TenantUnknown
from lethe.contract.sets import Scope


class TenantIn(Body):
    name: Name
    policy: Policy = Field(default_factory=Policy)


class TenantOut(Answer):
    id: str
    name: str
    policy: Policy
    created_at: datetime.datetime


class NewTenantOut(TenantOut):
    admin_key: str = Field(description="Of its first admin. Shown once; only its hash is kept.", repr=False)


class TenantChangeIn(Body):
    policy: Policy = Field(description="Fields that are not given stay as they are.")


_TENANTS = Resource("Tenants", "/v1")

CREATE = _TENANTS.operation(
    "create_tenant",
    "POST",
    "/tenants",
    scope=Scope.OPERATOR,
    takes=TenantIn,
    gives=NewTenantOut,
    status=201,
    problems=(TenantExists,),
    does="Make a tenant, and the key of its first admin, which is shown once.\n\nNo `Idempotency-Key` is taken, "
    "for no key is kept to be shown again: a repetition is a 409.",
)
LIST = _TENANTS.operation(
    "list_tenants",
    "GET",
    "/tenants",
    scope=Scope.OPERATOR,
    query=Paging,
    gives=PageOut[TenantOut],
    does="All tenants of the installation, newest first.",
)
GET = of_one(
    _TENANTS.operation(
        "get_tenant",
        "GET",
        "/tenants/{tenant_id}",
        scope=Scope.OPERATOR,
        gives=TenantOut,
        problems=(TenantUnknown,),
        does="A tenant and its policy.",
    )
)
OWN = _TENANTS.operation(
    "get_own_tenant", "GET", "/tenant", scope=Scope.ADMIN, gives=TenantOut, does="The tenant of this key."
)
CHANGE_OWN = _TENANTS.operation(
    "change_own_tenant",
    "PATCH",
    "/tenant",
    scope=Scope.ADMIN,
    takes=TenantChangeIn,
    gives=TenantOut,
    idempotent=True,
    problems=(SubjectRuleFixed,),
    does="Change some fields of its policy, for what comes from now on.",
)
