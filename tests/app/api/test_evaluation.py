"""A model is never evaluated on people whose data it is trained on, either when it is created or later."""

import io
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.catalogue import datasets, evaluation
from app.installations import Installation
from app.journal import tombstones
from app.journal.journal import Release
from app.operations import periodic_jobs
from lethe.contract.sets import Scope
from tests.conftest import FORM, npz
from tests.tables import each
from worker import runner

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Refused = Callable[..., dict[str, Any]]
Upload = Callable[..., httpx.Response]
Add = Callable[..., httpx.Response]


def changed(content: bytes, *, subjects: str = "{}", row: int | None = None) -> bytes:
    """Return the same file with different ids and one replaced row."""
    arrays = dict(np.load(io.BytesIO(content)))
    arrays["subject"] = np.array([subjects.format(one) for one in arrays["subject"]])
    if row is not None:
        arrays["x"][row] += 1
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def some(content: bytes, rows: slice) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **{name: array[rows] for name, array in np.load(io.BytesIO(content)).items()})
    return buffer.getvalue()


@pytest.fixture
def ask(gateway: TestClient) -> Callable[..., httpx.Response]:
    """POST a model that is trained on one dataset and evaluated on another."""

    def post(learned: str, measured: str, **sent: Any) -> httpx.Response:
        body = {"name": "m", "dataset_id": learned, "l2": 0.05, "evaluation_dataset_id": measured}
        return gateway.post("/v1/models", json=body, **sent)

    return post


@pytest.fixture
def sent(gateway: TestClient) -> Callable[[bytes], str]:
    """Return a function that uploads rows and returns the dataset's id."""

    def post(content: bytes) -> str:
        answer = gateway.post("/v1/datasets", data=FORM, files={"file": ("p.npz", content)})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    return post


@pytest.fixture
def add(gateway: TestClient) -> Add:
    def post(dataset_id: str, content: bytes) -> httpx.Response:
        return gateway.post(f"/v1/datasets/{dataset_id}/records", files={"file": ("p.npz", content)})

    return post


@each(
    ("measured", "said"),
    [
        (npz(), "60 people"),
        (changed(npz(), row=3), "60 people"),
        (changed(npz(), subjects="other-{}"), "60 rows"),
        (changed(npz(), subjects="other-{}", row=3), "59 rows"),
        (npz(seed=1, first=59), "1 people"),
        (npz(seed=1), "60 people"),
    ],
)
def test_overlapping_evaluation_data_is_refused(
    sent: Callable[[bytes], str],
    ask: Callable[..., httpx.Response],
    refused: Refused,
    stored: Callable[[], dict[str, int]],
    measured: bytes,
    said: str,
) -> None:
    """Evaluation data is refused with a specific error if it contains a person from the training dataset, or one of the
    training rows under another id."""
    problem = refused(ask(sent(npz()), sent(measured)), 409, "evaluation_overlaps")
    assert problem["detail"].startswith(said)
    assert "p3" not in problem["detail"]
    assert stored()["models"] == 0


def test_a_dataset_cannot_be_its_own_evaluation_data(
    sent: Callable[[bytes], str], ask: Callable[..., httpx.Response], refused: Refused
) -> None:
    """A dataset cannot be its own evaluation data, even if the upload does not state whose rows it contains."""
    dataset = sent(npz())
    refused(ask(dataset, dataset), 409, "evaluation_overlaps")


def test_the_number_of_shared_people_is_hidden_without_the_scope(
    sent: Callable[[bytes], str],
    ask: Callable[..., httpx.Response],
    refused: Refused,
    key_with: Callable[..., dict[str, str]],
) -> None:
    """A key that is not allowed to learn who is in the data gets the error about overlapping evaluation data, but
    without the number of shared people."""
    key = key_with(Scope.MODELS_READ, Scope.MODELS_WRITE)
    problem = refused(ask(sent(npz()), sent(npz(seed=1)), headers=key), 409, "evaluation_overlaps")
    assert problem["detail"].startswith("Some people")


def test_rows_that_are_equal_by_chance_are_accepted(
    upload: Upload, ask: Callable[..., httpx.Response], refused: Refused
) -> None:
    """Rows that coincide only because their columns have few distinct values do not count as an overlap."""
    generator = np.random.default_rng(0)
    ids = []
    for name in "ab":
        x = generator.integers(0, 2, size=(200, 3)).astype(float)
        rows = {"x": x, "y": (x[:, 0] > 0).astype(int), "subject": np.array([f"{name}{row}" for row in range(200)])}
        buffer = io.BytesIO()
        np.savez(buffer, **rows)  # type: ignore[arg-type]
        ids.append(upload(buffer.getvalue()).json()["id"])
    assert ask(*ids).status_code == 202


