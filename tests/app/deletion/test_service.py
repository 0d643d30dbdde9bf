from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from app.access.service import DEFAULT_TENANT
from app.db.tables import DeletionRequest, Model, Record
from app.deletion import service as deletion
from app.installations import Installation
from app.unlearning import queue, service as unlearning
from lethe.contract.problems import DatasetUnknown, RequestUnknown
from lethe.contract.tenants import Policy
from tests.app.deletion import people
from tests.stored import slots_of
from worker import edits

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


def test_a_request_about_an_unknown_dataset_is_refused(installation: Installation) -> None:
    """A request that names an unknown dataset is refused and not stored."""
    with pytest.raises(DatasetUnknown), installation.database.writing() as session:
        people.ask(session, "sub_a", Policy(), dataset_ids=["ds_0"])
    with installation.database.reading() as session:
        assert session.scalars(sa.select(DeletionRequest)).all() == []
        with pytest.raises(RequestUnknown):
            deletion.get(session, "dr_0")


def test_nulling_a_row_deletes_its_reference(
    installation: Installation, new_dataset: Make, forget: Make, work: Callable[[], int]
) -> None:
    """When a row is nulled, its reference to a person is deleted, but all other rows keep their references."""
    dataset = new_dataset(rows=10)
    others = [f"p{row}" for row in range(10) if row != 3]
    slots = slots_of(installation, dataset["id"], *others)
    forget("p3")
    work()
    with installation.database.reading() as session:
        references = dict(session.execute(sa.select(Record.slot, Record.subject_ref)).all())
    refs = [installation.keys.subject_ref(DEFAULT_TENANT, subject_id) for subject_id in others]
    assert references == dict(zip(slots, refs, strict=True))


def test_a_request_does_not_wait_for_a_failed_model(
    installation: Installation, new_dataset: Make, new_model: Make, forget: Make, get: Get
) -> None:
    """A request does not wait for a model whose initial training fails, because such a model has never published
    anything about the person."""
    model = new_model(new_dataset()["id"])
    request = forget("p1")
    for _ in range(3):
        with installation.database.writing() as session:
            session.get_one(Model, model["id"]).not_before = None  # skips the pause between attempts
            run = queue.claim(session, worker="test", lease_seconds=60, max_requests=10)
        assert run
        edits.edited(installation, run)
        with installation.database.writing() as session:
            unlearning.fail(session, run_id=run.run_id, error_code="weights_unreadable")
    assert (get(f"/models/{model['id']}")["status"], get(f"/models/{model['id']}")["error_code"]) == (
        "failed",
        "weights_unreadable",
    )
    done = get(f"/deletion-requests/{request['id']}")
    assert (done["status"], done["outcome"]) == ("completed", "forgotten")
    assert [(owed["status"], owed["certificate_id"]) for owed in done["models"]] == [("nothing_published", None)]
