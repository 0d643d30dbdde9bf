"""The SDK against a live gateway: review, keys, tenants, logs, and other administration."""

import base64
import datetime
import json
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from joserfc.jwk import OKPKey

from lethe import Client
from lethe.errors import Conflict, NotAllowed, NotFound
from lethe.features.desk.contract import AttachmentInvalid, AttachmentKind, AttachmentUnknown


def test_requests_are_reviewed(client: Client) -> None:
    """Through the client, a request in review can be paused, resumed, extended, approved or rejected, with a reason for
    the person."""
    requests = client.deletion_requests
    made = requests.create(subject_id="p1", identity_verified=False)
    assert (made.status, made.clock.state) == ("in_review", "paused")
    assert made.clock.paused_since is not None
    resumed = requests.resume(made.id)
    assert (resumed.clock.state, resumed.clock.paused_since) == ("on_time", None)
    assert requests.pause(made.id).clock.state == "paused"
    assert requests.pause(made.id).clock.state == "paused"
    requests.resume(made.id)
    extended = requests.extend(made.id, reason="there are many")
    assert extended.extended_due_at is not None
    assert extended.clock.deadline == extended.extended_due_at > extended.due_at
    assert extended.extension_reason == "there are many"
    with pytest.raises(Conflict) as refused:
        requests.extend(made.id, reason="again")
    assert refused.value.code == "already_extended"
    assert requests.approve(made.id).status == "completed"
    assert {event.actor for event in requests.events(made.id)} >= {"lethe"}

    other = requests.create(subject_id="p2", identity_verified=False, refers_to=None)
    rejected = requests.reject(other.id, ground="legal_claims", explanation="a case is pending")
    assert rejected.rejection is not None
    assert (rejected.status, rejected.rejection.ground) == ("rejected", "legal_claims")
    assert "pending" not in repr(rejected)
    follows = requests.create(subject_id="p2", refers_to=other.id)
    assert list(requests.list(refers_to=other.id)) == [requests.get(follows.id)]
    with pytest.raises(NotFound):
        requests.create(subject_id="p3", refers_to="dr_none")


def test_requests_have_assignees_and_notes(client: Client) -> None:
    """A request can be assigned, unassigned and annotated. No `repr` contains the text of a note."""
    requests = client.deletion_requests
    made = requests.create(subject_id="p1", identity_verified=False)
    maria = client.users.create(name="Maria", email="maria@example.com", role="officer").id
    assert [(one.id, one.name) for one in requests.assignees()] == [(maria, "Maria")]
    assert requests.assign(made.id, assignee=maria).assignee_name == "Maria"
    assert [one.id for one in requests.list(assignee=maria)] == [made.id]
    assert requests.count(assignee="nobody").count == 0
    assert requests.assign(made.id, assignee="nobody").assignee is None
    with pytest.raises(Conflict) as refused:
        requests.assign(made.id, assignee="usr_0")
    assert refused.value.code == "not_assignable"
    note = requests.add_note(made.id, text="called back")
    assert list(requests.notes(made.id)) == [note]
    assert "called" not in repr(note)


def test_attachments_are_stored_and_deleted(client: Client, tmp_path: Path) -> None:
    """A file is attached by its path, listed, downloaded byte for byte and deleted, and no `repr` contains its name. A
    file of an unsupported kind is refused."""
    requests = client.deletion_requests
    request_id = requests.create(subject_id="p1", identity_verified=False).id
    letter = tmp_path / "Letter of Jane.txt"
    letter.write_text("Forget me.")
    made = requests.attach(request_id, letter)
    assert (made.name, made.kind, made.size) == (letter.name, AttachmentKind.TXT, 10)
    assert "Jane" not in repr(made)
    assert list(requests.attachments(request_id)) == [made]
    assert requests.attachment(request_id, made.id) == b"Forget me."
    requests.delete_attachment(request_id, made.id)
    with pytest.raises(AttachmentUnknown):
        requests.attachment(request_id, made.id)
    program = letter.with_suffix(".exe")
    program.write_bytes(b"MZ")
    with pytest.raises(AttachmentInvalid):
        requests.attach(request_id, program)
    with pytest.raises(TypeError, match="idempotency_key"):
        requests.attach(request_id, letter, idempotency_key="x")  # type: ignore[call-arg]


def test_a_person_is_found_by_id_or_hash(client: Client) -> None:
    """A request submitted with the hash of an id concerns the same person as a request submitted with the id itself.
    Requests can be listed by person, regulation and deadline."""
    sha256 = "86ae1a69137a78a0f03bb85ec40e2f13c0e9b3fbd4c8b8a0f8be8e0eb7eb02b2"
    requests = client.deletion_requests
    by_hash = requests.create(subject_sha256=sha256, regulation="ccpa")
    assert [one.id for one in requests.list(subject_sha256=sha256)] == [by_hash.id]
    assert [one.id for one in requests.list(regulation="ccpa")] == [by_hash.id]
    assert list(requests.list(subject_id="p1")) == []
    assert list(requests.list(due_before=datetime.datetime.now(datetime.UTC))) == []


