"""The memory of all processes of `lethe up`, after a person was forgotten."""

import os
import sys
from collections import Counter
from pathlib import Path

import httpx
import psutil
import pytest

from app import hardening
from tests.faults import processes
from tests.faults.processes import Up, wait_until
from tests.forensics import memory, person

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0, reason="reading memory takes Linux and root"
)


@pytest.mark.soak
def test_no_process_holds_a_forgotten_person(tmp_path: Path) -> None:
    """Seconds after a request completes, the memory of the gateway, the worker and the fork server contains no
    bytes of the person."""
    forgotten = person.new()
    table = person.among_others(forgotten)
    with processes.up(tmp_path / "data") as up, _client(up, tmp_path / "data") as client:
        schema = {"schema": ("schema.json", person.schema())}
        uploads = {"csv": table.csv(), "parquet": table.parquet(), "npz": table.npz()}
        for kind, content in uploads.items():
            file = {"file": (f"{forgotten.file_name}.{kind}", content)} | ({} if kind == "npz" else schema)
            dataset = (
                client.post(
                    "/datasets",
                    data={"name": kind} | ({"classes": person.CLASSES} if kind == "npz" else {}),
                    files=file,
                )
                .raise_for_status()
                .json()
            )
            _learned(client, dataset["id"])
        request = _forgotten(client, forgotten)
        assert len(request["models"]) == len(uploads)
        patterns = forgotten.patterns()
        wait_until(lambda: not any(_found(up, patterns)), seconds=60)


@pytest.mark.service
def test_every_process_is_hardened(tmp_path: Path) -> None:
    """The gateway, the worker and the fork server write no core file, and their allocator overwrites freed memory."""
    with processes.up(tmp_path / "data") as up:
        up.address()
        wait_until(lambda: len(_everything(up)) == 3)
        for process in wait_until(lambda: all(map(_is_without_core, _everything(up))) and _everything(up)):
            assert process.environ().keys() >= hardening.OVERWRITING.keys()  # glibc changes what it has read


def _is_without_core(process: psutil.Process) -> bool:
    return process.rlimit(psutil.RLIMIT_CORE) == (0, 0)


def _everything(up: Up) -> list[psutil.Process]:
    service = psutil.Process(up.process.pid)
    return [service, *service.children(recursive=True)]


def _found(up: Up, patterns: dict[str, bytes]) -> list[Counter[str]]:
    assert len(_everything(up)) == 3
    return [memory.search(process.pid, patterns) for process in _everything(up)]


def _client(up: Up, data_dir: Path) -> httpx.Client:
    address = up.address()
    key = (data_dir / "keys" / "admin.key").read_text().strip()
    return httpx.Client(base_url=f"{address}/v1", headers={"Authorization": f"Bearer {key}"}, timeout=240)


def _learned(client: httpx.Client, dataset_id: str) -> None:
    model = client.post("/models", json={"name": dataset_id, "dataset_id": dataset_id, "l2": 0.05}).raise_for_status()
    path = f"/models/{model.json()['id']}"
    wait_until(lambda: client.get(path).raise_for_status().json()["status"] == "live")


def _forgotten(client: httpx.Client, who: person.Person) -> dict[str, object]:
    body = {"subject_id": who.subject_id, "metadata": who.metadata, "external_id": who.external_id}
    headers = {"Idempotency-Key": who.idempotency_key}
    path = client.post("/deletion-requests", json=body, headers=headers).raise_for_status().headers["Location"]
    path = path.removeprefix("/v1")

    def completed() -> dict[str, object] | None:
        request: dict[str, object] = client.get(path).raise_for_status().json()
        return request if request["status"] == "completed" else None

    found: dict[str, object] = wait_until(completed)
    return found
