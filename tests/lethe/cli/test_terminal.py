"""The command line on a real terminal."""

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
from tests.faults import processes


@pytest.mark.soak
def test_a_terminal_shows_progress(settings: Settings, admin_key: str, people: Path) -> None:
    """On a terminal, a command that is waiting shows a progress bar with the current status and number of steps. The
    bar disappears when the command ends, and standard output contains only the result."""
    with (
        processes.gateway(settings) as (_, address),
        Client(address, admin_key) as client,
        contextlib.ExitStack() as working,
    ):
        dataset = client.datasets.upload(people, classes=["0", "1"])
        model = client.models.create(name="m", dataset_id=dataset.id, learn_steps=60_000)
        ours, theirs = pty.openpty()
        waiting = subprocess.Popen(
            [processes.LETHE, "model", "wait", model.id, "--url", address, "--key", admin_key],
            stdout=subprocess.PIPE,
            stderr=theirs,
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"},
        )
        os.close(theirs)
        seen, is_watched = b"", False
        try:
            while piece := os.read(ours, 4096):
                seen += piece
                if not is_watched and b"learning" in seen:
                    is_watched = True
                    working.enter_context(processes.worker(settings))  # the worker starts only now
        except OSError:  # Linux reports in this way that the terminal has no writer
            pass
        out, _ = waiting.communicate(timeout=240)
    assert waiting.returncode == 0
    assert json.loads(out)["status"] == "live"
    text = seen.decode()
    assert "learning" in text
    assert "\N{BOX DRAWINGS HEAVY HORIZONTAL}" in text
    done = [int(steps) for steps in re.findall(r"([0-9]+)/60000", text)]
    assert done == sorted(done)
    assert len(set(done)) > 1
    assert text.rstrip().endswith(("\x1b[2K", "\x1b[?25h"))
