"""The command line against a live gateway and a live worker; `certificate verify` without either."""

import base64
import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import OKPKey
from safetensors.numpy import load

from tests.command_line import Lethe, refused
from tests.conftest import ADULT
from tests.faults.processes import wait_until


@pytest.fixture(scope="module")
def kept() -> list[tuple[bytes, bytes]]:
    return []


@pytest.fixture
def saved(kept: list[tuple[bytes, bytes]], request: pytest.FixtureRequest, lethe: Lethe, tmp_path: Path) -> Path:
    """Return a certificate file with its keys next to it. All tests share the certificate of one completed request."""
    file = tmp_path / "saved.json"
    if not kept:
        certified: Path = request.getfixturevalue("certified")
        kept.append((certified.read_bytes(), Path(f"{certified}.jwks.json").read_bytes()))
    for path, content in zip((file, Path(f"{file}.jwks.json")), kept[0], strict=True):
        path.write_bytes(content)
    return file


def test_datasets_are_created_and_listed(live: Lethe, people: Path, tmp_path: Path) -> None:
    """A dataset with a given name is created from a file of arrays, or from a CSV file and its public schema. Datasets
    can be listed and shown."""
    created = live("dataset", "create", people, "--classes", "0,1").json
    assert (created["name"], created["num_slots"], created["num_classes"]) == ("people", 60, 2)
    assert created == live("dataset", "show", created["id"]).json | {"num_suppressed": 0, "warnings": []}
    listed = live("dataset", "list")
    assert listed.out.split() == [created["id"], "60", "of", "60", "rows", "people"]
    rows = (ADULT / "train.csv").read_text().splitlines()[:200]
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(rows) + "\n")
    adult = live("dataset", "create", file, "--name", "adult", "--schema", ADULT / "schema.json").json
    assert (adult["name"], adult["num_slots"], adult["classes"]) == ("adult", 199, ["<=50K", ">50K"])
    refused(live("dataset", "create", file), "schema_invalid")


def test_a_dataset_with_a_target_is_created(live: Lethe, people: Path) -> None:
    """Vectors with a numeric y are uploaded together with the range of y, and models of the dataset are regressions."""
    created = live("dataset", "create", people, "--target", "-1,2").json
    assert created["target"] == {"min": -1, "max": 2, "outside": "error"}
    model = live("model", "create", created["id"], "--l2", "0.05", "--loss-width", "0.5", "--no-wait").json
    assert (model["objective"], model["mechanism"]["loss_width"]) == ("huber_regression", 0.5)
    counts = live("dataset", "create", people, "--target", "0,9", "--counts").json
    assert counts["target"] == {"min": 0, "max": 9, "outside": "error", "counts": True}
    asked = ("model", "create", counts["id"], "--l2", "0.05", "--no-wait")
    assert live(*asked).json["objective"] == "poisson_regression"
    assert "--target 0,MAX" in live("dataset", "create", people, "--counts").err
    wrong = live("dataset", "create", people, "--target", "low")
    assert wrong.code == 2
    assert "--target 0,100" in wrong.err


