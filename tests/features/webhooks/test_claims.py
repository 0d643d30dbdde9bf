"""Claims of deliveries, and the schedule of retries."""

import dataclasses
import datetime
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from hypothesis import given, strategies as st

from app.access import service as access, tenants
from app.access.service import DEFAULT_TENANT
from app.db import Actor, now
from app.deletion import service as deletion
from app.features.webhooks import dispatcher, repository, service
from app.features.webhooks.dispatcher import ClaimedDelivery, DeliveryVerdict, SendResult
from app.features.webhooks.tables import WebhookDelivery
from app.installations import Installation
from lethe.contract.tenants import Policy
from tests.features.webhooks.submitting import URL, asked, submit
from tests.stored import flipped, line_of

Deliveries = Callable[[], list[WebhookDelivery]]
LEASE = datetime.timedelta(seconds=30)
DELIVERED = SendResult(verdict=DeliveryVerdict.DELIVERED, status=200)
GONE = SendResult(verdict=DeliveryVerdict.GONE, error_code="http_410", status=410)
BROKEN = SendResult(verdict=DeliveryVerdict.FAILED, error_code="timeout")


def claim(
    installation: Installation, *, limit: int = 100, max_per_host: int = 100, **under_way: int
) -> list[ClaimedDelivery]:
    hosts = {name.replace("_", "."): count for name, count in under_way.items()}
    with installation.database.writing() as session:
        return dispatcher.claim(session, limit=limit, lease_for=LEASE, under_way=hosts, max_per_host=max_per_host)


def record(installation: Installation, claimed: ClaimedDelivery, outcome: SendResult) -> str | None:
    with installation.database.writing() as session:
        return dispatcher.record(session, claimed, outcome, Random(1))


def pass_by(installation: Installation, time: datetime.timedelta) -> None:
    """Let `time` pass for all pending deliveries, by moving their next attempts that much earlier."""
    with installation.database.writing() as session:
        for row in session.query(WebhookDelivery).where(WebhookDelivery.status == "pending"):
            row.next_attempt_at -= time


@pytest.fixture
def other(installation: Installation) -> Actor:
    """Create a second tenant, and return its actor."""
    with installation.database.writing(by=Actor(tenant_id=DEFAULT_TENANT, name="test")) as session:
        tenant = tenants.create(session, name="other", policy=Policy(), admin_key=access.new_key())
    return Actor(tenant_id=tenant.id, name="test")


def test_a_claimed_delivery_is_hidden_during_its_lease(installation: Installation, by: Actor) -> None:
    """A delivery can be claimed once during its lease. After the lease it can be claimed again under the same id."""
    submit(installation, by, asked(installation, by))
    [first] = claim(installation)
    assert (first.event, first.url, first.source) == ("deletion_request.accepted", URL, None)
    assert claim(installation) == []
    pass_by(installation, LEASE)
    [again] = claim(installation)
    assert again.id == first.id
    assert record(installation, again, DELIVERED) == "delivered"


def test_concurrent_claims_have_one_winner(installation: Installation, by: Actor) -> None:
    """If dispatchers claim due deliveries at the same moment, each delivery is claimed exactly once."""
    submit(installation, by, *(asked(installation, by, f"p{number}") for number in range(30)))
    start = threading.Barrier(6)

    def race(_: int) -> list[ClaimedDelivery]:
        start.wait()
        return [one for _ in range(4) for one in claim(installation, limit=3)]

    with ThreadPoolExecutor(6) as threads:
        taken = [one.id for some in threads.map(race, range(6)) for one in some]
    assert len(taken) == len(set(taken)) == 30


def test_events_are_delivered_in_order(installation: Installation, by: Actor, deliveries: Deliveries) -> None:
    """A later event waits until the earlier event has been delivered or abandoned. Events about other requests or to
    other receivers are not held up."""
    submit(
        installation,
        by,
        asked(installation, by, callback_urls=(URL, "https://other.example/")),
        asked(installation, by, "somebody"),
    )
    taken = claim(installation)
    assert {one.event for one in taken} == {"deletion_request.accepted"}
    assert len(taken) == 3
    assert claim(installation) == []
    first = next(one for one in taken if one.url == URL)
    rest = [one for one in taken if one is not first]
    for one in rest:
        assert record(installation, one, DELIVERED) == "delivered"
    assert {(one.event, one.request_id, one.url) for one in claim(installation)} == {
        ("deletion_request.completed", one.request_id, one.url) for one in rest
    }
    assert record(installation, first, BROKEN) == "failed"
    failed, waiting = (row for row in deliveries() if (row.request_id, row.letter.url) == (first.request_id, first.url))
    assert (failed.attempts, failed.error) == (1, "timeout")
    assert failed.next_attempt_at == waiting.next_attempt_at
    pass_by(installation, datetime.timedelta(days=1))
    [again] = [one for one in claim(installation) if one.id == first.id]
    assert record(installation, again, DELIVERED) == "delivered"
    assert waiting.id in [one.id for one in claim(installation)]


