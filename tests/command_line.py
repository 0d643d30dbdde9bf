"""The command `lethe` in tests, alone and with a running gateway: its arguments and its result."""

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main

from app.config import Settings
from lethe import cli
from tests.conftest import npz
from tests.faults import processes

# Each call would build the whole tree of commands again, as a process does once.
typer.main.get_command = functools.cache(typer.main.get_command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert (self.code, self.err) == (0, ""), self.err
        return json.loads(self.out)


Lethe = Callable[..., Ended]


def refused(ended: Ended, code: str) -> None:
    """Check that the command ended with exit code 1 and one line that names the condition."""
    assert (ended.code, ended.out) == (1, ""), (ended.code, ended.out, ended.err)
    assert ended.err.startswith(f"error: {code}: "), ended.err
    assert ended.err.count("\n") == 1
    assert "Traceback" not in ended.err


@pytest.fixture
def lethe(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Lethe:
    """Return a function that runs `lethe ARGUMENTS` in a folder of its own, like the real command."""
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
    """Return `lethe` with a running gateway and worker, and with the admin key of their data folder."""
    monkeypatch.setenv("LETHE_DATA_DIR", str(settings.data_dir))
    with processes.gateway(settings) as (_, address), processes.worker(settings):
        monkeypatch.setenv("LETHE_URL", address)
        yield lethe


@pytest.fixture
def people(tmp_path: Path) -> Path:
    file = tmp_path / "people.npz"
    file.write_bytes(npz())
    return file


@pytest.fixture
def certified(live: Lethe, people: Path, tmp_path: Path) -> Path:
    """Return the file of a completed request's certificate, saved next to the keys that verify it."""
    dataset = live("dataset", "create", people, "--classes", "0,1").json
    assert live("model", "create", dataset["id"], "--l2", "0.05").code == 0
    request = live("request", "submit", "p3").json
    file = tmp_path / "certificate.json"
    saved = live("request", "certificate", request["id"], file)
    assert (saved.code, saved.out) == (0, f"{file} and {file}.jwks.json\n")
    return file
