"""Operations on trainers outside Lethe, on the manifests of their retrainings, and on serving permissions."""

import datetime
from typing import Annotated

from pydantic import Field

from lethe.contract import fields, operation, problems, sets
from lethe.features.systems.contract import Ids, PublicKey, SystemTaskEnded, Url

MAX_IDS = 100_000
"""Maximum number of identifiers whose digests can be requested in one call."""
MAX_IDENTIFIERS = 500_000
"""Maximum number of people that a single manifest can list as read."""


class AttestedTrainerUnknown(problems.NotFound, title="There is no such trainer"):
    template = "There is no trainer {attested_trainer_id!r}; GET /v1/attested-trainers lists them."


class ManifestRefused(problems.Conflict, title="The manifest is refused"): ...


Days = Annotated[int, Field(ge=0, le=365)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{40}$", max_length=40)]


class ServingReason(sets.ClosedSet):
    """Reason why serving an artefact is not allowed."""

    UNKNOWN = "unknown"
    """No accepted manifest names the artefact."""
    SUPERSEDED = "superseded"
    """The artefact may have been trained on the data of a person whom a later retraining left out."""
    OVERDUE = "overdue"
    """The artefact may have been trained on a person whose request is past its deadline."""


class AttestedTrainerIn(fields.Body):
    model_config = fields.example(
        name="Churn in Airflow",
        contact="data science, +49 30 1234567",
        webhook_url="https://airflow.example/lethe",
        public_key="11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
    )

    name: fields.Name = Field(description="Name of the trainer, shown to officers and in bundles.")
    contact: fields.Name = Field(description="Person or team responsible for the trainer, with their contact details.")
    webhook_url: Url = Field(description="HTTPS URL to which `retraining_due` webhooks are sent.", repr=False)
    public_key: PublicKey = Field(
        description="Ed25519 public key for verifying manifests: `x` of its JWK (base64url of 32 bytes)."
    )
    dataset_ids: Ids | None = fields.optional(
        "IDs of the datasets with the people whose data the trainer can read. A request restricted to other datasets "
        "does not wait for the trainer. Default: every request waits for it."
    )
    lead_days: Days = Field(
        default=3, description="Days reserved before each deadline, from reading the rows to sending the manifest."
    )


class AttestedTrainerChangeIn(fields.Body):
    name: fields.Name | None = fields.optional("New name of the trainer. Default: unchanged.")
    contact: fields.Name | None = fields.optional("New contact of the trainer. Default: unchanged.")
    webhook_url: Url | None = Field(default=None, description="New URL for webhooks. Default: unchanged.", repr=False)
    public_key: PublicKey | None = fields.optional("New Ed25519 public key for future manifests. Default: unchanged.")
    lead_days: Days | None = fields.optional("New number of days reserved before each deadline. Default: unchanged.")


class RetrainingOut(fields.Answer):
    latest_at: datetime.datetime = Field(description="Latest time to read the rows that still meets every deadline.")
    late: bool = Field(description="True if at least one deadline can no longer be met with `lead_days` to spare.")
    num_waiting: int = Field(description="Number of requests that this retraining will serve.")


class AttestedTrainerOut(fields.Answer):
    id: str = Field(description="ID of the trainer, also used as its system ID.")
    name: str = Field(description="Name of the trainer.")
    contact: str | None = Field(description="Person or team responsible for the trainer; null if it cannot be read.")
    webhook_url: str | None = Field(
        description="URL for webhooks; null for callers without admin, because it may contain a secret.", repr=False
    )
    public_key: str = Field(description="Ed25519 public key for verifying manifests (base64url).")
    dataset_ids: list[str] | None = Field(description="IDs of datasets whose rows the trainer may read; null for all.")
    lead_days: int = Field(description="Days reserved before each deadline, from reading rows to sending the manifest.")
    retraining_id: str = Field(description="ID of the next retraining, to be stated in its manifest.")
    next_retraining: RetrainingOut | None = Field(description="Next retraining due; null if no request is waiting.")
    planned: list[RetrainingOut] = Field(
        description="Smallest set of retrainings that meets all deadlines known so far, in order, at most 100."
    )
    artefacts: list[str] = Field(description="SHA-256 (hex) of each artefact in the last accepted manifest.")
    created_at: datetime.datetime = Field(description="Time at which the trainer was registered.")
    retired_at: datetime.datetime | None = Field(description="Time at which the trainer was retired; null until then.")


class IdentifiersIn(fields.LargeBody):
    ids: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=500)]],
        Field(min_length=1, max_length=MAX_IDS, fail_fast=True),
    ] = Field(description="Identifiers of the people whose rows the trainer is about to read.", repr=False)
    kind: fields.Name | None = fields.optional("Kind of the identifiers, such as email. Default: customer_id.")


class IdentifiersOut(fields.Answer):
    read_at: datetime.datetime = Field(
        description="Time of the response by Lethe's clock; manifests with these identifiers give it as `rows_read_at`."
    )
    digests: list[str | None] = Field(
        description="Keyed digest of each identifier for this trainer, in the given order; null for people whose rows "
        "must not be read because of a deletion request.",
        repr=False,
    )


class ManifestIn(fields.LargeBody):
    jws: Annotated[fields.Text, Field(min_length=1, max_length=40_000)] = Field(
        description="Signed header of the manifest (compact JWS)."
    )
    identifiers: Annotated[list[Digest], Field(max_length=MAX_IDENTIFIERS, fail_fast=True)] = Field(
        description="Sorted digests, without duplicates, of the identifiers whose rows were read. The digests are "
        "compared with those of the people to be forgotten, and are not stored.",
        repr=False,
    )


