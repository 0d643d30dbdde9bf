"""The agent is killed at each hop of a task: the next run answers it, and no file contains anything of the person."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.config import Settings
from lethe import Client
from lethe.features.stores import agent
from lethe.features.stores.configuration import Configuration
from tests.faults import processes
from tests.features.stores.test_agent import PERSON, configured

__all__ = ["configured"]

AGENT = """
import importlib, os, pathlib, signal, sys
from lethe import Client
from lethe.features.stores import agent, configuration
address, key, path, hop, call = sys.argv[1:]
module, _, name = hop.rpartition(".")
owner = pathlib.Path if module == "pathlib.Path" else importlib.import_module(module)
original, calls = getattr(owner, name), iter(range(1, 1000))
def wrapped(*given, **named):
    if next(calls) == int(call):
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*given, **named)
setattr(owner, name, wrapped)
with Client(address, key) as client:
    list(agent.answer(client, configuration.load(pathlib.Path(path))))
"""
"""An agent that kills itself when it reaches the function `hop` for the time `call`."""


def _left_of_person(folder: Path) -> list[str]:
    """Return the stores' and the agent's files and folders that name the person or quote the person's letter."""
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if PERSON in path.name
        or (path.is_file() and any(text in path.read_bytes() for text in (PERSON.encode(), b"Complaint about parcel")))
    ]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("hop", "call"),
    [
        pytest.param("lethe.features.stores.erasure._write", 1, id="planted"),
        pytest.param("lethe.features.stores.store.swap", 1, id="copied, not swapped"),
        pytest.param("lethe.features.stores.erasure.search", 2, id="erased, not searched"),
        pytest.param("pathlib.Path.rmdir", 1, id="documents unlinked"),
        pytest.param("lethe.features.stores.reports.compose", 1, id="searched, not reported"),
        pytest.param("lethe.features.stores.agent.finish", 1, id="reported, not finished"),
    ],
)
def test_the_task_of_a_killed_agent_is_completed(
    hop: str,
    call: int,
    configured: Configuration,
    settings: Settings,
    admin_key: str,
    settled: Callable[[], None],
    tmp_path: Path,
) -> None:
    """If an agent is killed at any point, the next run searches for the same samples and completes the task, graded as
    searched. The request completes, and neither the stores nor the agent's own files contain data about the person."""
    with processes.gateway(settings) as (_, address), Client(address, admin_key) as client:
        request = client.deletion_requests.create(subject_id="maria", external_id=PERSON)
        dies = [sys.executable, "-c", AGENT, address, admin_key, str(tmp_path / "stores.toml"), hop, str(call)]
        died = subprocess.run(dies, check=False, capture_output=True, text=True, timeout=300)
        assert died.returncode == -signal.SIGKILL, died.stderr
        outcomes = list(agent.answer(client, configured))
        [task] = client.system_tasks.list()
        assert task.status == "acknowledged"
        if hop != "lethe.features.stores.agent.finish":
            [outcome] = outcomes
            assert outcome.grade == "searched"
            assert outcome.findings["support"].before["vector"] == {"sought": 30, "found": 30}
        settled()
        assert client.deletion_requests.get(request.id).status == "completed"
        grades = {line["grade"] for line in client.deletion_requests.bundle(request.id).statement["lines"]}
        assert grades == {"searched"}
        assert list(agent.answer(client, configured)) == []
    left = [path for path in _left_of_person(tmp_path) if not path.startswith("data")]
    assert left == []
