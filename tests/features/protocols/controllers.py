"""Controllers of OpenDSR, which reject unsigned answers, and their requests."""

import base64
import datetime
import json
import uuid
from dataclasses import dataclass
from typing import Any

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from fastapi.testclient import TestClient

SUBMITTED = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A controller, which sends requests and rejects unsigned answers."""

    gateway: TestClient
    headers: dict[str, str]

    def call(self, method: str, path: str, **asked: Any) -> httpx.Response:
        answer: httpx.Response = self.gateway.request(method, f"/opendsr/v2{path}", headers=self.headers, **asked)
        return answer

    def ask(self, **changed: Any) -> httpx.Response:
        return self.call("POST", "/requests", content=json.dumps(request(**changed)))

    def asked(self, **changed: Any) -> dict[str, Any]:
        return self.signed(self.ask(**changed), 201)

    def get(self, subject_request_id: str) -> dict[str, Any]:
        return self.signed(self.call("GET", f"/requests/{subject_request_id}"), 200)

    def signed(self, answer: httpx.Response, status: int) -> dict[str, Any]:
        """Check that the response has this status and is signed under the served certificate, and return its JSON."""
        assert answer.status_code == status, answer.text
        self.verify(answer.headers, answer.content)
        document: dict[str, Any] = answer.json()
        return document

    def verify(self, headers: Any, body: bytes) -> None:
        discovery = self.call("GET", "/discovery").json()
        served = self.gateway.get(discovery["processor_certificate"])
        assert served.status_code == 200
        found = x509.load_pem_x509_certificate(served.content)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert headers["X-OpenDSR-Processor-Domain"] in [str(name.value) for name in names]
        key = found.public_key()
        assert isinstance(key, RSAPublicKey)
        key.verify(base64.b64decode(headers["X-OpenDSR-Signature"]), body, padding.PKCS1v15(), hashes.SHA256())


def request(**changed: Any) -> dict[str, Any]:
    """Return an erasure request about `p1`, updated with `changed`; a value of None omits the field."""
    asked = {
        "subject_request_id": str(uuid.uuid4()),
        "regulation": "gdpr",
        "subject_request_type": "erasure",
        "submitted_time": SUBMITTED,
        "subject_identities": [identity("p1")],
        "api_version": "2.0",
    } | changed
    return {name: value for name, value in asked.items() if value is not None}


def identity(value: str, kind: str = "controller_customer_id", form: str = "raw") -> dict[str, str]:
    return {"identity_type": kind, "identity_value": value, "identity_format": form}


def refusal(answer: httpx.Response, status: int = 400) -> dict[str, Any]:
    """Check that the call was refused with this status, and return the error object (specification, section 7.6)."""
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error.keys() == {"code", "message", "errors"}
    assert error["code"] == status
    assert all(fault.keys() == {"domain", "reason", "message"} for fault in error["errors"])
    return error
