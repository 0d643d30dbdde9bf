"""docs/drop.md does what it states."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.config import Settings
from lethe import Client
from tests.conftest import people
from tests.faults import processes

PAGE = (Path(__file__).parents[3] / "docs" / "drop.md").read_text()
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def shell(settings: Settings, admin_key: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yield the environment for a shell while a gateway and a worker are running and the page's people are uploaded."""
    upload = tmp_path / "people.npz"
    upload.write_bytes(people("p1", "p2", "p3"))
    with processes.gateway(settings) as (_, address), processes.worker(settings):
        with Client(address, admin_key) as client:
            client.datasets.upload(upload, name="people", classes=["0", "1"])
        yield {
            "HOME": str(tmp_path),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LC_ALL": "C.UTF-8",
            "LETHE_URL": address,
            "LETHE_DATA_DIR": str(settings.data_dir),
        }


@pytest.mark.soak
def test_the_recipe_runs_as_printed(shell: dict[str, str], tmp_path: Path) -> None:
    """The commands of the documentation page, copied in order into one shell, succeed and print what the page shows."""
    blocks = BLOCK.findall(PAGE)
    done = subprocess.run(
        ["/bin/bash", "--noprofile", "--norc"],
        input="set -eo pipefail\n" + "".join(block for kind, block in blocks if kind == "sh"),
        cwd=tmp_path,
        env=shell,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "".join(block for kind, block in blocks if kind == "text")
