"""The command line, by itself and beside a live gateway and a live worker."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import cli
from app.config import Settings
from tests.app.command_line import Ended, Lethe
from tests.conftest import npz
from tests.faults import processes


@pytest.fixture
def lethe(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Lethe:
    """`lethe ARGUMENTS` in a folder of its own, as the command does it."""
    for name in [name for name in os.environ if name.startswith("LETHE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["lethe", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        said = capfd.readouterr()
        return Ended(code=ended.value.code, out=said.out, err=said.err)

    return run


@pytest.fixture
def live(settings: Settings, lethe: Lethe, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lethe]:
    """`lethe` beside a gateway and a worker, with the admin key of their data folder."""
    monkeypatch.setenv("LETHE_DATA_DIR", str(settings.data_dir))
    with processes.gateway(settings) as (_, address), processes.worker(settings):
        monkeypatch.setenv("LETHE_URL", address)
        yield lethe


@pytest.fixture
def people(tmp_path: Path) -> Path:
    file = tmp_path / "people.npz"
    file.write_bytes(npz())
    return file
