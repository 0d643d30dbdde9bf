"""Uploads whose rows go through a network, on the command line."""

import contextlib
import json
import os
import pty
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from app.config import Settings
from lethe import Client
from lethe.features.networks import cli
from tests.conftest import npz
from tests.faults import processes
from tests.features.networks import nets
from tests.lethe.scripted import Reply, Script


@pytest.mark.soak
def test_an_upload_through_a_network_shows_a_progress_bar(settings: Settings, admin_key: str, tmp_path: Path) -> None:
    """An upload from a terminal shows how many rows the network has encoded. The response is printed to standard
    output."""
    rows, network = tmp_path / "people.npz", tmp_path / "net.onnx"
    rows.write_bytes(npz(rows=6000, features=nets.WIDTH))
    network.write_bytes(nets.slow(300))
    with processes.gateway(settings) as (_, address), Client(address, admin_key) as client:
        made = client.networks.upload(network, licence="CC0-1.0", provenance="Drawn numbers.")
        asked = ("--classes", "0,1", "--network", made.id)
        ours, theirs = pty.openpty()
        sending = subprocess.Popen(
            [processes.LETHE, "dataset", "create", rows, *asked, "--url", address, "--key", admin_key],
            stdout=subprocess.PIPE,
            stderr=theirs,
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"},
        )
        os.close(theirs)
        seen = b""
        # Linux raises this error once no process writes to the terminal.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 4096):
                seen += piece
        out, _ = sending.communicate(timeout=240)
    assert sending.returncode == 0
    assert json.loads(out)["num_features"] == nets.OUT
    done = [int(rows) for rows in re.findall(r"([0-9]+)/6000", seen.decode())]
    assert done == sorted(done)
    assert any(0 < one < 6000 for one in done)


def test_an_upload_is_found_by_name_and_size(
    script: Script, scripted_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command shows the progress of the upload with the given name and size. If the gateway fails once to report
    progress, the command keeps polling."""
    monkeypatch.setattr(cli, "_POLL_SECONDS", 0.01)

    def encoding(name: str, num_bytes: int, done: int) -> dict[str, Any]:
        began_at = "2026-01-02T03:04:05Z"
        sizes = {"num_bytes": num_bytes, "num_encoded": done, "num_rows": 9}
        return {"name": name, "network_id": "net_1", "began_at": began_at} | sizes

    items = [encoding("others", 7, 1), encoding("people", 8, 2), encoding("people", 7, 3)]
    script.says(Reply(status=403, body={}), Reply(body={"items": items}))
    told: list[tuple[str, int, int | None]] = []
    ended = threading.Event()

    def progress(status: str, done: int, total: int | None) -> None:
        told.append((status, done, total))
        ended.set()

    cli._watch(scripted_client, "people", 7, progress, ended)
    assert told == [("encoding", 3, 9)]
