"""Proofs that a request was served: joint proofs for several models, and proofs that nothing was held."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from joserfc import jws

from app.installations import Installation
from lethe import verification
from lethe.contract.sets import Scope
from lethe.errors import CertificateInvalid
from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]
Refused = Callable[..., dict[str, Any]]


def mu_of(guarantees: list[dict[str, Any]], notion: str) -> float:
    return next(float(one["mu"]) for one in guarantees if one["notion"] == notion)


@pytest.fixture
def two_models(new_dataset: Make, new_model: Make, work: Work) -> tuple[str, str]:
    """Create two models of one dataset that differ in noise; the second lets requests wait."""
    dataset, patient = new_dataset()["id"], {"max_wait_seconds": 86400}
    first = new_model(dataset, name="a", noise_scale=0.05)["id"]
    second = new_model(dataset, name="b", noise_scale=0.2, batching=patient)["id"]
    work()
    return first, second


def test_several_models_have_a_joint_guarantee(
    new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Work
) -> None:
    """The mu^2 of the joint guarantee is the sum of the certificates' mu^2, both in a request's proof and in the
    request's account in `/v1/accounting`."""
    dataset = new_dataset()["id"]
    models = sorted(new_model(dataset, name=name, noise_scale=noise)["id"] for name, noise in (("a", 0.05), ("b", 0.2)))
    work()
    request = forget("p3")
    work()
    proof = get(f"/deletion-requests/{request['id']}/certificate")
    joint, signed = proof["joint"], [one["statement"]["guarantees"] for one in proof["certificates"]]
    assert len(signed) == 2
    assert joint["models"] == models
    for notion in ("unlearning", "deletion"):
        expected = math.hypot(*(mu_of(one, notion) for one in signed))
        assert mu_of(joint["guarantees"], notion) == pytest.approx(expected)
    assert joint["mu"] == mu_of(joint["guarantees"], "deletion") > 0
    assert mu_of(joint["guarantees"], "adaptive") == pytest.approx(max(mu_of(one, "adaptive") for one in signed))
    assert joint["epsilon"] > max(g["epsilon"] for one in signed for g in one if g["notion"] == "deletion")
    assert get(f"/accounting/deletion-requests/{request['id']}")["joint"] == joint


def test_there_is_no_joint_guarantee_while_a_model_is_pending(
    gateway: TestClient, two_models: tuple[str, str], forget: Make, get: Get, work: Work
) -> None:
    """A proof has no joint guarantee until every model has unlearned the person's data. A second request made before
    then gets a joint guarantee for both models, although only one of the two models issues a certificate for it."""
    first = forget("p3")
    work()
    again = forget("p3")
    proof = get(f"/deletion-requests/{first['id']}/certificate")
    assert ([one["model_id"] for one in proof["certificates"]], proof["joint"]) == ([two_models[0]], None)
    assert get(f"/accounting/deletion-requests/{first['id']}")["joint"] is None
    gateway.post(f"/v1/models/{two_models[1]}/relearn").raise_for_status()
    work()
    proofs = [get(f"/deletion-requests/{request['id']}/certificate") for request in (first, again)]
    assert [len(proof["certificates"]) for proof in proofs] == [2, 1]
    assert proofs[0]["joint"] == proofs[1]["joint"]
    assert proofs[1]["joint"]["models"] == sorted(two_models)


def test_unknown_people_get_a_signed_proof(gateway: TestClient, live: dict[str, Any], forget: Make, get: Get) -> None:
    """A request about a person who is not held gets a signed statement to that effect. The statement verifies offline
    and over HTTP, and repeated calls return the same statement."""
    request = forget("nobody")
    path = f"/deletion-requests/{request['id']}/certificate"
    proof = get(path)
    absence = proof["nothing_held"]
    assert (proof["certificates"], proof["joint"]) == ([], None)
    statement = absence["statement"]
    assert statement["format"] == "lethe-absence/1"
    assert statement["request"] == {"id": request["id"], "submitted_at": statement["request"]["submitted_at"]}
    assert statement["datasets"] == [live["dataset_id"]]
    assert statement["looked"]["records"] == 0
    assert statement["looked"]["identity_rule"].startswith("text: the same text in Unicode's NFC")
    assert "nobody" not in json.dumps(proof)
    jwks = gateway.get("/.well-known/jwks.json").json()
    assert verification.verify(absence["jws"], jwks).statement == statement
    verdict = gateway.post("/v1/certificates:verify", json={"jws": absence["jws"]}).json()
    assert (verdict["valid"], verdict["guarantees"], verdict["statement"]) == (True, [], statement)
    assert get(path) == proof


def test_nothing_held_names_only_the_searched_datasets(
    live: dict[str, Any], new_dataset: Make, forget: Make, get: Get, work: Work
) -> None:
    """A statement that nothing was held names only the datasets that the request covered and that existed when it was
    made."""
    other = new_dataset()["id"]
    narrow, wide = forget("nobody", dataset_ids=[other]), forget("nobody")
    new_dataset()

    def looked(request: dict[str, Any]) -> list[str]:
        found: list[str] = get(f"/deletion-requests/{request['id']}/certificate")["nothing_held"]["statement"][
            "datasets"
        ]
        return found

    assert looked(narrow) == [other]
    assert looked(wide) == sorted([live["dataset_id"], other])


def test_nothing_held_is_null_for_a_held_person(live: dict[str, Any], forget: Make, get: Get, work: Work) -> None:
    """For a held person, `nothing_held` is null both while the request is waiting and after it has completed."""
    request = forget("p1")
    path = f"/deletion-requests/{request['id']}/certificate"
    assert get(path)["nothing_held"] is None
    work()
    assert get(path)["nothing_held"] is None


def test_discreet_keys_get_no_statement(
    gateway: TestClient,
    live: dict[str, Any],
    key_with: Callable[..., dict[str, str]],
    forget: Make,
    work: Work,
    refused: Refused,
) -> None:
    """A key that is not allowed to see whether a person is held is refused the proof of a request, with the same error
    for a held person and an unknown one."""
    app = key_with(Scope.REQUESTS_READ, Scope.REQUESTS_WRITE)
    said = []
    for subject in ("p1", "nobody"):
        request = forget(subject)
        work()
        answer = gateway.get(f"/v1/deletion-requests/{request['id']}/certificate", headers=app)
        said.append((answer.status_code, answer.json()))
    assert said[0] == said[1]
    assert said[0][0] == 403


@each("more", ['"epsilon": 0', '"format": "lethe-absence/1"', '"looked": {}'])
def test_a_statement_with_additional_fields_is_refused(
    installation: Installation, gateway: TestClient, live: dict[str, Any], forget: Make, get: Get, more: str
) -> None:
    """A statement that nothing was held is refused if it has additional or repeated fields, even if the installation
    signed it."""
    request = forget("nobody")
    absence = get(f"/deletion-requests/{request['id']}/certificate")["nothing_held"]
    text = json.dumps(absence["statement"])[:-1] + f", {more}}}"
    header = {"alg": "Ed25519", "typ": "lethe-certificate+jws", "kid": installation.keys.signing_key.kid}
    signed = jws.serialize_compact(header, text, installation.keys.signing_key, algorithms=["Ed25519"])
    with pytest.raises(CertificateInvalid):
        verification.verify(signed, gateway.get("/.well-known/jwks.json").json())