def test_a_model_is_created_retrained_and_saved(live: Lethe, people: Path, tmp_path: Path) -> None:
    """The command that creates a model waits until the model is live. The model can be listed, shown, waited for and
    retrained, and its weights can be saved alone or in a file that can make predictions."""
    dataset = live("dataset", "create", people, "--classes", "0,1").json
    asked = ("--name", "mine", "--epsilon", "2", "--delta", "1e-4", "--l2", "0.05", "--noise-scale", "0.02")
    created = live("model", "create", dataset["id"], *asked).json
    assert (created["name"], created["status"], created["live_version"]) == ("mine", "live", 1)
    assert created["target"] == {"epsilon": 2.0, "delta": 1e-4}
    assert live("model", "show", created["id"]).json["id"] == created["id"]
    assert live("model", "list").out.split() == [created["id"], "live", "version", "1", "mine"]
    assert live("run", "list", "--model", created["id"]).out.split()[1:3] == ["learn", "published"]
    assert live("model", "relearn", created["id"]).json["id"] == created["id"]
    wait_until(lambda: live("model", "show", created["id"]).json["live_version"] == 2)
    assert live("model", "wait", created["id"]).json["status"] == "live"
    assert live("model", "weights", created["id"], "2", tmp_path / "w").code == 0
    assert load((tmp_path / "w").read_bytes())["parameters"].shape == (1, 4)
    written = live("model", "export-onnx", created["id"], tmp_path / "m.onnx").json
    assert written["sha256"] == hashlib.sha256((tmp_path / "m.onnx").read_bytes()).hexdigest()
    assert (written["version"], written["inputs"], written["output"]) == (2, ["x"], "probabilities")
    refused(live("model", "weights", created["id"], "1", tmp_path / "old"), "weights_destroyed")


def test_a_canary_test_is_run(live: Lethe, people: Path) -> None:
    """The command for a canary test waits for the test and shows its run. Runs are listed with their certified
    and proved bounds."""
    dataset = live("dataset", "create", people, "--classes", "0,1").json
    audited, unaudited = (
        live("model", "create", dataset["id"], "--l2", "0.05", "--audit-lanes", lanes, "--audit-chains", "2").json
        for lanes in ("8", "0")
    )
    assert [model["audit"]["lanes"] for model in (audited, unaudited)] == [8, 0]
    run = live("model", "audit", audited["id"]).json
    assert (run["kind"], run["status"], run["audit"]["lanes"]) == ("audit", "published", 16)
    assert live("run", "show", run["id"]).json == run
    assert live("model", "audit", audited["id"], "--no-wait").json["audit"]["asked_at"]
    refused(live("model", "audit", unaudited["id"]), "precondition_failed")
    wait_until(lambda: live("model", "show", audited["id"]).json["audit"]["asked_at"] is None)
    listed = live("run", "list", "--model", audited["id"]).out.splitlines()
    assert [line.split()[1] for line in listed] == ["audit", "audit", "learn"]
    assert re.search(
        r" epsilon <= \S+ certified, >= \S+ proved by 16 canaries and controls"
        r" \(wrong once in 3,000,000 runs at most\)$",
        listed[0],
    )
    assert live("run", "list", "--model", unaudited["id"]).out.rstrip().endswith("no canary test")


def test_a_rehearsal_is_run(live: Lethe, people: Path) -> None:
    """The command for a rehearsal waits for it and shows its report. Rehearsals can be listed."""
    dataset = live("dataset", "create", people, "--classes", "0,1").json
    model = live("model", "create", dataset["id"], "--l2", "0.05", "--noise-scale", "0.02").json
    made = live("model", "rehearse", model["id"], "--people", "10").json
    assert (made["status"], made["report"]["before"]["sets"]["forget"]["rows"]) == ("completed", 10)
    assert live("model", "rehearsal", model["id"], made["id"]).json == made
    assert live("model", "rehearsals", model["id"]).out.split()[:4] == [made["id"], "completed", "10", "people"]
    refused(live("model", "rehearse", model["id"], "--people", "10"), "rehearsal_done")


def test_a_request_is_submitted_and_completes(live: Lethe, people: Path) -> None:
    """The command that submits a request waits until the request is completed. The request can then be shown and waited
    for, but no longer cancelled."""
    dataset = live("dataset", "create", people, "--classes", "0,1").json
    model = live("model", "create", dataset["id"], "--l2", "0.05").json
    request = live("request", "submit", "p3", "--regulation", "ccpa").json
    assert (request["status"], request["regulation"]) == ("completed", "ccpa")
    assert [(owed["model_id"], owed["version"]) for owed in request["models"]] == [(model["id"], 2)]
    assert live("request", "show", request["id"]).json == request
    assert live("request", "wait", request["id"]).json == request
    refused(live("request", "cancel", request["id"]), "transition_forbidden")


