"""An installation's tenants, and each tenant's policy."""

import datetime
import zoneinfo
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationInfo

from lethe.contract import operation, problems, sets
from lethe.contract.fields import Answer, Body, Delta, Name, PageOut, Paging, optional


def _zone(name: str, read: ValidationInfo) -> str:
    try:
        if read.context is not _STORED:
            zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("expected the name of a time zone, such as Europe/Berlin") from error
    return name


_STORED = object()
_BARRED = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069<>"
_Line = Annotated[str, Field(min_length=1, max_length=300, pattern=rf"^[^\s{_BARRED}][^{_BARRED}]*$")]
"""A line of text without line breaks, bidirectional control characters or angle brackets."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class TimeLimit(_Frozen):
    """Time limit that a regulation sets for a request, counted in the tenant's time zone."""

    months: Annotated[int, Field(ge=0, le=24, description="Number of months in the limit, added before `days`.")] = 0
    days: Annotated[int, Field(ge=0, le=731, description="Number of days in the limit, added after `months`.")] = 0
    extension_months: Annotated[int, Field(ge=0, le=24)] = Field(default=0, description="Months added by an extension.")
    extension_days: Annotated[int, Field(ge=0, le=731, description="Days added by an extension.")] = 0
    may_pause: bool = Field(default=False, description="True if the clock can be paused while identity is verified.")


MAY_NAME_SOMEBODY = frozenset({"controller", "contact"})
"""Policy fields that may name a person. Permanent records state that these fields changed, but not their values."""


class Policy(_Frozen):
    """A tenant's policy. The defaults suit an installation with a single tenant."""

    auto_accept: bool = Field(default=True, description="False: requests wait in review until they are approved.")
    identity: Literal["callers", "statement"] = Field(
        default="callers",
        description="Accepted proof of identity. callers: the word of the calling application (identity_verified); "
        "statement: each request must carry a JWT about its subject from a registered issuer.",
    )
    grace_seconds: Annotated[int, Field(ge=0, le=30 * 86400)] = Field(
        default=0, description="Seconds during which a request can be cancelled, before a worker starts on it."
    )
    report_seconds: Annotated[int, Field(ge=0, le=30 * 86400)] = Field(
        default=86400,
        description="Seconds after which callers who are not allowed to know whether data is held see a request as "
        "completed, whatever its progress. They count from the earliest possible start of processing and should exceed "
        "the usual wait and run together. 0: shown as completed when it is, which reveals whether data is held.",
    )
    retain_details_days: Annotated[int, Field(ge=0, le=3650)] = Field(
        default=30,
        description="Number of days for which text entered by callers and officers is kept after a request ends.",
    )
    retain_requests_days: Annotated[int, Field(ge=0, le=36500)] | None = optional(
        "Days for which the person stays on record and is refused in uploads after a request ends; null: forever."
    )
    max_epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=8.0,
        description="Maximum epsilon of a model's target, in nats. Certificates of models whose target exceeds 8 state "
        "that this limit was widened.",
    )
    max_delta: Delta | None = optional(
        "Maximum delta of a model's target; null: 1/n for a dataset with n slots. Certificates of models whose target "
        "exceeds 1/n state that this limit was widened."
    )
    time_zone: Annotated[str, AfterValidator(_zone)] = Field(
        default="UTC", description="Time zone of deadlines, days and weeks, such as Europe/Berlin."
    )
    regulations: dict[Annotated[str, Field(pattern="^[a-z][a-z0-9_]{1,30}$")], TimeLimit] = Field(
        default_factory=dict,
        description="Time limits, keyed by regulation. Entries for gdpr, ccpa and other override the built-in limits; "
        "any further key adds a regulation.",
    )
    subject_rule: Annotated[sets.SubjectRule, Strict(False)] = Field(
        default=sets.SubjectRule.TEXT,
        description="Rule that decides whether two subject IDs denote the same person. exact: equal bytes; text: equal "
        "after Unicode NFC normalisation, without invisible characters and surrounding white space; caseless: as text, "
        "ignoring case; email_domain: as text, ignoring case after an @; email: as text, ignoring case if there is an "
        "@. Cannot be changed once there are datasets or requests.",
    )
    opendsr_identities: Annotated[tuple[Literal["controller_customer_id", "email"], ...], Strict(False)] = Field(
        default=(),
        description="OpenDSR: identity types that the datasets or the identity map use as subject IDs. Other types are "
        "refused; if this is empty, all types are refused.",
    )
    drp_business_id: Annotated[str, Field(pattern="^[A-Za-z0-9_.-]{1,100}$")] | None = optional(
        "Data Rights Protocol: this tenant's ID in the network; null: agents are not served."
    )
    drp_claim: Literal["email", "phone_number", "customer_id"] | None = optional(
        "Data Rights Protocol: claim about a person that matches subject IDs in the datasets, directly or through the "
        "identity map; required with drp_business_id."
    )
    drp_verification_url: Annotated[str, Field(pattern=r"^https://[^?#\s]+$", max_length=500)] | None = optional(
        "Data Rights Protocol: page on which people whom the agent has not verified can prove their identity."
    )
    controller: _Line | None = optional(
        "Name of the controller, shown at the head and in the signature of replies to people; null: none."
    )
    contact: _Line | None = optional(
        "Contact of the data protection officer, shown at the end of replies to people; null: none."
    )

    @classmethod
    def stored(cls, fields: Any) -> Self:
        """Return a stored policy from its fields, even if this host does not know the policy's time zone."""
        return cls.model_validate(fields, context=_STORED)


