"""Manifests: the requests they serve, the reasons for refusing them, and permissions to serve artefacts."""

import base64
import datetime
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import signing
from app.access import service as access
from app.db import Actor, now
from app.db.tables import DeletionRequest, Table, Version
from app.features.attested import service
from app.features.attested.tables import AttestedManifest
from app.installations import Installation
from app.operations.periodic_jobs import settle
from lethe.contract.problems import CertificateInvalid
from lethe.contract.sets import Scope, VersionStatus
from lethe.features.systems import bundle
from tests.features.attested.conftest import AttestedTrainer, new_key

New = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
DAY = datetime.timedelta(days=1)


def refused_by(trainer: AttestedTrainer, manifest: dict[str, Any]) -> str:
    """Return the failed check of a refused manifest."""
    answer = trainer.send(manifest)
    assert (answer.status_code, answer.json()["code"]) == (409, "manifest_refused"), answer.text
    [fault] = answer.json()["errors"]
    return str(fault["path"])


def is_waiting(get: Get, request: dict[str, Any]) -> bool:
    """Return True if a request waits for the trainer called Churn."""
    return "Churn" in get(f"/deletion-requests/{request['id']}/systems")["waits_for"]


def test_one_retraining_serves_all_waiting_requests(
    installation: Installation, trainer: AttestedTrainer, forget: New, get: Get
) -> None:
    """Requests wait until a manifest without their people arrives, and then complete together. A request made after the
    rows were read waits for the next manifest. Sending the manifest again returns the same response and serves no
    request twice."""
    before = trainer.retrain("ada", "bob", "eve")
    first, second = forget("ada"), forget("bob")
    settle(installation)
    assert is_waiting(get, first)
    assert trainer.state()["next_retraining"]["num_waiting"] == 2
    read = trainer.digests("ada", "bob", "cleo", "eve")
    assert [digest is None for digest in read["digests"]] == [True, True, False, False]
    third = forget("cleo")
    manifest = trainer.manifest(read)
    answers = [trainer.send(manifest) for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    accepted = answers[0].json()
    assert (answers[0].status_code, accepted["num_served"], accepted["num_identifiers"]) == (200, 2, 2)
    settle(installation)
    assert [get(f"/deletion-requests/{one['id']}")["status"] for one in (first, second)] == ["completed"] * 2
    assert is_waiting(get, third)
    lines = get(f"/deletion-requests/{first['id']}/systems")["lines"]
    assert {one["kind"]: one["grade"] for one in lines} == {
        "attested_trainer": "retrained_attested",
        "rows": "searched",
    }
    trainer.retrain("ada", "bob", "cleo", "eve")
    assert trainer.send(manifest).json() == accepted
    assert not is_waiting(get, third)
    assert trainer.serving(before["artefacts"][0])["reason"] == "superseded"


def test_a_refused_manifest_serves_no_request(
    trainer: AttestedTrainer, new_trainer: Callable[..., AttestedTrainer], forget: New, get: Get
) -> None:
    """A manifest is refused if it is signed with another key, is for another trainer or an earlier retraining, states
    that the rows were read in the future or before the request, has a list of identifiers other than the signed one, or
    includes a person to be forgotten. The response names the failed check, and the request stays open."""
    old = trainer.digests("ada", "eve")
    other = new_trainer("Other")
    request = forget("ada")
    read = trainer.digests("ada", "eve")
    good = trainer.manifest(read)
    future = (datetime.datetime.now(datetime.UTC) + DAY).isoformat()
    replayed = trainer.manifest(read, retraining_id=other.state()["retraining_id"])
    assert refused_by(trainer, trainer.manifest(read, key=new_key())) == "manifest_signed"
    assert refused_by(trainer, trainer.manifest(read, trainer_id=other.id)) == "manifest_of_trainer"
    assert refused_by(trainer, replayed) == "manifest_current"
    assert refused_by(trainer, trainer.manifest(read, rows_read_at=future)) == "rows_read_before"
    assert refused_by(trainer, trainer.manifest(old, identifiers=[])) == "rows_read_after_request"
    assert refused_by(trainer, trainer.manifest(read, identifiers=old["digests"])) == "people_left_out"
    assert refused_by(trainer, good | {"identifiers": []}) == "identifiers_signed"
    assert refused_by(trainer, good | {"identifiers": [*good["identifiers"], "f" * 40]}) == "identifiers_signed"
    assert is_waiting(get, request)
    assert trainer.send(good).status_code == 200
    assert not is_waiting(get, request)
    assert (
        refused_by(trainer, trainer.manifest(read, retraining_id=json_of(good)["retraining_id"])) == "manifest_current"
    )
    assert refused_by(trainer, trainer.manifest(read)) == "rows_read_after_request"
    assert (
        refused_by(trainer, trainer.manifest(trainer.digests("eve"), identifiers=old["digests"])) == "people_left_out"
    )


def json_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the signed header of a manifest."""
    part = manifest["jws"].split(".")[1]
    header: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return header


def test_a_manifest_is_accepted_in_one_commit(
    installation: Installation, trainer: AttestedTrainer, forget: New, get: Get, by: Actor
) -> None:
    """If the process ends before the commit, the manifest is not accepted and can be sent again."""
    request = forget("ada")
    manifest = trainer.manifest(trainer.digests("eve"))

    def accept_and_end() -> None:
        with installation.database.writing(by=by) as session:
            row = service.get(session, trainer.id, lock=True)
            assert service.accept(session, installation.keys, row, **manifest).num_served == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        accept_and_end()
    assert is_waiting(get, request)
    assert trainer.state()["artefacts"] == []
    assert trainer.send(manifest).json()["num_served"] == 1
    assert not is_waiting(get, request)


def test_an_artefact_of_an_earlier_retraining_is_refused(
    installation: Installation,
    trainer: AttestedTrainer,
    new_trainer: Callable[..., AttestedTrainer],
    live: dict[str, Any],
    forget: New,
    get: Get,
) -> None:
    """A manifest cannot name an artefact of an earlier retraining that read other people's rows, an artefact of another
    trainer, or weights that Lethe destroyed. If the trainer never read the person's rows, its next retraining may
    produce the same artefact again."""
    had = trainer.retrain("ada", "eve")["artefacts"]
    first = forget("ada")
    assert refused_by(trainer, trainer.manifest(trainer.digests("eve"), artefacts=had)) == "artefacts_new"
    of_other = new_trainer("Other").retrain("eve", artefacts=["f" * 64])["artefacts"]
    assert refused_by(trainer, trainer.manifest(trainer.digests("eve"), artefacts=of_other)) == "artefacts_new"
    with installation.database.writing() as session:
        version = session.scalars(sa.select(Version)).one()
        assert version.model_id == live["id"]
        version.status, lost = VersionStatus.DESTROYED, version.weights_sha256
    assert refused_by(trainer, trainer.manifest(trainer.digests("eve"), artefacts=[lost])) == "artefacts_new"
    assert is_waiting(get, first)
    same = trainer.retrain("eve")["artefacts"]
    second = forget("zoe")
    trainer.retrain("eve", artefacts=same)
    assert not is_waiting(get, first)
    assert not is_waiting(get, second)
    assert trainer.serving(same[0])["may_serve"]


def test_serving_is_permitted_until_a_deadline(
    installation: Installation, trainer: AttestedTrainer, forget: New, gateway: TestClient
) -> None:
    """An artefact may be served from the arrival of its manifest until a later manifest serves a request from a person
    whom the artefact may contain, or until that request's deadline if the deadline comes first. The permission states
    this deadline. An unknown digest is reported as unknown."""
    assert trainer.serving("0" * 64) | {"artefact_sha256": ""} == {
        "artefact_sha256": "",
        "trainer_id": None,
        "may_serve": False,
        "reason": "unknown",
        "valid_until": None,
    }
    [first] = trainer.retrain("ada", "bob")["artefacts"]
    [rollback] = trainer.retrain("ada", "bob", "eve")["artefacts"]
    request = forget("ada")
    assert trainer.serving(first)["may_serve"]
    assert trainer.serving(rollback)["may_serve"]
    with installation.database.writing() as session:
        deadline = now(session) + datetime.timedelta(minutes=5)
        session.get_one(DeletionRequest, request["id"]).deadline = deadline
    until = datetime.datetime.fromisoformat(trainer.serving(first)["valid_until"])
    assert until == deadline
    with installation.database.writing() as session:
        session.get_one(DeletionRequest, request["id"]).deadline = now(session)
    assert trainer.serving(first)["reason"] == "overdue"
    [last] = trainer.retrain("ada", "bob")["artefacts"]
    assert [trainer.serving(one)["reason"] for one in (first, rollback, last)] == ["superseded", "superseded", None]
    closed = forget("bob")
    for _ in range(2):
        path = f"/v1/attested-trainers/{trainer.id}/close"
        assert gateway.post(path, json={"request_id": closed["id"]}).status_code == 204
    with installation.database.writing() as session:
        session.get_one(DeletionRequest, closed["id"]).deadline = now(session)
    assert trainer.serving(last)["reason"] == "overdue"
    ended = gateway.post(path, json={"request_id": request["id"]})
    assert (ended.status_code, ended.json()["code"]) == (409, "system_task_ended")


def test_no_person_is_stored_or_named(
    installation: Installation,
    trainer: AttestedTrainer,
    new_trainer: Callable[..., AttestedTrainer],
    forget: New,
    get: Get,
) -> None:
    """A person's digest differs between trainers, and no table contains the digest of any person, whether they are kept
    or forgotten."""
    forget("ada")
    other = new_trainer("Other").digests("eve")["digests"]
    mine = trainer.digests("eve")["digests"]
    assert mine != other
    trainer.retrain("ada", "eve")
    with installation.database.reading() as session:
        stored = str([list(session.execute(sa.select(table))) for table in Table.metadata.sorted_tables])
        assert session.scalars(sa.select(AttestedManifest.num_identifiers)).all() == [1]
    assert mine[0] not in stored


def test_grace_cancellation_and_consent_permit_reading(
    installation: Installation,
    gateway: TestClient,
    policy: Callable[..., None],
    trainer: AttestedTrainer,
    forget: New,
    get: Get,
) -> None:
    """During the grace period, trainers may still read the person's rows, and no retraining serves the request. A
    cancelled request no longer waits. If a person has consented again, their rows may be read unless another of their
    requests is waiting."""
    policy(grace_seconds=3600)
    held = forget("ada")
    assert trainer.digests("ada")["digests"] != [None]
    assert trainer.retrain("ada")["num_served"] == 0
    assert is_waiting(get, held)
    assert gateway.post(f"/v1/deletion-requests/{held['id']}/cancel").status_code == 200
    assert trainer.state()["planned"] == []
    policy(grace_seconds=0)
    request = forget("bob")
    assert (
        gateway.post(
            "/v1/suppressions:lift",
            json={"subject_id": "bob", "reason": "consent_given"},
        ).status_code
        == 200
    )
    assert trainer.digests("bob")["digests"] == [None]
    trainer.retrain("bob", "eve")
    assert not is_waiting(get, request)
    assert trainer.digests("bob")["digests"] != [None]


def test_requests_wait_only_for_trainers_of_their_datasets(
    gateway: TestClient, new_dataset: New, new_trainer: Callable[..., AttestedTrainer], forget: New, get: Get
) -> None:
    """A request restricted to some datasets neither waits for a trainer that reads none of these datasets nor excludes
    the person's rows from that trainer. No request waits for a retired trainer."""
    mine, other = new_dataset()["id"], new_dataset(name="other")["id"]
    trainer = new_trainer(dataset_ids=[mine])
    assert not is_waiting(get, forget("x1", dataset_ids=[other]))
    assert is_waiting(get, forget("x2", dataset_ids=[mine]))
    assert is_waiting(get, forget("x3"))
    assert [digest is None for digest in trainer.digests("x1", "x2", "x3")["digests"]] == [False, True, True]
    assert gateway.delete(f"/v1/attested-trainers/{trainer.id}").status_code == 204
    assert not is_waiting(get, forget("x4"))


def test_a_limited_key_sees_all_excluded_people(
    installation: Installation, trainer: AttestedTrainer, forget: New, by: Actor
) -> None:
    """An API key that sees only its own requests still sees every person whose rows must not be read, and every overdue
    artefact."""
    artefact = trainer.retrain("ada", "eve")["artefacts"][0]
    request = forget("ada")
    key = access.new_key()
    with installation.database.writing(by=by) as session:
        scopes = [Scope.MODELS_READ, Scope.MODELS_WRITE]
        access.add_key(session, name="trainer", key=key, scopes=scopes, own_requests_only=True)
        session.get_one(DeletionRequest, request["id"]).deadline = now(session)
    confined = replace(trainer, gateway=TestClient(trainer.gateway.app, headers={"Authorization": f"Bearer {key}"}))
    assert confined.digests("ada")["digests"] == [None]
    assert confined.serving(artefact)["reason"] == "overdue"
    assert confined.state()["next_retraining"]["num_waiting"] == 1
    assert confined.retrain("eve")["num_served"] == 1


def test_the_bundle_verifies_the_manifest_offline(
    installation: Installation, gateway: TestClient, trainer: AttestedTrainer, forget: New, get: Get
) -> None:
    """The bundle contains the signed header and can be verified with only the public keys. Verification fails and names
    the failed check for another key, another trainer or a request made after the rows were read, even if the
    installation signed the bundle."""
    request = forget("ada")
    trainer.retrain("eve")
    settle(installation)
    whole = get(f"/deletion-requests/{request['id']}/bundle")
    jwks = gateway.get("/.well-known/jwks.json").json()
    statement = bundle.verify(json.dumps(whole), jwks).statement
    [line] = [one for one in statement["lines"] if one["system"]["kind"] == "attested_trainer"]
    assert line["grade"] == "retrained_attested"
    assert line["numbers"] is None
    assert "equal in law" in line["method"]
    assert "unbounded" in line["method"]

    def refusal(change: Callable[[dict[str, Any]], None]) -> str:
        forged = json.loads(json.dumps(statement))
        change(next(one for one in forged["lines"] if one["system"]["kind"] == "attested_trainer"))
        forged["asked"] = [one["system"]["id"] for one in forged["lines"]]
        with pytest.raises(CertificateInvalid) as refused:
            bundle.verify(signing.sign(installation.keys, json.dumps(forged).encode(), kind=bundle.TYPE), jwks)
        return str(refused.value).partition(":")[0]

    late = (datetime.datetime.now(datetime.UTC) + DAY).isoformat()
    assert refusal(lambda one: one["evidence"].update(public_key=new_key()["x"])) == "manifest_signed"
    assert refusal(lambda one: one["system"].update(id="atr_0")) == "manifest_of_line"
    assert refusal(lambda one: one.update(opened_at=late)) == "manifest_after_request"
    assert refusal(lambda one: one.update(grade="proved")) == "grade_of_evidence"


def test_a_trainer_can_be_changed(gateway: TestClient, trainer: AttestedTrainer, forget: New, refused: Any) -> None:
    """After a key change, the new key can sign and the old key is refused. An unusable key, dataset or URL is
    refused."""
    path, old = f"/v1/attested-trainers/{trainer.id}", trainer.key
    refused(gateway.patch(path, json={"public_key": "A" * 43}), 422, "input_invalid")
    body = {"name": "n", "contact": "c", "webhook_url": "https://x.example", "public_key": old["x"]}
    refused(gateway.post("/v1/attested-trainers", json=body | {"dataset_ids": ["ds_0"]}), 422, "input_invalid")
    refused(gateway.patch(path, json={"webhook_url": "http://10.0.0.1/x"}), 422, "input_invalid")
    refused(gateway.get("/v1/attested-trainers/atr_0"), 404, "attested_trainer_unknown")
    refused(gateway.post(f"{path}/manifests", json={"jws": "a.b.c", "identifiers": ["A"]}), 422, "input_invalid")
    trainer.key = new_key()
    changed = gateway.patch(path, json={"public_key": trainer.key["x"], "contact": "night shift", "lead_days": 9})
    assert (changed.json()["contact"], changed.json()["lead_days"]) == ("night shift", 9)
    assert refused_by(trainer, trainer.manifest(trainer.digests("eve"), key=old)) == "manifest_signed"
    trainer.retrain("eve")
    assert {row["id"]: row["kind"] for row in gateway.get("/v1/systems").json()["items"]}[
        trainer.id
    ] == "attested_trainer"
    assert [row["id"] for row in gateway.get("/v1/attested-trainers").json()["items"]] == [trainer.id]
