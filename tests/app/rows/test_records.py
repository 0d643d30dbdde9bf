"""Check values of records, and their verification in portions."""

import datetime
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from app.db.tables import Dataset, Record
from app.installations import Installation
from app.keys import Keys
from app.rows import records
from lethe.contract.sets import DamageKind
from tests.app.deletion import people

Make = Callable[..., dict[str, Any]]


def _damage(installation: Installation, dataset_id: str) -> str | None:
    with installation.database.reading() as session:
        error = records.first_damaged(session, session.get_one(Dataset, dataset_id))
    return error and error.kind


def test_check_values_differ_by_key_dataset_slot_and_person(installation: Installation) -> None:
    """The check value is deterministic and depends on the key, the dataset, the slot and the person, who may be
    absent."""
    one, other = installation.keys.record_key("ds_1"), installation.keys.record_key("ds_2")
    of = [
        (one, 3, b"sub_a"),
        (other, 3, b"sub_a"),
        (one, 4, b"sub_a"),
        (one, 3, b"sub_b"),
        (one, 3, None),
        (one, 3, b""),
    ]
    values = [records.check_value(*each) for each in of]
    assert len(set(values)) == len(of)
    assert {len(value) for value in values} == {8}
    assert values == [records.check_value(*each) for each in of]
    assert Keys(installation.settings.data_dir / "keys").record_key("ds_1") == one


def test_every_record_is_stored_with_its_check_value(installation: Installation, new_dataset: Make) -> None:
    """The records of an upload have valid check values. A record with no check value, or with a wrong one, is
    damaged."""
    dataset_id = new_dataset(rows=30)["id"]
    assert _damage(installation, dataset_id) is None
    with installation.database.writing() as session:
        session.execute(sa.update(Record).where(Record.slot == 7).values(check_value=None))
    assert _damage(installation, dataset_id) == "record"
    with installation.database.writing() as session:
        session.execute(sa.update(Record).where(Record.slot == 7).values(check_value=b"another."))
    assert _damage(installation, dataset_id) == "record"


def test_every_record_is_verified_once_per_round(installation: Installation) -> None:
    """The verification of records proceeds in portions across all datasets, and each portion continues where the
    previous one ended. After the last portion, no verification is due for an hour."""
    a, b = "ds_1", "ds_2"
    with installation.database.writing() as session:
        for dataset_id in (a, b):
            people.hold(session, [f"sub_{number}" for number in range(30)], dataset_id=dataset_id)

    def portion() -> list[tuple[str, int | None]]:
        with installation.database.reading() as session:
            verified = records.verify_portion(session, at_most=20)
        with installation.database.writing() as session:
            records.note(session, verified)
        return [(one.dataset_id, one.to) for one in verified]

    assert [portion() for _ in range(4)] == [[(a, 19)], [(a, None), (b, 9)], [(b, 29)], [(b, None)]]
    assert portion() == []
    with installation.database.writing() as session:
        for dataset in session.scalars(sa.select(Dataset)):
            assert dataset.records_verified_at
            dataset.records_verified_at -= datetime.timedelta(hours=1)
    assert portion() == [(a, 19)]


def test_a_lost_record_is_damage(installation: Installation, new_dataset: Make) -> None:
    """A lost record is detected by counting the dataset's records, both in the periodic check and in a recheck."""
    dataset_id = new_dataset(rows=30)["id"]
    with installation.database.writing() as session:
        session.execute(sa.delete(Record).where(Record.slot == 29))
        session.execute(sa.update(Dataset).values(records_verified_at=None, records_verified_to=None))
        [found] = records.verify_portion(session)  # before the gateway's own check can find it
    assert _damage(installation, dataset_id) == "record"
    assert found.damage is not None
    assert (found.damage.kind, found.damage.block) == (DamageKind.RECORD, None)


def test_a_portion_includes_negative_slots(installation: Installation, new_dataset: Make) -> None:
    """A portion of the verification also covers records whose slot has become negative. The damage is recorded only
    once."""
    dataset_id = new_dataset(rows=30)["id"]
    with installation.database.writing() as session:
        session.execute(sa.update(Record).where(Record.slot == 3).values(slot=-5))
        session.execute(sa.update(Dataset).values(records_verified_at=None, records_verified_to=None))
    for _ in range(2):
        with installation.database.reading() as session:
            verified = records.verify_portion(session)
        with installation.database.writing() as session:
            records.note(session, verified)
            assert session.get_one(Dataset, dataset_id).damage is not None
    assert verified == []
