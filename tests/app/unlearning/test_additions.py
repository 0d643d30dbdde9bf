"""Adding rows to a dataset ends every chain on it: no run unlearns across an addition, and the added people can be
found."""

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.accounting import certificates, service as accounting
from app.config import Settings
from app.db.tables import Addition, Certificate, Dataset, Model, Run
from app.errors import RunDiffersFromPlan
from app.installations import Installation
from app.operations import periodic_jobs
from app.rows.row_store import RowStore
from app.unlearning import queue, service as unlearning
from lethe import verification
from lethe.proof.mechanism import Mechanism
from tests.conftest import people
from tests.lethe.proof import lanes
from tests.stored import flipped, rows_of, slots_of
from worker import runner

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


@pytest.fixture
def add(gateway: TestClient) -> Callable[..., str]:
    """Return a function that adds people to a dataset and returns the id of the addition."""

    def send(dataset_id: str, *subjects: str) -> str:
        files = {"file": ("p.npz", people(*subjects))}
        answer = gateway.post(f"/v1/datasets/{dataset_id}/records", files=files)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    return send


@pytest.fixture
def live(new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]) -> dict[str, Any]:
    """Return a model that has unlearned two of twenty people."""
    model = new_model(new_dataset(rows=20)["id"], noise_scale=0.05)
    assert work() == 1
    for subject in ("p3", "p4"):
        forget(subject)
    assert work() == 1
    return model


def _claim(installation: Installation) -> queue.ClaimedRun:
    with installation.database.writing() as session:
        claimed = queue.claim(session, worker="w", lease_seconds=0.0, max_requests=100)
    assert claimed
    return claimed


def test_a_claim_puts_additions_before_erasures(
    installation: Installation, live: dict[str, Any], add: Callable[..., str], forget: Make
) -> None:
    """Added batches get the next revision, and erasures get the revision after that. The run trains from scratch at the
    last revision and covers the slots of both added and erased rows."""
    addition = add(live["dataset_id"], "new1", "new2")
    slots = slots_of(installation, live["dataset_id"], "new1", "new2")
    forget("new1")
    claimed = _claim(installation)
    assert (claimed.kind, claimed.erases, claimed.parent_version_id) == ("relearn", True, None)
    [taken] = claimed.additions
    assert (taken.addition_id, taken.slots, claimed.slots_to_null) == (addition, tuple(sorted(slots)), (slots[0],))
    with installation.database.reading() as session:
        assert session.get_one(Addition, addition).revision == 2
        assert session.get_one(Run, claimed.run_id).revision == 3
        assert session.get_one(Dataset, live["dataset_id"]).revision == 3


def test_a_lost_claim_is_repeated_from_scratch(
    installation: Installation, live: dict[str, Any], add: Callable[..., str], forget: Make
) -> None:
    """If a worker dies after claiming a batch, even several times in a row, the next run trains from scratch and writes
    the batch again."""
    add(live["dataset_id"], "new1")
    slots = slots_of(installation, live["dataset_id"], "new1")
    for _ in range(3):
        claimed = _claim(installation)
        assert (claimed.kind, len(claimed.additions), claimed.additions[0].slots) == ("relearn", 1, tuple(slots))
    assert runner.run_next(installation, worker="w")
    forget("p7")
    claimed = _claim(installation)
    assert (claimed.kind, claimed.additions) == ("unlearn", ())


def test_no_chain_continues_past_an_addition(
    installation: Installation, live: dict[str, Any], forget: Make, add: Callable[..., str]
) -> None:
    """A run that would continue a chain from before an addition is not published, however the run was planned."""
    forget("p7")
    claimed = _claim(installation)
    assert claimed.kind == "unlearn"
    assert claimed.mechanism
    addition = add(live["dataset_id"], "new1")
    with installation.database.writing() as session:  # no claim would do this while a run is in progress
        session.get_one(Addition, addition).revision = session.get_one(Dataset, live["dataset_id"]).revision

    def publish() -> None:
        assert claimed.mechanism
        with installation.database.writing() as session:
            unlearning.publish(
                session,
                installation.keys,
                run_id=claimed.run_id,
                first_step_ran=claimed.first_step,
                steps_ran=claimed.steps,
                mechanism_ran=claimed.mechanism,
                weights_sha256="0" * 64,
                metrics={},
                observed=claimed.audit and lanes.observed(claimed.audit, claimed.mechanism),
            )

    with pytest.raises(RunDiffersFromPlan, match="rows were added"):
        publish()
    with installation.database.writing() as session:
        assert session.get_one(Model, live["id"]).live_version == 2
        session.get_one(Addition, addition).revision = None
    publish()


