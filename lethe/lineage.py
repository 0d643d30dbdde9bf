"""`client.lineage`: which models, versions and copies a person's rows fed."""

import datetime
from dataclasses import dataclass

from lethe.endpoints import Endpoint, given
from lethe.http import Http
from lethe.models import Export


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetLineage:
    """`erased_at`: when the rows were null on disk."""

    id: str
    name: str
    records: int
    erased_at: datetime.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CarryingVersion:
    """A version that was learned with the rows. `status`: live, retired or destroyed."""

    number: int
    status: str
    published_at: datetime.datetime
    destroyed_at: datetime.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstWithout:
    """The first version that has forgotten the rows."""

    number: int
    published_at: datetime.datetime
    certificate_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLineage:
    """`versions`, `copies_outside`: the newest of the `num_versions` that carried the rows, and of the
    `num_copies_outside` times that one was handed out. `owed`: a request waits for the first version without them."""

    model_id: str
    name: str
    dataset_id: str
    num_versions: int
    versions: tuple[CarryingVersion, ...]
    first_without: FirstWithout | None
    owed: bool
    num_copies_outside: int
    copies_outside: tuple[Export, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """In which datasets the rows are or were, and what was learned from those."""

    datasets: tuple[DatasetLineage, ...]
    models: tuple[ModelLineage, ...]


OF_REQUEST = Endpoint("GET", "/v1/deletion-requests/{request_id}/lineage", Traces)
OF_PERSON = Endpoint("POST", "/v1/lineage", Traces, idempotent=True)


class Lineage:
    def __init__(self, http: Http) -> None:
        self._http = http

    def of_request(self, request_id: str) -> Traces:
        """Of the person of a request, in the datasets that it asks; needs the scope accounting:read."""
        return self._http.call(OF_REQUEST, request_id)

    def of_person(self, *, subject_id: str | None = None, subject_sha256: str | None = None) -> Traces:
        """Of anybody, in all datasets; needs the scope admin."""
        return self._http.call(OF_PERSON, json=given(subject_id=subject_id, subject_sha256=subject_sha256))