def test_a_discreet_end_waits_for_its_report(installation: Installation, by: Actor, deliveries: Deliveries) -> None:
    """A discreet request's completion is not sent before its report time, even if earlier events have been
    delivered."""
    submit(installation, by, asked(installation, by, discreet=True))
    [accepted] = claim(installation)
    assert record(installation, accepted, DELIVERED) == "delivered"
    assert claim(installation) == []
    assert deliveries()[1].next_attempt_at == deliveries()[1].created_at


def test_a_failure_after_the_lease_is_ignored(installation: Installation, by: Actor, deliveries: Deliveries) -> None:
    """After the lease has expired, a reported failure is ignored and a reported success is recorded."""
    submit(installation, by, asked(installation, by))
    [slow] = claim(installation)
    pass_by(installation, LEASE)
    [quick] = claim(installation)
    assert record(installation, slow, BROKEN) is None
    assert deliveries()[0].attempts == 0
    assert record(installation, slow, DELIVERED) == "delivered"
    assert record(installation, quick, BROKEN) is None
    assert (deliveries()[0].status, deliveries()[0].attempts) == ("delivered", 1)


def test_the_tenth_failure_is_the_last(installation: Installation, by: Actor, deliveries: Deliveries) -> None:
    """A delivery is attempted ten times with pauses in between. After the tenth failure it is dead, and later events
    are sent."""
    submit(installation, by, asked(installation, by))
    ends = []
    for _ in range(10):
        [one] = [one for one in claim(installation) if one.event.endswith("accepted")]
        ends.append(record(installation, one, BROKEN))
        with installation.database.reading() as session:
            first, at_once = deliveries()[0], now(session)
        assert first.ended_at is not None or first.next_attempt_at > at_once
        pass_by(installation, datetime.timedelta(days=3))
    assert ends == ["failed"] * 9 + ["dead"]
    assert [one.event for one in claim(installation)] == ["deletion_request.completed"]


def test_a_url_that_cannot_be_called_is_tried_once(installation: Installation, by: Actor) -> None:
    """A delivery to an invalid URL is attempted only once."""
    submit(installation, by, asked(installation, by, callback_urls=("mailto:jane@example.org",)))
    [one] = claim(installation)
    assert record(installation, one, SendResult(verdict=DeliveryVerdict.FAILED, error_code="url_invalid")) == "dead"


def test_a_damaged_delivery_is_abandoned(installation: Installation, by: Actor, deliveries: Deliveries) -> None:
    """A delivery that cannot be decrypted is marked as dead with the reason, and does not delay other deliveries. A
    request with damaged details can still be decided, but its receiver is not notified."""
    first, second = asked(installation, by, "p1"), asked(installation, by, "p2")
    [request] = submit(installation, by, dataclasses.replace(first, policy=Policy(auto_accept=False)))
    submit(installation, by, second)
    waiting = [row for row in deliveries() if row.request_id == request.id]
    with installation.database.reading() as session:
        details = deletion.get(session, request.id).particulars
    for key in (waiting[0].letter.key, details.key):
        page, place = line_of(installation, key)
        page.write_bytes(flipped(page.read_bytes(), place + 40))
    claimed = claim(installation)
    assert request.id not in {delivery.request_id for delivery in claimed}
    assert claimed
    [dead] = [row for row in deliveries() if row.status == "dead"]
    assert (dead.id, dead.error) == (waiting[0].id, "sealed_text_damaged")
    with installation.database.writing(by=by) as session:
        deletion.approve(session, deletion.get(session, request.id), policy=Policy())
    assert [row.id for row in deliveries() if row.request_id == request.id] == [dead.id]


def test_a_410_ends_deliveries_to_its_url(installation: Installation, by: Actor, deliveries: Deliveries) -> None:
    """A 410 response ends all deliveries to the same URL, for all requests. Deliveries to other URLs continue."""
    submit(
        installation,
        by,
        asked(installation, by),
        asked(installation, by, "b"),
        asked(installation, by, "c", callback_urls=("https://receiver.example/2",)),
    )
    taken = claim(installation)
    assert record(installation, taken[0], GONE) == "gone"
    assert {(row.letter.url, row.status) for row in deliveries()} == {
        (URL, "gone"),
        ("https://receiver.example/2", "pending"),
    }
    assert {row.error for row in deliveries() if row.status == "gone"} == {"http_410"}


def test_deliveries_to_a_host_are_limited(installation: Installation, by: Actor) -> None:
    """A host receives at most the permitted number of deliveries at the same time, however many are waiting. Other
    hosts are still served."""
    submit(installation, by, *(asked(installation, by, f"p{number}") for number in range(20)))
    submit(installation, by, asked(installation, by, "q", callback_urls=("https://other.example/",)))
    assert len(claim(installation, limit=10, max_per_host=4)) == 4
    busy = {"receiver_example": 4}
    assert [one.host for one in claim(installation, limit=10, max_per_host=4, **busy)] == ["other.example"]
    with installation.database.reading() as session:
        assert not repository.is_any_due(session, at=now(session), besides=["receiver.example", "other.example"])
    assert len(claim(installation, limit=10, max_per_host=4, receiver_example=1)) == 3


