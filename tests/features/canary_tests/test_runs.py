"""A requested canary test: only canaries are learned and forgotten, by the steps of runs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
import torch
from fastapi.testclient import TestClient

from app.config import Settings
from app.db.tables import Run
from app.errors import LeaseLost
from app.installations import Installation
from lethe.proof import calibration, canary_test
from lethe.proof.canary_test import CanaryPlan
from tests.faults import processes
from tests.faults.processes import wait_until
from worker import runner
from worker.features.canary_tests import chain_of_canaries as canaries
from worker.langevin import chain
from worker.langevin.step import State, projected_noisy_step

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]

MECHANISM = calibration.mechanism_for(
    calibration.ModelSettings(l2=0.05, epsilon=1.0, delta=1e-3, learn_steps=80),
    num_slots=60,
    num_classes=2,
    num_parameters=4,
)
FORGETTING = CanaryPlan(lanes=4096, steps_before=80, steps=9)


def _ask(gateway: TestClient, model: dict[str, Any]) -> None:
    answer = gateway.post(f"/v1/models/{model['id']}/audit")
    assert answer.status_code == 202, answer.text
    assert answer.json()["audit"]["asked_at"] is not None


@pytest.mark.parametrize("plan", [FORGETTING, CanaryPlan(lanes=4096, steps_before=0, steps=80)])
def test_a_canary_test_runs_its_whole_plan(plan: CanaryPlan) -> None:
    """A canary test trains on the canaries, forgets them again, and reports each step. Its lower bound on mu for the
    whole test is at least three quarters of the certified mu and never exceeds it."""
    told: list[int] = []
    observed = canaries.run(MECHANISM, plan, on_progress=told.append)
    assert told == list(range(1, plan.steps_before + plan.steps + 1))
    assert observed.plan == plan
    assert observed.findings(MECHANISM) == ()
    document = observed.to_json(MECHANISM, delta=1e-3)
    assert 0.75 < document["mu_lower_bound"] / document["mu"] <= 1


@pytest.mark.parametrize("weights", [{"class_weights": (1.0, 0.5, 0.5)}, {"weight_bound": 2.0}])
def test_a_model_with_weights_has_a_canary_test(weights: dict[str, Any]) -> None:
    """A canary test on request also works for a model of three classes with class weights or row weights."""
    made = calibration.mechanism_for(
        calibration.ModelSettings(l2=0.05, epsilon=1.0, delta=1e-3, learn_steps=80),
        num_slots=60,
        num_classes=3,
        num_parameters=12,
        **weights,
    )
    assert canaries.run(made, FORGETTING, on_progress=lambda steps_done: None).findings(made) == ()


def test_a_progress_callback_can_stop_the_test() -> None:
    """An exception from `on_progress` stops the canary test at once."""

    def lost(steps_done: int) -> None:
        raise LeaseLost("taken")

    with pytest.raises(LeaseLost):
        canaries.run(MECHANISM, FORGETTING, on_progress=lost)


def _deaf(noise: Any, state: State, **settings: Any) -> State:
    """Take a step, but omit its contraction while the canaries are being forgotten."""
    with_canaries, without = settings["push"].chunk(2)
    forgetting = torch.equal(with_canaries, without)
    return projected_noisy_step(noise, state, **settings | ({"l2": 0.0} if forgetting else {}))


def test_unforgotten_canaries_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary test detects canaries that were trained on but not forgotten."""
    monkeypatch.setattr(chain, "projected_noisy_step", _deaf)
    observed = canaries.run(MECHANISM, FORGETTING, on_progress=lambda steps_done: None)
    assert "forgetting" in observed.findings(MECHANISM)


def test_only_a_null_row_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary test reads a single null row instead of a dataset's rows."""
    read: list[Any] = []
    original = chain.run

    def run(**named: Any) -> chain.Ran:
        read.append((named["features"], named["labels"]))
        return original(**named)

    monkeypatch.setattr(chain, "run", run)
    canaries.run(MECHANISM, FORGETTING, on_progress=lambda steps_done: None)
    assert len(read) == 2
    assert all(np.shape(features) == (1, 1) and not np.any(features) for features, _ in read)


def test_a_failed_canary_test_raises_an_alarm(
    gateway: TestClient,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    get: Get,
    work: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A canary test that detects leftover influence fails with an alarm, is not repeated, and leaves the version
    unchanged."""
    model = new_model(new_dataset()["id"], noise_scale=0.02)
    assert work() == 1
    _ask(gateway, model)
    monkeypatch.setattr(chain, "projected_noisy_step", _deaf)
    assert work() == 1
    assert work() == 0
    last = get("/runs")["items"][0]
    assert (last["kind"], last["status"], last["error_code"]) == ("audit", "failed", "audit_failed")
    assert "forgetting" in last["audit"]["findings"]
    assert "audit.failed" in "".join(capfd.readouterr())
    found = get(f"/models/{model['id']}")
    assert (found["live_version"], found["audit"]["asked_at"], found["status"]) == (1, None, "live")


@pytest.mark.soak
def test_a_killed_canary_test_is_repeated(
    settings: Settings,
    gateway: TestClient,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """If the worker of a canary test is killed with SIGKILL, the test starts over and is completed only once."""
    model = new_model(new_dataset()["id"], noise_scale=0.02)
    assert work() == 1
    _ask(gateway, model)
    with processes.worker(settings, name="first", hop="mid-chain") as first:
        assert first.died() is not None, first.log.read_text()
    assert [run["status"] for run in get("/runs")["items"]] == ["running", "published"]
    with processes.worker(settings, name="second") as second:
        wait_until(lambda: get(f"/models/{model['id']}")["audit"]["asked_at"] is None)
        assert second.stop() == 0
    with installation.database.reading() as session:
        runs = session.execute(sa.select(Run.kind, Run.status).order_by(Run.started_at)).all()
    assert [tuple(run) for run in runs] == [("learn", "published"), ("audit", "abandoned"), ("audit", "published")]
    assert get(f"/models/{model['id']}")["audit"]["last"]["findings"] == []
    assert not runner.run_next(installation, worker="third")


def test_trained_canaries_have_the_expected_mean() -> None:
    """The mean signal after training on the canaries equals the mean that the test assumes at the start of
    forgetting."""
    law = canary_test.law(MECHANISM, FORGETTING)
    learned = CanaryPlan(lanes=4096, steps_before=0, steps=80)
    assert canary_test.law(MECHANISM, learned, records=law.records).mean == pytest.approx(law.start)
