"""The endpoints below `/v1/audit-log`, whose responses are all that an outsider needs to verify the log."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from joserfc import jws
from joserfc.jwk import KeySet

from app.installations import Installation
from app.operations import periodic_jobs
from tests.tables import each

Refused = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


@pytest.fixture
def keys(gateway: TestClient) -> list[str]:
    """Create five keys, which add five entries to the audit log, and return the keys' ids."""
    body = {"name": "app", "scopes": ["models:read"]}
    return [gateway.post("/v1/api-keys", json=body).json()["id"] for _ in range(5)]


def _pages(get: Get, path: str) -> list[dict[str, Any]]:
    items, cursor = [], ""
    while cursor is not None:
        page = get(f"{path}&cursor={cursor}" if cursor else path)
        items += page["items"]
        cursor = page["next_cursor"]
    return items


def test_an_outsider_recomputes_the_log(
    gateway: TestClient, get: Get, installation: Installation, keys: list[str]
) -> None:
    """A third party recomputes every hash and signed head of the audit log from the responses alone, on every page."""
    periodic_jobs.sign_heads(installation)
    entries = _pages(get, "/audit-log?limit=2")[::-1]
    assert [entry["sequence"] for entry in entries] == list(range(1, len(entries) + 1))
    assert {entry["object_id"] for entry in entries} >= set(keys)
    previous = "0" * 64
    for entry in entries:
        hashed = {name: entry[name] for name in entry.keys() - {"previous_hash", "hash"}}
        text = json.dumps(hashed, sort_keys=True, separators=(",", ":"))
        assert entry["previous_hash"] == previous
        previous = hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()
        assert entry["hash"] == previous
    [checkpoint] = get("/audit-log/checkpoints")["items"]
    public = KeySet.import_key_set(gateway.get("/.well-known/jwks.json").json())
    signed = json.loads(jws.deserialize_compact(checkpoint["jws"], public, algorithms=["Ed25519"]).payload)
    assert (signed["sequence"], signed["hash"]) == (checkpoint["sequence"], checkpoint["hash"])
    assert (signed["sequence"], signed["hash"]) == (len(entries), previous)


def test_entries_are_found_by_object_actor_and_action(get: Get, keys: list[str]) -> None:
    """Audit entries can be filtered by object, actor and action, singly or in combination. Unknown values match no
    entry."""
    [entry] = get(f"/audit-log?object_id={keys[2]}")["items"]
    assert entry == entry | {"action": "api_key.created", "object_id": keys[2]}
    assert len(_pages(get, f"/audit-log?limit=2&actor={entry['actor']}&action=api_key.created")) == 5
    assert get(f"/audit-log?object_id={keys[2]}&actor=key_0")["items"] == []
    assert get("/audit-log?action=thing.done") == {"items": [], "next_cursor": None, "names": {}}


@pytest.mark.usefixtures("keys")
def test_checkpoints_are_paginated(gateway: TestClient, get: Get, installation: Installation) -> None:
    """Checkpoints are listed newest first."""
    installation.settings.audit_checkpoint_seconds = 1e-6
    for _ in range(3):
        periodic_jobs.sign_heads(installation)
        gateway.post("/v1/api-keys", json={"name": "app", "scopes": ["models:read"]})
    sequences = [one["sequence"] for one in _pages(get, "/audit-log/checkpoints?limit=2")]
    assert len(sequences) == 3
    assert sequences == sorted(sequences, reverse=True)


@each("path", ["/v1/audit-log", "/v1/audit-log/checkpoints"])
@each("cursor", ["", "x", "-1", "1.5", "٣", "9" * 30, "1e3"])
def test_a_malformed_cursor_is_refused(gateway: TestClient, refused: Refused, path: str, cursor: str) -> None:
    """A request with a malformed cursor gets a 422 response."""
    refused(gateway.get(path, params={"cursor": cursor}), 422, "input_invalid")


def test_the_service_recomputes_the_log(
    gateway: TestClient, get: Get, installation: Installation, keys: list[str]
) -> None:
    """The service recomputes the caller's whole log, compares it with the signed checkpoints, and names the first
    faulty entry."""
    periodic_jobs.sign_heads(installation)
    last = get("/audit-log")["items"][0]
    verdict = gateway.post("/v1/audit-log:verify").json()
    assert verdict == {
        "valid": True,
        "entries": last["sequence"],
        "checkpoints": 1,
        "signed": last["sequence"],
        "head": last["hash"],
        "fault": None,
    }
    with installation.database.engine.connect() as connection:
        connection.execute(sa.text("DROP TRIGGER audit_entries_no_update"))
        connection.execute(sa.text("UPDATE audit_entries SET actor = 'nobody' WHERE sequence = 3"))
        connection.commit()
    verdict = gateway.post("/v1/audit-log:verify").json()
    assert (verdict["valid"], verdict["head"]) == (False, None)
    assert "audit entry 3: it is not what was hashed" in verdict["fault"]
