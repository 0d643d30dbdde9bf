"""Endpoints of `/opendsr`: conformance to OpenDSR 2.0, permissions, and the life of requests."""

import base64
import datetime
import hashlib
import json
import re
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from cryptography.exceptions import InvalidSignature
from fastapi.testclient import TestClient

from app.config import Settings
from app.db.tables import AuditEntry, DeletionRequest
from app.installations import Installation
from lethe.contract.sets import Scope
from tests.features.protocols.controllers import Controller, identity, refusal, request
from tests.servers import Server, serving, status as answering
from tests.tables import each

pytestmark = pytest.mark.usefixtures("with_signing_key")
KeyWith = Callable[..., dict[str, str]]
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def domain_of_discovery(controller: Controller) -> None:
    discovery = controller.call("GET", "/discovery")
    url = httpx.URL(discovery.json()["processor_certificate"])
    assert url.host == discovery.request.url.host


def erasure_is_supported(controller: Controller) -> None:
    discovery = controller.call("GET", "/discovery").json()
    assert discovery["supported_subject_request_types"] == ["erasure"]
    for kind in ("access", "portability"):
        refusal(controller.ask(subject_request_type=kind))


def identities_are_those_discovered(controller: Controller) -> None:
    supported = controller.call("GET", "/discovery").json()["supported_identities"]
    assert supported == [
        {"identity_type": "controller_customer_id", "identity_format": form} for form in ("raw", "sha256")
    ]
    hashed = hashlib.sha256(b"p2").hexdigest()
    controller.asked(subject_identities=[identity("p1"), identity(hashed, form="sha256")])
    for other in (identity("p1", kind="email"), identity("p1", form="sha1"), identity("p1", form="md5")):
        refusal(controller.ask(subject_identities=[other]))


def required_fields(controller: Controller) -> None:
    for name in ("regulation", "subject_request_id", "subject_request_type", "subject_identities", "submitted_time"):
        assert name in refusal(controller.ask(**{name: None}))["errors"][0]["message"]
    for name in ("api_version", "status_callback_urls", "extensions"):
        controller.asked(**{name: None})


def callbacks(controller: Controller) -> None:
    urls = ["https://controller.example.com/callbacks", "https://example.com/"]
    controller.asked(status_callback_urls=urls)
    for wrong in ("http://controller.example.com/secret", "https://10.0.0.1/secret", "secret"):
        error = refusal(controller.ask(status_callback_urls=[urls[0], wrong]))
        assert error["errors"][0]["message"].startswith("status_callback_urls.1: ")
        assert "secret" not in str(error)


def receipt(controller: Controller) -> None:
    # Every byte must be returned unchanged.
    body = b' {"x": "\\u00e9",' + json.dumps(request()).encode()[1:] + b"\n"
    answer = controller.signed(controller.call("POST", "/requests", content=body), 201)
    assert base64.b64decode(answer["encoded_request"]) == body
    assert answer["subject_request_id"] == json.loads(body)["subject_request_id"]
    assert answer["controller_id"] == controller.get(answer["subject_request_id"])["controller_id"] != ""
    for name in ("received_time", "expected_completion_time"):
        assert RFC3339.fullmatch(answer[name])


def errors(controller: Controller) -> None:
    for body in (b"", b"not json", b"[]", b'{"regulation": "gdpr"}'):
        refusal(controller.call("POST", "/requests", content=body))
    assert "p1" not in str(refusal(controller.ask(submitted_time="p1")))


def status(controller: Controller) -> None:
    answer = controller.asked()
    found = controller.get(answer["subject_request_id"])
    assert found.keys() == {
        "controller_id",
        "expected_completion_time",
        "subject_request_id",
        "request_status",
        "api_version",
    }
    assert found["request_status"] in ("pending", "in_progress", "completed", "cancelled")
    assert found["expected_completion_time"] == answer["expected_completion_time"]
    refusal(controller.call("GET", f"/requests/{uuid.uuid4()}"), 404)


def cancellation(controller: Controller) -> None:
    named = controller.asked()["subject_request_id"]
    answer = controller.signed(controller.call("DELETE", f"/requests/{named}"), 202)
    assert {"controller_id", "received_time", "subject_request_id"} <= answer.keys()
    assert answer["subject_request_id"] == named
    assert RFC3339.fullmatch(answer["received_time"])
    assert controller.get(named)["request_status"] == "cancelled"
    controller.signed(controller.call("DELETE", f"/requests/{named}"), 202)
    refusal(controller.call("DELETE", f"/requests/{uuid.uuid4()}"), 404)