class TenantIn(Body):
    name: Name = Field(description="Name of the tenant, unique in the installation.")
    policy: Policy = Field(default_factory=Policy, description="Policy; omitted fields take their defaults.")


class TenantOut(Answer):
    id: str = Field(description="ID of the tenant.")
    name: str = Field(description="Name of the tenant.")
    policy: Annotated[Policy, BeforeValidator(Policy.stored)] = Field(description="Policy of the tenant.")
    created_at: datetime.datetime = Field(description="Time at which the tenant was created.")


class NewTenantOut(TenantOut):
    admin_key: str = Field(description="API key of the first admin. Shown once; only its hash is stored.", repr=False)


class TenantChangeIn(Body):
    policy: Policy = Field(description="Policy fields to change. Omitted fields stay unchanged.")


_TENANTS = operation.ResourceOperations("Tenants", "/v1", problems.TenantUnknown)

CREATE = _TENANTS.operation(
    "create_tenant",
    "POST",
    "/tenants",
    scope=sets.Scope.OPERATOR,
    takes=TenantIn,
    gives=NewTenantOut,
    status=201,
    problems=(problems.TenantExists,),
    does="Create a tenant and the key of its first admin, which is shown only once.\n\nNo `Idempotency-Key` is "
    "accepted, because the key is not stored and could not be shown again. A repeated call gets a 409.",
)
LIST = _TENANTS.operation(
    "list_tenants",
    "GET",
    "/tenants",
    scope=sets.Scope.OPERATOR,
    query=Paging,
    gives=PageOut[TenantOut],
    does="List all tenants of the installation, newest first.",
)
GET = _TENANTS.of_one(
    "get_tenant",
    "GET",
    "/tenants/{tenant_id}",
    scope=sets.Scope.OPERATOR,
    gives=TenantOut,
    does="Return a tenant and its policy.",
)
OWN = _TENANTS.operation(
    "get_own_tenant",
    "GET",
    "/tenant",
    scope=sets.Scope.REQUESTS_REVIEW,
    gives=TenantOut,
    does="Return the caller's tenant.",
)
CHANGE_OWN = _TENANTS.operation(
    "change_own_tenant",
    "PATCH",
    "/tenant",
    scope=sets.Scope.ADMIN,
    takes=TenantChangeIn,
    gives=TenantOut,
    repeat="idempotent",
    problems=(problems.SubjectRuleFixed,),
    does="Change fields of the policy of the calling key's tenant. Changes take effect immediately.",
)