def test_a_subject_is_read_from_standard_input(live: Lethe, people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `-` as the subject, the id is read from standard input, so that it does not appear in the process list."""
    live("dataset", "create", people, "--classes", "0,1")
    read, write = os.pipe()
    os.write(write, b"p3\n")
    os.close(write)
    with os.fdopen(read) as given:
        monkeypatch.setattr(sys, "stdin", given)
        assert live("request", "submit", "-").json["outcome"] == "forgotten"


@pytest.mark.service
def test_certificate_is_valid_offline(saved: Path, lethe: Lethe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A saved certificate verifies with the keys saved next to it, without a gateway or a data folder."""
    for name in ("LETHE_URL", "LETHE_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    verified = lethe("certificate", "verify", saved, "--jwks", f"{saved}.jwks.json")
    assert (verified.code, verified.err) == (0, "")
    assert verified.out.startswith("valid  crt_")
    assert "unlearning  epsilon <= " in verified.out
    assert re.search(r" at delta = \S+, best attacker right \S+ % of the time$", verified.out, re.M)
    assert re.search(
        r"^       canary test epsilon <= \S+ certified, >= \S+ proved by 256 canaries and controls \(wr",
        verified.out,
        re.M,
    )
    [one] = json.loads(saved.read_text())["certificates"]
    for content in (one["jws"], one["jws"] + "\n", json.dumps(one)):
        saved.write_text(content)
        assert lethe("certificate", "verify", saved, "--jwks", f"{saved}.jwks.json").out == verified.out


@pytest.mark.service
def test_verifiers_can_set_limits(saved: Path, lethe: Lethe) -> None:
    """If a certificate guarantees less than the given limit, verification fails with a one-line error and status 1."""
    verify = ("certificate", "verify", saved, "--jwks", f"{saved}.jwks.json")
    assert lethe(*verify, "--max-epsilon", "8", "--max-delta", "0.1").code == 0
    refused(lethe(*verify, "--max-epsilon", "0.001"), "certificate_beyond_limits")
    refused(lethe(*verify, "--max-delta", "1e-12"), "certificate_beyond_limits")


@pytest.mark.service
def test_invalid_certificates_are_refused_in_one_line(saved: Path, lethe: Lethe, tmp_path: Path) -> None:
    """A tampered certificate, another issuer's key and a file that is not a certificate are each refused with a
    one-line error."""
    jwks = Path(f"{saved}.jwks.json")
    document = json.loads(saved.read_text())
    [one] = document["certificates"]
    header, payload, signature = one["jws"].split(".")
    statement = json.loads(base64.urlsafe_b64decode(payload + "=="))
    statement["target"]["epsilon"] /= 2
    forged = base64.urlsafe_b64encode(json.dumps(statement).encode()).decode().rstrip("=")
    embellished = one["statement"] | {"issued_at": "2020-01-01T00:00:00+00:00"}
    bad = [
        f"{header}.{forged}.{signature}".encode(),
        f"{header}.{payload}.{'A' * len(signature)}".encode(),
        f"{header}.{payload}".encode(),
        json.dumps({"certificates": [one | {"statement": embellished}]}).encode(),
        json.dumps({"certificates": []}).encode(),
        json.dumps({"certificates": [1]}).encode(),
        json.dumps({"certificates": 1}).encode(),
        json.dumps({"jws": 7}).encode(),
        b"{",
        b'{"a":' * 100_000,
        b"",
        b"garbage",
        b"\xff\xfe\x00\x01" * 100,
    ]
    for content in bad:
        file = tmp_path / "bad"
        file.write_bytes(content)
        refused(lethe("certificate", "verify", file, "--jwks", jwks), "certificate_invalid")


@pytest.mark.service
def test_invalid_keys_are_refused_in_one_line(saved: Path, lethe: Lethe, tmp_path: Path) -> None:
    """Another issuer's key set, and a file that is not a key set, are each refused with a one-line error."""
    stranger = OKPKey.generate_key("Ed25519", private=False, auto_kid=True).as_dict(private=False)
    own = json.loads(Path(f"{saved}.jwks.json").read_text())["keys"][0]
    impostor = stranger | {"kid": own["kid"]}
    sets: list[Any] = [{"keys": [stranger]}, {"keys": [impostor]}, {"keys": []}, {"keys": 3}, {}, [], 3, None]
    contents = [json.dumps(one).encode() for one in sets] + [b"", b"garbage", b"\xff\xfe", b"[" * 100_000]
    for content in contents:
        file = tmp_path / "keys"
        file.write_bytes(content)
        refused(lethe("certificate", "verify", saved, "--jwks", file), "certificate_invalid")


def test_refusals_of_the_gateway_are_reported(live: Lethe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the gateway refuses a call, the command exits with code 1 and prints the problem's code in one line."""
    refused(live("dataset", "show", "ds_none"), "dataset_unknown")
    refused(live("model", "show", "mdl_none"), "model_unknown")
    refused(live("model", "create", "ds_none"), "dataset_unknown")
    refused(live("request", "show", "dr_none"), "request_unknown")
    refused(live("request", "certificate", "dr_none", tmp_path / "c"), "request_unknown")
    assert not (tmp_path / "c").exists()
    (tmp_path / "x.txt").write_text("x")
    refused(live("dataset", "create", tmp_path / "x.txt"), "input_invalid")
    (tmp_path / "x.npz").write_text("x")
    refused(live("dataset", "create", tmp_path / "x.npz"), "schema_invalid")
    monkeypatch.setenv("LETHE_API_KEY", "lethe_wrong")
    refused(live("dataset", "list"), "unauthenticated")


@pytest.mark.slow
def test_an_unreachable_gateway_is_reported(lethe: Lethe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing key, an unreachable gateway and the address of another service are each reported in one line."""
    monkeypatch.setenv("LETHE_DATA_DIR", str(tmp_path / "none"))
    refused(lethe("dataset", "list"), "unauthenticated")
    for url in ("http://127.0.0.1:1", "ftp://127.0.0.1", "nonsense", "http://[", "http://127.0.0.1:99999999"):
        refused(lethe("dataset", "list", "--key", "k", "--url", url), "unreachable")


@pytest.mark.parametrize("port", ["http", "-1", "65536"])
def test_an_invalid_port_is_refused(lethe: Lethe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, port: str) -> None:
    """An invalid LETHE_PORT is refused with a one-line error that names it, and no file is created."""
    monkeypatch.setenv("LETHE_PORT", port)
    ended = lethe("dataset", "list")
    refused(ended, "settings_invalid")
    assert "LETHE_PORT " in ended.err
    assert not list(tmp_path.iterdir())


def test_models_and_datasets_are_retired(live: Lethe, people: Path) -> None:
    """Retiring a model or a dataset asks for confirmation unless --yes is given. A refused retirement or cancellation
    is reported in one line."""
    dataset = live("dataset", "create", people, "--classes", "0,1").json
    model = live("model", "create", dataset["id"], "--l2", "0.05").json
    assert live("model", "retire", model["id"]).code == 1  # the confirmation gets no answer
    refused(live("dataset", "retire", dataset["id"], "--yes"), "dataset_in_use")
    run = live("run", "list", "--model", model["id"]).out.split()[0]
    refused(live("run", "cancel", run), "run_not_cancellable")
    assert live("model", "retire", model["id"], "--yes").json["status"] == "retired"
    assert live("dataset", "retire", dataset["id"], "--yes").json["destroyed_at"]
    ended = live("model", "wait", model["id"])
    assert (ended.code, '"status": "retired"' in ended.out) == (1, True)
