"""The README and the demo do what they say."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Service

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(sh|json|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)
ID = re.compile(r"\b(ds|mdl|dr|crt)_[0-9a-f]{20}\b")


@pytest.mark.slow
def test_every_command_of_the_tour_runs(service: Service) -> None:
    """Each block of the README's tour runs as printed, and each answer has the fields that are printed under it."""
    tour = (ROOT / "README.md").read_text().split("## The tour, by curl")[1].split("\n## ")[0]
    ids: dict[str, str] = {}
    script, output = "set -eu\n", ""
    for kind, block in BLOCK.findall(tour):
        if kind == "sh" and "./dev up" in block:
            continue
        if kind == "sh":
            for printed in ID.finditer(block):
                block = block.replace(printed[0], ids[printed[1]])
            block = block.replace("http://127.0.0.1:8000", service.address)
            block = block.replace("LETHE_DATA_DIR=.lethe ", "").replace(".lethe", str(service.data_dir))
            block = block.replace(".venv/bin/lethe", str(Path(sys.executable).with_name("lethe")))
            output = run(script + "echo @@@\n" + block, service).split("@@@\n", 1)[1]
            script += "".join(f"{line}\n" for line in block.splitlines() if re.match(r"[A-Z]+=", line))
        elif kind == "json":
            stated, answered = documents(block), documents(output)
            for one, other in zip(stated, answered, strict=False):
                assert fields(one) <= fields(other) | {"..."}
            ids |= {found[1]: found[0] for found in ID.finditer(json.dumps(answered[0].get("id", "")))}
            if "mdl" in ids:
                service.client.models.wait(ids["mdl"])
            if "dr" in ids:
                service.client.deletion_requests.wait(ids["dr"])
        else:
            assert block.split()[0] in output.split()
    assert set(ids) == {"ds", "mdl", "dr"}


@pytest.mark.slow
def test_the_demo_holds(tmp_path: Path) -> None:
    """`./dev demo --exit` tells its whole story and ends with exit code 0, also the second time."""
    environment = os.environ | {"LETHE_DATA_DIR": str(tmp_path / "lethe"), "LETHE_PORT": "0"}
    demo = [sys.executable, str(ROOT / "examples" / "adult" / "demo.py"), "--exit"]
    for _ in range(2):
        done = subprocess.run(demo, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "weights_destroyed" in done.stdout


def run(script: str, service: Service) -> str:
    environment = os.environ | {"LETHE_DATA_DIR": str(service.data_dir)}
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=360, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def documents(text: str) -> list[Any]:
    """The JSON documents that stand one after the other in `text`."""
    found, decoder, rest = [], json.JSONDecoder(), text.strip()
    while rest.startswith("{"):
        document, end = decoder.raw_decode(rest)
        found.append(document)
        rest = rest[end:].strip()
    return found


def fields(document: Any) -> set[str]:
    return set(document)
