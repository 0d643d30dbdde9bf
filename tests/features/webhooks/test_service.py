import contextlib
import datetime
import functools
import json
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from app.access.service import DEFAULT_TENANT
from app.db import Actor, now
from app.db.tables import AuditEntry, DeletionRequest
from app.deletion import completion, history, service as deletion
from app.features.webhooks import jobs, repository, service
from app.features.webhooks.tables import WebhookDelivery
from app.installations import Installation
from app.unlearning import queue, service as unlearning
from lethe.contract.sets import Outcome, RejectionGround
from lethe.contract.tenants import Policy
from lethe.features.webhooks.contract import DeliveryUnknown
from tests.counted import statements_to
from tests.features.webhooks.submitting import URL, asked, submit

Deliveries = Callable[[], list[WebhookDelivery]]


def told(deliveries: Deliveries) -> list[tuple[str, str]]:
    """Return each delivery's event and the status in its body."""
    return [(row.event.partition(".")[2], json.loads(row.letter.body)["data"]["status"]) for row in deliveries()]


def test_a_receiver_gets_one_delivery_per_event(installation: Installation, by: Actor, deliveries: Deliveries) -> None:
    """Each event of a request creates one delivery per URL, in the transaction of the event. Deliveries are created in
    the order of the events."""
    [request] = submit(installation, by, asked(installation, by, callback_urls=(URL, "https://b.example:8443/", URL)))
    rows = deliveries()
    assert [(row.event, row.host) for row in rows] == [
        ("deletion_request.accepted", "receiver.example"),
        ("deletion_request.accepted", "b.example"),
        ("deletion_request.completed", "receiver.example"),
        ("deletion_request.completed", "b.example"),
    ]
    assert {(row.request_id, row.tenant_id, row.status, row.attempts) for row in rows} == {
        (request.id, DEFAULT_TENANT, "pending", 0)
    }
    assert rows[0].created_at < rows[2].created_at
    assert told(deliveries)[::2] == [("accepted", "accepted"), ("completed", "completed")]


def test_a_rollback_leaves_no_delivery(installation: Installation, by: Actor, deliveries: Deliveries) -> None:
    """A change that is rolled back creates no delivery and does not wake the dispatcher."""
    heard: list[bool] = []
    ear = functools.partial(heard.append, True)
    service.listen(ear)
    try:
        with contextlib.suppress(ZeroDivisionError), installation.database.writing(by=by) as session:
            deletion.submit_all(session, [asked(installation, by)])
            _ = 1 // 0
        assert (deliveries(), heard) == ([], [])
        submit(installation, by, asked(installation, by), asked(installation, by, "somebody"))
        assert (len(deliveries()), heard) == (4, [True])
    finally:
        service.stop_listening(ear)


def test_requests_without_receivers_execute_no_statement(
    installation: Installation, by: Actor, deliveries: Deliveries
) -> None:
    """A request without receivers executes no SQL statement about deliveries."""
    with statements_to(installation.database.engine) as statements:
        submit(installation, by, *(asked(installation, by, f"p{number}", callback_urls=()) for number in range(20)))
        assert len(statements) > 3
        assert not any("webhook_deliveries" in statement for statement in statements)
        submit(installation, by, *(asked(installation, by, f"q{number}") for number in range(20)))
        assert sum("webhook_deliveries" in statement for statement in statements) == 1
    assert len(deliveries()) == 40


def test_decisions_of_an_officer_are_sent(installation: Installation, by: Actor, deliveries: Deliveries) -> None:
    """Events are sent for an officer's review, extension, rejection and cancellation, but not for pauses of the
    clock."""
    policy = Policy(auto_accept=False)
    one, other = submit(
        installation, by, asked(installation, by, policy=policy), asked(installation, by, "somebody", policy=policy)
    )
    with installation.database.writing(by=by) as session:
        rejected, cancelled = (deletion.get(session, found.id) for found in (one, other))
        deletion.pause(session, rejected, policy=policy)
        deletion.resume(session, rejected)
        deletion.extend(session, rejected, policy=policy, reason="many requests about jane@example.org")
        deletion.reject(session, rejected, ground=RejectionGround.LEGAL_CLAIMS, explanation="a lawsuit of Jane")
        deletion.cancel(session, cancelled, discreet=False)
    of_first = [row for row in deliveries() if row.request_id == one.id]
    assert told(lambda: of_first) == [("in_review", "in_review"), ("extended", "in_review"), ("rejected", "rejected")]
    of_second = [row for row in deliveries() if row.request_id == other.id]
    assert told(lambda: of_second) == [("in_review", "in_review"), ("cancelled", "cancelled")]
    data = json.loads(of_first[1].letter.body)["data"]
    assert data["deadline"] > data["due_at"]
    assert not any("Jane" in row.letter.body or "jane" in row.letter.body for row in deliveries())


