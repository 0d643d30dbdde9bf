"""Review, keys, tenants, callbacks and suppressions on the command line, against a live gateway."""

import os
from pathlib import Path

from lethe import Client
from tests.command_line import Lethe, refused


def test_requests_are_reviewed(live: Lethe) -> None:
    """If the policy requires a review, requests wait until they are approved or rejected. Their clocks can be paused
    and resumed, and their deadlines extended."""
    changed = live("tenant", "set", "auto_accept=false", "time_zone=Europe/Berlin").json
    assert (changed["policy"]["auto_accept"], changed["policy"]["time_zone"]) == (False, "Europe/Berlin")
    assert live("tenant", "show").json == changed
    made = live("request", "submit", "p1", "--no-wait").json
    assert made["status"] == "in_review"
    assert live("request", "pause", made["id"]).json["clock"]["state"] == "paused"
    assert live("request", "resume", made["id"]).json["clock"]["state"] == "on_time"
    extended = live("request", "extend", made["id"], "--reason", "there are many").json
    assert extended["extension_reason"] == "there are many"
    refused(live("request", "extend", made["id"], "--reason", "again"), "already_extended")
    assert live("request", "approve", made["id"]).json["status"] == "completed"
    assert live("request", "lineage", made["id"]).json == {"datasets": [], "models": []}
    other = live("request", "submit", "p2", "--no-wait").json
    asked = ("--ground", "legal_claims", "--explanation", "a case is pending")
    assert live("request", "reject", other["id"], *asked).json["rejection"]["ground"] == "legal_claims"
    third = live("request", "submit", "p3", "--no-wait").json
    assert live("request", "cancel", third["id"]).json["status"] == "cancelled"


def test_keys_are_created_rotated_and_revoked(live: Lethe) -> None:
    """An API key can be created, listed, rotated and revoked."""
    asked = ("--scope", "requests:write", "--scope", "requests:read", "--days", "30", "--calls-per-minute", "60")
    made = live("key", "create", "app", *asked).json
    assert made["key"].startswith("lethe_")
    assert (made["scopes"], made["calls_per_minute"]) == (["requests:read", "requests:write"], 60)
    assert live("key", "rotate", made["id"], "--overlap-seconds", "60").json["scopes"] == made["scopes"]
    assert live("request", "submit", "p1", "--no-wait", "--key", made["key"]).json["outcome"] is None
    assert live("key", "revoke", made["id"]).code == 0
    refused(live("request", "submit", "p1", "--key", made["key"]), "unauthenticated")
    lines = [line.split() for line in live("key", "list").out.splitlines()]
    assert [line[-1] for line in lines] == ["app", "app", "admin"]
    assert lines[1][:2] == [made["id"], "revoked"]
    assert live("key", "create", "app", "--scope", "everything").code == 2


def test_tenants_are_created_and_shown(live: Lethe) -> None:
    """An operator creates tenants, which can be listed and shown. Each tenant has an admin with a separate key."""
    made = live("tenant", "create", "acme").json
    assert [line.split()[-1] for line in live("tenant", "list").out.splitlines()] == ["acme", "default"]
    assert live("tenant", "show", made["id"]).json["name"] == "acme"
    assert live("tenant", "show", "--key", made["admin_key"]).json["id"] == made["id"]
    assert live("tenant", "set", "max_delta=null", "grace_seconds=60").json["policy"]["grace_seconds"] == 60
    refused(live("tenant", "set", "grace_seconds=soon"), "input_invalid")
    refused(live("tenant", "set", "patience=1"), "input_invalid")
    assert live("tenant", "set", "grace_seconds").code == 2


def test_suppression_is_lifted(live: Lethe, people: Path) -> None:
    """Recording a person's consent lifts their suppression."""
    live("request", "submit", "p3")
    refused(live("dataset", "create", people, "--classes", "0,1"), "subject_suppressed")
    assert live("dataset", "create", people, "--classes", "0,1", "--skip-suppressed").json["num_suppressed"] == 1
    assert live("suppression", "lift", "p3").json == {"num_lifted": 1}
    assert live("dataset", "create", people, "--classes", "0,1").json["num_suppressed"] == 0


def test_deliveries_are_listed_and_replayed(live: Lethe, admin_key: str) -> None:
    """Webhook deliveries are listed without their URLs and can be replayed."""
    with Client(os.environ["LETHE_URL"], admin_key) as client:
        client.deletion_requests.create(subject_id="p1", callback_url="https://hooks.example.org/secret")
    listed = live("webhook", "list")
    assert "hooks.example.org" in listed.out
    assert "secret" not in listed.out
    delivery_id = listed.out.split()[0]
    assert live("webhook", "replay", delivery_id).json["id"] == delivery_id
    assert live("webhook", "list", "--status", "delivered").out == ""
    refused(live("webhook", "replay", "whd_none"), "delivery_unknown")
