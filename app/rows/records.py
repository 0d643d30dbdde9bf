"""A dataset's records, which identify each slot's person, and their check values, which reveal damage.

The check value of a record is a keyed hash of its dataset, slot and person. A mismatch means damage, not absence: a
lookup would miss the person, and erasing the slot could erase another person's row. Therefore a run verifies the
records that it erases, and all records are verified with their dataset's rows and once an hour.
"""

import datetime
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app import telemetry
from app.audit import service as audit
from app.db import bulk, now, sealed, tables
from app.rows import blocks, repository, row_store
from lethe.contract import problems, sets

_CHECK_BYTES = 8
_AT_ONCE = 10_000
_PORTION = 20_000
"""Number of records verified at a time while all records are being verified."""
_ROUND = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRecords:
    """Result of a verification: `to` is the slot up to which a dataset's records match their check values, None if all
    match; `damage` describes the first mismatch, if any."""

    dataset_id: str
    to: int | None
    damage: problems.DatasetDamaged | None


def check_value(key: bytes, slot: int, subject_ref: bytes | None) -> bytes:
    """Return the check value of a record. `key` is the dataset's key (`Keys.record_key`)."""
    content = f"{slot}".encode() if subject_ref is None else f"{slot} ".encode() + subject_ref
    return hashlib.blake2b(content, key=key, digest_size=_CHECK_BYTES, person=b"lethe.record").digest()


def add(
    session: Session,
    *,
    dataset_id: str,
    subject_refs: Iterable[str | None],
    slots: Iterable[int],
    addition_id: str | None = None,
) -> None:
    """Add the records of `slots`. With `addition_id`, the rows have yet to be written; otherwise they came with the
    dataset and count as its rows."""
    key, slots = sealed.record_key(session, dataset_id), list(slots)
    rows = (
        (dataset_id, slot, ref, addition_id, check_value(key, slot, None if ref is None else ref.encode()))
        for slot, ref in zip(slots, subject_refs, strict=True)
    )
    columns = ("dataset_id", "slot", "subject_ref", "addition_id", "check_value")
    bulk.insert(session, tables.Record, columns=columns, rows=rows)
    if addition_id is None:
        session.get_one(tables.Dataset, dataset_id).num_rows += len(slots)


def verified_slots(
    session: Session, dataset_id: str, stored_records: Sequence[repository.StoredRecord]
) -> tuple[int, ...]:
    """Return the slots of a dataset's records, or raise `DatasetDamaged` for the first damaged record."""
    error = _first_damaged(session, dataset_id, stored_records)
    if error is not None:
        raise error
    return tuple(record.slot for record in stored_records)


def first_damaged(session: Session, dataset: tables.Dataset) -> problems.DatasetDamaged | None:
    """Return the damage to a dataset's first damaged record, or None. This takes microseconds per record."""
    after, batch = None, None
    while batch is None or len(batch) == _AT_ONCE:
        batch = repository.next_records(session, dataset_id=dataset.id, after=after, limit=_AT_ONCE)
        error = _first_damaged(session, dataset.id, batch)
        if error is not None:
            return error
        after = batch[-1].slot if batch else None
    return _count_damage(session, dataset)


def verify_portion(session: Session, *, at_most: int = _PORTION) -> list[VerifiedRecords]:
    """Continue the hourly pass over all datasets by verifying up to `at_most` more records."""
    verified: list[VerifiedRecords] = []
    for dataset in repository.datasets_to_verify(session, before=now(session) - _ROUND):
        if at_most <= 0:
            break
        if is_in_records(dataset):
            continue
        batch = repository.next_records(
            session, dataset_id=dataset.id, after=dataset.records_verified_to, limit=at_most
        )
        error = _first_damaged(session, dataset.id, batch)
        to = batch[-1].slot if len(batch) == at_most else None
        if to is None and error is None:
            error = _count_damage(session, dataset)
        verified.append(VerifiedRecords(dataset_id=dataset.id, to=to, damage=error))
        at_most -= max(1, len(batch))
    return verified


