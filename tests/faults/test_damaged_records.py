"""A record whose keyed hash does not match its own check value is damaged and does not count as absent."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import installations
from app.access.service import DEFAULT_TENANT
from app.config import Settings
from app.db.tables import Dataset, Erasure, Record
from app.deletion import completion, service as deletion
from app.installations import Installation
from app.operations import periodic_jobs
from lethe.contract.tenants import Policy
from tests.app.deletion import people as persons
from tests.conftest import people
from tests.stored import flipped, rows_of, slots_of
from worker import runner

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
RECORD: Any = Record.__table__


class Bit:
    """A flipped bit in a column of a person's record, until it is repaired."""

    def __init__(self, installation: Installation, dataset_id: str, slot: int, column: str) -> None:
        self._installation, self._dataset_id, self._slot, self._column = installation, dataset_id, slot, column
        with installation.database.reading() as session:
            query = sa.select(RECORD.c[column]).where(RECORD.c.dataset_id == dataset_id, RECORD.c.slot == slot)
            self._was = session.connection().execute(query).scalar_one()
        match self._was:
            case str():
                self._is: Any = flipped(self._was.encode(), 30).decode()
            case bytes():
                self._is = flipped(self._was, 3)
            case _:
                self._is = self._was ^ 1024
        self._write(slot, self._is)

    def mend(self) -> None:
        self._write(self._is if self._column == "slot" else self._slot, self._was)

    def _write(self, slot: int, value: object) -> None:
        mine = sa.and_(RECORD.c.dataset_id == self._dataset_id, RECORD.c.slot == slot)
        with self._installation.database.writing() as session:
            session.connection().execute(sa.update(RECORD).where(mine).values({self._column: value}))


def _recheck(gateway: TestClient, dataset_id: str) -> Any:
    answer = gateway.post(f"/v1/datasets/{dataset_id}/recheck")
    assert answer.status_code == 200, answer.text
    return answer.json()["damage"]


def _verify(installation: Installation) -> None:
    """Verify all records once, regardless of when the gateway's own job last began verifying them."""
    with installation.database.writing() as session:
        session.execute(sa.update(Dataset).values(records_verified_at=None, records_verified_to=None))
    periodic_jobs.verify_records(installation)


def _ref(installation: Installation, subject_id: str) -> str:
    return installation.keys.subject_ref(DEFAULT_TENANT, subject_id)


