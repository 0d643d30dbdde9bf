"""Type checkers report wrong calls before anything runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

CALLS = """
import datetime

from lethe import AsyncClient, Client
from lethe.contract.models import ModelOut, TargetIn
from lethe.contract.runs import RunOut
from lethe.contract.sets import RequestStatus, RunStatus, Scope


def right(client: Client) -> list[RunOut]:
    model: ModelOut = client.models.create(name="m", dataset_id="d", target=TargetIn(epsilon=2.0), idempotency_key="k")
    client.models.create(name="m", dataset_id=model.dataset_id, l2=0.1)
    weights: bytes = client.models.weights(model.id, 1)
    client.models.predictions(model.id, records=[{"age": 39}, [1.0, 2.0]])
    client.datasets.upload("people.csv", classes=["a", "b"], suppressed="skip")
    client.datasets.add("ds_1", "people.csv")
    client.deletion_requests.create(subject_id="p", submitted_at=datetime.datetime.now(datetime.UTC), strict=True)
    client.deletion_requests.export("requests.csv", status=RequestStatus.COMPLETED)
    client.api_keys.create(name="app", scopes=[Scope.REQUESTS_WRITE])
    for piece in client.ledger.export():
        weights += piece
    return list(client.runs.list(model_id=model.id, status=RunStatus.RUNNING))


async def awaited(client: AsyncClient) -> list[RunOut]:
    model: ModelOut = await client.models.create(name="m", dataset_id="d")
    await client.deletion_requests.export("requests.csv")
    await client.datasets.upload("people.csv")
    return [run async for run in client.runs.list(model_id=model.id)]


def wrong(client: Client, other: AsyncClient) -> None:
    client.models.create(name="m")  # wrong: call-arg
    client.models.create(name=7, dataset_id="d")  # wrong: arg-type
    client.models.create(name="m", dataset_id="d", epsilon=1.0)  # wrong: call-arg
    client.models.get()  # wrong: call-arg
    client.models.get(7)  # wrong: arg-type
    client.runs.list(status="no such")  # wrong: arg-type
    client.deletion_requests.export("requests.csv", colour="red")  # wrong: call-arg
    client.datasets.upload("people.csv", suppressed="maybe")  # wrong: arg-type
    client.datasets.add("people.csv")  # wrong: call-arg
    client.models.get("mdl_1").no_such_field  # wrong: attr-defined
    other.models.get("mdl_1").status  # wrong: attr-defined
    client.no_such_resource  # wrong: attr-defined
"""


@pytest.mark.soak
@pytest.mark.parametrize("plugins", ["", "plugins = pydantic.mypy\n[pydantic-mypy]\ninit_typed = true"])
def test_calls_are_typed(tmp_path: Path, plugins: str) -> None:
    """With and without pydantic's plugin, strict mypy accepts calls that a gateway would accept and rejects all
    others."""
    (tmp_path / "calls.py").write_text(CALLS)
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = true\nfollow_imports = silent\n{plugins}\n")
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--no-incremental", "calls.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = dict(re.findall(r"^calls\.py:(\d+): error: .*\[([a-z-]+)\]$", done.stdout, re.MULTILINE))
    expected = {
        str(number): line.split("# wrong: ")[1]
        for number, line in enumerate(CALLS.splitlines(), start=1)
        if "# wrong: " in line
    }
    assert found == expected, done.stdout + done.stderr
