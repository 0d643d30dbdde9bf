"""Datasets: an upload becomes encoded rows on disk and references in the database; the upload itself is discarded.

Public networks, on which datasets and models may be based, are provided by a feature. Without this feature, every
network id is refused.
"""

import functools
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from app.audit import service as audit
from app.catalogue import repository
from app.config import Settings
from app.db import actor, now, tables
from app.rows import formats, ingest, records, repository as rows_repository, row_store, uploads
from lethe import sockets
from lethe.contract import models, problems, sets
from lethe.encoding import schema as schemas, targets
from lethe.encoding.rows import Schema
from lethe.proof import budget, network


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """Encoded upload on disk, not yet registered. Its `num_suppressed` rows about suppressed people have been left out.
    `warnings` are for the sender."""

    dataset_id: str
    schema: Schema | None
    classes: list[str]
    target: targets.TargetColumn | None
    network_id: str | None
    num_features: int
    num_slots: int
    root: str
    subject_refs: uploads.References
    num_suppressed: int
    warnings: list[str]


def encode(
    rows: row_store.RowStore,
    upload: uploads.RowUpload,
    *,
    suppressed: uploads.Suppressed,
    network_id: str | None = None,
) -> Encoded:
    """Encode an upload into the row store, each row in a slot that is independent of its position in the file.
    `network_id` is the id of the network behind the upload's `features_of`. Raises `SchemaInvalid`, `RowInvalid`,
    `DatasetUnusable`, `InputInvalid` or `SubjectSuppressed`, leaving nothing on disk."""
    dataset_id = tables.new_id("ds")
    with rows.writing(dataset_id) as writer:
        result = uploads.take_in(writer, upload, suppressed=suppressed)
        if upload.has_classes:
            ingest.check_learnable(result.class_counts.tolist(), upload.classes)
    assert writer.num_columns is not None
    return Encoded(
        dataset_id=dataset_id,
        schema=upload.schema,
        classes=list(upload.classes),
        target=upload.target,
        network_id=network_id,
        num_features=writer.num_columns - 1,
        num_slots=writer.num_slots,
        root=writer.root,
        subject_refs=result.subject_refs,
        num_suppressed=result.num_suppressed,
        warnings=result.spread.warnings(_places(upload, writer.num_columns - 1)) if result.spread else [],
    )


def _places(upload: uploads.RowUpload, num_features: int) -> dict[str, slice]:
    """Map columns to slices of the features. Without a schema, or with a network, each feature is its own column."""
    if upload.schema and not upload.features_of:
        return upload.schema.places
    name = "feature" if upload.features_of else "x"
    return {f"{name}[{place}]": slice(place, place + 1) for place in range(num_features)}


def register(
    session: Session, *, name: str, encoded: Encoded, adaptive_budget: budget.Budget | None = None
) -> tables.Dataset:
    """Register an encoded upload as a dataset. This fixes and publishes its number of slots and its budget, if any."""
    # The network may have been deleted since the upload began.
    if encoded.network_id is not None:
        network_keeper().named(session, encoded.network_id)
    dataset = tables.Dataset(
        id=encoded.dataset_id,
        tenant_id=actor(session).tenant_id,
        name=name,
        schema=encoded.schema.to_json() if encoded.schema else None,
        network_id=encoded.network_id,
        classes=encoded.classes,
        target=encoded.target and encoded.target.to_json(),
        num_features=encoded.num_features,
        num_slots=encoded.num_slots,
        digest=encoded.root,
        references_check=encoded.dataset_id,
        revision=0,
        adaptive_budget=adaptive_budget and adaptive_budget.to_json(),
        created_at=now(session),
    )
    session.add(dataset)
    # The records have a foreign key to the dataset.
    session.flush()
    refs = encoded.subject_refs
    records.add(session, dataset_id=dataset.id, subject_refs=refs, slots=range(len(refs)))
    of_budget = adaptive_budget.to_json() if adaptive_budget else {}
    audit.record(session, "dataset.created", dataset.id, num_slots=dataset.num_slots, **of_budget)
    return dataset


def get(session: Session, dataset_id: str) -> tables.Dataset:
    """Return a dataset. Raises `DatasetUnknown`."""
    return problems.DatasetUnknown.if_none(session.get(tables.Dataset, dataset_id), dataset_id=dataset_id)


def require_kept(dataset: tables.Dataset) -> None:
    """Raise `DatasetRetired` if the dataset is retired."""
    if dataset.retired_at is not None:
        raise problems.DatasetRetired(dataset_id=dataset.id)


