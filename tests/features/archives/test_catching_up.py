"""Requests remembered outside the database are restored from there exactly once."""

import json
from collections.abc import Callable
from typing import Any

from app.db.tables import DeletionRequest, Suppression
from app.deletion.remembered import Remembered
from app.features.archives.catching_up import Again, catch_up
from app.installations import Installation
from app.journal import repository

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


def _remembered(installation: Installation) -> Remembered:
    """Return the only remembered request."""
    with installation.database.reading() as session:
        [(_, _, request)] = repository.telling_events(session, after=0, limit=2)
    return request


def test_tombstones_round_trip_through_json(installation: Installation, new_dataset: Make, forget: Make) -> None:
    """Each field of a tombstone is read back from JSON unchanged, and times keep their time zone."""
    dataset = new_dataset()
    asked = forget("p1", dataset_ids=[dataset["id"]])
    remembered = _remembered(installation)
    assert remembered.id == asked["id"]
    assert Remembered.from_json(remembered.to_json()) == remembered
    assert remembered.dataset_ids == [dataset["id"]]


def test_catching_up_is_idempotent(installation: Installation, new_dataset: Make, forget: Make) -> None:
    """An unknown request is created under its own id, and its person is suppressed. A known request is left
    unchanged."""
    new_dataset()
    forget("p1")
    known = _remembered(installation)
    unknown = Remembered.from_json(known.to_json() | {"id": "dr_lost", "subject_ref": "sub_lost"})
    with installation.database.writing() as session:
        assert catch_up(session, [known, unknown]) == Again(made=1, changed=0)
    with installation.database.writing() as session:
        assert catch_up(session, [known, unknown]) == Again(made=0, changed=0)
        made = session.get_one(DeletionRequest, "dr_lost")
        assert (made.status, made.outcome, made.due_at) == ("completed", "nothing_held", known.due_at)
        assert session.get(Suppression, ("sub_lost", "*"))


def test_withdrawn_requests_are_not_created(installation: Installation, new_dataset: Make, forget: Make) -> None:
    """An unknown request that was withdrawn is not created. A withdrawn request that is still open in the database is
    withdrawn there too."""
    new_dataset()
    asked = forget("p1")
    known = _remembered(installation).to_json()
    cancelled = Remembered.from_json(known | {"status": "cancelled"})
    unknown = Remembered.from_json(known | {"id": "dr_lost", "status": "cancelled"})
    with installation.database.writing() as session:
        assert catch_up(session, [cancelled, unknown]) == Again(made=0, changed=1)
        assert session.get_one(DeletionRequest, asked["id"]).status == "cancelled"
        assert session.get(DeletionRequest, "dr_lost") is None


def test_a_restored_request_has_its_aliases(
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    get: Get,
) -> None:
    """A tombstone contains all identifiers of a request, so that the restored request erases the person under each of
    them."""
    dataset = new_dataset(rows=40, rows_each=2)
    new_model(dataset["id"])
    assert work() == 1
    made = forget("p1", aliases=["p2"])
    with installation.database.writing() as session:
        *_, (_, _, remembered) = repository.telling_events(session, after=0, limit=500)
        again = Remembered.from_json(json.loads(json.dumps(remembered.to_json())) | {"id": "dr_again"})
        assert catch_up(session, [again]).made == 1
    assert work() == 1
    found = get("/deletion-requests/dr_again")
    assert (found["alias_refs"], found["outcome"]) == (made["alias_refs"], "forgotten")
    assert get(f"/datasets/{dataset['id']}")["num_records"] == 36
    without = remembered.to_json()
    del without["alias_refs"]
    assert Remembered.from_json(without).subject_refs == (made["subject_ref"],)