def extensions(controller: Controller) -> None:
    domain = controller.call("GET", "/discovery").headers["X-OpenDSR-Processor-Domain"]
    controller.asked(extensions={"other.example.com": {"a": 1}})
    refusal(controller.ask(extensions={domain: {"a": 1}}))


def versions(controller: Controller) -> None:
    for path in ("/opendsr/v2/discovery", "/opendsr/discovery"):
        assert controller.gateway.get(path, headers=controller.headers).json()["api_version"] == "2.0"
    refusal(controller.ask(api_version="1.0"))


CLAUSES: dict[str, Callable[[Controller], None]] = {
    "3.4 URLs begin with the major version": versions,
    "5, 6.3 identities are of the kinds and formats that discovery lists": identities_are_those_discovered,
    "6.2 request types are those that discovery lists": erasure_is_supported,
    "6.3 the certificate is on the domain of discovery": domain_of_discovery,
    "7.1.1 what a request must have, and what it may": required_fields,
    "7.1.1 status_callback_urls": callbacks,
    "7.1.2 extensions are by domain": extensions,
    "7.3 the answer to a request, its signature, and the request in it": receipt,
    "7.5, 7.6 errors": errors,
    "8.1, 8.3 status, and its signature": status,
    "9, 9.2 cancellation while pending, and its signature": cancellation,
}


@pytest.mark.parametrize("stated", ["controller_customer_id", "email"])
def test_controllers_can_use_only_stated_identity_types(
    gateway: TestClient, key_with: KeyWith, policy: Callable[..., None], stated: str
) -> None:
    """A controller's request is refused if the tenant has not stated which identity types contain its subject ids, or
    if the request uses a different type. Such identities would match no one, and the request would complete as if
    nothing were held."""
    controller = Controller(gateway=gateway, headers=key_with(Scope.REQUESTS_READ, Scope.REQUESTS_WRITE))
    asked = {"subject_identities": [identity("p1", kind=stated)]}
    assert controller.call("GET", "/discovery").json()["supported_identities"] == []
    error = refusal(controller.ask(**asked))
    assert "has not stated which identities are its subject ids" in error["message"]
    other = {"email", "controller_customer_id"} - {stated}
    policy(opendsr_identities=sorted(other))
    refusal(controller.ask(**asked))
    assert gateway.get("/v1/deletion-requests").json()["items"] == []
    policy(opendsr_identities=[stated])
    controller.asked(**asked)


@each("clause", CLAUSES)
def test_the_service_meets_every_clause_for_a_processor(
    controller: Controller, policy: Callable[..., None], clause: str
) -> None:
    """The service complies with each clause of the specification that binds a processor."""
    # Requests stay pending during the grace period.
    policy(grace_seconds=3600)
    CLAUSES[clause](controller)


def test_a_changed_response_does_not_verify(controller: Controller) -> None:
    """A response's signature does not verify if the body has been changed."""
    answer = controller.ask()
    with pytest.raises(InvalidSignature):
        controller.verify(answer.headers, answer.content + b" ")


def test_discovery_names_the_configured_domain(
    gateway: TestClient, controller: Controller, installation: Installation
) -> None:
    """The discovery document names the configured domain, whatever host name a proxy uses."""
    gateway.app.state.installation.settings.opendsr_domain = "privacy.example.com"  # type: ignore[attr-defined]
    answer = controller.call("GET", "/discovery")
    assert answer.json()["processor_certificate"] == "https://privacy.example.com/opendsr/v2/certificate.pem"
    assert answer.headers["X-OpenDSR-Processor-Domain"] == "privacy.example.com"


def test_every_endpoint_needs_its_scope(gateway: TestClient, key_with: KeyWith) -> None:
    """Every endpoint requires one scope, and the error for a missing scope has the specification's format."""
    routes = (
        ("GET", "/discovery", Scope.REQUESTS_READ),
        ("POST", "/requests", Scope.REQUESTS_WRITE),
        ("POST", "/requests/", Scope.REQUESTS_WRITE),
        ("GET", "/requests/1", Scope.REQUESTS_READ),
        ("DELETE", "/requests/1", Scope.REQUESTS_WRITE),
    )
    for other in Scope:
        headers = key_with(other, *((Scope.ACCOUNTING_READ,) if other is Scope.REQUESTS_REVIEW else ()))
        for method, path, scope in routes:
            answer = gateway.request(method, f"/opendsr/v2{path}", headers=headers, content=b"")
            if other in (scope, Scope.ADMIN):
                assert answer.status_code in (200, 400, 404), (method, path, other)
            else:
                assert refusal(answer, 403)["errors"][0]["reason"] == "scope_missing"
    for method, path, _ in routes:
        answer = gateway.request(method, f"/opendsr/v2{path}", headers={"Authorization": "Bearer wrong"})
        refusal(answer, 401)
        assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_a_long_body_is_refused(controller: Controller) -> None:
    """A body longer than 64 KiB is refused."""
    refusal(controller.call("POST", "/requests", content=b"x" * 65537), 413)


