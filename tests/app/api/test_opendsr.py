"""`/opendsr`: conformance to OpenDSR 2.0, clause by clause, and who may call."""

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Callable

import httpx
import pytest
from cryptography.exceptions import InvalidSignature
from fastapi.testclient import TestClient

from app.installations import Installation
from lethe.contract.sets import Scope
from tests.app.api.controllers import Controller, identity, refusal, request

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


def regulations(controller: Controller) -> None:
    for regulation in ("gdpr", "ccpa"):
        controller.asked(regulation=regulation)
    refusal(controller.ask(regulation="other"))


def callbacks(controller: Controller) -> None:
    urls = ["https://controller.example.com/callbacks", "https://example.com/"]
    controller.asked(status_callback_urls=urls)
    for wrong in ("http://controller.example.com/secret", "https://10.0.0.1/secret", "secret"):
        error = refusal(controller.ask(status_callback_urls=[urls[0], wrong]))
        assert error["errors"][0]["message"].startswith("status_callback_urls.1: ")
        assert "secret" not in str(error)


def guids(controller: Controller) -> None:
    named = str(uuid.uuid4())
    for wrong in (named.upper() if not named.isdigit() else "x", str(uuid.uuid1()), "1"):
        refusal(controller.ask(subject_request_id=wrong))


def receipt(controller: Controller) -> None:
    body = b' {"x": "\\u00e9",' + json.dumps(request()).encode()[1:] + b"\n"  # every byte comes back
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
    "1.1 ids of requests are UUIDs, version 4, in lower case": guids,
    "3.4 URLs begin with the major version": versions,
    "5, 6.3 identities are of the kinds and formats that discovery lists": identities_are_those_discovered,
    "6.2 request types are those that discovery lists": erasure_is_supported,
    "6.3 the certificate is on the domain of discovery": domain_of_discovery,
    "7.1.1 what a request must have, and what it may": required_fields,
    "7.1.1 regulation": regulations,
    "7.1.1 status_callback_urls": callbacks,
    "7.1.2 extensions are by domain": extensions,
    "7.3 the answer to a request, its signature, and the request in it": receipt,
    "7.5, 7.6 errors": errors,
    "8.1, 8.3 status, and its signature": status,
    "9, 9.2 cancellation while pending, and its signature": cancellation,
}


@pytest.mark.parametrize("clause", CLAUSES)
def test_conformance(controller: Controller, policy: Callable[..., None], clause: str) -> None:
    """Each clause of the specification that binds a processor holds."""
    policy(grace_seconds=3600)  # requests are pending so long
    CLAUSES[clause](controller)


def test_a_changed_answer_does_not_verify(controller: Controller) -> None:
    """The signature is over every byte of the body."""
    answer = controller.ask()
    with pytest.raises(InvalidSignature):
        controller.verify(answer.headers, answer.content + b" ")


def test_a_certificate_is_found_behind_a_proxy(
    gateway: TestClient, controller: Controller, installation: Installation
) -> None:
    """With a domain in the settings, discovery names it, whatever the server is called by who is in between."""
    gateway.app.state.installation.settings.opendsr_domain = "privacy.example.com"  # type: ignore[attr-defined]
    answer = controller.call("GET", "/discovery")
    assert answer.json()["processor_certificate"] == "https://privacy.example.com/opendsr/v2/certificate.pem"
    assert answer.headers["X-OpenDSR-Processor-Domain"] == "privacy.example.com"


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/discovery", Scope.REQUESTS_READ),
        ("POST", "/requests", Scope.REQUESTS_WRITE),
        ("POST", "/requests/", Scope.REQUESTS_WRITE),
        ("GET", "/requests/1", Scope.REQUESTS_READ),
        ("DELETE", "/requests/1", Scope.REQUESTS_WRITE),
    ],
)
def test_who_may_call(gateway: TestClient, key_with: KeyWith, method: str, path: str, scope: Scope) -> None:
    """Every endpoint needs one scope, and says so in the specification's words."""
    for other in Scope:
        along = (Scope.ACCOUNTING_READ,) if other is Scope.REQUESTS_REVIEW else ()
        answer = gateway.request(method, f"/opendsr/v2{path}", headers=key_with(other, *along), content=b"")
        if other in (scope, Scope.ADMIN):
            assert answer.status_code in (200, 400, 404)
        else:
            assert refusal(answer, 403)["errors"][0]["reason"] == "scope_missing"
    answer = gateway.request(method, f"/opendsr/v2{path}", headers={"Authorization": "Bearer wrong"})
    refusal(answer, 401)
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_a_body_that_is_too_long_is_not_read(controller: Controller) -> None:
    """A message has at most 64 KiB."""
    refusal(controller.call("POST", "/requests", content=b"x" * 65537), 413)
