"""Fixtures that start the service as a user would."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lethe import Client

LETHE = str(Path(sys.executable).with_name("lethe"))


@dataclass(frozen=True)
class Service:
    address: str
    data_dir: Path
    client: Client


@contextlib.contextmanager
def up(folder: Path) -> Iterator[Service]:
    """Start `lethe up` on a free port, and assert that it exits with code 0 when terminated."""
    data_dir = folder / "lethe"
    environment = os.environ | {"LETHE_DATA_DIR": str(data_dir), "LETHE_PORT": "0"}
    with subprocess.Popen([LETHE, "up"], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[3]
        with Client(address, (data_dir / "keys" / "admin.key").read_text().strip()) as client:
            yield Service(address, data_dir, client)
        process.terminate()
        assert process.wait(120) == 0


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """Start an empty service."""
    with up(tmp_path) as started:
        yield started
