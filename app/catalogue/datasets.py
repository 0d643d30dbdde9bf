"""Datasets: an upload becomes encoded rows on disk and references in the database; the upload itself is not kept."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.audit import service as audit
from app.catalogue import repository
from app.db import actor, now
from app.db.tables import Dataset, new_id
from app.encoders import service as encoders
from app.rows import damage, ingest, records
from app.rows import repository as rows_repository
from app.rows.references import References
from app.rows.row_store import RowStore
from app.rows.uploads import Suppressed, Upload, take_in
from lethe.contract.problems import DatasetBusy, DatasetDamaged, DatasetRetired, DatasetUnknown, SubjectUnknown
from lethe.contract.sets import DamageKind
from lethe.encoding import schema as schemas
from lethe.encoding.rows import Schema
from lethe.encoding.targets import Target
from lethe.proof.budget import Budget
from lethe.proof.network import PublicNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """An upload that is on disk, encoded, and not yet known to anybody."""

    dataset_id: str
    schema: Schema | None
    classes: list[str]
    target: Target | None
    network_id: str | None
    num_features: int
    num_slots: int
    root: str
    subject_refs: References
    num_suppressed: int  # rows that were left out
    warnings: list[str]  # for its sender


def encode(rows: RowStore, upload: Upload, *, suppressed: Suppressed, network_id: str | None = None) -> Encoded:
    """Read an upload into the row store, each row into a slot that says nothing of where it stood in the file.
    `network_id`: of the network that the upload names as `features_of`.

    Raises `SchemaInvalid`, `RowInvalid`, `DatasetUnusable`, `InputInvalid` or `SubjectSuppressed`; then nothing is left
    on disk.
    """
    dataset_id = new_id("ds")
    with rows.writing(dataset_id) as writer:
        taken = take_in(writer, upload, suppressed=suppressed)
        if upload.has_classes:
            ingest.check_learnable(taken.class_counts.tolist(), upload.classes)
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
        subject_refs=taken.subject_refs,
        num_suppressed=taken.num_suppressed,
        warnings=taken.spread.warnings(_places(upload, writer.num_columns - 1)) if taken.spread else [],
    )


def _places(upload: Upload, num_features: int) -> dict[str, slice]:
    """The features of each column; without a schema, each number of the vectors by its place, and of a network each
    feature."""
    if upload.schema and not upload.features_of:
        return upload.schema.places
    name = "feature" if upload.features_of else "x"
    return {f"{name}[{place}]": slice(place, place + 1) for place in range(num_features)}


def register(session: Session, *, name: str, encoded: Encoded, adaptive_budget: Budget | None = None) -> Dataset:
    """Make an encoded upload a dataset: from here on its slots are fixed and their number is public, and so is what its
    versions may ever tell, if there is a budget."""
    dataset = Dataset(
        id=encoded.dataset_id,
        tenant_id=actor(session).tenant_id,
        name=name,
        schema=encoded.schema.to_json() if encoded.schema else None,
        network_id=encoded.network_id and encoders.get(session, encoded.network_id).id,  # it may have gone meanwhile
        classes=encoded.classes,
        target=encoded.target and encoded.target.to_json(),
        num_features=encoded.num_features,
        num_slots=encoded.num_slots,
        digest=encoded.root,
        references_check=encoded.dataset_id,
        records_have_checks=True,
        revision=0,
        adaptive_budget=adaptive_budget and adaptive_budget.to_json(),
        created_at=now(session),
    )
    session.add(dataset)
    session.flush()  # the records refer to it
    refs = encoded.subject_refs
    records.add(session, dataset_id=dataset.id, subject_refs=refs, slots=range(len(refs)))
    of_budget = adaptive_budget.to_json() if adaptive_budget else {}
    audit.record(session, "dataset.created", dataset.id, num_slots=dataset.num_slots, **of_budget)
    return dataset


def get(session: Session, dataset_id: str) -> Dataset:
    """Raises `DatasetUnknown`."""
    dataset = repository.dataset(session, dataset_id)
    if dataset is None:
        raise DatasetUnknown(f"There is no dataset {dataset_id!r}; GET /v1/datasets lists them.")
    return dataset


def require_kept(dataset: Dataset) -> None:
    """Raises `DatasetRetired`."""
    if dataset.retired_at is not None:
        raise DatasetRetired(f"Dataset {dataset.id} was retired, and its rows are destroyed; upload another one.")


def target_of(dataset: Dataset) -> Target | None:
    """The range of what is learned; None where that is a class."""
    return Target.from_json(dataset.target) if dataset.target else None


def network_of(session: Session, dataset: Dataset) -> PublicNetwork | None:
    """The network as mechanisms name it whose features the rows are, if there is one. Raises `NetworkUnknown`."""
    return encoders.named(encoders.get(session, dataset.network_id)) if dataset.network_id else None


def has_labels(dataset: Dataset) -> bool:
    """Return True if a record may have several of the classes, or none."""
    return dataset.schema is not None and schemas.stored(dataset.schema).separator is not None


def weight_bound_of(dataset: Dataset) -> float | None:
    """The public bound of the rows' weights; None where they have none."""
    weight = dataset.schema and schemas.stored(dataset.schema).weight
    return weight.most if weight else None


def roots(session: Session, dataset_id: str) -> list[tuple[str, str]]:
    """The roots of the dataset's rows, and of those that wait to be added, by their ids. Raises `DatasetBusy` while a
    run may write them, and destroy what they were."""
    dataset = get(session, dataset_id)
    if rows_repository.is_any_run_on(session, dataset_id=dataset_id):
        raise DatasetBusy("A run is at work on this dataset; check again when it has ended.")
    waiting = repository.waiting_additions(session, dataset_id=dataset_id)
    return [(dataset.id, dataset.digest), *((one.id, one.digest) for one in waiting)]


def count_records_of(session: Session, *, dataset_id: str, subject_ref: str) -> int:
    """Rows held about a person, at least 1. Raises `DatasetUnknown`, `SubjectUnknown`; `DatasetDamaged` where nobody
    can say that there are none."""
    dataset = get(session, dataset_id)
    count = rows_repository.count_records_of(session, dataset_id=dataset_id, subject_ref=subject_ref)
    if count == 0 and damage.is_in_records(dataset):
        raise DatasetDamaged.found(dataset_id, DamageKind.RECORD)
    if count == 0:
        raise SubjectUnknown("This dataset holds nothing about this subject.")
    return count