def test_each_identity_becomes_a_deletion_request(
    controller: Controller, gateway: TestClient, new_dataset: Callable[..., Any], work: Callable[[], int]
) -> None:
    """Each identity in a controller's request becomes a deletion request. These deletion requests share the
    controller's id and deadline, are processed like any other request, and are reported as completed together."""
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


def test_a_repeated_call_is_the_same_request(controller: Controller, gateway: TestClient) -> None:
    """Repeating a call creates no second request, and the time of receipt does not change."""
    asked = request(subject_identities=[identity("p1"), identity("p2")])
    first = controller.asked(**asked)
    again = controller.asked(**asked | {"subject_identities": [identity("p2"), identity("p1")]})
    assert first | {"encoded_request": ""} == again | {"encoded_request": ""}
    named = {"external_id": asked["subject_request_id"]}
    assert len(gateway.get("/v1/deletion-requests", params=named).json()["items"]) == 2


def test_concurrent_repetitions_create_one_request(controller: Controller, gateway: TestClient) -> None:
    """Repeating a call several times concurrently creates only one request."""
    asked = request()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: controller.ask(**asked), range(8)))
    assert {(answer.status_code, answer.content) for answer in answers} == {(201, answers[0].content)}
    named = {"external_id": asked["subject_request_id"]}
    assert len(gateway.get("/v1/deletion-requests", params=named).json()["items"]) == 1


def test_reusing_a_request_id_is_a_conflict(controller: Controller) -> None:
    """A different request with the same id is refused, and the first request is not changed."""
    asked = request()
    first = controller.asked(**asked)
    for changed in (
        {"subject_identities": [identity("p2")]},
        {"subject_identities": [identity("p1"), identity("p2")]},
        {"regulation": "ccpa"},
        {"submitted_time": "2026-10-02T15:00:01Z"},
    ):
        assert refusal(controller.ask(**asked | changed), 409)["errors"][0]["reason"] == "idempotency_conflict"
    assert controller.asked(**asked) == first


def test_a_subject_request_is_atomic(controller: Controller, installation: Installation) -> None:
    """A subject request creates either all of its deletion requests or none."""
    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    refusal(controller.ask(subject_identities=[identity("p1"), identity("p2")], submitted_time=tomorrow.isoformat()))
    with installation.database.reading() as session:
        assert session.scalars(sa.select(DeletionRequest)).all() == []


def test_controllers_cannot_tell_whose_data_is_held(
    controller: Controller, policy: Callable[..., None], new_dataset: Callable[..., Any], work: Callable[[], int]
) -> None:
    """Responses about a person whose data is held and responses about a stranger differ only in the controller's
    request id."""
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


def test_requests_of_another_tenant_are_unknown(controller: Controller, gateway: TestClient) -> None:
    """Another tenant cannot see a request and can use the same id for a request of its own."""
    asked = request()
    controller.asked(**asked)
    policy = {"opendsr_identities": ["controller_customer_id"]}
    made = gateway.post("/v1/tenants", json={"name": "other", "policy": policy}).json()
    other = Controller(gateway=gateway, headers={"Authorization": f"Bearer {made['admin_key']}"})
    for method in ("GET", "DELETE"):
        refusal(other.call(method, f"/requests/{asked['subject_request_id']}"), 404)
    assert other.asked(**asked)["controller_id"] == made["id"]


def test_no_personal_data_is_stored(
    controller: Controller, installation: Installation, capfd: pytest.CaptureFixture[str]
) -> None:
    """No database table and no log contains the identity or the request body. The audit log names the caller."""
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
    """Start a controller's server on this machine, which the gateway may call. This fixture must be requested before
    the gateway."""
    settings.webhook_allowed_networks = "127.0.0.0/8"
    with serving(answering(200)) as server:
        yield server


def test_a_controller_is_notified_of_every_change(
    receiver: Server,
    controller: Controller,
    policy: Callable[..., None],
    new_dataset: Callable[..., Any],
    work: Callable[[], int],
) -> None:
    """A controller gets one callback for each status of the combined request. Each callback has the fields listed in
    section 8.6 and is signed like a response."""
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
