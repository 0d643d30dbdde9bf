"""Stateful test of deletion requests: officers, callers and workers act in any order."""

import datetime
import itertools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy.orm import Session

from app.access.service import DEFAULT_TENANT
from app.audit.checkpoints import entry_hash
from app.db import Database, now
from app.db.sealed import Particulars
from app.db.tables import AuditEntry, DeletionRequest, Erasure, RequestEvent, Suppression
from app.deletion import completion, deadlines, repository, retention, service as deletion, suppression
from app.deletion.status import TRANSITIONS
from app.deletion.views import View
from app.keys import KeyEncryptionFile
from app.unlearning import queue, service as unlearning
from app.vault.pieces import Vault
from lethe.contract.problems import Conflict
from lethe.contract.sets import EventKind, RejectionGround, RequestStatus
from lethe.contract.tenants import Policy, TimeLimit
from lethe.verification.chains import GENESIS
from tests.app.deletion import people
from tests.app.deletion.people import OFFICER

HELD = ["sub_a", "sub_b", "sub_c"]
PEOPLE = st.sampled_from([*HELD, "sub_unknown"])
REGULATIONS = st.sampled_from(["gdpr", "ccpa", "other", "own"])
OWN = TimeLimit(days=2, may_pause=True)
STANDING = (RequestStatus.ACCEPTED, RequestStatus.RUNNING, RequestStatus.COMPLETED)
ENDED = (RequestStatus.REJECTED, RequestStatus.CANCELLED, RequestStatus.COMPLETED)