class ManifestOut(fields.Answer):
    id: str = Field(description="ID of the accepted manifest.")
    trainer_id: str = Field(description="ID of the trainer.")
    retraining_id: str = Field(description="ID of the retraining that the manifest reports.")
    rows_read_at: datetime.datetime = Field(description="Time at which the rows were read.")
    accepted_at: datetime.datetime = Field(description="Time at which the manifest was accepted.")
    num_identifiers: int = Field(description="Number of identifiers whose rows were read.")
    artefacts: list[str] = Field(description="SHA-256 (hex) of each artefact.")
    num_served: int = Field(description="Number of requests whose wait the manifest ended.")


class WaitClosureIn(fields.Body):
    request_id: Annotated[fields.Text, Field(min_length=1, max_length=100)] = Field(
        description="ID of the deletion request."
    )


class ArtefactServingQuery(fields.Query):
    artefact_sha256: fields.Sha256 = Field(description="SHA-256 (hex) of the artefact to serve.")


class ArtefactServingOut(fields.Answer):
    artefact_sha256: str = Field(description="SHA-256 (hex) of the artefact.")
    trainer_id: str | None = Field(description="ID of the trainer that produced the artefact; null if unknown.")
    may_serve: bool = Field(description="True if the artefact may be served until valid_until.")
    reason: ServingReason | None = Field(description="Reason why the artefact may not be served; null if it may.")
    valid_until: datetime.datetime | None = Field(
        description="Time until which serving is permitted, at most an hour ahead; null if serving is not permitted."
    )


_TRAINERS = operation.ResourceOperations("Attested trainers", "/v1/attested-trainers", AttestedTrainerUnknown)

CREATE = _TRAINERS.operation(
    "create_attested_trainer",
    "POST",
    scope=sets.Scope.ADMIN,
    takes=AttestedTrainerIn,
    gives=AttestedTrainerOut,
    status=201,
    repeat="keyed",
    does="Register a trainer that runs outside Lethe. Requests accepted from now on wait for the trainer's next "
    "retraining; earlier requests do not.",
)
LIST = _TRAINERS.operation(
    "list_attested_trainers",
    "GET",
    scope=sets.Scope.MODELS_READ,
    query=fields.Paging,
    gives=fields.PageOut[AttestedTrainerOut],
    does="List all trainers, including retired ones, with their planned retrainings.",
)
GET = _TRAINERS.of_one(
    "get_attested_trainer",
    "GET",
    "/{attested_trainer_id}",
    scope=sets.Scope.MODELS_READ,
    gives=AttestedTrainerOut,
    does="Return a trainer with the smallest set of retrainings that meets all deadlines.",
)
CHANGE = _TRAINERS.of_one(
    "change_attested_trainer",
    "PATCH",
    "/{attested_trainer_id}",
    scope=sets.Scope.ADMIN,
    takes=AttestedTrainerChangeIn,
    gives=AttestedTrainerOut,
    repeat="idempotent",
    does="Change a trainer. Manifests that were already accepted keep the key that signed them.",
)
RETIRE = _TRAINERS.of_one(
    "retire_attested_trainer",
    "DELETE",
    "/{attested_trainer_id}",
    scope=sets.Scope.ADMIN,
    gives=type(None),
    status=204,
    does="Retire a trainer so that no new requests wait for it. Requests that are already waiting continue to wait "
    "until a manifest or an officer ends the wait.",
)
IDENTIFIERS = _TRAINERS.of_one(
    "digest_identifiers",
    "POST",
    "/{attested_trainer_id}/identifiers",
    scope=sets.Scope.MODELS_WRITE,
    takes=IdentifiersIn,
    gives=IdentifiersOut,
    repeat="idempotent",
    does="Return the digests that identify people in a manifest, with null for those whose rows must not be read. "
    "Neither identifiers nor digests are stored.",
)
ACCEPT = _TRAINERS.of_one(
    "accept_manifest",
    "POST",
    "/{attested_trainer_id}/manifests",
    scope=sets.Scope.MODELS_WRITE,
    takes=ManifestIn,
    gives=ManifestOut,
    repeat="idempotent",
    problems=(ManifestRefused,),
    does="Accept the signed manifest of a retraining. It serves every request that was waiting when the rows were "
    "read. A refused manifest serves none, and `errors` names the failed check. Repeating the call returns the same "
    "response.",
)
CLOSE = _TRAINERS.of_one(
    "close_attested_wait",
    "POST",
    "/{attested_trainer_id}/close",
    scope=sets.Scope.REQUESTS_REVIEW,
    takes=WaitClosureIn,
    gives=type(None),
    status=204,
    repeat="idempotent",
    problems=(problems.RequestUnknown, SystemTaskEnded),
    does="End a request's wait for a trainer that does not respond. The request's headline then states that the "
    "trainer was not reached.",
)
SERVING = operation.ResourceOperations("Attested trainers", "/v1/serving").operation(
    "get_artefact_serving",
    "GET",
    scope=sets.Scope.MODELS_READ,
    query=ArtefactServingQuery,
    gives=ArtefactServingOut,
    does="Look up a trainer's artefact by its digest and return whether it may be served. For Lethe's own models, use "
    "`/v1/models/{model_id}/serving` instead.",
)
