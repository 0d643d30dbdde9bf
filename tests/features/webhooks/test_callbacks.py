import datetime
import json
import uuid
from typing import Any

import sqlalchemy as sa

from app.access.service import DEFAULT_TENANT
from app.db import Actor, now, sealed
from app.db.tables import DeletionRequest, Tenant
from app.deletion import completion, history, service as deletion
from app.features.webhooks.tables import WebhookDelivery
from app.installations import Installation
from lethe.contract.sets import RejectionGround, RequestStatus
from lethe.contract.tenants import Policy
from tests.counted import statements_to
from tests.features.webhooks import submitting
from tests.features.webhooks.submitting import asked

URLS = ("https://controller.example/one", "https://controller.example/two")
REVIEWED = Policy(auto_accept=False)


def submit(installation: Installation, by: Actor, *subjects: str, **changed: Any) -> list[str]:
    """Submit a subject request with several identities, and return the ids of its deletion requests."""
    same = {"external_id": str(uuid.uuid4()), "callback_urls": URLS[:1]} | changed
    wanted = [asked(installation, by, subject_id, **same) for subject_id in subjects]
    return [request.id for request in submitting.submit(installation, by, *wanted)]


def told(installation: Installation, url: str = URLS[0]) -> list[tuple[WebhookDelivery, dict[str, Any]]]:
    """Return each delivery to a receiver with its body, in order of creation."""
    with installation.database.reading() as session:
        query = sa.select(WebhookDelivery).where(sealed.refers_to(session, WebhookDelivery.receiver_ref, url))
        query = query.order_by(WebhookDelivery.created_at)
        return [(row, json.loads(row.letter.body)) for row in session.scalars(query)]


def statuses(installation: Installation, url: str = URLS[0]) -> list[str]:
    return [body["request_status"] for _, body in told(installation, url)]


def end(installation: Installation, by: Actor, request_id: str, *, completed: bool = True) -> None:
    """Approve or cancel a request in review."""
    with installation.database.writing(by=by) as session:
        request = deletion.get(session, request_id)
        if completed:
            deletion.approve(session, request, policy=REVIEWED)
        else:
            deletion.cancel(session, request, discreet=False)
    with installation.database.writing() as session:
        completion.settle(session)


def test_a_controller_is_notified_once_of_each_status(installation: Installation, by: Actor) -> None:
    """Each receiver gets one notification per status of the whole subject request, however many identities the request
    names."""
    ids = submit(installation, by, "a", "b", "c", source="opendsr", policy=REVIEWED, callback_urls=URLS)
    for url in URLS:
        assert statuses(installation, url) == ["pending"]
    for request_id in ids:
        end(installation, by, request_id)
    for url in URLS:
        rows = told(installation, url)
        assert [body["request_status"] for _, body in rows] == ["pending", "in_progress", "completed"]
        assert {body["status_callback_url"] for _, body in rows} == {url}
        assert {(row.event, row.request_id) for row, _ in rows} == {("opendsr.status", rows[0][0].request_id)}


def test_only_informed_callers_are_told_that_work_started(installation: Installation, by: Actor) -> None:
    """A controller is notified that work has started only if its key may learn whether data is held."""
    for discreet, expected in ((False, ["pending", "in_progress"]), (True, ["pending"])):
        url = URLS[discreet]
        [request_id] = submit(
            installation, by, "a", source="opendsr", policy=REVIEWED, discreet=discreet, callback_urls=[url]
        )
        with installation.database.writing(by=by) as session:
            request = deletion.get(session, request_id)
            history.move(session, request, RequestStatus.ACCEPTED)
            history.move(session, request, RequestStatus.RUNNING)
        assert statuses(installation, url) == expected


def test_a_subject_request_ends_once_its_last_part_is_reported(installation: Installation, by: Actor) -> None:
    """If the end of one part of a discreet subject request is reported with a delay, the caller is not notified until
    then that the whole request has ended, even if all other parts have already ended."""
    policy = Policy(report_seconds=3600)
    first, second = submit(installation, by, "a", "b", source="opendsr", policy=REVIEWED, discreet=True)
    with installation.database.writing(by=by) as session:
        request = deletion.get(session, first)
        history.move(session, request, RequestStatus.ACCEPTED)
        done = completion.complete(request, policy=policy, at=now(session), outcome="nothing_held")
        history.record(session, [done])
        reported_at = request.reported_at
    assert statuses(installation) == ["pending", "in_progress"]
    end(installation, by, second, completed=False)
    rows = told(installation)
    assert [body["request_status"] for _, body in rows][-1] == "cancelled"
    assert reported_at is not None
    assert rows[-1][0].next_attempt_at >= reported_at
    with installation.database.reading() as session:
        at_once = [row for row, _ in rows if row.next_attempt_at <= now(session)]
    assert len(at_once) == 1  # "pending"