def test_the_overview_counts_requests(client: Client) -> None:
    """The client returns how many open requests, ended requests and current runs the tenant has, and lists open
    requests by deadline."""
    later = client.deletion_requests.create(subject_id="p1", identity_verified=False)
    earlier = client.deletion_requests.create(subject_id="p2", identity_verified=False, regulation="other")
    found = client.overview.get()
    assert (found.open["in_review"], found.ended["completed"], found.running) == (2, 0, 0)
    ordered = [one.id for one in client.deletion_requests.list(order="deadline")]
    assert sorted(ordered) == sorted([later.id, earlier.id])
    assert list(client.runs.list(status="running")) == []


def test_suppressions_are_lifted_and_lineage_is_shown(
    client: Client, people: Path, tmp_path: Path, worker: None
) -> None:
    """A forgotten person cannot be added again until they consent. The lineage names the models that were trained on
    the person's rows, and the freed slots can be reused."""
    dataset = client.datasets.upload(people, classes=["0", "1"])
    model = client.models.wait(client.models.create(name="m", dataset_id=dataset.id, l2=0.05).id, timeout_seconds=240)
    [before] = client.lineage.of_person(subject_id="p3").models
    assert (before.model_id, before.num_versions, before.first_without, before.owed) == (model.id, 1, None, False)
    client.models.weights(model.id, 1)
    [handed_out] = client.models.exports(model.id)
    assert list(client.models.exports(model.id, version=2)) == []
    made = client.deletion_requests.wait(client.deletion_requests.create(subject_id="p3").id, timeout_seconds=240)
    traces = client.lineage.of_request(made.id)
    assert [one.id for one in traces.datasets] == [dataset.id]
    [fed] = traces.models
    assert fed.first_without is not None
    assert (fed.first_without.number, fed.copies_outside) == (2, [handed_out])
    serving = client.models.serving(model.id)
    assert (serving.may_serve, serving.version, serving.certified) == (True, 2, True)
    assert client.models.serving(model.id, version=1).reason in ("superseded", "weights_destroyed")

    [suppression] = client.suppressions.list()
    assert suppression.request_id == made.id
    assert list(client.suppressions.list(subject_id="p4")) == []
    with pytest.raises(Conflict) as refused:
        client.datasets.upload(people, classes=["0", "1"])
    assert refused.value.code == "subject_suppressed"
    assert client.datasets.upload(people, classes=["0", "1"], suppressed="skip").num_suppressed == 1
    assert client.suppressions.lift(subject_id="p3").num_lifted == 1
    assert client.datasets.upload(people, classes=["0", "1"]).num_suppressed == 0

    newcomer = tmp_path / "newcomer.npz"
    rows = dict(np.load(people))
    np.savez(newcomer, x=rows["x"][:1], y=rows["y"][:1], subject=np.array(["new"]))
    added = client.datasets.add(dataset.id, newcomer, idempotency_key="once")
    assert client.datasets.add(dataset.id, newcomer, idempotency_key="once") == added
    assert (added.num_records, added.num_suppressed, added.dataset_id) == (1, 0, dataset.id)
    [listed] = client.datasets.additions(dataset.id)
    assert listed.id == client.datasets.addition(dataset.id, added.id).id == added.id


def test_api_keys_are_rotated_and_revoked(client: Client) -> None:
    """A key keeps its scopes until it is rotated or revoked. It is shown only once, and no `repr` contains it."""
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    made = client.api_keys.create(
        name="app", scopes=["requests:write", "requests:read"], expires_at=until, calls_per_minute=100
    )
    assert (set(made.scopes), made.expires_at, made.calls_per_minute) == (
        {"requests:read", "requests:write"},
        until,
        100,
    )
    assert made.key not in repr(made)
    url = str(client._http.calls.httpx.base_url)
    with Client(url, made.key) as app:
        request = app.deletion_requests.create(subject_id="p1")
        assert (request.outcome, request.models) == (None, [])
        with pytest.raises(NotAllowed):
            app.deletion_requests.approve(request.id)
    rotated = client.api_keys.rotate(made.id, overlap_seconds=60, expires_at=until)
    assert rotated.scopes == made.scopes
    with Client(url, rotated.key) as app, Client(url, made.key) as before:
        assert app.deletion_requests.get(request.id) == before.deletion_requests.get(request.id)
        client.api_keys.revoke(rotated.id)
        with pytest.raises(NotAllowed):
            app.deletion_requests.get(request.id)
    found = {one.id: one for one in client.api_keys.list()}
    assert found[rotated.id].revoked_at is not None
    assert found[made.id].revoked_at is None


