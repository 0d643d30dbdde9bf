"""The agent answers the tasks of a system, and its signed reports are evidence in the bundle."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app import signing
from app.installations import Installation
from benchmarks import ghosts
from lethe import Client
from lethe.contract.problems import CertificateInvalid, InputInvalid
from lethe.features.stores import agent, configuration, reports
from lethe.features.stores.configuration import Configuration
from lethe.features.stores.needles import KINDS
from lethe.features.stores.store import StoreError
from lethe.features.systems import acknowledgements, bundle
from tests.command_line import Lethe
from tests.features.stores.test_erasure import SMALL

New = Callable[..., dict[str, Any]]


@pytest.fixture
def configured(tmp_path: Path, new_system: New, system_key: dict[str, str]) -> Configuration:
    """Return an agent's configuration with a Chroma folder and a documents folder."""
    made = ghosts.people(1, **SMALL)
    ghosts.OfChroma(tmp_path, made)
    folder = tmp_path / "letters" / "people" / made.who[0]
    folder.mkdir(parents=True)
    (folder / "letter.txt").write_text("Complaint about parcel 4711")
    (tmp_path / "key.jwk").write_text(json.dumps(system_key))
    (tmp_path / "stores.toml").write_text(f"""
        system = "{new_system(public_key=system_key["x"])["id"]}"
        sign_with = "key.jwk"
        [stores.support]
        kind = "chroma"
        path = "chroma"
        collection = "people"
        identifier = "customer"
        [stores.letters]
        kind = "documents"
        path = "letters"
        pattern = "people/{{identifier}}/**"
    """)
    return configuration.load(tmp_path / "stores.toml")


PERSON = ghosts.people(1, **SMALL).who[0]


def test_the_agent_answers_a_task_with_a_search(
    client: Client, configured: Configuration, installation: Installation, settled: Callable[[], None], tmp_path: Path
) -> None:
    """The agent looks up the task's person by external id, erases the person's data and searches for anything left
    behind. The bundle grades the system as searched, and any change to the evidence is refused with a specific
    error."""
    request = client.deletion_requests.create(subject_id="maria", external_id=PERSON)
    nobody = client.deletion_requests.create(subject_id="jim")
    outcomes = {outcome.task_id: outcome for outcome in agent.answer(client, configured)}
    assert sorted(str(outcome.grade) for outcome in outcomes.values()) == ["None", "searched"]
    assert [outcome.error and outcome.error[:14] for outcome in outcomes.values()] == ["person_unknown", None]
    assert not list(configured.state.iterdir())
    settled()
    assert client.deletion_requests.get(nobody.id).status == "accepted"
    whole = client.deletion_requests.bundle(request.id)
    assert PERSON not in whole.model_dump_json()
    jwks = client.certificates.public_keys()
    [line] = [
        one
        for one in bundle.verify(whole.model_dump_json(), jwks).statement["lines"]
        if one["grade"] == "searched" and one["system"]["kind"] == "task"
    ]
    assert line["evidence"]["type"] == "search_report"
    assert [one["store"]["kind"] for one in json.loads(line["evidence"]["report"])["findings"]] == [
        "chroma",
        "documents",
    ]

    def refused(change: Callable[[dict[str, Any]], object]) -> str:
        statement = copy.deepcopy(whole.statement)
        change(next(one for one in statement["lines"] if one["system"]["kind"] == "task"))
        jws = signing.sign(installation.keys, json.dumps(statement).encode(), kind=bundle.TYPE)
        with pytest.raises(CertificateInvalid) as error:
            bundle.verify(jws, jwks)
        return str(error.value).partition(":")[0]

    report = line["evidence"]["report"]
    assert refused(lambda one: one["evidence"].update(report=report.replace("1.5.9", "1.6.0"))) == "report_signed"
    assert refused(lambda one: one.update(grade="proved")) == "grade_of_evidence"
    assert refused(lambda one: one.update(limits=[])) == "limits_of_evidence"


def test_ghosts_keep_the_request_open(client: Client, configured: Configuration, tmp_path: Path) -> None:
    """If a copy of a document remains, the task stays open and the outcome names the copy's file. Once the copy is
    removed, the next run completes the task."""
    client.deletion_requests.create(subject_id="maria", external_id=PERSON)
    extra = tmp_path / "letters" / "backup.txt"
    extra.write_text("Complaint about parcel 4711")
    [outcome] = agent.answer(client, configured)
    assert outcome.grade is None
    assert [ghost.file for ghost in outcome.findings["letters"].ghosts] == ["backup.txt"]
    assert [task.status for task in client.system_tasks.list()] == ["open"]
    extra.unlink()
    [outcome] = agent.answer(client, configured)
    assert outcome.grade == "searched"
    assert outcome.findings["support"].before["vector"] == {"sought": 30, "found": 30}
    assert [task.status for task in client.system_tasks.list()] == ["acknowledged"]


def test_an_unsigned_report_is_refused(
    client: Client, gateway: TestClient, configured: Configuration, system_key: dict[str, str]
) -> None:
    """A report is refused if its digest differs from the signed one or if it lists remaining data. The task then stays
    open."""
    client.deletion_requests.create(subject_id="maria", external_id=PERSON)
    [task] = client.system_tasks.list()
    named = {"id": task.id, "system_id": task.system_id, "request_id": task.request_id}
    jws = acknowledgements.sign(system_key, task=named, by="x", evidence_sha256="ab" * 32)
    with pytest.raises(InputInvalid):
        client.system_tasks.search_report(task.id, jws=jws, report="{}")
    assert client.system_tasks.get(task.id).status == "open"


def test_a_search_without_a_control_is_not_graded_as_searched() -> None:
    """A deletion is graded as searched only if every vector was searched for, the search had a control for each kind of
    value, and each sample was found before the deletion and none after it."""
    one, none = {"sought": 1, "found": 1}, {"sought": 0, "found": 0}
    finding: dict[str, Any] = {
        "store": {"kind": "chroma", "version": "1.5.9"},
        "before": {"vector": one, "text": one, "id": one},
        "control": {"vector": one, "text": one, "id": one},
        "after": {kind: {"sought": 2, "found": 0} for kind in KINDS},
        "not_sought": {"vector": 0, "text": 0, "id": 0},
    }
    assert reports.grade_of(finding) == "searched"
    blind = {"sought": 1, "found": 0}
    for change in (
        {"control": {"vector": none, "text": one, "id": one}},
        {"control": {"vector": blind, "text": one, "id": one}},
        {"before": {"vector": one, "text": blind, "id": one}},
        {"after": {kind: {"sought": 1, "found": 0} for kind in KINDS}},
        {"not_sought": {"vector": 1, "text": 0, "id": 0}},
    ):
        assert reports.grade_of(finding | change) == "acknowledged"


def test_a_person_is_erased_from_the_command_line(configured: Configuration, lethe: Lethe, tmp_path: Path) -> None:
    """The command `lethe store erase` prints its findings without the person's id. An invalid configuration is refused
    with a specific error."""
    done = lethe("store", "erase", PERSON, "--config", tmp_path / "stores.toml")
    assert (done.code, PERSON in done.out, "searched" in done.out) == (0, False, True), done.err
    (tmp_path / "bad.toml").write_text("[stores.x]\nkind = 'qdrant'")
    refused = lethe("store", "erase", PERSON, "--config", tmp_path / "bad.toml")
    assert refused.code == 1
    assert refused.err.startswith("error: configuration_invalid: ")
    with pytest.raises(StoreError, match="configuration_invalid"):
        configuration.load(tmp_path / "missing.toml")
