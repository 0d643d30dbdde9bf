"""A service started the way a user starts it."""

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
    """`lethe up` on a port of its own; it must end well when it is told to."""
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
    """A service in which there is nothing yet."""
    with up(tmp_path) as started:
        yield started
