"""Faults planted in the chain and in the worker: the canary test detects them, nothing is published, and no
request completes."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.installations import Installation
from app.rows.row_store import RowStore
from lethe.proof.canary_test import CanaryPlan
from lethe.proof.mechanism import Mechanism
from tests.app.unlearning.held import forget_pauses
from tests.faults.checks import assert_all_done_once
from tests.stored import rows_of, slots_of
from tests.worker.evidence.conftest import FORGETTING, FORGETTING_BATCHES, LEARNING, LEARNING_BATCHES, SHORT
from tests.worker.evidence.faults import BATCHED, FAULTS, OF_FORGETTING, OF_LATER_RUNS, SCHEDULES
from worker import chain_process, isolated, runner
from worker.langevin import chain, engines

Run = Callable[..., chain.Ran]
Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


# --- faults in the chain ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        *(pytest.param(FORGETTING, fault, id=f"forgetting: {fault}") for fault in FAULTS),
        *(pytest.param(LEARNING, fault, id=f"learning: {fault}") for fault in FAULTS if fault not in OF_FORGETTING),
    ],
)
def test_a_fault_in_the_chain_is_detected(
    plan: CanaryPlan, fault: str, mechanism: Mechanism, ran: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The canary test of a single run detects each fault planted in the steps. With 512 canary lanes, even the smallest
    fault (halved noise) is missed with a probability below 1e-15."""
    FAULTS[fault](monkeypatch)
    found = ran(replace(plan, lanes=512)).observed
    assert found is not None
    assert found.findings(mechanism)


RUNS = {"learning": LEARNING_BATCHES, "forgetting": FORGETTING_BATCHES, "few steps": SHORT}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "fault"),
    [
        (run, fault)
        for run in RUNS
        for fault in BATCHED
        if fault not in (OF_LATER_RUNS + OF_FORGETTING if run == "learning" else ())
    ],
)
def test_a_fault_in_a_chain_of_batches_is_detected(
    run: str, fault: str, batched: Mechanism, ran: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In steps that read batches in order, each planted fault is detected. A fault in the order alone does not move any
    canary, so only the schedule test detects it."""
    BATCHED[fault](monkeypatch)
    observed = ran(replace(RUNS[run], lanes=1024), made=batched).observed
    assert observed is not None
    found = observed.findings(batched)
    assert found
    if fault in SCHEDULES:
        assert "schedule" in found
        assert run == "learning" or fault == "no cool-down" or found == ("schedule",)


def test_a_run_that_forgets_nothing_is_refuted(mechanism: Mechanism, ran: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the canaries stay in the data, 16,384 lanes with and without a canary can be told apart better than the
    guarantee allows, so the canary test refutes the guarantee."""
    FAULTS["canary stays"](monkeypatch)
    observed = ran(replace(FORGETTING, lanes=16384)).observed
    assert observed is not None
    assert "guarantee" in observed.findings(mechanism)


# --- faults in a run of the worker -----------------------------------------------------------------------------------


class _Here:
    """Execution of runs in a thread of this process instead of a separate process, so that planted faults apply."""

    @contextlib.contextmanager
    def start(self, *descriptors: int, warm: bool) -> Iterator[Any]:
        mine, theirs = Pipe()
        running = threading.Thread(target=chain_process.main, args=(theirs, *descriptors))
        running.start()
        try:
            yield SimpleNamespace(connection=mine)
        finally:
            running.join()
            mine.close()
            theirs.close()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "_FORKER", _Here())


def _null_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RowStore, "edit", lambda self, rows_id, root, **_: root)


def _null_neighbours(patch: pytest.MonkeyPatch) -> None:
    edit = RowStore.edit

    def neighbours(self: RowStore, rows_id: str, root: str, *, null: Any, **named: Any) -> str:
        return edit(self, rows_id, root, null=[_beside(slot) for slot in null], **named)

    patch.setattr(RowStore, "edit", neighbours)


def _beside(slot: int) -> int:
    return slot - 1 if slot else 1


class Stale:
    """Old copy of a dataset's rows, which a faulty worker could read instead of the current rows."""

    def __init__(self, installation: Installation, dataset_id: str) -> None:
        rows = rows_of(installation, dataset_id)
        self._features, self._labels = rows.features, rows.labels

    def mapped(self, patch: pytest.MonkeyPatch) -> None:
        """Make the whole run read an old copy of the rows."""
        patch.setattr(chain_process, "mapped", lambda memory, *shape: (self._features, self._labels))

    def resident(self, patch: pytest.MonkeyPatch) -> None:
        """Make the steps read an old copy of the rows, while everything else reads the current rows."""
        opened = engines.open_rows
        copy = (self._features, self._labels)
        patch.setattr(engines, "open_rows", lambda made, x, y, *rest: opened(made, *copy, *rest))


def _assert_open(installation: Installation, get: Get, model_id: str, request_id: str, code: str) -> None:
    """Check that the last run failed with this code and left nothing behind, and that the request is still open."""
    [last] = get("/runs?limit=1")["items"]
    assert (last["status"], last["error_code"]) == ("failed", code)
    model = get(f"/models/{model_id}")
    assert (model["live_version"], model["error_code"]) == (1, code)
    assert len(installation.weights.version_ids()) == 1
    assert get(f"/deletion-requests/{request_id}")["status"] == "accepted"


