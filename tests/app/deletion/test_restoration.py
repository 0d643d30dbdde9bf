"""What is remembered of a request apart from the database brings it back, once."""

from collections.abc import Callable
from typing import Any

from app.db.tables import DeletionRequest, Suppression
from app.deletion.restoration import Again, Remembered, catch_up
from app.installations import Installation
from app.journal import repository

Make = Callable[..., dict[str, Any]]


def _remembered(installation: Installation) -> Remembered:
    """The one request that there is."""
    with installation.database.reading() as session:
        [(_, _, request)] = repository.telling_events(session, after=0, limit=2)
    return request


def test_what_is_remembered_survives_json(installation: Installation, new_dataset: Make, forget: Make) -> None:
    """Each field comes back as it was, times with their zone."""
    dataset = new_dataset()
    asked = forget("p1", dataset_ids=[dataset["id"]])
    remembered = _remembered(installation)
    assert remembered.id == asked["id"]
    assert Remembered.from_json(remembered.to_json()) == remembered
    assert remembered.dataset_ids == [dataset["id"]]


def test_catching_up_twice_is_once(installation: Installation, new_dataset: Make, forget: Make) -> None:
    """A request that is not known is made under its own id, and its person suppressed; one that is known is left."""
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


def test_whoever_withdrew_is_not_asked_for(installation: Installation, new_dataset: Make, forget: Make) -> None:
    """A request that is not known and was withdrawn is not made; one that is open here is withdrawn here."""
    new_dataset()
    asked = forget("p1")
    known = _remembered(installation).to_json()
    cancelled = Remembered.from_json(known | {"status": "cancelled"})
    unknown = Remembered.from_json(known | {"id": "dr_lost", "status": "cancelled"})
    with installation.database.writing() as session:
        assert catch_up(session, [cancelled, unknown]) == Again(made=0, changed=1)
        assert session.get_one(DeletionRequest, asked["id"]).status == "cancelled"
        assert session.get(DeletionRequest, "dr_lost") is None
