"""The SDK against a live gateway and a live worker: each resource works as documented."""

import datetime
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from safetensors.numpy import load

from app.config import Settings
from lethe import AsyncClient, Client
from lethe.client import resources
from lethe.client.methods import Resource
from lethe.contract.models import BatchingIn, ModelOut, TargetIn
from lethe.errors import CertificateInvalid, Conflict, Gone, Malformed, NotFound, WaitTimedOut
from lethe.reading import to_json
from tests.conftest import ADULT, npz
from tests.faults import processes
from tests.faults.processes import wait_until


@pytest.fixture
def strangers(tmp_path: Path) -> Path:
    """Return a file of people on whose data no model is trained."""
    file = tmp_path / "strangers.npz"
    file.write_bytes(npz(seed=1, first=1000))
    return file


@pytest.fixture
def model(client: Client, people: Path, worker: None) -> ModelOut:
    """Return a live model trained on made-up people."""
    dataset = client.datasets.upload(people, classes=["0", "1"])
    return client.models.wait(client.models.create(name="m", dataset_id=dataset.id, l2=0.05).id, timeout_seconds=240)


def test_datasets_are_uploaded_listed_and_counted(client: Client, people: Path, tmp_path: Path) -> None:
    """Rows can be uploaded from a file or a data frame, with a schema or a schema file. Datasets can be listed, read
    and counted, and serialise to the same JSON from which they were parsed."""
    made = client.datasets.upload(people, classes=["0", "1"], name="made up")
    assert (made.name, made.num_slots, made.num_classes, made.schema_) == ("made up", 60, 2, None)
    assert made.created_at.tzinfo is not None
    rows = tmp_path / "rows.csv"
    rows.write_text("".join((ADULT / "train.csv").read_text().splitlines(keepends=True)[:100]))
    adult = client.datasets.upload(rows, schema=ADULT / "schema.json")
    assert (adult.name, adult.num_records, adult.classes) == ("rows", 99, ["<=50K", ">50K"])
    assert adult.schema_ is not None
    again = client.datasets.upload(rows, schema=adult.schema_)
    assert again.num_features == adult.num_features
    frame = client.datasets.upload(pd.read_csv(rows), schema=adult.schema_)
    assert (frame.name, frame.num_records, frame.num_features) == ("table", 99, adult.num_features)
    assert [one.id for one in client.datasets.list()] == [frame.id, again.id, adult.id, made.id]
    found = client.datasets.get(made.id)
    assert to_json(found) | {"num_suppressed": 0, "warnings": []} == to_json(made)
    assert to_json([found]) == [client._http.calls.httpx.get(f"/v1/datasets/{made.id}").json()]
    assert client.datasets.subject(made.id, "p3").num_records == 1
    with pytest.raises(NotFound):
        client.datasets.subject(made.id, "nobody")
    with pytest.raises(Malformed) as refused:
        client.datasets.upload(rows)
    assert refused.value.code == "schema_invalid"


def test_models_are_created_used_and_retrained(client: Client, model: ModelOut, strangers: Path) -> None:
    """A model can be created with defaults or with every setting given, awaited, used and retrained. Retraining
    destroys its old weights."""
    assert (model.status, model.live_version) == ("live", 1)
    assert (model.target.epsilon, model.mechanism.l2) == (1.0, 0.05)
    assert model.guarantee is not None
    assert {one.notion for one in model.guarantee} == {"unlearning", "release"}
    others = client.datasets.upload(strangers, classes=["0", "1"])
    asked = client.models.create(
        name="all said",
        dataset_id=model.dataset_id,
        target=TargetIn(epsilon=2.0, delta=1e-4),
        l2=0.06,
        noise_scale=0.03,
        step_size=1.0,
        radius=3.0,
        learn_steps=700,
        evaluation_dataset_id=others.id,
        batching=BatchingIn(max_requests=5, max_wait_seconds=60),
        audit={"lanes": 8, "chains": 2},
    )
    assert (asked.audit.lanes, asked.audit.chains, asked.audit.last) == (8, 2, None)
    assert (asked.target.epsilon, asked.target.delta) == (2.0, 1e-4)
    assert (asked.batching.max_requests, asked.batching.max_wait_seconds) == (5, 60)
    frozen = asked.mechanism
    assert (frozen.l2, frozen.noise_scale, frozen.step_size, frozen.radius) == (0.06, 0.03, 1.0, 3.0)
    assert frozen.learn_steps == 700
    assert asked.evaluation_dataset_id == others.id
    assert client.models.wait(asked.id, timeout_seconds=240).metrics["accuracy"] > 0
    assert [one.id for one in client.models.list()] == [asked.id, model.id]

    said = client.models.predictions(model.id, records=[[1.0, 0.0, 0.0], (0.0, 1.0, 0.0)])
    assert (said.version, len(said.predictions)) == (1, 2)
    assert sum(said.predictions[0].probabilities.values()) == pytest.approx(1.0)
    assert load(client.models.weights(model.id, 1))["parameters"].shape == (1, 4)

    client.models.relearn(model.id)
    wait_for_version(client, model.id, 2)
    assert [(one.number, one.status) for one in client.models.versions(model.id)] == [(2, "live"), (1, "destroyed")]
    assert client.models.version(model.id, 1).destroyed_at is not None
    with pytest.raises(Gone) as refused:
        client.models.weights(model.id, 1)
    assert refused.value.code == "weights_destroyed"
    kinds = [run.kind for run in client.runs.list(model_id=model.id)]
    assert kinds == ["relearn", "learn"]
    [_, newest, *_] = client.runs.list()
    assert client.runs.get(newest.id) == newest


