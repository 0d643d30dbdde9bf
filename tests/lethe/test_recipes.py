"""The recipes in docs/recipes.md work as documented."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.config import Settings
from lethe import Client
from tests.conftest import ADULT
from tests.faults import processes

PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
BLOCK = re.compile(r"^```(sh|python|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)
ENDED = "--- the block above ended with"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"webhook_allowed_networks": "127.0.0.0/8"})


@pytest.fixture
def address(settings: Settings, admin_key: str, tmp_path: Path) -> Iterator[str]:
    """Start a gateway, a worker and the model that the recipes use, with the data folder linked as `.lethe`, and return
    the gateway's URL."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / ".lethe").symlink_to(settings.data_dir)
    rows = tmp_path / "rows.csv"
    rows.write_text("".join((ADULT / "train.csv").read_text().splitlines(keepends=True)[:2001]))
    with processes.gateway(settings) as (_, address), processes.worker(settings):
        with Client(address, admin_key) as client:
            dataset = client.datasets.upload(rows, name="adult", schema=ADULT / "schema.json")
            client.models.wait(client.models.create(name="income", dataset_id=dataset.id).id, timeout_seconds=300)
        yield address


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_recipes_print_as_documented(address: str, tmp_path: Path) -> None:
    """If the recipes are pasted into one plain shell from top to bottom, every command succeeds and prints the
    documented words. Only numbers and ids differ."""
    script, wanted = [], []
    for kind, block in BLOCK.findall(PAGE):
        if kind == "python":
            (tmp_path / "here" / block.splitlines()[0].removeprefix("# ")).write_text(block)
        elif kind == "sh":
            script.append(f"{block.replace('http://127.0.0.1:8000', address)}echo '{ENDED}' $?\n")
            wanted.append("")
        else:
            wanted[-1] += block
    done = subprocess.run(
        ["/bin/bash", "--noprofile", "--norc"],
        input="".join(script),
        cwd=tmp_path / "here",
        env={
            "HOME": str(tmp_path),
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    said = re.findall(rf"(.*?){ENDED} ([0-9]+)\n", done.stdout, re.DOTALL)
    assert [int(status) for _, status in said] == [0] * len(script), done.stdout
    assert [words(printed) for printed, _ in said] == [words(block) for block in wanted]
    assert any(wanted)


def words(text: str) -> list[str]:
    """Return the words of the text with ids, hashes, times and other numbers masked, because they vary between runs."""
    text = re.sub(r"\b[a-z]+_[0-9a-f]{20}\b|\b[0-9a-f]{64}\b|\bkey [\w-]+", "ID", text)
    text = re.sub(r"[0-9]+ entries, signed up to [0-9]+ \([0-9]+ ", "N (N ", text)
    text = re.sub(r"\bvalid  [0-9]+ entries|\bversion [0-9]+|\[[0-9,]+\]|\"without\":[0-9]+", "N", text)
    text = re.sub(r"link [0-9]+ of [0-9]+, [0-9]+ certificates", "link N of N, N certificates", text)
    text = re.sub(r"right [0-9.]+ %", "right N %", text)
    text = re.sub(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z", "TIME", text)
    return re.sub(r"[0-9.]+(e-[0-9]+)?\b(?= at|$)|(?<== )[0-9.e-]+", "N", text, flags=re.MULTILINE).split()