def test_users_are_invited_and_disabled(client: Client) -> None:
    """A user is invited by a link that no `repr` contains, given another role, disabled, and invited again."""
    made = client.users.create(name="Maria Lopez", email="Maria@Example.com", role="officer")
    assert (made.email, made.role, made.has_password) == ("maria@example.com", "officer", False)
    assert made.invitation.startswith("/admin/welcome?invitation=")
    assert made.invitation not in repr(made)
    assert client.users.change(made.id, role="engineer").role == "engineer"
    client.users.disable(made.id)
    assert client.users.get(made.id).disabled_at is not None
    assert client.users.invite(made.id).disabled_at is None
    [found] = client.users.list()
    assert found.name == "Maria Lopez"


def test_tenants_are_created_and_isolated(client: Client) -> None:
    """The operator creates tenants. A tenant's admin can read and change that tenant's policy, and sees no other
    tenant."""
    made = client.tenants.create(name="other", policy={"grace_seconds": 60})
    assert made.policy.grace_seconds == 60
    assert made.admin_key not in repr(made)
    assert client.tenants.get(made.id).name == "other"
    assert {one.name for one in client.tenants.list()} == {"default", "other"}
    with Client(str(client._http.calls.httpx.base_url), made.admin_key) as admin:
        assert admin.tenants.own().id == made.id
        changed = admin.tenants.set_policy(
            policy={"auto_accept": False, "regulations": {"lgpd": {"days": 15, "may_pause": True}}}
        )
        assert (changed.policy.auto_accept, changed.policy.grace_seconds) == (False, 60)
        assert changed.policy.regulations["lgpd"].days == 15
        assert admin.tenants.own() == changed
        assert admin.deletion_requests.create(subject_id="p1", regulation="lgpd").status == "in_review"
    assert list(client.deletion_requests.list()) == []


def test_the_audit_log_lists_actions(client: Client) -> None:
    """The audit log lists callers' actions, newest first, each with the hash of the previous entry."""
    made = client.api_keys.create(name="app", scopes=["requests:read"])
    client.api_keys.revoke(made.id)
    entries = list(client.audit_log.list(object_id=made.id))
    assert [entry.action for entry in entries] == ["api_key.revoked", "api_key.created"]
    assert entries[0].previous_hash == entries[1].hash
    assert list(client.audit_log.list(action="api_key.revoked")) == entries[:1]
    assert list(client.audit_log.list(actor="nobody")) == []
    assert all(point.sequence >= 1 for point in client.audit_log.checkpoints())
    verdict = client.audit_log.verify()
    assert (verdict.valid, verdict.head, verdict.fault) == (True, next(client.audit_log.list()).hash, None)


def test_identity_issuers_are_registered_and_deleted(client: Client) -> None:
    """Through the client, an identity issuer can be registered, listed and deleted. Repeating the registration with the
    same idempotency key returns the same issuer."""
    jwks = {"keys": [OKPKey.generate_key("Ed25519", private=False, auto_kid=True).as_dict(private=False)]}
    asked = {"issuer": "https://id.example", "audience": "lethe"}
    made = client.identity_issuers.create(**asked, jwks=jwks, idempotency_key="once")
    assert client.identity_issuers.create(**asked, jwks=jwks, idempotency_key="once") == made
    assert list(client.identity_issuers.list()) == [made]
    client.identity_issuers.delete(made.id)
    assert list(client.identity_issuers.list()) == []
    with pytest.raises(NotFound):
        client.identity_issuers.delete(made.id)


def test_agents_are_registered_and_removed(client: Client) -> None:
    """An agent of the Data Rights Protocol is registered, listed and removed through the client."""
    verify_key = base64.b64encode(Ed25519PrivateKey.generate().public_key().public_bytes_raw()).decode()
    made = client.agents.register(agent_id="agent-1", name="Agent", verify_key=verify_key, idempotency_key="once")
    assert (made.agent_id, made.api_key_id) == ("agent-1", None)
    assert list(client.agents.list()) == [made]
    client.agents.remove(made.id)
    assert list(client.agents.list()) == []


def test_deliveries_are_replayed_and_the_secret_rotated(client: Client) -> None:
    """Through the client, deliveries can be listed, read and replayed. The webhook secret can be read and rotated, and
    repeating a rotation from the same generation has no effect."""
    made = client.deletion_requests.create(subject_id="p1", callback_url="https://hooks.example.org/hook")
    deliveries = list(client.webhooks.list(request_id=made.id))
    assert deliveries
    assert {one.host for one in deliveries} == {"hooks.example.org"}
    sent = client.webhooks.get(deliveries[0].id)
    assert sent.body is not None
    assert json.loads(sent.body)
    assert sent.url == "https://hooks.example.org/hook"
    assert "/hook" not in repr(sent)
    assert client.webhooks.replay(sent.id).id == sent.id
    assert list(client.webhooks.list(status="delivered")) == []
    secret = client.webhooks.secret()
    assert secret.secret not in repr(secret)
    rotated = client.webhooks.rotate_secret(generation=secret.generation)
    assert client.webhooks.rotate_secret(generation=secret.generation) == rotated
    assert (rotated.generation, rotated.secret == secret.secret) == (secret.generation + 1, False)
    assert client.webhooks.secret() == rotated
