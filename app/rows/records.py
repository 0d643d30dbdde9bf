"""The records of a dataset, which say whose row is in which slot, and the check values that show what was written.

Each record carries a check value: a keyed hash of its dataset, its slot and its person. One that does not match it is
damage and not absence: a look-up of its person finds nobody, and an erasure of its slot may erase somebody else.
So the records of people who are erased are verified by the run that reads them, and all of them with the rows of their
dataset, and once an hour.
"""

import datetime
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.db import Database, now, sealed
from app.db.tables import Dataset
from app.rows import damage, repository
from app.rows.manifest import BLOCK_ROWS
from app.rows.repository import StoredRecord
from lethe.contract.problems import DatasetDamaged
from lethe.contract.sets import DamageKind

_CHECK_BYTES = 8
_AT_ONCE = 10_000
_PORTION = 20_000
"""Number of records that are verified at a time, where all of them are."""
_ROUND = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of a verification: the records of a dataset match their check values up to a slot (None: all do); or
    the first that does not."""

    dataset_id: str
    to: int | None
    damage: DatasetDamaged | None


def check_value(key: bytes, slot: int, subject_ref: bytes | None) -> bytes:
    """Compute the check value of a record of the dataset whose key this is (`Keys.record_key`)."""
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
    """Say whose row is in which slot, or is going to be; those that come with their dataset are there."""
    key, slots = sealed.record_key(session, dataset_id), list(slots)
    checked = (
        (slot, ref, check_value(key, slot, None if ref is None else ref.encode()))
        for slot, ref in zip(slots, subject_refs, strict=True)
    )
    repository.add_records(session, dataset_id=dataset_id, records=checked, addition_id=addition_id)
    if addition_id is None:
        session.get_one(Dataset, dataset_id).num_rows += len(slots)


def verified_slots(session: Session, dataset_id: str, found: Sequence[StoredRecord]) -> tuple[int, ...]:
    """The slots of these records of a dataset. Raises `DatasetDamaged` for the first that is not what was written."""
    dataset = session.get_one(Dataset, dataset_id)
    error = _first_damaged(session, dataset_id, found, all_have_checks=dataset.records_have_checks)
    if error is not None:
        raise error
    return tuple(record.slot for record in found)


def first_damaged(session: Session, dataset: Dataset) -> DatasetDamaged | None:
    """The first of a dataset's records that is not what was written; it takes some microseconds for each."""
    after, some = None, None
    while some is None or len(some) == _AT_ONCE:
        some = repository.stored_records(session, dataset_id=dataset.id, after=after, limit=_AT_ONCE)
        error = _first_damaged(session, dataset.id, some, all_have_checks=dataset.records_have_checks)
        if error is not None:
            return error
        after = some[-1].slot if some else None
    return _miscounted(session, dataset)


def verify_portion(session: Session, *, at_most: int = _PORTION) -> list[Verified]:
    """Verify the records that come next in a round over all datasets, of which one begins every hour."""
    verified: list[Verified] = []
    for dataset in repository.datasets_to_verify(session, before=now(session) - _ROUND):
        if at_most <= 0:
            break
        if damage.is_in_records(dataset):
            continue
        some = repository.stored_records(
            session, dataset_id=dataset.id, after=dataset.records_verified_to, limit=at_most
        )
        error = _first_damaged(session, dataset.id, some, all_have_checks=dataset.records_have_checks)
        to = some[-1].slot if len(some) == at_most else None
        if to is None and error is None:
            error = _miscounted(session, dataset)
        verified.append(Verified(dataset_id=dataset.id, to=to, damage=error))
        at_most -= max(1, len(some))
    return verified


def note(session: Session, verified: Sequence[Verified]) -> None:
    """Note how far a round has come; a dataset of which a record is damaged is stopped."""
    for one in verified:
        if one.damage is not None:
            damage.record(session, one.damage)
            continue
        dataset = session.get_one(Dataset, one.dataset_id)
        dataset.records_verified_to = one.to
        if one.to is None:
            dataset.records_verified_at = now(session)


def give_checks(database: Database, key_of: Callable[[str], bytes]) -> None:
    """Give the records of a release before their check values, some at a time; killed anywhere, this goes on the next
    time. From then on a record without one is damaged."""
    with database.reading() as session:
        without = repository.datasets_without_checks(session)
    for dataset_id in without:
        key, after, is_done = key_of(dataset_id), None, False
        while not is_done:
            with database.writing() as session:
                some = repository.stored_records(session, dataset_id=dataset_id, after=after, limit=_AT_ONCE)
                new = {one.slot: check_value(key, one.slot, one.subject_ref) for one in some if one.check_value is None}
                repository.set_check_values(session, dataset_id=dataset_id, values=new)
                after, is_done = some[-1].slot if some else None, len(some) < _AT_ONCE
                if is_done:
                    session.get_one(Dataset, dataset_id).records_have_checks = True


def _miscounted(session: Session, dataset: Dataset) -> DatasetDamaged | None:
    """The damage where a dataset has not as many records as it says: one that is gone matches no check value."""
    if repository.count_rows(session, dataset_id=dataset.id) == dataset.num_rows:
        return None
    return DatasetDamaged.found(dataset.id, DamageKind.RECORD)


def _first_damaged(
    session: Session, dataset_id: str, found: Iterable[StoredRecord], *, all_have_checks: bool
) -> DatasetDamaged | None:
    key = sealed.record_key(session, dataset_id)
    for slot, subject_ref, stored in found:
        if stored is None and not all_have_checks:
            continue
        if stored != check_value(key, slot, subject_ref):
            return DatasetDamaged.found(dataset_id, DamageKind.RECORD, slot // BLOCK_ROWS)
    return None
