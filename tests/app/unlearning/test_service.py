"""Runs are claimed under a lease, and published once."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from app.db import now
from app.db.tables import LedgerEntry, Run, Version
from app.errors import LeaseLost, RunDiffersFromPlan
from app.installations import Installation
from app.unlearning import service as unlearning
from app.unlearning.queue import ClaimedRun
from lethe.contract.problems import RunUnknown
from tests.app.unlearning.held import publish, status_of
from tests.stored import slots_of

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Claim = Callable[..., ClaimedRun | None]


def test_nothing_is_claimed_if_nothing_is_due(claim: Claim, live: Any) -> None:
    """No run can be claimed while every model is live and no request is waiting."""
    assert claim() is None


def test_a_new_model_is_trained(claim: Claim, new_dataset: Make, new_model: Make) -> None:
    """The first run of a model starts from scratch and erases no rows."""
    dataset = new_dataset()
    model = new_model(dataset["id"])
    claimed = claim()
    assert claimed
    assert (claimed.kind, claimed.dataset_id, claimed.model_id) == ("learn", dataset["id"], model["id"])
    assert (claimed.parent_version_id, claimed.erases, claimed.slots_to_null) == (None, False, ())
    assert claimed.mechanism
    assert claimed.steps == claimed.mechanism.learn_steps


def test_a_request_is_unlearned(claim: Claim, live: Any, forget: Make, get: Get, installation: Installation) -> None:
    """A claimed request has the status `running`, the claim lists the request's rows, and the claimed run continues the
    live version."""
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
    """If no model was trained on the rows, the run only erases them."""
    slots = slots_of(installation, new_dataset()["id"], "p3")
    forget("p3")
    claimed = claim()
    assert claimed
    assert (claimed.kind, claimed.model_id, claimed.steps) == ("erase", None, 0)
    assert claimed.slots_to_null == tuple(slots)
    with installation.database.writing() as session:
        unlearning.confirm_edited(session, run_id=claimed.run_id)
        unlearning.finish(session, run_id=claimed.run_id)
    assert status_of(installation, claimed) == "published"
    assert claim() is None


def test_one_run_serves_all_waiting_requests(claim: Claim, live: Any, forget: Make, installation: Installation) -> None:
    """A claimed run serves all requests waiting at that time, including several requests about one person."""
    slots = slots_of(installation, live[0]["id"], "p3", "p4")
    for person in ("p3", "p4", "p3"):
        forget(person)
    claimed = claim()
    assert claimed
    assert claimed.slots_to_null == tuple(sorted(slots))


def test_one_run_per_dataset(claim: Claim, live: Any, forget: Make, new_model: Make) -> None:
    """While a run is in progress, no worker can claim another run on the same dataset."""
    forget("p3")
    assert claim(worker="one")
    forget("p4")
    new_model(live[0]["id"])
    assert claim(worker="two") is None


def test_retraining_runs_from_scratch(claim: Claim, live: Any, gateway: Any) -> None:
    """A model whose retraining was requested runs from scratch while its live version stays in service."""
    assert gateway.post(f"/v1/models/{live[1]['id']}/relearn").status_code == 202
    claimed = claim()
    assert claimed
    assert (claimed.kind, claimed.parent_version_id) == ("relearn", None)


def test_a_run_with_an_expired_lease_is_taken_over(
    claim: Claim, live: Any, forget: Make, get: Get, installation: Installation
) -> None:
    """When the lease of a run has expired, the next claim abandons the run and returns the same work as a new run."""
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


def test_a_worker_without_its_lease_is_refused(
    claim: Claim, live: Any, forget: Make, installation: Installation
) -> None:
    """A worker that lost its lease cannot renew the lease, and cannot confirm, finish or publish the run."""
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
        publish(installation, lost)
    assert status_of(installation, held) == "running"


def test_renewing_moves_the_end_of_the_lease(claim: Claim, live: Any, forget: Make, installation: Installation) -> None:
    """A run whose lease was renewed is not taken over at the end of its first lease, and reports its progress."""
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
    """Publishing a run a second time is refused, so that there is only one version and one ledger entry."""
    forget("p3")
    claimed = claim()
    assert claimed
    with installation.database.writing() as session:
        unlearning.confirm_edited(session, run_id=claimed.run_id)
    publish(installation, claimed)
    with pytest.raises(LeaseLost):
        publish(installation, claimed)
    with installation.database.reading() as session:
        assert list(session.scalars(sa.select(Version.number).order_by(Version.number))) == [1, 2]
        assert list(session.scalars(sa.select(LedgerEntry.sequence).order_by(LedgerEntry.sequence))) == [1, 2]


def test_an_unplanned_run_is_not_published(claim: Claim, live: Any, forget: Make, installation: Installation) -> None:
    """A run whose steps or mechanism differ from its plan is not published and keeps its lease."""
    forget("p3")
    claimed = claim()
    assert claimed
    assert claimed.mechanism
    with pytest.raises(RunDiffersFromPlan):
        publish(installation, claimed, steps_ran=claimed.steps + 1)
    with pytest.raises(RunDiffersFromPlan):
        publish(installation, claimed, mechanism_ran=dataclasses.replace(claimed.mechanism, noise_scale=0.03))
    with installation.database.reading() as session:
        assert session.scalars(sa.select(Version.number)).all() == [1]
    assert status_of(installation, claimed) == "running"


def test_a_heartbeat_does_not_block_readers(
    claim: Claim, new_dataset: Make, new_model: Make, installation: Installation
) -> None:
    """The lease and the audit result of a run can be read while a heartbeat changes the run."""
    new_model(new_dataset(rows=60)["id"], audit={"lanes": 0})
    claimed = claim()
    assert claimed
    with installation.database.reading() as session:
        session.execute(sa.select(Run.id)).all()  # from here on, the session reads one snapshot
        with installation.database.writing(exclusive=False) as beating:
            unlearning.renew(beating, run_id=claimed.run_id, steps_done=1, lease_seconds=30)
        unlearning.check_held(session, run_id=claimed.run_id)
        assert unlearning.examine(session, run_id=claimed.run_id, records=60, observed=None) == ()


def test_looking_up_an_unknown_run_raises(installation: Installation) -> None:
    """Looking up an unknown run raises `RunUnknown`."""
    with installation.database.reading() as session, pytest.raises(RunUnknown):
        unlearning.get(session, "run_none")
