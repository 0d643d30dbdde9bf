"""The queue: due datasets, their order among tenants, and the requests that a run takes."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.api import intake
from app.db import EVER, now
from app.db.tables import Dataset, DeletionRequest, Erasure, Model, Run, Tenant, Version, new_id
from app.deletion import repository as deletion
from app.installations import Installation
from app.unlearning import due_repository, queue
from lethe.contract.sets import RequestStatus
from tests.tables import each
from worker import runner

DAY = datetime.timedelta(days=1)
Make = Callable[..., dict[str, Any]]
Wait = Callable[..., tuple[str, str]]


@pytest.fixture
def wait(installation: Installation) -> Wait:
    """Return a function that stores a waiting request for a tenant's dataset, creating the dataset if it is new, and
    returns the ids of both."""

    def store(
        dataset_id: str = "ds_a",
        tenant: str = "tn_a",
        *,
        due_in: datetime.timedelta = 20 * DAY,
        made: datetime.timedelta = -DAY,
        subject_ref: str | None = None,
        **columns: object,
    ) -> tuple[str, str]:
        with installation.database.writing() as session:
            moment = now(session)
            if session.get(Tenant, tenant) is None:
                session.add(Tenant(id=tenant, name=tenant, policy={}, created_at=moment))
                session.flush()
            if session.get(Dataset, dataset_id) is None:
                shape = {"schema": None, "classes": [], "num_features": 1, "num_slots": 1, "digest": "", "revision": 0}
                session.add(Dataset(id=dataset_id, tenant_id=tenant, name="", created_at=moment, **shape))
            request = DeletionRequest(
                id=new_id("dr"),
                tenant_id=tenant,
                subject_ref=subject_ref or new_id("sub"),
                regulation="gdpr",
                time_zone="UTC",
                status=RequestStatus.ACCEPTED,
                kept="request",
                discreet=False,
                submitted_at=moment + made,
                created_at=moment + made,
                due_at=moment + due_in,
                deadline=moment + due_in,
            )
            for name, value in columns.items():
                setattr(request, name, moment + value if isinstance(value, datetime.timedelta) else value)
            session.add(request)
            session.flush()
            erasure = Erasure(id=new_id("era"), request_id=request.id, dataset_id=dataset_id, num_claimed=0)
            deletion.line_up(request, [erasure])
            session.add(erasure)
            return dataset_id, request.id

    return store


def due(installation: Installation) -> list[str]:
    """Return the datasets that are due, and check that the queue reports work if and only if there are any."""
    with installation.database.reading() as session:
        found = [one.dataset_id for one in due_repository.datasets_due(session, at=now(session))]
        assert due_repository.anything_to_do(session) == bool(found)
        assert due_repository.anything_to_do(session, at=EVER) or not found
        return found


def change(installation: Installation, request_id: str, **columns: object) -> None:
    """Change fields of a request and nothing else."""
    with installation.database.writing() as session:
        request = session.get_one(DeletionRequest, request_id)
        for name, value in columns.items():
            setattr(request, name, now(session) + value if isinstance(value, datetime.timedelta) else value)


def claim(installation: Installation, limit: int = 500) -> str | None:
    """Claim and end the next run, and return its dataset."""
    with installation.database.writing() as session:
        claimed = queue.claim(session, worker="w", lease_seconds=30, max_requests=limit)
        if claimed is None:
            return None
        session.get_one(Run, claimed.run_id).status = "published"
        erased = sa.update(Erasure).where(Erasure.dataset_id == claimed.dataset_id, Erasure.num_records.is_not(None))
        session.execute(erased.values(nulled_at=now(session)))
        return claimed.dataset_id


def open_erasures(session: Session) -> int:
    """Count the erasures in the queue's index."""
    waits = sa.and_(Erasure.revision.is_(None), Erasure.ready_at.is_not(None))
    return session.scalars(sa.select(sa.func.count()).select_from(Erasure).where(waits)).one()


