"""Operations on trainers outside of Lethe, on the manifests of their retrainings, and on permissions to serve."""

import datetime
from typing import Annotated

from pydantic import Field

from lethe.contract.fields import Answer, Body, LargeBody, Name, PageOut, Paging, Query, Sha256, Text, example, optional
from lethe.contract.operation import ResourceOperations
from lethe.contract.problems import Conflict, NotFound, RequestUnknown
from lethe.contract.sets import ClosedSet, Scope
from lethe.features.systems.contract import Ids, PublicKey, SystemTaskEnded, Url

MAX_IDS = 100_000
"""Maximum number of identifiers in one call for their digests."""
MAX_IDENTIFIERS = 500_000
"""Maximum number of people whose rows one manifest may have read."""


class AttestedTrainerUnknown(NotFound, title="There is no such trainer"):
    template = "There is no trainer {attested_trainer_id!r}; GET /v1/attested-trainers lists them."


class ManifestRefused(Conflict, title="The manifest is refused"): ...


Days = Annotated[int, Field(ge=0, le=365)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{40}$", max_length=40)]


class ServingReason(ClosedSet):
    """Reason why an artefact may not be served."""

    UNKNOWN = "unknown"
    """No accepted manifest names the artefact."""
    SUPERSEDED = "superseded"
    """The artefact may carry a person whom a later retraining left out."""
    OVERDUE = "overdue"
    """The artefact may carry a person whose request is past its deadline."""


class AttestedTrainerIn(Body):
    model_config = example(
        name="Churn in Airflow",
        contact="data science, +49 30 1234567",
        webhook_url="https://airflow.example/lethe",
        public_key="11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
    )

    name: Name = Field(description="Name of the trainer, shown to officers and in the bundle.")
    contact: Name = Field(description="Person or team responsible for the trainer, and how to reach them.")
    webhook_url: Url = Field(description="HTTPS URL that receives the webhook `retraining_due`.", repr=False)
    public_key: PublicKey = Field(
        description="Ed25519 public key that signs the manifests: `x` of its JWK (base64url of 32 bytes)."
    )
    dataset_ids: Ids | None = optional(
        "Datasets whose people the trainer may read: a request restricted to other datasets does not wait "
        "for it. Default: every request waits for it."
    )
    lead_days: Days = Field(
        default=3, description="Days between reading the rows and the manifest, kept free before a deadline."
    )


class AttestedTrainerChangeIn(Body):
    name: Name | None = optional("New name of the trainer. Default: unchanged.")
    contact: Name | None = optional("New contact of the trainer. Default: unchanged.")
    webhook_url: Url | None = Field(default=None, description="New URL for webhooks. Default: unchanged.", repr=False)
    public_key: PublicKey | None = optional("New Ed25519 public key for manifests from now on. Default: unchanged.")
    lead_days: Days | None = optional("New number of days before a deadline. Default: unchanged.")


class RetrainingOut(Answer):
    latest_at: datetime.datetime = Field(description="Latest time for reading the rows that meets every deadline.")
    late: bool = Field(description="True if the trainer's days before a deadline can no longer be kept.")
    num_waiting: int = Field(description="Number of requests that the retraining serves.")


class AttestedTrainerOut(Answer):
    id: str = Field(description="ID of the trainer, which is also its ID as a system.")
    name: str = Field(description="Name of the trainer.")
    contact: str | None = Field(description="Person or team responsible for the trainer; null if damaged.")
    webhook_url: str | None = Field(
        description="URL for webhooks; null without admin, as it may hold a secret.", repr=False
    )
    public_key: str = Field(description="Ed25519 public key that signs the manifests (base64url).")
    dataset_ids: list[str] | None = Field(description="Datasets whose people the trainer may read; null for all.")
    lead_days: int = Field(description="Days between reading the rows and the manifest, kept free before a deadline.")
    retraining_id: str = Field(description="ID of the next retraining, which its manifest names.")
    next_retraining: RetrainingOut | None = Field(description="Next retraining that is due; null if no request waits.")
    planned: list[RetrainingOut] = Field(
        description="Fewest retrainings that meet all deadlines known so far, the next one first, at most 100."
    )
    artefacts: list[str] = Field(description="SHA-256 (hex) of the artefacts of the last accepted manifest.")
    created_at: datetime.datetime = Field(description="Time of registration.")
    retired_at: datetime.datetime | None = Field(description="Time of retirement; null while in use.")


class IdentifiersIn(LargeBody):
    ids: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=500)]],
        Field(min_length=1, max_length=MAX_IDS, fail_fast=True),
    ] = Field(description="Identifiers of people whose rows the trainer wants to read.", repr=False)
    kind: Name | None = optional("Kind of the identifiers, such as email. Default: customer_id.")


class IdentifiersOut(Answer):
    read_at: datetime.datetime = Field(
        description="Time of the answer by Lethe's clock. A manifest for these identifiers states it as `rows_read_at`."
    )
    digests: list[str | None] = Field(
        description="Keyed digest of each identifier for this trainer, in order; null for a person who must not be "
        "read because of a request.",
        repr=False,
    )


