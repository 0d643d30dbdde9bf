"""`/models/{id}/serving`, as a model server polls it."""

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

Make = Callable[..., dict[str, Any]]
Refused = Callable[..., dict[str, Any]]
Work = Callable[[], int]


def test_a_server_is_told_which_digest_it_may_serve(
    gateway: TestClient, live: dict[str, Any], forget: Make, work: Work
) -> None:
    """The answer names version and digest, holds for an hour, and says why a named version is refused."""
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
    work()
    gone = gateway.get(place, params={"version": 1}).json()
    assert (gone["may_serve"], gone["reason"], gone["version"]) == (False, "weights_destroyed", 1)
    assert gateway.get(place).json()["version"] == 2


def test_polling_costs_no_body(gateway: TestClient, live: dict[str, Any], forget: Make) -> None:
    """With the tag of an answer that still holds there is no body, and its hour begins anew; one that no longer holds
    is replaced."""
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


def test_what_cannot_be_named_is_refused(gateway: TestClient, live: dict[str, Any], refused: Refused) -> None:
    """Versions and models that never were are unknown; what is neither a number nor a digest is malformed."""
    place = f"/v1/models/{live['id']}/serving"
    refused(gateway.get(f"{place}?version=2"), 404, "version_unknown")
    refused(gateway.get("/v1/models/mdl_0/serving"), 404, "model_unknown")
    for query in ("version=0", "version=x", "weights_sha256=abc", f"version={10**30}"):
        refused(gateway.get(f"{place}?{query}"), 422, "input_invalid")
