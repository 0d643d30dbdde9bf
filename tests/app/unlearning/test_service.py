"""Runs: claimed under a lease, published once, handed back when they fail or their worker dies."""

import dataclasses
import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from app.accounting.certificates import sha256
from app.db import now
from app.db.tables import Dataset, LedgerEntry, Model, Run, Version
from app.errors import LeaseLost, RunDiffersFromPlan
from app.installations import Installation
from app.operations import repository as operations
from app.unlearning import queue
from app.unlearning import service as unlearning
from app.unlearning.queue import ClaimedRun
from app.vault import weights
from lethe.contract.problems import RunUnknown
from tests.lethe.proof import lanes
from tests.stored import slots_of

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Claim = Callable[..., ClaimedRun | None]


@pytest.fixture
def claim(installation: Installation) -> Claim:
    """Claim the next run, as the worker does."""

    def claimed(*, worker: str = "w", lease_seconds: float = 30.0, max_requests: int = 100) -> ClaimedRun | None:
        with installation.database.writing() as session:
            return queue.claim(session, worker=worker, lease_seconds=lease_seconds, max_requests=max_requests)

    return claimed


@pytest.fixture
def fail(installation: Installation) -> Callable[[ClaimedRun | None], None]:
    """Let a run fail, and let its back-off be over."""

    def failed(claimed: ClaimedRun | None) -> None:
        assert claimed
        with installation.database.writing() as session:
            unlearning.fail(session, run_id=claimed.run_id, error_code="OSError")
        _forget_pauses(installation)

    return failed


def _forget_pauses(installation: Installation) -> None:
    with installation.database.writing() as session:
        session.execute(sa.update(Model).values(not_before=None))
        session.execute(sa.update(Dataset).values(not_before=None))


def _publish(installation: Installation, claimed: ClaimedRun, **changed: Any) -> None:
    """What the worker does when the chain has run; the rows are erased already."""
    assert claimed.mechanism
    sealed = weights.to_safetensors(np.zeros((1, 4)))
    installation.weights.put(claimed.version_id, sealed)
    assert claimed.audit
    ran = {
        "first_step_ran": claimed.first_step,
        "steps_ran": claimed.steps,
        "mechanism_ran": claimed.mechanism,
        "weights_sha256": sha256(sealed),
        "metrics": {},
        "observed": lanes.observed(claimed.audit, claimed.mechanism),
    }
    with installation.database.writing() as session:
        unlearning.publish(session, installation.keys, run_id=claimed.run_id, **ran | changed)


def _status(installation: Installation, claimed: ClaimedRun | None) -> str:
    assert claimed
    with installation.database.reading() as session:
        return unlearning.get(session, claimed.run_id).status


