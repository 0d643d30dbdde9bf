"""Uploads whose rows go through a network, on the command line."""

import contextlib
import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from app.config import Settings
from lethe import Client
from tests.app.encoders import nets
from tests.conftest import npz
from tests.faults import processes


@pytest.mark.soak
def test_an_upload_through_a_network_has_a_bar(settings: Settings, admin_key: str, tmp_path: Path) -> None:
    """Whoever uploads at a terminal sees how many rows have gone through the network, of how many; the answer goes to
    standard output."""
    rows, network = tmp_path / "people.npz", tmp_path / "net.onnx"
    rows.write_bytes(npz(rows=1200, features=nets.WIDTH))
    network.write_bytes(nets.slow(1400))
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
        with contextlib.suppress(OSError):  # Linux says so that nobody writes to a terminal any more
            while piece := os.read(ours, 4096):
                seen += piece
        out, _ = sending.communicate(timeout=240)
    assert sending.returncode == 0
    assert json.loads(out)["num_features"] == nets.OUT
    done = [int(rows) for rows in re.findall(r"([0-9]+)/1200", seen.decode())]
    assert done == sorted(done)
    assert any(0 < one < 1200 for one in done)
