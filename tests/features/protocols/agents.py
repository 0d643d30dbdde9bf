"""Authorised agents of the Data Rights Protocol, which reject answers that violate the protocol."""

import base64
import datetime
import json
from dataclasses import dataclass, field
from typing import Any

import httpx
import jsonschema_rs
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi.testclient import TestClient

MOMENT = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"}
STATUS = {
    "type": "object",
    "required": ["request_id", "received_at", "expected_by", "status"],
    "additionalProperties": False,
    "properties": {
        "request_id": {"type": "string", "minLength": 1},
        "received_at": MOMENT,
        "expected_by": MOMENT,
        "agent_request_id": {"type": "string"},
        "processing_details": {"type": "string", "minLength": 1},
        "status": {"enum": ["open", "in_progress", "fulfilled", "revoked", "denied", "expired"]},
        "reason": {"type": "string"},
        "user_verification_url": {"type": "string", "pattern": "^https://"},
    },
    "allOf": [
        {
            "if": {"properties": {"status": {"const": "denied"}}},
            "then": {
                "required": ["reason", "processing_details"],
                "properties": {
                    "reason": {
                        "enum": [
                            "suspected_fraud",
                            "insuf_verification",
                            "no_match",
                            "claim_not_covered",
                            "outside_jurisdiction",
                            "too_many_requests",
                            "other",
                        ]
                    }
                },
            },
        },
        {
            "if": {"required": ["reason"], "properties": {"status": {"const": "in_progress"}}},
            "then": {
                "required": ["user_verification_url"],
                "properties": {"reason": {"const": "need_user_verification"}},
            },
        },
        {
            "if": {"properties": {"status": {"enum": ["open", "fulfilled", "revoked"]}}},
            "then": {"properties": {"reason": False, "user_verification_url": False}},
        },
    ],
}
"""Schema of a status: sections 3.02 and 3.03 of the protocol."""
ERROR = {
    "type": "object",
    "required": ["code", "message"],
    "additionalProperties": False,
    "properties": {
        "code": {"type": "string", "pattern": "^[45][0-9]{2}$"},
        "message": {"type": "string", "minLength": 1},
        "fatal": {"const": True},
    },
}
"""Schema of an error: section 3.06."""


@dataclass(slots=True, kw_only=True)
class Agent:
    """An authorised agent, with its own key, and a token once it has set one up."""

    gateway: TestClient
    agent_id: str = "AGENT_ONE"
    business_id: str = "BUSINESS"
    token: str = ""
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def verify_key(self) -> str:
        return base64.b64encode(self.key.public_key().public_bytes_raw()).decode()

    def register(self) -> dict[str, Any]:
        body = {"agent_id": self.agent_id, "name": "An agent", "verify_key": self.verify_key}
        answer = self.gateway.post("/v1/agents", json=body)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    def said(self, **changed: Any) -> dict[str, Any]:
        """Return the claims common to all messages, updated with `changed`; a value of None removes the claim."""
        at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=1)
        message = {
            "agent-id": self.agent_id,
            "business-id": self.business_id,
            "issued-at": at.isoformat(),
            "expires-at": (at + datetime.timedelta(minutes=10)).isoformat(),
            "drp.version": "1.0",
        } | changed
        return {name: value for name, value in message.items() if value is not None}

    def asked(self, **changed: Any) -> dict[str, Any]:
        claims = {"email": "p1", "email_verified": True, "name": "Jo Doe"}
        return self.said(**{"exercise": "deletion", "regime": "ccpa", "relationships": ["customer"]} | claims | changed)

    def sign(self, message: dict[str, Any]) -> bytes:
        body = json.dumps(message).encode()
        return base64.b64encode(self.key.sign(body) + body)

    def call(self, method: str, path: str, content: bytes = b"", *, token: str | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token if token is None else token}", "Content-Type": "text/plain"}
        answer: httpx.Response = self.gateway.request(method, f"/drp/v1{path}", headers=headers, content=content)
        return answer

    def set_up(self, content: bytes | None = None) -> httpx.Response:
        answer = self.call("POST", f"/agent/{self.agent_id}", content or self.sign(self.said()), token="")
        if answer.status_code == 200:
            self.token = answer.json()["token"]
        return answer

    def exercise(self, **changed: Any) -> httpx.Response:
        return self.call("POST", "/data-rights-request", self.sign(self.asked(**changed)))

    def exercised(self, **changed: Any) -> dict[str, Any]:
        return status(self.exercise(**changed))

    def get(self, request_id: str) -> dict[str, Any]:
        return status(self.call("GET", f"/data-rights-request/{request_id}"))

    def revoke(self, request_id: str, **message: Any) -> httpx.Response:
        return self.call("DELETE", f"/data-rights-request/{request_id}", self.sign(message or {"reason": "I stay."}))


def status(answer: httpx.Response) -> dict[str, Any]:
    """Return the status object of a successful response."""
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    jsonschema_rs.validator_for(STATUS).validate(document)
    return document


def refusal(answer: httpx.Response, code: int) -> dict[str, Any]:
    """Return the error object of a response that refuses a call."""
    document: dict[str, Any] = answer.json()
    assert (answer.status_code, document["code"]) == (code, str(code)), answer.text
    jsonschema_rs.validator_for(ERROR).validate(document)
    return document
