"""The bundle of a request: its statement, and refusals of its verification."""

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from joserfc.jwk import OKPKey

from app import signing
from app.installations import Installation
from lethe.contract.problems import CertificateBeyondLimits, CertificateInvalid
from lethe.features.systems import acknowledgements, bundle, sentences
from lethe.features.systems.contract import STRENGTH, Grade
from tests import command_line
from tests.command_line import Lethe

New = Callable[..., dict[str, Any]]


@pytest.fixture
def ended(
    gateway: TestClient,
    installation: Installation,
    new_dataset: New,
    new_model: New,
    new_system: New,
    system_key: dict[str, str],
    forget: New,
    task_of: New,
    work: Callable[[], int],
    get: Callable[[str], Any],
) -> dict[str, Any]:
    """Return a request's bundle, after two models have forgotten the person and a system has acknowledged the request
    with its key."""
    dataset = new_dataset()
    new_model(dataset["id"], name="churn")
    new_model(dataset["id"], name="risk")
    new_system(public_key=system_key["x"])
    work()
    request = forget("p0")
    work()
    assert get(f"/deletion-requests/{request['id']}")["status"] == "running"
    waiting = get(f"/deletion-requests/{request['id']}/systems")
    assert (waiting["waits_for"], waiting["grade"]) == (["Recommender"], "not_reached")
    task = task_of(request["id"])
    jws = acknowledgements.sign(system_key, task=task, by="on-call", evidence_sha256="ab" * 32)
    answer = gateway.post(f"/v1/system-tasks/{task['id']}/acknowledge", json={"jws": jws})
    assert answer.status_code == 200, answer.text
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    whole: dict[str, Any] = get(f"/deletion-requests/{request['id']}/bundle")
    return whole


@pytest.fixture
def resigned(installation: Installation) -> Callable[[dict[str, Any]], str]:
    """Return a function that signs any statement with the installation's key."""
    return lambda statement: signing.sign(installation.keys, json.dumps(statement).encode(), kind=bundle.TYPE)


def refusal(text: str, jwks: dict[str, Any]) -> str:
    """Return the name of the check that fails when the bundle is verified."""
    with pytest.raises(CertificateInvalid) as refused:
        bundle.verify(text, jwks)
    return str(refused.value).partition(":")[0]


def test_a_bundle_is_recomputed_offline(
    ended: dict[str, Any],
    installation: Installation,
    resigned: Callable[[dict[str, Any]], str],
    system_key: dict[str, str],
    lethe: Lethe,
    tmp_path: Path,
) -> None:
    """A bundle can be verified with only the public keys. If anything in it was changed, verification fails and names
    the failed check, even if the installation signed the changed bundle."""
    jwks, text, whole = signing.public_keys(installation.keys), json.dumps(ended), ended["statement"]
    assert [line["grade"] for line in whole["lines"]] == ["acknowledged", "proved", "proved"]
    assert whole["headline"]["grade"] == ended["grade"] == "acknowledged"
    assert len(whole["joint"]["models"]) == 2
    verified = bundle.verify(text, jwks)
    assert verified.statement == whole
    assert verified.proof is not None
    assert len(verified.proof.verdicts) == 2
    assert bundle.verify(ended["jws"], jwks).statement == whole
    with pytest.raises(CertificateBeyondLimits):
        bundle.verify(text, jwks, max_epsilon=1e-9)

    flipped = ended["jws"][:200] + ("A" if ended["jws"][200] != "A" else "B") + ended["jws"][201:]
    assert refusal(flipped, jwks).startswith("The signature was not made")
    other = {"keys": [OKPKey.generate_key("Ed25519").as_dict(private=False)]}
    assert refusal(ended["jws"], other).startswith("The signature was not made")
    assert refusal(json.dumps(ended | {"grade": "proved"}), jwks) == "statement_beside"

    stranger = OKPKey.generate_key("Ed25519").as_dict(private=True)
    acknowledged, first, second = range(3)

    def changed(change: Callable[[dict[str, Any]], object]) -> str:
        statement = copy.deepcopy(whole)
        change(statement)
        return refusal(resigned(statement), jwks)

    def line(place: int, **fields: Any) -> Callable[[dict[str, Any]], object]:
        return lambda statement: statement["lines"][place].update(fields)

    def evidence(place: int, **fields: Any) -> Callable[[dict[str, Any]], object]:
        return lambda statement: statement["lines"][place]["evidence"].update(fields)

    task = whole["lines"][acknowledged]["evidence"]["task_id"]
    named = {
        "id": task,
        "system_id": whole["lines"][acknowledged]["system"]["id"],
        "request_id": whole["request"]["id"],
    }
    forged = acknowledgements.sign(stranger, task=named, by="x")  # type: ignore[arg-type]
    of_other = acknowledgements.sign(system_key, task=named | {"id": "tsk_0"}, by="x")
    assert changed(lambda statement: statement["lines"].pop(acknowledged)) == "lines_complete"
    assert changed(lambda statement: statement.pop("limits")) == "bundle_complete"
    assert changed(line(acknowledged, grade="proved")) == "grade_of_evidence"
    assert changed(line(first, grade="retrained_hermetic")) == "grade_of_evidence"
    assert changed(line(acknowledged, limits=[])) == "limits_of_evidence"
    assert changed(line(acknowledged, method="magic")) == "method_of_evidence"
    assert changed(line(first, numbers=[])) == "numbers_of_certificate"
    assert changed(line(acknowledged, waiting=True)) == "waiting_while_open"
    assert changed(evidence(acknowledged, jws=forged)) == "acknowledgement_signed"
    assert changed(evidence(acknowledged, jws=of_other)) == "acknowledgement_of_line"
    assert changed(evidence(acknowledged, type="unknown")) == "evidence_known"
    assert changed(evidence(first, certificate_id="crt_0")) == "certificate_of_line"
    assert changed(lambda statement: statement["headline"].update(grade="proved")) == "headline_recomputed"
    assert changed(lambda statement: statement["headline"]["person"].update(de="Alles gut.")) == "headline_recomputed"
    assert changed(lambda statement: statement.update(headings=[])) == "headings_recomputed"
    assert changed(lambda statement: statement["joint"].update(epsilon=0.0)) == "numbers_recompute"
    assert changed(lambda statement: statement.update(joint=None)) == "limits_recomputed"
    assert changed(lambda statement: statement.update(format="lethe-bundle/2")) == "format_known"

    def without_model(statement: dict[str, Any]) -> None:
        left_out = statement["lines"].pop(second)["system"]["id"]
        statement["asked"].remove(left_out)

    assert changed(without_model).startswith("The joint guarantee covers model")

    file, keys = tmp_path / "bundle.json", tmp_path / "keys.json"
    keys.write_text(json.dumps(jwks))
    file.write_text(text)
    result = lethe("certificate", "verify", file, "--jwks", keys)
    assert result.code == 0, result.err
    assert "valid  bundle of request" in result.out
    assert "Weakest grade: acknowledged by the system, not verified (Recommender)." in " ".join(result.out.split())
    file.write_text(flipped)
    command_line.refused(lethe("certificate", "verify", file, "--jwks", keys), "certificate_invalid")


