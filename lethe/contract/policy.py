"""The policy of a tenant: what it decides once, for all requests."""

import zoneinfo
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict

from lethe.contract.choices import SubjectRule


def _zone(name: str) -> str:
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("expected the name of a time zone, such as Europe/Berlin") from error
    return name


_BARRED = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069<>"
_Line = Annotated[str, Field(min_length=1, max_length=300, pattern=rf"^[^\s{_BARRED}][^{_BARRED}]*$")]
"""A line of text: no end of a line, nothing that changes the direction of writing, no tag."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class TimeLimit(_Frozen):
    """How long a request may take under a regulation, counted on the calendar of the tenant's time zone."""

    months: Annotated[int, Field(ge=0, le=24)] = 0
    days: Annotated[int, Field(ge=0, le=731)] = 0
    extension_months: Annotated[int, Field(ge=0, le=24)] = Field(
        default=0, description="One extension adds so much more."
    )
    extension_days: Annotated[int, Field(ge=0, le=731)] = 0
    may_pause: bool = Field(default=False, description="The clock stands still while identity is being established.")


MAY_NAME_SOMEBODY = frozenset({"controller", "contact"})
"""Fields of a policy that may name a person: a record that lasts has that they changed, not what to."""


class Policy(_Frozen):
    """Everything has a default that suits an installation with one tenant."""

    auto_accept: bool = Field(default=True, description="False: requests wait in review until somebody approves them.")
    identity: Literal["callers", "statement"] = Field(
        default="callers",
        description="statement: each request must carry a JWT of a registered issuer about its subject.",
    )
    grace_seconds: Annotated[int, Field(ge=0, le=30 * 86400)] = Field(
        default=0, description="No worker takes a request earlier: so long anybody can cancel it."
    )
    report_seconds: Annotated[int, Field(ge=0, le=30 * 86400)] = Field(
        default=86400,
        description="Callers who may not learn whether a person is held see each request completed so long after work "
        "on it could begin, whatever has been done by then; choose more than a run takes, with the time that it waits. "
        "0: when it is, which tells them.",
    )
    retain_details_days: Annotated[int, Field(ge=0, le=3650)] = Field(
        default=30, description="So long after a request ended, what callers and officers wrote about it is kept."
    )
    retain_requests_days: Annotated[int, Field(ge=0, le=36500)] | None = Field(
        default=None,
        description="So long after a request ended it is kept whom it was about, and nobody takes them in again; "
        "null: for good.",
    )
    max_epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=8.0,
        description="No model may have a weaker target. Certificates of models beyond 8 say that this was widened.",
    )
    max_delta: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="No model may have a weaker target; null: 1/n, n the slots of its dataset. Certificates of models "
        "beyond that say that this was widened.",
    )
    time_zone: Annotated[str, AfterValidator(_zone)] = "UTC"
    regulations: dict[Annotated[str, Field(pattern="^[a-z][a-z0-9_]{1,30}$")], TimeLimit] = Field(
        default_factory=dict,
        description="Further regulations by name, or limits of one's own for gdpr, ccpa, other.",
    )
    subject_rule: Annotated[SubjectRule, Strict(False)] = Field(
        default=SubjectRule.TEXT,
        description="When two subject ids are one person. exact: byte for byte; text: in Unicode's NFC, without white "
        "space around; caseless: also whatever their case; email_domain: also whatever the case after an @; email: "
        "whatever the case of an id with an @. Fixed once there are datasets or requests.",
    )
    opendsr_identities: Annotated[tuple[Literal["controller_customer_id", "email"], ...], Strict(False)] = Field(
        default=("controller_customer_id",),
        description="OpenDSR: what kind of identity the subject ids of the datasets are; no other kind is accepted.",
    )
    drp_business_id: Annotated[str, Field(pattern="^[A-Za-z0-9_.-]{1,100}$")] | None = Field(
        default=None, description="Data Rights Protocol: this tenant's id in the network; null: agents are not served."
    )
    drp_claim: Literal["email", "phone_number", "customer_id"] = Field(
        default="email",
        description="Data Rights Protocol: the claim about a person that is the subject id in the datasets.",
    )
    drp_verification_url: Annotated[str, Field(pattern="^https://[^?#]+$", max_length=500)] | None = Field(
        default=None, description="Data Rights Protocol: where people whom the agent has not verified say who they are."
    )
    controller: _Line | None = Field(
        default=None,
        description="The controller, as replies to people name it in their head and sign with it; null: they name "
        "none.",
    )
    contact: _Line | None = Field(
        default=None,
        description="How people reach the data protection officer, as replies end with it; null: they name nobody.",
    )
