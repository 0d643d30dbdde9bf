"""Proof files: whole files verify with their joint guarantee, and incomplete ones are refused with a specific error."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi.testclient import TestClient

from lethe import verification
from lethe.contract.problems import CertificateBeyondLimits, CertificateInvalid

pytestmark = pytest.mark.service

Make = Callable[..., dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Proofs:
    """A gateway's responses about two people whom two models have forgotten, and about a person on whom nothing was
    held."""

    keys: Any
    first: dict[str, Any]
    second: dict[str, Any]
    absence: dict[str, Any]

    def verify(self, document: Any, **limits: float) -> verification.VerifiedFile:
        return verification.verify_file(json.dumps(document), self.keys, **limits)

    def refusal(self, **changed: Any) -> str:
        """Return the reason for refusing the first proof after the given parts are replaced."""
        with pytest.raises(CertificateInvalid) as refused:
            self.verify(self.first | changed)
        return refused.value.detail


@pytest.fixture(scope="module")
def kept() -> list[Proofs]:
    return []


@pytest.fixture
def proofs(kept: list[Proofs], request: pytest.FixtureRequest) -> Proofs:
    if not kept:
        # Of the fixtures below, the dataset is an npz file.
        pytest.importorskip("app.features.npz")
        new_dataset, new_model, forget, work, get = map(
            request.getfixturevalue, ("new_dataset", "new_model", "forget", "work", "get")
        )
        gateway: TestClient = request.getfixturevalue("gateway")
        dataset = new_dataset()
        for _ in range(2):
            new_model(dataset["id"])
        work()
        made = [forget(person)["id"] for person in ("p3", "p5", "nobody")]
        work()
        answers = [get(f"/deletion-requests/{request_id}/certificate") for request_id in made]
        keys = gateway.get("/.well-known/jwks.json").json()
        kept.append(Proofs(keys=keys, first=answers[0], second=answers[1], absence=answers[2]))
    return copy.deepcopy(kept[0])


def test_a_whole_file_verifies_with_its_joint_guarantee(proofs: Proofs) -> None:
    """Both certificates of a file verify, and the joint guarantee is recomputed from them, even if the file does not
    state it."""
    verified = proofs.verify(proofs.first)
    assert [verdict.statement for verdict in verified.verdicts] == [
        part["statement"] for part in proofs.first["certificates"]
    ]
    assert verified.joint is not None
    assert verified.joint.to_json() == proofs.first["joint"]
    assert proofs.verify(proofs.first | {"joint": None}).joint == verified.joint


def test_other_kinds_of_files_verify(proofs: Proofs) -> None:
    """A bare JWS, a single certificate and a statement that nothing was held each verify."""
    (certificate, _) = proofs.first["certificates"]
    for text in (certificate["jws"], f"{certificate['jws']}\n", json.dumps(certificate)):
        verified = verification.verify_file(text, proofs.keys)
        assert verified.joint is not None
        assert verified.joint.models == (certificate["model_id"],)
    assert proofs.absence["nothing_held"] is not None
    assert proofs.verify(proofs.absence).joint is None


def test_rewritten_json_verifies(proofs: Proofs) -> None:
    """A joint guarantee still verifies after another program has rewritten 0.0 as 0."""
    joint = proofs.first["joint"]
    rewritten = [
        {name: int(value) if value == 0 and type(value) is float else value for name, value in guarantee.items()}
        for guarantee in joint["guarantees"]
    ]
    assert proofs.verify(proofs.first | {"joint": joint | {"guarantees": rewritten}}).joint is not None


def test_a_missing_certificate_is_detected(proofs: Proofs) -> None:
    """A joint guarantee is refused if it covers models without a certificate in the file, however large its epsilon
    is."""
    kept, left_out = proofs.first["certificates"]
    detail = proofs.refusal(certificates=[kept])
    assert left_out["model_id"] in detail
    larger = proofs.first["joint"] | {"mu": 9.0, "epsilon": 99.0}
    assert left_out["model_id"] in proofs.refusal(certificates=[kept], joint=larger)


@pytest.mark.parametrize("name", ["mu", "epsilon", "delta", "best_attacker_accuracy"])
def test_a_forged_joint_number_is_refused(proofs: Proofs, name: str) -> None:
    """A joint guarantee is refused if any of its numbers, at the top level or in its list of guarantees, differs from
    the recomputed one."""
    joint = proofs.first["joint"]
    assert f"joint.{name}=" in proofs.refusal(joint=joint | {name: joint[name] / 2})
    forged = [guarantee | {name: guarantee[name] / 2 + 1e-9} for guarantee in joint["guarantees"]]
    assert f"joint.{name}=" in proofs.refusal(joint=joint | {"guarantees": forged})


def test_a_joint_guarantee_of_fewer_models_is_refused(proofs: Proofs) -> None:
    """A joint guarantee must cover each model with a certificate in the file exactly once."""
    joint = proofs.first["joint"]
    one, two = joint["models"]
    for models in ([one], [one, one, two], [two, one], []):
        assert "leaves out" in proofs.refusal(joint=joint | {"models": models})
    for malformed in (
        {},
        [],
        1,
        joint | {"guarantees": joint["guarantees"][:2]},
        joint | {"models": None},
        joint | {"mu": 10**400},
    ):
        assert "malformed" in proofs.refusal(joint=malformed)
    assert "no certificate" in proofs.refusal(certificates=[], nothing_held=None)


def test_a_statement_of_another_request_is_refused(proofs: Proofs) -> None:
    """A file is refused if it contains a certificate, or a statement that nothing was held, for a request other than
    the one that the file names."""
    foreign = proofs.second["certificates"][1]
    mixed = [proofs.first["certificates"][0], foreign]
    assert proofs.second["request_id"] in proofs.refusal(certificates=mixed)
    disguised = foreign | {"request_id": proofs.first["request_id"]}
    assert "request_id beside the JWS" in proofs.refusal(certificates=[mixed[0], disguised])
    assert proofs.absence["request_id"] in proofs.refusal(nothing_held=proofs.absence["nothing_held"])
    assert proofs.second["request_id"] in proofs.refusal(request_id=proofs.second["request_id"])
    assert proofs.second["request_id"] in proofs.refusal(certificates=mixed, request_id=None)
    assert proofs.first["request_id"] in proofs.refusal(request_id="")
    assert proofs.verify({"certificates": proofs.first["certificates"]}).joint is not None


def test_a_repeated_part_is_refused(proofs: Proofs) -> None:
    """A file is refused if it contains two certificates for one model, or if it contains anything else alongside a
    statement that nothing was held."""
    one, two = proofs.first["certificates"]
    assert one["model_id"] in proofs.refusal(certificates=[one, two, one])
    absence = proofs.absence["nothing_held"]
    with pytest.raises(CertificateInvalid, match="nothing was held"):
        proofs.verify(proofs.absence | {"certificates": [absence]})
    with pytest.raises(CertificateInvalid, match="no certificate that it follows from"):
        proofs.verify(proofs.absence | {"joint": proofs.first["joint"]})


@pytest.mark.parametrize(
    ("name", "value"), [("id", "crt_1"), ("model_id", "mdl_1"), ("version", 99), ("statement", {}), ("request_id", "")]
)
def test_fields_next_to_a_jws_must_match_it(proofs: Proofs, name: str, value: Any) -> None:
    """A field next to a JWS is refused if it differs from the signed value."""
    one, two = proofs.first["certificates"]
    assert "beside the JWS is not" in proofs.refusal(certificates=[one | {name: value}, two])


@pytest.mark.parametrize("text", ["{}", '{"certificates": []}', '{"certificates": 1, "request_id": "dr_1"}', "{", ""])
def test_files_without_a_certificate_are_refused(proofs: Proofs, text: str) -> None:
    """A file that contains no JWS is refused."""
    with pytest.raises(CertificateInvalid):
        verification.verify_file(text, proofs.keys)


@pytest.mark.slow
def test_limits_apply_to_each_certificate_in_a_file(proofs: Proofs) -> None:
    """A verifier's limits apply to every certificate in a file."""
    proofs.verify(proofs.first, max_epsilon=1.01, max_delta=0.02)
    with pytest.raises(CertificateBeyondLimits):
        proofs.verify(proofs.first, max_epsilon=1e-6)