BATCHES = {"batch_size": 7, "cool_down": 5}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("fault", "batches"),
    [("noise x 0.5", {}), ("canary stays", {}), ("a batch skipped", BATCHES)],
)
def test_a_run_that_fails_its_canary_test_publishes_nothing(
    fault: str,
    batches: dict[str, int],
    gateway: TestClient,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A run with a planted fault fails on every attempt with an alarm and the findings of its canary test, and its
    request stays open. Once the fault is removed, the request completes."""
    dataset = new_dataset()
    model = new_model(dataset["id"], noise_scale=0.02, **batches)
    assert work() == 1
    request = forget("p3")
    with monkeypatch.context() as patch:
        BATCHED[fault](patch)
        for _ in range(2):
            assert runner.run_next(installation, worker="w") is True
            _assert_open(installation, get, model["id"], request["id"], "audit_failed")
            [last] = get("/runs?limit=1")["items"]
            assert last["audit"]["findings"]
            assert not batches or "schedule" in last["audit"]["findings"]
            forget_pauses(installation)
        assert "audit.failed" in "".join(capfd.readouterr())
    assert work() == 1
    done = get(f"/deletion-requests/{request['id']}")
    assert done["status"] == "completed"
    [certified] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
    assert gateway.post("/v1/certificates:verify", json={"jws": certified["jws"]}).json()["valid"] is True
    assert get("/runs?limit=1")["items"][0]["audit"]["findings"] == []
    assert_all_done_once(installation)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("nothing nulled", "run_differs_from_plan"),
        ("an old copy", "run_differs_from_plan"),
        ("an old copy in memory", "audit_failed"),
    ],
)
def test_a_run_on_stale_rows_publishes_nothing(
    fault: str,
    code: str,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run fails if its steps still read the row to be forgotten, on disk or in memory. Once the row is gone, a run
    completes."""
    dataset = new_dataset()
    model = new_model(dataset["id"], noise_scale=0.02)
    stale = Stale(installation, dataset["id"])
    assert work() == 1
    [slot] = slots_of(installation, dataset["id"], "p3")
    request = forget("p3")
    plant = {"nothing nulled": _null_nothing, "an old copy": stale.mapped, "an old copy in memory": stale.resident}[
        fault
    ]
    with monkeypatch.context() as patch:
        plant(patch)
        assert runner.run_next(installation, worker="w") is True
        _assert_open(installation, get, model["id"], request["id"], code)
    forget_pauses(installation)
    assert work() == 1
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    assert not rows_of(installation, dataset["id"]).features[slot].any()
    assert_all_done_once(installation)


@pytest.mark.usefixtures("here")
def test_erasing_another_row_fails_the_run(
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that would erase a row other than the requested one fails before anything is recorded, so that no other row
    is lost. A later run erases the requested row."""
    dataset = new_dataset()
    model = new_model(dataset["id"], noise_scale=0.02)
    assert work() == 1
    [slot] = slots_of(installation, dataset["id"], "p3")
    request = forget("p3")
    with monkeypatch.context() as patch:
        _null_neighbours(patch)
        assert runner.run_next(installation, worker="w") is True
    _assert_open(installation, get, model["id"], request["id"], "run_differs_from_plan")
    assert rows_of(installation, dataset["id"]).features[[slot, _beside(slot)]].any(axis=1).all()
    forget_pauses(installation)
    assert work() == 1
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    assert rows_of(installation, dataset["id"]).features[[slot, _beside(slot)]].any(axis=1).tolist() == [False, True]
    assert_all_done_once(installation)


def test_a_run_without_its_canary_test_publishes_nothing(
    installation: Installation, new_dataset: Make, new_model: Make, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is not published if its canary lanes were omitted or if it had fewer of them than planned."""
    model = new_model(new_dataset()["id"])
    original = isolated.run
    for lanes_ran in (0, 2):

        def run(*given: Any, audit: CanaryPlan, lanes_ran: int = lanes_ran, **named: Any) -> isolated.IsolatedResult:
            return original(*given, audit=replace(audit, lanes=lanes_ran) if lanes_ran else None, **named)

        with monkeypatch.context() as patch:
            patch.setattr(isolated, "run", run)
            assert runner.run_next(installation, worker="w") is True
        assert get(f"/models/{model['id']}")["error_code"] == "run_differs_from_plan"
        forget_pauses(installation)
    assert runner.run_next(installation, worker="w") is True
    assert get(f"/models/{model['id']}")["live_version"] == 1


@pytest.mark.usefixtures("here")
def test_a_model_without_lanes_is_not_tested(
    installation: Installation, new_dataset: Make, new_model: Make, get: Get, work: Callable[[], int]
) -> None:
    """The runs of a model created without canary lanes have no canary test and report none."""
    model = new_model(new_dataset()["id"], audit={"lanes": 0})
    assert work() == 1
    assert get("/runs?limit=1")["items"][0]["audit"] is None
    assert get(f"/models/{model['id']}")["audit"]["last"] is None
    assert_all_done_once(installation)
