"""Permission to serve a version, with real requests and a real worker, as a model server polls it."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.catalogue import service as catalogue
from app.db import Actor
from app.db.tables import DeletionRequest
from app.features.lineage import service
from app.features.lineage.service import Serving
from app.installations import Installation
from lethe.contract.problems import VersionUnknown
from lethe.features.lineage.contract import ServingRefusal

Make = Callable[..., dict[str, Any]]
Ask = Callable[..., Serving]
Work = Callable[[], int]
LONG_AGO = "2020-01-01T00:00:00Z"


@pytest.fixture
def model(new_dataset: Make, new_model: Make) -> dict[str, Any]:
    return new_model(new_dataset()["id"])


@pytest.fixture
def ask(installation: Installation, by: Actor, model: dict[str, Any]) -> Ask:
    def of_model(**named: Any) -> Serving:
        with installation.database.reading(by=by) as session:
            return service.of_model(session, catalogue.get_model(session, model["id"]), **named)

    return of_model


def minutes_left(found: Serving) -> float:
    assert found.valid_until is not None
    return (found.valid_until - datetime.datetime.now(datetime.UTC)).total_seconds() / 60


def test_nothing_is_served_before_the_first_version(ask: Ask, work: Work) -> None:
    """A model without a version may not be served, and the response asks the caller to poll again soon. The first
    version may be served for an hour."""
    found = ask()
    assert (found.version, found.reason, found.certified, found.valid_until) == (
        None,
        ServingRefusal.NOT_LIVE,
        False,
        None,
    )
    assert found.retry_after_seconds
    work()
    found = ask()
    assert (found.version, found.reason, found.certified) == (1, None, True)
    assert 59 < minutes_left(found) <= 60
    assert found.retry_after_seconds is None
    assert 59 < found.fresh_seconds / 60 <= 60


def test_a_version_is_served_until_the_first_deadline(
    installation: Installation, ask: Ask, forget: Make, work: Work
) -> None:
    """While a request is open, the live version is not certified and may be served only until the earliest deadline.
    The new version without the person may be served as soon as it is published."""
    work()
    forget("p1")
    request = forget("p2")
    due(installation, request, in_minutes=20)
    found = ask()
    assert (found.reason, found.certified) == (None, False)
    assert 19 < minutes_left(found) <= 20
    due(installation, request, in_minutes=-1)
    found = ask()
    assert (found.version, found.reason, found.valid_until) == (1, ServingRefusal.FORGETTING_OVERDUE, None)
    assert (found.fresh_seconds, bool(found.retry_after_seconds)) == (0, True)
    work()
    found = ask()
    assert (found.version, found.reason, found.certified) == (2, None, True)


def test_a_lagging_model_is_not_served_past_the_deadline(
    installation: Installation, ask: Ask, forget: Make, new_model: Make, model: dict[str, Any], work: Work
) -> None:
    """If one of a dataset's two models has not yet forgotten a person, it may not be served past the deadline, even
    though the rows have been erased. The other model may be served."""
    from worker import runner

    other = new_model(model["dataset_id"], name="other")
    work()
    forget("p1", submitted_at=LONG_AGO)
    assert runner.run_next(installation, worker="test")
    with installation.database.reading() as session:
        found = {
            one: service.of_model(session, catalogue.get_model(session, one)).reason
            for one in (model["id"], other["id"])
        }
    assert sorted(found.values(), key=str) == sorted([None, ServingRefusal.FORGETTING_OVERDUE], key=str)
    work()
    assert ask().reason is None


def test_only_accepted_requests_stop_a_model(
    installation: Installation, ask: Ask, forget: Make, gateway: Any, work: Work
) -> None:
    """Only accepted requests stop a model from being served. Requests in review and cancelled requests do not."""
    work()
    reviewed = forget("p1", identity_verified=False, submitted_at=LONG_AGO)
    assert reviewed["status"] == "in_review"
    cancelled = forget("p2", submitted_at=LONG_AGO)
    assert ask().reason is ServingRefusal.FORGETTING_OVERDUE
    assert gateway.post(f"/v1/deletion-requests/{cancelled['id']}/cancel").status_code == 200
    assert (ask().reason, ask().certified) == (None, True)
    assert gateway.post(f"/v1/deletion-requests/{reviewed['id']}/approve").status_code == 200
    due(installation, reviewed, in_minutes=-1)
    assert ask().reason is ServingRefusal.FORGETTING_OVERDUE


def test_a_version_that_was_superseded_is_not_served(
    ask: Ask, forget: Make, work: Work, installation: Installation
) -> None:
    """A superseded version, whether named by number or by digest, is refused permanently."""
    work()
    first = ask()
    assert {ask(**named).reason for named in ({"number": 1}, {"weights_sha256": first.weights_sha256})} == {None}
    forget("p1")
    work()
    for named in ({"number": 1}, {"weights_sha256": first.weights_sha256}):
        found = ask(**named)
        assert found.reason in (ServingRefusal.SUPERSEDED, ServingRefusal.WEIGHTS_DESTROYED)
        assert (found.version, found.certified, found.valid_until) == (1, False, None)
        assert found.retry_after_seconds is None
    assert ask(number=2).reason is None


def test_a_version_that_never_existed_is_unknown(ask: Ask, work: Work) -> None:
    """A version is unknown if the model never had a version with the given number or digest, or if number and digest do
    not belong together."""
    work()
    for named in ({"number": 2}, {"weights_sha256": "0" * 64}, {"number": 1, "weights_sha256": "0" * 64}):
        with pytest.raises(VersionUnknown):
            ask(**named)


def due(installation: Installation, request: dict[str, Any], *, in_minutes: float) -> None:
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=in_minutes)
    with installation.database.writing() as session:
        session.execute(sa.update(DeletionRequest).where(DeletionRequest.id == request["id"]).values(deadline=moment))


Refused = Callable[..., dict[str, Any]]


def test_the_response_names_the_permitted_digest(
    gateway: TestClient, live: dict[str, Any], forget: Make, work: Work
) -> None:
    """The response names the permitted version and its digest and is valid for an hour. If the caller names a version
    that may not be served, the response explains why."""
    place = f"/v1/models/{live['id']}/serving"
    digest = gateway.get(f"/v1/models/{live['id']}/versions/1").json()["weights_sha256"]
    answer = gateway.get(place)
    said = answer.json()
    assert said == {
        "model_id": live["id"],
        "version": 1,
        "weights_sha256": digest,
        "may_serve": True,
        "reason": None,
        "certified": True,
        "valid_until": said["valid_until"],
        "retry_after_seconds": None,
    }
    private, age, again = answer.headers["cache-control"].split(", ")
    assert (private, again) == ("private", "must-revalidate")
    assert 3500 < int(age.removeprefix("max-age=")) <= 3600
    forget("p1", submitted_at="2020-01-01T00:00:00Z")
    late = gateway.get(place, params={"weights_sha256": digest})
    assert (late.json()["may_serve"], late.json()["reason"]) == (False, "forgetting_overdue")
    assert "max-age=0" in late.headers["cache-control"]


def test_polling_with_a_current_etag_returns_no_body(gateway: TestClient, live: dict[str, Any], forget: Make) -> None:
    """Polling with a current ETag returns an empty response that is valid for another hour. Polling with an outdated
    ETag returns the new response."""
    place = f"/v1/models/{live['id']}/serving"
    tag = gateway.get(place).headers["etag"]
    for named in (tag, f'"other", {tag}', tag.removeprefix("W/"), "*"):
        answer = gateway.get(place, headers={"If-None-Match": named})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
        assert "max-age=3" in answer.headers["cache-control"]
    assert gateway.get(place, headers={"If-None-Match": '"other"'}).status_code == 200
    forget("p1")
    changed = gateway.get(place, headers={"If-None-Match": tag})
    assert (changed.status_code, changed.json()["certified"], changed.json()["may_serve"]) == (200, False, True)


def test_malformed_versions_are_refused(gateway: TestClient, live: dict[str, Any], refused: Refused) -> None:
    """Requests for unknown versions and models get a 404. A version name that is neither a number nor a digest is
    refused as malformed."""
    place = f"/v1/models/{live['id']}/serving"
    refused(gateway.get(f"{place}?version=2"), 404, "version_unknown")
    refused(gateway.get("/v1/models/mdl_0/serving"), 404, "model_unknown")
    for query in ("version=0", "version=x", "weights_sha256=abc", f"version={10**30}"):
        refused(gateway.get(f"{place}?{query}"), 422, "input_invalid")