@pytest.fixture
def pair(
    sent: Callable[[bytes], str],
    ask: Callable[..., httpx.Response],
    forget: Make,
    work: Callable[[], int],
) -> dict[str, str]:
    """Return the ids of two datasets, one used to train a model on p0, p1, ... and one to evaluate it on p100, p101,
    ... Each dataset has room for three more people."""
    found = {"learned": sent(npz()), "measured": sent(npz(seed=1, first=100))}
    assert ask(found["learned"], found["measured"]).status_code == 202
    for person in (1, 2, 3, 101, 102, 103):
        forget(f"p{person}")
    work()
    return found


@pytest.mark.parametrize("to", ["learned", "measured"])
def test_added_rows_must_not_overlap_either(
    pair: dict[str, str], add: Add, refused: Refused, stored: Callable[[], dict[str, int]], to: str
) -> None:
    """Rows and people of a training dataset cannot be added to its evaluation dataset, or vice versa; new people with
    new rows can be added to either."""
    other = npz(seed=1, first=100) if to == "learned" else npz()
    before = stored()
    refused(add(pair[to], some(other, slice(10, 11))), 409, "evaluation_overlaps")
    refused(add(pair[to], changed(some(other, slice(10, 12)), subjects="new-{}")), 409, "evaluation_overlaps")
    assert stored() == before
    assert add(pair[to], some(npz(seed=2, first=300), slice(0, 2))).status_code == 202


def test_waiting_rows_are_compared_too(
    pair: dict[str, str], add: Add, ask: Callable[..., httpx.Response], refused: Refused
) -> None:
    """Rows added to evaluation data are also compared with rows that were accepted for the training dataset but have
    not been written yet."""
    new = some(npz(seed=2, first=300), slice(0, 2))
    assert add(pair["learned"], new).status_code == 202
    refused(add(pair["measured"], new), 409, "evaluation_overlaps")
    renamed = changed(new, subjects="new-{}")
    refused(add(pair["measured"], renamed), 409, "evaluation_overlaps")


@pytest.mark.parametrize("to", ["learned", "measured"])
def test_rows_are_not_compared_with_a_retired_model(
    installation: Installation, pair: dict[str, str], add: Add, gateway: TestClient, get: Get, to: str
) -> None:
    """Once a model is retired and one of its two datasets is destroyed, rows added to the other dataset are no longer
    compared with the destroyed one."""
    (model,) = get("/models")["items"]
    (other,) = (dataset_id for name, dataset_id in pair.items() if name != to)
    assert gateway.delete(f"/v1/models/{model['id']}").is_success
    assert gateway.delete(f"/v1/datasets/{other}").is_success
    periodic_jobs.destroy_of_retired(installation)
    answer = add(pair[to], some(npz(seed=2, first=300), slice(0, 2)))
    assert answer.status_code == 202, answer.text


def test_a_comparison_is_repeated_after_a_change(
    installation: Installation, sent: Callable[[bytes], str], by: Any
) -> None:
    """Two datasets are compared again after rows were added to or erased from either of them."""
    learned, measured = sent(npz()), sent(npz(seed=1, first=100))
    with installation.database.reading(by=by) as session:
        one, other = datasets.get(session, learned), datasets.get(session, measured)
        before = evaluation.of_model(session, dataset=one, evaluated_on=other, may_know=True)
        assert before == evaluation.of_model(session, dataset=one, evaluated_on=other, may_know=True)
        with session.no_autoflush:  # of_model only reads
            other.digest = "0" * 64
            assert before != evaluation.of_model(session, dataset=one, evaluated_on=other, may_know=True)


def test_no_accuracy_if_evaluation_rows_were_erased_during_the_run(
    installation: Installation,
    pair: dict[str, str],
    gateway: TestClient,
    forget: Make,
    get: Get,
    work: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A version reports no accuracy if evaluation rows were erased after the run had read them."""
    model_id = get("/models")["items"][0]["id"]
    gateway.post(f"/v1/models/{model_id}/relearn")
    record = tombstones.record

    def late(installation: Installation, release: Release | None = None) -> None:
        if release is not None:
            monkeypatch.setattr(tombstones, "record", record)
            forget("p110")
            assert runner.run_next(installation, worker="another")
        record(installation, release)

    monkeypatch.setattr(tombstones, "record", late)
    assert work() >= 1
    assert get(f"/models/{model_id}")["live_version"] >= 2
    assert get(f"/models/{model_id}")["metrics"] == {}