@pytest.mark.parametrize("discreet", [False, True])
def test_deadlines_are_sent_only_if_they_reveal_nothing(
    installation: Installation, by: Actor, deliveries: Deliveries, discreet: bool
) -> None:
    """Events about approaching and missed deadlines are sent, except for discreet requests, where they would reveal how
    long the work takes."""
    policy = Policy(auto_accept=False)
    submit(installation, by, asked(installation, by, policy=policy, discreet=discreet))
    for days, moved in ((60, datetime.timedelta(0)), (60, datetime.timedelta(days=100))):
        with installation.database.writing() as session:
            for request in session.scalars(sa.select(DeletionRequest)):
                request.deadline -= moved
            session.flush()
            assert deletion.alert(session, datetime.timedelta(days=days)) == 1
    events = [event for event, _ in told(deliveries)]
    assert events == (["in_review"] if discreet else ["in_review", "at_risk", "overdue"])


def test_a_discreet_completion_reveals_nothing(installation: Installation, by: Actor, deliveries: Deliveries) -> None:
    """Neither the row nor the body of a discreet request's completion reveals when the work really ended, and the body
    has the same fields as other events."""
    policy = Policy(report_seconds=3600)
    [request] = submit(installation, by, asked(installation, by, policy=policy, discreet=True))
    accepted, completed = deliveries()
    assert request.reported_at is not None
    assert request.completed_at is not None
    assert completed.created_at == completed.next_attempt_at == request.reported_at > request.completed_at
    data = json.loads(completed.letter.body)["data"]
    assert data["completed_at"] == json.loads(completed.letter.body)["timestamp"]
    assert data.keys() == json.loads(accepted.letter.body)["data"].keys()
    assert "outcome" not in data
    assert "held" not in completed.letter.body


def test_a_policy_that_hides_completion_times_delays_a_completion(
    installation: Installation, by: Actor, deliveries: Deliveries
) -> None:
    """If the policy starts to hide completion times after a discreet request was accepted, the completion is sent only
    at the deadline, because an earlier delivery would reveal when the work ended."""
    open_policy = Policy(grace_seconds=3600, report_seconds=0)
    [accepted] = submit(installation, by, asked(installation, by, policy=open_policy, discreet=True))
    with installation.database.writing(by=by) as session:
        request = deletion.get(session, accepted.id)
        hidden = Policy(report_seconds=3600)
        change = completion.complete(request, policy=hidden, at=now(session), outcome=Outcome.NOTHING_HELD)
        history.record(session, [change])
    assert [event for event, _ in told(deliveries)] == ["accepted", "completed"]
    completed = deliveries()[-1]
    assert completed.created_at == completed.next_attempt_at == accepted.deadline


def test_a_repeated_claim_notifies_receivers_once(
    installation: Installation, by: Actor, deliveries: Deliveries, new_dataset: Callable[..., dict[str, Any]]
) -> None:
    """If a request is claimed again after its worker died, its receivers are still notified of the acceptance only
    once."""
    new_dataset()
    submit(installation, by, asked(installation, by, "p1"))
    for _ in range(2):
        with installation.database.writing() as session:
            assert queue.claim(session, worker="test", lease_seconds=60, max_requests=10)
        with installation.database.writing() as session:
            assert unlearning.take_back(session, worker="test") == 1
    assert told(deliveries) == [("accepted", "accepted")]


def test_a_replay_is_pending_again(installation: Installation, by: Actor, deliveries: Deliveries) -> None:
    """A replay makes an ended delivery pending again under the same id. Repeating the replay is a no-op."""
    submit(installation, by, asked(installation, by))
    row = deliveries()[0]
    with installation.database.writing() as session:
        dead = service.get(session, row.id)
        dead.status, dead.attempts, dead.error, dead.ended_at = "dead", 10, "timeout", now(session)
    for _ in range(2):
        with installation.database.writing(by=by) as session:
            service.replay(session, service.get(session, row.id))
    again = deliveries()[0]
    assert (again.id, again.status, again.attempts, again.error, again.ended_at) == (row.id, "pending", 0, None, None)
    with installation.database.reading() as session:
        entries = session.scalars(sa.select(AuditEntry).where(AuditEntry.action == "webhook_delivery.replayed")).all()
        assert [(entry.object_id, entry.actor) for entry in entries] == [(row.id, "test")]
        with pytest.raises(DeliveryUnknown):
            service.get(session, "whd_0")


