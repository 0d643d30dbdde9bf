"""Fairness: no request waits forever behind busier models, behind broken models, or for a batch that never fills."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.config import Settings
from app.db.tables import Model
from app.installations import Installation
from app.unlearning import queue, service as unlearning
from app.unlearning.queue import ClaimedRun
from app.vault.sealing import WeightStore
from tests.app.unlearning.held import forget_pauses
from worker import runner

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


@pytest.fixture
def status(get: Get) -> Callable[[dict[str, Any]], str]:
    return lambda request: get(f"/deletion-requests/{request['id']}")["status"]


@pytest.fixture
def claim(installation: Installation) -> Callable[[], ClaimedRun]:
    """Return a function that claims the next run regardless of pauses."""

    def take() -> ClaimedRun:
        forget_pauses(installation)
        with installation.database.writing() as session:
            claimed = queue.claim(session, worker="w", lease_seconds=30, max_requests=500)
        assert claimed is not None
        return claimed

    return take


def test_models_of_one_dataset_are_all_served(
    installation: Installation, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int], status: Any
) -> None:
    """Even if a new request arrives before every run, both models of a dataset are served and the first request
    completes."""
    dataset = new_dataset()
    new_model(dataset["id"]), new_model(dataset["id"])
    work()
    first = forget("p0")
    for person in range(1, 5):
        runner.run_next(installation, worker="w")
        forget(f"p{person}")
    assert status(first) == "completed"


def test_a_new_model_is_trained_despite_a_stream_of_requests(
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
    status: Any,
) -> None:
    """A stream of requests does not postpone the training of a new model, and the training does not postpone the
    requests."""
    dataset = new_dataset()
    new_model(dataset["id"])
    work()
    new = new_model(dataset["id"])
    first = forget("p0")
    for person in range(1, 5):
        runner.run_next(installation, worker="w")
        forget(f"p{person}")
    assert get(f"/models/{new['id']}")["status"] == "live"
    assert status(first) == "completed"


def test_datasets_are_served_by_deadline(
    installation: Installation, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int], status: Any
) -> None:
    """A dataset whose models never catch up with their requests does not delay another dataset's request that is due
    next."""
    busy, quiet = new_dataset("busy"), new_dataset("quiet")
    for dataset in (busy, busy, quiet):
        new_model(dataset["id"])
    work()
    forget("p0", dataset_ids=[busy["id"]])
    mine = forget("p50", dataset_ids=[quiet["id"]])
    for person in range(1, 8):
        runner.run_next(installation, worker="w")
        forget(f"p{person}", dataset_ids=[busy["id"]])
    assert status(mine) == "completed"


def test_a_broken_model_does_not_stop_others(
    installation: Installation, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int], status: Any
) -> None:
    """A dataset for which no run can be planned is postponed. Requests for it are still accepted, and requests for
    other datasets still complete."""
    broken, sound = new_dataset("broken"), new_dataset("sound")
    model = new_model(broken["id"])
    new_model(sound["id"])
    work()
    with installation.database.writing() as session:
        found = session.get_one(Model, model["id"])
        found.mechanism = found.mechanism | {"contraction": 0.5}
    waiting = forget("p1", dataset_ids=[broken["id"]])
    other = forget("p2", dataset_ids=[sound["id"]])
    work()
    assert waiting["estimate"] is None
    assert (status(waiting), status(other)) == ("accepted", "completed")


def test_weights_that_cannot_be_destroyed_do_not_stop_runs(
    settings: Settings, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int], status: Any
) -> None:
    """If a weights file cannot be destroyed, runs continue and the destruction is retried."""
    new_model(new_dataset()["id"])
    work()
    (settings.data_dir / "weights" / "stray.sealed").mkdir()
    request = forget("p1")
    work()
    assert status(request) == "completed"


def test_rows_from_a_backup_are_refused(
    settings: Settings, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int], status: Any
) -> None:
    """A model is not trained on rows that were restored from a backup in place of the recorded rows."""
    dataset = new_dataset()
    model = new_model(dataset["id"])
    work()
    [file] = (settings.data_dir / "blocks").glob("*.sealed")
    backup = file.read_bytes()
    forget("p1")
    work()
    [file] = (settings.data_dir / "blocks").glob("*.sealed")
    file.write_bytes(backup)
    later = forget("p40")
    work()
    assert status(later) == "accepted"
    assert get(f"/models/{model['id']}")["error_code"] == "dataset_damaged"
    assert get(f"/models/{model['id']}")["live_version"] == 2


def test_deaths_and_failures_are_counted_separately(
    installation: Installation, new_dataset: Make, new_model: Make, get: Get, claim: Callable[[], ClaimedRun]
) -> None:
    """A model whose worker died twice does not end in `failed` if a run then fails once."""
    model = new_model(new_dataset()["id"])
    for _ in range(2):
        claim()
        with installation.database.writing() as session:
            unlearning.take_back(session, worker="w")
    claimed = claim()
    with installation.database.writing() as session:
        unlearning.fail(session, run_id=claimed.run_id, error_code="OSError")
    assert get(f"/models/{model['id']}")["status"] == "learning"


def test_a_model_that_kills_its_workers_fails(
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    claim: Any,
    work: Any,
    status: Any,
) -> None:
    """If the worker of a model's first training run dies ten times, the model ends in `failed`, and the requests
    waiting for the model complete."""
    model = new_model(new_dataset()["id"])
    request = forget("p1")
    for _ in range(10):
        claim()
        with installation.database.writing() as session:
            unlearning.take_back(session, worker="w")
    work()
    assert get(f"/models/{model['id']}")["status"] == "failed"
    assert status(request) == "completed"


def test_a_retrained_model_owes_certificates_again(
    gateway: TestClient,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    claim: Any,
) -> None:
    """If a failed model is retrained, each person whose rows still existed when the model failed, and on whose rows the
    model is retrained, gets a certificate."""
    model = new_model(new_dataset()["id"])
    for _ in range(2):
        run_id = claim().run_id
        with installation.database.writing() as session:
            unlearning.fail(session, run_id=run_id, error_code="OSError")
    claimed = claim()
    requests = [forget(f"p{person}") for person in range(3)]
    with installation.database.writing() as session:
        unlearning.fail(session, run_id=claimed.run_id, error_code="OSError")
    assert gateway.post(f"/v1/models/{model['id']}/relearn").status_code == 202
    installation.settings.max_requests_per_run = 1
    while runner.run_next(installation, worker="w"):
        pass
    for request in requests:
        done = get(f"/deletion-requests/{request['id']}")
        assert (done["status"], [owed["status"] for owed in done["models"]]) == ("completed", ["completed"])


def test_a_lagging_models_guarantee_counts_people_not_yet_unlearned(
    installation: Installation, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """After people's rows have been nulled, and until a model has unlearned those people, the model's guarantee still
    counts them. Once the model has unlearned them, its guarantee meets the target."""
    dataset = new_dataset()
    models = [new_model(dataset["id"], noise_scale=0.02) for _ in range(2)]
    work()
    for person in range(5):
        forget(f"p{person}")
    runner.run_next(installation, worker="w")

    def epsilons() -> list[float]:
        return sorted(get(f"/models/{model['id']}")["guarantee"][0]["epsilon"] for model in models)

    up_to_date, behind = epsilons()
    assert 0 < up_to_date <= 1.0001 < behind
    work()
    assert epsilons()[1] <= 1.0001


def test_a_prediction_retries_with_the_next_version(
    gateway: TestClient,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the version that a prediction was about to use has been destroyed, the prediction is made with the next
    version."""
    model = new_model(new_dataset()["id"])
    work()
    forget("p1")
    read, armed = WeightStore.get, [True]

    def superseded(store: WeightStore, version_id: str) -> bytes:
        if armed:
            armed.clear()
            work()
        return read(store, version_id)

    monkeypatch.setattr(WeightStore, "get", superseded)
    answer = gateway.post(f"/v1/models/{model['id']}/predictions", json={"records": [[0.0, 0.0, 0.0]]})
    assert (answer.status_code, answer.json()["version"]) == (200, 2)


def test_metrics_are_dropped_with_erased_evaluation_people(
    new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """Accuracy is an exact statistic of the people in the evaluation dataset, so it is dropped when one of them is
    erased."""
    learned, measured = new_dataset("learned"), new_dataset("measured", seed=1, first=60)
    model = new_model(learned["id"], evaluation_dataset_id=measured["id"])
    work()
    assert get(f"/models/{model['id']}")["metrics"]["evaluated_on"] == 60
    forget("p63", dataset_ids=[measured["id"]])
    work()
    assert get(f"/models/{model['id']}/versions/1")["metrics"] == {}


def test_training_rows_are_refused_as_evaluation_data(gateway: TestClient, new_dataset: Make) -> None:
    """Rows that a model is trained on are refused as its evaluation data, even if they are uploaded under another
    name."""
    learned, again = new_dataset("learned"), new_dataset("again")
    body = {"name": "m", "dataset_id": learned["id"], "l2": 0.05, "evaluation_dataset_id": again["id"]}
    answer = gateway.post("/v1/models", json=body)
    assert (answer.status_code, answer.json()["code"]) == (409, "evaluation_overlaps")