class ManifestIn(LargeBody):
    jws: Annotated[Text, Field(min_length=1, max_length=40_000)] = Field(
        description="Signed header of the manifest (compact JWS)."
    )
    identifiers: Annotated[list[Digest], Field(max_length=MAX_IDENTIFIERS, fail_fast=True)] = Field(
        description="Digests of the identifiers that the retraining read, sorted, each once. They are compared with "
        "the people to be forgotten, and not stored.",
        repr=False,
    )


class ManifestOut(Answer):
    id: str = Field(description="ID of the accepted manifest.")
    trainer_id: str = Field(description="ID of the trainer.")
    retraining_id: str = Field(description="ID of the retraining that the manifest answers.")
    rows_read_at: datetime.datetime = Field(description="Time at which the rows were read.")
    accepted_at: datetime.datetime = Field(description="Time at which the manifest was accepted.")
    num_identifiers: int = Field(description="Number of identifiers whose rows were read.")
    artefacts: list[str] = Field(description="SHA-256 (hex) of the artefacts.")
    num_served: int = Field(description="Number of requests that no longer wait for the trainer.")


class WaitClosureIn(Body):
    request_id: Annotated[Text, Field(min_length=1, max_length=100)] = Field(description="ID of the deletion request.")


class ArtefactServingQuery(Query):
    artefact_sha256: Sha256 = Field(description="SHA-256 (hex) of the artefact to be served.")


class ArtefactServingOut(Answer):
    artefact_sha256: str = Field(description="SHA-256 (hex) of the artefact.")
    trainer_id: str | None = Field(description="ID of the trainer that made the artefact; null if unknown.")
    may_serve: bool = Field(description="True if the artefact may be served until valid_until.")
    reason: ServingReason | None = Field(description="Reason why the artefact may not be served; null if it may.")
    valid_until: datetime.datetime | None = Field(
        description="Time until which the permission holds, at most an hour; null if the artefact may not be served."
    )


_TRAINERS = ResourceOperations("Attested trainers", "/v1/attested-trainers", AttestedTrainerUnknown)

CREATE = _TRAINERS.operation(
    "create_attested_trainer",
    "POST",
    scope=Scope.ADMIN,
    takes=AttestedTrainerIn,
    gives=AttestedTrainerOut,
    status=201,
    repeat="keyed",
    does="Register a trainer outside of Lethe. Requests accepted from now on wait for its next retraining; requests "
    "accepted before do not.",
)
LIST = _TRAINERS.operation(
    "list_attested_trainers",
    "GET",
    scope=Scope.MODELS_READ,
    query=Paging,
    gives=PageOut[AttestedTrainerOut],
    does="List all trainers with their planned retrainings, including retired ones.",
)
GET = _TRAINERS.of_one(
    "get_attested_trainer",
    "GET",
    "/{attested_trainer_id}",
    scope=Scope.MODELS_READ,
    gives=AttestedTrainerOut,
    does="Return a trainer, with the fewest retrainings that meet all deadlines.",
)
CHANGE = _TRAINERS.of_one(
    "change_attested_trainer",
    "PATCH",
    "/{attested_trainer_id}",
    scope=Scope.ADMIN,
    takes=AttestedTrainerChangeIn,
    gives=AttestedTrainerOut,
    repeat="idempotent",
    does="Change a trainer. Manifests that were accepted keep the key that signed them.",
)
RETIRE = _TRAINERS.of_one(
    "retire_attested_trainer",
    "DELETE",
    "/{attested_trainer_id}",
    scope=Scope.ADMIN,
    gives=type(None),
    status=204,
    does="Let no more requests wait for a trainer. Requests that already wait continue to, until a manifest or an "
    "officer ends the wait.",
)
IDENTIFIERS = _TRAINERS.of_one(
    "digest_identifiers",
    "POST",
    "/{attested_trainer_id}/identifiers",
    scope=Scope.MODELS_WRITE,
    takes=IdentifiersIn,
    gives=IdentifiersOut,
    repeat="idempotent",
    does="Return the digests by which a manifest names the people whose rows it read, and mark people who must not be "
    "read. Neither identifiers nor digests are stored.",
)
ACCEPT = _TRAINERS.of_one(
    "accept_manifest",
    "POST",
    "/{attested_trainer_id}/manifests",
    scope=Scope.MODELS_WRITE,
    takes=ManifestIn,
    gives=ManifestOut,
    repeat="idempotent",
    problems=(ManifestRefused,),
    does="Accept the signed manifest of a retraining, which serves every request that was due before its rows were "
    "read. A refused manifest serves none, and `errors` names the failed check. Repeating the call returns the "
    "same answer.",
)
CLOSE = _TRAINERS.of_one(
    "close_attested_wait",
    "POST",
    "/{attested_trainer_id}/close",
    scope=Scope.REQUESTS_REVIEW,
    takes=WaitClosureIn,
    gives=type(None),
    status=204,
    repeat="idempotent",
    problems=(RequestUnknown, SystemTaskEnded),
    does="End a request's wait for a trainer that does not answer. The headline then states that the trainer was not "
    "reached.",
)
SERVING = ResourceOperations("Attested trainers", "/v1/serving").operation(
    "get_artefact_serving",
    "GET",
    scope=Scope.MODELS_READ,
    query=ArtefactServingQuery,
    gives=ArtefactServingOut,
    does="Look up a trainer's artefact by its digest and return whether it may be served. For Lethe's own models, use "
    "`/v1/models/{model_id}/serving`.",
)