def note(session: Session, verified: Sequence[VerifiedRecords]) -> None:
    """Record the progress of a pass, and block each dataset in which a damaged record was found."""
    for result in verified:
        if result.damage is not None:
            record(session, result.damage)
            continue
        dataset = session.get_one(tables.Dataset, result.dataset_id)
        dataset.records_verified_to = result.to
        if result.to is None:
            dataset.records_verified_at = now(session)


def _count_damage(session: Session, dataset: tables.Dataset) -> problems.DatasetDamaged | None:
    """Return the damage if records and rows differ in number, which check values cannot reveal; otherwise None."""
    if repository.count_rows(session, dataset_id=dataset.id) == dataset.num_rows:
        return None
    return problems.DatasetDamaged.found(dataset.id, sets.DamageKind.RECORD)


def _first_damaged(
    session: Session, dataset_id: str, stored_records: Iterable[repository.StoredRecord]
) -> problems.DatasetDamaged | None:
    key = sealed.record_key(session, dataset_id)
    for slot, subject_ref, stored in stored_records:
        if stored != check_value(key, slot, subject_ref):
            return problems.DatasetDamaged.found(dataset_id, sets.DamageKind.RECORD, slot // blocks.BLOCK_ROWS)
    return None


def record(session: Session, error: problems.DatasetDamaged) -> None:
    """Block the dataset that the damaged rows belong to, unless only a batch is damaged. The first damage stays on
    record, except that damage to a record replaces damage of any other kind."""
    dataset = repository.dataset_of_rows(session, error.rows_id)
    if dataset is None or is_in_records(dataset) or is_in_batch(session, error):
        return
    if dataset.damaged_at is not None and error.kind is not sets.DamageKind.RECORD:
        return
    detail = _detail(error)
    dataset.damaged_at, dataset.damage = dataset.damaged_at or now(session), detail
    tenant_id, action = dataset.tenant_id, "dataset.damaged"
    deed = audit.Deed(tenant_id=tenant_id, actor=audit.SERVICE, action=action, object_id=dataset.id, detail=detail)
    audit.record_all(session, [deed])
    telemetry.logger().error("registry.dataset_damaged", dataset_id=dataset.id, **detail)


def recheck(session: Session, dataset: tables.Dataset, error: problems.DatasetDamaged | None) -> None:
    """Record the result of a requested recheck of a dataset: sound if `error` is None or affects only a batch,
    otherwise still damaged."""
    if error is None or is_in_batch(session, error):
        dataset.damaged_at, dataset.damage = None, None
        dataset.attempts, dataset.not_before = 0, None
    else:
        dataset.damaged_at, dataset.damage = dataset.damaged_at or now(session), _detail(error)
    audit.record(session, "dataset.rechecked", dataset.id, damage=dataset.damage)


def is_in_records(dataset: tables.Dataset) -> bool:
    """Return True if any of a dataset's records are damaged, so that a person not found there may still have rows."""
    return dataset.damage is not None and dataset.damage["kind"] == sets.DamageKind.RECORD


def is_in_batch(session: Session, error: problems.DatasetDamaged) -> bool:
    """Return True if the content of a waiting batch is damaged, in which case the run that was to write it drops the
    addition. A missing part blocks the dataset instead: the rows may have been restored from another backup."""
    addition = session.get(tables.Addition, error.rows_id)
    is_waiting = addition is not None and addition.status == sets.AdditionStatus.PENDING
    return is_waiting and error.kind in (sets.DamageKind.BLOCK, sets.DamageKind.KEY, sets.DamageKind.MANIFEST)


def first_found(rows: row_store.RowStore, roots: list[tuple[str, str]]) -> problems.DatasetDamaged | None:
    """Open all rows of the given (rows id, root) pairs, and return the first damage, if any."""
    try:
        for rows_id, root in roots:
            rows.check(rows_id, root)
    except problems.DatasetDamaged as error:
        return error
    return None


def _detail(error: problems.DatasetDamaged) -> dict[str, Any]:
    return {"kind": error.kind.value, "rows": error.rows_id, "block": error.block}