def test_a_canary_test_is_requested_and_awaited(client: Client, people: Path, settings: Settings) -> None:
    """A canary test of a live model can be requested with or without waiting for it. A caller who waits receives
    progress reports and finally the finished run."""
    model = client.models.create(
        name="m",
        dataset_id=client.datasets.upload(people, classes=["0", "1"]).id,
        l2=0.05,
        audit={"lanes": 64, "chains": 2},
    )
    assert client.models.wait_for_audit(model.id) is None
    with processes.worker(settings) as first:
        client.models.wait(model.id, timeout_seconds=240)
        assert first.stop() == 0
    asked = client.models.audit(model.id, idempotency_key="a")
    assert asked.audit.asked_at
    with pytest.raises(WaitTimedOut):
        client.models.wait_for_audit(model.id, timeout_seconds=0)
    seen: list[tuple[str, int, int | None]] = []
    with processes.worker(settings, name="second"):
        run = client.models.wait_for_audit(model.id, timeout_seconds=240, progress=lambda *state: seen.append(state))
    assert run
    assert run.audit
    assert (run.kind, run.status, run.audit.lanes, run.audit.findings) == ("audit", "published", 2 * 64, [])
    assert run.audit.guesses.members == run.audit.lanes // 2
    assert 0 <= run.audit.epsilon_lower_bound <= run.audit.epsilon
    assert {status for status, _, _ in seen} <= {"waiting", "running"}
    again = client.models.audit(model.id, idempotency_key="a")
    assert again == asked
    audit = client.models.get(model.id).audit
    assert (audit.asked_at, audit.last, audit.last_run_id) == (None, run.audit, run.id)


def wait_for_version(client: Client, model_id: str, number: int) -> None:
    wait_until(lambda: client.models.wait(model_id, timeout_seconds=240).live_version == number)
    wait_until(lambda: [one.status for one in client.models.versions(model_id)][1] == "destroyed")


def test_a_waiting_caller_gets_progress(client: Client, people: Path, worker: None) -> None:
    """A waiting caller is notified of the status and the number of steps until the model is live."""
    dataset = client.datasets.upload(people, classes=["0", "1"])
    created = client.models.create(name="m", dataset_id=dataset.id, learn_steps=30_000)
    seen: list[tuple[str, int, int | None]] = []
    client.models.wait(created.id, timeout_seconds=120, progress=lambda *state: seen.append(state))
    assert seen[0][0] == "learning"
    assert seen[-1][0] == "live"
    assert any(total == 30_000 for _, _, total in seen)
    done = [steps for _, steps, total in seen if total]
    assert done == sorted(done)


