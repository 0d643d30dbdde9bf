"""Copies of weights that were handed out: statements of their holders, and what the bundle of a request reports about
them."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app import signing
from app.installations import Installation
from lethe.contract.problems import CertificateInvalid
from lethe.contract.sets import Scope
from lethe.features.lineage import evidence
from lethe.features.systems import bundle

New = Callable[..., dict[str, Any]]
Header = dict[str, str]


@pytest.fixture
def model(new_dataset: New, new_model: New, work: Callable[[], int]) -> dict[str, Any]:
    made = new_model(new_dataset()["id"], name="churn")
    work()
    return made


@pytest.fixture
def place(model: dict[str, Any]) -> str:
    return f"/v1/models/{model['id']}"


@pytest.fixture
def holder(key_with: Callable[..., Header]) -> Header:
    return key_with(Scope.MODELS_READ)


@pytest.fixture
def handed_out(gateway: TestClient, place: str) -> Callable[..., str]:
    """Return a function that downloads a version and returns the id of the export."""

    def download(number: int, header: Header) -> str:
        assert gateway.get(f"{place}/versions/{number}/weights", headers=header).status_code == 200
        listed = gateway.get(f"{place}/exports", params={"mine": True, "version": number}, headers=header)
        export_id: str = listed.json()["items"][0]["id"]
        return export_id

    return download


@pytest.fixture
def bundle_of(get: Callable[[str], Any], installation: Installation) -> Callable[[str], dict[str, Any]]:
    """Return a function that verifies a request's bundle and returns the statement."""

    def verified(request_id: str) -> dict[str, Any]:
        whole = get(f"/deletion-requests/{request_id}/bundle")
        jwks = signing.public_keys(installation.keys)
        return bundle.verify(json.dumps(whole), jwks).statement

    return verified


def copies_in(statement: dict[str, Any]) -> dict[str, Any]:
    [line] = [line for line in statement["lines"] if line["system"]["kind"] == "copies"]
    found: dict[str, Any] = line
    return found


def test_an_outstanding_copy_is_the_headline_until_it_is_destroyed(
    gateway: TestClient,
    model: dict[str, Any],
    place: str,
    holder: Header,
    handed_out: Callable[..., str],
    forget: New,
    work: Callable[[], int],
    bundle_of: Callable[[str], dict[str, Any]],
    get: Callable[[str], Any],
) -> None:
    """Each copy of a version that was trained on the person is listed with its recipient and its state. The sentences
    for the person and for the officer state how many copies are still held by recipients, were replaced by a version
    that forgot the person, or were destroyed. Copies of later versions are not listed."""
    first, second = handed_out(1, holder), handed_out(1, holder)
    request_id = forget("p0")["id"]
    work()
    handed_out(2, holder)
    whole = bundle_of(request_id)
    line = copies_in(whole)
    assert (line["grade"], line["system"]["name"], line["system"]["id"]) == (
        "not_reached",
        "Copies of churn",
        f"{model['id']}/exports",
    )
    assert line["evidence"]["counts"] == {"out": 2, "reached": 0, "destroyed": 0}
    assert [(one["id"], one["version"], one["state"]) for one in line["evidence"]["copies"]] == [
        (second, 1, "out"),
        (first, 1, "out"),
    ]
    assert whole["headline"]["grade"] == "not_reached"
    assert "Still out: 2;" in whole["headline"]["person"]["en"]
    assert "Noch im Umlauf: 2;" in whole["headline"]["person"]["de"]
    assert whole["headline"]["officer"]["en"].startswith("Weakest grade: not reached (Copies of churn). Copies of")
    systems = get(f"/deletion-requests/{request_id}/systems")
    assert systems["for_person"] == whole["headline"]["person"]
    assert systems["waits_for"] == []

    destroyed = {"kind": "mlflow", "place": "run 7", "destroyed": "listed"}
    assert gateway.patch(f"{place}/exports/{first}", json=destroyed, headers=holder).status_code == 200
    replaced = {"kind": "onnx", "replaced_by": 2}
    assert gateway.patch(f"{place}/exports/{second}", json=replaced, headers=holder).status_code == 200
    whole = bundle_of(request_id)
    reached, gone = copies_in(whole)["evidence"]["copies"]
    assert (reached["state"], reached["replaced_by"], reached["kind"]) == ("reached", 2, "onnx")
    assert (gone["state"], gone["destroyed"], gone["place"]) == ("destroyed", "listed", "run 7")
    assert gone["stated_by"] == gone["api_key_id"]
    assert whole["headline"]["grade"] == "not_reached"
    assert (
        "replaced by a model that has forgotten you: 1; destroyed, as was stated to us: 1."
        in (whole["headline"]["person"]["en"])
    )

    assert gateway.patch(f"{place}/exports/{second}", json={"destroyed": "stated"}, headers=holder).status_code == 200
    whole = bundle_of(request_id)
    assert (copies_in(whole)["grade"], whole["headline"]["grade"]) == ("acknowledged", "acknowledged")
    assert "0 out, 0 replaced, 2 stated to be destroyed" in whole["headline"]["officer"]["en"]


def test_a_replaced_copy_counts_only_for_people_it_forgot(
    gateway: TestClient,
    place: str,
    holder: Header,
    handed_out: Callable[..., str],
    forget: New,
    work: Callable[[], int],
    bundle_of: Callable[[str], dict[str, Any]],
) -> None:
    """A copy replaced by version 2 counts as replaced for a person whom version 2 forgot, but as outstanding for a
    person whom only version 3 forgot."""
    export = handed_out(1, holder)
    early = forget("p0")["id"]
    work()
    late = forget("p1")["id"]
    work()
    assert gateway.patch(f"{place}/exports/{export}", json={"replaced_by": 2}, headers=holder).status_code == 200
    states = [copies_in(bundle_of(request))["evidence"]["copies"][0]["state"] for request in (early, late)]
    assert states == ["reached", "out"]