def test_work_is_ruled_out_only_if_none_becomes_due(installation: Installation, wait: Wait) -> None:
    """An idle worker on SQLite need not look for work until the next commit, but it must if any request will become
    due. On PostgreSQL it always looks."""

    def is_idle() -> bool:
        question = due_repository.anything_to_do
        return installation.database.is_ruled_out(question, deletions_only=False, at=EVER)

    assert is_idle() == (installation.database.engine.dialect.name == "sqlite")
    wait(held_until=DAY)
    assert due(installation) == []
    assert not is_idle()


def test_a_request_in_its_grace_period_is_not_due(installation: Installation, wait: Wait) -> None:
    """A request is not due before `held_until`, and a run that serves another request does not take it."""
    _, held = wait(held_until=DAY)
    assert due(installation) == []
    wait()
    assert due(installation) == ["ds_a"]
    assert claim(installation) == "ds_a"
    assert due(installation) == []
    change(installation, held, held_until=-DAY)
    assert due(installation) == ["ds_a"]


@pytest.mark.parametrize(
    "status", [RequestStatus.RECEIVED, RequestStatus.IN_REVIEW, RequestStatus.REJECTED, RequestStatus.CANCELLED]
)
def test_only_accepted_requests_are_queued(installation: Installation, wait: Wait, status: RequestStatus) -> None:
    """A request that awaits a decision or was rejected or withdrawn is not in the queue."""
    wait(status=status)
    _, request_id = wait("ds_b")
    change(installation, request_id, status=status)
    assert due(installation) == []
    with installation.database.reading() as session:
        assert open_erasures(session) == 0
    change(installation, request_id, status=RequestStatus.ACCEPTED)
    assert due(installation) == ["ds_b"]


@each("status", list(RequestStatus))
@each("held_until", [None, DAY, -DAY])
def test_the_queue_reflects_changes_to_a_request(
    installation: Installation, wait: Wait, status: RequestStatus, held_until: datetime.timedelta | None
) -> None:
    """After any change to a request, its erasures have the same position in the queue as if they had been queued after
    the change."""
    _, request_id = wait()
    change(installation, request_id, status=status, held_until=held_until, deadline=3 * DAY)
    with installation.database.reading() as session:
        erasure = session.scalars(sa.select(Erasure).where(Erasure.request_id == request_id)).one()
        stored = erasure.deadline, erasure.ready_at
        deletion.line_up(session.get_one(DeletionRequest, request_id), [erasure])
        assert stored == (erasure.deadline, erasure.ready_at)


def test_the_earliest_deadlines_are_served_first(installation: Installation, wait: Wait) -> None:
    """A run that takes two of three requests takes those with the earliest deadlines, regardless of their order
    of arrival."""
    wait(due_in=20 * DAY, made=-9 * DAY)
    near = {wait(due_in=days * DAY)[1] for days in (3, 5)}
    with installation.database.reading() as session:
        taken = deletion.pending_erasures(session, dataset_id="ds_a", limit=2)
        assert {request.id for _, request in taken} == near


def test_all_requests_about_one_person_are_taken_together(installation: Installation, wait: Wait) -> None:
    """A run takes all requests about one person together, even one with a late deadline, before it takes a request
    about another person."""
    first, later = wait(due_in=DAY, subject_ref="sub_1")[1], wait(due_in=20 * DAY, subject_ref="sub_1")[1]
    wait(due_in=2 * DAY)
    with installation.database.reading() as session:
        taken = deletion.pending_erasures(session, dataset_id="ds_a", limit=1)
        assert {request.id for _, request in taken} == {first, later}