def test_added_rows_count_as_edits_until_relearning(
    installation: Installation, live: dict[str, Any], add: Callable[..., str], work: Callable[[], int]
) -> None:
    """Added rows count as edits of a model's data from the moment they may be written until the model has been
    retrained."""

    def standing() -> accounting.LiveAccount:
        with installation.database.reading() as session:
            return accounting.standing(session, session.get_one(Model, live["id"]))

    before = standing().chain
    add(live["dataset_id"], "new1", "new2")
    assert standing().chain == before
    _claim(installation)
    assert standing().chain.influence == pytest.approx(before.influence + 2 * before.presence)
    assert work() == 1
    assert standing().chain.influence == 0


def test_an_added_persons_certificate_counts_steps_since_the_addition(
    installation: Installation,
    live: dict[str, Any],
    add: Callable[..., str],
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """An added person's certificate counts all versions published so far, but only the steps taken since the model
    started training on the added rows. The certificate verifies."""
    add(live["dataset_id"], "new1")
    assert work() == 1
    request = forget("new1")
    assert work() == 1
    [owed] = get(f"/deletion-requests/{request['id']}")["models"]
    with installation.database.reading() as session:
        jws = session.get_one(Certificate, owed["certificate_id"]).jws
        learn_steps = Mechanism.from_json(session.get_one(Model, live["id"]).mechanism).learn_steps
    evidence = verification.verify(jws, certificates.public_keys(installation.keys)).statement["evidence"]
    assert evidence["steps_present"] == learn_steps
    [exposure] = evidence["exposures"].values()
    assert sum(count for _, count in exposure["releases"]) == 3  # two are from before: never too few


def test_added_rows_end_the_waiting_period(
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    add: Callable[..., str],
    work: Callable[[], int],
) -> None:
    """Added rows end the waiting period of a model that batches its requests."""
    dataset = new_dataset(rows=20)
    other = new_model(dataset["id"], noise_scale=0.05)
    patient = new_model(dataset["id"], noise_scale=0.05, batching={"max_wait_seconds": 3600})
    assert work() == 2
    forget("p3")
    assert work() == 1
    add(dataset["id"], "new1")
    assert work() == 2
    with installation.database.reading() as session:
        assert session.get_one(Model, other["id"]).live_version == 3
        assert session.get_one(Model, patient["id"]).live_version == 2


def test_an_uncommitted_batch_is_swept(
    installation: Installation, live: dict[str, Any], add: Callable[..., str], work: Callable[[], int]
) -> None:
    """A sweep wipes batches that belong to no addition and keeps batches that are waiting."""
    addition = add(live["dataset_id"], "new1")
    with installation.rows.writing("add_orphan", 4) as writer:
        writer.write(np.ones((1, 4), dtype=np.float32), np.ones(1, dtype=np.int32))
    periodic_jobs.sweep_rows(installation)
    assert "add_orphan" in set(installation.rows.stored())
    periodic_jobs.sweep_rows(installation, unclaimed_for=datetime.timedelta(0))
    assert set(installation.rows.stored()) == {live["dataset_id"], addition}
    assert work() == 1
    assert set(installation.rows.stored()) == {live["dataset_id"]}


def test_a_destroyed_batch_is_not_damage(
    installation: Installation, live: dict[str, Any], add: Callable[..., str], monkeypatch: pytest.MonkeyPatch, get: Get
) -> None:
    """If a sweep reaches a batch that its worker has already destroyed, no damage is reported."""
    add(live["dataset_id"], "new1")
    stored = installation.rows.stored()
    delete = RowStore.delete

    def sweep_after(self: RowStore, rows_id: str, **named: Any) -> None:
        delete(self, rows_id, **named)
        with monkeypatch.context() as patch:
            patch.setattr(RowStore, "stored", lambda self: stored)
            periodic_jobs.sweep_rows(installation)

    with monkeypatch.context() as patch:
        patch.setattr(RowStore, "delete", sweep_after)
        assert runner.run_next(installation, worker="w")
    assert get(f"/datasets/{live['dataset_id']}")["damage"] is None
    assert get(f"/datasets/{live['dataset_id']}/additions")["items"][0]["status"] == "applied"


def _damage(settings: Settings, addition_id: str) -> None:
    [block] = (settings.data_dir / "blocks").glob(f"{addition_id}.*.sealed")
    block.write_bytes(flipped(block.read_bytes(), 1000))


@pytest.mark.parametrize("is_claimed", [False, True])
def test_a_damaged_batch_is_dropped_alone(
    is_claimed: bool,
    installation: Installation,
    live: dict[str, Any],
    add: Callable[..., str],
    forget: Make,
    settings: Settings,
    gateway: TestClient,
    get: Get,
    work: Callable[[], int],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A damaged addition fails the run and is dropped without being written, as the audit log and the process log
    record. The addition's people no longer count as held, and its batch is destroyed before any of them counts as
    erased. The dataset's other additions and erasures continue, even for people whose rows a lost run had claimed."""
    dataset = live["dataset_id"]
    for subject in ("p8", "p9"):
        forget(subject)
    assert work() == 1
    damaged, sound = add(dataset, "new1", "new2", "p5"), add(dataset, "new3")
    requests = [forget(subject)["id"] for subject in ("new1", "p5", "p6", "new3")]
    if is_claimed:
        run = _claim(installation)
        with installation.database.writing() as session:
            unlearning.abandon(session, session.get_one(Run, run.run_id), error_code="worker_died")
    slots = slots_of(installation, dataset, "new1", "new2")
    _damage(settings, damaged)
    assert runner.run_next(installation, worker="w")
    assert get("/runs?limit=1")["items"][0]["error_code"] == "dataset_damaged"
    assert not rows_of(installation, dataset).features[slots].any()
    assert get(f"/datasets/{dataset}")["damage"] is None
    assert installation.rows.stored().keys() == {dataset, damaged, sound}
    assert {get(f"/deletion-requests/{request}")["status"] for request in requests} == {"accepted"}

    with installation.database.writing() as session:
        session.get_one(Model, live["id"]).not_before = None
    assert work() == 1
    statuses = {row["id"]: row["status"] for row in get(f"/datasets/{dataset}/additions")["items"]}
    assert statuses == {damaged: "dropped", sound: "applied"}
    assert {get(f"/deletion-requests/{request}")["status"] for request in requests} == {"completed"}
    assert installation.rows.stored().keys() == {dataset}
    assert slots_of(installation, dataset, "new1", "new2", "new3", "p5", "p6") == []
    assert get(f"/datasets/{dataset}")["num_records"] == 20 - 6
    [entry] = [entry for entry in get("/audit-log?limit=100")["items"] if entry["action"] == "dataset.addition_dropped"]
    assert (entry["actor"], entry["object_id"]) == ("lethe", dataset)
    assert entry["detail"] == {"addition_id": damaged, "num_records": 3, "kind": "block"}
    printed = capfd.readouterr()
    assert (printed.out + printed.err).count("registry.addition_dropped") == 1
    assert get("/ledger/verdict")["valid"] is True
    assert gateway.post(f"/v1/datasets/{dataset}/recheck").json()["damage"] is None
    # The model has learned at this revision, so nothing remains to be learned because of the dropped rows.
    assert work() == 0
    forget("p7")
    assert work() == 1
    assert get("/runs?limit=1")["items"][0]["kind"] == "unlearn"


def test_a_missing_batch_halts_the_dataset(
    installation: Installation, live: dict[str, Any], add: Callable[..., str], settings: Settings, get: Get
) -> None:
    """If a batch's file is missing, for example because rows were restored from another point in time, the dataset is
    halted and the batch is not dropped."""
    addition = add(live["dataset_id"], "new1")
    [block] = (settings.data_dir / "blocks").glob(f"{addition}.*.sealed")
    block.unlink()
    assert runner.run_next(installation, worker="w")
    assert get(f"/datasets/{live['dataset_id']}")["damage"]["kind"] == "block_missing"
    assert get(f"/datasets/{live['dataset_id']}/additions")["items"][0]["status"] == "pending"
    assert slots_of(installation, live["dataset_id"], "new1")