class Life(RuleBasedStateMachine):
    def __init__(self, set_up: Path) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "lethe.db"
        shutil.copy(set_up / "lethe.db", path)
        keys = KeyEncryptionFile(Path(self.folder.name) / "kek")
        keys.create()
        self.vault = Vault(Path(self.folder.name) / "vault", keys, reference=bytes.hex, record_key=str.encode)
        self.database = Database(f"sqlite:///{path}", vault=self.vault)
        self.requests: list[str] = []
        self.given: dict[str, datetime.timedelta] = {}  # time limit of each request
        self.runs: list[str] = []
        self.lifted_after: dict[str, int] = {}  # last event before consent was given again
        self.policy = Policy()

    def teardown(self) -> None:
        self.database.close()
        self.folder.cleanup()

    @initialize(auto_accept=st.booleans(), grace=st.sampled_from([0, 3600]))
    def begin(self, auto_accept: bool, grace: int) -> None:
        with self.database.writing() as session:
            policy = Policy(auto_accept=auto_accept, grace_seconds=grace, regulations={"own": OWN})
            self.policy = people.obey(session, policy)
            people.hold(session, HELD)
            people.hold(session, HELD[:1], dataset_id="ds_2")

    @rule(person=PEOPLE, regulation=REGULATIONS, verified=st.booleans(), places=st.sampled_from([None, ["ds_1"]]))
    def submit(self, person: str, regulation: str, verified: bool, places: list[str] | None) -> None:
        with self.database.writing() as session:
            new = people.ask(
                session,
                person,
                self.policy,
                regulation=regulation,
                identity_verified=verified,
                dataset_ids=places,
                refers_to=self._ended(session, person),
            ).request
            limit = deadlines.limits(self.policy)[regulation]
            assert new.due_at == deadlines.due_at(limit, new.submitted_at)
        self.requests.append(new.id)
        self.given[new.id] = new.due_at - new.submitted_at

    @precondition(lambda self: self.requests)
    @rule(which=st.integers(min_value=0), discreet=st.booleans())
    def cancel(self, which: int, discreet: bool) -> None:
        self._try(which, lambda session, found: deletion.cancel(session, found, discreet=discreet))

    @precondition(lambda self: self.requests)
    @rule(which=st.integers(min_value=0))
    def approve(self, which: int) -> None:
        self._try(which, lambda session, found: deletion.approve(session, found, policy=self.policy))

    @precondition(lambda self: self.requests)
    @rule(which=st.integers(min_value=0), ground=st.sampled_from(RejectionGround))
    def reject(self, which: int, ground: RejectionGround) -> None:
        self._try(which, lambda session, found: deletion.reject(session, found, ground=ground, explanation="so"))

    @precondition(lambda self: self.requests)
    @rule(which=st.integers(min_value=0))
    def extend(self, which: int) -> None:
        self._try(which, lambda session, found: deletion.extend(session, found, policy=self.policy, reason="many"))

    @precondition(lambda self: self.requests)
    @rule(which=st.integers(min_value=0), paused=st.booleans())
    def stop_or_start_the_clock(self, which: int, paused: bool) -> None:
        if paused:
            self._try(which, lambda session, found: deletion.pause(session, found, policy=self.policy))
        else:
            self._try(which, deletion.resume)

    @rule(hours=st.sampled_from([1, 30, 800]))
    def wait(self, hours: int) -> None:
        with self.database.writing() as session:
            people.later(session, datetime.timedelta(hours=hours))

    @rule()
    def settle_and_alert(self) -> None:
        with self.database.writing() as session:
            completion.settle(session)
            deletion.alert(session, datetime.timedelta(days=7))
            assert deletion.alert(session, datetime.timedelta(days=7)) == 0  # each one once

    @rule()
    def purge(self) -> None:
        with self.database.reading() as session:
            due = retention.due(session, limit=100)
        self.vault.destroy(key for one in due for key in one.keys)
        with self.database.writing() as session:
            retention.forget(session, due)
            assert retention.due(session, limit=100) == []

    @rule()
    def claim(self) -> None:
        with self.database.writing() as session:
            run = queue.claim(session, worker="test", lease_seconds=10**9, max_requests=2)
            self.runs += [run.run_id] if run else []

    @precondition(lambda self: self.runs)
    @rule()
    def finish(self) -> None:
        run_id = self.runs.pop()
        with self.database.writing() as session:
            unlearning.confirm_edited(session, run_id=run_id)
        with self.database.writing() as session:
            unlearning.finish(session, run_id=run_id)

    @precondition(lambda self: self.runs)
    @rule(erased=st.booleans())
    def die(self, erased: bool) -> None:
        with self.database.writing() as session:
            if erased:
                unlearning.confirm_edited(session, run_id=self.runs.pop())
            unlearning.take_back(session, worker="test")
        self.runs.clear()

    @rule(person=PEOPLE)
    def consent(self, person: str) -> None:
        with self.database.writing(by=OFFICER) as session:
            suppression.lift(session, person, reason="consent_given")
            self.lifted_after[person] = session.scalar(sa.select(sa.func.max(RequestEvent.id))) or 0

    @invariant()
    def the_history_is_one_that_the_table_allows(self) -> None:
        """A request's first status is received, its status changes only by permitted transitions, and its current
        status is that of its last event."""
        with self.database.reading() as session:
            for request in session.scalars(sa.select(DeletionRequest)):
                events = repository.events(session, request_id=request.id)
                statuses = [RequestStatus(event.status) for event in events]
                assert statuses[0] == RequestStatus.RECEIVED
                assert statuses[-1] == request.status
                for before, after in itertools.pairwise(statuses):
                    assert before == after or after in TRANSITIONS[before], (before, after)
                assert (request.completed_at is not None) == (request.status == RequestStatus.COMPLETED)
                assert (request.reported_at is not None) == (RequestStatus.ACCEPTED in statuses)
                if request.reported_at is not None:  # whatever a worker has done so far
                    began = request.held_until or request.created_at
                    assert request.reported_at - began == datetime.timedelta(seconds=Policy().report_seconds)
                seen = View(discreet=True, at=now(session)).events(request, events)
                assert {event.status for event in seen} <= {*RequestStatus} - {RequestStatus.RUNNING}
                assert EventKind.ROWS_ERASED not in {event.kind for event in seen}

    @invariant()
    def what_was_written_is_kept_until_it_is_purged(self) -> None:
        """An open request keeps all its details, and `kept` states whether it has any."""
        with self.database.reading() as session:
            for request in session.scalars(sa.select(DeletionRequest)):
                assert (request.ended_at is not None) == (request.status in ENDED)
                assert (request.kept == "details") == (request.particulars != Particulars())
                extended = request.extended_due_at is not None
                assert request.ended_at or extended == (request.particulars.extension_reason is not None)

    @invariant()
    def deadlines_move_by_pauses_and_one_extension(self) -> None:
        """`due_at` moves by the total duration of the pauses. The deadline is the extended one if there is an
        extension, and `due_at` otherwise."""
        with self.database.reading() as session:
            for request in session.scalars(sa.select(DeletionRequest)):
                stood, since = datetime.timedelta(0), None
                for event in repository.events(session, request_id=request.id):
                    if event.kind == EventKind.PAUSED:
                        since = event.at
                    elif since and (event.kind == EventKind.RESUMED or event.status in ENDED):
                        stood, since = stood + (event.at - since), None
                assert request.paused_at == since
                assert since is None or request.status == RequestStatus.IN_REVIEW
                assert request.due_at - request.submitted_at == self.given[request.id] + stood
                assert request.deadline == (request.extended_due_at or request.due_at)

    @invariant()
    def rows_are_claimed_for_those_who_stand(self) -> None:
        """A request in review has no erasures, and a rejected or cancelled request has claimed no rows."""
        with self.database.reading() as session:
            for request in session.scalars(sa.select(DeletionRequest)):
                erasures = repository.by_request(session, Erasure, [request.id]).get(request.id, [])
                if request.status == RequestStatus.IN_REVIEW:
                    assert not erasures
                if request.status in (RequestStatus.REJECTED, RequestStatus.CANCELLED):
                    assert not any(erasure.num_claimed for erasure in erasures)
                if deadlines.is_held(request, at=now(session)):  # the answer must not reveal what is held
                    assert request.status not in (RequestStatus.RUNNING, RequestStatus.COMPLETED)
                if request.status == RequestStatus.COMPLETED:
                    assert all(erasure.nulled_at for erasure in erasures)
                    assert bool(erasures) == (request.outcome == "forgotten")

    @invariant()
    def whoever_asked_is_suppressed(self) -> None:
        """A person is suppressed if and only if they have a standing request that was accepted after they last
        consented."""
        with self.database.reading() as session:
            expected = set()
            for request in session.scalars(sa.select(DeletionRequest).where(DeletionRequest.status.in_(STANDING))):
                events = repository.events(session, request_id=request.id)
                accepted = next(event.id for event in events if event.status == RequestStatus.ACCEPTED)
                if accepted > self.lifted_after.get(request.subject_ref, 0):
                    where = request.dataset_ids or ["*"]
                    expected |= {(request.subject_ref, dataset_id) for dataset_id in where}
            rows = session.execute(sa.select(Suppression.subject_ref, Suppression.dataset_id))
            assert {(person, dataset_id) for person, dataset_id in rows} == expected

    @invariant()
    def the_audit_log_hangs_together(self) -> None:
        """Each audit entry follows the previous one."""
        with self.database.reading() as session:
            query = sa.select(AuditEntry).where(AuditEntry.tenant_id == DEFAULT_TENANT).order_by(AuditEntry.sequence)
            previous = GENESIS
            for place, entry in enumerate(session.scalars(query), 1):
                assert (entry.sequence, entry.previous_hash) == (place, previous)
                assert entry.hash == entry_hash(entry)
                previous = entry.hash

    def _try(self, which: int, act: Callable[[Session, DeletionRequest], Any]) -> None:
        """Apply `act` to a request, ignoring `Conflict` errors."""
        request_id = self.requests[which % len(self.requests)]
        try:
            with self.database.writing(by=OFFICER) as session:
                act(session, deletion.get(session, request_id))
        except Conflict:
            pass

    def _ended(self, session: Session, person: str) -> str | None:
        query = sa.select(DeletionRequest.id).where(DeletionRequest.subject_ref == person)
        return session.scalars(query.where(DeletionRequest.status.in_(ENDED)).limit(1)).first()


def test_invariants_hold_in_every_order(set_up_once: Path) -> None:
    """The invariants hold after every step, for any order of calls, decisions, claims and worker deaths."""
    run_state_machine_as_test(
        lambda: Life(set_up_once),
        settings=settings(
            max_examples=15, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
