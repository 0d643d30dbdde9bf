"""What audits cost: CPU time of the chain, of an audit that was asked for, and whole runs of a worker."""

import io
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from fastapi.testclient import TestClient
from rich.progress import track

from app import installations, telemetry
from app.config import Settings
from app.main import create_app
from benchmarks.canaries.plans import DEFAULT, SHAPES, Row, planned
from lethe.proof.canary_test import CanaryPlan, Observed
from lethe.proof.losses import num_weight_rows
from lethe.proof.mechanism import Mechanism
from worker import evidence, isolated, runner
from worker.features.canary_tests import chain_of_canaries as canaries
from worker.langevin import chain, engines
from worker.langevin.noise import SystemNoise

_FORM = {"name": "people", "classes": '["0", "1"]'}


def walk(mechanism: Mechanism, features: Any, plan: CanaryPlan | None, *, steps: int = 0) -> Observed | None:
    return chain.run(
        mechanism=mechanism,
        features=features,
        labels=(np.arange(len(features)) % mechanism.num_classes).astype(np.int32),
        initial=np.zeros((num_weight_rows(mechanism.num_classes), features.shape[1])),
        first_step=plan.steps_before if plan else 0,
        steps=plan.steps if plan else steps,
        noise=SystemNoise(),
        on_progress=lambda steps_done: None,
        backend=engines.Backend(threads=1),
        lanes=evidence.of(mechanism, plan) if plan else None,
    ).observed


def cost(name: str, *, rounds: int, seed: int, **batches: int) -> Row:
    """CPU seconds of the chain of a run that forgets one record, without an audit and with all of it, in turns: the
    least of each, since what else runs on the machine only adds."""
    rows, columns, _ = SHAPES[name]
    mechanism, plans = planned(*SHAPES[name], **batches)
    plan, features = next(iter(plans.values())), random_rows(rows, columns, seed)
    taken: dict[int, list[float]] = {number: [] for number in (0, 64, DEFAULT, 1024)}
    walk(mechanism, features, None, steps=2)
    for _ in track(range(rounds), description=name):
        for number, seconds in taken.items():
            with pytest.MonkeyPatch.context() as patch:
                if not number:
                    patch.setattr(chain, "differs", lambda *given, **named: False)
                started = time.process_time()
                walk(mechanism, features, replace(plan, lanes=number) if number else None, steps=plan.steps)
                seconds.append(time.process_time() - started)
    return {
        "shape": name,
        "rows": rows,
        "columns": columns,
        "batch": mechanism.batch_size,
        "steps": plan.steps,
        "seconds": min(taken[0]),
        "audit_seconds": {str(number): min(taken[number]) - min(taken[0]) for number in taken if number},
    }


def random_rows(rows: int, columns: int, seed: int) -> Any:
    features = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    features /= 1.0001 * np.linalg.norm(features, axis=1, keepdims=True)
    return features


def in_service(*, rounds: int, seed: int) -> Row:
    """CPU seconds of whole runs that forget one person of a thousand, of two models, in turns: one audited, one not;
    of each the mean of the cheaper half."""
    taken: dict[int, list[float]] = {0: [], DEFAULT: []}
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder))
        installations.set_up(settings)
        with installations.opened(settings) as installation, TestClient(create_app(settings)) as client:
            telemetry.configure("error")
            client.headers["Authorization"] = f"Bearer {settings.resolved_admin_key_file().read_text().strip()}"
            datasets = {number: new_model(client, seed, lanes=number) for number in taken}
            while runner.run_next(installation, worker="benchmark"):
                pass
            for person in track(range(rounds + 1), description="whole runs"):
                for number, seconds in taken.items():
                    request = {"subject_id": f"p{person}", "dataset_ids": [datasets[number]]}
                    client.post("/v1/deletion-requests", json=request).raise_for_status()
                    before = cpu_seconds()
                    while runner.run_next(installation, worker="benchmark"):
                        pass
                    seconds.append(cpu_seconds() - before)
            steps = [run["steps_total"] for run in client.get("/v1/runs").json()["items"] if run["kind"] == "unlearn"]
    without, audited = (statistics.mean(sorted(seconds[1:])[: max(1, rounds // 2)]) for seconds in taken.values())
    return {"rows": 1000, "steps": max(steps), "rounds": rounds, "without": without, "audited": audited}


def cpu_seconds() -> float:
    """Of this process, and of the processes of runs that have ended."""
    server = isolated._FORKER._server
    assert server is not None
    of_runs = psutil.Process(server).cpu_times()
    return time.process_time() + of_runs.children_user + of_runs.children_system


def new_model(client: TestClient, seed: int, *, lanes: int) -> str:
    """The dataset of a model that is as the service makes it by default, but for its lanes, and with l2 = 1/n."""
    features, buffer = random_rows(1000, 20, seed), io.BytesIO()
    people = np.char.add("p", np.arange(1000).astype(str))
    np.savez(buffer, x=features, y=(features[:, 0] > 0).astype(np.int32), subject=people)
    dataset = client.post(
        "/v1/datasets",
        data=_FORM,
        files={"file": ("people.npz", buffer.getvalue())},
    ).json()
    asked = {"name": "model", "dataset_id": dataset["id"], "l2": 1e-3, "audit": {"lanes": lanes}}
    client.post("/v1/models", json=asked).raise_for_status()
    found: str = dataset["id"]
    return found


def asked_for(name: str) -> Row:
    """CPU seconds of an audit that was asked for: 4,096 lanes learn and forget."""
    mechanism, plans = planned(*SHAPES[name])
    plan = replace(plans["forgetting"], lanes=4096)
    started = time.process_time()
    canaries.run(mechanism, plan, on_progress=lambda steps_done: None)
    seconds = time.process_time() - started
    return {"shape": name, "steps": plan.steps_before + plan.steps, "lanes": 4096, "seconds": seconds}