def test_tenants_are_served_fairly(installation: Installation, by: Actor, other: Actor) -> None:
    """However many deliveries of one tenant are waiting or in progress, another tenant's delivery is among the next two
    that are claimed. Among tenants with equally many deliveries in progress, the one served least recently comes
    first."""
    submit(installation, by, *(asked(installation, by, f"p{number}") for number in range(40)))
    submit(installation, other, asked(installation, other, "q", callback_urls=("https://other.example/",)))
    mine, theirs = by.tenant_id, other.tenant_id

    def next_two(of_tenants: dict[str, int], latest: dict[str, int]) -> list[str]:
        with installation.database.writing() as session:
            given = {"limit": 2, "lease_for": LEASE, "under_way": {}, "max_per_host": 100}
            claimed = dispatcher.claim(session, **given, of_tenants=of_tenants, latest=latest)
            session.rollback()
        return [delivery.tenant_id for delivery in claimed]

    assert set(next_two({}, {})) == {mine, theirs}
    assert next_two({}, {mine: 7, theirs: 5}) == [theirs, mine]
    assert next_two({mine: 30}, {}) == [theirs]
    assert next_two({mine: 1, theirs: 1}, {theirs: 9}) == [mine]
    assert next_two({mine: 2, theirs: 2}, {}) == []


def test_a_tenant_takes_at_most_half_of_the_free_slots(installation: Installation, by: Actor) -> None:
    """A tenant gets at most half of the free slots, even if no other tenant has deliveries."""
    submit(installation, by, *(asked(installation, by, f"p{number}") for number in range(40)))
    assert len(claim(installation, limit=20)) == 10


def test_a_replay_goes_before_later_events(installation: Installation, by: Actor) -> None:
    """A replayed delivery is sent before later events of the same request."""
    submit(installation, by, asked(installation, by))
    [accepted] = claim(installation)
    record(installation, accepted, DELIVERED)
    with installation.database.writing(by=by) as session:
        service.replay(session, service.get(session, accepted.id))
    assert [one.id for one in claim(installation)] == [accepted.id]


def test_a_410_for_a_discreet_request_ends_one_delivery(
    installation: Installation, by: Actor, deliveries: Deliveries
) -> None:
    """For a discreet request, a 410 response ends only the delivery that was sent. A later delivery that is already
    queued, but still hidden from the receiver, stays pending. Otherwise, whether it arrives would depend on whether it
    was created before the 410, which would reveal whether data is held."""
    submit(installation, by, asked(installation, by, discreet=True, policy=Policy(report_seconds=3600)))
    [taken] = claim(installation)
    assert record(installation, taken, GONE) == "gone"
    assert [(row.event.partition(".")[2], row.status) for row in deliveries()] == [
        ("accepted", "gone"),
        ("completed", "pending"),
    ]


SCHEDULED = [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400]


@pytest.mark.parametrize(("attempts", "seconds"), list(enumerate(SCHEDULED, start=1)))
def test_pauses_average_the_schedule(attempts: int, seconds: int) -> None:
    """The pause after a failed attempt is drawn at random between zero and twice the scheduled pause, and equals the
    scheduled pause on average."""
    random = Random(attempts)
    drawn = [dispatcher.next_attempt(attempts, random) for _ in range(10_000)]
    pauses = [pause.total_seconds() for pause in drawn if pause is not None]
    assert len(pauses) == len(drawn)
    assert 0 <= min(pauses) < 0.01 * seconds
    assert 1.99 * seconds < max(pauses) <= 2 * seconds
    # The tolerance is five standard deviations.
    assert sum(pauses) / len(pauses) == pytest.approx(seconds, rel=0.03)


@given(attempts=st.integers(1, 9), seed=st.integers(), asked=st.integers(0, 10**6))
def test_retry_after_of_a_receiver_is_respected(attempts: int, seed: int, asked: int) -> None:
    """A receiver that sends Retry-After is not called before that time, unless the time is more than two days away."""
    retry_after = datetime.timedelta(seconds=asked)
    pause = dispatcher.next_attempt(attempts, Random(seed), retry_after=retry_after)
    alone = dispatcher.next_attempt(attempts, Random(seed))
    assert pause is not None
    assert alone is not None
    assert pause == min(max(alone, retry_after), datetime.timedelta(days=2))


@pytest.mark.parametrize("attempts", [0, -1])
def test_the_next_attempt_requires_a_previous_attempt(attempts: int) -> None:
    """Computing the time of the next attempt raises an error if no attempt has been made yet."""
    with pytest.raises(ValueError, match="attempts"):
        dispatcher.next_attempt(attempts, Random(0))