@pytest.mark.parametrize("found_by", ["recheck", "chore"])
@pytest.mark.parametrize("column", ["subject_ref", "slot", "check_value"])
def test_a_flipped_bit_does_not_count_as_absence(
    column: str,
    found_by: str,
    installation: Installation,
    settings: Settings,
    gateway: TestClient,
    new_dataset: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """A flipped bit in a record is detected and reported by name. Until the record is repaired and rechecked, no person
    is erased and no request completes with the outcome that nothing was held, even after a restart. Afterwards all
    requests are served."""
    dataset_id = new_dataset(rows=30)["id"]
    slots = slots_of(installation, dataset_id, "p3", "p4")
    bit = Bit(installation, dataset_id, slots[0], column)
    if found_by == "recheck":
        _recheck(gateway, dataset_id)
    else:
        _verify(installation)
    found = get(f"/datasets/{dataset_id}")["damage"]
    assert (found["kind"], found["rows"]) == ("record", dataset_id)
    looked_up = gateway.get(f"/v1/datasets/{dataset_id}/subjects/nobody")
    assert (looked_up.status_code, looked_up.json()["code"]) == (409, "dataset_damaged")
    strict = gateway.post("/v1/deletion-requests?strict=true", json={"subject_id": "nobody"})
    assert (strict.status_code, strict.json()["status"]) == (202, "accepted")
    asked = {who: forget(who)["id"] for who in ("p3", "p4", "stranger")}
    with installations.opened(settings) as again:
        for _ in range(2):
            periodic_jobs.settle(again)
            _verify(again)
            assert not runner.run_next(again, worker="w")
    assert {get(f"/deletion-requests/{one}")["status"] for one in asked.values()} == {"accepted"}
    assert _recheck(gateway, dataset_id) == found

    bit.mend()
    assert (work(), get(f"/datasets/{dataset_id}")["damage"]) == (0, found)
    assert _recheck(gateway, dataset_id) is None
    periodic_jobs.settle(installation)
    assert work() == 1
    periodic_jobs.settle(installation)
    ended = {who: get(f"/deletion-requests/{one}") for who, one in asked.items()}
    assert {one["status"] for one in ended.values()} == {"completed"}
    outcomes = {who: one["outcome"] for who, one in ended.items()}
    assert outcomes == {"p3": "forgotten", "p4": "forgotten", "stranger": "nothing_held"}
    assert get(f"/deletion-requests/{strict.json()['id']}")["outcome"] == "nothing_held"
    assert not rows_of(installation, dataset_id).features[slots].any()


def test_an_undecodable_reference_is_damage(
    installation: Installation, gateway: TestClient, new_dataset: Make, get: Get
) -> None:
    """A flipped bit that turns a reference into invalid UTF-8 is detected like any other flipped bit."""
    dataset_id = new_dataset(rows=30)["id"]
    if installation.database.engine.dialect.name == "postgresql":
        pytest.skip("PostgreSQL takes no such text from a client")
    with installation.database.writing() as session:
        session.execute(sa.text("UPDATE records SET subject_ref = CAST(X'7375625fe4' AS TEXT) WHERE slot = 3"))
    _verify(installation)
    assert get(f"/datasets/{dataset_id}")["damage"]["kind"] == "record"
    assert _recheck(gateway, dataset_id)["kind"] == "record"


@pytest.mark.parametrize("column", ["slot", "check_value"])
def test_a_run_verifies_the_records_that_it_erases(
    column: str, installation: Installation, new_dataset: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """If a record to be erased was changed, the run halts the dataset and leaves all rows unchanged."""
    dataset_id = new_dataset(rows=30)["id"]
    before = rows_of(installation, dataset_id)
    asked = forget("p3")["id"]
    bit = Bit(installation, dataset_id, *slots_of(installation, dataset_id, "p3"), column)
    assert work() == 0
    assert get(f"/datasets/{dataset_id}")["damage"]["kind"] == "record"
    assert get(f"/deletion-requests/{asked}")["status"] == "accepted"
    assert (rows_of(installation, dataset_id).features == before.features).all()
    with installation.database.reading() as session:
        assert session.scalars(sa.select(Erasure.revision)).all() == [None]
    bit.mend()


def test_a_run_verifies_reserved_slots(
    installation: Installation, gateway: TestClient, new_dataset: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """If an added row's slot differs from the one reserved for it, the run halts the dataset before writing
    anything."""
    dataset_id = new_dataset(rows=30)["id"]
    forget("p3")
    assert work() == 1
    file = {"file": ("p.npz", people("new"))}
    assert gateway.post(f"/v1/datasets/{dataset_id}/records", files=file).status_code == 202
    before = rows_of(installation, dataset_id)
    Bit(installation, dataset_id, *slots_of(installation, dataset_id, "new"), "slot")
    assert work() == 0
    assert get(f"/datasets/{dataset_id}")["damage"]["kind"] == "record"
    assert (rows_of(installation, dataset_id).features == before.features).all()


def test_an_earlier_request_does_not_complete_during_damage(
    installation: Installation, gateway: TestClient, new_dataset: Make, work: Callable[[], int]
) -> None:
    """When its grace period ends, a request made before damage was found does not complete with the outcome that
    nothing was held. Once the record is repaired, the person is found and forgotten."""
    patient = Policy(grace_seconds=3600)
    dataset_id = new_dataset(rows=30)["id"]
    [slot] = slots_of(installation, dataset_id, "p3")
    bit = Bit(installation, dataset_id, slot, "subject_ref")
    with installation.database.writing() as session:
        persons.obey(session, patient)
        request_id = persons.ask(session, _ref(installation, "p3"), patient).request.id
    _verify(installation)
    with installation.database.writing() as session:
        persons.later(session, datetime.timedelta(hours=1))
        assert completion.settle(session) == 0
        assert deletion.get(session, request_id).status == "accepted"
    bit.mend()
    assert _recheck(gateway, dataset_id) is None
    periodic_jobs.settle(installation)
    assert work() == 1
    with installation.database.reading() as session:
        found = deletion.get(session, request_id)
        assert (found.status, found.outcome) == ("completed", "forgotten")
    assert not rows_of(installation, dataset_id).features[slot].any()


def test_a_request_waits_for_damaged_datasets(
    installation: Installation, gateway: TestClient, new_dataset: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """A person who was erased from an intact dataset does not count as forgotten until a damaged dataset has been
    repaired and the person has been erased from it too. A request for only the intact dataset completes."""
    damaged, sound = new_dataset(rows=30)["id"], new_dataset(rows=30, seed=1)["id"]
    [slot], [in_sound] = slots_of(installation, damaged, "p3"), slots_of(installation, sound, "p3")
    bit = Bit(installation, damaged, slot, "subject_ref")
    asked, narrow = forget("p3")["id"], forget("p4", dataset_ids=[sound])["id"]
    _verify(installation)
    assert work() == 1
    periodic_jobs.settle(installation)
    assert get(f"/deletion-requests/{narrow}")["outcome"] == "forgotten"
    assert forget("stranger", dataset_ids=[sound])["outcome"] == "nothing_held"
    assert get(f"/deletion-requests/{asked}")["completed_at"] is None
    assert not rows_of(installation, sound).features[in_sound].any()
    bit.mend()
    assert _recheck(gateway, damaged) is None
    periodic_jobs.settle(installation)
    assert work() == 1
    periodic_jobs.settle(installation)
    assert get(f"/deletion-requests/{asked}")["outcome"] == "forgotten"
    assert not rows_of(installation, damaged).features[slot].any()


def test_no_absence_is_signed_during_damage(
    installation: Installation, gateway: TestClient, new_dataset: Make, forget: Make, get: Get
) -> None:
    """While damage leaves it uncertain whether anything was held, a completed request gets no signed statement that
    nothing was held."""
    dataset_id = new_dataset(rows=30)["id"]
    asked = forget("stranger")["id"]
    assert get(f"/deletion-requests/{asked}/certificate")["nothing_held"] is not None
    bit = Bit(installation, dataset_id, 3, "subject_ref")
    _verify(installation)
    assert get(f"/deletion-requests/{asked}/certificate")["nothing_held"] is None
    bit.mend()
    assert _recheck(gateway, dataset_id) is None
    assert get(f"/deletion-requests/{asked}/certificate")["nothing_held"] is not None


def test_an_app_sees_no_difference_during_damage(
    installation: Installation, gateway: TestClient, new_dataset: Make
) -> None:
    """While records are damaged, an API key that may not see who is held gets the same responses for a held person and
    an unknown person."""
    dataset_id = new_dataset(rows=30)["id"]
    Bit(installation, dataset_id, 3, "subject_ref")
    _verify(installation)
    key = gateway.post("/v1/api-keys", json={"name": "app", "scopes": ["requests:write", "requests:read"]}).json()[
        "key"
    ]
    app = {"Authorization": f"Bearer {key}"}

    def seen(subject_id: str) -> dict[str, Any]:
        made = gateway.post("/v1/deletion-requests", json={"subject_id": subject_id}, headers=app)
        assert made.status_code == 202, made.text
        periodic_jobs.settle(installation)
        shown = gateway.get(f"/v1/deletion-requests/{made.json()['id']}", headers=app).json()
        return {name: value is None if _differs_anyhow(name) else value for name, value in shown.items()}

    assert seen("p4") == seen("p3") == seen("stranger")


def _differs_anyhow(name: str) -> bool:
    return name == "id" or name.endswith("_at") or name in {"clock", "subject_ref"}


def test_rows_added_by_consent_are_not_erased(
    installation: Installation, gateway: TestClient, new_dataset: Make, forget: Make
) -> None:
    """If a person gives consent after making a request, rows that the request could not find because of damage are not
    erased once the damage is repaired."""
    dataset_id = new_dataset(rows=30)["id"]
    bit = Bit(installation, dataset_id, *slots_of(installation, dataset_id, "p3"), "subject_ref")
    _verify(installation)
    asked = forget("p3")["id"]
    bit.mend()
    consent = {"subject_id": "p3", "reason": "consent_given"}
    assert gateway.post("/v1/suppressions:lift", json=consent).json() == {"num_lifted": 1}
    assert _recheck(gateway, dataset_id) is None
    periodic_jobs.settle(installation)
    with installation.database.reading() as session:
        assert deletion.get(session, asked).status == "completed"
        assert session.scalars(sa.select(Erasure)).all() == []


def test_a_damaged_record_outranks_other_damage(
    installation: Installation, gateway: TestClient, new_dataset: Make, forget: Make, get: Get
) -> None:
    """A damaged record is reported instead of a damaged block that was found earlier, because the damaged record keeps
    requests open."""
    dataset_id = new_dataset(rows=30)["id"]
    [block] = (installation.settings.data_dir / "blocks").glob(f"{dataset_id}.*.sealed")
    block.write_bytes(flipped(block.read_bytes(), 20))
    assert _recheck(gateway, dataset_id)["kind"] == "block"
    assert forget("stranger")["outcome"] == "nothing_held"
    Bit(installation, dataset_id, 3, "subject_ref")
    _verify(installation)
    assert get(f"/datasets/{dataset_id}")["damage"]["kind"] == "record"
    assert forget("stranger")["status"] == "accepted"
