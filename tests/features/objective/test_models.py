"""Models by objective perturbation, from their creation to the offline verification of their certificates."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.installations import Installation
from app.unlearning import queue, service
from lethe import verification
from lethe.features.objective.methods import NAME, THEOREM
from lethe.proof import accountant
from tests.features.objective.test_lanes import _noise
from tests.tables import each
from tests.worker.evidence.test_faults import here as here

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]


@pytest.fixture
def model(new_dataset: Make, new_model: Make, work: Work) -> dict[str, Any]:
    """Return a trained model that uses this method."""
    created = new_model(new_dataset()["id"], method=NAME)
    assert work() == 1
    return created


@pytest.fixture
def dataset(new_dataset: Make) -> str:
    return str(new_dataset()["id"])


def by_notion(guarantees: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {guarantee["notion"]: guarantee for guarantee in guarantees}


def test_a_person_is_forgotten_and_the_certificate_verifies(
    gateway: TestClient, model: dict[str, Any], forget: Make, work: Work, get: Get
) -> None:
    """A deletion request leads to a version that is trained from scratch. Its certificate names the method and verifies
    offline."""
    assert (model["method"], model["audit"]["lanes"]) == (NAME, 256)
    assert model["mechanism"]["settings"].keys() == {"num_columns", "tolerance", "output_noise", "max_iterations"}
    assert "step_size" not in model["mechanism"]
    request = forget("p3")
    assert work() == 1
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    proof = get(f"/deletion-requests/{request['id']}/certificate")
    jwks = gateway.get("/.well-known/jwks.json").json()
    verified = verification.verify_file(json.dumps(proof), jwks)
    [verdict] = verified.verdicts
    statement = verdict.statement
    assert (statement["theorem"], statement["run"]["kind"]) == (THEOREM, "relearn")
    audit = statement["audit"]
    assert (audit["notion"], audit["lanes"], audit["findings"]) == ("release", 256, [])
    assert 0 < audit["epsilon_lower_bound"] <= audit["epsilon"]
    assert audit == get("/runs?limit=1")["items"][0]["audit"]
    assert "gradient_within_tolerance" in statement["invariants"]
    stated = by_notion(statement["guarantees"])
    assert stated["unlearning"]["epsilon"] == stated["deletion"]["epsilon"] == 0
    assert 0 < stated["deletion"]["mu"] < 0.03
    assert 0 < stated["adaptive"]["epsilon"] <= 1 < stated["release"]["epsilon"]
    assert get(f"/models/{model['id']}")["live_version"] == 2


def test_requests_share_a_version_with_separate_certificates(
    gateway: TestClient, model: dict[str, Any], new_model: Make, forget: Make, work: Work, get: Get
) -> None:
    """Several people, one of whom has two rows, are forgotten in one run, and each gets a separate certificate. The
    joint guarantee with a Langevin model on the same rows composes both methods. The certificate file and the ledger
    verify offline."""
    new_model(model["dataset_id"], audit={"lanes": 0})
    work()
    requests = [forget(subject) for subject in ("p1", "p2", "p3")]
    work()
    jwks = gateway.get("/.well-known/jwks.json").json()
    for request in requests:
        proof = get(f"/deletion-requests/{request['id']}/certificate")
        verified = verification.verify_file(json.dumps(proof), jwks)
        assert {verdict.statement["theorem"] for verdict in verified.verdicts} == {THEOREM, accountant.THEOREM}
        joint = {one.notion: one for one in verified.joint.guarantees}
        alone = [
            {one.notion: one for one in verdict.guarantees}
            for verdict in verified.verdicts
            if verdict.statement["theorem"] == THEOREM
        ]
        assert joint["adaptive"].epsilon == alone[0]["adaptive"].epsilon > 1
        assert joint["deletion"].mu > alone[0]["deletion"].mu
    versions = get(f"/models/{model['id']}/versions")["items"]
    assert [version["number"] for version in versions] == [2, 1]
    trajectory = get(f"/accounting/models/{model['id']}/trajectory")["items"]
    assert [len(segment["points"]) for segment in trajectory] == [2, 2]
    account = get(f"/accounting/models/{model['id']}")
    assert (account["reset"], account["next_request"]["kind"]) == (None, "relearn")


def test_a_reclaimed_run_is_repeated_and_not_counted(
    installation: Installation, model: dict[str, Any], forget: Make, work: Work, get: Get
) -> None:
    """A run that is reclaimed from its worker publishes no version. The next run forgets the person and publishes the
    model's second version, and the certificate's evidence does not count the reclaimed run."""
    request = forget("p3")
    with installation.database.writing() as session:
        assert queue.claim(session, worker="dead", lease_seconds=60, max_requests=500) is not None
    with installation.database.writing() as session:
        assert service.take_back(session, worker="dead") == 1
    assert work() == 1
    [certificate] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
    evidence = certificate["statement"]["evidence"]
    assert evidence["history"] == [[300, 1]]
    assert evidence["exposures"][model["id"]]["releases"] == [[300, 1]]
    assert get(f"/models/{model['id']}")["live_version"] == 2


@each(
    "asked",
    [
        {"objective": "smoothed_hinge"},
        {"step_size": 0.5},
        {"second_moment": 0.5},
        {"batch_size": 10},
        {"noise_scale": 1.0},
        {"mechanism": "langevin"},
    ],
)
def test_unsupported_settings_are_refused(gateway: TestClient, dataset: str, asked: dict[str, Any]) -> None:
    """Losses without a proof, and settings that the method does not support, are refused before anything is stored."""
    body = {"name": "model", "dataset_id": dataset, "method": NAME} | asked
    answer = gateway.post("/v1/models", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "precondition_failed"), answer.text
    assert gateway.get("/v1/models").json()["items"] == []


def test_features_for_gradient_steps_are_refused(gateway: TestClient, model: dict[str, Any]) -> None:
    """For a model trained by objective perturbation, requests for remedies, rehearsals or previews of a given number of
    steps are refused with a specific error."""
    path = f"/v1/models/{model['id']}"
    preview = {"model_id": model["id"], "num_records": 1}
    assert gateway.post("/v1/accounting/preview", json=preview).status_code == 200
    answers = [
        gateway.get(f"{path}/remedies"),
        gateway.post(f"{path}/rehearsals", json={"people": 16}),
        gateway.post("/v1/accounting/preview", json=preview | {"steps": 3}),
    ]
    assert [answer.json()["code"] for answer in answers] == ["precondition_failed"] * len(answers)


def test_a_canary_test_on_request_forgets_its_canaries(
    gateway: TestClient, model: dict[str, Any], work: Work, get: Get
) -> None:
    """A canary test on request learns sixteen times as many canaries, solves without them, and finds nothing of them:
    the certified deletion epsilon and the proved one are both 0. The model's version stays the same."""
    assert gateway.post(f"/v1/models/{model['id']}/audit").status_code == 202
    assert work() == 1
    run = get("/runs?limit=1")["items"][0]
    assert (run["kind"], run["status"], run["steps_total"]) == ("audit", "published", 600)
    audit = run["audit"]
    assert (audit["notion"], audit["lanes"], audit["findings"]) == ("deletion", 16 * 256, [])
    assert (audit["epsilon"], audit["epsilon_lower_bound"]) == (0, 0)
    found = get(f"/models/{model['id']}")
    assert (found["live_version"], found["audit"]["asked_at"], found["audit"]["last"]) == (1, None, audit)


