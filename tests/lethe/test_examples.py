"""Examples run unchanged."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.config import Settings
from tests.faults import processes

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.soak
def test_a_users_own_table_leads_to_a_certificate(settings: Settings, admin_key: str) -> None:
    """The example takes a user's own table to a verified certificate, and its dry run predicts the model's accuracy to
    within 8 percentage points."""
    with processes.gateway(settings) as (_, address), processes.worker(settings):
        environment = os.environ | {"LETHE_URL": address, "LETHE_API_KEY": admin_key}
        done = subprocess.run(
            [sys.executable, EXAMPLES / "tables" / "own_table.py"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "warnings: none" in done.stdout
    foreseen = max(float(number) for number in re.findall(r": ([0-9.]+)% right, a request", done.stdout))
    [shown] = re.findall(r"version 1: ([0-9.]+)% right", done.stdout)
    assert abs(float(shown) - foreseen) < 8
    assert re.search(r"completed: epsilon = [01]\.\d+ of them is left, verified offline", done.stdout)
