"""`client.tenants`: the organisations of an installation, for its operator; and one's own, with its policy."""

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lethe.endpoints import Endpoint
from lethe.http import Http
from lethe.values import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimit:
    """How long a request may take under a regulation; one extension adds `extension_months` and `extension_days`."""

    months: int
    days: int
    extension_months: int
    extension_days: int
    may_pause: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a tenant handles requests; docs/requests.md and docs/protocols.md say what each does."""

    auto_accept: bool
    identity: str
    grace_seconds: int
    report_seconds: int
    retain_details_days: int
    retain_requests_days: int | None
    max_epsilon: float
    max_delta: float | None
    time_zone: str
    regulations: dict[str, TimeLimit]
    subject_rule: str
    opendsr_identities: tuple[str, ...]
    drp_business_id: str | None
    drp_claim: str
    drp_verification_url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    id: str
    name: str
    policy: Policy
    created_at: datetime.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTenant(Tenant):
    """`admin_key`: of its first admin. It is shown once, here."""

    admin_key: str = field(repr=False)


CREATE = Endpoint("POST", "/v1/tenants", NewTenant)
LIST = Endpoint("GET", "/v1/tenants", Page[Tenant])
GET = Endpoint("GET", "/v1/tenants/{tenant_id}", Tenant)
OWN = Endpoint("GET", "/v1/tenant", Tenant)
CHANGE_OWN = Endpoint("PATCH", "/v1/tenant", Tenant, idempotent=True)


class Tenants:
    def __init__(self, http: Http) -> None:
        self._http = http

    def create(self, *, name: str, policy: Mapping[str, Any] | None = None) -> NewTenant:
        """Make a tenant, with these fields of its policy. This and the two below need the scope operator.

        It is not made again by itself: after a lost answer the name is taken, and the key of its admin is lost.
        """
        return self._http.call(CREATE, json={"name": name, "policy": policy or {}})

    def list(self) -> Iterator[Tenant]:
        """All, newest first."""
        return self._http.pages(LIST)

    def get(self, tenant_id: str) -> Tenant:
        return self._http.call(GET, tenant_id)

    def own(self) -> Tenant:
        """The tenant of this key. This and the one below need the scope admin."""
        return self._http.call(OWN)

    def set_policy(self, policy: Mapping[str, Any]) -> Tenant:
        """Change these fields of one's own policy, for what comes from now on; the others stay."""
        return self._http.call(CHANGE_OWN, json={"policy": policy})