@pytest.fixture
def live(new_dataset: Make, new_model: Make, work: Callable[[], int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A dataset of 60 people with one row each, and its live model."""
    dataset = new_dataset()
    model = new_model(dataset["id"], noise_scale=0.02)
    assert work() == 1
    return dataset, model


def test_nothing_due_nothing_claimed(claim: Claim, live: Any) -> None:
    """There is no run to claim when every model is live and nobody waits."""
    assert claim() is None


def test_a_new_model_is_learned(claim: Claim, new_dataset: Make, new_model: Make) -> None:
    """The first run of a model is from scratch, continues nothing, and erases nothing."""
    dataset = new_dataset()
    model = new_model(dataset["id"])
    claimed = claim()
    assert claimed
    assert (claimed.kind, claimed.dataset_id, claimed.model_id) == ("learn", dataset["id"], model["id"])
    assert (claimed.parent_version_id, claimed.erases, claimed.slots_to_null) == (None, False, ())
    assert claimed.mechanism
    assert claimed.steps == claimed.mechanism.learn_steps


def test_a_request_is_unlearned(claim: Claim, live: Any, forget: Make, get: Get, installation: Installation) -> None:
    """A claimed request is running, its rows are named, and its run continues the live version."""
    slots = slots_of(installation, live[0]["id"], "p3")
    request = forget("p3")
    claimed = claim()
    assert claimed
    assert (claimed.kind, claimed.erases, claimed.slots_to_null) == ("unlearn", True, tuple(slots))
    with installation.database.reading() as session:
        assert session.scalars(sa.select(Version.id)).one() == claimed.parent_version_id
        assert unlearning.get(session, claimed.run_id).records == 1
    assert get(f"/deletion-requests/{request['id']}")["status"] == "running"


def test_a_dataset_without_models_is_erased(
    claim: Claim, new_dataset: Make, forget: Make, installation: Installation
) -> None:
    """Where no model learned from the rows, the run is to erase them and nothing else."""
    slots = slots_of(installation, new_dataset()["id"], "p3")
    forget("p3")
    claimed = claim()
    assert claimed
    assert (claimed.kind, claimed.model_id, claimed.steps) == ("erase", None, 0)
    assert claimed.slots_to_null == tuple(slots)
    with installation.database.writing() as session:
        unlearning.confirm_edited(session, run_id=claimed.run_id)
        unlearning.finish(session, run_id=claimed.run_id)
    assert _status(installation, claimed) == "published"
    assert claim() is None


def test_one_run_serves_all_who_wait(claim: Claim, live: Any, forget: Make, installation: Installation) -> None:
    """Requests that wait when a run is claimed are served by it together, those of one person too."""
    slots = slots_of(installation, live[0]["id"], "p3", "p4")
    for person in ("p3", "p4", "p3"):
        forget(person)
    claimed = claim()
    assert claimed
    assert claimed.slots_to_null == tuple(sorted(slots))


def test_those_who_wait_longest_come_first(claim: Claim, live: Any, forget: Make, installation: Installation) -> None:
    """A run takes no more people than it may, in the order in which they asked."""
    slots = slots_of(installation, live[0]["id"], "p3", "p5")
    for person in ("p5", "p3", "p4"):
        forget(person)
    claimed = claim(max_requests=2)
    assert claimed
    assert claimed.slots_to_null == tuple(sorted(slots))


def test_one_run_per_dataset(claim: Claim, live: Any, forget: Make, new_model: Make) -> None:
    """While a run is under way nothing else is claimed on its dataset, whoever asks."""
    forget("p3")
    assert claim(worker="one")
    forget("p4")
    new_model(live[0]["id"])
    assert claim(worker="two") is None


def test_relearning_runs_from_scratch(claim: Claim, live: Any, gateway: Any) -> None:
    """A model that is asked to learn again does, with its live version in service meanwhile."""
    assert gateway.post(f"/v1/models/{live[1]['id']}/relearn").status_code == 202
    claimed = claim()
    assert claimed
    assert (claimed.kind, claimed.parent_version_id) == ("relearn", None)


def test_an_expired_lease_is_taken(claim: Claim, live: Any, forget: Make, get: Get, installation: Installation) -> None:
    """A run whose lease is over is abandoned by whoever claims next, who gets the same work as a run of its own."""
    request = forget("p3")
    first = claim(worker="silent", lease_seconds=-1.0)
    second = claim(worker="next")
    assert first
    assert second
    assert second.run_id != first.run_id
    assert second.version_id != first.version_id
    assert second.slots_to_null == first.slots_to_null
    with installation.database.reading() as session:
        abandoned = unlearning.get(session, first.run_id)
    assert (abandoned.status, abandoned.error_code) == ("abandoned", "lease_expired")
    assert get(f"/deletion-requests/{request['id']}")["status"] == "running"
    events = [event["status"] for event in get(f"/deletion-requests/{request['id']}/events")["items"]]
    assert events == ["received", "accepted", "running", "accepted", "running"]
    assert get(f"/datasets/{live[0]['id']}")["revision"] == 1


def test_whoever_lost_the_lease_can_do_nothing(
    claim: Claim, live: Any, forget: Make, installation: Installation
) -> None:
    """Renewing, confirming, finishing and publishing a run that was taken away are all refused."""
    forget("p3")
    lost = claim(lease_seconds=-1.0)
    held = claim()
    assert lost
    assert held
    with pytest.raises(LeaseLost), installation.database.writing() as session:
        unlearning.renew(session, run_id=lost.run_id, steps_done=1, lease_seconds=30)
    with pytest.raises(LeaseLost), installation.database.writing() as session:
        unlearning.confirm_edited(session, run_id=lost.run_id)
    with pytest.raises(LeaseLost), installation.database.writing() as session:
        unlearning.finish(session, run_id=lost.run_id)
    with pytest.raises(LeaseLost):
        _publish(installation, lost)
    assert _status(installation, held) == "running"


def test_renewing_moves_the_end_of_the_lease(claim: Claim, live: Any, forget: Make, installation: Installation) -> None:
    """A renewed run is not taken when its first lease would be over, and tells its progress."""
    forget("p3")
    claimed = claim(lease_seconds=-1.0)
    assert claimed
    with installation.database.writing() as session:
        unlearning.renew(session, run_id=claimed.run_id, steps_done=2, lease_seconds=30)
    assert claim(worker="other") is None
    with installation.database.reading() as session:
        run = unlearning.get(session, claimed.run_id)
        assert run.steps_done == 2
        assert run.lease_expires_at > now(session)


def test_a_run_is_published_once(claim: Claim, live: Any, forget: Make, installation: Installation) -> None:
    """The second publication of a run is refused and leaves one version and one ledger entry of it."""
    forget("p3")
    claimed = claim()
    assert claimed
    with installation.database.writing() as session:
        unlearning.confirm_edited(session, run_id=claimed.run_id)
    _publish(installation, claimed)
    with pytest.raises(LeaseLost):
        _publish(installation, claimed)
    with installation.database.reading() as session:
        assert list(session.scalars(sa.select(Version.number).order_by(Version.number))) == [1, 2]
        assert list(session.scalars(sa.select(LedgerEntry.sequence).order_by(LedgerEntry.sequence))) == [1, 2]


def test_only_what_was_planned_is_published(claim: Claim, live: Any, forget: Make, installation: Installation) -> None:
    """A run of other steps or another mechanism than planned publishes nothing, and is still held."""
    forget("p3")
    claimed = claim()
    assert claimed
    assert claimed.mechanism
    with pytest.raises(RunDiffersFromPlan):
        _publish(installation, claimed, steps_ran=claimed.steps + 1)
    with pytest.raises(RunDiffersFromPlan):
        _publish(installation, claimed, mechanism_ran=dataclasses.replace(claimed.mechanism, noise_scale=0.03))
    with installation.database.reading() as session:
        assert session.scalars(sa.select(Version.number)).all() == [1]
    assert _status(installation, claimed) == "running"


def test_a_failed_run_backs_off_and_is_tried_again(
    claim: Claim, live: Any, forget: Make, get: Get, installation: Installation
) -> None:
    """A run that fails by itself is tried again after 0.5 s, then 1 s, 2 s and so on up to a minute; nobody loses."""
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
            model.not_before += datetime.timedelta(hours=1)  # however slow this machine is
        assert get(f"/deletion-requests/{request['id']}")["status"] == "accepted"
        _confirm_by_an_erase_run(claim, installation)
        assert claim() is None
        _forget_pauses(installation)
    assert all(0 <= pause - due < 3 for pause, due in zip(pauses, [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60], strict=True))
    again = claim()
    assert again
    _publish(installation, again)
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    assert get(f"/models/{live[1]['id']}")["error_code"] is None


def test_who_waits_is_told_twice_that_a_run_failed(
    claim: Claim, fail: Callable[[ClaimedRun | None], None], live: Any, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """A request whose runs fail says why, and then that they are tried until one succeeds; however often they fail
    after that, it says no more before it is completed."""
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
    """While the model backs off, the rows that nobody has nulled yet are erased without it."""
    claimed = claim()
    if claimed is None:
        return
    assert (claimed.kind, claimed.erases) == ("erase", True)
    with installation.database.writing() as session:
        unlearning.confirm_edited(session, run_id=claimed.run_id)
        unlearning.finish(session, run_id=claimed.run_id)


def test_a_model_that_never_learns_ends_failed(
    claim: Claim, fail: Callable[[ClaimedRun | None], None], new_dataset: Make, new_model: Make, get: Get, gateway: Any
) -> None:
    """A first learning run that fails three times ends in `failed`, is not tried again, and can be asked for again."""
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
def test_a_model_that_never_learns_frees_who_waits(
    asked_during_attempt: int,
    claim: Claim,
    fail: Callable[[ClaimedRun | None], None],
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """Whenever a request came before its model ended in `failed`, it completes: the rows go, no certificate is owed."""
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


def test_failing_a_run_that_was_taken_away_changes_nothing(
    claim: Claim, live: Any, forget: Make, installation: Installation
) -> None:
    """A worker that lost its lease and fails afterwards neither ends the run of its successor nor makes it wait."""
    forget("p3")
    lost = claim(lease_seconds=-1.0)
    held = claim()
    assert lost
    assert held
    with installation.database.writing() as session:
        unlearning.fail(session, run_id=lost.run_id, error_code="OSError")
    assert (_status(installation, lost), _status(installation, held)) == ("abandoned", "running")


def test_runs_of_a_dead_worker_are_taken_back(
    claim: Claim, live: Any, forget: Make, get: Get, installation: Installation
) -> None:
    """What a worker known to be dead held can be claimed at once; what others hold stays with them."""
    slots = slots_of(installation, live[0]["id"], "p3")
    request = forget("p3")
    held = claim(worker="dead")
    with installation.database.writing() as session:
        assert unlearning.take_back(session, worker="alive") == 0
        assert unlearning.take_back(session, worker="dead") == 1
    assert _status(installation, held) == "abandoned"
    assert get(f"/deletion-requests/{request['id']}")["status"] == "accepted"
    again = claim(worker="alive")
    assert again
    assert again.slots_to_null == tuple(slots)


def test_a_run_that_kills_its_workers_backs_off(
    claim: Claim, live: Any, forget: Make, installation: Installation
) -> None:
    """After three deaths in a row the model waits before it is tried again, longer each time."""
    forget("p3")
    waits = []
    for _ in range(5):
        claimed = claim(worker="mortal")
        assert claimed
        with installation.database.writing() as session:
            unlearning.take_back(session, worker="mortal")
            waits.append(session.scalars(sa.select(Model.not_before)).one() is not None)
        _forget_pauses(installation)
    assert waits == [False, False, False, True, True]


def test_estimate_is_what_will_run(claim: Claim, live: Any, forget: Make, get: Get, installation: Installation) -> None:
    """What a waiting request is told it will take is what its run then takes, for all who wait together."""
    forget("p3")
    request = forget("p4")
    with installation.database.reading() as session:
        waiting = [model["model_id"] for model in request["models"]]
        [(model_id, plan, records)] = queue.estimate(session, model_ids=waiting, max_requests=100)
    claimed = claim()
    assert claimed
    assert (claimed.model_id, claimed.kind, claimed.steps) == (model_id, plan.kind, plan.steps)
    assert records == 2


def test_a_heartbeat_disturbs_nobody_who_reads(
    claim: Claim, new_dataset: Make, new_model: Make, installation: Installation
) -> None:
    """Whether a run is still held, and what its audit found, can be read while a heartbeat changes the run."""
    new_model(new_dataset(rows=60)["id"], audit={"lanes": 0})
    claimed = claim()
    assert claimed
    with installation.database.reading() as session:
        session.execute(sa.select(Run.id)).all()  # from here on it sees one snapshot
        with installation.database.writing(exclusive=False) as beating:
            unlearning.renew(beating, run_id=claimed.run_id, steps_done=1, lease_seconds=30)
        unlearning.check_held(session, run_id=claimed.run_id)
        assert unlearning.examine(session, run_id=claimed.run_id, records=60, observed=None) == ()


def test_an_unknown_run_is_named(installation: Installation) -> None:
    """Asking for a run that does not exist raises `RunUnknown`."""
    with installation.database.reading() as session, pytest.raises(RunUnknown):
        unlearning.get(session, "run_none")


def test_failures_that_repeat_are_counted_on_one_run(
    installation: Installation, claim: Claim, fail: Any, live: Any, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """Of runs that fail for ever for the same reason the first, the last and a count are kept; the request that they
    serve names the last, all are counted as ended, and another reason begins anew."""
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
    with installation.database.reading() as session:
        counted = {(kind, status): count for kind, status, count, *_ in operations.totals(session, before=now(session))}
    assert counted["unlearn", "failed"] == 7
    _forget_pauses(installation)
    assert work() == 1
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