def test_subject_requests_of_two_tenants_are_separate(installation: Installation, by: Actor) -> None:
    """A controller can send the same subject request to two tenants, and neither is notified of the other's
    progress."""
    with installation.database.writing() as session:
        default = session.get_one(Tenant, DEFAULT_TENANT)
        session.add(Tenant(id="ten_2", name="two", policy=default.policy, created_at=now(session)))
    other = Actor(tenant_id="ten_2", name="test")
    name = str(uuid.uuid4())
    [mine] = submit(installation, by, "a", source="opendsr", policy=REVIEWED, external_id=name)
    submit(installation, other, "a", source="opendsr", policy=REVIEWED, external_id=name)
    # The service's own session sees all tenants.
    with installation.database.writing() as session:
        request = deletion.get(session, mine)
        history.move(session, request, RequestStatus.ACCEPTED)
        done = completion.complete(request, policy=Policy(), at=now(session), outcome="nothing_held")
        history.record(session, [done])
    of_tenants = {row.tenant_id: body["request_status"] for row, body in told(installation)}
    assert of_tenants == {DEFAULT_TENANT: "completed", "ten_2": "pending"}


def test_an_agent_is_notified_with_the_reason(installation: Installation, by: Actor) -> None:
    """An agent is notified once of each status of its request. A refusal contains the protocol's reason."""
    kept = {"agent_id": "AGENT", "identity": "unverified"}
    how = {"policy": REVIEWED, "regulation": "ccpa", "discreet": True, "metadata": kept, "identity_verified": False}
    ids = submit(installation, by, "a", "b", source="drp", **how)
    with installation.database.writing(by=by) as session:
        one = deletion.get(session, ids[0])
        deletion.extend(session, one, policy=REVIEWED, reason="many requests")
        deletion.reject(session, one, ground=RejectionGround.IDENTITY_NOT_ESTABLISHED, explanation="nobody answered")
        # Agents are not notified of approaching deadlines.
        assert deletion.alert(session, datetime.timedelta(days=365)) == 1
    bodies = [body for row, body in told(installation) if row.request_id == ids[0]]
    assert [body["status"] for body in bodies] == ["in_progress", "in_progress", "denied"]
    assert bodies[0]["expected_by"] < bodies[1]["expected_by"]
    assert (bodies[2]["reason"], bodies[2]["processing_details"]) == ("insuf_verification", "nobody answered")
    assert len([row for row, _ in told(installation) if row.request_id == ids[1]]) == 1


def test_held_and_unknown_people_get_the_same_callbacks(installation: Installation, by: Actor) -> None:
    """If no data is held, the request completes immediately, but no callback reveals this before the report time."""
    policy = Policy(report_seconds=3600)
    for source, extra in (("opendsr", {}), ("drp", {"agent_id": "A", "identity": "verified"}), ("list", {})):
        [request_id] = submit(installation, by, "nobody", source=source, policy=policy, discreet=True, metadata=extra)
        with installation.database.reading() as session:
            assert deletion.get(session, request_id).status == RequestStatus.COMPLETED
            due = [
                row for row, _ in told(installation) if row.request_id == request_id and row.created_at <= now(session)
            ]
            request = session.get_one(DeletionRequest, request_id)
        assert len(due) == 1
        assert "completed" not in due[0].letter.body.replace("completed_at", "")
        assert "fulfilled" not in due[0].letter.body
        later = [row for row, _ in told(installation) if row.request_id == request_id][1:]
        assert [row.created_at for row in later] == [request.reported_at]


def test_the_status_of_many_identities_is_computed_once(installation: Installation, by: Actor) -> None:
    """A transaction computes a subject request's status once rather than once per identity, so that a single call
    cannot block other writers for long."""
    with statements_to(installation.database.engine) as statements:
        submit(installation, by, "a", source="opendsr", callback_urls=URLS)
        one = len(statements)
        submit(installation, by, *(f"p{number}" for number in range(50)), source="opendsr", callback_urls=URLS)
    assert len(statements) - one <= one
