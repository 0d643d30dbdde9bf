"""Operations on identity maps, which link one person's identifiers of different kinds."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from lethe.contract import fields, operation, problems, sets


class PeopleJoined(problems.Conflict, title="The identity map would make one person of several"): ...


CUSTOMER_ID, EMAIL, PHONE, DEVICE = "customer_id", "email", "phone", "device"
BUILT_IN = (CUSTOMER_ID, EMAIL, PHONE, DEVICE)
ADDRESSES = (
    "Most subject IDs look like e-mail addresses, and the tenant's subject_rule regards their case: a request in "
    "another spelling finds nothing. Upload them with subject_kind email, which ignores case after the @, or to a "
    "tenant with the subject_rule email, which also ignores it before the @; then retire this dataset."
)
ROUNDED = (
    "Most subject IDs are numbers with nothing but zeros after the 15th digit, as spreadsheets round them: several "
    "people may have one ID. Format the column as text at its source, export it again, and retire this dataset."
)
"""Warnings about the subject ids in an upload."""
MAX_LINKS = 1000
MAX_IDENTIFIERS = 50
MAX_IDENTIFIERS_OF_A_PERSON = 500
KindName = Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,39}$"), fields.WHOLE]


class IdentifierIn(fields.Body):
    kind: KindName = Field(
        default=CUSTOMER_ID,
        description="Kind of the identifier: customer_id (the subject IDs in uploads), email, phone, device or a kind "
        "that the tenant defined.",
    )
    id: fields.SubjectId | None = Field(
        default=None, description="Identifier in any spelling. Give either this or sha256.", repr=False
    )
    sha256: fields.Sha256 | None = Field(
        default=None, description="SHA-256 (hex) of the normalised identifier in UTF-8.", repr=False
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.id is None) == (self.sha256 is None):
            raise ValueError("expected either id or sha256")
        return self


class LinkIn(fields.Body):
    """Identifiers of one person."""

    identifiers: Annotated[list[IdentifierIn], Field(min_length=2, max_length=MAX_IDENTIFIERS, fail_fast=True)] = Field(
        description="Identifiers that all belong to the same person.", repr=False
    )


class IdentitiesIn(fields.LargeBody):
    links: Annotated[list[LinkIn], Field(min_length=1, max_length=MAX_LINKS, fail_fast=True)] = Field(
        description="Links to add to the map; the identifiers in each belong to one person.", repr=False
    )
    confirm_joins: bool = Field(
        default=False,
        description="True to let a link merge people whom the map has kept separate. Requires the `admin` scope.",
    )


class LoadedOut(fields.Answer):
    num_links: int = Field(description="Number of links in this call.")
    num_new: int | None = Field(
        description="Number of identifiers that were new to the map; null for callers without accounting:read."
    )
    num_joined: int | None = Field(
        description="Number of people who were merged into another person; null for callers without accounting:read."
    )
    num_suppressed: int | None = Field(
        description="Number of links that were left out because the person has been forgotten; uploads refuse all "
        "identifiers in such a link. Null for callers without accounting:read."
    )
    suppressed: list[int] = Field(
        description="Indexes in `links` of the first 20 suppressed links; empty for callers without accounting:read."
    )


class KindIn(fields.Body):
    name: KindName = Field(description="Name of the kind: `phone`, or a new one with identifiers compared as text.")
    region: Annotated[str, Field(pattern="^[A-Z]{2}$"), fields.WHOLE] | None = fields.optional(
        "Country (ISO 3166-1) assumed for phone numbers without a country code; only for phone. Default: such numbers "
        "are refused."
    )


class KindOut(fields.Answer):
    name: str = Field(description="Name of the kind.")
    region: str | None = Field(description="Country assumed for phone numbers without a country code; null if not set.")
    num_identifiers: int = Field(description="Number of identifiers of this kind in the map.")
    num_datasets: int = Field(description="Number of datasets whose rows identify people by this kind of identifier.")


class IdentitiesOut(fields.Answer):
    num_people: int = Field(description="Number of people in the identity map.")
    num_unknown: int = Field(description="Number of open requests whose identity_unknown is true.")
    kinds: list[KindOut] = Field(description="Kinds of identifiers, starting with the built-in ones.")


class ForgottenOut(fields.Answer):
    num_identifiers: int = Field(description="Number of identifiers deleted from the map.")


class ReachedKindOut(fields.Answer):
    kind: str = Field(description="Kind of the identifiers.")
    num_identifiers: int = Field(description="Number of identifiers of this kind that the request covers.")
    dataset_ids: list[str] = Field(description="IDs of the request's datasets that identify people by this kind.")


class RequestIdentitiesOut(fields.Answer):
    kind: str = Field(description="Kind of the identifier with which the request was submitted.")
    identity_unknown: bool = Field(description="True if no rows use the given kind or a kind linked to it in the map.")
    reached: list[ReachedKindOut] = Field(
        description="Kinds of identifiers that the request covers, given by the caller or found in the map."
    )
    unreached: list[str] = Field(
        description="Kinds of identifiers that the request's datasets use but the request does not have."
    )


_IDENTITIES = operation.ResourceOperations("Identities", "/v1/identities")

LOAD = _IDENTITIES.operation(
    "load_identities",
    "POST",
    scope=sets.Scope.MODELS_WRITE,
    takes=IdentitiesIn,
    gives=LoadedOut,
    repeat="idempotent",
    problems=(PeopleJoined, problems.StorageQuotaExceeded),
    does="Add links between identifiers of the same person to the map; either all are added or none. Only keyed hashes "
    "are stored. Links that would merge different people are refused until an admin confirms them.",
)
GET = _IDENTITIES.operation(
    "get_identities",
    "GET",
    scope=sets.Scope.ACCOUNTING_READ,
    gives=IdentitiesOut,
    does="Return the kinds of identifiers and the number of identifiers of each kind in the map.",
)
DEFINE_KIND = _IDENTITIES.operation(
    "define_identity_kind",
    "POST",
    ":define-kind",
    scope=sets.Scope.ADMIN,
    takes=KindIn,
    gives=KindOut,
    repeat="idempotent",
    does="Define a kind of identifier, or set the country assumed for phone numbers without a country code.",
)
FORGET = _IDENTITIES.operation(
    "forget_identities",
    "POST",
    ":forget",
    scope=sets.Scope.ADMIN,
    takes=fields.SubjectIn,
    gives=ForgottenOut,
    repeat="idempotent",
    does="Delete all identifiers of one person from the map, for example to correct a wrong link. No rows are erased.",
)
OF_REQUEST = operation.ResourceOperations("Identities", "/v1/deletion-requests", problems.RequestUnknown).of_one(
    "get_request_identities",
    "GET",
    "/{request_id}/identities",
    scope=sets.Scope.ACCOUNTING_READ,
    gives=RequestIdentitiesOut,
    does="Return the kinds of identifiers that a request covers, and which of them the identity map added.",
)
