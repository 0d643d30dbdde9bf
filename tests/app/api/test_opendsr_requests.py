"""`/opendsr`: what becomes of the requests of controllers, and what they are told of it."""

import base64
import datetime
import json
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.config import Settings
from app.db.tables import AuditEntry, DeletionRequest
from app.installations import Installation
from tests.app.api.controllers import Controller, identity, refusal, request
from tests.app.webhooks.servers import Server, serving
from tests.app.webhooks.servers import status as answering

pytestmark = pytest.mark.usefixtures("with_signing_key")


def test_a_request_is_one_deletion_request_for_each_identity(
    controller: Controller, gateway: TestClient, new_dataset: Callable[..., Any], work: Callable[[], int]
) -> None:
    """They share the controller's id and deadline, are done like any other, and are complete together."""
    new_dataset()
    named = controller.asked(subject_identities=[identity("p1"), identity("p2"), identity("p1")])["subject_request_id"]
    admin = Controller(gateway=gateway, headers=dict(gateway.headers))
    items = gateway.get("/v1/deletion-requests", params={"external_id": named}).json()["items"]
    assert len({item["subject_ref"] for item in items}) == len(items) == 2
    assert admin.get(named)["request_status"] == "pending"
    work()
    assert admin.get(named)["request_status"] == "completed"
    items = gateway.get("/v1/deletion-requests", params={"external_id": named}).json()["items"]
    assert {item["outcome"] for item in items} == {"forgotten"}


def test_the_same_request_again_is_the_same_request(controller: Controller, gateway: TestClient) -> None:
    """Whoever has no answer repeats the call; nothing is made twice, and the time of receipt stays."""
    asked = request(subject_identities=[identity("p1"), identity("p2")])
    first = controller.asked(**asked)
    again = controller.asked(**asked | {"subject_identities": [identity("p2"), identity("p1")]})
    assert first | {"encoded_request": ""} == again | {"encoded_request": ""}
    named = {"external_id": asked["subject_request_id"]}
    assert len(gateway.get("/v1/deletion-requests", params=named).json()["items"]) == 2


def test_the_same_request_at_once_is_one_request(controller: Controller, gateway: TestClient) -> None:
    """Callers that do not wait for each other make nothing twice."""
    asked = request()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: controller.ask(**asked), range(8)))
    assert {(answer.status_code, answer.content) for answer in answers} == {(201, answers[0].content)}
    named = {"external_id": asked["subject_request_id"]}
    assert len(gateway.get("/v1/deletion-requests", params=named).json()["items"]) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"subject_identities": [identity("p2")]},
        {"subject_identities": [identity("p1"), identity("p2")]},
        {"regulation": "ccpa"},
        {"submitted_time": "2026-10-02T15:00:01Z"},
    ],
)
def test_another_request_under_the_same_id_is_a_conflict(controller: Controller, changed: dict[str, Any]) -> None:
    """It is refused, and the first one stays as it is."""
    asked = request()
    controller.asked(**asked)
    assert refusal(controller.ask(**asked | changed), 409)["errors"][0]["reason"] == "idempotency_conflict"


def test_all_of_a_request_is_made_or_nothing(controller: Controller, installation: Installation) -> None:
    """Where one deletion request cannot be made, none is."""
    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    refusal(controller.ask(subject_identities=[identity("p1"), identity("p2")], submitted_time=tomorrow.isoformat()))
    with installation.database.reading() as session:
        assert session.scalars(sa.select(DeletionRequest)).all() == []


def test_who_asks_does_not_learn_who_is_in_the_data(
    controller: Controller, policy: Callable[..., None], new_dataset: Callable[..., Any], work: Callable[[], int]
) -> None:
    """Answers about somebody who is held and about somebody who is not differ in nothing but the controller's id."""
    policy(report_seconds=3600)
    new_dataset()

    def story(value: str) -> list[dict[str, Any]]:
        named = str(uuid.uuid4())
        asked = controller.asked(subject_request_id=named, subject_identities=[identity(value)])
        found = controller.get(named)
        refused = refusal(controller.call("DELETE", f"/requests/{named}"), 409)
        work()
        told = [asked | {"encoded_request": "", "received_time": ""}, found, refused, controller.get(named)]
        return [document | {"subject_request_id": ""} for document in told]

    assert story("p1") == story("nobody")


def test_nobody_else_sees_a_request(controller: Controller, gateway: TestClient) -> None:
    """To another tenant a request does not exist, and its id is free."""
    asked = request()
    controller.asked(**asked)
    made = gateway.post("/v1/tenants", json={"name": "other"}).json()
    other = Controller(gateway=gateway, headers={"Authorization": f"Bearer {made['admin_key']}"})
    for method in ("GET", "DELETE"):
        refusal(other.call(method, f"/requests/{asked['subject_request_id']}"), 404)
    assert other.asked(**asked)["controller_id"] == made["id"]


def test_nothing_about_the_person_is_kept(
    controller: Controller, installation: Installation, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither the identity nor the body is in any table or log, and the audit log names who asked."""
    named = controller.asked(subject_identities=[identity("somebody")])["subject_request_id"]
    with installation.database.reading() as session:
        names = sa.inspect(session.get_bind()).get_table_names()
        dump = "".join(str(session.execute(sa.text(f"SELECT * FROM {name}")).all()) for name in names)
        assert named not in dump
        assert "somebody" not in dump
        assert base64.b64encode(b"somebody").decode()[:8] not in dump
        deeds = session.scalars(sa.select(AuditEntry.action)).all()
    assert "deletion_request.created" in deeds
    refusal(controller.ask(subject_identities=[identity("somebody", kind="email")]))
    assert "somebody" not in "".join(capfd.readouterr())


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Server]:
    """A controller's server on this machine, which the gateway may call; ask for it before the gateway."""
    settings.webhook_allowed_networks = "127.0.0.0/8"
    with serving(answering(200)) as server:
        yield server


def test_a_controller_is_told_of_every_change(
    receiver: Server,
    controller: Controller,
    policy: Callable[..., None],
    new_dataset: Callable[..., Any],
    work: Callable[[], int],
) -> None:
    """Once for each status of the whole request, with the fields of section 8.6, signed like an answer."""
    policy(report_seconds=1)
    new_dataset()
    url = f"http://127.0.0.1:{receiver.port}/callbacks"
    identities = [identity("p1"), identity("p2"), identity("nobody")]
    named = controller.asked(subject_identities=identities, status_callback_urls=[url])["subject_request_id"]
    work()
    told = []
    deadline = time.monotonic() + 120
    while "completed" not in told and time.monotonic() < deadline:
        time.sleep(0.05)
        told = [json.loads(call.body)["request_status"] for call in receiver.calls]
    assert (told[0], told[-1]) == ("pending", "completed")
    assert len(told) == len(set(told))
    for call in receiver.calls:
        assert call.headers["content-type"] == "application/json"
        headers = {name: call.headers[name.lower()] for name in ("X-OpenDSR-Processor-Domain", "X-OpenDSR-Signature")}
        controller.verify(headers, call.body)
        document = json.loads(call.body)
        assert document == controller.get(named) | {
            "status_callback_url": url,
            "request_status": document["request_status"],
        }
