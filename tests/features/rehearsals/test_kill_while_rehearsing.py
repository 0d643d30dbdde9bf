"""A worker is killed (-9) during a rehearsal and restarted."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from app.config import Settings
from tests.faults import processes
from tests.faults.processes import wait_until
from tests.faults.test_kill_at_every_hop import KILLED, _files

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


def test_a_killed_rehearsal_is_repeated(
    settings: Settings, gateway: TestClient, new_dataset: Make, new_model: Make, get: Get, work: Callable[[], int]
) -> None:
    """A killed rehearsal leaves no files behind and changes no model. After the worker restarts, the rehearsal runs
    once and erases no rows."""
    model = new_model(new_dataset(rows=60)["id"], noise_scale=0.02)
    assert work() == 1
    files, versions = _files(settings), get(f"/models/{model['id']}/versions")
    path = f"/models/{model['id']}/rehearsals"
    answer = gateway.post(f"/v1{path}", json={"people": 12})
    assert answer.status_code == 202, answer.text
    rehearsal = f"{path}/{answer.json()['id']}"
    with processes.worker(settings, name="first", hop="mid-chain") as first:
        assert first.died() == KILLED, first.log.read_text()
    assert _files(settings) - files <= Counter({Path("bell"): 1})
    assert (get(rehearsal)["status"], get(rehearsal)["report"]) == ("running", None)
    with processes.worker(settings, name="second") as second:
        wait_until(lambda: get(rehearsal)["status"] == "completed")
        assert second.stop() == 0
    assert get(rehearsal)["report"]["version"] == 1
    assert len(get(path)["items"]) == 1
    runs = [(run["kind"], run["status"]) for run in get("/runs")["items"]]
    assert runs == [("rehearsal", "published"), ("rehearsal", "abandoned"), ("learn", "published")]
    assert get(f"/models/{model['id']}/versions") == versions
    assert _files(settings) - files <= Counter({Path("bell"): 1})