def test_a_model_without_lanes_has_no_canary_test(
    gateway: TestClient, new_dataset: Make, new_model: Make, work: Work, get: Get
) -> None:
    """The canary test of a model by this method can be turned off, and then a test on request is refused."""
    model = new_model(new_dataset()["id"], method=NAME, audit={"lanes": 0})
    assert work() == 1
    assert get("/runs?limit=1")["items"][0]["audit"] is None
    assert gateway.post(f"/v1/models/{model['id']}/audit").json()["code"] == "precondition_failed"


def test_a_run_whose_lanes_refute_it_publishes_nothing(
    installation: Installation, model: dict[str, Any], forget: Make, work: Work, get: Get, here: None
) -> None:
    """If the noise of a run is half of what was planned, its lanes refute it: the run fails with the findings, nothing
    is published, and the request stays open."""
    request = forget("p3")
    with pytest.MonkeyPatch.context() as patch:
        _noise(0.5, 0)(patch)
        assert work() == 1
    [last] = get("/runs?limit=1")["items"]
    assert (last["status"], last["error_code"]) == ("failed", "audit_failed")
    assert "noise" in last["audit"]["findings"]
    assert get(f"/models/{model['id']}")["live_version"] == 1
    assert len(installation.weights.version_ids()) == 1
    assert get(f"/deletion-requests/{request['id']}")["status"] == "accepted"


def test_an_unknown_method_is_refused(gateway: TestClient, dataset: str) -> None:
    """A method that is not installed is refused, and the error lists the installed methods."""
    answer = gateway.post("/v1/models", json={"name": "model", "dataset_id": dataset, "method": "folklore"})
    assert answer.json()["code"] == "precondition_failed"
    assert NAME in answer.json()["errors"][0]["message"]


def test_the_plan_compares_both_methods(dataset: str, get: Get) -> None:
    """A dataset's plan states the passes and guarantees of both methods, and which method the selection rule picks."""
    plan = get(f"/accounting/datasets/{dataset}/plan")
    langevin, objective = plan["methods"]
    assert (langevin["method"], objective["method"]) == ("langevin", NAME)
    assert objective["deletion"] == 0 < langevin["deletion"] <= 1
    assert objective["adaptive"] == sorted(objective["adaptive"])
    taken = min((langevin, objective), key=lambda method: method["adaptive"][1])
    assert plan["takes"] == taken["method"]
    classless = get(f"/accounting/datasets/{dataset}/plan?objective=smoothed_hinge")
    assert "loss_proved" in classless["methods"][1]["refused"]
