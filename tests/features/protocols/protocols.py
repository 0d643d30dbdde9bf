"""A person who asks by the protocols of others: by a controller (OpenDSR), and by an authorised agent (DRP).

What is sent is full of what JSON must escape, in keys, in what is read and in what is passed over.
"""

import base64
import datetime
import hashlib
import json
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.forensics.person import Person

POLICY = {
    "drp_business_id": "BUSINESS",
    "drp_claim": "email",
    "opendsr_identities": ["controller_customer_id"],
    "report_seconds": 0,
}
"""Policy of the tenant under test, which reports to callers at once."""


_DELETION = {"exercise": "deletion", "regime": "ccpa"}


class Controller:
    """Sends one subject request: by an id, by its hash, and by another, unknown id."""

    PATH = "/opendsr/v2/requests"

    def __init__(self, client: httpx.Client, somebody: Person) -> None:
        self._client, self._somebody = client, somebody

    def message(self, *, callback_url: str) -> bytes:
        somebody = self._somebody
        asked = {
            "subject_request_id": somebody.subject_request_id,
            "regulation": "gdpr",
            "subject_request_type": "erasure",
            "submitted_time": _moment(minutes=-5),
            "subject_identities": [
                _identity("raw", somebody.subject_id),
                _identity("sha256", hashlib.sha256(somebody.subject_id.encode()).hexdigest()),
                _identity("raw", somebody.other_id),
            ],
            "status_callback_urls": [callback_url],
            "extensions": {"elsewhere.example": somebody.extension},
        }
        return json.dumps(asked).encode()

    def ask(self, *, callback_url: str) -> None:
        """Request the deletion twice, as after a lost response, and check that both calls are accepted."""
        content = self.message(callback_url=callback_url)
        answers = [self._client.post(self.PATH, content=content) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [201, 201], answers[0].text
        assert base64.b64decode(answers[1].json()["encoded_request"]) == content

    def status(self) -> str:
        answer = self._client.get(f"{self.PATH}/{self._somebody.subject_request_id}").raise_for_status()
        return str(answer.json()["request_status"])


class Agent:
    """An agent that signs its messages."""

    PATH = "/drp/v1/data-rights-request"

    def __init__(self, client: httpx.Client, somebody: Person) -> None:
        self._client, self._somebody = client, somebody
        self._key = Ed25519PrivateKey.generate()
        self.token = ""

    def set_up(self) -> None:
        """Register the agent and obtain its token."""
        verify_key = base64.b64encode(self._key.public_key().public_bytes_raw()).decode()
        registered = {"agent_id": "AGENT", "name": "An agent", "verify_key": verify_key}
        self._client.post("/v1/agents", json=registered).raise_for_status()
        self.token = self._call("POST", "/drp/v1/agent/AGENT", self._signed(self._said()))["token"]

    def message(self, *, status_callback: str) -> bytes:
        """Return the signed deletion request with all the claims that the agent holds about the person."""
        claims = self._somebody.claims | {"email": self._somebody.subject_id, "email_verified": True}
        asked = {"agent-request-id": self._somebody.agent_request_id, "status_callback": status_callback}
        return self._signed(self._said() | _DELETION | asked | claims)

    def ask(self, *, status_callback: str) -> str:
        """Request the deletion and return the request's id."""
        return self._exercised(self.message(status_callback=status_callback))

    def ask_and_revoke(self) -> str:
        """Request the deletion of an unknown person, revoke the request and return its id."""
        request = self._exercised(self._signed(self._said() | _DELETION | {"email": self._somebody.other_id}))
        reason = self._signed({"reason": self._somebody.second_thoughts})
        assert self._call("DELETE", f"{self.PATH}/{request}", reason)["status"] == "revoked"
        return request

    def status(self, request: str) -> str:
        return str(self._call("GET", f"{self.PATH}/{request}")["status"])

    def _exercised(self, content: bytes) -> str:
        return str(self._call("POST", self.PATH, content)["request_id"])

    def _said(self) -> dict[str, Any]:
        """Return the claims common to all messages."""
        times = {"issued-at": _moment(seconds=-1), "expires-at": _moment(minutes=5)}
        return {"agent-id": "AGENT", "business-id": POLICY["drp_business_id"], "drp.version": "1.0"} | times

    def _signed(self, message: dict[str, Any]) -> bytes:
        body = json.dumps(message).encode()
        return base64.b64encode(self._key.sign(body) + body)

    def _call(self, method: str, path: str, content: bytes = b"") -> Any:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        answer = self._client.request(method, path, content=content, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()


def _identity(form: str, value: str) -> dict[str, str]:
    return {"identity_type": "controller_customer_id", "identity_format": form, "identity_value": value}


def _moment(**ago: float) -> str:
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(**ago)).isoformat()
