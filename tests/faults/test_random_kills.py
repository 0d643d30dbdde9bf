"""A worker that is killed at random, repeatedly, while requests keep arriving."""

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from app.config import Settings
from app.installations import Installation
from tests.faults import processes
from tests.faults.checks import assert_all_done_once
from tests.faults.processes import wait_until

KILLS, REQUESTS = 20, 30


@pytest.mark.soak
def test_random_kills_lose_no_request(
    settings: Settings,
    installation: Installation,
    new_dataset: Callable[..., dict[str, Any]],
    new_model: Callable[..., dict[str, Any]],
    forget: Callable[..., dict[str, Any]],
    get: Callable[[str], Any],
    work: Callable[[], int],
) -> None:
    """After 20 kills during 30 requests over two datasets with two models each, every request completes exactly
    once."""
    datasets = [new_dataset(name, rows=120, seed=seed) for seed, name in enumerate(("one", "two"))]
    for dataset in datasets:
        for _ in range(2):
            new_model(dataset["id"], l2=2e-4, noise_scale=0.002)  # thousands of steps: runs long enough to be hit
    assert work() == 4
    moments = random.Random(20)
    made: list[dict[str, Any]] = []

    def submit() -> None:
        for person in moments.sample(range(120), REQUESTS):
            made.append(forget(f"p{person}"))
            time.sleep(0.1)

    submitting = threading.Thread(target=submit)
    submitting.start()
    for number in range(KILLS):
        with processes.worker(settings, name=f"mortal{number}") as mortal:
            wait_until(lambda started=mortal: started.logged("worker.started"))
            latest = time.monotonic() + (3 if number % 2 else 0)  # every second worker dies during a run
            while time.monotonic() < latest and not mortal.logged("unlearning.run_claimed"):
                time.sleep(0.01)
            time.sleep(moments.uniform(0, 0.4))
            mortal.kill()
    submitting.join()
    with processes.worker(settings, name="last") as last:
        for request in made:
            path = f"/deletion-requests/{request['id']}"
            wait_until(lambda path=path: get(path)["status"] == "completed", seconds=540)
        assert last.stop() == 0
    assert len(made) == REQUESTS
    assert any(run["status"] == "abandoned" for run in get("/runs?limit=500")["items"])
    assert_all_done_once(installation)
    assert [get(f"/datasets/{dataset['id']}")["num_records"] for dataset in datasets] == [90, 90]