def test_a_tenants_backlog_does_not_delay_another_tenant(installation: Installation, wait: Wait) -> None:
    """A tenant with several due datasets does not delay another tenant, whose dataset is served first or second. A
    dataset that is due within a week is served before any other."""
    for number in range(4):
        wait(f"ds_many_{number:02}", "tn_many", due_in=(10 + number) * DAY)
    assert due(installation)[0] == "ds_many_00"
    assert claim(installation) == "ds_many_00"
    wait("ds_one", "tn_one", due_in=30 * DAY)
    assert due(installation)[0] == "ds_one"
    assert [claim(installation), claim(installation), claim(installation)] == ["ds_one", "ds_many_01", "ds_many_02"]
    wait("ds_one", "tn_one", due_in=30 * DAY)
    assert claim(installation) == "ds_one"
    wait("ds_one", "tn_one", due_in=6 * DAY)
    assert due(installation) == ["ds_one", "ds_many_03"]


@pytest.mark.parametrize(("max_requests", "waits"), [(None, True), (3, True), (2, False)])
def test_requests_in_their_grace_period_do_not_fill_a_batch(
    installation: Installation, wait: Wait, max_requests: int | None, waits: bool
) -> None:
    """A request in its grace period does not count towards a batch."""
    for _ in range(2):
        wait()
    wait(held_until=DAY)
    with installation.database.writing() as session:
        moment = now(session)
        model = {"name": "", "mechanism": {}, "epsilon": 1.0, "delta": 0.1, "status": "live", "live_version": 1}
        model |= {"max_requests": max_requests, "max_wait_seconds": 2 * 86400, "created_at": moment}
        session.add(Model(id="mdl_a", tenant_id="tn_a", dataset_id="ds_a", **model))
        session.flush()
        run = {"kind": "learn", "status": "published", "revision": 0, "version_id": "ver_a", "steps_total": 1}
        run |= {"steps_done": 1, "records": 0, "reason": "requested", "worker": "w", "lease_expires_at": moment}
        session.add(Run(id="run_a", tenant_id="tn_a", dataset_id="ds_a", started_at=moment, **run))
        session.flush()
        version = {"number": 1, "status": "live", "run_id": "run_a", "revision": 0, "weights_sha256": "", "metrics": {}}
        session.add(Version(id="ver_a", model_id="mdl_a", published_at=moment, **version))
    assert due(installation) == ([] if waits else ["ds_a"])


@pytest.fixture
def two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit runs to two requests, and disable caching of estimates."""
    monkeypatch.setenv("LETHE_MAX_REQUESTS_PER_RUN", "2")
    monkeypatch.setattr(intake, "_FRESH_SECONDS", 0.0)
    monkeypatch.setattr(intake, "_MIN_INTERVAL_FACTOR", 0.0)


@pytest.mark.usefixtures("two_at_once")
def test_estimates_are_for_one_run(
    installation: Installation, new_dataset: Make, new_model: Make, forget: Make, get: Callable[[str], Any]
) -> None:
    """The estimate for a request and the next run shown in the dataset's account count only the requests that one run
    takes, and they match what that run actually does."""
    model = new_model(new_dataset()["id"], noise_scale=0.02)
    assert runner.run_next(installation, worker="w")
    request = [forget(f"p{person}") for person in range(5)][-1]
    with installation.database.reading() as session:
        [(_, for_all, waiting)] = queue.estimate(session, model_ids=[model["id"]], max_requests=500)
    estimate = get(f"/deletion-requests/{request['id']}")["estimate"]
    [budget] = get(f"/accounting/datasets/{model['dataset_id']}")["models"]
    assert runner.run_next(installation, worker="w")
    [run, *_] = get("/runs")["items"]
    told = {name: budget["next_run"][name] for name in ("kind", "steps", "records")}
    assert told == {"kind": run["kind"], "steps": run["steps_total"], "records": 2}
    assert estimate["models"] == [{"model_id": model["id"], "kind": run["kind"], "steps": run["steps_total"]}]
    assert (waiting, run["kind"]) == (5, "unlearn")
    assert for_all.steps > run["steps_total"]
