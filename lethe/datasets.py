"""`client.datasets`: rows that models learn from."""

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lethe.endpoints import Endpoint
from lethe.http import Http
from lethe.values import Page

_UPLOAD_SECONDS = 600.0
"""Rows are encoded while the caller waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """The first thing of a dataset that was found not to be as on record. `kind`: of which file it is, or `record`,
    whose row is in which slot; `rows`: the dataset, or the addition whose rows wait; `block`: which 4096 of them,
    None for all."""

    at: datetime.datetime
    kind: str
    rows: str
    block: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveBudget:
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """`num_slots`: rows at creation, public and fixed; `num_records`: those that are not null; `damage`: why no run
    touches it, None for a dataset that is in order. `adaptive_budget`: what all versions of all models together may
    ever tell about one row, to people who read every one of them; None: no bound was set. `destroyed_at`: nothing is
    left of the rows of what was retired."""

    id: str
    name: str
    num_records: int
    num_slots: int
    num_features: int
    num_classes: int
    classes: tuple[str, ...]
    num_subjects: int
    revision: int
    digest: str
    damage: Damage | None
    adaptive_budget: AdaptiveBudget | None
    schema: dict[str, Any] | None
    created_at: datetime.datetime
    retired_at: datetime.datetime | None
    destroyed_at: datetime.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDataset(Dataset):
    """`num_suppressed`: rows that were left out, of people who asked to be forgotten."""

    num_suppressed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """Rows that were added to a dataset. `status`: pending, applied or dropped; `revision`: of the dataset, from which
    on versions learn from them."""

    id: str
    dataset_id: str
    status: str
    num_records: int
    revision: int | None
    created_at: datetime.datetime
    applied_at: datetime.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAddition(Addition):
    """`num_suppressed`: rows that were left out, of people who asked to be forgotten."""

    num_suppressed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    num_records: int


UPLOAD = Endpoint("POST", "/v1/datasets", NewDataset, keyed=True)
LIST = Endpoint("GET", "/v1/datasets", Page[Dataset])
GET = Endpoint("GET", "/v1/datasets/{dataset_id}", Dataset)
RETIRE = Endpoint("DELETE", "/v1/datasets/{dataset_id}", Dataset, idempotent=True)
ADD = Endpoint("POST", "/v1/datasets/{dataset_id}/records", NewAddition, keyed=True)
ADDITIONS = Endpoint("GET", "/v1/datasets/{dataset_id}/additions", Page[Addition])
ADDITION = Endpoint("GET", "/v1/datasets/{dataset_id}/additions/{addition_id}", Addition)
RECHECK = Endpoint("POST", "/v1/datasets/{dataset_id}/recheck", Dataset)
SUBJECT = Endpoint("GET", "/v1/datasets/{dataset_id}/subjects/{subject_id}", Subject)


class Datasets:
    def __init__(self, http: Http) -> None:
        self._http = http

    def upload(
        self,
        path: str | Path,
        *,
        name: str | None = None,
        schema: Mapping[str, Any] | Path | None = None,
        classes: Sequence[str] | None = None,
        suppressed: Literal["refuse", "skip"] = "refuse",
        adaptive_epsilon: float | None = None,
        adaptive_delta: float | None = None,
        idempotency_key: str | None = None,
    ) -> NewDataset:
        """Rows from a .csv, .parquet or .npz file, by the public schema (JSON, or its file); `name`: of the file.

        `classes`: the names of the classes, in the order of the labels 0, 1, ...: for npz, and where the schema does
        not list the values of the label. `suppressed`: what to do about rows of people who asked to be forgotten.
        Refused, they raise `Conflict`. `adaptive_epsilon`, `adaptive_delta`: the dataset's budget, fixed for good."""
        path = Path(path)
        fields = {"name": path.stem if name is None else name, "suppressed": suppressed}
        if schema is not None:
            fields["schema"] = schema.read_text() if isinstance(schema, Path) else json.dumps(schema)
        if classes is not None:
            fields["classes"] = json.dumps(list(classes))
        if adaptive_epsilon is not None:
            fields["adaptive_epsilon"] = str(adaptive_epsilon)
        if adaptive_delta is not None:
            fields["adaptive_delta"] = str(adaptive_delta)
        with path.open("rb") as content:
            return self._http.call(
                UPLOAD,
                data=fields,
                files={"file": (path.name, content)},
                idempotency_key=idempotency_key,
                timeout_seconds=_UPLOAD_SECONDS,
            )

    def add(
        self,
        dataset_id: str,
        path: str | Path,
        *,
        suppressed: Literal["refuse", "skip"] = "refuse",
        idempotency_key: str | None = None,
    ) -> NewAddition:
        """Add rows, encoded as the dataset is, for slots of forgotten people; its models learn again from scratch."""
        path = Path(path)
        with path.open("rb") as content:
            return self._http.call(
                ADD,
                dataset_id,
                data={"suppressed": suppressed},
                files={"file": (path.name, content)},
                idempotency_key=idempotency_key,
                timeout_seconds=_UPLOAD_SECONDS,
            )

    def additions(self, dataset_id: str) -> Iterator[Addition]:
        """All, newest first."""
        return self._http.pages(ADDITIONS, dataset_id)

    def addition(self, dataset_id: str, addition_id: str) -> Addition:
        return self._http.call(ADDITION, dataset_id, addition_id)

    def get(self, dataset_id: str) -> Dataset:
        return self._http.call(GET, dataset_id)

    def recheck(self, dataset_id: str) -> Dataset:
        """Open everything again, once the right files are back: if `damage` is None then, runs go on. Needs admin."""
        return self._http.call(RECHECK, dataset_id, timeout_seconds=_UPLOAD_SECONDS)

    def list(self) -> Iterator[Dataset]:
        """All, newest first."""
        return self._http.pages(LIST)

    def retire(self, dataset_id: str) -> Dataset:
        """Let go of it, and destroy its rows. Raises `Conflict` while a model uses it, or requests wait for it."""
        return self._http.call(RETIRE, dataset_id)

    def subject(self, dataset_id: str, subject_id: str) -> Subject:
        """How many rows are held about a person; needs the scope admin. Raises `NotFound` if none are."""
        return self._http.call(SUBJECT, dataset_id, subject_id)