def test_another_tenants_deliveries_are_unknown(installation: Installation, by: Actor, deliveries: Deliveries) -> None:
    """A session of one tenant neither finds nor lists another tenant's deliveries."""
    submit(installation, by, asked(installation, by))
    other = Actor(tenant_id="ten_other", name="test")
    with installation.database.reading(by=other) as session:
        with pytest.raises(DeliveryUnknown):
            service.get(session, deliveries()[0].id)
        for until in (None, now(session)):
            page = repository.deliveries(
                session, status=None, undelivered=False, request_id=None, of_discreet_until=until, limit=10, cursor=None
            )
            assert page.items == []


def test_old_deliveries_are_purged(installation: Installation, by: Actor, deliveries: Deliveries) -> None:
    """The periodic job deletes deliveries that ended more than LETHE_WEBHOOK_KEEP_DAYS ago, the oldest first. Pending
    deliveries are never deleted."""
    submit(installation, by, *(asked(installation, by, f"p{number}") for number in range(3)))
    with installation.database.writing() as session:
        for days, row in zip((31, 40, 29), deliveries(), strict=False):
            one = service.get(session, row.id)
            one.status, one.ended_at = "delivered", now(session) - datetime.timedelta(days=days)
    _, oldest, *kept = [row.id for row in deliveries()]
    with installation.database.writing() as session:
        assert [row.id for row in service.old(session, keep=datetime.timedelta(days=30), limit=1)] == [oldest]
        repository.drop(session, delivery_ids=kept[1:])
    jobs.purge_deliveries(installation)
    assert [row.id for row in deliveries()] == kept


def test_a_planned_completion_is_destroyed_if_the_request_is_rejected(
    installation: Installation, by: Actor, deliveries: Deliveries
) -> None:
    """If a planned completion does not happen because the request is rejected, its delivery is no longer listed. The
    delivery's key is destroyed together with its row, so that the delivery can never be decrypted."""
    [request] = submit(
        installation, by, asked(installation, by, discreet=True, policy=Policy(grace_seconds=3600, report_seconds=3600))
    )
    planned = deliveries()[-1]
    with installation.database.reading() as session:
        letters = sa.text("SELECT letter FROM webhook_deliveries WHERE id = :id")
        sealed = bytes(session.execute(letters, {"id": planned.id}).scalar_one())
    assert installation.vault.open(sealed) is not None
    with installation.database.writing() as session:
        found = deletion.get(session, request.id)
        deletion.reject(session, found, ground=RejectionGround.LEGAL_CLAIMS, explanation="a lawsuit")
    assert planned.id not in {row.id for row in deliveries()}
    with installation.database.reading() as session, pytest.raises(DeliveryUnknown):
        service.get(session, planned.id)
    jobs.purge_deliveries(installation)
    assert installation.vault.open(sealed) is None
    with installation.database.reading() as session:
        assert session.get(WebhookDelivery, planned.id) is None
    assert [row.event.partition(".")[2] for row in deliveries()] == ["accepted", "rejected"]


def test_due_deliveries_are_found_by_their_index(installation: Installation) -> None:
    """The query for due deliveries, which every gateway runs each second, uses the index of pending deliveries."""
    query = sa.select(sa.exists().where(*repository._due(datetime.datetime.now(datetime.UTC), [], [])))
    compiled = query.compile(installation.database.engine, compile_kwargs={"literal_binds": True})
    with installation.database.reading() as session:
        if session.get_bind().dialect.name == "sqlite":
            plan = session.execute(sa.text(f"EXPLAIN QUERY PLAN {compiled}")).all()
        else:
            session.execute(sa.text("SET LOCAL enable_seqscan = off"))
            plan = session.execute(sa.text(f"EXPLAIN {compiled}")).all()
    assert "ix_webhook_deliveries_pending" in str(plan)


def test_a_request_that_waited_notifies_receivers(
    installation: Installation, by: Actor, deliveries: Deliveries
) -> None:
    """A request that waited until its grace period ended notifies its receivers like any other request."""
    policy = Policy(grace_seconds=1000)
    [request] = submit(installation, by, asked(installation, by, policy=policy))
    assert told(deliveries) == [("accepted", "accepted")]
    with installation.database.writing() as session:
        found = deletion.get(session, request.id)
        assert found.held_until is not None
        found.held_until -= datetime.timedelta(seconds=1001)
        session.flush()
        assert completion.settle(session) == 1
    assert told(deliveries) == [("accepted", "accepted"), ("completed", "completed")]