def target_of(dataset: tables.Dataset) -> targets.TargetColumn | None:
    """Return the range of the dataset's target; None if the dataset has classes."""
    return targets.TargetColumn.from_json(dataset.target) if dataset.target else None


def network_of(session: Session, dataset: tables.Dataset) -> network.PublicNetwork | None:
    """Return the network that computed the rows' features, in the form that mechanisms use, or None if there is none.
    Raises `NetworkUnknown`."""
    return network_keeper().named(session, dataset.network_id) if dataset.network_id else None


def has_labels(dataset: tables.Dataset) -> bool:
    """Return True if the dataset's records may have any number of classes, including none."""
    return dataset.schema is not None and schemas.stored(dataset.schema).separator is not None


def weight_bound_of(dataset: tables.Dataset) -> float | None:
    """Return the public bound on row weights, or None if rows have no weights."""
    weight = dataset.schema and schemas.stored(dataset.schema).weight
    return weight.bound if weight else None


def roots(session: Session, dataset_id: str) -> list[tuple[str, str]]:
    """Return (id, root) pairs for the dataset's rows and each batch waiting to be added. Raises `DatasetBusy` during a
    run, because a run may change the rows and destroy the previous ones."""
    dataset = get(session, dataset_id)
    if rows_repository.is_any_run_on(session, dataset_id=dataset_id):
        raise problems.DatasetBusy("A run is at work on this dataset; check again when it has ended.")
    waiting = repository.waiting_additions(session, dataset_id=dataset_id)
    return [(dataset.id, dataset.digest), *((addition.id, addition.digest) for addition in waiting)]


def count_records_of(session: Session, *, dataset_id: str, subject_ref: str, others: Iterable[str] = ()) -> int:
    """Return the number of rows held about a person, at least 1. Raises `DatasetUnknown`; `SubjectUnknown` if there are
    none, stating how many of `others` have rows; and `DatasetDamaged` if damaged records may hide rows."""
    dataset = get(session, dataset_id)
    of_person = functools.partial(rows_repository.count_records_of, session, dataset_id=dataset_id)
    count = of_person(subject_ref=subject_ref)
    if count == 0 and records.is_in_records(dataset):
        raise problems.DatasetDamaged.found(dataset_id, sets.DamageKind.RECORD)
    if count == 0:
        alike = sum(of_person(subject_ref=other) > 0 for other in others)
        raise problems.SubjectUnknown.but("This dataset holds nothing about this subject.", alike)
    return count


class OpenedNetwork(Protocol):
    """Network whose file has been read. Each method runs it in a separate process and may raise `NetworkFailed`."""

    @property
    def input_size(self) -> int:
        """Number of values per row that the network takes."""

    def encode(self, raw: NDArray[np.float64]) -> NDArray[np.floating[Any]]:
        """Return the features of the rows in `raw`  # (n, input_size) -> (n, k)"""

    def encoding(self, *, tenant_id: str, name: str, num_bytes: int) -> AbstractContextManager[formats.FeaturesOf]:
        """Open an encoder for an upload's rows. The upload's progress is shown under `name`; `num_bytes` is the size of
        the file. The encoder raises `InputInvalid` for vectors whose length is not `input_size`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkKeeper:
    """Keeper of networks, plugged in as `NETWORKS` in a feature's `hooks` module.

    All functions may raise `NetworkUnknown`. `named` returns a network in the form that mechanisms use. `opened` and
    `content` raise `DatabaseDamaged` if the file is not the one on record; `content` finds the file by its SHA-256,
    because workers serve all tenants. `linearised` returns a tangent model's network in the same form and the model's
    number of parameters; it raises `PreconditionFailed` if the network does not fit the dataset.
    """

    named: Callable[[Session, str], network.PublicNetwork]
    opened: Callable[[Session, Settings, str], OpenedNetwork]
    content: Callable[[Session, str], bytes]
    linearised: Callable[[Session, tables.Dataset, models.TangentIn], tuple[network.PublicNetwork, int]]


def network_keeper() -> NetworkKeeper:
    """Return the keeper of networks. Raises `NetworkUnknown` if no feature keeps networks."""
    keepers: tuple[NetworkKeeper, ...] = sockets.plugs("app.features", "hooks", "NETWORKS")
    if not keepers:
        raise problems.NetworkUnknown("This installation keeps no networks: send the request without one.")
    return keepers[0]
