"""The README and the demo work as stated."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import Service
from tests.acceptance.printed import ID, documents, lines, shortened, steady

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(sh|json|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def section(title: str) -> str:
    return (ROOT / "README.md").read_text().split(f"## {title}\n")[1].split("\n## ")[0]


@pytest.mark.soak
def test_every_command_of_the_tour_runs(service: Service) -> None:
    """Each block of the README's tour runs and produces the output printed below it, apart from values that differ
    between runs.

    The README prints three dots for omitted parts of a response. The tour uses one dataset, one model, one request and
    one certificate."""
    tour = section("The tour, by curl")
    assert sorted(one.split("_")[0] for one in {found[0] for found in ID.finditer(tour)}) == ["crt", "dr", "ds", "mdl"]
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
            assert len(answered) == len(stated)
            for one, other in zip(stated, answered, strict=True):
                assert steady(one) == steady(shortened(other, like=one))
            ids |= {found[1]: found[0] for found in ID.finditer(answered[0].get("id", ""))}
            if "mdl" in ids:
                service.client.models.wait(ids["mdl"])
            if "dr" in ids:
                service.client.deletion_requests.wait(ids["dr"])
        else:
            assert lines(block) == lines(output)
    assert set(ids) == {"ds", "mdl", "dr"}


@pytest.mark.soak
def test_the_demo_runs_to_completion(tmp_path: Path) -> None:
    """`./dev demo --exit` runs to completion, prints the output shown in the README and exits with code 0, both the
    first and the second time."""
    [story] = [lines(block) for kind, block in BLOCK.findall(section("Two commands")) if kind == "text"]
    environment = os.environ | {"LETHE_DATA_DIR": str(tmp_path / "lethe"), "LETHE_PORT": "0"}
    demo = [sys.executable, str(ROOT / "examples" / "adult" / "demo.py"), "--exit"]
    for _ in range(2):
        done = subprocess.run(demo, env=environment, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "weights_destroyed" in done.stdout
        printed = lines(done.stdout)
        start = printed.index(story[0])
        assert printed[start : start + len(story)] == story


def run(script: str, service: Service) -> str:
    environment = os.environ | {"LETHE_DATA_DIR": str(service.data_dir)}
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=360, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