def test_a_request_is_created_and_certified(client: Client, model: ModelOut) -> None:
    """A deletion request can be created, awaited and looked up again, and both the gateway and the client verify its
    certificate."""
    submitted_at = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    made = client.deletion_requests.create(
        subject_id="p3",
        regulation="ccpa",
        dataset_ids=[model.dataset_id],
        ground="objection",
        submitted_at=submitted_at,
        external_id="ticket 7",
        metadata={"channel": "mail"},
        strict=True,
    )
    assert (made.regulation, made.ground, made.external_id) == ("ccpa", "objection", "ticket 7")
    assert (made.metadata, made.submitted_at) == ({"channel": "mail"}, submitted_at)
    seen: list[tuple[str, int, int | None]] = []
    done = client.deletion_requests.wait(made.id, timeout_seconds=240, progress=lambda *state: seen.append(state))
    assert (done.status, done.outcome) == ("completed", "forgotten")
    assert done == client.deletion_requests.get(made.id)
    [owed] = done.models
    assert (owed.model_id, owed.status, owed.version) == (model.id, "completed", 2)
    assert owed.run_id is not None
    steps = client.runs.get(owed.run_id).steps_total
    assert seen[-1] == ("completed", steps, steps)
    statuses = [event.status for event in client.deletion_requests.events(made.id)]
    assert sorted(set(statuses), key=statuses.index) == ["received", "accepted", "running", "completed"]
    with pytest.raises(Conflict):
        client.deletion_requests.cancel(made.id)

    [certificate] = client.deletion_requests.certificates(made.id)
    assert certificate == client.certificates.get(certificate.id)
    by_gateway = client.certificates.verify(certificate)
    here = client.certificates.verify(certificate, jwks=client.certificates.public_keys())
    assert here == by_gateway
    assert here == client.certificates.verify(certificate.jws, jwks=client.certificates.public_keys())
    assert here.statement["request"]["id"] == made.id
    with pytest.raises(CertificateInvalid):
        client.certificates.verify(certificate.jws[:-8] + "AAAAAAAA")
    for embellished in (
        certificate.model_copy(
            update={"statement": certificate.statement | {"issued_at": "2020-01-01T00:00:00+00:00"}}
        ),
        certificate.model_copy(update={"request_id": "dr_another"}),
    ):
        for jwks in (None, client.certificates.public_keys()):
            with pytest.raises(CertificateInvalid):
                client.certificates.verify(embellished, jwks=jwks)

    account = client.accounting.deletion_request(made.id)
    assert [(one.certificate_id, one.version) for one in account.models] == [(certificate.id, 2)]
    assert account.models[0].signed == here.guarantees


def test_accounts_plans_and_theorems_are_returned(client: Client, model: ModelOut) -> None:
    """The client returns a model's privacy account, plan and history, and the theorems on which they are based."""
    account = client.accounting.model(model.id)
    assert (account.version, account.releases) == (1, 1)
    other = client.accounting.model(model.id, adaptive_epsilon=50.0, adaptive_delta=1e-3)
    assert (other.releases_left.epsilon, other.releases_left.delta) == (50.0, 1e-3)
    preview = client.accounting.preview(model_id=model.id)
    assert preview.steps == account.next_request.steps
    assert client.accounting.preview(model_id=model.id, num_records=2, epsilon=0.5, delta=1e-6).steps > preview.steps
    options = client.accounting.preview(model_id=model.id, expected_requests=3).options
    assert {one.kind for one in options} >= {"relearn"}
    [entry] = client.accounting.ledger(model.id)
    assert (entry.sequence, len(entry.hash)) == (1, 64)
    verdict = client.accounting.verify_ledger(model.id)
    assert (verdict.valid, verdict.entries, verdict.head) == (True, 1, entry.hash)
    whole, head = client.ledger.verify(), client.ledger.head()
    assert (whole.valid, whole.models, whole.entries, whole.signed, whole.head) == (True, 1, 1, 1, head.hash)
    assert head.jws is not None
    assert head.jws.encode() in b"".join(client.ledger.export())
    [learned] = client.accounting.trajectory(model.id, points=10)
    assert 2 <= len(learned.points) <= 10
    assert learned.points[-1].step == learned.steps == model.mechanism.learn_steps
    tried = client.accounting.preview(model_id=model.id, num_records=4, steps=preview.steps, batch=2)
    assert (tried.steps, tried.schedule.runs) == (preview.steps, 2)
    budget = client.accounting.dataset(model.dataset_id, adaptive_epsilon=50.0, adaptive_delta=1e-3)
    assert budget.used is not None
    assert budget.models[0].releases_left == other.releases_left
    bounds = client.accounting.bounds()
    assert "gdp_eps" in {bound.name for bound in bounds}
    assert client.accounting.evaluate("gdp_eps", params={"mu": 0.3, "delta": 1e-5})["eps"] > 0
    with pytest.raises(Malformed) as refused:
        client.accounting.evaluate("gdp_eps", params={"mu": -1, "delta": 1e-5})
    assert refused.value.errors[0].path == "params"


@pytest.mark.slow
def test_importing_the_sdk_is_cheap() -> None:
    """Importing the SDK imports neither the service nor numpy, which is needed only to verify certificates."""
    heavy = {"numpy", "scipy", "sqlalchemy", "fastapi", "celery", "torch", "app"}
    script = f"import sys, lethe.client; print(*({heavy!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_every_resource_is_an_attribute() -> None:
    """Both clients have an attribute for every resource of the SDK, whether or not a feature extends it."""
    made = {
        kind
        for kind in vars(resources).values()
        if isinstance(kind, type) and issubclass(kind, Resource) and kind.__module__ == resources.__name__
    }
    for client in (Client("http://127.0.0.1:1", "k"), AsyncClient("http://127.0.0.1:1", "k")):
        served = {kind for found in vars(client).values() for kind in type(found).__mro__}
        assert made
        assert made <= served
