"""Deletions go before training, whatever their order of arrival."""

from collections.abc import Callable
from typing import Any

import pytest

from app.installations import Installation
from app.unlearning import due_repository, queue, service as unlearning
from app.unlearning.queue import ClaimedRun
from worker import runner

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Claim = Callable[..., ClaimedRun | None]


@pytest.fixture
def claim(installation: Installation) -> Claim:
    def take(*, deletions_only: bool = False) -> ClaimedRun | None:
        with installation.database.writing() as session:
            return queue.claim(session, worker="w", lease_seconds=30, max_requests=500, deletions_only=deletions_only)

    return take


def test_a_deletion_worker_does_not_train(
    installation: Installation, new_dataset: Make, new_model: Make, forget: Make, claim: Claim
) -> None:
    """A worker that serves only deletions does not claim models waiting to be trained, but it does claim a request."""
    new_model(new_dataset("waits")["id"])
    with installation.database.reading() as session:
        assert due_repository.anything_to_do(session)
        assert not due_repository.anything_to_do(session, deletions_only=True)
    assert claim(deletions_only=True) is None
    asked = new_dataset("asked")
    forget("p1", dataset_ids=[asked["id"]])
    claimed = claim(deletions_only=True)
    assert claimed
    assert (claimed.kind, claimed.dataset_id, claimed.gives_way) == ("erase", asked["id"], False)


def test_unlearning_goes_before_training(
    installation: Installation, new_dataset: Make, new_model: Make, forget: Make, claim: Claim
) -> None:
    """A model created after rows were erased is trained only after the dataset's other models have unlearned those
    rows."""
    dataset = new_dataset()
    first, second = new_model(dataset["id"]), new_model(dataset["id"])
    while runner.run_next(installation, worker="w"):
        pass
    forget("p1")
    assert runner.run_next(installation, worker="w")
    new_model(dataset["id"])
    claimed = claim()
    assert claimed
    assert claimed.model_id in (first["id"], second["id"])
    assert claimed.kind == "unlearn"


def test_a_run_from_scratch_for_a_deletion_does_not_give_way(
    new_dataset: Make, new_model: Make, forget: Make, claim: Claim
) -> None:
    """A run from scratch gives way to deletions, unless a deletion request is waiting for that run itself."""
    new_model(new_dataset("nobody asked")["id"])
    claimed = claim()
    assert claimed
    assert (claimed.kind, claimed.gives_way) == ("learn", True)
    asked = new_dataset("somebody asked")
    new_model(asked["id"])
    forget("p1", dataset_ids=[asked["id"]])
    claimed = claim(deletions_only=True)
    assert claimed
    assert (claimed.kind, claimed.gives_way) == ("learn", False)


def test_a_training_run_gives_way_and_continues(
    installation: Installation, new_dataset: Make, new_model: Make, forget: Make, get: Get
) -> None:
    """A worker that has begun training pauses for a deletion on another dataset and then continues. Both runs are
    published, the deletion first, and no step is repeated."""
    asked = new_dataset("asked")
    new_model(asked["id"])
    assert runner.run_next(installation, worker="w")
    learning = new_model(new_dataset("to learn")["id"], learn_steps=5000)
    request = forget("p1", dataset_ids=[asked["id"]], regulation="ccpa")  # due later than the model
    assert runner.run_next(installation, worker="w")
    forgot, learned, _ = get("/runs")["items"]
    assert (learned["model_id"], learned["status"], learned["steps_done"]) == (learning["id"], "published", 5000)
    assert (forgot["kind"], forgot["status"]) == ("unlearn", "published")
    assert learned["started_at"] < forgot["started_at"] < forgot["finished_at"] < learned["finished_at"]
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    assert not runner.run_next(installation, worker="w")


def test_both_runs_are_handed_back_if_a_worker_dies_during_suspended_training(
    installation: Installation, new_dataset: Make, new_model: Make, forget: Make, get: Get, claim: Claim
) -> None:
    """If a worker dies while its training run is suspended for a deletion, both runs are handed back and repeated."""
    new_model(new_dataset("to learn")["id"])
    assert claim()
    asked = new_dataset("asked")
    request = forget("p1", dataset_ids=[asked["id"]])
    assert claim(deletions_only=True)
    with installation.database.writing() as session:
        assert unlearning.take_back(session, worker="w") == 2
    while runner.run_next(installation, worker="w"):
        pass
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    assert sorted(run["status"] for run in get("/runs")["items"]) == ["abandoned"] * 2 + ["published"] * 2