def test_a_request_without_systems_is_proved(
    new_dataset: New, new_model: New, forget: New, work: Callable[[], int], get: Callable[[str], Any]
) -> None:
    """If no other systems are registered, a request completes without waiting for them, and its bundle's headline
    states that the deletion is proved."""
    new_model(new_dataset()["id"])
    work()
    request = forget("p0")
    work()
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    whole = get(f"/deletion-requests/{request['id']}/bundle")
    assert whole["grade"] == "proved"
    assert whole["statement"]["headline"]["person"]["en"].endswith("for each of them this is proved.")


def test_rows_without_a_model_are_searched(
    installation: Installation, new_dataset: New, forget: New, work: Callable[[], int], get: Callable[[str], Any]
) -> None:
    """Rows that no model was trained on, and datasets without data about the person, are graded as searched."""
    new_dataset()
    jwks = signing.public_keys(installation.keys)
    for subject, evidence in (("p0", "erasures"), ("nobody", "absence")):
        request = forget(subject)
        work()
        whole = get(f"/deletion-requests/{request['id']}/bundle")
        [line] = whole["statement"]["lines"]
        assert (line["grade"], line["evidence"]["type"]) == ("searched", evidence)
        assert bundle.verify(json.dumps(whole), jwks).statement == whole["statement"]


def test_a_widened_target_counts_as_not_reached(
    policy: Callable[..., None],
    new_dataset: New,
    new_model: New,
    forget: New,
    work: Callable[[], int],
    get: Callable[[str], Any],
) -> None:
    """A model that met only a widened target is certified but graded as not reached."""
    policy(max_epsilon=100.0, max_delta=0.99)
    new_model(new_dataset()["id"], target={"epsilon": 99.0, "delta": 0.9}, noise_scale=0.01)
    work()
    request = forget("p0")
    work()
    assert get(f"/deletion-requests/{request['id']}")["outcome"] == "target_widened"
    assert get(f"/deletion-requests/{request['id']}/bundle")["grade"] == "not_reached"


def test_a_request_in_review_has_no_bundle(gateway: TestClient, policy: Callable[..., Any], forget: New) -> None:
    """A request that has not been accepted has no bundle."""
    policy(auto_accept=False)
    request = forget("p0")
    answer = gateway.get(f"/v1/deletion-requests/{request['id']}/bundle")
    assert (answer.status_code, answer.json()["code"]) == (409, "bundle_not_ready")


def test_every_grade_has_its_sentences() -> None:
    """Each grade has one sentence for the person and one for the officer, in both languages. Grades are ordered by
    strength."""
    assert list(STRENGTH) == sorted(Grade, key=STRENGTH.__getitem__)
    assert next(iter(Grade)) == "proved"
    assert [*Grade][-1] == "not_reached"
    said = [sentences.headline(grade, ["A", "B"]) for grade in Grade]
    texts = [text for one in said for reader in ("person", "officer") for text in one[reader].values()]
    assert len(set(texts)) == 4 * len(Grade)
    assert all(re.search(r"\(A, B\)\.$", one["officer"]["de"]) for one in said)
