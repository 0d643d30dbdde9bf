"""Rows that are not those on record: a dataset that is damaged says so until somebody puts that right.

No run is claimed for it meanwhile. What is noted names a file, or a record's place, and tells nothing of whose it is.
"""

from typing import Any

from sqlalchemy.orm import Session

from app import telemetry
from app.audit import service as audit
from app.db import now
from app.db.tables import Dataset
from app.rows import repository
from app.rows.row_store import RowStore
from lethe.contract.problems import DatasetDamaged
from lethe.contract.sets import DamageKind


def record(session: Session, error: DatasetDamaged) -> None:
    """Stop the dataset whose rows, or rows to be added, these are. Once: what was found first stays on record, but for
    a damaged record, which stays there of all kinds."""
    dataset = repository.dataset_of_rows(session, error.rows_id)
    if dataset is None or is_in_records(dataset):
        return
    if dataset.damaged_at is not None and error.kind is not DamageKind.RECORD:
        return
    found = _detail(error)
    dataset.damaged_at, dataset.damage = dataset.damaged_at or now(session), found
    _audit(session, dataset, "dataset.damaged", found)
    telemetry.logger().error("registry.dataset_damaged", dataset_id=dataset.id, **found)


def recheck(session: Session, dataset: Dataset, error: DatasetDamaged | None) -> None:
    """Note what was found when everything was opened again, on somebody's word that it can be: nothing, or an error."""
    if error is None:
        dataset.damaged_at, dataset.damage = None, None
        dataset.attempts, dataset.not_before = 0, None
    else:
        dataset.damaged_at, dataset.damage = dataset.damaged_at or now(session), _detail(error)
    audit.record(session, "dataset.rechecked", dataset.id, damage=dataset.damage)


def is_in_records(dataset: Dataset) -> bool:
    """Return True if records of a dataset are damaged: somebody who is not found in it may be held all the same."""
    return dataset.damage is not None and dataset.damage["kind"] == DamageKind.RECORD


def first_found(rows: RowStore, roots: list[tuple[str, str]]) -> DatasetDamaged | None:
    """The first thing that is not as these rows' roots say."""
    try:
        for rows_id, root in roots:
            rows.check(rows_id, root)
    except DatasetDamaged as error:
        return error
    return None


def _detail(error: DatasetDamaged) -> dict[str, Any]:
    return {"kind": error.kind.value, "rows": error.rows_id, "block": error.block}


def _audit(session: Session, dataset: Dataset, action: str, detail: dict[str, Any]) -> None:
    deed = audit.Deed(
        tenant_id=dataset.tenant_id, actor=audit.SERVICE, action=action, object_id=dataset.id, detail=detail
    )
    audit.record_all(session, [deed])