def test_the_recipient_reports_the_fate_of_a_copy(
    gateway: TestClient,
    place: str,
    holder: Header,
    key_with: Callable[..., Header],
    handed_out: Callable[..., str],
    get: Callable[[str], Any],
    refused: Callable[..., None],
) -> None:
    """Only the recipient's key or an admin can report that a copy was replaced or destroyed. Unknown versions and
    exports are refused. Repeating a report is a no-op, and each report is in the audit log."""
    path = f"{place}/exports/{handed_out(1, holder)}"
    body = {"destroyed": "stated"}
    refused(gateway.patch(path, json=body, headers=key_with(Scope.MODELS_READ)), 403, "scope_missing")
    refused(gateway.patch(path, json={"replaced_by": 7}, headers=holder), 404, "version_unknown")
    refused(gateway.patch(path, json={"destroyed": "perhaps"}, headers=holder), 422, "input_invalid")
    refused(gateway.patch(f"{place}/exports/exp_0", json=body, headers=holder), 404, "export_unknown")
    answers = [gateway.patch(path, json=body, headers=holder).json() for _ in range(2)]
    assert answers[0] == answers[1]
    by_admin = gateway.patch(path, json=body).json()
    assert by_admin["stated_by"] != by_admin["api_key_id"] == answers[0]["stated_by"]
    stated = [one for one in get("/audit-log")["items"] if one["action"] == "export.stated"]
    assert [one["actor"] for one in stated] == [by_admin["stated_by"], answers[0]["stated_by"]]
    assert gateway.get(f"{place}/exports", params={"mine": True}).json()["items"] == []


def test_altered_copies_are_refused(
    gateway: TestClient,
    installation: Installation,
    place: str,
    holder: Header,
    handed_out: Callable[..., str],
    forget: New,
    work: Callable[[], int],
    bundle_of: Callable[[str], dict[str, Any]],
) -> None:
    """Offline verification names every inconsistency, even in a bundle signed by the installation: a changed state,
    number or headline, a missing copy, a report without an author, a copy of a later version, or an additional
    field."""
    gone = handed_out(1, holder)
    handed_out(1, holder)
    gateway.patch(f"{place}/exports/{gone}", json={"destroyed": "listed"}, headers=holder)
    request_id = forget("p0")["id"]
    work()
    whole = bundle_of(request_id)
    place_of_line = whole["lines"].index(copies_in(whole))
    jwks = signing.public_keys(installation.keys)

    def refusal(change: Callable[[dict[str, Any], dict[str, Any]], object]) -> str:
        statement = copy.deepcopy(whole)
        change(statement, statement["lines"][place_of_line]["evidence"])
        signed = signing.sign(installation.keys, json.dumps(statement).encode(), kind=bundle.TYPE)
        with pytest.raises(CertificateInvalid) as refused:
            bundle.verify(signed, jwks)
        return str(refused.value).partition(":")[0]

    assert refusal(lambda _, found: found["copies"][0].update(state="destroyed")) == "copies_listed"
    assert refusal(lambda _, found: found["copies"].pop()) == "copies_listed"
    assert refusal(lambda _, found: found["counts"].update(out=0, destroyed=0)) == "copies_counted"
    assert refusal(lambda _, found: found["counts"].update(out=2)) == "copies_listed"
    assert refusal(lambda _, found: found["copies"][0].update(version=2)) == "copy_carried"
    assert refusal(lambda _, found: found["copies"][1].update(stated_by=None)) == "copy_stated"
    assert refusal(lambda _, found: found["copies"][1].update(destroyed=None)) == "state_of_copy"
    assert refusal(lambda _, found: found["copies"][0].update(kind="fax")) == "bundle_complete"
    assert refusal(lambda _, found: found["copies"][0].update(note="fine")) == "bundle_complete"
    assert refusal(lambda _, found: found.update(first_without="2")) == "bundle_complete"
    assert refusal(lambda one, _: one["lines"][place_of_line].update(grade="acknowledged")) == "grade_of_evidence"
    assert refusal(lambda one, _: one["lines"][place_of_line].update(limits=[])) == "limits_of_evidence"

    def all_is_well(statement: dict[str, Any], _: object) -> None:
        statement["headline"]["person"]["en"] = "Every system has forgotten you."

    assert refusal(all_is_well) == "headline_recomputed"


def test_the_worst_copies_are_listed_first(
    gateway: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    holder: Header,
    handed_out: Callable[..., str],
    forget: New,
    work: Callable[[], int],
    bundle_of: Callable[[str], dict[str, Any]],
) -> None:
    """If a bundle has no room to list all copies, older copies that are still outstanding take precedence over newer
    copies that were destroyed."""
    out = [handed_out(1, holder) for _ in range(2)]
    for _ in range(2):
        path = f"{place}/exports/{handed_out(1, holder)}"
        assert gateway.patch(path, json={"destroyed": "listed"}, headers=holder).status_code == 200
    request_id = forget("p0")["id"]
    work()
    monkeypatch.setattr(evidence, "MAX_LISTED", 3)
    monkeypatch.setattr("app.features.lineage.systems.MAX_LISTED", 3)
    listed = copies_in(bundle_of(request_id))["evidence"]
    assert listed["counts"] == {"out": 2, "reached": 0, "destroyed": 2}
    assert [one["state"] for one in listed["copies"]] == ["out", "out", "destroyed"]
    assert {one["id"] for one in listed["copies"][:2]} == set(out)
