"""Runs that fail or whose worker dies are handed back, repeated, and reported to the requests that wait for them."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from app.db import now
from app.db.tables import Model
from app.installations import Installation
from app.unlearning import service as unlearning
from app.unlearning.queue import ClaimedRun
from tests.app.unlearning.held import forget_pauses, publish, status_of
from tests.stored import slots_of

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Claim = Callable[..., ClaimedRun | None]


def test_a_failed_run_backs_off_and_is_tried_again(
    claim: Claim, live: Any, forget: Make, get: Get, installation: Installation
) -> None:
    """A failed run is repeated after 0.5 s, then after 1 s, 2 s and so on up to a minute, and no request is lost."""
    request = forget("p3")
    pauses = []
    for _ in range(10):
        claimed = claim()
        assert claimed
        with installation.database.writing() as session:
            before = now(session)
            unlearning.fail(session, run_id=claimed.run_id, error_code="OSError")
        with installation.database.writing() as session:
            model = session.scalars(sa.select(Model)).one()
            assert model.not_before
            pauses.append((model.not_before - before).total_seconds())
            assert (model.status, model.error_code) == ("live", "OSError")
            model.not_before += datetime.timedelta(hours=1)  # regardless of the speed of this machine
        assert get(f"/deletion-requests/{request['id']}")["status"] == "accepted"
        _confirm_by_an_erase_run(claim, installation)
        assert claim() is None
        forget_pauses(installation)
    assert all(0 <= pause - due < 3 for pause, due in zip(pauses, [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60], strict=True))
    again = claim()
    assert again
    publish(installation, again)
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    assert get(f"/models/{live[1]['id']}")["error_code"] is None


def test_a_failed_run_is_reported_twice(
    claim: Claim, fail: Callable[[ClaimedRun | None], None], live: Any, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """When its run fails, a request reports the reason. After the second failure, it reports that the run will be
    repeated until it succeeds. Further failures are not reported."""
    request = forget("p3")
    for _ in range(5):
        fail(claim())
        assert get(f"/deletion-requests/{request['id']}")["status"] == "accepted"
    failures = [("running", None), ("accepted", "its run failed (OSError); it will be tried again")]
    failures += [("running", None), ("accepted", "its run failed (OSError) again; it is tried until it succeeds")]

    def told() -> list[tuple[str, str | None]]:
        events = get(f"/deletion-requests/{request['id']}/events")["items"]
        return [(event["status"], event["detail"]) for event in events][2:]

    assert told() == failures
    assert work() == 1
    erased = ("running", f"1 row erased from dataset {live[0]['id']}")
    assert told() == [*failures, erased, ("completed", None)]


def _confirm_by_an_erase_run(claim: Claim, installation: Installation) -> None:
    """While the model backs off, erase the rows that are not nulled yet in an erase run without the model."""
    claimed = claim()
    if claimed is None:
        return
    assert (claimed.kind, claimed.erases) == ("erase", True)
    with installation.database.writing() as session:
        unlearning.confirm_edited(session, run_id=claimed.run_id)
        unlearning.finish(session, run_id=claimed.run_id)


def test_a_model_that_is_never_trained_fails_after_three_attempts(
    claim: Claim, fail: Callable[[ClaimedRun | None], None], new_dataset: Make, new_model: Make, get: Get, gateway: Any
) -> None:
    """If a model's first training run fails three times, the model ends in `failed` and is not retried until retraining
    is requested."""
    model = new_model(new_dataset()["id"])
    for _ in range(2):
        fail(claim())
        assert get(f"/models/{model['id']}")["status"] == "learning"
    fail(claim())
    assert (get(f"/models/{model['id']}")["status"], get(f"/models/{model['id']}")["error_code"]) == (
        "failed",
        "OSError",
    )
    assert claim() is None
    assert gateway.post(f"/v1/models/{model['id']}/relearn").json()["status"] == "learning"
    claimed = claim()
    assert claimed
    assert claimed.kind == "learn"


@pytest.mark.parametrize("asked_during_attempt", [0, 1, 3])
def test_a_failed_model_completes_waiting_requests(
    asked_during_attempt: int,
    claim: Claim,
    fail: Callable[[ClaimedRun | None], None],
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """When a model ends in `failed`, the requests on its dataset complete regardless of when they were made: the rows
    are erased, and no certificate is owed."""
    dataset = new_dataset()
    model = new_model(dataset["id"])
    request = forget("p3") if asked_during_attempt == 0 else {}
    for attempt in (1, 2, 3):
        claimed = claim()
        if attempt == asked_during_attempt:
            request = forget("p3")
        fail(claimed)
    work()
    done = get(f"/deletion-requests/{request['id']}")
    assert (done["status"], done["outcome"]) == ("completed", "forgotten")
    owed = [] if asked_during_attempt == 3 else [(model["id"], "nothing_published")]  # its rows were never claimed
    assert [(owed["model_id"], owed["status"]) for owed in done["models"]] == owed
    assert get(f"/datasets/{dataset['id']}")["num_records"] == 59


def test_a_late_failure_does_not_affect_the_successor(
    claim: Claim, live: Any, forget: Make, installation: Installation
) -> None:
    """If a worker fails after losing its lease, its failure neither ends nor delays the run of the worker that took
    over."""
    forget("p3")
    lost = claim(lease_seconds=-1.0)
    held = claim()
    assert lost
    assert held
    with installation.database.writing() as session:
        unlearning.fail(session, run_id=lost.run_id, error_code="OSError")
    assert (status_of(installation, lost), status_of(installation, held)) == ("abandoned", "running")


def test_runs_of_a_dead_worker_are_taken_back(
    claim: Claim, live: Any, forget: Make, get: Get, installation: Installation
) -> None:
    """The runs of a dead worker can be claimed again at once; other workers keep their runs."""
    slots = slots_of(installation, live[0]["id"], "p3")
    request = forget("p3")
    held = claim(worker="dead")
    with installation.database.writing() as session:
        assert unlearning.take_back(session, worker="alive") == 0
        assert unlearning.take_back(session, worker="dead") == 1
    assert status_of(installation, held) == "abandoned"
    assert get(f"/deletion-requests/{request['id']}")["status"] == "accepted"
    again = claim(worker="alive")
    assert again
    assert again.slots_to_null == tuple(slots)


def test_a_run_that_kills_its_workers_backs_off(
    claim: Claim, live: Any, forget: Make, installation: Installation
) -> None:
    """After more than three worker deaths in a row, the model waits before its next run."""
    forget("p3")
    waits = []
    for _ in range(5):
        claimed = claim(worker="mortal")
        assert claimed
        with installation.database.writing() as session:
            unlearning.take_back(session, worker="mortal")
            waits.append(session.scalars(sa.select(Model.not_before)).one() is not None)
        forget_pauses(installation)
    assert waits == [False, False, False, True, True]


def test_repeated_failures_are_counted_on_one_run(
    installation: Installation, claim: Claim, fail: Any, live: Any, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """If runs keep failing for the same reason, only the first run, the last run and a count are kept. The request
    names the last run, all runs count as ended, and a different reason starts a new count."""
    request = forget("p1")
    for _ in range(6):
        fail(claim())
    first, last = reversed([run for run in get("/runs")["items"] if run["status"] == "failed"])
    assert (first["repeated"], last["repeated"]) == (0, 4)
    assert get(f"/deletion-requests/{request['id']}")["models"][0]["run_id"] == last["id"]
    claimed = claim()
    assert claimed
    with installation.database.writing() as session:
        unlearning.fail(session, run_id=claimed.run_id, error_code="another")
    assert get("/runs")["items"][0]["repeated"] == 0
    assert sum(1 + run["repeated"] for run in get("/runs")["items"] if run["status"] == "failed") == 7
    forget_pauses(installation)
    assert work() == 1
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
